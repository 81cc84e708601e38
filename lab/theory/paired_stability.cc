#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lab/engine/settings.h"
#include "lab/error.h"
#include "lab/model/recurrent.h"
#include "lab/tasks/tasks.h"
#include "lab/theory/recurrent_stability.h"
#include "lab/theory/trained_run.h"
#include "src/rnn/cell.h"

// Section 3.1 of Ba, Kiros & Hinton 2016 for trained runs of several cells and seeds: whether norms
// make the hidden-to-hidden dynamics more stable.
namespace planish::lab {
namespace {

// Names of the weights in tables, whose first column would be cut with longer ones.
constexpr const char* kTableNames[] = {"initial", "trained"};

// A cell's runs. Seeds of the growths are those of the runs.
struct CellRuns {
  std::string name;
  Cell cell = Cell::kRnn;
  RunGrowths growths;
};

// Indices of a cell with norms and of the same cell without.
struct CellPair {
  size_t normalized, plain;
};

std::string NameOfCell(const RunConfig& config) {
  return Spelled(config.settings.at(config.report.compare));
}

// Throws UsageError unless the run differs from the first only by cell and seed.
void CheckSameSettings(const Run& run, const Run& first) {
  const auto fail = [&](const std::string& what, const std::string& expected,
                        const std::string& got) {
    throw UsageError(fmt::format("[analyze stability] {} must have the {} of {}, {}, got {}",
                                 run.folder.string(), what, first.folder.string(), expected, got));
  };
  const RunConfig &a = first.config, &b = run.config;
  if (a.task != b.task) fail("task", a.task, b.task);
  if (a.data.sha256 != b.data.sha256) {
    const bool same_name = a.data.name == b.data.name;
    fail("data", a.data.name, same_name ? "another version of it" : b.data.name);
  }
  nlohmann::ordered_json all = a.settings;
  all.update(b.settings);
  for (const auto& [name, value] : all.items()) {
    const auto spelled = [&key = name](const RunConfig& config) {
      return config.settings.contains(key) ? Spelled(config.settings.at(key)) : "none";
    };
    if (name != a.report.compare && spelled(a) != spelled(b)) {
      fail("setting " + name, spelled(a), spelled(b));
    }
  }
}

// Returns the settings that differ from the preset: ", gain 0.1".
std::string ChangesOf(const RunConfig& config) {
  const Task& task = FindTask(config.task);
  Settings preset(task.settings);
  for (const Preset& p : task.presets) {
    if (p.name == config.preset) preset.Apply(p);
  }
  std::string text;
  for (const auto& [name, value] : preset.values().items()) {
    if (name == config.report.compare || !config.settings.contains(name)) continue;
    const std::string own = Spelled(config.settings.at(name));
    if (own != Spelled(value)) text += fmt::format(", {} {}", name, own);
  }
  return text;
}

// Opens all runs, and checks them before the first is measured.
std::vector<AnalyzedRun> OpenRuns(const AnalysisSettings& settings) {
  std::vector<AnalyzedRun> runs;
  std::set<std::pair<std::string, int64_t>> seen;
  for (const std::filesystem::path& folder : settings.input().runs) {
    AnalyzedRun opened = OpenAnalyzedRun(settings, folder);
    CheckAnalyzedRun(settings, opened);
    if (!runs.empty()) CheckSameSettings(opened.run, runs.front().run);
    if (!seen.emplace(NameOfCell(opened.run.config), opened.run.config.seed).second) {
      throw UsageError(
          fmt::format("[analyze stability] RUN must be one for each cell and seed, got "
                      "{} twice",
                      opened.Description()));
    }
    runs.push_back(std::move(opened));
  }
  return runs;
}

// Returns the cells of the runs, without growths, in the order of their first run.
std::vector<CellRuns> CellsOf(const AnalysisSettings& settings,
                              const std::vector<AnalyzedRun>& runs) {
  std::vector<CellRuns> cells;
  for (const AnalyzedRun& opened : runs) {
    const std::string name = NameOfCell(opened.run.config);
    if (std::ranges::find(cells, name, &CellRuns::name) != cells.end()) continue;
    cells.push_back({name, CheckAnalyzedRun(settings, opened), {}});
  }
  return cells;
}

std::vector<CellPair> PairsOf(const std::vector<CellRuns>& cells) {
  std::vector<CellPair> pairs;
  for (size_t n = 0; n < cells.size(); ++n) {
    const std::optional<Cell> plain = CellWithoutNorms(cells[n].cell);
    if (!plain || plain == cells[n].cell) continue;
    for (size_t p = 0; p < cells.size(); ++p) {
      if (cells[p].cell == *plain) pairs.push_back({n, p});
    }
  }
  if (pairs.empty()) {
    std::vector<std::string> names;
    for (const CellRuns& cell : cells) names.push_back(cell.name);
    throw UsageError(
        fmt::format("[analyze stability] RUN must be of a cell with norms and of the same cell "
                    "without, got {}",
                    fmt::join(names, ", ")));
  }
  return pairs;
}

// Adds the growths of a run's groups to those of its cell, as one value of the run's seed.
void AddRun(const RunGrowths& of_run, int64_t seed, RunGrowths& growths) {
  for (const Weights weights : {kInitial, kTrained}) {
    for (const Quantity quantity : {kSummed, kGradient}) {
      const Growth& from = of_run[weights][quantity];
      Growth& to = growths[weights][quantity];
      const Estimate rate = EstimateMean(from.rates);
      if (rate.count > 0) to.rates[seed] = rate.mean;
      to.log_sizes.resize(from.log_sizes.size());
      for (size_t i = 0; i < from.log_sizes.size(); ++i) to.log_sizes[i] += from.log_sizes[i];
      to.count += from.count;
    }
  }
}

// Returns |rate| with norms minus |rate| without, paired by seed.
Estimate DifferenceOf(const CellRuns& normalized, const CellRuns& plain, Weights weights,
                      Quantity quantity) {
  return PairedDifference(Magnitudes(normalized.growths[weights][quantity].rates),
                          Magnitudes(plain.growths[weights][quantity].rates));
}

void AddCellRates(const std::vector<CellRuns>& cells, const AnalysisSettings& settings,
                  TheoryResult& result) {
  TheoryTable table{
      .caption = fmt::format(
          "Growth rates per step in layer {}: the slope of log size of the summed inputs W_hh h + "
          "W_xh x in time, and of dL/dh_t back in time, for the loss after step {}. Means over "
          "seeds with 95% intervals; a seed's rate is the mean over {} groups of {} sequences of "
          "the training data.",
          settings.Whole("layer"), settings.Whole("steps"), settings.Whole("groups"),
          settings.Whole("sequences")),
      .head = {"cell", "weights", "seeds", "summed inputs", "±", "gradients", "±"},
      .rows = {}};
  for (const CellRuns& cell : cells) {
    for (const Weights weights : {kInitial, kTrained}) {
      const Estimate gradients = EstimateMean(cell.growths[weights][kGradient].rates);
      std::vector<TheoryCell>& row = table.rows.emplace_back();
      row = {cell.name, kTableNames[weights], fmt::to_string(gradients.count)};
      AddEstimate(EstimateMean(cell.growths[weights][kSummed].rates), row);
      AddEstimate(gradients, row);
    }
  }
  result.tables.push_back(std::move(table));
}

void AddDifferences(const std::vector<CellRuns>& cells, const std::vector<CellPair>& pairs,
                    TheoryResult& result) {
  TheoryTable table{.caption =
                        "|growth rate| with norms minus without, paired by seed, with 95% "
                        "intervals. Negative: more stable with norms.",
                    .head = {"cells", "weights", "seeds", "summed inputs", "±", "gradients", "±"},
                    .rows = {}};
  for (const CellPair& pair : pairs) {
    const CellRuns &normalized = cells[pair.normalized], &plain = cells[pair.plain];
    for (const Weights weights : {kInitial, kTrained}) {
      const Estimate gradients = DifferenceOf(normalized, plain, weights, kGradient);
      std::vector<TheoryCell>& row = table.rows.emplace_back();
      row = {fmt::format("{} - {}", normalized.name, plain.name), kTableNames[weights],
             fmt::to_string(gradients.count)};
      AddEstimate(DifferenceOf(normalized, plain, weights, kSummed), row);
      AddEstimate(gradients, row);
    }
  }
  result.tables.push_back(std::move(table));
}

void AddSizes(const std::vector<CellRuns>& cells, TheoryResult& result) {
  for (const Quantity quantity : {kSummed, kGradient}) {
    for (const Weights weights : {kInitial, kTrained}) {
      TheoryChart chart = SizeChart(quantity, kWeightsNames[weights]);
      for (const CellRuns& cell : cells) {
        chart.lines.push_back(LineOf(cell.growths[weights][quantity], quantity, cell.name));
      }
      result.charts.push_back(std::move(chart));
    }
  }
}

std::string MeasuredText(const Estimate& difference) {
  if (difference.count == 0) return "not measured";
  return fmt::format("{:.3g} ± {:.2g}", difference.mean, difference.half_width.value_or(NAN));
}

void StatePair(const CellRuns& normalized, const CellRuns& plain, TheoryResult& result) {
  const bool over_batch = internal::RecipeOf(normalized.cell).over == internal::Over::kBatch;
  TheoryStatement statement{
      .source = kStabilitySource,
      .text = fmt::format("{} normalization makes the hidden-to-hidden dynamics of the trained {} "
                          "more stable ({}).",
                          over_batch ? "Batch" : "Layer", plain.name,
                          over_batch ? normalized.name + "; not stated" : normalized.name)};
  const Estimate trained = DifferenceOf(normalized, plain, kTrained, kGradient);
  if (!trained.half_width) {
    statement.measured =
        fmt::format("no verdict: it needs at least 2 seeds with runs of {} and {}, and there {}",
                    normalized.name, plain.name, trained.count == 0 ? "is none" : "is 1");
  } else {
    const int sign = SureSign(trained);
    statement.verdict = sign < 0   ? TheoryVerdict::kHolds
                        : sign > 0 ? TheoryVerdict::kFails
                                   : TheoryVerdict::kCannotTell;
    statement.measured = fmt::format(
        "|growth rate of dL/dh_t| per step of {} minus {}, {} seeds: {} trained, {} at "
        "initialization; of the summed inputs: {} trained",
        normalized.name, plain.name, trained.count, MeasuredText(trained),
        MeasuredText(DifferenceOf(normalized, plain, kInitial, kGradient)),
        MeasuredText(DifferenceOf(normalized, plain, kTrained, kSummed)));
  }
  result.statements.push_back(std::move(statement));
}

}  // namespace

TheoryResult MeasurePairedStability(const AnalysisSettings& settings) {
  const at::NoGradGuard no_grad;
  const std::vector<AnalyzedRun> runs = OpenRuns(settings);
  std::vector<CellRuns> cells = CellsOf(settings, runs);
  const std::vector<CellPair> pairs = PairsOf(cells);
  std::set<int64_t> seeds;
  for (const AnalyzedRun& opened : runs) {
    const RunConfig& config = opened.run.config;
    AddRun(MeasureRunGrowths(settings, opened), config.seed,
           std::ranges::find(cells, NameOfCell(config), &CellRuns::name)->growths);
    seeds.insert(config.seed);
  }
  TheoryResult result;
  const RunConfig& config = runs.front().run.config;
  result.settings["run"] =
      fmt::format("{}{}, {} runs", config.task, ChangesOf(config), runs.size());
  result.settings["data"] = config.data.name;
  result.settings["seeds"] = seeds;
  for (const CellRuns& cell : cells) result.settings["cells"].push_back(cell.name);
  AddCellRates(cells, settings, result);
  AddDifferences(cells, pairs, result);
  AddSizes(cells, result);
  for (const CellPair& pair : pairs) StatePair(cells[pair.normalized], cells[pair.plain], result);
  return result;
}

}  // namespace planish::lab
