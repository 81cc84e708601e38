#ifndef PLANISH_LAB_THEORY_RECURRENT_STABILITY_H_
#define PLANISH_LAB_THEORY_RECURRENT_STABILITY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/theory/analyses.h"
#include "lab/theory/trained_run.h"
#include "planish/rnn.h"

// Sizes of the summed inputs and of the gradients of a recurrent layer at each time step.
namespace planish::lab {

/// A layer that starts from states of zeros, and the gradient of its last hidden state.
struct DynamicsArgs {
  Cell cell = Cell::kRnn;
  RnnShape shape;             ///< one head, no projection, at least one step
  const double* x = nullptr;  ///< [T, B, I]
  RnnParams<const double> params;
  /// [B, H] dL/dh_T of a loss L of the last hidden state only; null: no gradients are computed.
  const double* dh_n = nullptr;
  double eps = 0;
};

/// States and gradients, and their sizes: root mean squares over sequences and elements.
struct Dynamics {
  std::vector<double> h;   ///< [T, B, H] hidden states
  std::vector<double> dh;  ///< [T, B, H] dL/dh_t, with the cell state c_t of an LSTM held constant
  /// [T] of the summed inputs W_hh h_{t-1} + W_xh x_t, before a norm and without biases, as in
  /// section 3.1 of Ba, Kiros & Hinton 2016
  std::vector<double> summed_size;
  std::vector<double> gradient_size;  ///< [T] of dL/dh_t
  std::vector<double> dx_n;  ///< [B, I] dL/dx_T, which reaches the layer below at its last step
};

/// Runs the layer forward, then backward step by step. Throws ArgumentError as RnnForward does.
Dynamics MeasureDynamics(const DynamicsArgs& args);

/// Returns the growth rate of sizes: the slope of their logarithm per element, by least squares
/// over the second half. Leaves out sizes that are not finite or below 1e-290. If that leaves fewer
/// than two, fits the second half of the sizes before the first such one, and returns NaN if there
/// are fewer than two.
double GrowthRate(std::span<const double> sizes);

/// Growth rates by seed, or by group of sequences, and the logarithms of the sizes, summed over
/// `count` seeds. Sizes are in the order of the growth: gradients start at the last step.
struct Growth {
  SeedValues rates;
  std::vector<double> log_sizes;
  double count = 0;

  void Add(const std::vector<double>& sizes, int64_t seed);

  /// Returns the geometric mean of the sizes at an index.
  double Size(size_t index) const;
};

/// A quantity whose growth is measured.
enum Quantity : size_t { kSummed, kGradient, kQuantityCount };

/// Adds the sizes of a seed to growths[kSummed] and growths[kGradient].
void AddDynamics(const Dynamics& dynamics, int64_t seed, std::span<Growth, kQuantityCount> growths);

/// What the 95% interval of a rate says. Steady: within 0.01 per step.
enum Trend : size_t { kGrows, kShrinks, kSteady, kUnclear, kTrendCount };
Trend TrendOf(const Growth& growth);

/// Returns a chart without lines, and the line of a growth: at most 200 points.
TheoryChart SizeChart(Quantity quantity, const std::string& about);
TheoryLine LineOf(const Growth& growth, Quantity quantity, const std::string& name);

/// Adds the mean and the half-width of the 95% interval, NaN where there is none.
void AddEstimate(const Estimate& estimate, std::vector<TheoryCell>& row);

/// Returns the values' magnitudes.
SeedValues Magnitudes(SeedValues values);

/// Source of the statements.
inline constexpr char kStabilitySource[] = "Ba, Kiros & Hinton 2016, section 3.1";

/// Weights of a run.
enum Weights : size_t { kInitial, kTrained, kWeightsCount };
inline constexpr const char* kWeightsNames[] = {"at initialization", "trained"};

/// growths[weights][quantity] of a layer of a run. Their "seeds" are groups of sequences.
using RunGrowths = std::array<std::array<Growth, kQuantityCount>, kWeightsCount>;

/// Returns the cell of a run's recurrent layers. Throws UsageError unless the run is of a task that
/// reads sequences, with the layer and the steps of the settings.
Cell CheckAnalyzedRun(const AnalysisSettings& settings, const AnalyzedRun& opened);

/// Measures the layer of a run that CheckAnalyzedRun accepts.
RunGrowths MeasureRunGrowths(const AnalysisSettings& settings, const AnalyzedRun& opened);

/// Measures the layer of a trained run, for the settings of RecurrentStability().
TheoryResult MeasureRunStability(const AnalysisSettings& settings);

/// Measures the layers of several trained runs, and compares each cell with norms with the same
/// cell without, paired by seed. Throws UsageError unless all runs have the same task, data and
/// settings except for the cell, each cell and seed is given once, and there is a pair to compare.
TheoryResult MeasurePairedStability(const AnalysisSettings& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_RECURRENT_STABILITY_H_
