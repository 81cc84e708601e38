#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lab/base/random.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/theory/analyses.h"
#include "lab/theory/rows.h"
#include "lab/theory/trained_run.h"
#include "planish/norm.h"

// Theorem 1 of Xu et al. 2019: mean and variance over a row of the gradient dx, from those of g,
// the gradient of the normalized values. docs/math.md has the proof. dx is computed by NormBackward
// on random rows, or by a trained model on its training data.
namespace planish::lab {
namespace {

// Errors of equalities relative to the size of g. Sums of up to 4,096 terms round by less.
constexpr double kRounding = 1e-11;

// The same of models, which compute in float: an element of dx is rounded some ten times, each time
// by 2^-24 of values that can be larger than the row's root mean square.
constexpr double kModelRounding = 0x1p-18;

struct Form {
  Norm norm;
  const char* name;
  NormPaths paths;
  const char* source;
  const char* text;
  TheoryVerdict holds;
  const char* more;
};

constexpr char kTheorem[] = "Xu et al. 2019, Theorem 1";
constexpr char kProof[] = "Xu et al. 2019, Theorem 1, proof in the supplement";

// In the order of the statements.
constexpr Form kForms[] = {
    {Norm::kDetach,
     "both detached",
     {.via_mean = false, .via_deviation = false},
     kTheorem,
     "With mean and deviation detached, the mean of the gradients is gbar/sigma and their variance "
     "D_g/sigma^2.",
     TheoryVerdict::kHolds,
     ""},
    {Norm::kLayerSimple,
     "LayerNorm-simple",
     {.via_mean = true, .via_deviation = true},
     kTheorem,
     "With LayerNorm-simple, the mean of the gradients is 0 and their variance at most "
     "D_g/sigma^2.",
     TheoryVerdict::kHolds,
     ". With eps = 0, the variance is (D_g - m^2)/sigma^2"},
    {Norm::kDetachMean,
     "mean detached",
     {.via_mean = false, .via_deviation = true},
     kProof,
     "With the mean detached, the mean of the gradients is gbar/sigma and their variance at most "
     "D_g/sigma^2.",
     TheoryVerdict::kHolds,
     ". With eps = 0, the variance is (D_g - m^2)/sigma^2"},
    {Norm::kDetachDeviation,
     "deviation detached",
     {.via_mean = true, .via_deviation = false},
     kProof,
     "With the deviation detached, the mean of the gradients is 0 and their variance D_g/sigma^2.",
     TheoryVerdict::kHoldsCorrected,
     ". The paper prints D_c for this variance, D_d is meant"},
};

const Form& FormOf(const NormPaths& paths) {
  return *std::ranges::find_if(kForms, [&](const Form& form) {
    return form.paths.via_mean == paths.via_mean && form.paths.via_deviation == paths.via_deviation;
  });
}

// The largest errors over rows, relative to sigma and the size of g.
struct Errors {
  int64_t rows = 0;
  double mean = 0, variance = 0;
  int64_t wrong = 0;     // rows with an error beyond rounding
  int64_t larger = 0;    // rows whose variance exceeds D_g / sigma^2
  double ratio_sum = 0;  // of the variance over D_g / sigma^2
  int64_t ratios = 0;    // rows whose D_g is not 0

