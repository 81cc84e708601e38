#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/base/random.h"
#include "lab/error.h"
#include "lab/theory/analyses.h"
#include "lab/theory/glm.h"
#include "lab/theory/rows.h"

// Section 5.2 of Ba, Kiros & Hinton 2016, and "Learning the magnitude of incoming weights" of its
// supplement: Fisher matrices of normalized generalized linear models. docs/math-geometry.md has
// the derivations.
namespace planish::lab {
namespace {

// Relative errors of equalities. Fisher matrices are sums of some thousand terms.
constexpr double kMaxRelativeError = 1e-10;

// The largest memory of the matrices of a call, in bytes.
constexpr double kMaxBytes = 0x1p30;

TheoryVerdict Verdict(bool holds, TheoryVerdict verdict = TheoryVerdict::kHolds) {
  return holds ? verdict : TheoryVerdict::kFails;
}

double SquaredLength(std::span<const double> v) {
  double sum = 0;
  for (const double value : v) sum += value * value;
  return sum;
}

// Returns w_i.
std::span<const double> WeightVector(const Glm& glm, int64_t i) {
  return std::span(glm.weights)
      .subspan(static_cast<size_t>(i * glm.inputs), static_cast<size_t>(glm.inputs));
}

// Returns a random unit vector.
std::vector<double> RandomDirection(int64_t count, int64_t seed) {
  std::mt19937_64 random(MixedSeed({seed, count}));
  std::vector<double> direction(static_cast<size_t>(count));
  DrawRow(RowKind::kNormal, random, direction);
  const double length = std::sqrt(SquaredLength(direction));
  for (double& value : direction) value /= length;
  return direction;
}

// Returns the direction that is `of_weights` in the weights, [units, inputs], and 0 elsewhere.
std::vector<double> AlongWeights(const Glm& glm, const std::vector<double>& of_weights) {
  std::vector<double> direction(static_cast<size_t>(glm.Parameters()));
  for (int64_t i = 0; i < glm.units; ++i) {
    std::copy_n(of_weights.begin() + i * glm.inputs, glm.inputs,
                direction.begin() + i * glm.UnitParameters());
  }
  return direction;
}

// Returns the direction that is `of_gains` in the gains. Without gains, it changes the lengths of
// the weight vectors, by the same amounts.
std::vector<double> AlongGains(const Glm& glm, const std::vector<double>& of_gains) {
  std::vector<double> direction(static_cast<size_t>(glm.Parameters()));
  for (int64_t i = 0; i < glm.units; ++i) {
    const double step = of_gains[static_cast<size_t>(i)];
    const auto unit = direction.begin() + i * glm.UnitParameters();
    if (glm.norm != GlmNorm::kNone) {
      unit[glm.inputs + 1] = step;
      continue;
    }
    const std::span<const double> w = WeightVector(glm, i);
    const double length = std::sqrt(SquaredLength(w));
    std::transform(w.begin(), w.end(), unit, [&](double value) { return step * value / length; });
  }
  return direction;
}

// Returns the mean of v^T F v over unit vectors v in the weights of units [0, units).
double MeanForm(const Glm& glm, const SquareMatrix& fisher, int64_t units) {
  double sum = 0;
  for (int64_t i = 0; i < units; ++i) {
    for (int64_t s = 0; s < glm.inputs; ++s) {
      const int64_t at = i * glm.UnitParameters() + s;
      sum += fisher.Row(at)[at];
    }
  }
  return sum / static_cast<double>(units * glm.inputs);
}

// Returns v^T F v / v^T v over MeanForm: 0 along a direction that leaves the outputs alone.
double RelativeForm(const Glm& glm, const SquareMatrix& fisher, const std::vector<double>& v) {
  return QuadraticForm(fisher, v) / SquaredLength(v) / MeanForm(glm, fisher, glm.units);
}

// One call: its models and its result.
class Geometry {
 public:
  explicit Geometry(const AnalysisSettings& settings)
      : units_(settings.Whole("units")),
        inputs_(settings.Whole("inputs")),
        cases_(settings.Whole("cases")),
        largest_(settings.Whole("largest")),
        seed_(settings.Whole("seed")) {
    const auto h = static_cast<double>(std::max(units_, largest_));
    const auto d = static_cast<double>(inputs_), n = static_cast<double>(cases_);
    // Two Fisher matrices and their weights, six matrices of a case, and sums and inputs of all
    // cases.
    const double parameters = h * (d + 2);
    const double bytes = 8 * (4 * parameters * parameters + 6 * h * h + n * (6 * h + d));
    if (bytes > kMaxBytes) {
      throw UsageError(fmt::format(
          "[analyze geometry] --units, --largest, --inputs and --cases must need at most "
          "{:.0f} bytes, got {:.0f}",
          kMaxBytes, bytes));
    }
  }

