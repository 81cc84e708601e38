// The analyses that train: closed forms, pairing and measures, against autograd in double.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/theory/analyses.h"
#include "lab/theory/covariate_shift.h"
#include "lab/theory/implicit_learning_rate.h"
#include "lab/theory/paired_training.h"

namespace planish::lab {
namespace {

using Names = std::map<std::string, std::vector<std::string>>;

const TheoryAnalysis& Analysis(const std::string& name) {
  return *std::ranges::find(Analyses(), name, &TheoryAnalysis::name);
}

// Settings that take a fraction of a second.
const std::map<std::string, double> kSmall = {
    {"width", 9}, {"cases", 60}, {"batch", 12}, {"steps", 7}, {"seeds", 3}};

TheoryResult RunSmall(const std::string& name, std::map<std::string, double> settings = {},
                      Names lists = {}) {
  settings.insert(kSmall.begin(), kSmall.end());
  return RunAnalysis(Analysis(name), settings, {.lists = std::move(lists), .runs = {}, .data = {}});
}

// A model in double with random inputs and labels.
struct Problem {
  explicit Problem(const std::string& norm, int64_t depth = 2, int64_t cases = 20)
      : model({.norm = norm,
               .inputs = 11,
               .width = 6,
               .depth = depth,
               .classes = 4,
               .norm_on_logits = norm == "batch",
               .norm_options = {.epsilon = 1e-30}}) {
    model.to(at::kDouble);
    x = at::randn({cases, 11}, at::kDouble);
    labels = at::randint(4, {cases}, at::kLong);
  }

