#ifndef PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_
#define PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Lines of short words of the letters a, e, i, l, n, o, r, s and t, written in straight strokes of
/// a few hundred points by hands that differ in size, width and slant and tremble a little; about
/// 24 characters a line. As many lines as `counts` says; fewer are the first ones of more. The same
/// on every machine.
Handwriting MakeStrokes(const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_SYNTHETIC_STROKES_H_
