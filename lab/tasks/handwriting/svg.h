#ifndef PLANISH_LAB_TASKS_HANDWRITING_SVG_H_
#define PLANISH_LAB_TASKS_HANDWRITING_SVG_H_

#include <string>
#include <vector>

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// The strokes as an SVG document, which begins with kSvgBegin: dark lines on white, `scale`
/// pixels for a unit of the data. `text` is what it says of itself; points that are not finite end
/// the strokes.
std::string StrokesSvg(const std::vector<PenPoint>& points, double scale, const std::string& text);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_SVG_H_
