// planish-models: the commands that use trained models in one file, which `make demo` builds last.
#include <memory>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/tasks/char-lm/char_lm.h"
#include "lab/tasks/draw/draw.h"
#include "lab/tasks/handwriting/handwriting.h"
#include "lab/tasks/mt/mt.h"
#include "lab/tasks/skip-thoughts/skip_thoughts.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

void AddCommands(CLI::App& app, Action& action) {
  AddSample(app, action);
  AddTranslate(app, action);
  AddSearch(app, action);
  AddWrite(app, action);
}

// The tasks of results/models.
const std::vector<std::unique_ptr<Task>>& Tasks() {
  static const std::vector<std::unique_ptr<Task>> tasks = [] {
    std::vector<std::unique_ptr<Task>> some;
    some.push_back(MakeCharLm());
    some.push_back(MakeMt());
    some.push_back(MakeHandwriting());
    some.push_back(MakeDraw());
    some.push_back(MakeSkipThoughts());
    return some;
  }();
  return tasks;
}

}  // namespace planish::lab
