#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "lab/base/random.h"
#include "lab/theory/analyses.h"
#include "lab/theory/rows.h"

// Theorem 2 of Xu et al. 2019, that phi(y) = C (1 - k y) is the only function with the properties
// that AdaNorm requires, and the inequality of its Eq. 7. docs/math.md has the proofs.
namespace planish::lab {
namespace {

// A function phi that multiplies y, in units of C.
struct Candidate {
  std::string name;
  double (*phi)(double y, double k);
  std::string violates;  // in words; empty: nothing for all H
};

// The factor of y^2 - 1, and of y^3, in the candidates.
constexpr double kOther = 0.1;

const std::vector<Candidate>& Candidates() {
  static const std::vector<Candidate> all = {
      {"1 - k y", [](double y, double k) { return 1 - k * y; }, ""},
      {"1 - k y + c (y^2 - 1)", [](double y, double k) { return 1 - k * y + kOther * (y * y - 1); },
       "bound"},
      {"1 - tanh(k y)", [](double y, double k) { return 1 - std::tanh(k * y); }, "mean"},
      {"exp(-k y)", [](double y, double k) { return std::exp(-k * y); }, "mean"},
      {"1 - k y + c y^3", [](double y, double k) { return 1 - k * y + kOther * y * y * y; },
       "mean, bound"},
  };
  return all;
}

// Means of phi(y) and phi(y) y over a row.
struct Means {
  double phi = 0, product = 0;
};

Means MeansOf(const Candidate& candidate, double k, std::span<const double> y) {
  Means means;
  for (const double value : y) {
    const double phi = candidate.phi(value, k);
    means.phi += phi;
    means.product += phi * value;
  }
  const auto n = static_cast<double>(y.size());
  return {means.phi / n, means.product / n};
}

// Calls f(y) for `rows` normalized rows of each kind; spikes need one of each sign.
template <class F>
void ForEachRow(int64_t rows, int64_t width, int64_t seed, const F& f) {
  std::vector<double> y(static_cast<size_t>(width));
  for (const RowKind kind : kRowKinds) {
    std::mt19937_64 random(MixedSeed({seed, width, static_cast<int64_t>(kind)}));
    for (int64_t r = 0; r < rows; ++r) {
      DrawRow(kind, random, y);
      if (MomentsOf(y).variance == 0) continue;
      NormalizeRow(y);
      f(kind, y);
    }
  }
  for (const double sign : {1.0, -1.0}) {
    std::fill(y.begin(), y.end(), 0);
    y[0] = sign;
    NormalizeRow(y);
    f(RowKind::kSpike, y);
  }
}

struct Extremes {
  double mean_error = 0;  // the largest |mean(phi(y)) - 1|
  double bound = 0;       // the largest |mean(phi(y) y)|
};

TheoryResult MeasureAdaNorm(const AnalysisSettings& settings) {
  const double k = settings.Number("k");
  const int64_t elements = settings.Whole("elements"), seed = settings.Whole("seed");
  const std::vector<int64_t> widths = {4, 16, 64, 256, 1024, 4096};
  TheoryResult result;

  // Conditions of Theorem 2.
  std::vector<std::vector<Extremes>> found(Candidates().size());
  for (size_t i = 0; i < Candidates().size(); ++i) {
    for (const int64_t width : widths) {
      Extremes extremes;
      ForEachRow(std::max<int64_t>(1, elements / width), width, seed,
                 [&](RowKind, std::span<const double> y) {
                   const Means means = MeansOf(Candidates()[i], k, y);
                   extremes.mean_error = std::max(extremes.mean_error, std::abs(means.phi - 1));
                   extremes.bound = std::max(extremes.bound, std::abs(means.product));
                 });
      found[i].push_back(extremes);
    }
  }
  TheoryTable table{
      .caption = fmt::format("Functions phi(y) / C, k = {:g}, c = {:g}: the largest "
                             "|mean(phi(y)) / C - 1| over normalized rows of H elements, and the "
                             "largest |mean(phi(y) y)| / C, by H. \"violates\" names what "
                             "fails: the mean, or a bound for all H.",
                             k, kOther),
      .head = {"phi(y) / C", "mean - 1", "H = 4", "64", "4,096", "violates"}};
  TheoryChart chart{.heading = "The largest mean of phi(y) y",
                    .x_label = "H",
                    .y_label = "|mean(phi(y) y)| / C",
                    .log_x = true,
                    .log_y = true};
  for (size_t i = 0; i < Candidates().size(); ++i) {
    double mean_error = 0;
    TheoryLine line{.name = Candidates()[i].name};
    for (size_t w = 0; w < widths.size(); ++w) {
      mean_error = std::max(mean_error, found[i][w].mean_error);
      line.points.emplace_back(static_cast<double>(widths[w]), found[i][w].bound);
    }
    table.rows.push_back({Candidates()[i].name, mean_error, found[i][0].bound, found[i][2].bound,
                          found[i][5].bound,
                          Candidates()[i].violates.empty() ? "-" : Candidates()[i].violates});
    chart.lines.push_back(std::move(line));
  }
  result.tables.push_back(std::move(table));
  result.charts.push_back(std::move(chart));

  // Exact values: means of 4,096 terms, of up to 64 cubed times kOther, round by less than this.
  constexpr double kRounding = 1e-9;
  const auto largest_mean = [&](size_t i) {
    double largest = 0;
    for (const Extremes& extremes : found[i]) largest = std::max(largest, extremes.mean_error);
    return largest;
  };
  double linear_error = 0, quadratic_error = 0;
  for (size_t w = 0; w < widths.size(); ++w) {
    const auto h = static_cast<double>(widths[w]);
    linear_error = std::max(linear_error, std::abs(found[0][w].bound - k));
    // The skewness of a row is at most (H - 2) / sqrt(H - 1), that of one spike.
    const double skewness = (h - 2) / std::sqrt(h - 1);
    quadratic_error =
        std::max(quadratic_error, std::abs(found[1][w].bound / (k + kOther * skewness) - 1));
  }
  const bool linear = largest_mean(0) <= kRounding && linear_error <= kRounding;
  result.statements.push_back(
      {.source = "Xu et al. 2019, Theorem 2",
       .text = "phi(y) = C (1 - k y) has the mean C over every normalized row, and the mean of "
               "phi(y) y is bounded.",
       .verdict = linear ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
       .measured = fmt::format("the mean differs from C by {:.1e} C at most; the mean of phi(y) y "
                               "is -C k for every row, up to {:.1e} C",
                               largest_mean(0), linear_error)});
  const double growth = std::log(found[1][5].bound / found[1][4].bound) / std::log(4.0);
  const bool other = largest_mean(1) <= kRounding && quadratic_error <= kRounding;
  result.statements.push_back(
      {.source = "Xu et al. 2019, Theorem 2",
       .text = "It is the only differentiable function with these properties.",
       .verdict = other ? TheoryVerdict::kHoldsCorrected : TheoryVerdict::kCannotTell,
       .measured = fmt::format(
           "with rows of H elements, C (1 - k y) + c (y^2 - 1) has the mean C, too (up to {:.1e} "
           "C), and the mean of its phi(y) y is at most k C + c (H - 2) / sqrt(H - 1) in size (up "
           "to {:.1e} of it). So the statement needs one bound for all H; this one grows like "
           "H^{:.2f}",
           largest_mean(1), quadratic_error, growth)});

  // Eq. 7.
  TheoryTable shares{.caption = fmt::format("Share of elements with |y| > 1/k, in % (k = {:g}; Eq. "
                                            "7 bounds it by {:.3g}%), and the largest |y|.",
                                            k, 100 * k * k),
                     .head = {"rows", "H = 64", "H = 1,024", "H = 4,096", "largest |y|"}};
  double largest_share = 0, largest_excess = 0;
  for (const RowKind kind : kRowKinds) {
    std::vector<TheoryCell> row = {NameOf(kind)};
    double largest = 0;
    for (const int64_t width : {64, 1024, 4096}) {
      int64_t beyond = 0, all = 0;
      ForEachRow(std::max<int64_t>(1, elements / width), width, seed,
                 [&](RowKind of, std::span<const double> y) {
                   if (of != kind) return;
                   all += width;
                   for (const double value : y) {
                     if (std::abs(value) > 1 / k) ++beyond;
                     largest = std::max(largest, std::abs(value));
                     largest_excess =
                         std::max(largest_excess,
                                  std::abs(value) / std::sqrt(static_cast<double>(width - 1)));
                   }
                 });
      const double share = static_cast<double>(beyond) / static_cast<double>(all);
      largest_share = std::max(largest_share, share);
      row.emplace_back(100 * share);
    }
    row.emplace_back(largest);
    shares.rows.push_back(std::move(row));
  }
  result.tables.push_back(std::move(shares));
  result.statements.push_back(
      {.source = "Xu et al. 2019, Eq. 7",
       .text = "The share of elements with |y| < 1/k is at least 1 - k^2.",
       .verdict = largest_share <= k * k ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
       .measured = fmt::format("the largest share beyond is {:.3g}%, the bound {:.3g}%",
                               100 * largest_share, 100 * k * k)});
  result.statements.push_back(
      {.source = "Xu et al. 2019, section 4.1; docs/math.md",
       .text = fmt::format("AdaNorm's factor 1 - k y can be negative only in rows of more than "
                           "{:.6g} elements, because |y| is at most sqrt(H - 1).",
                           1 + 1 / (k * k)),
       .verdict = largest_excess <= 1 + kRounding ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
       .measured = fmt::format("the largest |y| / sqrt(H - 1) is {:.6g}", largest_excess)});
  return result;
}

}  // namespace

TheoryAnalysis AdaNormTheory() {
  return {.name = "theorem2",
          .summary = "Which functions AdaNorm can use (Theorem 2 and Eq. 7 of Xu et al. 2019)",
          .settings = {{"k", "of AdaNorm", 0.1, 1e-3, 10, false},
                       {"elements", "random elements of each kind and length of rows", 2e5, 1, 1e9},
                       {"seed", "of the random rows", 1, 0, 0x1p53}},
          .measure = MeasureAdaNorm};
}

}  // namespace planish::lab
