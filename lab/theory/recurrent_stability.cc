#include "lab/theory/recurrent_stability.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/base/random.h"
#include "lab/theory/analyses.h"
#include "lab/theory/rows.h"
#include "src/rnn/cell.h"

// Section 3.1 of Ba, Kiros & Hinton 2016: whether summed inputs and gradients of recurrent layers
// grow or shrink at every step, for random weights. docs/math.md has the recursions.
namespace planish::lab {
namespace {

constexpr std::array<double, 3> kScales = {0.5, 1, 2};

// Smaller than the last bit of any variance here, but prevents 0/0 for inputs of zeros.
constexpr double kEps = 1e-30;

// Scaling by powers of two rounds nothing. This allows for eps and for other kernels.
constexpr double kInvariance = 1e-9;

struct CellRow {
  const char* name;
  Cell cell;
};

constexpr CellRow kCells[] = {
    {"RNN", Cell::kRnn},        {"LN-RNN", Cell::kLnRnn},      {"BN-RNN", Cell::kBnRnn},
    {"relu", Cell::kRnnRelu},   {"LN-relu", Cell::kLnRnnRelu}, {"LSTM", Cell::kLstm},
    {"LN-LSTM", Cell::kLnLstm}, {"BN-LSTM", Cell::kBnLstm},    {"GRU", Cell::kGru},
    {"LN-GRU", Cell::kLnGru},   {"BN-GRU", Cell::kBnGru},
};
constexpr size_t kCellCount = std::size(kCells);

// A cell without and with layer normalization, by index in kCells.
struct Pair {
  size_t plain, normalized;
  const char* text;  // in statements
};
constexpr Pair kPairs[] = {{0, 1, "RNN"}, {3, 4, "RNN with relu"}, {5, 6, "LSTM"}, {8, 9, "GRU"}};

enum Drive : size_t { kEveryStep, kFirstStep, kDriveCount };
constexpr const char* kDriveNames[] = {"inputs at every step", "an input at the first step only"};
constexpr const char* kShortNames[] = {"every", "first"};

// Random weights, inputs and gradient of a seed, for cells with the same number of gates.
class Sample {
 public:
  Sample(const AnalysisSettings& settings, Cell cell, int64_t index)
      : shape_{.time = settings.Whole("steps"),
               .batch = settings.Whole("sequences"),
               .inputs = settings.Whole("units"),
               .hidden = settings.Whole("units")} {
    std::mt19937_64 random(MixedSeed({settings.Whole("seed"), index}));
    const int64_t h = shape_.hidden, gates = internal::RecipeOf(cell).gates();
    const auto normal = [&](int64_t count, double deviation) {
      std::vector<double> values(static_cast<size_t>(count));
      DrawRow(RowKind::kNormal, random, values);
      for (double& value : values) value *= deviation;
      return values;
    };
    dh_n_ = normal(shape_.batch * h, 1);
    x_[kEveryStep] = normal(shape_.time * shape_.batch * h, settings.Number("input"));
    x_[kFirstStep] = x_[kEveryStep];
    std::fill(x_[kFirstStep].begin() + shape_.batch * h, x_[kFirstStep].end(), 0);
    const double deviation = 1 / std::sqrt(static_cast<double>(h));
    w_hh_ = normal(gates * h * h, deviation);
    w_ih_ = normal(gates * h * h, deviation);
    gain_.assign(static_cast<size_t>(gates * h), settings.Number("gain"));
  }

  // Runs a cell with scaled weights.
  Dynamics Run(const CellRow& row, Drive drive, double scale_hh, double scale_ih) const {
    const auto scaled = [](std::vector<double> values, double scale) {
      for (double& value : values) value *= scale;
      return values;
    };
    const std::vector<double> w_hh = scaled(w_hh_, scale_hh), w_ih = scaled(w_ih_, scale_ih);
    RnnParams<const double> params{.weight_ih = w_ih.data(), .weight_hh = w_hh.data()};
    const internal::Sums normalized = internal::RecipeOf(row.cell).sums;
    if (normalized == internal::Sums::kJoint) params.ln_weight = gain_.data();
    if (normalized == internal::Sums::kSeparate) {
      params.ln_ih_weight = params.ln_hh_weight = gain_.data();
    }
    return MeasureDynamics({.cell = row.cell,
                            .shape = shape_,
                            .x = x_[drive].data(),
                            .params = params,
                            .dh_n = dh_n_.data(),
                            .eps = kEps});
  }

