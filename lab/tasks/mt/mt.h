#ifndef PLANISH_LAB_TASKS_MT_MT_H_
#define PLANISH_LAB_TASKS_MT_MT_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of machine translation (Xu et al. 2019, 2.2): a pre-norm Transformer on pieces of
/// a shared vocabulary, BLEU of beam search. Its experiments are LineTranslators.
std::unique_ptr<Task> MakeMt();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_MT_H_
