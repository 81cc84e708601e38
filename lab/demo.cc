// planish-demo: the planish command with what `make demo` runs, which is built much sooner.
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
