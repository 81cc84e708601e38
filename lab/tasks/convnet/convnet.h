#ifndef PLANISH_LAB_TASKS_CONVNET_CONVNET_H_
#define PLANISH_LAB_TASKS_CONVNET_CONVNET_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes a convolutional network with batch, layer and no normalization, and statistics of its
/// units near the image border (Ba, Kiros & Hinton 2016, 6.7).
std::unique_ptr<Task> MakeConvNet();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CONVNET_CONVNET_H_
