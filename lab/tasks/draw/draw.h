#ifndef PLANISH_LAB_TASKS_DRAW_DRAW_H_
#define PLANISH_LAB_TASKS_DRAW_DRAW_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of binarized MNIST with DRAW (Ba, Kiros & Hinton 2016, 6.4 and Fig 4): 64
/// glimpses, two LSTMs of 256, Adam. Norm `layer` normalizes only c at the LSTMs' output (Eq.
/// 29-31); `layer-full` is Eq. 20-22 in both LSTMs.
std::unique_ptr<Task> MakeDraw();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_DRAW_H_
