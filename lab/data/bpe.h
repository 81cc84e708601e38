#ifndef PLANISH_LAB_DATA_BPE_H_
#define PLANISH_LAB_DATA_BPE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace planish::lab {

/// A vocabulary of byte pair encoding (Sennrich et al. 2016), as sentencepiece trains and applies
/// it. Its first three pieces are <pad>, </s> and <unk>, which stands for every character that
/// training did not see. Text is normalised first (NFKC, runs of blanks to one).
class Bpe {
 public:
  static constexpr int64_t kPad = 0;
  static constexpr int64_t kEnd = 1;
  static constexpr int64_t kUnknown = 2;

  /// Reads a serialised sentencepiece model. Throws DataError where it is none, or lacks one of the
  /// three pieces above at its place.
  explicit Bpe(std::string model);
  ~Bpe();
  Bpe(Bpe&&) noexcept;
  Bpe& operator=(Bpe&&) noexcept;

  /// Trains on lines: `size` pieces, or fewer where the lines do not give as many. The same lines
  /// and size give the same vocabulary. Throws UsageError where `size` does not even hold the
  /// characters of the lines.
  static Bpe Train(std::span<const std::string> lines, int64_t size);

  /// Returns Train(lines, size), kept in `folder` in a file whose name has size and hash of the
  /// lines. The file is read if its checksum, which covers size and lines, is right; otherwise the
  /// vocabulary is trained and the file replaced. Without a folder, or if the file cannot be
  /// written, nothing is kept.
  static Bpe TrainOnce(std::span<const std::string> lines, int64_t size,
                       const std::optional<std::filesystem::path>& folder);

  /// How many pieces there are.
  int64_t size() const;

  /// The pieces of a line, by number, without </s>.
  std::vector<int32_t> Encode(std::string_view line) const;

  /// The line that has these pieces; <pad> and </s> give nothing, <unk> " ⁇ ". Throws DataError for
  /// a number that is not from 0 to size() - 1.
  std::string Decode(std::span<const int32_t> pieces) const;

  /// The serialised model.
  const std::string& model() const { return model_; }

 private:
  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

/// Where programs keep what they can make again: planish in $XDG_CACHE_HOME where that is an
/// absolute path (as the XDG base directory specification asks), else in $HOME/.cache. Nothing
/// without either.
std::optional<std::filesystem::path> CacheFolder();

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_BPE_H_
