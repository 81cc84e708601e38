#ifndef PLANISH_LAB_TASKS_MNIST_CNN_MNIST_CNN_H_
#define PLANISH_LAB_TASKS_MNIST_CNN_MNIST_CNN_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of digits with a convolutional network (Xu et al. 2019, 2.2 and the column MNIST
/// of Tables 1 to 4): convolutions 1 -> 20 -> 50, a linear layer and the logits, batch size 32,
/// Adam.
///
/// The paper prints no kernel, pooling or hidden width: 5 x 5, 2 x 2 and 500 are from the common
/// example with these channels. It says both "normalization is applied before each layer" and
/// "LayerNorm before the activation in every linear layer".
/// So `norm_at` all has norms before the activations of both convolutions and the linear layer, and
/// `norm_at` linear only of the latter. The logits have none.
std::unique_ptr<Task> MakeMnistCnn();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MNIST_CNN_MNIST_CNN_H_
