#include "lab/reproduce/arena_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lab/analysis/arena.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/queue/tuning.h"

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

// Returns the request of an entry, without its rate.
SweepRequest RequestOf(const std::map<std::string, std::string>& settings,
                       const std::string& preset, const fs::path& out) {
  SweepRequest request;
  request.preset = preset;
  request.out = out;
  for (const auto& [name, value] : settings) request.values.emplace_back(name, std::vector{value});
  return request;
}

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
  const RunsByName found(request.out);
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
        add(TuningEntry(task, RequestOf(entry, preset, request.out), group));
      }
      stages.emplace_back(first, runs.size());
    };
    const auto append = [&](std::vector<QueuedRun> more) {
      std::ranges::move(more, std::back_inserter(runs));
    };
    add_stage([&](const TuningEntry& entry) {
      for (const std::string& rate : rates) append(entry.TuningRunsAt(rate, column.tuning_seeds));
    });
    add_stage([&](const TuningEntry& entry) {
      const Tuning tuning = ReadTuning(task, entry, rates, column.tuning_seeds, found);
      if (tuning.is_complete && !tuning.chosen) return;  // it diverges at every rate
      std::vector<QueuedRun> more =
          entry.RunsAt(rates[tuning.chosen.value_or(rates.size() / 2)], 1, column.seeds);
      for (size_t i = 0; i < more.size() && !tuning.chosen; ++i) unknown.insert(runs.size() + i);
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
