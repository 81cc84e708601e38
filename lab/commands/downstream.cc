#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/data/file_content.h"
#include "lab/data/source.h"
#include "lab/downstream/evaluate.h"
#include "lab/downstream/sentence_sets.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/checkpoint.h"
#include "lab/engine/model_file.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/safetensors.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

struct DownstreamFlags {
  std::vector<fs::path> sources;
  std::string data, training_data;
  fs::path write;
  EvaluationOptions evaluation;
  bool json = false;
  int threads = 0;
};

// Returns true for the folder of a run and for an exported model.
bool IsRun(const fs::path& source) {
  std::error_code error;
  return fs::is_directory(source, error) || IsExportedModel(source);
}

// Sentence vectors in a file.
class VectorFile {
 public:
  explicit VectorFile(fs::path file) : file_(std::move(file)), content_(Read(file_)) {}

  /// Returns true if the file has the vectors of a set, "mr", or of a part of one, "sick.train.a".
  bool Has(const std::string& name) const { return content_.Find(name) != nullptr; }

  at::Tensor Vectors(const std::string& name, int64_t sentences) const {
    const StoredTensor* stored = content_.Find(name);
    if (!stored) FailToRead(file_, "it has no tensor " + name);
    const bool is_double = stored->dtype == "F64";
    if ((!is_double && stored->dtype != "F32") || stored->shape.size() != 2) {
      FailToRead(file_,
                 fmt::format("{} is {} with {}; F32 or F64 with 2 dimensions was expected", name,
                             stored->dtype, Count(std::ssize(stored->shape), "dimension")));
    }
    if (stored->shape[0] != sentences || stored->shape[1] < 1) {
      FailToRead(file_,
                 fmt::format("{} has {} of {}; one for each of the {} sentences was expected", name,
                             Count(stored->shape[0], "vector"), Count(stored->shape[1], "element"),
                             sentences));
    }
    const at::Tensor vectors = at::empty(stored->shape, is_double ? at::kDouble : at::kFloat);
    std::ranges::copy(stored->data, static_cast<std::byte*>(vectors.mutable_data_ptr()));
    if (!at::isfinite(vectors).all().item<bool>()) {
      FailToRead(file_, fmt::format("{} has elements that are not finite", name));
    }
    return vectors;
  }

 private:
  static SafetensorsFile Read(const fs::path& file) {
    try {
      return SafetensorsFile::Read(file);
    } catch (const RunError& e) {
      throw DataError(e.what());
    }
  }

  fs::path file_;
  SafetensorsFile content_;
};

// Returns the folder of the sets. Throws UsageError if none is given.
const fs::path& Required(const std::optional<fs::path>& folder) {
  if (folder) return *folder;
  throw UsageError(
      "[downstream] --data must name the folder of the sets, or else the variable PLANISH_DATA");
}

SentenceEvaluationSets ReadSets(const fs::path& folder) {
  SentenceEvaluationSets sets = ReadSentenceEvaluationSets(folder);
  if (sets.empty()) {
    throw DataError(fmt::format("{} has none of the sets sick, mr, cr, subj and mpqa",
                                Escaped(folder.string())));
  }
  return sets;
}

// Returns the sets for which the file has vectors.
SentenceEvaluationSets SetsOf(const VectorFile& file, SentenceEvaluationSets sets,
                              const fs::path& path) {
  bool has_sick = false;
  for (const char* part : {"train", "trial", "test"}) {
    for (const char* side : {"a", "b"}) {
      has_sick |= file.Has(fmt::format("sick.{}.{}", part, side));
    }
  }
  if (!has_sick) sets.sick.reset();
  std::erase_if(sets.classified,
                [&](const ClassifiedSentences& set) { return !file.Has(set.name); });
  if (sets.empty()) FailToRead(path, "it has no vectors of the sets in the data folder");
  return sets;
}