 private:
  RnnShape shape_;
  std::array<std::vector<double>, kDriveCount> x_;
  std::vector<double> dh_n_, w_hh_, w_ih_, gain_;
};

// All that is measured: growths[drive][cell][scale][quantity].
using ByScale = std::array<std::array<Growth, kQuantityCount>, kScales.size()>;
using Growths = std::array<std::array<ByScale, kCellCount>, kDriveCount>;

Growths MeasureGrowths(const AnalysisSettings& settings) {
  Growths growths;
  for (int64_t seed = 0; seed < settings.Whole("seeds"); ++seed) {
    for (size_t i = 0; i < kCellCount; ++i) {
      settings.ShowProgress(
          fmt::format("seed {} of {}, {}", seed + 1, settings.Whole("seeds"), kCells[i].name));
      const Sample sample(settings, kCells[i].cell, seed);
      for (const Drive drive : {kEveryStep, kFirstStep}) {
        for (size_t s = 0; s < kScales.size(); ++s) {
          AddDynamics(sample.Run(kCells[i], drive, kScales[s], kScales[s]), seed,
                      growths[drive][i][s]);
        }
      }
    }
  }
  return growths;
}

std::vector<std::string> ScaleHead(const std::string& first) {
  std::vector<std::string> head = {first};
  for (const double scale : kScales) {
    head.push_back(fmt::format("{:g}", scale));
    head.emplace_back("±");
  }
  return head;
}

void AddRates(const Growths& growths, const AnalysisSettings& settings, TheoryResult& result) {
  for (const Drive drive : {kEveryStep, kFirstStep}) {
    for (const Quantity quantity : {kSummed, kGradient}) {
      const bool sums = quantity == kSummed;
      TheoryTable table{.caption = fmt::format(
                            "Growth rate of the {} per step {}, {}, by the scale s of the "
                            "weights (variance s^2 / {}): the slope of log size, with 95% "
                            "intervals over {} seeds. Statements call these inputs \"{}\".",
                            sums ? "summed inputs W_hh h + W_xh x" : "gradients dL/dh_t",
                            sums ? "in time" : "back in time", kDriveNames[drive],
                            settings.Whole("units"), settings.Whole("seeds"), kShortNames[drive]),
                        .head = ScaleHead("cell")};
      for (size_t i = 0; i < kCellCount; ++i) {
        std::vector<TheoryCell>& row = table.rows.emplace_back();
        row.emplace_back(kCells[i].name);
        for (const auto& growth : growths[drive][i]) {
          AddEstimate(EstimateMean(growth[quantity].rates), row);
        }
      }
      result.tables.push_back(std::move(table));

      for (size_t s = 0; s < kScales.size(); ++s) {
        TheoryChart chart =
            SizeChart(quantity, fmt::format("{}, scale {:g}", kDriveNames[drive], kScales[s]));
        for (size_t i = 0; i < kCellCount; ++i) {
          chart.lines.push_back(LineOf(growths[drive][i][s][quantity], quantity, kCells[i].name));
        }
        result.charts.push_back(std::move(chart));
      }
    }
  }
}

// Cells, inputs and scales in words: "RNN every 0.5/1, RNN first 2".
class Cases {
 public:
  void Add(size_t cell, Drive drive, size_t scale) {
    const std::string name = fmt::format("{} {}", kCells[cell].name, kShortNames[drive]);
    if (name == last_) {
      text_ += fmt::format("/{:g}", kScales[scale]);
    } else {
      text_ += fmt::format("{}{} {:g}", text_.empty() ? "" : ", ", name, kScales[scale]);
    }
    last_ = name;
    ++count_;
  }

  int count() const { return count_; }
  const std::string& text() const { return text_; }

 private:
  int count_ = 0;
  std::string text_, last_;
};

// Returns cases under names, without empty ones: "grow: RNN every 2; steady: RNN first 1".
std::string TextOf(std::initializer_list<std::pair<const char*, const Cases&>> lists) {
  std::string text;
  for (const auto& [name, cases] : lists) {
    if (cases.count() == 0) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, cases.text());
  }
  return text;
}

// Cases by trend.
struct Trends {
  std::array<Cases, kTrendCount> cases;

