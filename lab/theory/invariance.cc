#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "lab/base/norm_name.h"
#include "lab/theory/analyses.h"
#include "lab/theory/invariance_parts.h"

// Section 5.1 and Table 1 of Ba, Kiros & Hinton 2016, for all norms of the lab and all recurrent
// cells, on random data or the layers of a trained run.
namespace planish::lab {
namespace {

// Measures random layers.
class RandomInvariance {
 public:
  explicit RandomInvariance(const AnalysisSettings& settings)
      : settings_(settings),
        seed_(settings.Whole("seed")),
        layer_(RandomLinearLayer(settings.Whole("cases"), settings.Whole("inputs"),
                                 settings.Whole("units"), static_cast<uint64_t>(seed_))),
        parameters_(RandomTransformationParameters(layer_, static_cast<uint64_t>(seed_ + 1))) {}

  TheoryResult Measure() {
    MeasureLayers();
    MeasureNormalizedInputs();
    StateShifts();
    MeasureEps();
    MeasureOnline();
    AddRecurrentInvariance(settings_,
                           {.time = settings_.Whole("steps"),
                            .batch = settings_.Whole("sequences"),
                            .inputs = layer_.inputs,
                            .hidden = layer_.units},
                           result_);
    return std::move(result_);
  }

 private:
  LayerChanges ChangesOfNorm(const std::string& norm) const {
    return ChangesOf([&](const LinearLayer& of) { return NormalizedOutputs(norm, of); }, layer_,
                     parameters_);
  }
  LayerChanges ChangesOfInputs(const std::string& norm) const {
    return ChangesOf([&](const LinearLayer& of) { return OutputsOfNormalizedInputs(norm, of); },
                     layer_, parameters_);
  }

  void State(const std::string& place, std::string text, TheoryVerdict verdict,
             std::string measured) {
    result_.statements.push_back({.source = SourceInBa(place),
                                  .text = std::move(text),
                                  .verdict = verdict,
                                  .measured = std::move(measured)});
  }

  // Table 1.
  void MeasureLayers() {
    TheoryTable table{
        .caption = fmt::format(
            "Table 1 for all norms, with eps = 0: the largest change of the outputs of a linear "
            "layer, relative to the largest output. {} inputs, {} units, {} cases, d = 2, 1/2, 3. "
            "At most {:g}: invariant. {}",
            layer_.inputs, layer_.units, layer_.cases, kInvariant, kColumnsText),
        .head = ChangeHead("norm")};
    TheoryTable joint{
        .caption =
            "Eq. 6, W -> d W + 1 gamma^T: the largest change of the outputs, with the norm "
            "of the sums W x, and with the norm of the inputs x instead.",
        .head = {"norm", "of the sums", "of the inputs"}};
    for (const std::string& norm : settings_.List("norm")) {
      const LayerChanges changes = ChangesOfNorm(norm);
      table.rows.push_back(ChangeRow(norm, changes));
      std::vector<TheoryCell>& row = joint.rows.emplace_back();
      row = {norm, changes.joint};
      if (norm == "weight") {
        row.emplace_back("-");
      } else {
        row.emplace_back(ChangesOfInputs(norm).joint);
      }
    }
    result_.tables.push_back(std::move(table));
    result_.tables.push_back(std::move(joint));

    std::vector<std::string> data;
    bool all = true, any = false;
    for (const PaperInvariances::Line& line : FindPaper("ba2016").invariances->lines) {
      const LayerChanges changes = ChangesOfNorm(line.norm);
      ChangeRange range;
      range.Add(changes, line.invariant);
      State("Table 1", LineText(line.label, line.invariant), range.Verdict(), range.Text());
      const double change = changes.Of(Transformation::kDataScale);
      data.push_back(fmt::format("{} {:.2g}", line.label, change));
      any |= change <= kInvariant;
      all &= change <= kInvariant;
    }
    State("section 5.1", "All the normalization methods are invariant to re-scaling the dataset.",
          all   ? TheoryVerdict::kHolds
          : any ? TheoryVerdict::kHoldsInPart
                : TheoryVerdict::kFails,
          fmt::format("outputs change by: {}. Table 1 contradicts the text for weight norm, and is "
                      "right: the length of a unit's weights does not depend on the data",
                      fmt::join(data, ", ")));
    const double eq6 = ChangesOfNorm("layer").joint;
    State("Eq. 6",
          "Layer norm is invariant to W -> d W + 1 gamma^T, re-scaling and re-centering together.",
          eq6 <= kInvariant ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
          fmt::format("outputs change by {:.1e}; with batch norm by {:.2g}, with weight norm by "
                      "{:.2g}",
                      eq6, ChangesOfNorm("batch").joint, ChangesOfNorm("weight").joint));
  }

  // The norm applied to the inputs.
  void MeasureNormalizedInputs() {
    TheoryTable table{
        .caption =
            "The same if the norm is applied to the inputs x before the weights, not to the "
            "sums W x. Weight norm has no values to normalize.",
        .head = ChangeHead("norm")};
    for (const std::string& norm : settings_.List("norm")) {
      if (norm == "weight") continue;
      table.rows.push_back(ChangeRow(norm, ChangesOfInputs(norm)));
    }
    if (!table.rows.empty()) result_.tables.push_back(std::move(table));
    double least = std::numeric_limits<double>::infinity();
    for (const char* norm : {"layer", "batch"}) {
      const LayerChanges changes = ChangesOfInputs(norm);
      for (const Transformation of :
           {Transformation::kWeightMatrixScale, Transformation::kWeightMatrixCentre,
            Transformation::kWeightVectorScale}) {
        least = std::min(least, changes.Of(of));
      }
    }
    const LayerChanges layer = ChangesOfInputs("layer");
    State("section 5.1, after Eq. 6",
          "If the norm is only applied to the input before the weights, the model is not invariant "
          "to re-scaling and re-centering of the weights.",
          least > kInvariant ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
          fmt::format("outputs change by {:.2g} at least, with layer and with batch norm. The "
                      "invariances to the data remain: with layer norm, re-scaling them changes "
                      "outputs by {:.1e}",
                      least, layer.Of(Transformation::kDataScale)));
  }

