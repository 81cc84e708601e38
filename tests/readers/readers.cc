#include "tests/readers/readers.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "lab/base/escape.h"
#include "lab/data/conllu.h"
#include "lab/data/file_content.h"
#include "lab/data/idx_files.h"
#include "lab/data/jpeg_reader.h"
#include "lab/data/lines.h"
#include "lab/data/npy.h"
#include "lab/data/png_reader.h"
#include "lab/data/sentences.h"
#include "lab/data/table.h"
#include "lab/data/text.h"
#include "lab/downstream/sentence_sets.h"
#include "lab/engine/adam.h"
#include "lab/engine/checkpoint.h"
#include "lab/engine/streams.h"
#include "lab/error.h"
#include "lab/queue/sweep_file.h"
#include "lab/run/archive.h"
#include "lab/run/results.h"
#include "lab/run/safetensors.h"
#include "lab/tasks/attentive-reader/cloze.h"
#include "lab/tasks/draw/binary_images.h"
#include "lab/tasks/enwik8/bytes.h"
#include "lab/tasks/handwriting/digilets.h"
#include "lab/tasks/handwriting/iam_ondb.h"
#include "lab/tasks/images/image_files.h"
#include "lab/tasks/mt/parallel.h"
#include "lab/tasks/order-embedding/captions.h"
#include "lab/tasks/skip-thoughts/books.h"
#include "lab/tasks/tasks.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

const fs::path kSeeds = PLANISH_READER_SEEDS;
constexpr int64_t kAll = int64_t{1} << 30;

// Model of the checkpoint in seeds: a linear layer of one input and two outputs.
struct SmallModel : torch::nn::Module {
  SmallModel() { register_module("linear", torch::nn::Linear(1, 2)); }
};

void ReadCheckpoint(const fs::path& file) {
  SmallModel model;
  Adam adam(ParametersOf(model), {});
  LoadCheckpoint(file, model, adam);
  LoadBestWeights(file, model);
  SummarizeCheckpoint(file);
}

// Reads a checkpoint with another state, whose checksum is right.
void ReadCheckpointState(const fs::path& file) {
  static const SafetensorsFile valid =
      SafetensorsFile::Read(kSeeds / "checkpoint/linear.safetensors");
  std::map<std::string, std::string> metadata = valid.metadata();
  metadata["state"] = ReadFile(file);
  const fs::path checkpoint = file.parent_path() / (file.filename().string() + ".safetensors");
  WriteSafetensors(checkpoint, valid.tensors(), metadata);
  ReadCheckpoint(checkpoint);
}

// Throws RunError for predictions of a run that FindRuns names.
void ReadPredictions(const fs::path& file) {
  const FoundRuns found = FindRuns({file.parent_path()});
  if (!found.faults.empty()) throw RunError(found.faults.front());
}

