#include "lab/queue/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lab/run/former_settings.h"
#include "lab/run/posix_file.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Runs with results in the archives of a folder, by name.
using ArchivedResults = std::map<std::string, Run>;

// An unreadable archive counts as none. Throws RunError if the folder exists and cannot be listed.
ArchivedResults ReadArchivedResults(const fs::path& folder) {
  ArchivedResults results;
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    throw CannotRead(folder, error.message());
  }
  for (const auto& entry : entries) {
    if (!IsArchive(entry.path())) continue;
    try {
      for (Run& run : ReadArchivedRuns(entry.path()).runs) {
        if (run.result) results[run.folder.filename().string()] = std::move(run);
      }
    } catch (const std::runtime_error&) {
    }
  }
  return results;
}

// Returns false if the run has another value of one of the settings, such as one of a former
// version.
bool HasSettings(const Run& run, const Settings& settings) {
  const nlohmann::ordered_json& planned = settings.values();
  return std::ranges::all_of(run.config.settings.items(), [&](const auto& entry) {
    return !planned.contains(entry.key()) || planned.at(entry.key()) == entry.value();
  });
}

RunResults::Found FoundOf(const RunResult& result) {
  RunResults::Found found{.done = true};
  if (result.status == "finished") {
    found.minutes = (result.seconds + result.evaluation_seconds) / 60;
  }
  return found;
}

// Returns what is done of a run: in its folder, the epochs up to its last evaluation, or its
// archived result.
RunResults::Found ReadResult(const QueuedRun& run, const ArchivedResults& archived) {
  const fs::path& folder = run.plan.folder;
  if (!fs::exists(folder / "config.json")) {
    const auto result = archived.find(folder.filename().string());
    if (result == archived.end() || !HasSettings(result->second, run.plan.settings)) return {};
    return FoundOf(*result->second.result);
  }
  Run read;
  try {
    read = ReadRun(folder);
  } catch (const RunError&) {
    return {};
  }
  if (read.result) return FoundOf(*read.result);
  const nlohmann::ordered_json& settings = read.config.settings;
  const bool counts = settings.contains("epochs") && settings["epochs"].is_number();
  const double epochs = counts ? settings["epochs"].get<double>() : 0;
  if (!(epochs > 0) || read.evaluations.empty()) return {};
  return {.part_done = std::clamp(read.evaluations.back().epoch / epochs, 0.0, 1.0)};
}

void SetFound(const RunResults::Found& found, QueuedRun& run, Estimates& estimates) {
  run.done |= found.done;
  if (found.part_done > 0) run.part_done = found.part_done;
  if (found.minutes) estimates.Add(run, *found.minutes);
}

std::string Minutes(const std::optional<double>& minutes) {
  return minutes ? fmt::format("{:.{}f}", *minutes, *minutes < 1 ? 2 : 1) : "?";
}

// Numbers of a row of RenderQueue.
struct Total {
  size_t runs = 0, done = 0, unknown = 0;
  double minutes = 0;  // left, of the runs of known duration

  void Add(const Total& other) {
    runs += other.runs;
    done += other.done;
    unknown += other.unknown;
    minutes += other.minutes;
  }
  std::string HoursLeft() const {
    if (unknown > 0 && unknown == runs - done) return "?";
    return fmt::format("{:.2f}{}", minutes / 60, unknown > 0 ? " + ?" : "");
  }
};

// Returns the lines of a table: the first two columns aligned at the left, the others at the right.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
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

}  // namespace

std::string QueuedRun::Name() const {
  return plan.folder.parent_path().filename().string() + " " + plan.folder.filename().string();
}

std::vector<QueuedRun> QueueSweep(const Task& task, const SweepRequest& sweep, size_t group) {
  std::vector<QueuedRun> runs;
  for (RunPlan& plan : PlanSweep(task, sweep)) {
    QueuedRun run{.group = group,
                  .plan = std::move(plan),
                  .variant = "",
                  .arguments = {"train", task.name, "--preset", sweep.preset}};
    const Settings& settings = run.plan.settings;
    run.variant = settings.Text(task.report.compare);
    for (const auto& [given, values] : sweep.values) {
      const std::string name = PresentSetting(given);
      const std::string value = Spelled(settings.values().at(name));
      if (name == task.report.compare) {
        run.arguments.insert(run.arguments.end(), {"--" + name, value});
      } else {
        run.arguments.insert(run.arguments.end(), {"--set", fmt::format("{}={}", name, value)});
      }
    }
    run.arguments.insert(run.arguments.end(),
                         {"--seed", std::to_string(run.plan.seed), "--out", sweep.out.string()});
    runs.push_back(std::move(run));
  }
  return runs;
}

void Estimates::Add(const QueuedRun& run, double minutes) {
  for (Mean* mean : {&all_[run.group], &by_variant_[run.group][run.variant]}) {
    mean->sum += minutes;
    ++mean->count;
  }
}

std::optional<double> Estimates::Minutes(const QueuedRun& run) const {
  const std::map<std::string, Mean>& variants = by_variant_[run.group];
  const auto found = variants.find(run.variant);
  if (found != variants.end()) return found->second.sum / found->second.count;
  return Minutes(run.group);
}

