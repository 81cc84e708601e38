#ifndef PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_
#define PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Returns lines of short words of the letters a, e, i, l, n, o, r, s and t in straight strokes,
/// with a few hundred points and about 24 characters a line. Hands differ in size, width, slant and
/// noise. Returns the number of lines in `counts`; fewer lines are a prefix of more. The same on
/// every machine.
Handwriting MakeStrokes(const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_
