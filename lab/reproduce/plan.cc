#include "lab/reproduce/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

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

// Runs with results in the archives of a folder, by name. An unreadable archive counts as none.
using ArchivedResults = std::map<std::string, RunResult>;

ArchivedResults ReadArchivedResults(const fs::path& folder) {
  ArchivedResults results;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!IsArchive(entry.path())) continue;
    try {
      for (Run& run : ReadArchivedRuns(entry.path()).runs) {
        if (run.result) results[run.folder.filename().string()] = *std::move(run.result);
      }
    } catch (const std::runtime_error&) {
    }
  }
  return results;
}

// Sets the completed fraction of a run from its folder, the epochs up to its last evaluation, or
// from its archived result. An unreadable folder counts as nothing done; `planish train` then fails
// with the reason.
void LookInto(PlannedRun& run, const ArchivedResults& archived, Estimates& estimates) {
  const auto set_done = [&](const RunResult& result) {
    run.done = true;
    if (result.status == "finished") {
      estimates.Add(run.column, run.norm, (result.seconds + result.evaluation_seconds) / 60);
    }
  };
  if (!fs::exists(run.folder / "config.json")) {
    const auto result = archived.find(run.folder.filename().string());
    if (result != archived.end()) set_done(result->second);
    return;
  }
  Run found;
  try {
    found = ReadRun(run.folder);
  } catch (const RunError&) {
    return;
  }
  if (found.result) {
    set_done(*found.result);
    return;
  }
  const nlohmann::ordered_json& settings = found.config.settings;
  const bool counts = settings.contains("epochs") && settings["epochs"].is_number();
  const double epochs = counts ? settings["epochs"].get<double>() : 0;
  if (epochs > 0 && !found.evaluations.empty()) {
    run.part_done = std::clamp(found.evaluations.back().epoch / epochs, 0.0, 1.0);
  }
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

std::string Minutes(const std::optional<double>& minutes) {
  return minutes ? fmt::format("{:.{}f}", *minutes, *minutes < 1 ? 2 : 1) : "?";
}

}  // namespace

std::string PlannedRun::Name() const {
  return folder.parent_path().filename().string() + " " + folder.filename().string();
}

void Estimates::Add(size_t column, const std::string& norm, double minutes) {
  for (Mean* mean : {&all_[column], &by_norm_[column][norm]}) {
    mean->sum += minutes;
    ++mean->count;
  }
}

std::optional<double> Estimates::Minutes(size_t column, const std::string& norm) const {
  const auto found = by_norm_[column].find(norm);
  if (found != by_norm_[column].end()) return found->second.sum / found->second.count;
  return Minutes(column);
}

std::optional<double> Estimates::Minutes(size_t column) const {
  const Mean& mean = all_[column];
  return mean.count > 0 ? std::optional(mean.sum / mean.count) : reference_[column];
}

std::optional<double> Estimates::Left(const PlannedRun& run) const {
  const std::optional<double> minutes = Minutes(run.column, run.norm);
  return minutes ? std::optional(*minutes * (1 - run.part_done)) : std::nullopt;
}

size_t ReproducePlan::Done() const {
  return static_cast<size_t>(std::ranges::count_if(runs, &PlannedRun::done));
}

