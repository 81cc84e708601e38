#ifndef PLANISH_LAB_TASKS_ONLINE_LN_ONLINE_LN_H_
#define PLANISH_LAB_TASKS_ONLINE_LN_ONLINE_LN_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of online layer normalization with several alpha, beside layer, batch and weight
/// normalization and none (T. Breloff, "Online Layer Normalization", 2016).
std::unique_ptr<Task> MakeOnlineLn();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ONLINE_LN_ONLINE_LN_H_
