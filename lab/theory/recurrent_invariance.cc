#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <utility>

#include "lab/base/random.h"
#include "lab/theory/invariance.h"
#include "lab/theory/rows.h"

namespace planish::lab {
namespace {

// The places of the weights in internal::ParamsOf.
constexpr size_t kWeightIh = 0, kWeightHh = 1;

std::vector<double> NormalValues(int64_t count, double deviation, std::mt19937_64& random) {
  std::vector<double> values(static_cast<size_t>(count));
  DrawRow(RowKind::kNormal, random, values);
  for (double& value : values) value *= deviation;
  return values;
}

void ScaleValues(std::span<double> values, double d) {
  for (double& value : values) value *= d;
}

void AddToRows(std::vector<double>& rows, const std::vector<double>& gamma) {
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += gamma[i % gamma.size()];
}

// Scales the rows of one unit, of all gates, of a weight [gates * H, cols].
void ScaleUnit(std::vector<double>& weight, const RnnShape& shape, int64_t cols, int64_t unit,
               double d) {
  const std::span<double> all(weight);
  for (int64_t row = unit; row * cols < static_cast<int64_t>(weight.size()); row += shape.hidden) {
    ScaleValues(all.subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)), d);
  }
}

const double* DataOrNull(const std::vector<double>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

std::string_view LabelOf(RecurrentTransformation transformation) {
  switch (transformation) {
    case RecurrentTransformation::kInputWeightsScale:
      return "W_x scale";
    case RecurrentTransformation::kRecurrentWeightsScale:
      return "W_h scale";
    case RecurrentTransformation::kWeightsScale:
      return "both";
    case RecurrentTransformation::kInputWeightsCentre:
      return "W_x centre";
    case RecurrentTransformation::kRecurrentWeightsCentre:
      return "W_h centre";
    case RecurrentTransformation::kUnitScale:
      return "unit";
    case RecurrentTransformation::kInputScale:
      return "x scale";
    case RecurrentTransformation::kInputCentre:
      return "x centre";
    case RecurrentTransformation::kStepScale:
      return "one step";
    case RecurrentTransformation::kSequenceScale:
      return "one sequence";
  }
  return "";
}

RecurrentLayer RandomRecurrentLayer(Cell cell, const RnnShape& shape, int64_t seed,
                                    bool zero_states) {
  const internal::CellRecipe recipe = internal::RecipeOf(cell);
  std::mt19937_64 random(MixedSeed({seed, static_cast<int64_t>(cell)}));
  RecurrentLayer layer{.cell = cell, .shape = shape, .eps = zero_states ? 1e-30 : 0};
  layer.x = NormalValues(shape.time * shape.batch * shape.inputs, 1, random);
  if (!zero_states) {
    layer.h0 = NormalValues(shape.batch * shape.hidden, 0.5, random);
    layer.c0 = NormalValues(shape.batch * shape.hidden * recipe.cell_parts(), 0.5, random);
  }
  const auto params = internal::ParamsOf<double>(recipe, shape);
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].taken) continue;
    // Weights keep the size of their inputs; gains are about 1, biases about 0.
    const double inputs =
        i == kWeightIh ? static_cast<double>(shape.inputs) : static_cast<double>(shape.hidden);
    const bool is_weight = i == kWeightIh || i == kWeightHh;
    layer.params[i] = NormalValues(params[i].size, is_weight ? 1 / std::sqrt(inputs) : 0.1, random);
    const std::string_view name = params[i].name;
    if (name.starts_with("ln_") && name.ends_with("weight")) {
      for (double& gain : layer.params[i]) gain += 1;
    }
  }
  return layer;
}

