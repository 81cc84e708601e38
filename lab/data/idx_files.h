#ifndef PLANISH_LAB_DATA_IDX_FILES_H_
#define PLANISH_LAB_DATA_IDX_FILES_H_

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/sha256.h"

namespace planish::lab {

/// The first word of an idx file: bytes (0x08) in three dimensions, or in one.
inline constexpr int64_t kIdxImagesMagic = 0x00000803;
inline constexpr int64_t kIdxLabelsMagic = 0x00000801;

/// Height and width of MNIST's images.
inline constexpr int64_t kIdxSide = 28;

/// Appends an idx file's header, `words` as big-endian numbers of 32 bits, to what is hashed.
void AddIdxHeader(Sha256& sha, std::initializer_list<int64_t> words);

/// Idx files of 28 x 28 images and of labels, each plain or gzipped, for loaders of several of
/// them. All throw DataError, which names the loader and the file, where one is missing,
/// unreadable, truncated, corrupt, too long, or not what its name says.
class IdxFiles {
 public:
  /// `function` is the loader that the errors name.
  explicit IdxFiles(std::string_view function) : function_(function) {}

  /// The first of `folder` and the folders named `inner` below it that holds one of the `names`.
  /// `what` are the files, for the errors: "the files of MNIST".
  std::filesystem::path Locate(const std::filesystem::path& folder,
                               std::span<const std::string_view> inner,
                               std::span<const std::string> names, const std::string& what) const;

  /// The file `name`, else `name`.gz.
  std::filesystem::path Find(const std::filesystem::path& folder, const std::string& name) const;

  /// Pixels [N, 28, 28], N from 1 to ten million.
  std::vector<uint8_t> Images(const std::filesystem::path& file) const;

  /// Labels [N].
  std::vector<uint8_t> Labels(const std::filesystem::path& file) const;

  /// Throws DataError: FILE must MUST but has HAS.
  [[noreturn]] void Fail(const std::filesystem::path& file, const std::string& must,
                         const std::string& has) const;

 private:
  // Empty where there is neither.
  std::filesystem::path FindAny(const std::filesystem::path& folder, const std::string& name) const;
  std::vector<uint8_t> Read(const std::filesystem::path& file, int64_t magic,
                            std::span<const int64_t> dims) const;

  std::string function_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IDX_FILES_H_