  TheoryResult Measure() {
    MeasureDivergence();
    MeasureEquations();
    MeasureHeights();
    MeasureCurvature();
    MeasureGains();
    return std::move(result_);
  }

 private:
  Glm Model(GlmNorm norm, GlmFamily family) const { return Model(norm, family, units_); }
  Glm Model(GlmNorm norm, GlmFamily family, int64_t units) const {
    Glm glm = RandomGlm(units, inputs_, cases_, seed_);
    glm.norm = norm;
    glm.family = family;
    return glm;
  }

  std::string Sizes() const {
    return fmt::format("H = {} units, {} inputs and {} cases", units_, inputs_, cases_);
  }

  static std::vector<std::string> HeadOfFamilies(std::string first) {
    std::vector<std::string> head = {std::move(first)};
    for (const GlmFamily family : kGlmFamilies) head.push_back(NameOf(family));
    return head;
  }

  void State(std::string source, std::string text, TheoryVerdict verdict, std::string measured) {
    result_.statements.push_back({"Ba, Kiros & Hinton 2016, " + std::move(source), std::move(text),
                                  verdict, std::move(measured)});
  }

  // Eq. 8.
  void MeasureDivergence() {
    TheoryTable table{.caption = fmt::format(
                          "Eq. 8: slope of |KL - 1/2 d^T F d| against the step |d|, on log axes, "
                          "along a random direction; \"exact\" where it is 0. {}.",
                          Sizes()),
                      .head = HeadOfFamilies("norm")};
    TheoryChart chart{.heading = "Error of 1/2 d^T F d, Bernoulli",
                      .x_label = "|d|",
                      .y_label = "|KL - 1/2 d^T F d|",
                      .log_x = true,
                      .log_y = true};
    double largest = 0;
    for (const GlmNorm norm : kGlmNorms) {
      std::vector<TheoryCell> row = {NameOf(norm)};
      for (const GlmFamily family : kGlmFamilies) {
        const Glm glm = Model(norm, family);
        const std::vector<double> direction = RandomDirection(glm.Parameters(), seed_);
        const double form = QuadraticForm(FisherMatrix(glm), direction);
        TheoryLine line{.name = NameOf(norm)};
        bool exact = true;
        for (int k = 0; k < 7; ++k) {
          const double step = 0.1 * std::pow(0.25, k), square = form * step * step / 2;
          const double error = std::abs(Divergence(glm, Moved(glm, direction, step)) - square);
          if (error > kMaxRelativeError * square) exact = false;
          line.points.emplace_back(step, error);
        }
        if (exact) {
          row.emplace_back("exact");
        } else {
          const double slope =
              std::log(line.points[5].second / line.points[6].second) / std::log(4.0);
          largest = std::max(largest, std::abs(slope - 3));
          row.emplace_back(slope);
        }
        if (family == GlmFamily::kBernoulli) chart.lines.push_back(std::move(line));
      }
      table.rows.push_back(std::move(row));
    }
    result_.tables.push_back(std::move(table));
    result_.charts.push_back(std::move(chart));
    // The next term of the error changes the slope by far less at steps of 1e-4.
    State("Eq. 8-9", "KL(p(theta) || p(theta + d)) is 1/2 d^T F(theta) d up to third order.",
          Verdict(largest <= 0.1),
          fmt::format("the slope differs from 3 by {:.1e} at most; the form is exact for the "
                      "Gaussian model without a norm",
                      largest));
  }

