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

// Readers of idx files of images and of labels, plain or gzipped. All throw DataError
// naming the file if one is missing, unreadable, truncated, corrupt, too long, or not of its kind.

/// Returns the first folder, of `folder` and its subfolders `inner`, with one of the `names`.
/// `what` names the files in errors: "the files of MNIST".
std::filesystem::path LocateIdxFiles(const std::filesystem::path& folder,
                                     std::span<const std::string_view> inner,
                                     std::span<const std::string> names, const std::string& what);

/// Returns the file `name`, else `name`.gz.
std::filesystem::path FindIdxFile(const std::filesystem::path& folder, const std::string& name);

/// Returns pixels [N, 28, 28], N from 1 to ten million.
std::vector<uint8_t> ReadIdxImages(const std::filesystem::path& file);

/// Images of any height and width.
struct IdxImages {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  ///< [count, height, width]
};

/// Like ReadIdxImages, for images of 1 x 1 to kMaxImageSide x kMaxImageSide pixels.
IdxImages ReadIdxImagesOfAnySize(const std::filesystem::path& file);

/// Returns labels [N].
std::vector<uint8_t> ReadIdxLabels(const std::filesystem::path& file);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IDX_FILES_H_
