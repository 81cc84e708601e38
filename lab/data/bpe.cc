#include "lab/data/bpe.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <array>
#include <cstdlib>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "lab/data/sha256.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Part of the file's name. Increment it when the options or the file format change.
constexpr int kOptionsVersion = 3;

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::span<const std::string> lines) : lines_(lines) {}
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> lines_;
  size_t next_ = 0;
};

std::string HashOf(std::span<const std::string> lines) {
  Sha256 sha;
  for (const std::string& line : lines) {
    sha.Update({reinterpret_cast<const uint8_t*>(line.data()), line.size()});
    const uint8_t end = '\n';
    sha.Update({&end, 1});
  }
  return sha.Hex();
}

// Maximum size of a kept file in bytes; a larger file is not one.
constexpr int64_t kMaxFile = 256 << 20;

// Returns the first line of a kept file, a checksum of `key` (the training input) and the model. It
// covers the model because sentencepiece accepts damaged models or crashes, and `key` because a
// file can be renamed.
std::string Checksum(const std::string& key, const std::string& model) {
  return HashOf(std::array{key, model}) + "\n";
}

// Returns nullopt if the file is missing, unreadable, not a regular file, damaged, the model of
// another key, or perhaps written by another user, who can make a right checksum.
std::optional<Bpe> ReadModel(const fs::path& file, const std::string& key) {
  try {
    std::string model = ReadOwnFile(file, kMaxFile);
    const std::string sum = model.substr(0, model.find('\n') + 1);
    model.erase(0, sum.size());
    if (sum != Checksum(key, model)) return std::nullopt;
    return Bpe(std::move(model));
  } catch (const RunError&) {
    return std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

}  // namespace

Bpe::Bpe(std::string model)
    : model_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  if (!processor_->LoadFromSerializedProto(model_).ok()) {
    throw DataError(
        fmt::format("the {} bytes of the vocabulary are not a sentencepiece model", model_.size()));
  }
  const auto check = [&](int64_t place, int id, const char* piece) {
    if (id != place) {
      throw DataError(fmt::format("the vocabulary has {} {}; index {} was expected", piece,
                                  id < 0 ? std::string("nowhere") : fmt::format("at index {}", id),
                                  place));
    }
  };
  check(kPad, processor_->pad_id(), "<pad>");
  check(kEnd, processor_->eos_id(), "</s>");
  check(kUnknown, processor_->unk_id(), "<unk>");
}

Bpe::~Bpe() = default;
Bpe::Bpe(Bpe&&) noexcept = default;
Bpe& Bpe::operator=(Bpe&&) noexcept = default;

Bpe Bpe::Train(std::span<const std::string> lines, int64_t size) {
  Lines iterator(lines);
  std::string model;
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(size)},
      {"hard_vocab_limit", "false"},
      {"character_coverage", "1.0"},
      {"pad_id", std::to_string(kPad)},
      {"eos_id", std::to_string(kEnd)},
      {"unk_id", std::to_string(kUnknown)},
      {"bos_id", "-1"},
      {"num_threads", "1"},
      {"minloglevel", "2"},  // errors only; it is verbose on stderr otherwise
  };
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  if (!status.ok()) {
    throw UsageError(fmt::format(
        "[Bpe] vocabulary must hold at least every character of the text, got {} pieces", size));
  }
  return Bpe(std::move(model));
}

Bpe Bpe::TrainOnce(std::span<const std::string> lines, int64_t size,
                   const std::optional<fs::path>& folder) {
  if (!folder) return Train(lines, size);
  const std::string hash = HashOf(lines);
  const std::string key = fmt::format("{} {} {}", size, kOptionsVersion, hash);
  const fs::path file =
      *folder / fmt::format("bpe-{}-nfkc{}-{}.model", size, kOptionsVersion, hash.substr(0, 32));
  if (auto kept = ReadModel(file, key)) return *std::move(kept);
  Bpe bpe = Train(lines, size);
  std::error_code error;
  fs::create_directories(*folder, error);
  try {
    WriteFileAtomically(file, Checksum(key, bpe.model()) + bpe.model());
  } catch (const RunError&) {
    // Kept files only save time.
  }
  return bpe;
}

int64_t Bpe::size() const { return processor_->GetPieceSize(); }

std::vector<int32_t> Bpe::Encode(std::string_view line) const {
  std::vector<int> ids;
  if (const auto status = processor_->Encode({line.data(), line.size()}, &ids); !status.ok()) {
    throw DataError(
        fmt::format("sentencepiece cannot encode the line: {}", status.error_message()));
  }
  return {ids.begin(), ids.end()};
}

std::string Bpe::Decode(std::span<const int32_t> pieces) const {
  std::vector<int> ids;
  for (const int32_t piece : pieces) {
    if (piece < 0 || piece >= size()) {
      throw DataError(fmt::format("[Bpe] piece must be from 0 to {}, got {}", size() - 1, piece));
    }
    if (piece != kPad && piece != kEnd) ids.push_back(piece);
  }
  std::string line;
  if (const auto status = processor_->Decode(ids, &line); !status.ok()) {
    throw DataError(
        fmt::format("sentencepiece cannot decode the pieces: {}", status.error_message()));
  }
  return line;
}

std::optional<fs::path> CacheFolder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "planish";
  }
  if (const fs::path home = variable("HOME"); home.is_absolute()) {
    return home / ".cache" / "planish";
  }
  return std::nullopt;
}

}  // namespace planish::lab
