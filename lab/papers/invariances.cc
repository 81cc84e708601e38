#include "lab/papers/invariances.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "lab/base/norm_name.h"
#include "planish/batch_norm.h"
#include "planish/norm.h"
#include "planish/pointwise_norm.h"
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
Matrix Product(const LinearLayer& layer, const Matrix& x, const Matrix& w) {
  const auto inputs = static_cast<size_t>(layer.inputs), units = static_cast<size_t>(layer.units);
  // Transposed, so that the innermost loop is over units, which the compiler vectorizes. Each sum
  // is over the inputs in order.
  Matrix columns(w.size()), a(static_cast<size_t>(layer.cases) * units);
  for (size_t u = 0; u < units; ++u) {
    for (size_t i = 0; i < inputs; ++i) columns[i * units + u] = w[u * inputs + i];
  }
  for (size_t n = 0; n < static_cast<size_t>(layer.cases); ++n) {
    double* row = a.data() + n * units;
    for (size_t i = 0; i < inputs; ++i) {
      const double value = x[n * inputs + i];
      const double* weights = columns.data() + i * units;
      for (size_t u = 0; u < units; ++u) row[u] += value * weights[u];
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

const double* OrNull(const Matrix& values) { return values.empty() ? nullptr : values.data(); }

constexpr char kBatch[] = "batch", kWeight[] = "weight", kGroup[] = "group", kDyt[] = "dyt",
               kDerf[] = "derf";

// Replaces a [layer.cases, cols] by its norm, with the gains and biases of `layer`.
void NormalizeInPlace(const std::string& norm, const LinearLayer& layer, int64_t cols, Matrix& a,
                      const InvarianceOptions& options) {
  const double *gain = OrNull(layer.gain), *bias = OrNull(layer.bias);
  const auto over_rows = [&](Norm row, int64_t groups) {
    const bool affine = internal::RecipeOf(row).output == internal::Output::kAffine;
    NormForward<double>(row,
                        {.rows = layer.cases * groups,
                         .cols = cols / groups,
                         .x = a.data(),
                         .gain = affine ? gain : nullptr,
                         .bias = affine ? bias : nullptr,
                         .y = a.data(),
                         .sets = groups,
                         .set_rows = groups > 1 ? 1 : 0},
                        {.eps = options.eps, .scale = options.scale, .slope = options.slope});
  };
  if (norm == kBatch && !layer.mean.empty()) {
    BatchNormEvaluate<double>({.batch = layer.cases,
                               .channels = cols,
                               .x = a.data(),
                               .gain = gain,
                               .bias = bias,
                               .running_mean = layer.mean.data(),
                               .running_var = layer.variance.data(),
                               .y = a.data()},
                              {.eps = options.eps});
  } else if (norm == kBatch) {
    BatchNormForward<double>({.batch = layer.cases,
                              .channels = cols,
                              .x = a.data(),
                              .gain = gain,
                              .bias = bias,
                              .y = a.data()},
                             {.eps = options.eps});
  } else if (norm == kGroup) {
    over_rows(Norm::kLayer, GroupsOf(cols, 1));
  } else if (norm == kDyt || norm == kDerf) {
    PointwiseNormForward<double>(norm == kDyt ? Pointwise::kTanh : Pointwise::kErf,
                                 {.rows = layer.cases,
                                  .cols = cols,
                                  .x = a.data(),
                                  .alpha = &layer.alpha,
                                  .shift = norm == kDerf ? &layer.shift : nullptr,
                                  .gain = gain,
                                  .bias = bias,
                                  .y = a.data()});
  }
  for (const OnlineNormName& online : kOnlineNormNames) {
    if (norm != online.name) continue;
    const int64_t rows = layer.state ? 1 : layer.cases;
    for (int64_t first = 0; first < layer.cases; first += rows) {
      OnlineState state = layer.state.value_or(OnlineState{});
      double* y = a.data() + first * cols;
      OnlineNormForward<double>(
          {.rows = rows, .cols = cols, .x = y, .gain = gain, .bias = bias, .y = y}, state,
          {.alpha = online.alpha});
    }
  }
  for (const internal::NormName& row : internal::kNormNames) {
    if (norm == LabNameOf(row)) over_rows(row.norm, 1);
  }
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
    case Transformation::kWeightMatrixJoint:
      return "Weight matrix re-scaling and re-centering";
  }
  return "";
}

const std::vector<std::string>& InvarianceNorms() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"none", kBatch, kWeight};
    for (const internal::NormName& row : internal::kNormNames) all.push_back(LabNameOf(row));
    for (const char* name : {kGroup, kDyt, kDerf}) all.emplace_back(name);
    for (const OnlineNormName& online : kOnlineNormNames) all.emplace_back(online.name);
    return all;
  }();
  return names;
}

