#include "lab/reproduce/arena_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lab/analysis/arena.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

using Entries = std::vector<std::map<std::string, std::string>>;

Entries OfNorms(const std::vector<std::string>& norms) {
  Entries entries;
  for (const std::string& norm : norms) entries.push_back({{"norm", norm}});
  return entries;
}

// Returns `norms` at the placement `usual`, LayerNorm and RMSNorm at the other `placements`, and
// LayerNorm with norms of queries and keys.
Entries OfTransformer(const std::vector<std::string>& norms, const std::string& usual,
                      const std::vector<std::string>& placements,
                      const std::vector<std::string>& placed) {
  Entries entries;
  for (const std::string& norm : norms) {
    entries.push_back({{"norm", norm}, {"placement", usual}, {"qk_norm", "false"}});
  }
  for (const std::string& placement : placements) {
    for (const std::string& norm : placed) {
      entries.push_back({{"norm", norm}, {"placement", placement}, {"qk_norm", "false"}});
    }
  }
  entries.push_back({{"norm", "layer"}, {"placement", usual}, {"qk_norm", "true"}});
  return entries;
}

// Runs below a folder by task and name, such as "rt/small-layer-b4096-s1".
class FoundByName {
 public:
  explicit FoundByName(const fs::path& out) {
    if (!fs::exists(out)) return;
    try {
      runs_ = FindRuns({out}).runs;
    } catch (const DataError&) {  // there is none
    }
    for (const Run& run : runs_) by_name_[NameOf(run.folder)] = &run;
  }
  const Run* Find(const fs::path& folder) const {
    const auto found = by_name_.find(NameOf(folder));
    return found == by_name_.end() ? nullptr : found->second;
  }

 private:
  static std::string NameOf(const fs::path& folder) {
    return (folder.parent_path().filename() / folder.filename()).string();
  }
  std::vector<Run> runs_;
  std::map<std::string, const Run*> by_name_;
};

// Returns the columns of the requested tasks, with the entries of the requested norms.
std::vector<ArenaColumn> Requested(const std::vector<ArenaColumn>& columns,
                                   const ReproduceRequest& request) {
  std::vector<std::string> known;
  for (const ArenaColumn& column : columns) known.push_back(column.task);
  const std::vector<std::string>& tasks = request.tasks.empty() ? known : request.tasks;
  std::vector<ArenaColumn> chosen;
  std::set<std::string> seen, unused(request.norms.begin(), request.norms.end());
  for (const std::string& task : tasks) {
    const auto found = std::ranges::find(columns, task, &ArenaColumn::task);
    if (found == columns.end()) {
      throw UsageError(fmt::format("[reproduce] --tasks must be of {}, got \"{}\"",
                                   fmt::join(known, ", "), task));
    }
    if (!seen.insert(task).second) continue;
    ArenaColumn column = *found;
    for (const auto& entry : column.entries) unused.erase(entry.at("norm"));
    std::erase_if(column.entries, [&](const auto& entry) {
      return !request.norms.empty() &&
             std::ranges::find(request.norms, entry.at("norm")) == request.norms.end();
    });
    if (request.seeds) column.seeds = *request.seeds;
    if (!column.entries.empty()) chosen.push_back(std::move(column));
  }
  if (!unused.empty()) {
    throw UsageError(
        fmt::format("[reproduce] --norms must be of norms that one of the tasks has in the arena, "
                    "got \"{}\"",
                    *unused.begin()));
  }
  return chosen;
}

// Runs of one entry.
class EntryRuns {
 public:
  EntryRuns(const Task& task, const std::map<std::string, std::string>& settings,
            std::string preset, fs::path out, size_t group)
      : task_(task), preset_(std::move(preset)), out_(std::move(out)), group_(group) {
    for (const auto& [name, value] : settings) values_.emplace_back(name, std::vector{value});
  }

  std::vector<QueuedRun> At(const std::string& rate, int64_t first_seed, int seeds) const {
    SweepRequest sweep;
    sweep.preset = preset_;
    sweep.out = out_;
    sweep.values = values_;
    sweep.values.emplace_back(kRateSetting, std::vector{rate});
    for (int64_t i = 0; i < seeds; ++i) sweep.seeds.push_back(first_seed + i);
    return QueueSweep(task_, sweep, group_);
  }

 private:
  const Task& task_;
  std::string preset_;
  fs::path out_;
  size_t group_;
  std::vector<std::pair<std::string, std::vector<std::string>>> values_;
};

// Returns the grid of a task as texts, ascending.
std::vector<std::string> RatesOf(const Task& task, const std::string& preset) {
  SweepRequest request;
  request.preset = preset;
  request.seeds = {1};
  const double usual = PlanSweep(task, request).front().settings.Real(kRateSetting);
  std::vector<std::string> rates;
  for (const double factor : kRateFactors) rates.push_back(fmt::format("{:.6g}", usual * factor));
  return rates;
}

}  // namespace

