#include "lab/reproduce/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "lab/engine/sweep.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Returns the columns `names` in their order. A task's name selects all of its columns.
std::vector<const PaperColumn*> ChooseColumns(const Paper& paper,
                                              const std::vector<std::string>& names) {
  std::vector<const PaperColumn*> chosen;
  const auto add = [&](const PaperColumn& column) {
    if (std::ranges::find(chosen, &column) == chosen.end()) chosen.push_back(&column);
  };
  for (const std::string& name : names) {
    bool found = false;
    for (const PaperColumn& column : paper.columns) {
      if (!column.runs_of.empty() || (column.name != name && column.task != name)) continue;
      add(column);
      found = true;
    }
    if (found) continue;
    std::vector<std::string> known;
    for (const PaperColumn& column : paper.columns) {
      if (column.runs_of.empty()) known.push_back(column.name);
    }
    for (const PaperColumn& column : paper.columns) {
      if (std::ranges::find(known, column.task) == known.end()) known.push_back(column.task);
    }
    throw UsageError(
        fmt::format("[reproduce] --tasks must be of {}, got \"{}\"", fmt::join(known, ", "), name));
  }
  if (names.empty()) {
    for (const PaperColumn& column : paper.columns) {
      if (column.runs_of.empty()) add(column);
    }
  }
  return chosen;
}

// Returns the requested norms that the column's task has, or the column's own if none are
// requested.
std::vector<std::string> NormsOf(const PaperColumn& column, const Task& task,
                                 const std::vector<std::string>& requested) {
  if (requested.empty()) return column.norms;
  const auto spec = std::ranges::find(task.settings, "norm", &SettingSpec::name);
  if (spec == task.settings.end()) return {};
  std::vector<std::string> norms;
  std::ranges::copy_if(requested, std::back_inserter(norms), [&](const std::string& norm) {
    return std::ranges::find(spec->choices, norm) != spec->choices.end();
  });
  return norms;
}

std::string OwnPreset(const Paper& paper, const PaperColumn& column) {
  return column.preset.empty() ? paper.preset : column.preset;
}

}  // namespace

ReproducePlan MakePlan(const Paper& paper, const ReproduceRequest& request,
                       const TaskFinder& find) {
  if (std::set(request.norms.begin(), request.norms.end()).size() < request.norms.size()) {
    throw UsageError(fmt::format("[reproduce] --norms must name each norm once, got \"{}\"",
                                 fmt::join(request.norms, ",")));
  }
  ReproducePlan plan;
  plan.paper = &paper;
  plan.preset = request.preset.empty() ? paper.preset : request.preset;
  std::set<std::string> unused(request.norms.begin(), request.norms.end());
  for (const PaperColumn* column : ChooseColumns(paper, request.tasks)) {
    const auto norms = NormsOf(*column, find(column->task), request.norms);
    if (norms.empty()) continue;
    for (const std::string& norm : norms) unused.erase(norm);
    plan.columns.push_back({column, norms, request.seeds.value_or(column->seeds),
                            request.preset.empty() ? OwnPreset(paper, *column) : request.preset});
  }
  if (!unused.empty()) {
    throw UsageError(fmt::format(
        "[reproduce] --norms must be of norms that one of the columns' tasks has, got \"{}\"",
        *unused.begin()));
  }
  RunResults results;
  plan.queue = QueueColumns(paper, plan.columns, request.out, find, results);
  return plan;
}

RunQueue QueueColumns(const Paper& paper, const std::vector<PlannedColumn>& columns,
                      const fs::path& out, const TaskFinder& find, RunResults& results) {
  struct Place {
    bool extra;
    int64_t seed;
    size_t column, norm;
    auto operator<=>(const Place&) const = default;
  };
  RunQueue queue;
  std::vector<std::optional<double>> reference;
  std::vector<std::pair<Place, QueuedRun>> runs;
  std::set<fs::path> queued;
  for (const PlannedColumn& planned : columns) {
    const PaperColumn& column = *planned.column;
    const auto group =
        static_cast<size_t>(std::ranges::find(queue.groups, column.name) - queue.groups.begin());
    if (group == queue.groups.size()) {
      queue.groups.push_back(column.name);
      const bool own = planned.preset == OwnPreset(paper, column);
      reference.push_back(own ? std::optional(column.minutes) : std::nullopt);
    }
    for (size_t n = 0; n < planned.norms.size(); ++n) {
      SweepRequest sweep;
      sweep.preset = planned.preset;
      sweep.out = out;
      sweep.values.emplace_back("norm", std::vector{planned.norms[n]});
      for (const auto& [key, value] : column.settings) {
        sweep.values.emplace_back(key, std::vector{Spelled(value)});
      }
      for (int64_t seed = 1; seed <= planned.seeds; ++seed) sweep.seeds.push_back(seed);
      const bool extra = !paper.rows.empty() && !paper.FindRow(planned.norms[n]);
      for (QueuedRun& run : QueueSweep(find(column.task), sweep, group)) {
        if (!queued.insert(run.plan.folder).second) continue;
        runs.emplace_back(Place{extra, run.plan.seed, group, n}, std::move(run));
      }
    }
  }
  std::ranges::stable_sort(runs, {}, &std::pair<Place, QueuedRun>::first);
  for (auto& [place, run] : runs) queue.runs.push_back(std::move(run));
  queue.estimates = Estimates(std::move(reference));
  queue.FindResults(results);
  return queue;
}

std::string RenderPlan(const ReproducePlan& plan) {
  std::vector<std::vector<std::string>> cells;
  for (const PlannedColumn& column : plan.columns) {
    std::string task = column.column->task;
    if (column.preset != plan.preset) task += ", preset " + column.preset;
    cells.push_back({column.column->name, std::move(task), std::to_string(column.norms.size()),
                     std::to_string(column.seeds)});
  }
  return fmt::format("{}, preset {}\n\n{}", plan.paper->title, plan.preset,
                     RenderQueue(plan.queue, {"column", "task", "norms", "seeds"}, cells));
}

}  // namespace planish::lab
