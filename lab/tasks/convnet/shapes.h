#ifndef PLANISH_LAB_TASKS_CONVNET_SHAPES_H_
#define PLANISH_LAB_TASKS_CONVNET_SHAPES_H_

#include "lab/data/digits.h"
#include "lab/data/images.h"

namespace planish::lab {

/// Draws 28 x 28 images of ten grey shapes on a noisy background: disc, ring, square, frame,
/// diamond, plus, cross, bars, triangle and crescent, of any size, position, tone and shading.
/// Unlike digits they reach the border of the image.
/// Each image depends only on the seed, its split and its index, so a smaller set is a prefix of a
/// larger one. Integer arithmetic gives the same bytes on every machine. Each ten consecutive
/// images contain each class once. Throws UsageError like DrawDigits.
ImageSet DrawShapes(const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CONVNET_SHAPES_H_
