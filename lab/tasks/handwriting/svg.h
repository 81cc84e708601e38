#ifndef PLANISH_LAB_TASKS_HANDWRITING_SVG_H_
#define PLANISH_LAB_TASKS_HANDWRITING_SVG_H_

#include <string>
#include <vector>

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Returns the strokes as an SVG document that begins with kSvgBegin: dark lines on white, `scale`
/// pixels per unit of the data. `text` is its label. The strokes end at a point that is not finite.
std::string StrokesSvg(const std::vector<PenPoint>& points, double scale, const std::string& text);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_SVG_H_
