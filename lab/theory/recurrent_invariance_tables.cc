#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lab/theory/invariance_parts.h"

// Which transformations of weights and inputs leave the hidden states of recurrent layers as they
// are, over a sequence and from step to step.
namespace planish::lab {
namespace {

class RecurrentInvariance {
 public:
  RecurrentInvariance(const AnalysisSettings& settings, const RnnShape& shape, TheoryResult& result)
      : settings_(settings),
        shape_(shape),
        seed_(settings.Whole("seed")),
        parameters_(RandomRecurrentParameters(shape, seed_)),
        result_(result) {}

  void MeasureCells() {
    constexpr size_t kWeights = 5;
    const auto head = [](size_t begin, size_t end) {
      std::vector<std::string> labels = {"cell"};
      for (size_t i = begin; i < end; ++i) {
        labels.emplace_back(LabelOf(kRecurrentTransformations[i]));
      }
      return labels;
    };
    TheoryTable weights{
        .caption = fmt::format(
            "Recurrent layers, with eps = 0 and random states before the first step: the largest "
            "change of the hidden states of {} steps, relative to the largest. {} inputs, {} "
            "units, {} sequences. At most {:g}: invariant. both: W_x and W_h scaled, and so all "
            "summed inputs.",
            shape_.time, shape_.inputs, shape_.hidden, shape_.batch, kRecurrentInvariant),
        .head = head(0, kWeights)};
    TheoryTable data{
        .caption = fmt::format(
            "The same for the weights of one unit, in all gates, and for the inputs x: of all "
            "steps, of step {} only, and of one sequence at all steps.",
            shape_.time / 2 + 1),
        .head = head(kWeights, kRecurrentTransformations.size())};
    TheoryChart chart{
        .heading = fmt::format("Hidden states after the inputs of step {} were scaled",
                               shape_.time / 2 + 1),
        .x_label = "step t",
        .y_label = "relative change",
        .log_y = true};
    for (const auto& [cell, name] : Cells()) {
      const RecurrentLayer layer = RandomRecurrentLayer(cell, shape_, seed_);
      std::vector<TheoryCell> of_weights = {name}, of_data = {name};
      for (size_t i = 0; i < kRecurrentTransformations.size(); ++i) {
        const std::vector<double> changes =
            ChangesByStep(layer, kRecurrentTransformations[i], parameters_);
        (i < kWeights ? of_weights : of_data).emplace_back(LargestOf(changes));
        if (kRecurrentTransformations[i] == RecurrentTransformation::kStepScale) {
          AddLine(name, changes, chart);
        }
      }
      weights.rows.push_back(std::move(of_weights));
      data.rows.push_back(std::move(of_data));
    }
    result_.tables.push_back(std::move(weights));
    result_.tables.push_back(std::move(data));
    result_.charts.push_back(std::move(chart));
  }

  // The first step that is not invariant, from states of zeros.
  void MeasureSteps() {
    using enum RecurrentTransformation;
    constexpr RecurrentTransformation kShown[] = {kInputWeightsScale, kRecurrentWeightsScale,
                                                  kWeightsScale, kInputScale, kStepScale};
    TheoryTable table{
        .caption = fmt::format(
            "From step to step, from states of zeros: the first of {} steps whose hidden state "
            "changes, with cells that normalize the summed inputs. one step: the inputs of step "
            "{} are scaled. last: the change that is left of it at the last step.",
            shape_.time, shape_.time / 2 + 1),
        .head = {"cell"}};
    for (const RecurrentTransformation of : kShown) table.head.emplace_back(LabelOf(of));
    table.head.emplace_back("last");
    TheoryChart chart{.heading = "Hidden states from zeros, with W_x scaled",
                      .x_label = "step t",
                      .y_label = "relative change",
                      .log_y = true};
    for (const auto& [cell, name] : Cells()) {
      if (internal::RecipeOf(cell).sums == internal::Sums::kPlain) continue;
      const RecurrentLayer layer = RandomRecurrentLayer(cell, shape_, seed_, true);
      std::vector<TheoryCell> row = {name};
      for (const RecurrentTransformation of : kShown) {
        const std::vector<double> changes = ChangesByStep(layer, of, parameters_);
        const auto first = std::ranges::find_if(
            changes, [](double change) { return !(change <= kRecurrentInvariant); });
        row.emplace_back(first == changes.end() ? "never"
                                                : std::to_string(first - changes.begin() + 1));
        if (of == kStepScale) row.emplace_back(changes.back());
        if (of == kInputWeightsScale) AddLine(name, changes, chart);
      }
      table.rows.push_back(std::move(row));
    }
    if (!table.rows.empty()) {
      result_.tables.push_back(std::move(table));
      result_.charts.push_back(std::move(chart));
    }
    StateSummedInputs();
  }