  void Merge(const Errors& other) {
    rows += other.rows;
    mean = std::max(mean, other.mean);
    variance = std::max(variance, other.variance);
    wrong += other.wrong;
    larger += other.larger;
  }
};

// Adds a row. With eps, mean(y^2) = s < 1, and the variance is (D_g - b (2 - b s) m^2)/sigma^2 with
// b s <= 1, so that the theorem's bound holds, too. b is 1 except for the unbiased deviation, whose
// derivative is another.
void Add(const NormPaths& paths, std::span<const double> x, std::span<const double> g,
         std::span<const double> dx, double rstd, double rounding, Errors& errors) {
  const RowMoments of_g = MomentsOf(g), of_x = MomentsOf(x), of_dx = MomentsOf(dx);
  const double n = static_cast<double>(x.size()), size = of_g.variance + of_g.mean * of_g.mean;
  const double s = of_x.variance * rstd * rstd;
  double b = paths.via_deviation && s > 0 ? 1 : 0;
  if (b > 0 && paths.unbiased) b = std::sqrt(n / ((n - 1) * s));
  double product = 0;  // the mean of g * y
  for (size_t i = 0; i < x.size(); ++i) product += g[i] * (x[i] - of_x.mean) * rstd;
  product /= n;
  const double mean = paths.via_mean ? 0 : of_g.mean * rstd;
  const double bound = of_g.variance * rstd * rstd;
  const double variance = bound - b * (2 - b * s) * product * product * rstd * rstd;
  const double mean_error = std::abs(of_dx.mean - mean) / (std::sqrt(size) * rstd);
  const double variance_error = std::abs(of_dx.variance - variance) / (size * rstd * rstd);
  ++errors.rows;
  errors.mean = std::max(errors.mean, mean_error);
  errors.variance = std::max(errors.variance, variance_error);
  // NaN is an error.
  if (!(mean_error <= rounding && variance_error <= rounding)) ++errors.wrong;
  if (of_dx.variance > bound + rounding * size * rstd * rstd) ++errors.larger;
  if (bound > 0) {
    errors.ratio_sum += of_dx.variance / bound;
    ++errors.ratios;
  }
}

// Returns cells of a table: the errors of mean and variance, the mean of the variance over D_g /
// sigma^2, and the rows above the bound.
std::vector<TheoryCell> CellsOf(const Errors& errors) {
  return {errors.mean, errors.variance, errors.ratio_sum / static_cast<double>(errors.ratios),
          static_cast<double>(errors.larger)};
}

void State(const Form& form, const Errors& errors, TheoryResult& result) {
  result.statements.push_back(
      {.source = form.source,
       .text = form.text,
       .verdict = errors.wrong == 0 && errors.larger == 0 ? form.holds : TheoryVerdict::kFails,
       .measured = fmt::format(
           "largest error of the mean {:.1e}, of the variance {:.1e}; {} of "
           "{} rows above the bound{}{}",
           errors.mean, errors.variance, errors.larger, errors.rows,
           errors.wrong == 0 ? "" : fmt::format(", {} with errors beyond rounding", errors.wrong),
           form.more)});
}

TheoryResult MeasureRandomRows(const AnalysisSettings& settings) {
  const int64_t rows = settings.Whole("rows"), width = settings.Whole("width");
  const auto n = static_cast<size_t>(width);
  // Blocks of rows that stay in a cache.
  const int64_t block = std::max<int64_t>(1, 4096 / width);
  std::vector<double> x(static_cast<size_t>(block) * n), g(x.size()), dx(x.size());
  std::vector<double> mean(static_cast<size_t>(block)), mean_lo(mean), rstd(mean);
  std::array<Errors, std::size(kForms)> errors;
  std::mt19937_64 random(MixedSeed({settings.Whole("seed")}));
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t count = std::min(block, rows - begin);
    for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
      const std::span<double> x_row(x.data() + r * n, n), g_row(g.data() + r * n, n);
      DrawRow(kRowKinds[random() % std::size(kRowKinds)], random, x_row);
      DrawRow(kRowKinds[random() % std::size(kRowKinds)], random, g_row);
      const double shift = static_cast<double>(random() % 7) - 3;
      for (double& value : x_row) value += shift;
      for (double& value : g_row) value += shift / 4;
    }
    NormForward<double>(Norm::kLayerSimple,
                        {.rows = count,
                         .cols = width,
                         .x = x.data(),
                         .y = dx.data(),
                         .mean = mean.data(),
                         .mean_lo = mean_lo.data(),
                         .rstd = rstd.data()},
                        {.eps = 0});
    for (size_t f = 0; f < std::size(kForms); ++f) {
      NormBackward<double>(kForms[f].norm, {.rows = count,
                                            .cols = width,
                                            .dy = g.data(),
                                            .x = x.data(),
                                            .mean = mean.data(),
                                            .mean_lo = mean_lo.data(),
                                            .rstd = rstd.data(),
                                            .dx = dx.data()});
      for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
        const auto row = [&](const std::vector<double>& values) {
          return std::span<const double>(values.data() + r * n, n);
        };
        Add(kForms[f].paths, row(x), row(g), row(dx), rstd[r], kRounding, errors[f]);
      }
    }
  }

  TheoryResult result;
  TheoryTable table{
      .caption =
          fmt::format("Gradients dx of {} random rows of {} elements, with gbar and D_g, the "
                      "mean and the variance of dL/dy, y = (x - mean) / sigma, and m = "
                      "mean(y dL/dy). Errors are relative to the size of dL/dy.",
                      rows, width),
      .head = {"norm", "error of mean", "of variance", "over D_g/sigma^2", "rows above 1"}};
  for (size_t f = 0; f < std::size(kForms); ++f) {
    std::vector<TheoryCell>& row = table.rows.emplace_back();
    row.emplace_back(kForms[f].name);
    for (TheoryCell& cell : CellsOf(errors[f])) row.push_back(std::move(cell));
  }
  result.tables.push_back(std::move(table));
  for (size_t f = 0; f < std::size(kForms); ++f) State(kForms[f], errors[f], result);
  return result;
}

// A norm of a model.
struct WatchedNorm {
  std::string name;  // in the model
  std::shared_ptr<NormModule> norm;
  std::optional<NormPaths> paths;
  Errors errors;
};

void AddRows(const NormPaths& paths, const NormRows& rows, Errors& errors) {
  const auto count = static_cast<size_t>(rows.x.size(0)), n = static_cast<size_t>(rows.x.size(1));
  const at::Tensor x = rows.x.contiguous(), g = rows.g.contiguous(), dx = rows.dx.contiguous();
  const at::Tensor rstd = rows.sigma.reciprocal().contiguous();
  for (size_t r = 0; r < count; ++r) {
    const auto row = [&](const at::Tensor& t) {
      return std::span<const double>(t.const_data_ptr<double>() + r * n, n);
    };
    Add(paths, row(x), row(g), row(dx), rstd.const_data_ptr<double>()[r], kModelRounding, errors);
  }
}

