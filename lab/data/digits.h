#ifndef PLANISH_LAB_DATA_DIGITS_H_
#define PLANISH_LAB_DATA_DIGITS_H_

#include <cstdint>

#include "lab/data/images.h"

namespace planish::lab {

/// How many digits to draw, and which.
struct Drawing {
  int64_t train = 10'000;
  int64_t test = 5'000;
  int64_t seed = 1;
};

inline constexpr int64_t kMaxDrawn = 1'000'000;

/// Draws 28 x 28 images of the ten digits as a hand would write them: strokes of several styles,
/// bent, slanted, blurred and noised. Each image depends on the seed, its split and its index
/// alone, so a smaller set is the beginning of a larger one, and every machine with IEEE 754
/// arithmetic draws the same bytes. Each ten images in a row hold each class once. Throws
/// UsageError when train or test is negative or above kMaxDrawn.
ImageSet DrawDigits(const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_DIGITS_H_
