#include "lab/theory/invariance_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace planish::lab {
namespace {

constexpr const char* kColumnLabels[] = {"W scale", "W centre", "w_i scale",
                                         "x scale", "x centre", "one case"};

// Returns labels of the columns: "weight matrix re-scaling, dataset re-scaling".
std::string ColumnsWith(const InvariantColumns& invariant, bool value) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < invariant.size(); ++i) {
    if (invariant[i] != value) continue;
    std::string label(LabelOf(kTransformations[i]));
    label[0] = static_cast<char>(std::tolower(label[0]));
    labels.push_back(std::move(label));
  }
  return fmt::to_string(fmt::join(labels, ", "));
}

// Every third of a decade from 1e-6 to 1e3, without d = 1.
TheoryLine EpsLine(const std::string& name, const NormalizedValues& values, double eps) {
  TheoryLine line{.name = name};
  for (int third = -18; third <= 9; ++third) {
    if (third == 0) continue;
    const double d = std::pow(10, third / 3.0), change = ChangeOfScale(values, eps, d);
    if (change > 0) line.points.emplace_back(d, change);
  }
  return line;
}

// What eps does to the normalized values of a layer.
struct EpsEffect {
  double sigma = 0;                 // the smallest
  double measured = 0, closed = 0;  // BreakingScale
  double above = 0;                 // the largest change for d > 1
  double slope = 0, closed_slope = 0;
};

EpsEffect EffectOfEps(const NormalizedValues& values, double eps, double change) {
  EpsEffect effect;
  const std::vector<double> sigmas = DeviationsOf(values);
  effect.sigma = *std::ranges::min_element(sigmas);
  effect.measured = MeasuredBreakingScale(values, eps, change);
  effect.closed = BreakingScale(values.norm, effect.sigma, eps, change);
  effect.above = 1 / SizeWithEps(values.norm, effect.sigma, eps, 1) - 1;
  effect.slope = SlopeOfScale(values, eps);
  effect.closed_slope = ClosedSlopeOfScale(values.norm, effect.sigma, eps);
  return effect;
}

}  // namespace

std::string SourceInBa(const std::string& place) { return "Ba, Kiros & Hinton 2016, " + place; }

InvariantColumns LayerChanges::Invariant() const {
  InvariantColumns invariant{};
  for (size_t i = 0; i < invariant.size(); ++i) invariant[i] = columns[i] <= kInvariant;
  return invariant;
}

LayerChanges ChangesOf(const LayerOutputs& outputs, const LinearLayer& layer,
                       const std::vector<TransformationParameters>& parameters) {
  LayerChanges changes;
  for (size_t i = 0; i < kTransformations.size(); ++i) {
    changes.columns[i] = LargestChange(outputs, layer, kTransformations[i], parameters);
  }
  changes.joint = LargestChange(outputs, layer, Transformation::kWeightMatrixJoint, parameters);
  return changes;
}

std::vector<std::string> ChangeHead(const std::string& first) {
  std::vector<std::string> head = {first};
  head.insert(head.end(), std::begin(kColumnLabels), std::end(kColumnLabels));
  return head;
}

std::vector<TheoryCell> ChangeRow(const std::string& name, const LayerChanges& changes) {
  std::vector<TheoryCell> row = {name};
  for (const double change : changes.columns) row.emplace_back(change);
  return row;
}

void ChangeRange::Add(const LayerChanges& changes, const InvariantColumns& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double change = changes.columns[i];
    has_nan_ |= std::isnan(change);
    if (expected[i]) {
      any_invariant_ = true;
      rounding_ = std::max(rounding_, change);
    } else {
      smallest_ = std::min(smallest_, change);
    }
  }
}

TheoryVerdict ChangeRange::Verdict() const {
  if (has_nan_) return TheoryVerdict::kCannotTell;
  return rounding_ <= kInvariant && smallest_ > kInvariant ? TheoryVerdict::kHolds
                                                           : TheoryVerdict::kFails;
}

std::string ChangeRange::Text() const {
  std::vector<std::string> parts;
  if (any_invariant_) parts.push_back(fmt::format("by {:.1e} at most where invariant", rounding_));
  if (!std::isinf(smallest_)) {
    parts.push_back(fmt::format("by {:.2g} at least {}", smallest_,
                                any_invariant_ ? "elsewhere" : "by each transformation"));
  }
  return fmt::format("outputs change {}", fmt::join(parts, ", and "));
}

std::string LineText(const std::string& label, const InvariantColumns& invariant) {
  std::vector<std::string> parts;
  for (const bool value : {true, false}) {
    const std::string columns = ColumnsWith(invariant, value);
    if (columns.empty()) continue;
    parts.push_back(fmt::format("{}invariant to {}", value ? "" : "not ", columns));
  }
  return fmt::format("{}: {}.", label, fmt::join(parts, "; "));
}

EpsReport::EpsReport(double eps, double change, const std::string& first_head)
    : eps_(eps),
      change_(change),
      table_{.caption = fmt::format(
                 "With eps = {:g}: the scale d of weights or data below which normalized values "
                 "change by more than {:g} of their size, measured and by closed form (sigma^2 d^2 "
                 "against eps). sigma: the smallest deviation. d > 1: the largest change of larger "
                 "scales. slope: d log |xhat| / d log d at d = 1, from the backward pass, and by "
                 "closed form.",
                 eps, change),
             .head = {first_head, "sigma", "d", "closed form", "d > 1", "slope", "closed form"}},
      chart_{.heading = fmt::format("Change of normalized values with eps = {:g}", eps),
             .x_label = "scale d of weights or data",
             .y_label = "relative change",
             .log_x = true,
             .log_y = true} {}

void EpsReport::Add(const std::string& name, const NormalizedValues& values) {
  const EpsEffect effect = EffectOfEps(values, eps_, change_);
  // NaN: the norm's backward is not the derivative of its forward.
  const TheoryCell slope = std::isnan(effect.slope) ? TheoryCell("-") : TheoryCell(effect.slope);
  table_.rows.push_back({name, effect.sigma, effect.measured, effect.closed, effect.above, slope,
                         effect.closed_slope});
  chart_.lines.push_back(EpsLine(name, values, eps_));
  if (eps_ > 0) error_ = std::max(error_, std::abs(effect.measured / effect.closed - 1));
  has_coded_ |= values.norm == "ada-as-coded";
  scales_.push_back(fmt::format("{} {:.2g}", name, effect.measured));
}

void EpsReport::MoveTo(TheoryResult& result) {
  if (scales_.empty()) return;
  result.tables.push_back(std::move(table_));
  result.charts.push_back(std::move(chart_));
  result.statements.push_back(
      {.source = SourceInBa("Table 1; the paper has no eps"),
       .text = "The invariances to re-scaling are exact.",
       .verdict = eps_ == 0 ? TheoryVerdict::kHolds : TheoryVerdict::kHoldsCorrected,
       .measured =
           eps_ == 0
               ? "with eps = 0"
               : fmt::format("only with eps = 0. With eps = {:g} values are smaller by the factor "
                             "1 / sqrt(1 + eps / (d sigma)^2){}: scales below d change them by "
                             "more than {:g}, with d: {} (closed form: within {:.0e})",
                             eps_, has_coded_ ? ", of ada-as-coded 1 / (1 + eps / (d sigma))" : "",
                             change_, fmt::join(scales_, ", "), error_)});
}

}  // namespace planish::lab
