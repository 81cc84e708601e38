#ifndef PLANISH_LAB_ENGINE_SWEEP_H_
#define PLANISH_LAB_ENGINE_SWEEP_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/engine/train.h"
#include "lab/error.h"

namespace planish::lab {

/// Runs requested on a command line.
struct SweepRequest {
  std::string preset;  ///< empty: the task's first
  /// Setting -> values, in the order given. Each combination is one run for each seed; the first
  /// setting varies slowest.
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  std::vector<int64_t> seeds;
  std::filesystem::path out;
};

/// Error in a part of a SweepRequest.
class RequestError : public UsageError {
 public:
  RequestError(const std::string& message, std::string name, std::optional<size_t> value = {})
      : UsageError(message), name_(std::move(name)), value_(value) {}

  /// Returns "preset" or the name of a setting.
  const std::string& name() const { return name_; }
  /// Returns the index of the wrong value in the setting's list; nullopt for the setting itself.
  std::optional<size_t> value() const { return value_; }

 private:
  std::string name_;
  std::optional<size_t> value_;
};

/// Returns a preset of the task, or its first one for an empty name. Throws RequestError, a message
/// of `command`, if there is none.
const Preset& FindPreset(const Task& task, const std::string& name,
                         const std::string& command = "train");

/// Maximum number of runs of a sweep.
inline constexpr size_t kMaxSweepRuns = 100'000;

/// Returns the runs of a sweep. Seeds vary slowest, so that an unfinished sweep already has every
/// combination. Folders are out/<task>/<preset>-<compared>-b<batch>[-key=value...]-s<seed>, where
/// <compared> is the value of the setting that the task compares. Throws RequestError for unknown
/// presets, settings or values, a setting or value given twice, an empty list, or more than
/// kMaxSweepRuns runs.
std::vector<RunPlan> PlanSweep(const Task& task, const SweepRequest& request);

/// Adds the values that the task compares by default (SettingSpec::compared), before all other
/// settings, unless the request has the compared setting or there are none.
void AddComparedValues(const Task& task, SweepRequest& request);

/// Splits "a,b,c" at its commas. Throws UsageError naming `flag` if a part is empty.
std::vector<std::string> SplitList(const std::string& flag, const std::string& text,
                                   const std::string& command = "train");

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SWEEP_H_
