#ifndef PLANISH_LAB_TASKS_TASKS_H_
#define PLANISH_LAB_TASKS_TASKS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "lab/engine/task.h"

namespace planish::lab {

/// Returns every task, in the order of `planish list`. A new experiment is a folder beside this
/// file and one line in tasks.cc.
const std::vector<std::unique_ptr<Task>>& Tasks();

/// Returns the task called `name`. Throws UsageError listing all if there is none.
const Task& FindTask(std::string_view name);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_TASKS_H_