  // Eq. 12-14, by norm.
  void MeasureEquations() {
    TheoryTable table{
        .caption = fmt::format("Eq. 12 (no norm) and Eq. 13-14: printed less exact Fisher matrix, "
                               "relative Frobenius norm. {}.",
                               Sizes()),
        .head = HeadOfFamilies("norm")};
    double plain = 0, own = 0, layer = 1;
    for (const GlmNorm norm : kGlmNorms) {
      std::vector<TheoryCell> row = {NameOf(norm)};
      for (const GlmFamily family : kGlmFamilies) {
        const Glm glm = Model(norm, family);
        const double share = RelativeDifference(FisherMatrix(glm), PrintedFisherMatrix(glm));
        row.emplace_back(share);
        if (norm == GlmNorm::kNone) plain = std::max(plain, share);
        if (norm == GlmNorm::kLayer) layer = std::min(layer, share);
        if (norm == GlmNorm::kBatch || norm == GlmNorm::kWeight) own = std::max(own, share);
      }
      table.rows.push_back(std::move(row));
    }
    result_.tables.push_back(std::move(table));
    State("Eq. 12", "The Fisher matrix without a norm is E[Cov[y|x] / phi^2 (x) (x, 1)(x, 1)^T].",
          Verdict(plain <= kMaxRelativeError),
          fmt::format("largest relative difference {:.1e}", plain));
    State("Eq. 13-14", "The Fisher matrix with BN and with WN has the blocks of Eq. 13.",
          Verdict(own <= kMaxRelativeError),
          fmt::format("largest relative difference {:.1e}", own));
    smallest_layer_ = layer;
  }

  // Eq. 13-14 with LN, by the number of units.
  void MeasureHeights() {
    TheoryTable table{
        .caption = fmt::format(
            "Eq. 13-14 with LN: printed less exact Fisher matrix, relative Frobenius norm in %, by "
            "the number of units H; {} inputs, {} cases. The other columns are of Bernoulli "
            "outputs. weights: the same without the rows and columns of gains and biases. W and "
            "shift: printed d^T F d along W and along one vector added to all w_i, over the mean "
            "of all directions; exactly, both are 0.",
            inputs_, cases_),
        .head = HeadOfFamilies("H")};
    table.head.insert(table.head.end(), {"weights", "W", "shift"});
    TheoryChart chart{.heading = "What Eq. 13 leaves out with LN",
                      .x_label = "H",
                      .y_label = "share of the Frobenius norm",
                      .log_x = true,
                      .log_y = true};
    for (const GlmFamily family : kGlmFamilies) chart.lines.push_back({.name = NameOf(family)});
    std::vector<int64_t> heights;
    for (int64_t h = 3; h < largest_; h *= 2) heights.push_back(h);
    heights.push_back(largest_);
    double largest_exact = 0, smallest_printed = INFINITY;
    for (const int64_t height : heights) {
      std::vector<TheoryCell> row = {fmt::format("{}", height)};
      double of_weights = 0, along_w = 0, along_shift = 0;
      for (size_t f = 0; f < std::size(kGlmFamilies); ++f) {
        const Glm glm = Model(GlmNorm::kLayer, kGlmFamilies[f], height);
        const SquareMatrix exact = FisherMatrix(glm), printed = PrintedFisherMatrix(glm);
        const double share = RelativeDifference(exact, printed);
        row.emplace_back(100 * share);
        chart.lines[f].points.emplace_back(static_cast<double>(height), share);
        std::vector<double> shift;
        const std::vector<double> one = RandomDirection(inputs_, seed_);
        for (int64_t i = 0; i < height; ++i) shift.insert(shift.end(), one.begin(), one.end());
        const std::vector<double> w = AlongWeights(glm, glm.weights);
        shift = AlongWeights(glm, shift);
        const double of_w = RelativeForm(glm, printed, w);
        const double of_shift = RelativeForm(glm, printed, shift);
        largest_exact = std::max({largest_exact, std::abs(RelativeForm(glm, exact, w)),
                                  std::abs(RelativeForm(glm, exact, shift))});
        smallest_printed = std::min({smallest_printed, of_w, of_shift});
        if (kGlmFamilies[f] == GlmFamily::kBernoulli) {
          of_weights = RelativeDifference(WeightBlocks(glm, exact), WeightBlocks(glm, printed));
          along_w = of_w;
          along_shift = of_shift;
        }
      }
      row.emplace_back(100 * of_weights);
      row.emplace_back(along_w);
      row.emplace_back(along_shift);
      table.rows.push_back(std::move(row));
    }
    result_.tables.push_back(std::move(table));
    const auto& rows = result_.tables.back().rows;
    const auto share_of_weights = [](const std::vector<TheoryCell>& row) {
      return std::get<double>(row[5]);
    };
    State("Eq. 13-14", "The Fisher matrix with LN has the blocks of Eq. 13.",
          Verdict(smallest_layer_ <= kMaxRelativeError),
          fmt::format("mu and sigma depend on the weights of all units, and Eq. 13 leaves out how "
                      "other units' outputs change with w_i. The difference is {:.3g}% of the "
                      "Frobenius norm of the weights' blocks at H = {} and {:.3g}% at H = {} "
                      "(Bernoulli); the share of the whole matrix is less if W is large. "
                      "docs/math-geometry.md has the complete blocks",
                      share_of_weights(rows.front()), heights.front(),
                      share_of_weights(rows.back()), heights.back()));
    State(
        "Table 1 and Eq. 9; docs/math-geometry.md",
        "With LN, the Fisher matrix is 0 along W and along one vector added to all weight "
        "vectors, because these leave the outputs alone.",
        Verdict(largest_exact <= kMaxRelativeError),
        fmt::format("at most {:.1e} of the mean over all directions. By Eq. 13 it would be {:.2g} "
                    "of the mean or more",
                    largest_exact, smallest_printed));
    result_.charts.push_back(std::move(chart));
  }

