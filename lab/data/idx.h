#ifndef PLANISH_LAB_DATA_IDX_H_
#define PLANISH_LAB_DATA_IDX_H_

#include <filesystem>
#include <string_view>

#include "lab/data/images.h"

namespace planish::lab {

/// ImageSet::sha256 of MNIST as LoadMnist reads it.
inline constexpr std::string_view kMnistSha256 =
    "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a";

/// Reads images of 28 x 28 pixels in ten classes from the four files of MNIST's distribution,
/// {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or gzipped (with or without .gz in the name;
/// the plain name goes first). Searches `folder`, `folder`/mnist and `folder`/MNIST/raw.
/// The set is named "mnist" if its content is MNIST's, else "idx images". Throws DataError naming
/// the file if one is missing, unreadable, truncated, corrupt, too long, or not of its kind, and if
/// the numbers of images and labels differ.
ImageSet LoadMnist(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IDX_H_