std::vector<Reader> AllReaders() {
  const std::pair<std::string, std::string> config{"run-config/small.json", "config.json"};
  const auto run = [](const fs::path& file) { ReadRun(file.parent_path()); };
  const auto captions = [](const fs::path& file) {
    OpenCaptions(file.parent_path(), {.data = "files"});
  };
  const auto text = [](const fs::path& file) { ReadLines(file); };
  return {
      {"archive", "small.runs.tar.gz", [](const fs::path& file) { ReadArchivedRuns(file); }},
      {"binary-images",
       "binarized_mnist_train-images-idx3-ubyte",
       [](const fs::path& file) { LoadBinaryMnist(file.parent_path()); },
       {{"binary-images/one.idx", "binarized_mnist_valid-images-idx3-ubyte"},
        {"binary-images/one.idx", "binarized_mnist_test-images-idx3-ubyte"}}},
      {"book", "book.txt",
       [](const fs::path& file) { ParseBook(ReadTextFile(file), file.string()); }},
      {"bytes", "enwik8.txt", [](const fs::path& file) { ReadBytes(file, kAll); }},
      {"captions",
       "train_caps.txt",
       captions,
       {{"npy/rows.npy", "train_ims.npy"},
        {"npy/rows.npy", "dev_ims.npy"},
        {"npy/rows.npy", "test_ims.npy"},
        {"captions/ten.txt", "dev_caps.txt"},
        {"captions/ten.txt", "test_caps.txt"}}},
      {"characters", "input.txt",
       [](const fs::path& file) { ReadText(file, kAll, TextUnit::kCharacter); }},
      {"checkpoint", "checkpoint.safetensors", ReadCheckpoint},
      {"checkpoint-state", "state.json", ReadCheckpointState},
      {"classified", "subj.all", [](const fs::path& file) { ReadClassified(file, "subj"); }},
      {"cloze", "one.question",
       [](const fs::path& file) {
         ClozeWords words;
         ParseQuestion(ReadLines(file), file.string(), &words);
       }},
      {"conllu", "train.conllu",
       [](const fs::path& file) { ParseConllu(ReadTextFile(file), file.string()); }},
      {"digilets", "1.txt",
       [](const fs::path& file) { ParseDigilets(ReadLines(file), file.string()); }},
      {"gzip", "lines.txt.gz", text},
      {"idx-images", "images.idx", [](const fs::path& file) { ReadIdxImages(file); }},
      {"idx-images-of-any-size", "images.idx",
       [](const fs::path& file) { ReadIdxImagesOfAnySize(file); }},
      {"idx-labels", "labels.idx", [](const fs::path& file) { ReadIdxLabels(file); }},
      {"jpeg", "image.jpg", [](const fs::path& file) { ReadJpeg(file); }},
      {"labelled", "stsa.fine.train",
       [](const fs::path& file) { SentenceReader(8).ReadLabelled(file, 5); }},
      {"lines", "lines.txt", text},
      {"npy", "array.npy", [](const fs::path& file) { ReadNpy(file); }},
      {"npy-pixels", "array.npy", [](const fs::path& file) { ReadNpyPixels(file); }},
      {"npy-integers", "array.npy", [](const fs::path& file) { ReadNpyIntegers(file); }},
      {"npz", "arrays.npz", [](const fs::path& file) { ReadImageFiles(file, {}); }},
      {"pair-table", "pairs.tsv",
       [](const fs::path& file) { OpenParallel(file, {.data = "files"}); }},
      {"parallel", "deu.txt",
       [](const fs::path& file) { OpenParallel(file.parent_path(), {.data = "tatoeba"}); }},
      {"pairs",
       "train.en",
       [](const fs::path& file) { OpenParallel(file.parent_path(), {.data = "files"}); },
       {{"pairs/three.txt", "train.de"},
        {"pairs/three.txt", "valid.en"},
        {"pairs/three.txt", "valid.de"},
        {"pairs/three.txt", "test.en"},
        {"pairs/three.txt", "test.de"}}},
      {"png", "image.png", [](const fs::path& file) { ReadPng(file); }},
      {"run-config", "config.json", run},
      {"run-metrics", "metrics.jsonl", run, {config}},
      {"run-predictions",
       kPredictionsFile,
       ReadPredictions,
       {config,
        {"run-metrics/small.jsonl", "metrics.jsonl"},
        {"run-result/small.json", "result.json"}}},
      {"run-result", "result.json", run, {config, {"run-metrics/small.jsonl", "metrics.jsonl"}}},
      {"safetensors", "small.safetensors",
       [](const fs::path& file) { SafetensorsFile::Read(file); }},
      {"sentences", "rt-polarity.pos",
       [](const fs::path& file) { SentenceReader(8).Read(file, 1); }},
      {"sick", "SICK_train.txt", [](const fs::path& file) { ReadSick(file); }},
      {"strokes", "a01-000u-01.xml",
       [](const fs::path& file) { ParseLineStrokes(FileContent(file).Rest(), file.string()); }},
      {"sweep", "sweep.toml",
       [](const fs::path& file) { PlanSweepFile(file, file.parent_path() / "runs", FindTask); }},
      {"table-csv", "table.csv", [](const fs::path& file) { ReadTable(file); }},
      {"table-jsonl", "table.jsonl", [](const fs::path& file) { ReadTable(file); }},
      {"text", "input.txt", [](const fs::path& file) { ReadText(file, kAll); }},
      {"transcription", "a01-000u.txt", [](const fs::path& file) { ReadTranscription(file); }},
  };
}

}  // namespace

const std::vector<Reader>& Readers() {
  static const std::vector<Reader> readers = AllReaders();
  return readers;
}

const Reader& FindReader(std::string_view name) {
  const auto found = std::ranges::find(Readers(), name, &Reader::name);
  if (found == Readers().end()) throw std::out_of_range("no reader " + std::string(name));
  return *found;
}

ReaderTrial::ReaderTrial(const Reader& reader, const fs::path& folder)
    : read_(reader.read), file_(folder / reader.file) {
  for (const auto& [seed, name] : reader.others) fs::copy_file(kSeeds / seed, folder / name);
}

std::string ReaderTrial::Read(std::string_view bytes) const {
  WriteFile(file_, bytes);
  try {
    read_(file_);
  } catch (const DataError& error) {
    return error.what();
  } catch (const RunError& error) {
    return error.what();
  } catch (const UsageError& error) {
    return Escaped(error.what());  // as the command prints it: settings are quoted as they are
  }
  return "";
}

std::string ReaderTrial::Check(std::string_view message) const {
  if (message.empty()) return "";
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(message, control)) return "a control character";
  if (FindInvalidUtf8(message)) return "invalid UTF-8";
  if (message.find(file_.parent_path().string()) == message.npos) return "no name of the file";
  if (message.ends_with(": not enough memory")) return "too much memory";
  return "";
}

std::vector<fs::path> Seeds(const Reader& reader) {
  std::vector<fs::path> seeds;
  for (const auto& entry : fs::directory_iterator(kSeeds / reader.name)) {
    seeds.push_back(entry.path());
  }
  std::ranges::sort(seeds);
  return seeds;
}

}  // namespace planish::lab
