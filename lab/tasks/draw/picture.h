#ifndef PLANISH_LAB_TASKS_DRAW_PICTURE_H_
#define PLANISH_LAB_TASKS_DRAW_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/tasks/draw/model.h"

namespace planish::lab {

/// Up to `most` of `glimpses`, evenly spread, counted from 1; the last one is among them.
std::vector<int64_t> ShownGlimpses(int64_t glimpses, int64_t most);

/// Generated images as an SVG document: a row an image, a column a glimpse of `shown` (counted from
/// 1), ink in black, and in red where that glimpse wrote, with a line as wide as its filters'
/// deviation.
std::string DrawCanvases(const DrawModel::Drawing& drawing, const std::vector<int64_t>& shown);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_PICTURE_H_
