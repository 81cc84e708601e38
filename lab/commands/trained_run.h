#ifndef PLANISH_LAB_COMMANDS_TRAINED_RUN_H_
#define PLANISH_LAB_COMMANDS_TRAINED_RUN_H_

#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "lab/engine/trained.h"
#include "lab/run/results.h"

// Commands that use a trained run or an exported model: export, sample, translate, search, write
// and downstream.
namespace planish::lab {

/// Options of such a command.
struct TrainedRunFlags {
  std::filesystem::path run;
  std::string data;  ///< data of the run; empty: its original place
  int threads = 0;   ///< 0: all cores
};

/// Settings of a run that a command replaces.
using SettingChanges = std::map<std::string, nlohmann::ordered_json>;

/// Adds the argument RUN.
void AddRunArgument(CLI::App& command, TrainedRunFlags& flags, const std::string& help);

/// Adds --data and --threads.
void AddTrainedRunOptions(CLI::App& command, TrainedRunFlags& flags);

/// Trained run, or exported model, that a command has opened. Gradients are off while it exists.
class TrainedRun {
 public:
  /// Checks that the data exists, reads the run, sets the number of threads, and loads data, model
  /// and checkpoint (OpenTrained). An exported model is opened alone (OpenModel). `command` begins
  /// the messages: "sample". Throws UsageError if the task does not exist or lacks a setting of
  /// `changes`, or if data is given for an exported model; DataError if the data is missing or
  /// malformed, and RunError if the run is unreadable, unfinished, without a checkpoint, or was
  /// trained on other data.
  TrainedRun(const std::string& command, const TrainedRunFlags& flags,
             const SettingChanges& changes = {});

  /// Returns the model's capability, one of engine/capabilities.h, or null if it lacks it.
  template <class Capability>
  Capability* If() {
    return dynamic_cast<Capability*>(trained_.experiment.get());
  }

  /// Returns the model's capability. Throws UsageError if it lacks it.
  template <class Capability>
  Capability& As() {
    auto* capability = If<Capability>();
    if (capability == nullptr) Refuse(Capability::kTask);
    return *capability;
  }

  /// Throws UsageError: the run must be of a task that `task`.
  [[noreturn]] void Refuse(const std::string& task) const;

  /// Writes the model to `file`, with weights in `type` (ExportModel).
  void Export(const std::filesystem::path& file, at::ScalarType type) const;

 private:
  at::NoGradGuard no_grad_;
  std::string command_;
  Run run_;
  Trained trained_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_COMMANDS_TRAINED_RUN_H_
