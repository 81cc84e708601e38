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

/// First word of an idx file: bytes (0x08) in three dimensions or in one.
inline constexpr int64_t kIdxImagesMagic = 0x00000803;
inline constexpr int64_t kIdxLabelsMagic = 0x00000801;

/// Height and width of MNIST's images.
inline constexpr int64_t kIdxSide = 28;

/// Appends an idx file's header, `words` as big-endian 32-bit integers, to the hash.
void AddIdxHeader(Sha256& sha, std::initializer_list<int64_t> words);

/// Reader of idx files of 28 x 28 images and of labels, plain or gzipped. All functions throw
/// DataError naming the loader and the file if one is missing, unreadable, truncated, corrupt, too
/// long, or not of its kind.
class IdxFiles {
 public:
  /// `function` is the name of the loader in errors.
  explicit IdxFiles(std::string_view function) : function_(function) {}

  /// Returns the first folder, of `folder` and its subfolders `inner`, with one of the `names`.
  /// `what` names the files in errors: "the files of MNIST".
  std::filesystem::path Locate(const std::filesystem::path& folder,
                               std::span<const std::string_view> inner,
                               std::span<const std::string> names, const std::string& what) const;

  /// Returns the file `name`, else `name`.gz.
  std::filesystem::path Find(const std::filesystem::path& folder, const std::string& name) const;

  /// Returns pixels [N, 28, 28], N from 1 to ten million.
  std::vector<uint8_t> Images(const std::filesystem::path& file) const;

  /// Returns labels [N].
  std::vector<uint8_t> Labels(const std::filesystem::path& file) const;

  /// Throws DataError that `file` must `must`, with `has` as the actual state.
  [[noreturn]] void Fail(const std::filesystem::path& file, const std::string& must,
                         const std::string& has) const;

 private:
  // Returns an empty path if there is neither.
  std::filesystem::path FindAny(const std::filesystem::path& folder, const std::string& name) const;
  std::vector<uint8_t> Read(const std::filesystem::path& file, int64_t magic,
                            std::span<const int64_t> dims) const;

  std::string function_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IDX_FILES_H_
