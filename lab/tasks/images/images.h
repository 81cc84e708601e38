#ifndef PLANISH_LAB_TASKS_IMAGES_IMAGES_H_
#define PLANISH_LAB_TASKS_IMAGES_IMAGES_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of images in the user's classes (image_files.h), with the model of mnist-cnn (Xu
/// et al. 2019) or that of pi-mnist (Ba, Kiros & Hinton 2016). docs/tasks/images.md describes the
/// files.
std::unique_ptr<Task> MakeImages();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_IMAGES_IMAGES_H_