 private:
  // The cells that the call names.
  std::vector<internal::NamedCell> Cells() const {
    std::vector<internal::NamedCell> cells;
    for (const std::string& name : settings_.List("cell")) {
      const auto* found =
          std::ranges::find(internal::kNamedCells, name, &internal::NamedCell::name);
      cells.push_back(*found);
    }
    return cells;
  }

  static double LargestOf(const std::vector<double>& changes) {
    double largest = 0;
    for (const double change : changes) {
      if (std::isnan(change) || change > largest) largest = change;
    }
    return largest;
  }

  // Adds the changes by step, without zeros, which a logarithmic axis cannot show.
  static void AddLine(const char* name, const std::vector<double>& changes, TheoryChart& chart) {
    TheoryLine line{.name = name};
    for (size_t t = 0; t < changes.size(); ++t) {
      if (changes[t] > 0) line.points.emplace_back(static_cast<double>(t + 1), changes[t]);
    }
    chart.lines.push_back(std::move(line));
  }

  void StateSummedInputs() {
    using enum RecurrentTransformation;
    double largest = 0;
    const auto change_of = [&](Cell cell, RecurrentTransformation of) {
      double change = 0;
      for (const bool zero_states : {false, true}) {
        const RecurrentLayer layer = RandomRecurrentLayer(cell, shape_, seed_, zero_states);
        change = LargestOf({change, LargestOf(ChangesByStep(layer, of, parameters_))});
      }
      return change;
    };
    for (const Cell cell : {Cell::kLnRnn, Cell::kLnRnnRelu}) {
      largest = LargestOf({largest, change_of(cell, kWeightsScale)});
    }
    double separate = 0;
    for (const Cell cell : {Cell::kLnLstm, Cell::kLnGru}) {
      for (const RecurrentTransformation of :
           {kWeightsScale, kInputWeightsScale, kRecurrentWeightsScale}) {
        separate = LargestOf({separate, change_of(cell, of)});
      }
    }
    result_.statements.push_back(
        {.source = SourceInBa("section 3.1"),
         .text = "In a layer-normalized RNN, the normalization terms make it invariant to "
                 "re-scaling all of the summed inputs to a layer.",
         .verdict = largest <= kRecurrentInvariant ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
         .measured = fmt::format(
             "at each of {} steps: with W_x and W_h scaled together, hidden states change by "
             "{:.1e}. With W_h scaled only, by {:.2g}, with W_x only, by {:.2g}: they share one "
             "norm. LN-LSTM and LN-GRU normalize W_x x and W_h h separately, and are invariant to "
             "the scale of each ({:.1e})",
             shape_.time, largest, change_of(Cell::kLnRnn, kRecurrentWeightsScale),
             change_of(Cell::kLnRnn, kInputWeightsScale), separate)});
  }

  const AnalysisSettings& settings_;
  const RnnShape shape_;
  const int64_t seed_;
  const std::vector<RecurrentParameters> parameters_;
  TheoryResult& result_;
};

}  // namespace

void AddRecurrentInvariance(const AnalysisSettings& settings, const RnnShape& shape,
                            TheoryResult& result) {
  RecurrentInvariance measured(settings, shape, result);
  measured.MeasureCells();
  measured.MeasureSteps();
}

}  // namespace planish::lab
