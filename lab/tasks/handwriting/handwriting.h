#ifndef PLANISH_LAB_TASKS_HANDWRITING_HANDWRITING_H_
#define PLANISH_LAB_TASKS_HANDWRITING_HANDWRITING_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of handwriting from text (Ba, Kiros & Hinton 2016, 6.5): the synthesis network of
/// Graves 2013, 5.2. Data are lines of IAM-OnDB, lines composed of DigiLeTs, or synthetic lines.
std::unique_ptr<Task> MakeHandwriting();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_HANDWRITING_H_
