#ifndef PLANISH_LAB_TASKS_MNIST_CNN_MNIST_CNN_H_
#define PLANISH_LAB_TASKS_MNIST_CNN_MNIST_CNN_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of digits with a convolutional network (Xu et al. 2019, 2.2 and the column MNIST
/// of Tables 1 to 4). docs/tasks/mnist-cnn.md says which sizes the paper prints, and where
/// `norm_at` places the norms.
std::unique_ptr<Task> MakeMnistCnn();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MNIST_CNN_MNIST_CNN_H_