  // The curvature along a weight vector of twice the length.
  void MeasureCurvature() {
    TheoryTable table{
        .caption = fmt::format("d^T F d after w_1, or all of W, is doubled, over its value before; "
                               "d is a random direction of w_1. Last, d = w_1 itself, before, over "
                               "the mean of all d. Bernoulli, {}.",
                               Sizes()),
        .head = {"norm", "w_1 doubled", "W doubled", "d = w_1"}};
    double own = 0, layer = 0, along = 0;  // the largest errors
    std::vector<double> layer_one;
    for (const GlmNorm norm : kGlmNorms) {
      for (const GlmFamily family : kGlmFamilies) {
        const Glm glm = Model(norm, family);
        Glm one = glm, all = glm;
        for (int64_t s = 0; s < inputs_; ++s) one.weights[static_cast<size_t>(s)] *= 2;
        for (double& weight : all.weights) weight *= 2;
        const auto of_first = [&](std::vector<double> values) {
          values.resize(static_cast<size_t>(units_ * inputs_));
          return AlongWeights(glm, values);
        };
        const std::vector<double> d = of_first(RandomDirection(inputs_, seed_));
        const SquareMatrix before = FisherMatrix(glm);
        const double form = QuadraticForm(before, d);
        const double with_one = QuadraticForm(FisherMatrix(one), d) / form;
        const double with_all = QuadraticForm(FisherMatrix(all), d) / form;
        const std::span<const double> w = WeightVector(glm, 0);
        const double of_w = QuadraticForm(before, of_first({w.begin(), w.end()})) /
                            SquaredLength(w) / MeanForm(glm, before, 1);
        if (norm == GlmNorm::kBatch || norm == GlmNorm::kWeight) {
          own = std::max({own, std::abs(with_one - 0.25), std::abs(with_all - 0.25)});
          along = std::max(along, std::abs(of_w));
        } else if (norm == GlmNorm::kLayer) {
          layer = std::max(layer, std::abs(with_all - 0.25));
          if (family == GlmFamily::kBernoulli) layer_one.push_back(with_one);
        }
        if (family == GlmFamily::kBernoulli) {
          table.rows.push_back({NameOf(norm), with_one, with_all, of_w});
        }
      }
    }
    result_.tables.push_back(std::move(table));
    State(
        "section 5.2.2",
        "If w_i grows twice as large, the outputs remain the same and the curvature along the "
        "weights changes by a factor of 1/2.",
        Verdict(std::max({own, layer, along}) <= kMaxRelativeError, TheoryVerdict::kHoldsCorrected),
        fmt::format("the factor is 1/4 (up to {:.0e}), since sigma divides the score and so "
                    "appears twice in F; 1/2 is the factor of 1/sigma. With BN and WN, "
                    "doubling w_i is enough, and along w_i itself the curvature is 0. With LN, "
                    "the outputs remain the same only if all of W is doubled; with w_1 doubled, "
                    "the factor was {:.3g} here",
                    std::max(own, layer), layer_one.front()));
  }