std::optional<double> Estimates::Minutes(size_t group) const {
  const Mean& mean = all_[group];
  return mean.count > 0 ? std::optional(mean.sum / mean.count) : reference_[group];
}

std::optional<double> Estimates::Left(const QueuedRun& run) const {
  const std::optional<double> minutes = Minutes(run);
  return minutes ? std::optional(*minutes * (1 - run.part_done)) : std::nullopt;
}

size_t RunQueue::Done() const {
  return static_cast<size_t>(std::ranges::count_if(runs, &QueuedRun::done));
}

const RunResults::Found& RunResults::Of(const QueuedRun& run) {
  const auto [found, is_new_run] = found_.try_emplace(run.plan.folder);
  if (is_new_run) {
    const fs::path folder = run.plan.folder.parent_path();
    const auto [archived, is_new_folder] = archived_.try_emplace(folder);
    if (is_new_folder) archived->second = ReadArchivedResults(folder);
    found->second = ReadResult(run, archived->second);
  }
  return found->second;
}

void RunQueue::FindResults() {
  RunResults results;
  FindResults(results);
}

void RunQueue::FindResults(RunResults& results) {
  for (QueuedRun& run : runs) SetFound(results.Of(run), run, estimates);
}

bool RunQueue::FindResult(QueuedRun& run) {
  if (std::error_code error; !run.done && fs::exists(run.plan.folder / "result.json", error)) {
    SetFound(ReadResult(run, {}), run, estimates);
  }
  return run.done;
}

QueueSchedule MakeSchedule(const RunQueue& queue, int jobs, std::optional<double> hours) {
  QueueSchedule schedule;
  std::vector<double> free_at(static_cast<size_t>(std::max(jobs, 1)), 0.0);  // minutes
  for (const QueuedRun& run : queue.runs) {
    if (run.done) continue;
    double& job = *std::ranges::min_element(free_at);
    const std::optional<double> minutes = queue.estimates.Left(run);
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

std::optional<double> SecondsLeft(const RunQueue& queue, const std::vector<RunningRun>& running,
                                  const std::vector<size_t>& waiting, int jobs) {
  // Returns the seconds of a run from now on, if it has been trained for `elapsed`.
  const auto estimate = [&](size_t run, double elapsed) -> std::optional<double> {
    const std::optional<double> minutes = queue.estimates.Left(queue.runs[run]);
    return minutes ? std::optional(std::max(0.0, *minutes * 60 - elapsed)) : std::nullopt;
  };
  double sum = 0;
  int known = 0;
  std::vector<std::optional<double>> left;  // of the running
  for (const RunningRun& run : running) {
    left.push_back(run.left ? run.left : estimate(run.run, run.elapsed));
    if (!left.back()) continue;
    sum += run.elapsed + *left.back();
    ++known;
  }
  const std::optional<double> mean = known > 0 ? std::optional(sum / known) : std::nullopt;
  std::vector<double> free_at(static_cast<size_t>(std::max(jobs, 1)), 0.0);
  const auto add = [&](std::optional<double> seconds) {
    if (seconds) *std::ranges::min_element(free_at) += *seconds;
    return seconds.has_value();
  };
  for (size_t i = 0; i < running.size(); ++i) {
    if (!left[i] && mean) left[i] = std::max(0.0, *mean - running[i].elapsed);
    if (!add(left[i])) return std::nullopt;
  }
  for (const size_t run : waiting) {
    const std::optional<double> seconds = estimate(run, 0);
    if (!add(seconds ? seconds : mean)) return std::nullopt;
  }
  return *std::ranges::max_element(free_at);
}

std::string Duration(const QueueSchedule& schedule) {
  const std::string unknown = fmt::format("{} run{} of unknown duration", schedule.unknown,
                                          schedule.unknown == 1 ? "" : "s");
  if (schedule.unknown > 0 && schedule.unknown == schedule.runs) return unknown;
  const std::string known = schedule.hours < 0.05
                                ? "less than 0.1 hours"
                                : fmt::format("about {:.1f} hours", schedule.hours);
  return schedule.unknown > 0 ? known + " and " + unknown : known;
}

std::string RenderQueue(const RunQueue& queue, const std::vector<std::string>& headings,
                        const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> rows = {headings};
  rows.front().insert(rows.front().end(), {"runs", "done", "minutes a run", "hours left"});
  std::vector<Total> totals(queue.groups.size());
  for (const QueuedRun& run : queue.runs) {
    const std::optional<double> left = run.done ? 0 : queue.estimates.Left(run);
    totals[run.group].Add({1, run.done, !left, left.value_or(0)});
  }
  Total all;
  for (size_t group = 0; group < totals.size(); ++group) {
    const Total& total = totals[group];
    all.Add(total);
    std::string a_run = Minutes(queue.estimates.Minutes(group));
    if (queue.estimates.Measured(group)) a_run += " here";
    rows.push_back(cells[group]);
    rows.back().insert(rows.back().end(), {std::to_string(total.runs), std::to_string(total.done),
                                           std::move(a_run), total.HoursLeft()});
  }
  rows.emplace_back(headings.size());
  rows.back().front() = "all";
  rows.back().insert(rows.back().end(),
                     {std::to_string(all.runs), std::to_string(all.done), "", all.HoursLeft()});
  return AlignColumns(rows);
}

}  // namespace planish::lab