std::vector<RecurrentParameters> RandomRecurrentParameters(const RnnShape& shape, int64_t seed) {
  std::mt19937_64 random(MixedSeed({seed, -1}));
  std::vector<RecurrentParameters> all;
  for (const double d : {2.0, 0.5, 3.0}) {
    RecurrentParameters parameters{.d = d,
                                   .gamma_x = NormalValues(shape.inputs, 1, random),
                                   .gamma_h = NormalValues(shape.hidden, 1, random)};
    parameters.unit = static_cast<int64_t>(random() % static_cast<uint64_t>(shape.hidden));
    parameters.sequence = static_cast<int64_t>(random() % static_cast<uint64_t>(shape.batch));
    parameters.step = shape.time / 2;
    all.push_back(std::move(parameters));
  }
  return all;
}

RecurrentLayer Transformed(RecurrentLayer layer, RecurrentTransformation transformation,
                           const RecurrentParameters& parameters) {
  using enum RecurrentTransformation;
  const double d = parameters.d;
  std::vector<double>&w_ih = layer.params[kWeightIh], &w_hh = layer.params[kWeightHh];
  const int64_t inputs = layer.shape.inputs, batch = layer.shape.batch;
  const std::span<double> x(layer.x);
  const auto row = [&](int64_t step, int64_t sequence, int64_t rows) {
    return x.subspan(static_cast<size_t>((step * batch + sequence) * inputs),
                     static_cast<size_t>(rows * inputs));
  };
  switch (transformation) {
    case kInputWeightsScale:
      ScaleValues(w_ih, d);
      break;
    case kRecurrentWeightsScale:
      ScaleValues(w_hh, d);
      break;
    case kWeightsScale:
      ScaleValues(w_ih, d);
      ScaleValues(w_hh, d);
      break;
    case kInputWeightsCentre:
      AddToRows(w_ih, parameters.gamma_x);
      break;
    case kRecurrentWeightsCentre:
      AddToRows(w_hh, parameters.gamma_h);
      break;
    case kUnitScale:
      ScaleUnit(w_ih, layer.shape, inputs, parameters.unit, d);
      ScaleUnit(w_hh, layer.shape, layer.shape.hidden, parameters.unit, d);
      break;
    case kInputScale:
      ScaleValues(x, d);
      break;
    case kInputCentre:
      AddToRows(layer.x, parameters.gamma_x);
      break;
    case kStepScale:
      ScaleValues(row(parameters.step, 0, batch), d);
      break;
    case kSequenceScale:
      for (int64_t t = 0; t < layer.shape.time; ++t) {
        ScaleValues(row(t, parameters.sequence, 1), d);
      }
      break;
  }
  return layer;
}

std::vector<double> HiddenStates(const RecurrentLayer& layer) {
  const auto rows = internal::ParamsOf<const double>(internal::RecipeOf(layer.cell), layer.shape);
  RnnInputs<double> inputs{.shape = layer.shape,
                           .x = layer.x.data(),
                           .h0 = DataOrNull(layer.h0),
                           .c0 = DataOrNull(layer.c0)};
  for (size_t i = 0; i < rows.size(); ++i) {
    inputs.params.*rows[i].member = DataOrNull(layer.params[i]);
  }
  std::vector<double> y(
      static_cast<size_t>(layer.shape.time * layer.shape.batch * layer.shape.outputs()));
  RnnForward<double>(layer.cell, {.inputs = inputs, .y = y.data()}, {.eps = layer.eps});
  return y;
}

std::vector<double> ChangesByStep(const RecurrentLayer& layer,
                                  RecurrentTransformation transformation,
                                  const std::vector<RecurrentParameters>& parameters) {
  const std::vector<double> plain = HiddenStates(layer);
  const auto steps = static_cast<size_t>(layer.shape.time);
  const size_t width = plain.size() / steps;
  double largest = 0;
  for (const double value : plain) largest = std::max(largest, std::abs(value));
  std::vector<double> changes(steps);
  for (const RecurrentParameters& of : parameters) {
    const std::vector<double> y = HiddenStates(Transformed(layer, transformation, of));
    for (size_t i = 0; i < y.size(); ++i) {
      const double difference = std::abs(y[i] - plain[i]) / largest;
      double& change = changes[i / width];
      if (std::isnan(difference) || difference > change) change = difference;
    }
  }
  return changes;
}

}  // namespace planish::lab
