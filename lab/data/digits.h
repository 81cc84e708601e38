#ifndef PLANISH_LAB_DATA_DIGITS_H_
#define PLANISH_LAB_DATA_DIGITS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "lab/data/images.h"

namespace planish::lab {

/// Number and seed of the digits to draw.
struct Drawing {
  int64_t train = 10'000;
  int64_t test = 5'000;
  int64_t seed = 1;
};

inline constexpr int64_t kMaxDrawn = 1'000'000;

/// Draws 28 x 28 images of the ten digits like handwriting, the same bytes on every machine with
/// IEEE 754 arithmetic. Each image depends only on the seed, its split and its index, so a smaller
/// set is a prefix of a larger one. Every ten consecutive images contain each class once. Throws
/// UsageError if train or test is negative or above kMaxDrawn.
ImageSet DrawDigits(const Drawing& drawing);

enum class DrawnSplit : uint64_t { kTrain, kTest };

/// Returns a set called `name` of the images that `draw` makes of each split. `what` begins its
/// description. Throws UsageError like DrawDigits, with the name of the calling function.
ImageSet DrawImages(std::string_view function, const Drawing& drawing,
                    Images (*draw)(DrawnSplit, int64_t count, int64_t seed),
                    const std::string& name, std::string_view what);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_DIGITS_H_