LinearLayer RandomLinearLayer(int64_t cases, int64_t inputs, int64_t units, uint64_t seed) {
  std::mt19937_64 generator(seed);
  LinearLayer layer{.cases = cases, .inputs = inputs, .units = units};
  layer.x = Draw(layer.cases * layer.inputs, generator);
  layer.w = Draw(layer.units * layer.inputs, generator);
  layer.gain = Draw(layer.units, generator);
  for (double& gain : layer.gain) gain = 1 + gain / 2;
  layer.bias = Draw(layer.units, generator);
  return layer;
}

std::vector<TransformationParameters> RandomTransformationParameters(const LinearLayer& layer,
                                                                     uint64_t seed) {
  std::mt19937_64 generator(seed);
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
      Scale(layer.offset, parameters.d);
      break;
    case Transformation::kWeightMatrixCentre:
      Shift(layer.w, parameters.gamma);
      break;
    case Transformation::kWeightVectorScale:
      Scale(Row(layer.w, parameters.unit, layer.inputs), parameters.d);
      if (!layer.offset.empty()) Scale(Row(layer.offset, parameters.unit, 1), parameters.d);
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
    case Transformation::kWeightMatrixJoint:
      Scale(layer.w, parameters.d);
      Scale(layer.offset, parameters.d);
      Shift(layer.w, parameters.gamma);
      break;
  }
  return layer;
}

std::vector<double> NormalizedSums(const std::string& norm, const LinearLayer& layer, Matrix a,
                                   const InvarianceOptions& options) {
  NormalizeInPlace(norm, layer, layer.units, a, options);
  return a;
}

std::vector<double> SumsOf(const std::string& norm, const LinearLayer& layer) {
  Matrix a;
  if (norm == kWeight) {
    const Matrix ones(static_cast<size_t>(layer.units), 1);
    Matrix w(layer.w.size());
    WeightNormForward<double>({.rows = layer.units,
                               .cols = layer.inputs,
                               .v = layer.w.data(),
                               .g = layer.gain.empty() ? ones.data() : layer.gain.data(),
                               .w = w.data()});
    a = Product(layer, layer.x, w);
    if (!layer.bias.empty()) Shift(a, layer.bias);
  } else {
    a = Product(layer, layer.x, layer.w);
  }
  if (!layer.offset.empty()) Shift(a, layer.offset);
  return a;
}

std::vector<double> NormalizedOutputs(const std::string& norm, const LinearLayer& layer,
                                      const InvarianceOptions& options) {
  return NormalizedSums(norm, layer, SumsOf(norm, layer), options);
}

std::vector<double> OutputsOfNormalizedInputs(const std::string& norm, const LinearLayer& layer,
                                              const InvarianceOptions& options) {
  LinearLayer inputs{.cases = layer.cases};
  inputs.alpha = layer.alpha;
  inputs.shift = layer.shift;
  Matrix x = layer.x;
  NormalizeInPlace(norm, inputs, layer.inputs, x, options);
  return Product(layer, x, layer.w);
}

double LargestChange(const LayerOutputs& outputs, const LinearLayer& layer,
                     Transformation transformation,
                     const std::vector<TransformationParameters>& parameters) {
  const std::vector<double> plain = outputs(layer);
  double largest = 0, change = 0;
  for (const double y : plain) largest = std::max(largest, std::abs(y));
  for (const TransformationParameters& of : parameters) {
    const std::vector<double> y = outputs(Transformed(layer, transformation, of));
    for (size_t i = 0; i < y.size(); ++i) {
      const double difference = std::abs(y[i] - plain[i]);
      if (std::isnan(difference)) return difference;
      change = std::max(change, difference);
    }
  }
  return change / largest;
}

double LargestChange(const std::string& norm, Transformation transformation) {
  const LinearLayer layer = RandomLinearLayer();
  return LargestChange([&](const LinearLayer& of) { return NormalizedOutputs(norm, of); }, layer,
                       transformation, RandomTransformationParameters(layer));
}

}  // namespace planish::lab
