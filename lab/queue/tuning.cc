#include "lab/queue/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Returns the rates between the ends of a grid with `digits` significant digits.
std::vector<std::string> Rounded(double low, double high, int points, int digits) {
  std::vector<std::string> rates = {fmt::format("{}", low)};
  for (int i = 1; i + 1 < points; ++i) {
    const double rate = low * std::pow(high / low, static_cast<double>(i) / (points - 1));
    rates.push_back(fmt::format("{}", std::stod(fmt::format("{:.{}g}", rate, digits))));
  }
  rates.push_back(fmt::format("{}", high));
  return rates;
}

bool Rises(const std::vector<std::string>& rates) {
  return std::ranges::adjacent_find(rates, [](const std::string& a, const std::string& b) {
           return std::stod(a) >= std::stod(b);
         }) == rates.end();
}

}  // namespace

std::vector<std::string> LogGrid(double low, double high, int points) {
  // Short numbers, unless the grid is too narrow for them.
  constexpr int kDigits = 3, kMaxDigits = 17;
  std::vector<std::string> rates;
  for (int digits = kDigits; digits <= kMaxDigits; ++digits) {
    rates = Rounded(low, high, points, digits);
    if (Rises(rates)) break;
  }
  return rates;
}

std::vector<SweepRequest> Combinations(const SweepRequest& request) {
  std::vector<SweepRequest> combinations = {request};
  combinations.front().values.clear();
  for (const auto& [name, values] : request.values) {
    std::vector<SweepRequest> next;
    for (const SweepRequest& combination : combinations) {
      for (const std::string& value : values) {
        next.push_back(combination);
        next.back().values.emplace_back(name, std::vector{value});
      }
    }
    combinations = std::move(next);
  }
  return combinations;
}

std::vector<QueuedRun> TuningEntry::RunsAt(const std::string& rate, int64_t first_seed,
                                           int seeds) const {
  SweepRequest sweep = request_;
  sweep.values.emplace_back(kRateSetting, std::vector{rate});
  sweep.seeds.clear();
  for (int64_t i = 0; i < seeds; ++i) sweep.seeds.push_back(first_seed + i);
  return QueueSweep(task_, sweep, group_);
}

RunsByName::RunsByName(const fs::path& out) {
  if (!fs::exists(out)) return;
  try {
    runs_ = FindRuns({out}).runs;
  } catch (const DataError&) {  // there is none
  }
  for (const Run& run : runs_) {
    by_name_[(run.folder.parent_path().filename() / run.folder.filename()).string()] = &run;
  }
}

const Run* RunsByName::Find(const fs::path& folder) const {
  const auto found = by_name_.find((folder.parent_path().filename() / folder.filename()).string());
  return found == by_name_.end() ? nullptr : found->second;
}

bool LowerIsBetter(const Task& task) {
  const auto metric = std::ranges::find(task.metrics, task.choose_by, &MetricSpec::name);
  return metric == task.metrics.end() || metric->lower_is_better;
}

Tuning ReadTuning(const Task& task, const TuningEntry& entry, const std::vector<std::string>& rates,
                  int seeds, const RunsByName& found) {
  Tuning tuning;
  for (const std::string& rate : rates) {
    std::vector<const Run*> of_rate;
    for (const QueuedRun& queued : entry.TuningRunsAt(rate, seeds)) {
      const Run* const run = found.Find(queued.plan.folder);
      tuning.is_complete &= run != nullptr && run->result.has_value();
      if (run) of_rate.push_back(run);
    }
    tuning.trials.push_back(TrialOf(std::stod(rate), of_rate));
  }
  if (tuning.is_complete) tuning.chosen = ChooseRate(tuning.trials, LowerIsBetter(task));
  return tuning;
}

Tuning FindTuning(const Task& task, const RunPlan& plan, const std::vector<Run>& runs) {
  const auto key_of = [](nlohmann::json settings) {  // unordered: the order of keys does not count
    settings.erase(kRateSetting);
    return settings;
  };
  const nlohmann::json key = key_of(StoredSettings(plan.settings));
  std::map<double, std::vector<const Run*>> by_rate;
  std::set<std::string> data;
  for (const Run& run : runs) {
    const RunConfig& config = run.config;
    if (!IsTuningRun(run) || config.task != task.name || config.preset != plan.preset ||
        key_of(config.settings) != key) {
      continue;
    }
    by_rate[config.settings.at(kRateSetting).get<double>()].push_back(&run);
    data.insert(config.data.sha256);
  }
  if (data.size() > 1) {
    throw UsageError(fmt::format(
        "[train] the runs of --tuned must have used the same data, got those of {} and others",
        by_rate.begin()->second.front()->folder.string()));
  }
  Tuning tuning;
  size_t most = 0;
  for (const auto& [rate, of_rate] : by_rate) {
    tuning.trials.push_back(TrialOf(rate, of_rate));
    most = std::max(most, of_rate.size());
  }
  for (const RateTrial& trial : tuning.trials) {
    tuning.is_complete &= static_cast<size_t>(trial.runs) == most;
  }
  if (tuning.is_complete) tuning.chosen = ChooseRate(tuning.trials, LowerIsBetter(task));
  return tuning;
}

std::string RateText(const RateTrial& trial) { return fmt::format("{}", trial.rate); }

}  // namespace planish::lab
