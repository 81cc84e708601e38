#ifndef PLANISH_LAB_TASKS_PI_MNIST_PI_MNIST_H_
#define PLANISH_LAB_TASKS_PI_MNIST_PI_MNIST_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of permutation-invariant MNIST (Ba, Kiros & Hinton 2016, 6.6 and Fig 6):
/// 784-1000-1000-10, ReLU, Adam. Layer norms are on the two hidden layers, not on the logits. Batch
/// norm is on all layers, with the unbiased variance at batch size 4.
std::unique_ptr<Task> MakePiMnist();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PI_MNIST_PI_MNIST_H_
