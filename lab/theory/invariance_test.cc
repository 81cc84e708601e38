// Invariances against the references, autograd and rules, and the layers of a model.
#include "lab/theory/invariance.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/base/norm_name.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/tasks/online-ln/online_ln.h"
#include "lab/tasks/pi-mnist/pi_mnist.h"
#include "lab/tasks/task_testing.h"
#include "lab/theory/analyses.h"
#include "lab/theory/invariance_parts.h"
#include "src/norm/reference.h"
#include "src/rnn/reference.h"

namespace planish::lab {
namespace {

using Doubles = std::vector<double>;

double LargestDifference(const Doubles& a, const Doubles& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

at::Tensor Matrix(const Doubles& values, int64_t rows) {
  return at::tensor(values, at::kDouble).view({rows, -1});
}

Doubles ToVector(const at::Tensor& t) {
  const at::Tensor values = t.detach().contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

TEST(InvarianceNorms, AreAllOfTheLab) {
  for (const std::string& name : NormNames()) {
    EXPECT_EQ(std::ranges::count(InvarianceNorms(), name), 1) << name;
  }
  const auto task = MakeOnlineLn();
  for (const SettingSpec& setting : task->settings) {
    if (setting.name != "norm") continue;
    for (const std::string& name : setting.choices) {
      EXPECT_EQ(std::ranges::count(InvarianceNorms(), name), 1) << name;
    }
  }
}

// Sums of 20 products, and norms of 50 values: errors of about 1e-15.
constexpr double kTolerance = 1e-13;

TEST(NormalizedOutputs, OfRowNormsAreThoseOfTheReference) {
  const LinearLayer layer = RandomLinearLayer();
  const Doubles a = SumsOf("none", layer);
  for (const internal::NormName& row : internal::kNormNames) {
    const internal::Recipe recipe = internal::RecipeOf(row.norm);
    for (const double eps : {0.0, 0.1}) {
      const Doubles y =
          NormalizedOutputs(LabNameOf(row), layer, {.eps = eps, .scale = 1.5, .slope = 0.2});
      Doubles expected;
      for (int64_t n = 0; n < layer.cases; ++n) {
        const auto begin = a.begin() + n * layer.units;
        const std::vector<long double> x(begin, begin + layer.units);
        const auto xhat = internal::ReferenceXhat(recipe, x, eps);
        for (size_t i = 0; i < xhat.size(); ++i) {
          expected.push_back(static_cast<double>(internal::ReferenceOutput<long double>(
              recipe, {.eps = eps, .scale = 1.5, .slope = 0.2}, xhat[i], layer.gain[i],
              layer.bias[i])));
        }
      }
      EXPECT_LT(LargestDifference(y, expected), kTolerance) << row.name << eps;
    }
  }
}

TEST(NormalizedOutputs, OfOtherNormsAreThoseOfPyTorch) {
  LinearLayer layer = RandomLinearLayer();
  layer.offset.assign(50, 0.25);
  layer.alpha = 0.75;
  layer.shift = 0.125;
  const at::Tensor a = at::linear(Matrix(layer.x, 32), Matrix(layer.w, 50)) + 0.25;
  const at::Tensor gain = at::tensor(layer.gain, at::kDouble),
                   bias = at::tensor(layer.bias, at::kDouble);
  const std::map<std::string, at::Tensor> expected = {
      {"none", a},
      {"batch", at::batch_norm(a, gain, bias, {}, {}, true, 0.1, 0.01, false)},
      {"group", at::group_norm(a, 5, gain, bias, 0.01)},
      {"dyt", (a * 0.75).tanh() * gain + bias},
      {"derf", (a * 0.75 + 0.125).erf() * gain + bias},
  };
  for (const auto& [norm, y] : expected) {
    EXPECT_LT(LargestDifference(NormalizedOutputs(norm, layer, {.eps = 0.01}), ToVector(y)),
              kTolerance)
        << norm;
  }
  layer.mean.assign(50, 0.5);
  layer.variance.assign(50, 2);
  EXPECT_LT(LargestDifference(NormalizedOutputs("batch", layer, {.eps = 0.25}),
                              ToVector((a - 0.5) / 1.5 * gain + bias)),
            kTolerance);
  const at::Tensor x = Matrix(layer.x, 32);
  EXPECT_LT(LargestDifference(
                OutputsOfNormalizedInputs("layer", layer),
                ToVector(at::linear(at::layer_norm(x, {20}, {}, {}, 0), Matrix(layer.w, 50)))),
            kTolerance);
}

TEST(NormalizedOutputs, OfOnlineNormsFollowTheirEquations) {
  LinearLayer layer = RandomLinearLayer();
  const Doubles a = SumsOf("none", layer);
  for (const auto& [norm, alpha] : kOnlineNormNames) {
    for (const bool evaluation : {false, true}) {
      const OnlineState first{.mean = evaluation ? 0.5 : 0, .deviation = evaluation ? 2.0 : 1};
      OnlineState state = first;
      Doubles expected;
      for (size_t n = 0; n < 32; ++n) {
        if (evaluation) state = first;
        const Doubles row(a.begin() + static_cast<ptrdiff_t>(n * 50),
                          a.begin() + static_cast<ptrdiff_t>(n * 50 + 50));
        double mean = 0, squares = 0;
        for (const double value : row) mean += value / 50;
        state.mean = alpha * mean + (1 - alpha) * state.mean;
        for (const double value : row) squares += std::pow(value - state.mean, 2);
        state.deviation = alpha * std::sqrt(squares / 49) + (1 - alpha) * state.deviation;
        for (size_t i = 0; i < 50; ++i) {
          expected.push_back(layer.gain[i] * (row[i] - state.mean) / state.deviation +
                             layer.bias[i]);
        }
      }
      layer.state = evaluation ? std::optional(first) : std::nullopt;
      EXPECT_LT(LargestDifference(NormalizedOutputs(norm, layer), expected), kTolerance) << norm;
    }
  }
}

TEST(Transformed, ScalesOffsetsWithTheWeights) {
  LinearLayer layer = RandomLinearLayer();
  layer.offset.assign(50, 1);
  const TransformationParameters parameters{.d = 2, .gamma = Doubles(20, 0.5), .unit = 3};
  const auto offset = [&](Transformation t) { return Transformed(layer, t, parameters).offset; };
  EXPECT_EQ(offset(Transformation::kWeightMatrixScale), Doubles(50, 2));
  EXPECT_EQ(offset(Transformation::kDataScale), Doubles(50, 1));
  Doubles of_unit(50, 1);
  of_unit[3] = 2;
  EXPECT_EQ(offset(Transformation::kWeightVectorScale), of_unit);
  const LinearLayer joint = Transformed(layer, Transformation::kWeightMatrixJoint, parameters);
  EXPECT_EQ(joint.offset, Doubles(50, 2));
  for (size_t i = 0; i < joint.w.size(); ++i) EXPECT_EQ(joint.w[i], 2 * layer.w[i] + 0.5);
}

// The columns of Table 1 and Eq. 6, by the equations of the norms. RMSNorm has no mean that a
// re-centring could change, and no invariance to it.
TEST(LargestChange, OfAllNormsFollowsFromTheirEquations) {
  const std::map<std::string, std::string> expected = {
      {"none", "------ -"},        {"batch", "+-+++- -"},        {"weight", "+-+--- -"},
      {"layer", "++-+-+ +"},       {"layer-simple", "++-+-+ +"}, {"rms", "+--+-+ -"},
      {"detach", "++-+-+ +"},      {"detach-mean", "++-+-+ +"},  {"detach-std", "++-+-+ +"},
      {"ada", "++-+-+ +"},         {"ada-as-coded", "++-+-+ +"}, {"group", "++-+-+ +"},
      {"dyt", "------ -"},         {"derf", "------ -"},         {"online-1", "++-+-+ +"},
      {"online-0.3", "------ -"},  {"online-0.1", "------ -"},   {"online-0.03", "------ -"},
      {"online-0.01", "------ -"},
  };
  for (const std::string& norm : InvarianceNorms()) {
    std::string found;
    const auto add = [&](Transformation transformation) {
      const double change = LargestChange(norm, transformation);
      found += change <= kInvariant ? '+' : '-';
      // Far from the threshold on either side.
      EXPECT_TRUE(change < kTolerance || change > 0.01) << norm << change;
    };
    for (const Transformation transformation : kTransformations) add(transformation);
    found += ' ';
    add(Transformation::kWeightMatrixJoint);
    EXPECT_EQ(found, expected.at(norm)) << norm;
  }
}

NormalizedValues RandomValues(const std::string& norm) {
  const LinearLayer layer = RandomLinearLayer();
  return {.norm = norm, .cases = layer.cases, .units = layer.units, .a = SumsOf(norm, layer)};
}

std::vector<std::string> NormsWithEps() {
  std::vector<std::string> norms = InvarianceNorms();
  std::erase_if(norms, [](const std::string& norm) { return !HasEps(norm); });
  return norms;
}

TEST(Eps, IsOfBatchGroupAndRowNorms) {
  EXPECT_EQ(NormsWithEps().size(), std::size(internal::kNormNames) + 2);
  for (const char* norm : {"none", "weight", "dyt", "derf", "online-1"}) {
    EXPECT_FALSE(HasEps(norm)) << norm;
  }
}

TEST(Eps, ClosedFormsAreTheMeasuredValues) {
  for (const std::string& norm : NormsWithEps()) {
    const NormalizedValues values = RandomValues(norm);
    const Doubles sigmas = DeviationsOf(values);
    const double sigma = *std::ranges::min_element(sigmas);
    EXPECT_EQ(sigmas.size(), norm == "batch" ? 50u : norm == "group" ? 160u : 32u);
    for (const double eps : {1e-12, 1e-5, 0.3}) {
      for (const double d : {1e-9, 1e-3, 0.1, 2.0, 1e3}) {
        double expected = 0;
        for (const double of : sigmas) {
          expected =
              std::max(expected,
                       std::abs(SizeWithEps(norm, of, eps, d) / SizeWithEps(norm, of, eps, 1) - 1));
        }
        // The measured change is a difference of values of about 1.
        EXPECT_NEAR(ChangeOfScale(values, eps, d), expected, 1e-13) << norm << eps << d;
      }
      for (const double change : {0.01, 0.3}) {
        // The closed form's difference, (...) - 1, is 0.02 at least.
        EXPECT_NEAR(
            MeasuredBreakingScale(values, eps, change) / BreakingScale(norm, sigma, eps, change), 1,
            1e-10)
            << norm << eps;
      }
      const double slope = SlopeOfScale(values, eps);
      if (norm.starts_with("detach")) {
        EXPECT_TRUE(std::isnan(slope)) << norm;
      } else {
        // A sum of 50 products of about 1 that cancel to eps.
        EXPECT_NEAR(slope, ClosedSlopeOfScale(norm, sigma, eps), 1e-14) << norm << eps;
      }
    }
    EXPECT_EQ(MeasuredBreakingScale(values, 0, 0.01), 0);
    EXPECT_EQ(BreakingScale(norm, sigma, 0, 0.01), 0);
  }
}

// For small eps and change, the normalized values break where sigma^2 d^2 is eps / (2 change).
TEST(Eps, BreaksWhereTheVarianceIsOfItsSize) {
  for (const double sigma : {0.1, 3.0}) {
    const double d = BreakingScale("layer", sigma, 1e-10, 1e-3);
    // 3/2 of the change, and eps / (sigma^2 change).
    EXPECT_NEAR(d * d * sigma * sigma / (1e-10 / 2e-3), 1, 2e-3);
  }
}

// The derivative of xhat(d a) by log d along the sums, by the complex step on the reference and by
// autograd.
TEST(Eps, SlopeIsTheDerivativeOfTheReferenceAndOfAutograd) {
  const LinearLayer layer = RandomLinearLayer();
  for (const internal::NormName& row : internal::kNormNames) {
    const std::string norm = LabNameOf(row);
    const internal::Recipe recipe = internal::RecipeOf(row.norm);
    if (norm.starts_with("detach")) continue;
    const NormalizedValues values = RandomValues(norm);
    const double eps = 0.05;
    double slope = 0;
    for (int64_t n = 0; n < layer.cases; ++n) {
      const auto begin = values.a.begin() + n * layer.units;
      std::vector<std::complex<double>> moved;
      for (auto value = begin; value != begin + layer.units; ++value) {
        moved.emplace_back(*value, *value * internal::ComplexStep<double>());
      }
      double product = 0, square = 0;
      for (const auto& xhat : internal::ReferenceXhat(recipe, moved, eps)) {
        product += xhat.real() * xhat.imag() / internal::ComplexStep<double>();
        square += xhat.real() * xhat.real();
      }
      slope = std::max(slope, product / square);
    }
    EXPECT_NEAR(SlopeOfScale(values, eps), slope, 1e-10) << norm;
  }
  const std::map<std::string, at::Tensor (*)(const at::Tensor&)> functions = {
      {"layer", [](const at::Tensor& a) { return at::layer_norm(a, {50}, {}, {}, 0.05); }},
      {"group", [](const at::Tensor& a) { return at::group_norm(a, 5, {}, {}, 0.05); }},
      {"batch",
       [](const at::Tensor& a) {
         return at::batch_norm(a, {}, {}, {}, {}, true, 0.1, 0.05, false);
       }},
      {"rms", [](const at::Tensor& a) {
         return a * (a.square().mean(at::IntArrayRef{1}, true) + 0.05).rsqrt();
       }}};
  for (const auto& [norm, function] : functions) {
    const NormalizedValues values = RandomValues(norm);
    const at::Tensor a = Matrix(values.a, 32).requires_grad_();
    const at::Tensor xhat = function(a);
    const at::Tensor da =
        torch::autograd::grad({xhat}, {a}, {xhat.detach()}, /*retain_graph=*/false)[0];
    const auto sums = [&](const at::Tensor& products) {
      if (norm == "batch") return products.sum(0);
      return products.view({norm == "group" ? 160 : 32, -1}).sum(1);
    };
    const double slope =
        (sums(da * a.detach()) / sums(xhat.detach().square())).max().item<double>();
    EXPECT_NEAR(SlopeOfScale(values, 0.05), slope, 1e-13) << norm;
  }
}

TEST(OnlineScaleFactors, AreTheMeasuredOnes) {
  LinearLayer layer = RandomLinearLayer();
  layer.gain.clear();
  layer.bias.clear();
  for (const auto& [norm, alpha] : kOnlineNormNames) {
    for (const double d : {0.5, 2.0, 1e3}) {
      const Doubles factors = OnlineScaleFactors(layer, alpha, d);
      const Doubles y = NormalizedOutputs(norm, layer);
      const Doubles z =
          NormalizedOutputs(norm, Transformed(layer, Transformation::kWeightMatrixScale, {.d = d}));
      ASSERT_EQ(factors.size(), 32u);
      Doubles expected;
      for (size_t i = 0; i < y.size(); ++i) expected.push_back(y[i] * factors[i / 50]);
      // Relative to values of up to d times 4, where the state has not forgotten its scale.
      EXPECT_LT(LargestDifference(z, expected) / d, kTolerance) << norm << d;
      if (alpha == 1) {
        EXPECT_EQ(factors, Doubles(32, 1));
      }
    }
  }
}

constexpr RnnShape kShape{.time = 6, .batch = 5, .inputs = 3, .hidden = 8};

TEST(HiddenStates, AreThoseOfTheReference) {
  for (const internal::NamedCell& named : internal::kNamedCells) {
    for (const bool zero_states : {false, true}) {
      const RecurrentLayer layer = RandomRecurrentLayer(named.cell, kShape, 1, zero_states);
      EXPECT_EQ(layer.h0.empty(), zero_states);
      using Array = std::vector<long double>;
      internal::ReferenceRnn<long double> reference{
          .cell = named.cell, .shape = kShape, .eps = layer.eps};
      reference.x = Array(layer.x.begin(), layer.x.end());
      reference.h0 = Array(layer.h0.begin(), layer.h0.end());
      reference.c0 = Array(layer.c0.begin(), layer.c0.end());
      for (size_t i = 0; i < layer.params.size(); ++i) {
        const auto member = internal::kReferenceArrays<long double>[5 + i].member;
        reference.*member = Array(layer.params[i].begin(), layer.params[i].end());
      }
      const auto expected = internal::ReferenceRnnForward(reference).y;
      const Doubles y = HiddenStates(layer);
      ASSERT_EQ(y.size(), expected.size());
      // Six steps; batch norm over five sequences amplifies errors by its small deviations.
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(y[i], static_cast<double>(expected[i]), 1e-11) << named.name;
      }
    }
  }
}

TEST(Transformed, ChangesRecurrentLayersAsNamed) {
  using enum RecurrentTransformation;
  const RecurrentLayer layer = RandomRecurrentLayer(Cell::kLnLstm, kShape, 1);
  RecurrentParameters of{.d = 2, .gamma_x = {1, 2, 3}, .gamma_h = {1, 2, 3, 4, 5, 6, 7, 8}};
  of.unit = 7;
  of.sequence = 2;
  of.step = 3;
  struct Changed {
    int64_t w_ih, w_hh, x;  // numbers of elements
  };
  const std::map<RecurrentTransformation, Changed> expected = {
      {kInputWeightsScale, {96, 0, 0}},
      {kRecurrentWeightsScale, {0, 256, 0}},
      {kWeightsScale, {96, 256, 0}},
      {kInputWeightsCentre, {96, 0, 0}},
      {kRecurrentWeightsCentre, {0, 256, 0}},
      {kUnitScale, {4 * 3, 4 * 8, 0}},
      {kInputScale, {0, 0, 90}},
      {kInputCentre, {0, 0, 90}},
      {kStepScale, {0, 0, 15}},
      {kSequenceScale, {0, 0, 18}}};
  const auto changed = [](const Doubles& a, const Doubles& b) {
    int64_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
    return count;
  };
  for (const RecurrentTransformation transformation : kRecurrentTransformations) {
    const RecurrentLayer moved = Transformed(layer, transformation, of);
    const Changed& counts = expected.at(transformation);
    EXPECT_EQ(changed(moved.params[0], layer.params[0]), counts.w_ih) << LabelOf(transformation);
    EXPECT_EQ(changed(moved.params[1], layer.params[1]), counts.w_hh) << LabelOf(transformation);
    EXPECT_EQ(changed(moved.x, layer.x), counts.x) << LabelOf(transformation);
  }
  // Unit 7 of the last gate, the first element of sequence 2 at step 3, and gamma.
  EXPECT_EQ(Transformed(layer, kUnitScale, of).params[0][31 * 3], 2 * layer.params[0][31 * 3]);
  EXPECT_EQ(Transformed(layer, kStepScale, of).x[3 * 15], 2 * layer.x[3 * 15]);
  EXPECT_EQ(Transformed(layer, kSequenceScale, of).x[2 * 3], 2 * layer.x[2 * 3]);
  EXPECT_EQ(Transformed(layer, kInputCentre, of).x[4], layer.x[4] + 2);
  EXPECT_EQ(Transformed(layer, kRecurrentWeightsCentre, of).params[1][9], layer.params[1][9] + 2);
}

// Whether a cell is invariant, by its equations. Norms of one sum see W_x and W_h together. Batch
// norm does not see what it adds to a unit of all sequences.
bool IsInvariant(const internal::CellRecipe& recipe, RecurrentTransformation transformation) {
  using enum RecurrentTransformation;
  if (recipe.sums == internal::Sums::kPlain) return false;
  const bool separate = recipe.sums == internal::Sums::kSeparate;
  const bool rows = recipe.over == internal::Over::kRow;
  switch (transformation) {
    case kInputWeightsScale:
    case kRecurrentWeightsScale:
    case kInputScale:
      return separate;
    case kStepScale:
      return separate;
    case kSequenceScale:
      return separate && rows;
    case kWeightsScale:
      return true;
    case kInputWeightsCentre:
    case kRecurrentWeightsCentre:
      return rows;
    case kUnitScale:
    case kInputCentre:
      return !rows;
  }
  return false;
}

TEST(ChangesByStep, FollowFromTheEquationsOfACell) {
  const RnnShape shape{.time = 12, .batch = 6, .inputs = 5, .hidden = 16};
  const auto parameters = RandomRecurrentParameters(shape, 3);
  for (const internal::NamedCell& named : internal::kNamedCells) {
    const RecurrentLayer layer = RandomRecurrentLayer(named.cell, shape, 2);
    for (const RecurrentTransformation transformation : kRecurrentTransformations) {
      const Doubles changes = ChangesByStep(layer, transformation, parameters);
      ASSERT_EQ(changes.size(), 12u);
      const double largest = *std::ranges::max_element(changes);
      EXPECT_EQ(largest <= kRecurrentInvariant,
                IsInvariant(internal::RecipeOf(named.cell), transformation))
          << named.name << " " << LabelOf(transformation) << " " << largest;
      // Far from the threshold on either side.
      EXPECT_TRUE(largest < kRecurrentInvariant / 10 || largest > 1e-3)
          << named.name << " " << LabelOf(transformation) << " " << largest;
      if (transformation == RecurrentTransformation::kStepScale) {
        for (size_t t = 0; t < 6; ++t) EXPECT_EQ(changes[t], 0) << named.name;
      }
    }
  }
}

// From zeros, the first step of a norm of one sum sees W_x only, so its scale does not matter yet.
TEST(ChangesByStep, OfAJointNormBeginAtTheSecondStep) {
  const auto parameters = RandomRecurrentParameters(kShape, 3);
  for (const Cell cell : {Cell::kLnRnn, Cell::kLnRnnRelu, Cell::kLnGruDreamer}) {
    const RecurrentLayer layer = RandomRecurrentLayer(cell, kShape, 2, true);
    const Doubles changes =
        ChangesByStep(layer, RecurrentTransformation::kInputWeightsScale, parameters);
    EXPECT_LT(changes[0], 1e-13);
    EXPECT_GT(changes[1], 1e-3);
  }
}

const TheoryAnalysis& TheInvariance() {
  for (const TheoryAnalysis& analysis : Analyses()) {
    if (analysis.name == "invariance") return analysis;
  }
  throw UsageError("no analysis invariance");
}

TEST(Invariance, JudgesTheStatements) {
  for (const double seed : {1, 2}) {
    const TheoryResult result =
        RunAnalysis(TheInvariance(), {{"seed", seed}, {"units", 24}, {"inputs", 7}});
    const TheoryVerdict holds = TheoryVerdict::kHolds, in_part = TheoryVerdict::kHoldsInPart;
    const std::vector<TheoryVerdict> expected = {
        holds, holds, holds, in_part, holds, holds, in_part, TheoryVerdict::kHoldsCorrected, holds};
    ASSERT_EQ(result.statements.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(result.statements[i].verdict, expected[i])
          << result.statements[i].text << result.statements[i].measured;
    }
    EXPECT_EQ(result.tables[0].rows.size(), InvarianceNorms().size());
  }
}

TEST(Invariance, OfChosenNormsAndCells) {
  const TheoryResult result =
      RunAnalysis(TheInvariance(), {{"eps", 0}, {"steps", 2}},
                  {.lists = {{"norm", {"weight", "rms"}}, {"cell", {"lstm"}}}, .runs = {}});
  EXPECT_EQ(result.tables[0].rows.size(), 2u);
  EXPECT_EQ(std::get<std::string>(result.tables[0].rows[1][0]), "rms");
  EXPECT_EQ(result.statements[7].verdict, TheoryVerdict::kHolds);  // with eps = 0
  const TheoryResult without_eps = RunAnalysis(
      TheInvariance(), {}, {.lists = {{"norm", {"dyt"}}, {"cell", {"lstm"}}}, .runs = {}});
  EXPECT_EQ(without_eps.statements.size(), 8u);
}

// Trains for a few updates, so that biases, gains and running estimates are not the initial ones.
template <std::unique_ptr<Task> (*kMake)()>
void CheckLayers(const std::string& norm, const Sets& sets, size_t count) {
  const std::unique_ptr<Task> task = kMake();
  Settings settings = PresetSettings(*task, "smoke", sets);
  settings.Set("norm", norm);
  const auto data = task->Load(settings, {});
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  experiment->model().train();
  LossesOf(*task, *experiment, settings, 4);
  const at::NoGradGuard no_grad;
  experiment->model().eval();
  experiment->model().to(at::kDouble);
  auto& network = dynamic_cast<LinearLayersWithNorms&>(*experiment);
  const auto layers = network.LayersWithNorms(20);
  ASSERT_EQ(layers.size(), count) << norm;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LinearLayersWithNorms::Layer& of = layers[i];
    EXPECT_EQ(of.norm, norm);
    EXPECT_EQ(of.name, "linear" + std::to_string(i));
    if (i + 1 == layers.size()) continue;
    // The outputs in evaluation mode, after relu, are the inputs of the next layer.
    Doubles y = NormalizedOutputs(
        norm, LayerInDouble(of),
        {.eps = of.options.epsilon, .scale = of.options.ada_c, .slope = of.options.ada_k});
    for (double& value : y) value = std::max(value, 0.0);
    // Sums of 784 products of up to 1; variances of batch norm's estimates can be small.
    EXPECT_LT(LargestDifference(y, ToVector(layers[i + 1].x)), 1e-11) << norm;
  }
}

TEST(LayersWithNorms, GiveTheOutputsOfTheModel) {
  for (const std::string& norm : NormNames()) {
    if (norm == "none") continue;
    CheckLayers<MakePiMnist>(norm, {{"depth", "3"}}, norm == "batch" ? 4 : 3);
  }
  CheckLayers<MakePiMnist>("none", {}, 0);
  for (const char* norm : {"layer", "online-1", "online-0.1"}) {
    CheckLayers<MakeOnlineLn>(norm, {}, 3);
  }
  CheckLayers<MakeOnlineLn>("none", {}, 0);
}

}  // namespace
}  // namespace planish::lab