// Runs forward and backward passes of training batches.
void RunBatches(Experiment& experiment, const AnalysisSettings& settings) {
  at::Generator generator = at::detail::createCPUGenerator(MixedSeed({settings.Whole("seed")}));
  // For dropout.
  at::Generator global = at::detail::getDefaultCPUGenerator();
  global.set_current_seed(MixedSeed({settings.Whole("seed"), 1}));
  experiment.model().train();
  const EpochPlan plan = experiment.PlanEpoch(generator);
  for (int64_t b = 0; b < std::min(plan.batches(), settings.Whole("batches")); ++b) {
    const Tensors batch = [&] {
      const at::NoGradGuard no_grad;
      return experiment.Batch(plan.batch(b));
    }();
    experiment.model().zero_grad();
    experiment.Loss(batch).backward();
  }
}

TheoryResult MeasureRun(const AnalysisSettings& settings) {
  TheoryResult result;
  const AnalyzedRun opened = OpenAnalyzedRun(settings, result);
  Experiment& experiment = *opened.trained.experiment;
  std::vector<WatchedNorm> norms;
  for (const auto& item : experiment.model().named_modules("", /*include_self=*/false)) {
    auto norm = std::dynamic_pointer_cast<NormModule>(item.value());
    if (!norm) continue;
    norms.push_back({.name = item.key(), .norm = norm, .paths = norm->Paths(), .errors = {}});
  }
  if (std::ranges::none_of(norms, [](const WatchedNorm& n) { return n.paths.has_value(); })) {
    throw UsageError(
        fmt::format("[analyze gradients] RUN must have a norm of Theorem 1, which "
                    "centres rows, in a layer, got {}",
                    opened.Description()));
  }
  for (WatchedNorm& n : norms) {
    n.norm->Watch();
    if (n.paths) n.norm->Watch([&n](const NormRows& rows) { AddRows(*n.paths, rows, n.errors); });
  }
  RunBatches(experiment, settings);

  TheoryTable means{
      .caption = fmt::format(
          "Gradients around the norms of {}, in {} batches of training: means over rows of s = "
          "sigma, of |gbar|/s and D_g/s^2, where gbar and D_g are the mean and the variance of g, "
          "and of |mean| and variance of the gradients dx. g is the gradient of the normalized "
          "values: dL/dy times the gain, or AdaNorm's factor.",
          opened.Description(), settings.Whole("batches")),
      .head = {"layer", "rows", "s", "gbar/s", "D_g/s^2", "mean dx", "var dx"}};
  TheoryTable theorem{
      .caption =
          "Theorem 1 on each of these rows: largest errors of the mean and the variance of "
          "dx, relative to the size of g/s; the mean of var dx over D_g/s^2; rows where it "
          "is above 1. The model computes in float.",
      .head = {"layer", "of mean", "of variance", "ratio", "above 1"}};
  std::array<Errors, std::size(kForms)> by_form;
  for (WatchedNorm& n : norms) {
    const auto watched = NormModule::GradientsOf(n.norm->WatchedSums());
    n.norm->Watch({});
    if (!watched) continue;
    means.rows.push_back({n.name, fmt::to_string(watched->rows), watched->sigma,
                          watched->mean_detached, watched->variance_detached, watched->mean_after,
                          watched->variance_after});
    std::vector<TheoryCell>& row = theorem.rows.emplace_back();
    row.emplace_back(n.name);
    if (!n.paths) {
      row.insert(row.end(), 4, "-");
      continue;
    }
    const Form& form = FormOf(*n.paths);
    for (TheoryCell& cell : CellsOf(n.errors)) row.push_back(std::move(cell));
    by_form[static_cast<size_t>(&form - kForms)].Merge(n.errors);
  }
  result.tables = {std::move(means), std::move(theorem)};
  for (size_t f = 0; f < std::size(kForms); ++f) {
    if (by_form[f].rows > 0) State(kForms[f], by_form[f], result);
  }
  return result;
}

TheoryResult MeasureGradients(const AnalysisSettings& settings) {
  return settings.has_run() ? MeasureRun(settings) : MeasureRandomRows(settings);
}

}  // namespace

TheoryAnalysis GradientStatistics() {
  return {.name = "gradients",
          .summary = "Mean and variance of the gradients of a norm (Theorem 1 of Xu et al. 2019)",
          .settings = {{"rows", "random rows", 1e6, 1, 1e9, true, SettingUse::kRandomData},
                       {"width", "elements of a random row", 16, 2, 4096, true,
                        SettingUse::kRandomData},
                       {"batches", "with RUN: batches of its training data", 4, 1, 1000, true,
                        SettingUse::kRun},
                       {"seed", "of the random rows, or of the batches", 1, 0, 0x1p53}},
          .files = AnalysisFiles::kRun,
          .measure = MeasureGradients};
}

}  // namespace planish::lab