  int steady() const { return cases[kSteady].count(); }
  int moving() const { return cases[kGrows].count() + cases[kShrinks].count(); }
  int all() const { return moving() + steady() + cases[kUnclear].count(); }
  std::string Text(Quantity quantity) const {
    const bool sums = quantity == kSummed;
    return TextOf({{sums ? "grow" : "explode", cases[kGrows]},
                   {sums ? "shrink" : "vanish", cases[kShrinks]},
                   {"steady", cases[kSteady]},
                   {"cannot tell", cases[kUnclear]}});
  }
};

Trends TrendsOf(const Growths& growths, std::initializer_list<size_t> cells, Quantity quantity) {
  Trends trends;
  for (const size_t i : cells) {
    for (const Drive drive : {kEveryStep, kFirstStep}) {
      for (size_t s = 0; s < kScales.size(); ++s) {
        trends.cases[TrendOf(growths[drive][i][s][quantity])].Add(i, drive, s);
      }
    }
  }
  return trends;
}

void StateTrends(const Growths& growths, TheoryResult& result) {
  const auto add = [&](std::string text, TheoryVerdict verdict, std::string measured) {
    result.statements.push_back({.source = kStabilitySource,
                                 .text = std::move(text),
                                 .verdict = verdict,
                                 .measured = std::move(measured)});
  };
  const Trends sums = TrendsOf(growths, {0, 3}, kSummed);
  add("In a standard RNN, the summed inputs grow or shrink at every step.",
      VerdictOf(sums.moving(), sums.steady(), sums.all()), sums.Text(kSummed));
  const Trends gradients = TrendsOf(growths, {0, 3}, kGradient);
  add("In a standard RNN, gradients explode or vanish.",
      VerdictOf(gradients.moving(), gradients.steady(), gradients.all()),
      gradients.Text(kGradient));

  // Cases where the sums clearly grow or shrink, and what the gradients do there.
  int same = 0, different = 0, cases = 0, still = 0;
  for (const size_t i : {size_t{0}, size_t{3}}) {
    for (const Drive drive : {kEveryStep, kFirstStep}) {
      for (const auto& growth : growths[drive][i]) {
        const Trend of_sums = TrendOf(growth[kSummed]), of_gradients = TrendOf(growth[kGradient]);
        if (of_sums == kSteady && (of_gradients == kGrows || of_gradients == kShrinks)) {
          ++still;
        }
        if (of_sums != kGrows && of_sums != kShrinks) continue;
        ++cases;
        if (of_gradients == kUnclear) continue;
        ++(of_gradients == of_sums ? same : different);
      }
    }
  }
  add("Growth of the summed inputs of a standard RNN leads to exploding gradients, and their "
      "shrinking to vanishing gradients.",
      cases == 0 ? TheoryVerdict::kCannotTell : VerdictOf(same, different, cases),
      fmt::format("where the sums grow or shrink, the gradients do so, too, in {} of {} cases, and "
                  "do something else in {}. Gradients explode or vanish in {} cases with steady "
                  "sums",
                  same, cases, different, still));

  const Trends ln_sums = TrendsOf(growths, {1, 4}, kSummed);
  add("In a layer-normalized RNN, the summed inputs neither grow nor shrink.",
      VerdictOf(ln_sums.steady(), ln_sums.moving(), ln_sums.all()), ln_sums.Text(kSummed));
  const Trends ln_gradients = TrendsOf(growths, {1, 4}, kGradient);
  add("In a layer-normalized RNN, gradients neither explode nor vanish (implied, not stated).",
      VerdictOf(ln_gradients.steady(), ln_gradients.moving(), ln_gradients.all()),
      ln_gradients.Text(kGradient));
}

// The largest difference of two lists of vectors, relative to the size of each vector.
double LargestDifference(const std::vector<double>& a, const std::vector<double>& b, size_t width) {
  double largest = 0;
  for (size_t begin = 0; begin < a.size(); begin += width) {
    double squares = 0, difference = 0;
    for (size_t i = begin; i < begin + width; ++i) {
      squares += b[i] * b[i];
      difference = std::max(difference, std::abs(a[i] - b[i]));
    }
    if (squares > 0) {
      largest = std::max(largest, difference / std::sqrt(squares / static_cast<double>(width)));
    }
  }
  return largest;
}

void StateInvariance(const AnalysisSettings& settings, TheoryResult& result) {
  TheoryTable table{
      .caption =
          "The largest change when the weights are scaled by 0.5 or 2, inputs at every "
          "step: of the summed inputs over the scale, of hidden states and of gradients, "
          "relative to their sizes. \"W_hh only\": of hidden states when only W_hh is "
          "doubled.",
      .head = {"cell", "summed inputs", "states", "gradients", "W_hh only"}};
  const auto width = static_cast<size_t>(settings.Whole("sequences") * settings.Whole("units"));
  double of_rnn = 0;
  std::vector<std::string> only_hh;
  for (const CellRow& row : kCells) {
    const Sample sample(settings, row.cell, 0);
    const Dynamics base = sample.Run(row, kEveryStep, 1, 1);
    double summed = 0, states = 0, gradients = 0;
    for (const double scale : {0.5, 2.0}) {
      const Dynamics scaled = sample.Run(row, kEveryStep, scale, scale);
      for (size_t t = 0; t < base.summed_size.size(); ++t) {
        summed =
            std::max(summed, std::abs(scaled.summed_size[t] / (scale * base.summed_size[t]) - 1));
      }
      states = std::max(states, LargestDifference(scaled.h, base.h, width));
      gradients = std::max(gradients, LargestDifference(scaled.dh, base.dh, width));
    }
    const Dynamics only = sample.Run(row, kEveryStep, 2, 1);
    const double by_hh = LargestDifference(only.h, base.h, width);
    table.rows.push_back({row.name, summed, states, gradients, by_hh});
    if (internal::RecipeOf(row.cell).sums != internal::Sums::kPlain) {
      only_hh.push_back(fmt::format("{} {:.2g}", row.name, by_hh));
    }
    if (row.cell == Cell::kLnRnn || row.cell == Cell::kLnRnnRelu) {
      of_rnn = std::max({of_rnn, summed, states, gradients});
    }
  }
  result.tables.push_back(std::move(table));
  result.statements.push_back(
      {.source = kStabilitySource,
       .text = "A layer-normalized RNN is invariant to re-scaling all of the summed inputs to a "
               "layer.",
       .verdict = of_rnn <= kInvariance ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
       .measured = fmt::format("with all weights scaled by 0.5 and 2, hidden states and gradients "
                               "change by {:.2g} of their size at most; with only W_hh doubled, "
                               "hidden states change by: {}",
                               of_rnn, fmt::join(only_hh, ", "))});
}

void StateStability(const Growths& growths, TheoryResult& result) {
  TheoryTable table{.caption =
                        "|growth rate of dL/dh_t| with LN minus without, paired by seed, by "
                        "the scale of the weights, with 95% intervals. Negative: more "
                        "stable with LN. \"every\": inputs at every step, \"first\": at the "
                        "first step only.",
                    .head = ScaleHead("cell, inputs")};
  for (const Pair& pair : kPairs) {
    Cases smaller, larger, unclear;
    for (const Drive drive : {kEveryStep, kFirstStep}) {
      std::vector<TheoryCell>& row = table.rows.emplace_back();
      row.emplace_back(fmt::format("{} {}", kCells[pair.plain].name, kShortNames[drive]));
      for (size_t s = 0; s < kScales.size(); ++s) {
        const Estimate difference =
            PairedDifference(Magnitudes(growths[drive][pair.normalized][s][kGradient].rates),
                             Magnitudes(growths[drive][pair.plain][s][kGradient].rates));
        AddEstimate(difference, row);
        const int sign = SureSign(difference);
        (sign < 0 ? smaller : sign > 0 ? larger : unclear).Add(pair.plain, drive, s);
      }
    }
    const int all = smaller.count() + larger.count() + unclear.count();
    result.statements.push_back(
        {.source = kStabilitySource,
         .text = fmt::format("Layer normalization makes the hidden-to-hidden dynamics of the {} "
                             "more stable.",
                             pair.text),
         .verdict = VerdictOf(smaller.count(), larger.count(), all),
         .measured = fmt::format(
             "size of the gradients' growth rate with {}: {}", kCells[pair.normalized].name,
             TextOf({{"smaller", smaller}, {"larger", larger}, {"cannot tell", unclear}}))});
  }
  result.tables.push_back(std::move(table));
}

TheoryResult MeasureStability(const AnalysisSettings& settings) {
  if (settings.input().runs.size() > 1) return MeasurePairedStability(settings);
  if (settings.has_run()) return MeasureRunStability(settings);
  TheoryResult result;
  const Growths growths = MeasureGrowths(settings);
  AddRates(growths, settings, result);
  StateTrends(growths, result);
  StateInvariance(settings, result);
  StateStability(growths, result);
  return result;
}

}  // namespace

TheoryAnalysis RecurrentStability() {
  constexpr SettingUse kRandom = SettingUse::kRandomData, kRun = SettingUse::kRun;
  return {.name = "stability",
          .summary = "Summed inputs and gradients of RNNs over time (Ba et al. 2016, section 3.1)",
          .settings = {{"units", "hidden units, and inputs", 64, 4, 256, true, kRandom},
                       {"steps", "of a sequence", 100, 8, 1000},
                       {"sequences", "in a batch", 8, 4, 64},
                       {"seeds", "random weights and inputs", 10, 2, 100, true, kRandom},
                       {"input", "root mean square of the inputs", 1, 1e-3, 1e3, false, kRandom},
                       {"gain", "of the norms of the preactivations", 1, 0.01, 10, false, kRandom},
                       {"groups", "with RUN: batches of sequences", 10, 2, 100, true, kRun},
                       {"layer", "with RUN: recurrent layer, from 1", 1, 1, 64, true, kRun},
                       {"seed", "of the random numbers", 1, 0, 0x1p53}},
          .files = AnalysisFiles::kRuns,
          .measure = MeasureStability};
}

}  // namespace planish::lab
