// planish-demo: the part of the planish command that `make demo` runs, for a shorter build.
#include <memory>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/tasks/pi-mnist/pi_mnist.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

void AddCommands(CLI::App& app, Action& action) {
  AddTrain(app, action);
  AddReport(app, action);
}

const std::vector<std::unique_ptr<Task>>& Tasks() {
  static const std::vector<std::unique_ptr<Task>> tasks = [] {
    std::vector<std::unique_ptr<Task>> one;
    one.push_back(MakePiMnist());
    return one;
  }();
  return tasks;
}

}  // namespace planish::lab
