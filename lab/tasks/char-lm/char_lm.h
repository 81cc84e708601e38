#ifndef PLANISH_LAB_TASKS_CHAR_LM_CHAR_LM_H_
#define PLANISH_LAB_TASKS_CHAR_LM_CHAR_LM_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes a character model: an embedding, a recurrent layer of any cell, a linear layer to the
/// characters; Adam, truncated backpropagation through time with the state carried over contiguous
/// streams. Every cell trains on the same batches.
std::unique_ptr<Task> MakeCharLm();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CHAR_LM_CHAR_LM_H_
