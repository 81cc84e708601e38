#ifndef PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_
#define PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Returns `counts` lines of short words in straight strokes, the same on every machine. Fewer
/// lines are a prefix of more. A line has about 24 characters and a few hundred points; letters are
/// a, e, i, l, n, o, r, s and t. Hands differ in size, width, slant and noise.
Handwriting MakeStrokes(const LineRequest& request);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_
