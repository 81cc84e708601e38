#ifndef PLANISH_LAB_TASKS_RT_RT_H_
#define PLANISH_LAB_TASKS_RT_RT_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of film review sentences, positive or negative (Pang & Lee 2005), in a random
/// split chosen by the setting `split` (Xu et al. 2019, 2.2).
std::unique_ptr<Task> MakeRt();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_RT_RT_H_
