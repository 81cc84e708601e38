#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/format.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/runs.h"
#include "lab/engine/processes.h"
#include "lab/error.h"
#include "lab/queue/queue.h"
#include "lab/queue/sweep_file.h"
#include "lab/queue/tuning.h"
#include "lab/tasks/tasks.h"
#include "lab/terminal/layout.h"

namespace planish::lab {

namespace {

constexpr int kDefaultPoints = 5, kMaxPoints = 100;

struct TuneFlags {
  RunFlags runs;
  std::string rates;
  int points = kDefaultPoints;
  int seeds = 1;
};

// Parses "A..B".
std::vector<std::string> GridOf(const TuneFlags& flags) {
  const size_t dots = flags.rates.find("..");
  const auto parse = [&](std::string_view text) -> std::optional<double> {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return std::isnormal(value) && value > 0 ? std::optional(value) : std::nullopt;
  };
  if (dots != std::string::npos) {
    const std::string_view text = flags.rates;
    const std::optional<double> low = parse(text.substr(0, dots)),
                                high = parse(text.substr(dots + 2));
    if (low && high && *low < *high) return LogGrid(*low, *high, flags.points);
  }
  throw UsageError(fmt::format(
      "[tune] --lr must be a range LOW..HIGH with 0 < LOW < HIGH, such as 1e-4..1e-2, got \"{}\"",
      flags.rates));
}

// Entry of the grid with its tuning.
struct Entry {
  std::string label;  // "layer", or "layer, batch_size=4" if a sweep has several
  MetricSpec metric;  // which chooses the rate
  TuningEntry runs;
  Tuning tuning{};
};

std::vector<Entry> EntriesOf(const Task& task, const SweepRequest& request) {
  std::vector<Entry> entries;
  for (const SweepRequest& combination : Combinations(request)) {
    const RunPlan plan = PlanSweep(task, combination).front();
    std::string label = plan.settings.Text(task.report.compare);
    for (const auto& [name, values] : request.values) {
      if (name == task.report.compare || values.size() == 1) continue;
      label += fmt::format(", {}={}", name, Spelled(plan.settings.values().at(name)));
    }
    const std::vector<MetricSpec> metrics = task.MetricsOf(plan.settings);
    entries.push_back({std::move(label),
                       *std::ranges::find(metrics, task.choose_by, &MetricSpec::name),
                       TuningEntry(task, combination, 0)});
  }
  return entries;
}

// Returns the cell of a trial: its mean, and how many runs diverged.
std::string CellOf(const MetricSpec& metric, const RateTrial& trial, bool is_chosen) {
  if (trial.runs == 0) return "-";
  if (trial.runs == trial.diverged) return "diverged";
  std::string cell = FormatBare(metric, trial.mean);
  if (trial.diverged > 0) cell += fmt::format(" ({} diverged)", trial.diverged);
  return is_chosen ? "*" + cell : cell;
}

// Returns the table, in blocks of as many rates as the terminal is wide.
std::string TableOf(const Task& task, const MetricSpec& metric, const SweepRequest& request,
                    const std::vector<std::string>& rates, int seeds,
                    const std::vector<Entry>& entries, const TableOptions& options) {
  size_t label = Width(task.report.compare), column = 0;
  for (const Entry& entry : entries) {
    label = std::max(label, Width(entry.label));
    for (size_t i = 0; i < rates.size(); ++i) {
      const bool is_chosen = entry.tuning.chosen == i;
      column = std::max(
          {column, Width(rates[i]), Width(CellOf(metric, entry.tuning.trials[i], is_chosen))});
    }
  }
  constexpr size_t kGap = 2;
  const auto width = static_cast<size_t>(options.width);
  const size_t space = width - std::min(width, kGap + label);
  const size_t in_block = std::max<size_t>(1, space / (kGap + column));
  std::string text =
      Wrapped(fmt::format("{}, preset {}: {} at each learning rate, {}", task.name, request.preset,
                          LabelWithUnit(metric),
                          seeds == 1 ? "one seed" : fmt::format("mean of {} seeds", seeds)),
              width, "");
  for (size_t first = 0; first < rates.size(); first += in_block) {
    const size_t last = std::min(rates.size(), first + in_block);
    std::vector<std::vector<std::string>> rows = {{task.report.compare}};
    rows.front().insert(rows.front().end(), rates.begin() + static_cast<ptrdiff_t>(first),
                        rates.begin() + static_cast<ptrdiff_t>(last));
    for (const Entry& entry : entries) {
      std::vector<std::string>& row = rows.emplace_back(std::vector{entry.label});
      for (size_t i = first; i < last; ++i) {
        row.push_back(CellOf(metric, entry.tuning.trials[i], entry.tuning.chosen == i));
      }
    }
    text += "\n" + Aligned(std::move(rows), options);
  }
  return text + "\n*: chosen\n";
}

// Returns the command that trains with the chosen rates.
std::string NextCommand(const Task& task, const SweepRequest& request, const RunFlags& flags) {
  std::vector<std::string> arguments = {"planish", "train", task.name, "--preset", request.preset};
  for (const auto& [name, values] : request.values) {
    const std::string text = fmt::format("{}", fmt::join(values, ","));
    if (name == task.report.compare) {
      arguments.insert(arguments.end(), {"--" + name, text});
    } else {
      arguments.insert(arguments.end(), {"--set", name + "=" + text});
    }
  }
  if (!flags.data.empty()) arguments.insert(arguments.end(), {"--data", flags.data});
  if (flags.out != "runs") arguments.insert(arguments.end(), {"--out", flags.out.string()});
  arguments.insert(arguments.end(), {"--tuned", flags.out.string(), "--seeds", "5"});
  return ShellLine(arguments);
}

std::string JsonOf(const Task& task, const MetricSpec& metric, const SweepRequest& request,
                   const std::vector<Entry>& entries, const std::string& next) {
  nlohmann::ordered_json json = {{"task", task.name},
                                 {"preset", request.preset},
                                 {"metric", metric.name},
                                 {"lower_is_better", metric.lower_is_better},
                                 {"entries", nlohmann::ordered_json::array()},
                                 {"command", next}};
  for (const Entry& entry : entries) {
    nlohmann::ordered_json settings, trials = nlohmann::ordered_json::array();
    for (const auto& [name, values] : entry.runs.request().values) settings[name] = values.front();
    for (const RateTrial& trial : entry.tuning.trials) {
      const bool has_mean = trial.runs > trial.diverged;
      trials.push_back({{"lr", trial.rate},
                        {"runs", trial.runs},
                        {"diverged", trial.diverged},
                        {"mean", has_mean ? nlohmann::ordered_json(trial.mean)
                                          : nlohmann::ordered_json(nullptr)}});
    }
    const std::optional<size_t> chosen = entry.tuning.chosen;
    json["entries"].push_back(
        {{"settings", settings},
         {"trials", trials},
         {"lr", chosen ? nlohmann::ordered_json(entry.tuning.trials[*chosen].rate)
                       : nlohmann::ordered_json(nullptr)},
         {"is_at_the_edge", entry.tuning.IsAtTheEdge()}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void WarnOfEdges(const std::vector<Entry>& entries, const std::vector<std::string>& rates) {
  for (const Entry& entry : entries) {
    if (!entry.tuning.IsAtTheEdge()) continue;
    const bool is_lowest = *entry.tuning.chosen == 0;
    Warn(fmt::format("{} is best at {}, the {} rate of the grid: a {} one can be better",
                     entry.label, rates[*entry.tuning.chosen], is_lowest ? "lowest" : "highest",
                     is_lowest ? "lower" : "higher"));
  }
}

int RunTune(const TuneFlags& flags) {
  const Task& task = FindTask(flags.runs.task);
  const std::vector<std::string> rates = GridOf(flags);
  SweepRequest request = MakeRequest("tune", task, flags.runs);
  for (const auto& [name, values] : request.values) {
    if (name == kRateSetting) {
      throw UsageError("[tune] learning rates must be given by --lr, got --set lr");
    }
  }
  RefuseSeveralProcesses("tune");
  request.seeds = {kFirstTuningSeed};
  PlanSweep(task, request);  // for its errors
  std::vector<Entry> entries = EntriesOf(task, request);
  std::vector<QueuedRun> runs;
  for (const Entry& entry : entries) {
    for (const std::string& rate : rates) {
      std::ranges::move(entry.runs.TuningRunsAt(rate, flags.seeds), std::back_inserter(runs));
    }
  }
  RunQueue queue = QueueOf(task, std::move(runs));
  const auto summary = [&](const Run& run) {
    return run.result->best ? BestMetricText(run, task.choose_by) : run.result->status;
  };
  Processes alone;
  const TrainedRuns trained = TrainRuns(task, queue, flags.runs, alone, summary, [](const Run&) {});
  if (trained.status > 128) return trained.status;
  if (trained.status != 0) {
    Warn("no rate is chosen, because runs failed");
    return trained.status;
  }
  const RunsByName found(flags.runs.out);
  for (Entry& entry : entries) {
    entry.tuning = ReadTuning(task, entry.runs, rates, flags.seeds, found);
  }
  const std::string next = NextCommand(task, request, flags.runs);
  if (flags.runs.json) {
    Print(JsonOf(task, entries.front().metric, request, entries, next));
  } else {
    // Entries whose metric has another unit are in a table of their own.
    std::set<std::string> units;
    for (const Entry& first : entries) {
      if (!units.insert(first.metric.unit).second) continue;
      std::vector<Entry> of_unit;
      std::ranges::copy_if(entries, std::back_inserter(of_unit), [&](const Entry& entry) {
        return entry.metric.unit == first.metric.unit;
      });
      if (units.size() > 1) PrintText("\n");
      Print(TableOf(task, first.metric, request, rates, flags.seeds, of_unit, StdoutTable()));
    }
    if (std::ranges::all_of(entries, [](const Entry& e) { return e.tuning.chosen.has_value(); })) {
      PrintText("\nTrain with these rates:\n  " + next + "\n");
    }
  }
  FlushStdout();
  WarnOfEdges(entries, rates);
  return trained.status;
}

}  // namespace

void AddTune(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* tune =
      app.add_subcommand("tune", "Choose the learning rate of each norm by its validation metric");
  tune->footer(
      fmt::format(
          "Trains each norm at each learning rate of a grid from LOW to HIGH, with equal ratios, "
          "and\n"
          "prints the validation metric of each. The best mean is chosen; a rate at which runs "
          "diverge\n"
          "comes after those at which fewer do. The test set has no part in it.\n"
          "Runs are those of 'planish train', with the seeds {} and up: the command skips "
          "finished\n"
          "ones and continues unfinished ones. 'planish train TASK --tuned OUT' then trains each "
          "norm at\n"
          "its rate with other seeds. Settings other than the rate must be the same in both "
          "commands.\n\n"
          "Example:\n"
          "  planish tune rt --preset small --lr 1e-4..1e-2 --jobs 2\n"
          "  planish train rt --preset small --tuned runs --seeds 5 --jobs 2\n\n",
          kFirstTuningSeed) +
      kExitStatuses);
  AddRunOptions(*tune, flags->runs);
  tune->add_option("--lr", flags->rates,
                   "Lowest and highest learning rate, such as 1e-4..1e-2; must be given")
      ->type_name("LOW..HIGH");
  tune->add_option("--points", flags->points,
                   fmt::format("Learning rates of the grid (default: {})", kDefaultPoints))
      ->type_name("N")
      ->check(WholeNumber("tune", "--points", 2, kMaxPoints));
  tune->add_option("--seeds", flags->seeds, "Seeds of each learning rate (default: 1)")
      ->type_name("N")
      ->check(WholeNumber("tune", "--seeds", 1, kLastTuningSeed - kFirstTuningSeed + 1));
  AddTrainingOptions(*tune, flags->runs, "Print the grid as JSON instead of a table");
  tune->callback([&action, flags] { action = [flags] { return RunTune(*flags); }; });
}

}  // namespace planish::lab
