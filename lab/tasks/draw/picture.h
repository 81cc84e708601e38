#ifndef PLANISH_LAB_TASKS_DRAW_PICTURE_H_
#define PLANISH_LAB_TASKS_DRAW_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/tasks/draw/model.h"

namespace planish::lab {

/// Returns at most `max_count` of `glimpses`, counted from 1, evenly spaced and including the last.
std::vector<int64_t> ShownGlimpses(int64_t glimpses, int64_t max_count);

/// Draws generated images as an SVG document: a row for each image, a column for each glimpse of
/// `shown` (counted from 1), ink in black. A red frame, as wide as the filters' deviation, marks
/// the glimpse's writing.
std::string DrawCanvases(const DrawModel::Drawing& drawing, const std::vector<int64_t>& shown);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_PICTURE_H_
