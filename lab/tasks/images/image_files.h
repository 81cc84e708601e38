#ifndef PLANISH_LAB_TASKS_IMAGES_IMAGE_FILES_H_
#define PLANISH_LAB_TASKS_IMAGES_IMAGE_FILES_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lab/data/class_split.h"
#include "lab/tasks/digit_cases.h"

namespace planish::lab {

/// Colors of images: as in the files, or converted to grey or to color.
enum class Colors { kAuto, kGrey, kColor };

/// Choices of ReadImageFiles.
struct ImageFiles {
  Colors colors = Colors::kAuto;
  SplitOptions sets;  ///< sets that are drawn
};

/// Returns true for the name of an npz file.
bool IsNpz(const std::filesystem::path& file);

/// Reads images with classes from `path` or its folder `images`, or from the npz file `path`. The
/// folder has
/// - a folder of PNG or JPEG files for each class, or folders train, valid and test with such
/// folders;
/// - idx files NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte;
/// - npy files such as NAME_images.npy and NAME_labels.npy, or x_NAME.npy and y_NAME.npy;
/// - or npz files with such arrays.
/// NAME is or ends in the name of a set (RoleOf, or t10k), or is missing. docs/tasks/images.md
/// describes them. SplitByClass draws missing sets and shuffles the training images.
///
/// Classes are in the order of NumberClasses. Images are in color if one is (kAuto). Every image
/// must have the size of the first.
///
/// Throws DataError, naming the file, for images of different sizes, a class with a single image,
/// a class without a training image, fewer than two classes, a file of another image format in a
/// folder of a class, a folder without images beside others, or missing files, and like ReadPng,
/// ReadJpeg, ReadIdxImagesOfAnySize, ReadNpyPixels, ReadNpyIntegers and ZipArchive.
std::unique_ptr<DigitCases> ReadImageFiles(const std::filesystem::path& path,
                                           const ImageFiles& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_IMAGES_IMAGE_FILES_H_