// Writes vectors to a file as they were computed.
void Write(const fs::path& file, const std::map<std::string, at::Tensor>& vectors) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, t] : vectors) {
    stored.push_back({name,
                      "F32",
                      t.sizes().vec(),
                      {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
  }
  WriteSafetensors(OutputTarget(file), stored);
}

std::map<std::string, double> JudgeRun(const fs::path& folder, const DownstreamFlags& flags) {
  std::optional<fs::path> data = DataFolder(flags.data);
  TrainedRun run("downstream", {.run = folder, .data = flags.training_data});
  auto& encoder = run.As<SentenceEncoder>();
  if (!data && fs::is_directory(folder)) {
    const std::string read = SummarizeCheckpoint(CheckpointFile(folder)).data;
    if (!read.empty()) data = GivenData(read);
  }
  std::map<std::string, at::Tensor> kept;
  const auto vectors = [&](const std::string& name, const std::vector<std::string>& sentences) {
    return kept[name] = encoder.EncodeSentences(sentences).contiguous();
  };
  const auto values = EvaluateSentences(ReadSets(Required(data)), vectors, flags.evaluation);
  if (!flags.write.empty()) Write(flags.write, kept);
  return values;
}

std::map<std::string, double> JudgeFile(const fs::path& path, const DownstreamFlags& flags) {
  const std::optional<fs::path> data = DataFolder(flags.data);
  const fs::path& folder = Required(data);
  const VectorFile file(path);
  const SentenceEvaluationSets sets = SetsOf(file, ReadSets(folder), path);
  return EvaluateSentences(
      sets,
      [&](const std::string& name, const std::vector<std::string>& sentences) {
        return file.Vectors(name, std::ssize(sentences));
      },
      flags.evaluation);
}

struct Column {
  const char* name;
  const char* head;
  int digits;
  double scale;
};

constexpr Column kColumns[] = {
    {"sick_r", "SICK r", 4, 1}, {"sick_rho", "rho", 4, 1}, {"sick_mse", "MSE", 4, 1},
    {"mr", "MR %", 2, 100},     {"cr", "CR %", 2, 100},    {"subj", "SUBJ %", 2, 100},
    {"mpqa", "MPQA %", 2, 100},
};

int RunDownstream(const DownstreamFlags& flags) {
  std::vector<bool> is_run;  // of each source
  std::ranges::transform(flags.sources, std::back_inserter(is_run), IsRun);
  if (!flags.write.empty() && (is_run.size() != 1 || !is_run[0])) {
    throw UsageError("[downstream] --write must go with one run as the only source");
  }
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < flags.sources.size(); ++i) {
    const fs::path& source = flags.sources[i];
    const auto values = is_run[i] ? JudgeRun(source, flags) : JudgeFile(source, flags);
    if (flags.json) {
      nlohmann::ordered_json line = {{"source", Escaped(source.string())}};
      for (const Column& column : kColumns) {
        if (const auto value = values.find(column.name); value != values.end()) {
          line[column.name] = value->second;
        }
      }
      Print(line.dump() + "\n");
    } else {
      if (i == 0) {
        for (const Column& column : kColumns) Print(fmt::format("{:>8}", column.head));
        Print("\n");
      }
      for (const Column& column : kColumns) {
        const auto value = values.find(column.name);
        Print(value == values.end()
                  ? fmt::format("{:>8}", "-")
                  : fmt::format("{:8.{}f}", value->second * column.scale, column.digits));
      }
      PrintText("  " + source.string() + "\n");
    }
    FlushStdout();
  }
  return 0;
}

}  // namespace

void AddDownstream(CLI::App& app, Action& action) {
  auto flags = std::make_shared<DownstreamFlags>();
  CLI::App* downstream =
      app.add_subcommand("downstream", "Evaluate sentence vectors on SICK, MR, CR, SUBJ and MPQA");
  downstream->footer(
      "A SOURCE is a run of skip-thoughts (with the weights that validation chose) or a "
      "safetensors\n"
      "file with vectors, F32 or F64, one per row in the order of the sets' lines:\n"
      "  sick.train.a sick.train.b sick.trial.a sick.trial.b sick.test.a sick.test.b\n"
      "  mr (rt-polarity.pos, then .neg)  cr  subj  mpqa\n"
      "Sets that are missing in the file or the folder are left out.\n\n"
      "SICK: correlations and mean squared error of the expected scores of a softmax regression.\n"
      "Other sets: accuracy of logistic regressions by nested cross-validation.\n\n"
      "Example:\n"
      "  planish downstream runs/skip-thoughts/small-layer-b64-s1 vectors.safetensors --data DIR");
  downstream->add_option("SOURCE", flags->sources, "Runs, and files of sentence vectors")
      ->type_name("")
      ->required()
      ->check(NotEmpty("downstream", "SOURCE"));
  AddDataOption(*downstream, flags->data,
                "Folder of the sets (default: $PLANISH_DATA, else the run's data)");
  downstream
      ->add_option("--training-data", flags->training_data,
                   "Data that the run was trained on (default: its original place)")
      ->type_name("PATH")
      ->check(NotEmpty("downstream", "--training-data"));
  downstream
      ->add_option("--folds", flags->evaluation.folds,
                   "Folds of the outer cross-validation (default: 10)")
      ->type_name("N")
      ->check(WholeNumber("downstream", "--folds", 2, 100));
  downstream
      ->add_option("--inner", flags->evaluation.inner,
                   "Inner folds, which choose the penalty (default: 10)")
      ->type_name("N")
      ->check(WholeNumber("downstream", "--inner", 2, 100));
  downstream
      ->add_option("--write", flags->write, "Also write a run's vectors of the sets to this file")
      ->type_name("FILE")
      ->check(NotEmpty("downstream", "--write"));
  downstream->add_flag("--json", flags->json, "Print a line of JSON for each source");
  AddThreadsOption(*downstream, flags->threads);
  downstream->callback([&action, flags] { action = [flags] { return RunDownstream(*flags); }; });
}

}  // namespace planish::lab
