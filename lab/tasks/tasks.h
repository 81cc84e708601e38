#ifndef PLANISH_LAB_TASKS_TASKS_H_
#define PLANISH_LAB_TASKS_TASKS_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string_view>
#include <vector>

#include "lab/engine/task.h"
#include "lab/error.h"

namespace planish::lab {

/// Returns every task of the program, in the order of `planish list`. A new experiment is a folder
/// beside this file and one line in tasks.cc. (planish-demo and planish-models have
/// lists of their own, lab/demo.cc and lab/models.cc.)
const std::vector<std::unique_ptr<Task>>& Tasks();

/// Returns the task called `name`. Throws UsageError listing all if there is none.
inline const Task& FindTask(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& task : Tasks()) {
    if (task->name == name) return *task;
    names.push_back(task->name);
  }
  throw UsageError(
      fmt::format("[planish] task must be one of {}, got \"{}\"", fmt::join(names, ", "), name));
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_TASKS_H_