  PixelMlp model;
  at::Tensor x, labels;
};

struct Seeded {
  Seeded() { at::manual_seed(3); }
};

// The model as PyTorch's operators compute it.
at::Tensor Composed(const std::string& norm, std::map<std::string, at::Tensor>& p, at::Tensor x) {
  for (const std::string layer : {"0", "1"}) {
    at::Tensor w = p["linear" + layer + ".weight"];
    if (norm == "weight") {
      w = p["norm" + layer + ".gain"].unsqueeze(1) * w / w.square().sum(1, true).sqrt();
    }
    at::Tensor a = at::linear(x, w, p["linear" + layer + ".bias"]);
    if (norm == "batch" || norm == "layer") {
      const int64_t dim = norm == "batch" ? 0 : 1;
      a = (a - a.mean(dim, true)) / a.var(at::IntArrayRef{dim}, false, true).sqrt();
      a = a * p["norm" + layer + ".norm.weight"] + p["norm" + layer + ".norm.bias"];
    }
    x = a.relu();
  }
  x = at::linear(x, p["linear2.weight"], p["linear2.bias"]);
  if (norm != "batch") return x;
  x = (x - x.mean(0)) / x.var(at::IntArrayRef{0}, false, true).sqrt();
  return x * p["norm2.norm.weight"] + p["norm2.norm.bias"];
}

TEST(ScaleInvariance, IsThatOfAutogradOnComposedOperators) {
  for (const std::string norm : {"none", "weight", "batch", "layer"}) {
    at::manual_seed(3);
    Problem problem(norm);
    std::map<std::string, at::Tensor> p;
    for (const auto& item : problem.model.named_parameters()) {
      p[item.key()] = item.value().detach().clone().requires_grad_(true);
    }
    at::cross_entropy_loss(Composed(norm, p, problem.x), problem.labels).backward();
    double largest = 0, size = 0, weights = 0, gradients = 0, product = 0;
    for (const std::string layer : {"linear0", "linear1"}) {
      at::Tensor w = p[layer + ".weight"].detach(), g = p[layer + ".weight"].grad();
      if (norm == "none" || norm == "layer") {
        w = at::cat({w.flatten(), p[layer + ".bias"].detach()}).unsqueeze(0);
        g = at::cat({g.flatten(), p[layer + ".bias"].grad()}).unsqueeze(0);
      }
      const at::Tensor products = (w * g).sum(1);
      const at::Tensor sizes = w.square().sum(1).sqrt() * g.square().sum(1).sqrt();
      largest = std::max(largest, products.abs().max().item<double>());
      size = std::max(size, sizes.max().item<double>());
      weights += w.square().sum().item<double>();
      gradients += g.square().sum().item<double>();
      product += products.sum().item<double>();
    }
    const ScaleInvariance found = MeasureInvariance(problem.model, {problem.x, problem.labels});
    // Growth of ||w||^2 is lr^2 ||g||^2 - 2 lr w.g with lr = ||w|| / ||g||.
    const double excess = 2 * product / std::sqrt(weights * gradients);
    // Sums of at most 66 products of numbers of magnitude 1, through 3 layers.
    EXPECT_NEAR(found.orthogonality, largest / size, 1e-12) << norm;
    EXPECT_NEAR(found.growth, std::abs(excess), 1e-12) << norm;
    if (norm == "none") {
      EXPECT_GT(found.orthogonality, 1e-3);
      EXPECT_GT(found.growth, 1e-3);
      EXPECT_GT(found.sgd_error, 1e-3);
    } else {
      EXPECT_LT(found.orthogonality, 1e-12) << norm;
      EXPECT_LT(found.growth, 1e-12) << norm;
      // Factors of two round nothing except beside eps; the updates are as long as the weights.
      EXPECT_LT(found.sgd_error, 1e-12) << norm;
      EXPECT_LT(found.adam_error, 1e-12) << norm;
      EXPECT_NEAR(found.sgd_ratio, 0.25, 1e-12) << norm;
      EXPECT_NEAR(found.adam_ratio, 0.5, 1e-12) << norm;
    }
  }
}

TEST(ScaleInvariance, DoesNotChangeTheModelAndNeedsGradients) {
  const Seeded seeded;
  Problem problem("layer");
  const at::Tensor before = problem.model.layers()[0].linear->weight.detach().clone();
  MeasureInvariance(problem.model, {problem.x, problem.labels});
  EXPECT_TRUE(problem.model.layers()[0].linear->weight.equal(before));
  EXPECT_FALSE(problem.model.layers()[0].linear->weight.grad().defined());
  {
    const at::NoGradGuard no_grad;
    problem.model.layers()[2].linear->weight.zero_();  // no gradient reaches the hidden layers
  }
  const ScaleInvariance none = MeasureInvariance(problem.model, {problem.x, problem.labels});
  EXPECT_EQ(none.growth, 0);
  EXPECT_EQ(none.sgd_ratio, 0);
}

// SGD in double through many updates: the squared length is the sum of all squared updates.
TEST(ScaleInvariance, LengthIsTheSumOfAllUpdates) {
  for (const std::string norm : {"weight", "batch", "layer"}) {
    at::manual_seed(5);
    Problem problem(norm);
    const double rate = 0.3;
    const auto vectors = [&] {
      const auto& linear = problem.model.layers()[1].linear;
      return norm == "layer"
                 ? at::cat({linear->weight.flatten(), linear->bias}).detach().unsqueeze(0).clone()
                 : linear->weight.detach().clone();
    };
    at::Tensor expected = vectors().square().sum(1);
    for (int step = 0; step < 50; ++step) {
      at::cross_entropy_loss(problem.model.forward(problem.x), problem.labels).backward();
      const auto& linear = problem.model.layers()[1].linear;
      const at::Tensor g =
          norm == "layer"
              ? at::cat({linear->weight.grad().flatten(), linear->bias.grad()}).unsqueeze(0)
              : linear->weight.grad();
      expected = expected + rate * rate * g.square().sum(1);
      const at::NoGradGuard no_grad;
      for (const at::Tensor& p : problem.model.parameters()) {
        p.sub_(p.grad(), rate);
        p.mutable_grad().reset();
      }
    }
    const at::Tensor length = vectors().square().sum(1);
    // 50 updates, each with rounding as in a single one.
    EXPECT_LT((length / expected - 1).abs().max().item<double>(), 1e-12) << norm;
    EXPECT_GT((length - 1).abs().max().item<double>(), 0.01);
  }
}

TEST(WeightMoves, AreThoseOfKnownAngles) {
  for (const double angle : {0.0, 1e-9, 1e-3, 0.5, 2.0, M_PI}) {
    const at::Tensor w = at::tensor({3.0, 0.0, 0.0, 0.5}, at::kDouble).view({2, 2});
    const double c = std::cos(angle), s = std::sin(angle);
    const at::Tensor rotation = at::tensor({c, s, -s, c}, at::kDouble).view({2, 2});
    const at::Tensor after = 2 * w.matmul(rotation);
    const WeightMoves moves = MeasureMoves(w, after);
    for (const int64_t row : {0, 1}) {
      const double length = row == 0 ? 3 : 0.5;
      EXPECT_EQ(moves.length[row].item<double>(), length);
      // sin(pi) rounds to 1e-16.
      EXPECT_NEAR(moves.angle[row].item<double>(), angle, 1e-15 * (1 + angle));
      const double grown = moves.turned[row].item<double>() + moves.pulled[row].item<double>();
      EXPECT_NEAR(grown, 3 * length * length, 1e-14 * length * length);
    }
  }
  // One is zero: no angle.
  const WeightMoves none = MeasureMoves(at::zeros({1, 3}), at::ones({1, 3}));
  EXPECT_EQ(none.angle.item<double>(), 0);
  EXPECT_EQ(none.turned.item<double>(), 3);
}

class PairedTest : public ::testing::Test {
 protected:
  PairedTest() {
    for (const auto& setting : PairedTrainings::SettingsWith(2, 7))
      values[setting.name] = setting.value;
    for (const auto& [name, value] : kSmall) values[name] = value;
  }
  AnalysisSettings Settings() const {
    return {
        values,
        {.lists = {{"norm", {"none", "weight", "batch", "layer"}}, {"optimizer", {"sgd", "adam"}}},
         .runs = {},
         .data = {}}};
  }
  std::map<std::string, double> values;
};

TEST_F(PairedTest, CasesOfASeedStartAndSeeTheSame) {
  const AnalysisSettings settings = Settings();
  TheoryResult result;
  const PairedTrainings trainings("test", settings, 5, result);
  EXPECT_EQ(result.settings["data"], "drawn digits");
  EXPECT_EQ(trainings.data().valid.x.size(0), 5);
  ASSERT_EQ(trainings.Cases().size(), 8u);
  std::vector<at::Tensor> first, other_seed;
  std::vector<at::Tensor> first_batches;
  for (const TrainingCase& which : trainings.Cases()) {
    DigitTraining training = trainings.Start(which, 0);
    std::vector<at::Tensor> weights, batches;
    for (const auto& [linear, norm, name] : training.model().layers()) {
      weights.push_back(linear->weight.detach().clone());
      weights.push_back(linear->bias.detach().clone());
    }
    for (int step = 0; step < 7; ++step) {  // 5 batches an epoch
      batches.push_back(training.NextBatch().clone());
      EXPECT_TRUE(training.NextBatch().equal(batches.back()));
      EXPECT_TRUE(std::isfinite(training.Step()));
    }
    EXPECT_FALSE(training.model().layers()[0].linear->weight.equal(weights[0])) << which.Name();
    if (first.empty()) {
      first = weights;
      first_batches = batches;
    }
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(weights[i].equal(first[i]));
    for (size_t i = 0; i < batches.size(); ++i) EXPECT_TRUE(batches[i].equal(first_batches[i]));
  }
  EXPECT_FALSE(first_batches[0].equal(first_batches[5]));
  DigitTraining other = trainings.Start(trainings.Cases()[0], 1);
  EXPECT_FALSE(other.model().layers()[0].linear->weight.equal(first[0]));
  EXPECT_FALSE(other.NextBatch().equal(first_batches[0]));
}

// A step of SGD is that of autograd on composed operators.
TEST_F(PairedTest, StepsAreThoseOfAutogradInDouble) {
  const AnalysisSettings settings = Settings();
  TheoryResult result;
  const PairedTrainings trainings("test", settings, 5, result);
  for (const TrainingCase& which : trainings.Cases()) {
    if (which.optimizer != "sgd") continue;
    DigitTraining training = trainings.Start(which, 0);
    std::map<std::string, at::Tensor> p;
    for (const auto& item : training.model().named_parameters()) {
      p[item.key()] = item.value().detach().to(at::kDouble).requires_grad_(true);
    }
    const Tensors batch = TakeCases(trainings.data().train, training.NextBatch());
    const at::Tensor loss =
        at::cross_entropy_loss(Composed(which.norm, p, batch[0].to(at::kDouble)), batch[1]);
    loss.backward();
    // Float, and eps = 1e-5 beside variances from 1e-2.
    EXPECT_NEAR(training.Step(), loss.item<double>(), 2e-3) << which.norm;
    for (const auto& item : training.model().named_parameters()) {
      const at::Tensor& old = p[item.key()];
      const at::Tensor expected = old.detach() - 0.1 * old.grad();
      const double size = 0.1 * old.grad().norm().item<double>();
      const double error = (item.value().detach() - expected).norm().item<double>();
      // A linear layer's bias before batch norm has a gradient of zero.
      EXPECT_LT(error, 5e-3 * size + 1e-6) << which.norm << " " << item.key();
    }
  }
}

TEST_F(PairedTest, ErrorsNameTheSetting) {
  const auto message = [&](const std::string& name, const std::map<std::string, double>& changed) {
    try {
      RunSmall(name, changed, {{"norm", {"weight"}}});
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("shift", {{"batch", 61}}),
            "[analyze shift] --batch must be at most --cases, 60, got 61");
  EXPECT_EQ(
      message("implicit-lr", {{"sgd-lr", 1000}, {"steps", 200}, {"depth", 5}}),
      "[analyze implicit-lr] --sgd-lr must be small enough for a finite loss with norm weight, "
      "got 1000");
}

TEST(ImplicitRate, ClosedFormsHoldAndTablesAddUp) {
  for (const double depth : {1, 3}) {
    const TheoryResult result = RunSmall("implicit-lr", {{"depth", depth}});
    ASSERT_EQ(result.statements.size(), 8u);
    EXPECT_EQ(result.statements[0].verdict, TheoryVerdict::kHoldsCorrected)
        << result.statements[0].measured;
    EXPECT_EQ(result.statements[1].verdict, TheoryVerdict::kHolds) << result.statements[1].measured;
    ASSERT_EQ(result.tables.size(), 4u);
    for (const TheoryTable& table : result.tables) EXPECT_EQ(table.rows.size(), 8u);
    for (const auto& row : result.tables[2].rows) {  // ratio = by rate * by rest
      const auto number = [&](size_t i) { return std::get<double>(row.at(i)); };
      EXPECT_NEAR(number(3), number(5) * number(6), 1e-12 * number(3));
    }
    EXPECT_EQ(result.charts.size(), 6u);
    for (const TheoryChart& chart : result.charts) {
      ASSERT_EQ(chart.lines.size(), 4u);
      for (const TheoryLine& line : chart.lines) EXPECT_EQ(line.points.size(), 7u);
    }
    // The lengths at the start are the same for all norms.
    const double first = result.charts[0].lines[0].points[0].second;
    for (const TheoryLine& line : result.charts[0].lines) {
      EXPECT_EQ(line.points[0].second, first);
    }
    EXPECT_EQ(RenderTheory(result).find("\u2026"), std::string::npos);
  }
}

TEST(ImplicitRate, ClosedFormsHoldForTheSmallestSizesAndManyUpdates) {
  for (const auto& settings : std::vector<std::map<std::string, double>>{
           {{"width", 3}, {"batch", 4}, {"cases", 4}},
           {{"width", 3}, {"batch", 4}, {"steps", 2}, {"depth", 4}},
           {{"width", 33}, {"steps", 150}, {"seeds", 2}},
           {{"sgd-lr", 1e-6}, {"adam-lr", 1e-6}}}) {
    const TheoryResult result = RunSmall("implicit-lr", settings);
    for (const size_t i : {0, 1}) {
      EXPECT_LE(result.statements[i].verdict, TheoryVerdict::kHoldsCorrected)
          << result.statements[i].measured;
    }
  }
}

TEST(ImplicitRate, SgdOnScaleInvariantVectorsIsNotPulled) {
  const TheoryResult result = RunSmall("implicit-lr", {{"steps", 20}});
  for (const auto& row : result.tables[1].rows) {
    const std::string& name = std::get<std::string>(row[0]);
    const double pulled = std::get<double>(row[1]), turned = std::get<double>(row[3]);
    // eps = 1e-5 beside variances from 1e-2 pulls a little.
    if (name == "weight sgd" || name == "batch sgd") {
      EXPECT_LT(std::abs(pulled), 0.05 * turned) << name;
    }
    if (name == "none sgd") {
      EXPECT_GT(std::abs(pulled), turned);
    }
  }
}

TEST(ImplicitRate, ListsChooseCases) {
  const TheoryResult pair =
      RunSmall("implicit-lr", {}, {{"norm", {"none", "layer"}}, {"optimizer", {"adam"}}});
  EXPECT_EQ(pair.tables[0].rows.size(), 2u);
  EXPECT_EQ(pair.charts.size(), 3u);
  EXPECT_EQ(pair.statements.size(), 8u);
  // Without `none`, nothing to compare with; only `none`, nothing to say.
  EXPECT_EQ(RunSmall("implicit-lr", {}, {{"norm", {"batch"}}}).statements.size(), 6u);
  EXPECT_EQ(RunSmall("implicit-lr", {}, {{"norm", {"none"}}}).statements.size(), 0u);
}

TEST(LayerValues, AreThoseOfAutograd) {
  for (const std::string norm : {"none", "weight", "batch", "layer"}) {
    at::manual_seed(7);
    Problem problem(norm), earlier(norm);
    const auto values = MeasureLayers(problem.model, earlier.model, problem.x);
    ASSERT_EQ(values.size(), 2u);
    std::map<std::string, at::Tensor> p, q;
    for (const auto& item : problem.model.named_parameters()) p[item.key()] = item.value().detach();
    for (const auto& item : earlier.model.named_parameters()) q[item.key()] = item.value().detach();
    at::Tensor h = problem.x;
    for (const size_t layer : {0, 1}) {
      const std::string index = std::to_string(layer);
      const auto sums = [&](std::map<std::string, at::Tensor>& of) {
        at::Tensor w = of["linear" + index + ".weight"];
        if (norm == "weight") {
          w = of["norm" + index + ".gain"].unsqueeze(1) * w / w.square().sum(1, true).sqrt();
        }
        return at::linear(h, w, of["linear" + index + ".bias"]);
      };
      const at::Tensor a = sums(p);
      at::Tensor n = a;
      if (norm == "batch" || norm == "layer") {
        const int64_t dim = norm == "batch" ? 0 : 1;
        n = (a - a.mean(dim, true)) / a.var(at::IntArrayRef{dim}, false, true).sqrt();
      }
      const auto error = [](const at::Tensor& x, const at::Tensor& y) {
        return (x - y).abs().max().item<double>();
      };
      // Sums of at most 20 numbers of magnitude 1.
      EXPECT_LT(error(values[layer].sums, a), 1e-13) << norm;
      EXPECT_LT(error(values[layer].from_below, sums(q)), 1e-13) << norm;
      EXPECT_LT(error(values[layer].normalized, n), 1e-12) << norm;
      EXPECT_LT(error(values[layer].outputs, n), 1e-12) << norm;  // gains of 1, biases of 0
      h = n.relu();
    }
  }
}

TEST(Shift, IsThatOfMovedAndScaledUnits) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({50, 3}, at::kDouble);
  const at::Tensor deviation = x.std(0, /*unbiased=*/false);
  const at::Tensor after = (x - x.mean(0)) * at::tensor({1.0, 2.0, 0.5}, at::kDouble) + x.mean(0) +
                           deviation * at::tensor({0.5, 0.0, -1.0}, at::kDouble);
  const Shift shift = MeasureShift(DistributionsOf(x, 0), DistributionsOf(after, 0));
  EXPECT_EQ(shift.count, 3);
  EXPECT_NEAR(shift.mean, 1.25, 1e-13);
  EXPECT_NEAR(shift.variance, 2 * std::pow(std::log(4), 2), 1e-13);
  const Shift of_cases = MeasureShift(DistributionsOf(x.t(), 1), DistributionsOf(after.t(), 1));
  EXPECT_EQ(of_cases.count, 3);
  EXPECT_NEAR(of_cases.mean, 1.25, 1e-13);

  at::Tensor constant = x.clone();
  constant.select(1, 1).fill_(2);
  EXPECT_EQ(MeasureShift(DistributionsOf(constant, 0), DistributionsOf(after, 0)).count, 2);
  EXPECT_EQ(MeasureShift(DistributionsOf(x, 0), DistributionsOf(constant, 0)).count, 2);
  EXPECT_EQ(MeasureShift(DistributionsOf(x, 0), DistributionsOf(x, 0)).mean, 0);
}

TEST(Shift, CorrelationOfColumns) {
  const at::Tensor column = at::tensor({1.0, -2.0, 3.0}, at::kDouble);
  EXPECT_NEAR(ColumnCorrelation(at::stack({column, -5 * column, at::zeros_like(column)}, 1)), 1,
              1e-15);
  EXPECT_NEAR(ColumnCorrelation(at::eye(4, at::kDouble)), 0, 1e-15);
  // Cosines of 0.6, 0 and 0.8: root mean square of three pairs.
  const at::Tensor t = at::tensor({1.0, 0.6, 0.0, 0.0, 0.8, 1.0}, at::kDouble).view({2, 3});
  EXPECT_NEAR(ColumnCorrelation(t), std::sqrt(1.0 / 3), 1e-15);
  EXPECT_TRUE(std::isnan(ColumnCorrelation(at::ones({4, 1}, at::kDouble))));
  EXPECT_TRUE(std::isnan(ColumnCorrelation(at::zeros({4, 3}, at::kDouble))));
}

TEST(ShiftAnalysis, NormsFixWhatTheyFix) {
  for (const double depth : {1, 3}) {
    const TheoryResult result = RunSmall("shift", {{"depth", depth}, {"probe", 33}});
    const size_t offset = depth > 1 ? 1 : 0;  // the correlation needs a layer below
    ASSERT_EQ(result.statements.size(), depth > 1 ? 7u : 4u);
    EXPECT_EQ(result.statements[offset].verdict, TheoryVerdict::kHolds)
        << result.statements[offset].measured;
    EXPECT_EQ(result.statements[offset + 1].verdict, TheoryVerdict::kHolds)
        << result.statements[offset + 1].measured;
    ASSERT_EQ(result.tables.size(), depth > 1 ? 6u : 4u);
    EXPECT_EQ(result.tables[0].rows.size(), static_cast<size_t>(6 * depth));
    EXPECT_EQ(result.tables[2].rows.size(), static_cast<size_t>(4 * depth));
    EXPECT_EQ(result.charts.size(), static_cast<size_t>(4 * depth));
    EXPECT_EQ(RenderTheory(result).find("\u2026"), std::string::npos);
    for (const auto& row : result.tables[0].rows) {
      const auto number = [&](size_t i) { return std::get<double>(row.at(i)); };
      const std::string& name = std::get<std::string>(row[0]);
      for (size_t i : {1, 2, 5, 6}) EXPECT_GT(number(i), 0) << name;
      if (name.starts_with("none")) {
        EXPECT_EQ(number(1), number(5));
        EXPECT_EQ(number(2), number(4));
      }
    }
  }
}

TEST(ShiftAnalysis, ListsChooseCases) {
  const TheoryResult result = RunSmall("shift", {{"depth", 2}, {"probe", 8}},
                                       {{"norm", {"weight", "none"}}, {"optimizer", {"sgd"}}});
  EXPECT_EQ(result.tables[0].rows.size(), 4u);
  EXPECT_EQ(result.statements.size(), 3u);
  EXPECT_EQ(RunSmall("shift", {{"probe", 8}}, {{"norm", {"layer"}}}).statements.size(), 1u);
}

}  // namespace
}  // namespace planish::lab
