#ifndef PLANISH_LAB_TASKS_SST5_SST5_H_
#define PLANISH_LAB_TASKS_SST5_SST5_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of film review sentences in five classes, from very negative to very positive
/// (the Stanford Sentiment Treebank, Socher et al. 2013; Xu et al. 2019, 2.2): whole sentences
/// only.
std::unique_ptr<Task> MakeSst5();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SST5_SST5_H_