const std::vector<ArenaColumn>& ArenaColumns() {
  static const std::vector<ArenaColumn> columns = [] {
    const std::vector<std::string> of_rows = {"none",  "layer", "layer-simple", "rms",
                                              "group", "ada",   "dyt",          "derf"};
    std::vector<std::string> of_all = of_rows;
    of_all.insert(of_all.end(), {"batch", "weight"});
    const std::vector<std::string> both = {"layer", "rms"};
    return std::vector<ArenaColumn>{
        {"pi-mnist", OfNorms(of_all), 2, 5, 0.5},
        {"rt", OfTransformer(of_rows, "pre", {"post", "peri", "sandwich", "deepnorm"}, both), 2, 5,
         0.5},
        {"mnist-cnn", OfNorms(of_all), 1, 5, 1.4},
        {"parser", OfNorms(of_all), 1, 5, 1.4},
        {"mt", OfTransformer(of_rows, "pre", {"post", "peri", "sandwich", "deepnorm"}, both), 1, 3,
         1},
        {"enwik8",
         OfTransformer({"none", "layer", "rms", "dyt"}, "post",
                       {"pre", "peri", "sandwich", "deepnorm"}, {"layer"}),
         1, 3, 1.3},
    };
  }();
  return columns;
}

ArenaPlan MakeArenaPlan(const ReproduceRequest& request, const TaskFinder& find,
                        const std::vector<ArenaColumn>& columns) {
  const std::string preset = request.preset.empty() ? "small" : request.preset;
  const FoundByName found(request.out);
  ArenaPlan plan;
  std::vector<std::vector<std::string>> cells;
  std::vector<std::optional<double>> reference;
  std::vector<std::pair<size_t, size_t>> stages;  // first and last run of each, in `all`
  std::set<size_t> unknown;                       // runs whose rate is not chosen
  for (const ArenaColumn& column : Requested(columns, request)) {
    const Task& task = find(column.task);
    const std::vector<std::string> rates = RatesOf(task, preset);
    const size_t group = plan.all.groups.size();
    plan.all.groups.push_back(column.task);
    reference.push_back(preset == "small" ? std::optional(column.minutes) : std::nullopt);
    cells.push_back({column.task, preset, std::to_string(column.entries.size()),
                     std::to_string(rates.size()), std::to_string(column.tuning_seeds),
                     std::to_string(column.seeds)});
    std::vector<QueuedRun>& runs = plan.all.runs;
    const auto add_stage = [&](const auto& add) {
      const size_t first = runs.size();
      for (const auto& entry : column.entries) {
        add(EntryRuns(task, entry, preset, request.out, group));
      }
      stages.emplace_back(first, runs.size());
    };
    const auto append = [&](std::vector<QueuedRun> more) {
      std::ranges::move(more, std::back_inserter(runs));
    };
    const auto tuning = [&](const EntryRuns& entry, const std::string& rate) {
      return entry.At(rate, kFirstTuningSeed, column.tuning_seeds);
    };
    add_stage([&](const EntryRuns& entry) {
      for (const std::string& rate : rates) append(tuning(entry, rate));
    });
    add_stage([&](const EntryRuns& entry) {
      std::vector<RateTrial> trials;
      bool is_tuned = true, lower_is_better = true;
      for (const std::string& rate : rates) {
        std::vector<const Run*> of_rate;
        for (const QueuedRun& queued : tuning(entry, rate)) {
          const Run* const run = found.Find(queued.plan.folder);
          is_tuned &= run != nullptr && run->result.has_value();
          if (run) of_rate.push_back(run);
        }
        trials.push_back(TrialOf(std::stod(rate), of_rate));
      }
      const auto metric = std::ranges::find(task.metrics, task.choose_by, &MetricSpec::name);
      lower_is_better = metric == task.metrics.end() || metric->lower_is_better;
      const std::optional<size_t> chosen =
          is_tuned ? ChooseRate(trials, lower_is_better) : std::nullopt;
      if (is_tuned && !chosen) return;  // it diverges at every rate
      std::vector<QueuedRun> more =
          entry.At(rates[chosen.value_or(rates.size() / 2)], 1, column.seeds);
      for (size_t i = 0; i < more.size() && !chosen; ++i) unknown.insert(runs.size() + i);
      append(std::move(more));
    });
  }
  plan.all.estimates = Estimates(std::move(reference));
  plan.all.FindResults();
  for (const size_t run : unknown) plan.all.runs[run].done = false;
  plan.table = fmt::format(
      "{}\n\n{}", kArenaTitle,
      RenderQueue(plan.all, {"task", "preset", "entries", "rates", "tuning seeds", "seeds"},
                  cells));
  plan.stage.groups = plan.all.groups;
  plan.stage.estimates = plan.all.estimates;
  for (const auto& [first, last] : stages) {
    for (size_t i = first; i < last; ++i) {
      if (!plan.all.runs[i].done && !unknown.contains(i)) {
        plan.stage.runs.push_back(plan.all.runs[i]);
      }
    }
    if (!plan.stage.runs.empty()) break;
  }
  return plan;
}

}  // namespace planish::lab
