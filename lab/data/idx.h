#ifndef PLANISH_LAB_DATA_IDX_H_
#define PLANISH_LAB_DATA_IDX_H_

#include <filesystem>

#include "lab/data/images.h"

namespace planish::lab {

/// Images of 28 x 28 pixels in ten classes from the four files of MNIST's distribution,
/// {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain or gzipped (with or without .gz in its
/// name; the plain name goes first). They are looked for in `folder`, `folder`/mnist and
/// `folder`/MNIST/raw. The set is named "mnist" when its content is MNIST's, else "idx images".
/// Throws DataError that names the file when one is missing, unreadable, truncated, corrupt, too
/// long, or not what its name says, and when images and labels differ in number.
ImageSet LoadMnist(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IDX_H_