  // Eq. 32-35.
  void MeasureGains() {
    const std::vector<double> d = RandomDirection(units_, seed_);
    const auto form = [&](const Glm& glm) {
      return QuadraticForm(FisherMatrix(glm), AlongGains(glm, d)) / 2;
    };
    const auto scaled = [](Glm glm, std::vector<double> Glm::* what, double factor) {
      for (double& value : glm.*what) value *= factor;
      return glm;
    };
    TheoryTable scales{
        .caption = fmt::format("ds^2 along the gains (no norm: along the lengths of the weight "
                               "vectors) after the inputs x or the weights W are multiplied, over "
                               "its value before. {}.",
                               Sizes()),
        .head = {"norm", "2 x, Gaussian", "4 x", "4 W", "2 x, Bernoulli", "4 x", "4 W"}};
    double robust = 0, square = 0;  // the largest errors
    for (const GlmNorm norm : kGlmNorms) {
      std::vector<TheoryCell> row = {NameOf(norm)};
      for (const GlmFamily family : {GlmFamily::kGaussian, GlmFamily::kBernoulli}) {
        const Glm glm = Model(norm, family);
        const double before = form(glm);
        const double ratios[] = {form(scaled(glm, &Glm::x, 2)) / before,
                                 form(scaled(glm, &Glm::x, 4)) / before,
                                 form(scaled(glm, &Glm::weights, 4)) / before};
        for (const double ratio : ratios) row.emplace_back(ratio);
        if (norm == GlmNorm::kLayer || norm == GlmNorm::kBatch) {
          for (const double ratio : ratios) robust = std::max(robust, std::abs(ratio - 1));
        } else {
          if (norm == GlmNorm::kWeight) robust = std::max(robust, std::abs(ratios[2] - 1));
          if (family == GlmFamily::kGaussian) {
            if (norm == GlmNorm::kNone) robust = std::max(robust, std::abs(ratios[2] - 1));
            square = std::max({square, std::abs(ratios[0] / 4 - 1), std::abs(ratios[1] / 16 - 1)});
          }
        }
      }
      scales.rows.push_back(std::move(row));
    }
    result_.tables.push_back(std::move(scales));

    TheoryTable sides{
        .caption =
            "Eq. 32: ds^2 along the gains with BN, exact and as printed, 1/2 d^T E[Cov / "
            "phi^2] d. \"small g\": the ratio with gains of 1/1,000.",
        .head = {"outputs", "exact", "printed", "ratio", "small g"}};
    double independent = 0, gaussian = 0, other = 0;
    for (const GlmFamily family : kGlmFamilies) {
      const Glm glm = Model(GlmNorm::kBatch, family);
      const Glm small = scaled(glm, &Glm::gains, 1e-3);
      const double exact = form(glm), printed = QuadraticForm(MeanCovariance(glm), d) / 2;
      const double of_small = form(small) / (QuadraticForm(MeanCovariance(small), d) / 2);
      sides.rows.push_back({NameOf(family), exact, printed, exact / printed, of_small});
      if (family == GlmFamily::kGaussian) gaussian = std::abs(exact / printed - 1);
      if (family == GlmFamily::kSoftmax) {
        other = of_small;
      } else {
        independent = std::max(independent, std::abs(of_small - 1));
      }
    }
    result_.tables.push_back(std::move(sides));
    // Cov is constant to a part in 1/1,000 with small gains; Poisson's third order adds to it.
    State("Eq. 32", "With BN, ds^2 along the gains is 1/2 d^T E[Cov[y|x] / phi^2] d.",
          Verdict(gaussian <= kMaxRelativeError && independent <= 0.02,
                  TheoryVerdict::kHoldsCorrected),
          fmt::format("needs independent outputs whose variance does not correlate with z_i^2. "
                      "Exact for Gaussian outputs (up to {:.0e}); with gains of 1/1,000, within "
                      "{:.1e} for all independent outputs, but the ratio is {:.3g} for softmax, "
                      "because Cov_ij is multiplied by E[z_i z_j]. With gains near 1 the ratios "
                      "are those of the table",
                      gaussian, independent, other));

    double layer = 0, weight = 0, same = 0;
    for (const GlmFamily family : kGlmFamilies) {
      layer = std::max(layer, PrintedError(Model(GlmNorm::kLayer, family), d));
      Glm glm = Model(GlmNorm::kWeight, family);
      weight = std::max(weight, PrintedError(glm, d));
      // Gains of ||w_i|| make WN the model without a norm.
      for (int64_t i = 0; i < units_; ++i) {
        glm.gains[static_cast<size_t>(i)] = std::sqrt(SquaredLength(WeightVector(glm, i)));
      }
      same = std::max(same, std::abs(form(glm) / form(Model(GlmNorm::kNone, family)) - 1));
    }
    State("Eq. 33", "With LN, ds^2 along the gains has (a_i - mu)(a_j - mu) / sigma^2 inside.",
          Verdict(layer <= kMaxRelativeError),
          fmt::format("largest relative difference {:.1e}", layer));
    State("Eq. 34-35",
          "With WN, ds^2 along the gains has a_i a_j / (||w_i|| ||w_j||) inside, as has ds^2 along "
          "w_i / ||w_i|| without a norm.",
          Verdict(std::max(weight, same) <= kMaxRelativeError),
          fmt::format("largest relative difference {:.1e} of WN, and {:.1e} between both where "
                      "they are the same function (g_i = ||w_i||): Eq. 34 and 35 are the same "
                      "expression",
                      weight, same));
    State("supplement, after Eq. 35",
          "Normalized models are more robust to the scale of the input and the parameters than "
          "the model without a norm, along the gains.",
          Verdict(std::max(robust, square) <= kMaxRelativeError, TheoryVerdict::kHoldsCorrected),
          fmt::format("BN and LN do not depend on the scale of x or W, and WN not on that of W (up "
                      "to {:.0e}). WN depends on the scale of x as the model without a norm does: "
                      "with Gaussian outputs as its square (up to {:.0e}). Without a norm, the "
                      "scale of W matters only through Cov",
                      robust, square));
  }

