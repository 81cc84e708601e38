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

/// Vocabulary of byte pair encoding (Sennrich et al. 2016), trained and applied by sentencepiece.
/// Its first three pieces are <pad>, </s> and <unk>, which replaces characters that training did
/// not see. Text is first normalized (NFKC, runs of blanks become one).
class Bpe {
 public:
  static constexpr int64_t kPad = 0;
  static constexpr int64_t kEnd = 1;
  static constexpr int64_t kUnknown = 2;

  /// Reads a serialized sentencepiece model. Throws DataError if it is invalid, or lacks one of the
  /// three pieces above at its position.
  explicit Bpe(std::string model);
  ~Bpe();
  Bpe(Bpe&&) noexcept;
  Bpe& operator=(Bpe&&) noexcept;

  /// Trains on lines: `size` pieces, or fewer if the lines do not have that many. Deterministic.
  /// Throws UsageError if `size` is too small for the characters of the lines.
  static Bpe Train(std::span<const std::string> lines, int64_t size);

  /// Returns Train(lines, size), cached in `folder` in a file named by size and hash of the lines.
  /// Reads the file if its checksum, which covers size and lines, is right, and no other user can
  /// have written it (ReadOwnFile); otherwise trains and replaces it. Does not cache without a folder, or if the file cannot be written.
  static Bpe TrainOnce(std::span<const std::string> lines, int64_t size,
                       const std::optional<std::filesystem::path>& folder);

  /// Returns the number of pieces.
  int64_t size() const;

  /// Returns the indices of a line's pieces, without </s>.
  std::vector<int32_t> Encode(std::string_view line) const;

  /// Returns the line with these pieces; <pad> and </s> give nothing, <unk> " ⁇ ". Throws DataError
  /// for an index outside [0, size()).
  std::string Decode(std::span<const int32_t> pieces) const;

  /// Returns the serialized model.
  const std::string& model() const { return model_; }

 private:
  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

/// Returns the folder for cached files: planish in $XDG_CACHE_HOME if that is an absolute path (as
/// the XDG base directory specification requires), else in $HOME/.cache. Returns nullopt without
/// either.
std::optional<std::filesystem::path> CacheFolder();

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_BPE_H_
