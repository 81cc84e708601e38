#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/base/random.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/model/recurrent.h"
#include "lab/tasks/tasks.h"
#include "lab/theory/recurrent_stability.h"
#include "lab/theory/trained_run.h"
#include "src/rnn/cell.h"

// Section 3.1 of Ba, Kiros & Hinton 2016 for the layer of a trained run, on its training data: with
// trained weights and with those before the first update. All is computed in double.
namespace planish::lab {
namespace {

constexpr const char* kOfWeights[] = {"untrained", "trained"};

SequenceReader& ReaderOf(Experiment& experiment, const AnalyzedRun& opened) {
  auto* reader = dynamic_cast<SequenceReader*>(&experiment);
  if (reader == nullptr) {
    throw UsageError(fmt::format("[analyze stability] RUN must be of a task that {}, got {}",
                                 SequenceReader::kTask, opened.Description()));
  }
  return *reader;
}

std::vector<double> ToVector(const at::Tensor& t) {
  const at::Tensor doubles = t.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = doubles.const_data_ptr<double>();
  return {data, data + doubles.numel()};
}

// Measures layer number `index` for the loss of the prediction after the last step.
Dynamics MeasureLayer(SequenceReader& reader, size_t index,
                      const SequenceReader::Sequences& sequences) {
  const std::vector<RecurrentParams> layers = reader.recurrent().Layers();
  const int64_t steps = sequences.x.size(0), batch = sequences.x.size(1);
  const auto args = [&](size_t l, const std::vector<double>& x, const double* dh_n) {
    return DynamicsArgs{.cell = layers[l].cell,
                        .shape = {.time = steps,
                                  .batch = batch,
                                  .inputs = layers[l].inputs,
                                  .hidden = layers[l].hidden},
                        .x = x.data(),
                        .params = layers[l].params,
                        .dh_n = dh_n,
                        .eps = layers[l].epsilon};
  };
  std::vector<std::vector<double>> x = {ToVector(sequences.x)};  // inputs of each layer
  for (size_t l = 0; l < layers.size(); ++l) {
    x.push_back(MeasureDynamics(args(l, x[l], nullptr)).h);
  }
  const int64_t hidden = layers.back().hidden;
  at::Tensor h = at::empty({batch, hidden}, at::kDouble);
  std::copy(x.back().end() - h.numel(), x.back().end(), h.mutable_data_ptr<double>());
  h.requires_grad_(true);
  const at::AutoGradMode enabled(true);
  const at::Tensor dh = torch::autograd::grad({reader.LastLoss(h, sequences.target)}, {h})[0];
  // Down to the layer, through the last step of those above.
  std::vector<double> dh_n = ToVector(dh);
  for (size_t l = layers.size() - 1;; --l) {
    Dynamics dynamics = MeasureDynamics(args(l, x[l], dh_n.data()));
    if (l == index) return dynamics;
    dh_n = std::move(dynamics.dx_n);
  }
}

void AddRunRates(const RunGrowths& growths, const AnalysisSettings& settings,
                 const std::string& about, TheoryResult& result) {
  TheoryTable rates{
      .caption = fmt::format(
          "Growth rates per step of {}: the slope of log size of the summed inputs W_hh h + W_xh x "
          "in time, and of dL/dh_t back in time, for the loss after step {}, with 95% intervals "
          "over {} groups of {} sequences of the training data. The last row: |rate| trained minus "
          "at initialization, paired by group.",
          about, settings.Whole("steps"), settings.Whole("groups"), settings.Whole("sequences")),
      .head = {"weights", "summed inputs", "±", "gradients", "±"},
      .rows = {}};
  for (const Weights weights : {kInitial, kTrained}) {
    std::vector<TheoryCell>& row = rates.rows.emplace_back();
    row.emplace_back(kWeightsNames[weights]);
    for (const Growth& growth : growths[weights]) AddEstimate(EstimateMean(growth.rates), row);
  }
  std::vector<TheoryCell>& change = rates.rows.emplace_back();
  change.emplace_back("change of |rate|");
  for (const Quantity quantity : {kSummed, kGradient}) {
    AddEstimate(PairedDifference(Magnitudes(growths[kTrained][quantity].rates),
                                 Magnitudes(growths[kInitial][quantity].rates)),
                change);
  }
  result.tables.push_back(std::move(rates));

  TheoryTable sizes{
      .caption =
          "Root mean squares of the summed inputs at step n, and of dL/dh_t "
          "n - 1 steps before the last one: geometric means over the groups.",
      .head = {"n", "sums, init", "sums, trained", "gradient, init", "gradient, trained"},
      .rows = {}};
  const auto steps = static_cast<size_t>(settings.Whole("steps"));
  for (size_t n = 1, scale = 1; n <= steps;) {
    sizes.rows.push_back({fmt::to_string(n), growths[kInitial][kSummed].Size(n - 1),
                          growths[kTrained][kSummed].Size(n - 1),
                          growths[kInitial][kGradient].Size(n - 1),
                          growths[kTrained][kGradient].Size(n - 1)});
    if (n == steps) break;
    // 1, 2, 5, 10, 20, 50, ... and the last one.
    n = n == scale ? 2 * scale : n == 2 * scale ? 5 * scale : (scale *= 10);
    n = std::min(n, steps);
  }
  result.tables.push_back(std::move(sizes));

  for (const Quantity quantity : {kSummed, kGradient}) {
    TheoryChart chart = SizeChart(quantity, about);
    for (const Weights weights : {kInitial, kTrained}) {
      chart.lines.push_back(LineOf(growths[weights][quantity], quantity, kWeightsNames[weights]));
    }
    result.charts.push_back(std::move(chart));
  }
}

// States what the paper says about a standard, or about a layer-normalized layer.
void StateRun(const RunGrowths& growths, const std::string& name, Cell cell, TheoryResult& result) {
  const internal::CellRecipe recipe = internal::RecipeOf(cell);
  const bool normalized = recipe.sums != internal::Sums::kPlain;
  const char* const of_sums =
      recipe.over == internal::Over::kRow ? "" : " (stated of layer normalization)";
  for (const Quantity quantity : {kSummed, kGradient}) {
    const bool sums = quantity == kSummed;
    for (const Weights weights : {kTrained, kInitial}) {
      const Growth& growth = growths[weights][quantity];
      const Trend trend = TrendOf(growth);
      const Estimate rate = EstimateMean(growth.rates);
      const bool agrees = (trend == kSteady) == normalized;
      const char* const says =
          sums ? (normalized ? "neither grow nor shrink" : "grow or shrink at every step")
               : (normalized ? "neither explode nor vanish (implied, not stated)"
                             : "explode or vanish");
      const char* const names[] = {sums ? "grow" : "explode", sums ? "shrink" : "vanish", "steady",
                                   "cannot tell"};
      result.statements.push_back(
          {.source = kStabilitySource,
           .text = fmt::format("In the {} {} layer, {} {}{}.", kOfWeights[weights], name,
                               sums ? "the summed inputs" : "gradients", says, sums ? of_sums : ""),
           .verdict = trend == kUnclear ? TheoryVerdict::kCannotTell
                      : agrees          ? TheoryVerdict::kHolds
                                        : TheoryVerdict::kFails,
           .measured = fmt::format("growth rate {:.3g} ± {:.2g} per step: {}",
                                   rate.count > 0 ? rate.mean : NAN, rate.half_width.value_or(NAN),
                                   names[trend])});
    }
  }
}

}  // namespace

Cell CheckAnalyzedRun(const AnalysisSettings& settings, const AnalyzedRun& opened) {
  SequenceReader& reader = ReaderOf(*opened.trained.experiment, opened);
  const std::vector<RecurrentParams> layers = reader.recurrent().Layers();
  const auto check = [&](const char* name, int64_t largest) {
    if (settings.Whole(name) <= largest) return;
    throw UsageError(fmt::format("[analyze stability] --{} must be at most {} for {}, got {}", name,
                                 largest, opened.Description(), settings.Whole(name)));
  };
  check("layer", static_cast<int64_t>(layers.size()));
  check("steps", reader.MaxSteps());
  return layers[0].cell;
}

RunGrowths MeasureRunGrowths(const AnalysisSettings& settings, const AnalyzedRun& opened) {
  const std::unique_ptr<Experiment> untrained =
      OpenInitial(FindTask(opened.run.config.task), opened.run, *opened.trained.data);
  SequenceReader* const readers[] = {&ReaderOf(*untrained, opened),
                                     &ReaderOf(*opened.trained.experiment, opened)};
  const auto index = static_cast<size_t>(settings.Whole("layer") - 1);
  const int64_t groups = settings.Whole("groups");
  RunGrowths growths;
  for (int64_t group = 0; group < groups; ++group) {
    settings.ShowProgress(
        fmt::format("{}, group {} of {}", opened.Description(), group + 1, groups));
    for (const Weights weights : {kInitial, kTrained}) {
      // The same sequences for both.
      at::Generator generator =
          at::detail::createCPUGenerator(MixedSeed({settings.Whole("seed"), group}));
      const SequenceReader::Sequences sequences = readers[weights]->ReadSequences(
          settings.Whole("steps"), settings.Whole("sequences"), generator);
      AddDynamics(MeasureLayer(*readers[weights], index, sequences), group, growths[weights]);
    }
  }
  return growths;
}

TheoryResult MeasureRunStability(const AnalysisSettings& settings) {
  const at::NoGradGuard no_grad;
  TheoryResult result;
  const AnalyzedRun opened = OpenAnalyzedRun(settings, result);
  const Cell cell = CheckAnalyzedRun(settings, opened);
  const RunGrowths growths = MeasureRunGrowths(settings, opened);
  AddRunRates(growths, settings,
              fmt::format("layer {} of {}", settings.Whole("layer"), opened.Description()), result);
  StateRun(growths, Spelled(opened.run.config.settings.at(opened.run.config.report.compare)), cell,
           result);
  return result;
}

}  // namespace planish::lab