  // The relative difference of d^T F d / 2 along the gains, by FisherMatrix and by the blocks of
  // Eq. 13, which along the gains are Eq. 33 (LN) and Eq. 34 (WN).
  static double PrintedError(const Glm& glm, const std::vector<double>& d) {
    const std::vector<double> v = AlongGains(glm, d);
    return std::abs(
        QuadraticForm(PrintedFisherMatrix(glm), v) / QuadraticForm(FisherMatrix(glm), v) - 1);
  }

  int64_t units_, inputs_, cases_, largest_, seed_;
  double smallest_layer_ = 0;  // of the differences with LN, by family
  TheoryResult result_;
};

}  // namespace

TheoryAnalysis FisherGeometry() {
  return {.name = "geometry",
          .summary = "Fisher matrices of normalized models (section 5.2 of Ba et al. 2016)",
          .settings = {{"units", "units H of a model", 6, 3, 128},
                       {"largest", "largest H of the table by H", 128, 3, 1024},
                       {"inputs", "inputs of a model", 4, 2, 4096},
                       {"cases", "random cases x", 64, 4, 4096},
                       {"seed", "of the random models", 1, 0, 0x1p53}},
          .measure = [](const AnalysisSettings& settings) { return Geometry(settings).Measure(); }};
}

}  // namespace planish::lab
