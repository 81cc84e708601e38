#include "lab/commands/commands.h"

namespace planish::lab {

void AddCommands(CLI::App& app, Action& action) {
  AddTrain(app, action);
  AddTune(app, action);
  AddReproduce(app, action);
  AddSweep(app, action);
  AddReport(app, action);
  AddThin(app, action);
  AddShow(app, action);
  AddDiff(app, action);
  AddList(app, action);
  AddExport(app, action);
  AddSample(app, action);
  AddTranslate(app, action);
  AddSearch(app, action);
  AddWrite(app, action);
  AddData(app, action);
  AddMake(app, action);
  AddDownstream(app, action);
  AddAnalyze(app, action);
  AddBench(app, action);
  AddCompletion(app, action);
  AddMan(app, action);
}

}  // namespace planish::lab
