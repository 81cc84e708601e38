#ifndef PLANISH_LAB_TASKS_CONVNET_SHAPES_H_
#define PLANISH_LAB_TASKS_CONVNET_SHAPES_H_

#include "lab/data/digits.h"
#include "lab/data/images.h"

namespace planish::lab {

/// 28 x 28 images of ten grey shapes on a noisy ground: disc, ring, square, frame, diamond, plus,
/// cross, bars, triangle and crescent, of any size, place, tone and shading. Unlike digits they
/// reach the border of the image. Each image depends on the seed, its split and its index alone, so
/// a smaller set is the beginning of a larger one, and integers alone make it: the same bytes on
/// every machine. Each ten images in a row hold each class once. Throws UsageError as DrawDigits.
ImageSet DrawShapes(const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CONVNET_SHAPES_H_
