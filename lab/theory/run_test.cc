// Analyses of trained runs, against autograd of PyTorch in double.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/base/random.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/trained.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/model/recurrent.h"
#include "lab/tasks/task_testing.h"
#include "lab/tasks/tasks.h"
#include "lab/theory/analyses.h"
#include "lab/theory/recurrent_stability.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

const TheoryAnalysis& Find(const std::string& name) {
  for (const TheoryAnalysis& analysis : Analyses()) {
    if (analysis.name == name) return analysis;
  }
  throw std::out_of_range(name);
}

// Trains a smoke run on the embedded data. Returns its folder.
std::filesystem::path TrainSmoke(const Task& task, const std::filesystem::path& out,
                                 const Sets& sets) {
  SweepRequest request{.preset = "smoke", .values = {}, .seeds = {3}, .out = out};
  for (const auto& [name, value] : sets) request.values.push_back({name, {value}});
  const RunPlan plan = PlanSweep(task, request).front();
  Progress progress(1, ProgressMode::kQuiet);
  EXPECT_EQ(
      Train(task, *task.Load(plan.settings, {}), plan, {{"threads", "1"}}, {.data = {}}, progress),
      Outcome::kFinished);
  return plan.folder;
}

std::string ErrorOf(const std::string& analysis, const std::map<std::string, double>& given,
                    const std::filesystem::path& run) {
  try {
    RunAnalysis(Find(analysis), given, {.lists = {}, .run = run, .data = {}});
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

// One step of a module at a time.
struct Unrolled {
  std::vector<at::Tensor> h;     // [B, H] of each step, of the last layer
  std::vector<at::Tensor> grad;  // dL/dh_t with c_t held constant
};

// `loss` maps the last h to a scalar. The module has one layer.
Unrolled Unroll(RecurrentModule& module, const at::Tensor& x,
                const std::function<at::Tensor(const at::Tensor&)>& loss) {
  const at::AutoGradMode enabled(true);
  Unrolled all;
  at::Tensor state = module.ZeroState(x.size(1)).to(at::kDouble);
  for (int64_t t = 0; t < x.size(0); ++t) {
    const at::Tensor next = module.forward(x.slice(0, t, t + 1), state).second;
    // h is a node of the graph beside c.
    all.h.push_back(next[0][0] * 1);
    if (t == 0) all.h.back().requires_grad_(true);
    state = at::cat({all.h.back().unsqueeze(0).unsqueeze(0), next.slice(0, 1)});
  }
  all.grad = torch::autograd::grad({loss(all.h.back())}, all.h);
  return all;
}

double Size(const at::Tensor& t) { return t.square().mean().sqrt().item<double>(); }

at::Tensor ToTensor(const std::vector<double>& values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kDouble).view(sizes);
}

// Every cell with random parameters, with PyTorch's operators and autograd as the oracle.
TEST(RecurrentLayers, GiveTheDynamicsOfTheModule) {
  for (const std::string& cell : CellNames()) {
    for (const int64_t heads : {1, 2}) {
      const bool is_torch = cell.starts_with("torch");
      if (is_torch && heads > 1) continue;
      at::manual_seed(11);
      const auto module =
          MakeRecurrent(cell, {.inputs = 3, .hidden = 6, .heads = heads, .composed = !is_torch});
      module->to(at::kDouble);
      for (at::Tensor& p : module->parameters()) {
        const at::NoGradGuard no_grad;
        p.add_(at::randn_like(p) * 0.3);
      }
      const at::Tensor x = at::randn({7, 4, 3}, at::kDouble), dh_n = at::randn({4, 6}, at::kDouble);
      const Unrolled expected =
          Unroll(*module, x, [&](const at::Tensor& h) { return (h * dh_n).sum(); });
      const RecurrentParams layer = module->Layers().at(0);
      const Dynamics dynamics =
          MeasureDynamics({.cell = layer.cell,
                           .shape = {.time = 7, .batch = 4, .inputs = 3, .hidden = 6},
                           .x = x.const_data_ptr<double>(),
                           .params = layer.params,
                           .dh_n = dh_n.const_data_ptr<double>(),
                           .eps = layer.epsilon});
      // Seven steps of sums of at most nine terms.
      EXPECT_TRUE(ToTensor(dynamics.h, {7, 4, 6}).allclose(at::stack(expected.h), 1e-12, 1e-12))
          << cell;
      const at::Tensor grad = at::stack(expected.grad);
      EXPECT_TRUE(ToTensor(dynamics.dh, {7, 4, 6}).allclose(grad, 1e-10, 1e-12)) << cell;
      for (int64_t t = 0; t < 7; ++t) {
        EXPECT_NEAR(dynamics.gradient_size[static_cast<size_t>(t)], Size(grad[t]),
                    1e-11 * Size(grad[t]))
            << cell;
      }
    }
  }
}

TEST(RecurrentLayers, AreThoseOfAStack) {
  for (const std::string& cell : CellNames()) {
    at::manual_seed(12);
    const auto module = MakeRecurrent(cell, {.inputs = 3, .hidden = 4, .layers = 3});
    module->to(at::kDouble);
    const at::Tensor x = at::randn({5, 2, 3}, at::kDouble);
    at::Tensor y = x;
    const std::vector<RecurrentParams> layers = module->Layers();
    ASSERT_EQ(layers.size(), 3u);
    for (const RecurrentParams& layer : layers) {
      const Dynamics dynamics = MeasureDynamics(
          {.cell = layer.cell,
           .shape = {.time = 5, .batch = 2, .inputs = layer.inputs, .hidden = layer.hidden},
           .x = y.const_data_ptr<double>(),
           .params = layer.params,
           .eps = layer.epsilon});
      y = ToTensor(dynamics.h, {5, 2, 4});
    }
    const at::NoGradGuard no_grad;
    const at::Tensor expected = module->forward(x, module->ZeroState(2).to(at::kDouble)).first;
    EXPECT_TRUE(y.allclose(expected, 1e-12, 1e-12)) << cell;
  }
}

const TheoryLine& LineIn(const TheoryResult& result, size_t chart, const std::string& name) {
  for (const TheoryLine& line : result.charts.at(chart).lines) {
    if (line.name == name) return line;
  }
  throw std::out_of_range(name);
}

// Rebuilds the growth of one layer of a run from the module in double and autograd.
TEST(RunStability, IsThatOfTheModelInDouble) {
  const TestFolder folder;
  const Task& task = FindTask("char-lm");
  for (const std::string cell : {"rnn", "ln-gru", "torch-lstm"}) {
    const std::filesystem::path path = TrainSmoke(task, folder / cell, {{"cell", cell}});
    const lab::Run run = ReadRun(path);
    const TheoryResult result = RunAnalysis(
        Find("stability"), {{"steps", 12}, {"sequences", 4}, {"groups", 2}, {"seed", 5}},
        {.lists = {}, .run = path, .data = {}});
    EXPECT_EQ(result.settings["run"], "char-lm, cell " + cell + ", seed 3");
    EXPECT_FALSE(result.settings.contains("units"));
    ASSERT_EQ(result.statements.size(), 4u);
    for (const std::string weights : {"trained", "at initialization"}) {
      const Trained trained = OpenTrained(task, run, {});
      const std::unique_ptr<Experiment> initial = OpenInitial(task, run, *trained.data);
      Experiment& experiment = weights == "trained" ? *trained.experiment : *initial;
      std::vector<double> rates, log_sums(12), log_gradients(12);
      for (int64_t group = 0; group < 2; ++group) {
        at::Generator generator = at::detail::createCPUGenerator(MixedSeed({5, group}));
        experiment.model().to(at::kFloat);
        auto& reader = dynamic_cast<SequenceReader&>(experiment);
        auto [x, target] = reader.ReadSequences(12, 4, generator);
        ASSERT_EQ(x.sizes(), (std::vector<int64_t>{12, 4, 8}));
        x = x.detach().to(at::kDouble);
        experiment.model().to(at::kDouble);
        const Unrolled unrolled = Unroll(
            reader.recurrent(), x, [&](const at::Tensor& h) { return reader.LastLoss(h, target); });
        const auto parameters = experiment.model().named_parameters();
        const at::Tensor& w_ih = *parameters.find("recurrent.layer.weight_ih_l0");
        const at::Tensor& w_hh = *parameters.find("recurrent.layer.weight_hh_l0");
        std::vector<double> gradients;
        for (int64_t t = 0; t < 12; ++t) {
          at::Tensor sums = at::linear(x[t], w_ih);
          if (t > 0) sums = sums + at::linear(unrolled.h[static_cast<size_t>(t - 1)], w_hh);
          const auto index = static_cast<size_t>(t);
          log_sums[index] += std::log(Size(sums));
          gradients.push_back(Size(unrolled.grad[11 - index]));
          log_gradients[index] += std::log(gradients.back());
        }
        rates.push_back(GrowthRate(gradients));
      }
      const TheoryLine &sums = LineIn(result, 0, weights), &gradients = LineIn(result, 1, weights);
      for (size_t t = 0; t < 12; ++t) {
        // Tens of roundings, amplified over twelve steps.
        EXPECT_NEAR(std::log(sums.points.at(t).second), log_sums[t] / 2, 1e-10) << cell << weights;
        EXPECT_NEAR(std::log(gradients.points.at(t).second), log_gradients[t] / 2, 1e-10) << cell;
      }
      const auto& row = result.tables[0].rows.at(weights == "trained" ? 1 : 0);
      EXPECT_NEAR(std::get<double>(row.at(3)), (rates[0] + rates[1]) / 2, 1e-10);
    }
  }
}

TEST(RunStability, MeasuresEachLayerOfAStack) {
  const TestFolder folder;
  const std::filesystem::path run =
      TrainSmoke(FindTask("char-lm"), folder / "runs", {{"cell", "ln-lstm"}, {"layers", "2"}});
  const std::map<std::string, double> few = {{"steps", 16}, {"sequences", 4}, {"groups", 3}};
  std::map<std::string, double> second = few;
  second["layer"] = 2;
  const auto analyze = [&](const std::map<std::string, double>& given) {
    return ToJson(RunAnalysis(Find("stability"), given, {.lists = {}, .run = run, .data = {}}));
  };
  EXPECT_EQ(analyze(few).dump(), analyze(few).dump());
  EXPECT_NE(analyze(few)["tables"], analyze(second)["tables"]);
  second["layer"] = 3;
  EXPECT_THAT(ErrorOf("stability", second, run),
              HasSubstr("[analyze stability] layer must be at most 2 for char-lm, cell ln-lstm, "
                        "seed 3, got 3"));
  EXPECT_THAT(ErrorOf("stability", {{"units", 8}}, run),
              HasSubstr("[analyze stability] units must not be given with a run, got 8"));
}

TEST(RunGradients, TheoremHoldsInEveryNormThatCentresRows) {
  const TestFolder folder;
  const Task& task = FindTask("pi-mnist");
  for (const std::string& norm : NormNames()) {
    const std::filesystem::path run = TrainSmoke(task, folder / norm, {{"norm", norm}});
    if (!MakeNorm(norm, {8})->Paths()) {
      EXPECT_THAT(ErrorOf("gradients", {}, run),
                  HasSubstr("[analyze gradients] RUN must have a norm of Theorem 1, which centres "
                            "rows, in a layer, got pi-mnist, norm " +
                            norm + ", seed 3"));
      continue;
    }
    const TheoryResult result =
        RunAnalysis(Find("gradients"), {{"batches", 2}}, {.lists = {}, .run = run, .data = {}});
    ASSERT_EQ(result.statements.size(), 1u) << norm;
    EXPECT_EQ(result.statements[0].verdict,
              norm == "detach-std" ? TheoryVerdict::kHoldsCorrected : TheoryVerdict::kHolds)
        << norm << result.statements[0].measured;
    ASSERT_EQ(result.tables[1].rows.size(), 3u);
    // The output layer has no norm.
    EXPECT_EQ(std::get<std::string>(result.tables[1].rows[2].at(3)), "-");
    for (const auto& row : {result.tables[1].rows[0], result.tables[1].rows[1]}) {
      const double ratio = std::get<double>(row.at(3));
      if (norm == "detach" || norm == "detach-std") {
        EXPECT_NEAR(ratio, 1, 1e-5) << norm;  // rounding of float
      } else {
        EXPECT_LT(ratio, 1) << norm;
        EXPECT_GT(ratio, 0.1) << norm;
      }
      EXPECT_EQ(std::get<double>(row.at(4)), 0) << norm;
    }
  }
}

TEST(RunGradients, OfATransformerAreThoseOfAllNorms) {
  const TestFolder folder;
  const std::filesystem::path run =
      TrainSmoke(FindTask("rt"), folder / "runs", {{"norm", "layer"}, {"train_cases", "100"}});
  const TheoryResult result =
      RunAnalysis(Find("gradients"), {{"batches", 2}}, {.lists = {}, .run = run, .data = {}});
  ASSERT_EQ(result.statements.size(), 1u);
  EXPECT_EQ(result.statements[0].verdict, TheoryVerdict::kHolds) << result.statements[0].measured;
  EXPECT_EQ(result.tables[0].rows.size(), 5u);  // two in each of two layers, and the last
  EXPECT_THAT(ErrorOf("gradients", {{"rows", 3}}, run),
              HasSubstr("[analyze gradients] rows must not be given with a run, got 3"));
  EXPECT_THAT(ErrorOf("gradients", {{"batches", 3}}, {}),
              HasSubstr("[analyze gradients] batches must not be given without a run, got 3"));
  EXPECT_THAT(ErrorOf("stability", {}, run),
              HasSubstr("[analyze stability] RUN must be of a task that reads long sequences with "
                        "recurrent layers, got rt, norm layer, seed 3"));
}

}  // namespace
}  // namespace planish::lab
