#ifndef PLANISH_LAB_TASKS_TASKS_H_
#define PLANISH_LAB_TASKS_TASKS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "lab/engine/task.h"

namespace planish::lab {

/// Every task, in the order in which `planish list` shows them. A new experiment is a folder beside
/// this file and one line in tasks.cc.
const std::vector<std::unique_ptr<Task>>& Tasks();

/// The task called `name`. Throws UsageError that lists those there are.
const Task& FindTask(std::string_view name);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_TASKS_H_