ReproducePlan MakePlan(const Paper& paper, const ReproduceRequest& request,
                       const TaskFinder& find) {
  if (std::set(request.norms.begin(), request.norms.end()).size() < request.norms.size()) {
    throw UsageError(fmt::format("[reproduce] --norms must name each norm once, got \"{}\"",
                                 fmt::join(request.norms, ",")));
  }
  ReproducePlan plan;
  plan.paper = &paper;
  plan.preset = request.preset.empty() ? paper.preset : request.preset;
  const auto own_preset = [&](const PaperColumn& column) {
    return column.preset.empty() ? paper.preset : column.preset;
  };
  const auto preset_of = [&](const PaperColumn& column) {
    return request.preset.empty() ? own_preset(column) : request.preset;
  };
  std::vector<std::optional<double>> reference;
  std::set<std::string> unused(request.norms.begin(), request.norms.end());
  for (const PaperColumn* column : ChooseColumns(paper, request.tasks)) {
    const auto norms = NormsOf(*column, find(column->task), request.norms);
    if (norms.empty()) continue;
    for (const std::string& norm : norms) unused.erase(norm);
    plan.columns.push_back(
        {column, norms, request.seeds.value_or(column->seeds), preset_of(*column)});
    const bool own = preset_of(*column) == own_preset(*column);
    reference.push_back(own ? std::optional(column->minutes) : std::nullopt);
  }
  if (!unused.empty()) {
    throw UsageError(fmt::format(
        "[reproduce] --norms must be of norms that one of the columns' tasks has, got \"{}\"",
        *unused.begin()));
  }
  plan.estimates = Estimates(std::move(reference));

  struct Place {
    bool extra;
    int64_t seed;
    size_t column, norm;
    auto operator<=>(const Place&) const = default;
  };
  std::vector<std::pair<Place, PlannedRun>> runs;
  std::map<std::string, ArchivedResults> archived;  // by task
  for (size_t c = 0; c < plan.columns.size(); ++c) {
    const ReproducePlan::Column& column = plan.columns[c];
    const Task& task = find(column.column->task);
    const auto [results, is_new] = archived.try_emplace(task.name);
    if (is_new) results->second = ReadArchivedResults(request.out / task.name);
    for (size_t n = 0; n < column.norms.size(); ++n) {
      const std::string& norm = column.norms[n];
      SweepRequest sweep;
      sweep.preset = column.preset;
      sweep.out = request.out;
      sweep.values.emplace_back("norm", std::vector{norm});
      std::vector<std::string> arguments = {"train",      task.name, "--preset",
                                            sweep.preset, "--norm",  norm};
      for (const auto& [key, value] : column.column->settings) {
        sweep.values.emplace_back(key, std::vector{Spelled(value)});
        arguments.insert(arguments.end(), {"--set", key + "=" + Spelled(value)});
      }
      for (int64_t seed = 1; seed <= column.seeds; ++seed) sweep.seeds.push_back(seed);
      for (const RunPlan& planned : PlanSweep(task, sweep)) {
        PlannedRun run;
        run.column = c;
        run.norm = norm;
        run.seed = planned.seed;
        run.folder = planned.folder;
        run.arguments = arguments;
        run.arguments.insert(run.arguments.end(),
                             {"--seed", std::to_string(run.seed), "--out", request.out.string()});
        LookInto(run, results->second, plan.estimates);
        const bool extra = !paper.rows.empty() && !paper.FindRow(norm);
        runs.emplace_back(Place{extra, run.seed, c, n}, std::move(run));
      }
    }
  }
  std::ranges::stable_sort(runs, {}, &std::pair<Place, PlannedRun>::first);
  for (auto& [place, run] : runs) plan.runs.push_back(std::move(run));
  return plan;
}

Schedule MakeSchedule(const ReproducePlan& plan, int jobs, std::optional<double> hours) {
  Schedule schedule;
  std::vector<double> free_at(static_cast<size_t>(std::max(jobs, 1)), 0.0);  // minutes
  for (const PlannedRun& run : plan.runs) {
    if (run.done) continue;
    double& job = *std::ranges::min_element(free_at);
    const std::optional<double> minutes = plan.estimates.Left(run);
    if (hours && job + minutes.value_or(0) > *hours * 60) {
      ++schedule.left;
      continue;
    }
    ++schedule.runs;
    schedule.unknown += !minutes;
    job += minutes.value_or(0);
    schedule.hours = std::max(schedule.hours, job / 60);
  }
  return schedule;
}

std::string RenderPlan(const ReproducePlan& plan) {
  std::vector<std::array<std::string, 8>> rows = {
      {"column", "task", "norms", "seeds", "runs", "done", "minutes a run", "hours left"}};
  double all_hours = 0;
  bool unknown = false;
  for (size_t c = 0; c < plan.columns.size(); ++c) {
    const ReproducePlan::Column& column = plan.columns[c];
    size_t runs = 0, done = 0;
    double minutes = 0;
    bool known = true;
    for (const PlannedRun& run : plan.runs) {
      if (run.column != c) continue;
      ++runs;
      done += run.done;
      if (run.done) continue;
      const std::optional<double> left = plan.estimates.Left(run);
      known &= left.has_value();
      minutes += left.value_or(0);
    }
    all_hours += minutes / 60;
    unknown |= !known;
    std::string a_run = Minutes(plan.estimates.Minutes(c));
    if (plan.estimates.Measured(c)) a_run += " here";
    std::string task = column.column->task;
    if (column.preset != plan.preset) task += ", preset " + column.preset;
    rows.push_back({column.column->name, task, std::to_string(column.norms.size()),
                    std::to_string(column.seeds), std::to_string(runs), std::to_string(done), a_run,
                    known ? fmt::format("{:.2f}", minutes / 60) : "?"});
  }
  rows.push_back({"all", "", "", "", std::to_string(plan.runs.size()), std::to_string(plan.Done()),
                  "", fmt::format("{:.2f}{}", all_hours, unknown ? " + ?" : "")});
  std::array<size_t, 8> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = fmt::format("{}, preset {}\n\n", plan.paper->title, plan.preset);
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i < 2 ? fmt::format("  {:<{}}", row[i], widths[i])
                    : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace planish::lab