  // Section 7: shifts of a case.
  void StateShifts() {
    const std::vector<double> sums = SumsOf("layer", layer_);
    const std::vector<double> plain = NormalizedSums("layer", layer_, sums);
    std::vector<double> shifted = sums;
    for (size_t i = 0; i < shifted.size(); ++i) {
      const size_t row = i / static_cast<size_t>(layer_.units);
      shifted[i] += 1 + static_cast<double>(row % 3);
    }
    shifted = NormalizedSums("layer", layer_, std::move(shifted));
    double change = 0, largest = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      change = std::max(change, std::abs(shifted[i] - plain[i]));
      largest = std::max(largest, std::abs(plain[i]));
    }
    change /= largest;
    const LayerChanges layer = ChangesOfNorm("layer");
    const double scale = layer.Of(Transformation::kCaseScale);
    const double features = layer.Of(Transformation::kDataCentre);
    State("section 7", "Layer norm is invariant to per training-case feature shifting and scaling.",
          std::max(scale, change) > kInvariant ? TheoryVerdict::kFails
          : features <= kInvariant             ? TheoryVerdict::kHolds
                                               : TheoryVerdict::kHoldsInPart,
          fmt::format("to scaling (outputs change by {:.1e}), and to a shift of the summed inputs "
                      "of a case by one value ({:.1e}). Not to a shift of its features ({:.2g}), "
                      "which the weights turn into different shifts of the sums",
                      scale, change, features));
  }

  void MeasureEps() {
    EpsReport report(settings_.Number("eps"), settings_.Number("change"), "norm");
    for (const std::string& norm : settings_.List("norm")) {
      if (!HasEps(norm)) continue;
      report.Add(
          norm,
          {.norm = norm, .cases = layer_.cases, .units = layer_.units, .a = SumsOf(norm, layer_)});
    }
    report.MoveTo(result_);
  }

  // Online LN forgets the scale of its first state.
  void MeasureOnline() {
    TheoryTable table{
        .caption =
            "Online layer norm, with W doubled: the normalized values of case t over those before, "
            "minus 1, measured and by closed form. The state starts at mu = 0, sigma = 1, and "
            "forgets that scale like (1 - alpha)^t.",
        .head = {"norm", "case t", "measured", "closed form"}};
    LinearLayer layer = layer_;  // without gain and bias
    layer.gain.clear();
    layer.bias.clear();
    const LinearLayer doubled = Transformed(layer, Transformation::kWeightMatrixScale, {.d = 2});
    const auto units = static_cast<size_t>(layer_.units);
    const auto cases = static_cast<size_t>(layer_.cases);
    for (const auto& [norm, alpha] : kOnlineNormNames) {
      if (std::ranges::count(settings_.List("norm"), norm) == 0) continue;
      const std::vector<double> factors = OnlineScaleFactors(layer_, alpha, 2);
      const std::vector<double> y = NormalizedOutputs(norm, layer);
      const std::vector<double> z = NormalizedOutputs(norm, doubled);
      for (const size_t t : {size_t{1}, cases / 4, cases}) {
        double product = 0, square = 0;
        for (size_t i = (t - 1) * units; i < t * units; ++i) {
          product += y[i] * z[i];
          square += y[i] * y[i];
        }
        table.rows.push_back({norm, std::to_string(t), product / square - 1, factors[t - 1] - 1});
      }
    }
    if (!table.rows.empty()) result_.tables.push_back(std::move(table));
  }

  const AnalysisSettings& settings_;
  int64_t seed_;
  LinearLayer layer_;
  std::vector<TransformationParameters> parameters_;
  TheoryResult result_;
};

TheoryResult MeasureInvariances(const AnalysisSettings& settings) {
  return settings.has_run() ? MeasureTrainedInvariance(settings)
                            : RandomInvariance(settings).Measure();
}

std::vector<std::string> NamesOfCells() {
  std::vector<std::string> names;
  for (const internal::NamedCell& cell : internal::kNamedCells) names.emplace_back(cell.name);
  return names;
}

}  // namespace

TheoryAnalysis Invariance() {
  return {
      .name = "invariance",
      .summary = "Invariances of norms and cells (Ba et al. 2016, section 5.1 and Table 1)",
      .settings = {{"cases", "cases of a layer", 32, 4, 1024},
                   {"inputs", "inputs of a random layer", 20, 2, 256, true,
                    SettingUse::kRandomData},
                   {"units", "units of a random layer", 50, 4, 256, true, SettingUse::kRandomData},
                   {"steps", "of a sequence", 10, 2, 32, true, SettingUse::kRandomData},
                   {"sequences", "in a batch of a recurrent layer", 8, 8, 64, true,
                    SettingUse::kRandomData},
                   {"eps", "of the norms; a run has its own", 1e-5, 0, 1, false,
                    SettingUse::kRandomData},
                   {"change", "relative change from which eps counts", 0.01, 1e-6, 0.5, false},
                   {"seed", "of the random numbers", 1, 0, 0x1p53}},
      .lists = {{"norm", "norms of a linear layer", InvarianceNorms(), {}},
                {"cell", "recurrent cells", NamesOfCells(), {}, SettingUse::kRandomData}},
      .files = AnalysisFiles::kRun,
      .measure = MeasureInvariances};
}

}  // namespace planish::lab
