#include "lab/papers/invariances.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "planish/batch_norm.h"
#include "planish/norm.h"
#include "planish/weight_norm.h"

namespace planish::lab {
namespace {

using Matrix = std::vector<double>;

// Returns a value in [-1, 1) from integer arithmetic, so that every machine draws the same.
double Draw(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11) * 0x1p-52 - 1;
}

std::vector<double> Draw(int64_t count, std::mt19937_64& generator) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = Draw(generator);
  return values;
}

// Returns x W^T [cases, units].
Matrix Product(const LinearLayer& layer, const Matrix& w) {
  const auto inputs = static_cast<size_t>(layer.inputs);
  Matrix a;
  for (size_t n = 0; n < static_cast<size_t>(layer.cases); ++n) {
    for (size_t u = 0; u < static_cast<size_t>(layer.units); ++u) {
      double sum = 0;
      for (size_t i = 0; i < inputs; ++i) sum += layer.x[n * inputs + i] * w[u * inputs + i];
      a.push_back(sum);
    }
  }
  return a;
}

void Scale(std::span<double> values, double d) {
  for (double& value : values) value *= d;
}

// Adds gamma to every row.
void Shift(Matrix& rows, const std::vector<double>& gamma) {
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += gamma[i % gamma.size()];
}

std::span<double> Row(Matrix& rows, int64_t row, int64_t cols) {
  return std::span(rows).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
}

}  // namespace

std::string_view LabelOf(Transformation transformation) {
  switch (transformation) {
    case Transformation::kWeightMatrixScale:
      return "Weight matrix re-scaling";
    case Transformation::kWeightMatrixCentre:
      return "Weight matrix re-centering";
    case Transformation::kWeightVectorScale:
      return "Weight vector re-scaling";
    case Transformation::kDataScale:
      return "Dataset re-scaling";
    case Transformation::kDataCentre:
      return "Dataset re-centering";
    case Transformation::kCaseScale:
      return "Single training case re-scaling";
  }
  return "";
}

LinearLayer RandomLinearLayer() {
  std::mt19937_64 generator(1);
  LinearLayer layer{.cases = 32, .inputs = 20, .units = 50};
  layer.x = Draw(layer.cases * layer.inputs, generator);
  layer.w = Draw(layer.units * layer.inputs, generator);
  layer.gain = Draw(layer.units, generator);
  for (double& gain : layer.gain) gain = 1 + gain / 2;
  layer.bias = Draw(layer.units, generator);
  return layer;
}

std::vector<TransformationParameters> RandomTransformationParameters() {
  std::mt19937_64 generator(2);
  const LinearLayer layer = RandomLinearLayer();
  std::vector<TransformationParameters> all;
  for (const double d : {2.0, 0.5, 3.0}) {
    TransformationParameters parameters{.d = d, .gamma = Draw(layer.inputs, generator)};
    parameters.unit = static_cast<int64_t>(generator() % static_cast<uint64_t>(layer.units));
    parameters.row = static_cast<int64_t>(generator() % static_cast<uint64_t>(layer.cases));
    all.push_back(std::move(parameters));
  }
  return all;
}

LinearLayer Transformed(LinearLayer layer, Transformation transformation,
                        const TransformationParameters& parameters) {
  switch (transformation) {
    case Transformation::kWeightMatrixScale:
      Scale(layer.w, parameters.d);
      break;
    case Transformation::kWeightMatrixCentre:
      Shift(layer.w, parameters.gamma);
      break;
    case Transformation::kWeightVectorScale:
      Scale(Row(layer.w, parameters.unit, layer.inputs), parameters.d);
      break;
    case Transformation::kDataScale:
      Scale(layer.x, parameters.d);
      break;
    case Transformation::kDataCentre:
      Shift(layer.x, parameters.gamma);
      break;
    case Transformation::kCaseScale:
      Scale(Row(layer.x, parameters.row, layer.inputs), parameters.d);
      break;
  }
  return layer;
}

std::vector<double> NormalizedOutputs(Normalization norm, const LinearLayer& layer) {
  if (norm == Normalization::kWeight) {
    Matrix w(layer.w.size());
    WeightNormForward<double>({.rows = layer.units,
                               .cols = layer.inputs,
                               .v = layer.w.data(),
                               .g = layer.gain.data(),
                               .w = w.data()});
    Matrix y = Product(layer, w);
    Shift(y, layer.bias);
    return y;
  }
  const Matrix a = Product(layer, layer.w);
  Matrix y(a.size());
  if (norm == Normalization::kBatch) {
    BatchNormForward<double>({.batch = layer.cases,
                              .channels = layer.units,
                              .x = a.data(),
                              .gain = layer.gain.data(),
                              .bias = layer.bias.data(),
                              .y = y.data()},
                             {.eps = 0});
  } else {
    NormForward<double>(Norm::kLayer,
                        {.rows = layer.cases,
                         .cols = layer.units,
                         .x = a.data(),
                         .gain = layer.gain.data(),
                         .bias = layer.bias.data(),
                         .y = y.data()},
                        {.eps = 0});
  }
  return y;
}

double LargestChange(Normalization norm, Transformation transformation) {
  const LinearLayer layer = RandomLinearLayer();
  const std::vector<double> plain = NormalizedOutputs(norm, layer);
  double largest = 0, change = 0;
  for (const double y : plain) largest = std::max(largest, std::abs(y));
  for (const TransformationParameters& parameters : RandomTransformationParameters()) {
    const std::vector<double> y =
        NormalizedOutputs(norm, Transformed(layer, transformation, parameters));
    for (size_t i = 0; i < y.size(); ++i) change = std::max(change, std::abs(y[i] - plain[i]));
  }
  return change / largest;
}

}  // namespace planish::lab
