#ifndef PLANISH_LAB_DATA_IDX_H_
#define PLANISH_LAB_DATA_IDX_H_

#include <filesystem>
#include <string_view>

#include "lab/data/images.h"

namespace planish::lab {

/// ImageSet::sha256 of MNIST as LoadMnist reads it.
inline constexpr std::string_view kMnistSha256 =
    "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a";

/// Reads 28 x 28 images in ten classes from {train,t10k}-{images-idx3,labels-idx1}-ubyte. Files are
/// plain or gzipped, with or without .gz in the name; a name without .gz is preferred. They are in
/// `folder`, `folder`/mnist or `folder`/MNIST/raw. The set is named "mnist" if its content is
/// MNIST's, else "idx images". Throws DataError naming the file if one is missing or malformed, or
/// if the numbers of images and labels differ.
ImageSet LoadMnist(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IDX_H_
