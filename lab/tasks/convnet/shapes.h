#ifndef PLANISH_LAB_TASKS_CONVNET_SHAPES_H_
#define PLANISH_LAB_TASKS_CONVNET_SHAPES_H_

#include "lab/data/digits.h"
#include "lab/data/images.h"

namespace planish::lab {

/// Draws 28 x 28 images of ten grey shapes, from disc to crescent, on a noisy background, the same
/// bytes on every machine. Size, position, tone and shading vary. Unlike digits, shapes reach the
/// border of the image. Every ten consecutive images contain each class once. An image depends only
/// on the seed, its split and its index, so a smaller set is a prefix of a larger one. Throws
/// UsageError like DrawDigits.
ImageSet DrawShapes(const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CONVNET_SHAPES_H_
