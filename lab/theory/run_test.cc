// Analyses of trained runs, against autograd of PyTorch in double.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
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
                                 const Sets& sets, int64_t seed = 3) {
  SweepRequest request{.preset = "smoke", .values = {}, .seeds = {seed}, .out = out};
  for (const auto& [name, value] : sets) request.values.push_back({name, {value}});
  const RunPlan plan = PlanSweep(task, request).front();
  Progress progress(1, ProgressMode::kQuiet);
  EXPECT_EQ(
      Train(task, *task.Load(plan.settings, {}), plan, {{"threads", "1"}}, {.data = {}}, progress),
      Outcome::kFinished);
  return plan.folder;
}

// Returns the runs of a call with one run, or none for an empty path.
std::vector<std::filesystem::path> Runs(const std::filesystem::path& run) {
  return run.empty() ? std::vector<std::filesystem::path>() : std::vector{run};
}

std::string ErrorOf(const std::string& analysis, const std::map<std::string, double>& given,
                    const std::filesystem::path& run) {
  try {
    RunAnalysis(Find(analysis), given, {.lists = {}, .runs = Runs(run), .data = {}});
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
  for (const std::string cell : {"rnn", "ln-gru", "bn-gru", "torch-lstm"}) {
    const std::filesystem::path path = TrainSmoke(task, folder / cell, {{"cell", cell}});
    const lab::Run run = ReadRun(path);
    const TheoryResult result = RunAnalysis(
        Find("stability"), {{"steps", 12}, {"sequences", 4}, {"groups", 2}, {"seed", 5}},
        {.lists = {}, .runs = {path}, .data = {}});
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
        reader.recurrent().train(HasBatchNorm(cell));  // the statistics of the sequences
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
    return ToJson(
        RunAnalysis(Find("stability"), given, {.lists = {}, .runs = Runs(run), .data = {}}));
  };
  EXPECT_EQ(analyze(few).dump(), analyze(few).dump());
  EXPECT_NE(analyze(few)["tables"], analyze(second)["tables"]);
  second["layer"] = 3;
  EXPECT_THAT(ErrorOf("stability", second, run),
              HasSubstr("[analyze stability] --layer must be at most 2 for char-lm, cell ln-lstm, "
                        "seed 3, got 3"));
  EXPECT_THAT(ErrorOf("stability", {{"units", 8}}, run),
              HasSubstr("[analyze stability] --units must not be given with a run, got 8"));
}

// A comparison of runs, from the results of each run by itself.
TEST(PairedStability, IsThatOfTheRunsPairedBySeed) {
  const TestFolder folder;
  const Task& task = FindTask("char-lm");
  const std::map<std::string, double> few = {{"steps", 12}, {"sequences", 4}, {"groups", 2}};
  const std::vector<std::string> cells = {"rnn", "ln-rnn", "bn-rnn", "gru", "bn-gru"};
  std::vector<std::filesystem::path> runs;
  std::map<std::string, std::map<int64_t, std::map<std::string, double>>> rates;
  for (const std::string& cell : cells) {
    for (const int64_t seed : {1, 2, 3}) {
      if (cell == "bn-gru" && seed > 1) continue;
      runs.push_back(TrainSmoke(task, folder / "runs", {{"cell", cell}}, seed));
      const TheoryResult one = RunAnalysis(Find("stability"), few, {.runs = {runs.back()}});
      for (const size_t row : {0, 1}) {
        const auto& values = one.tables[0].rows.at(row);
        rates[cell][seed][std::get<std::string>(values[0]) + " sums"] = std::get<double>(values[1]);
        rates[cell][seed][std::get<std::string>(values[0])] = std::get<double>(values[3]);
      }
    }
  }
  std::vector<std::string> shown;
  const TheoryResult result =
      RunAnalysis(Find("stability"), few,
                  {.runs = runs, .progress = [&](const std::string& t) { shown.push_back(t); }});
  EXPECT_EQ(shown.size(), 2 * runs.size());
  EXPECT_EQ(shown[1], "char-lm, cell rnn, seed 1, group 2 of 2");
  EXPECT_EQ(result.settings["run"], "char-lm, 13 runs");
  EXPECT_EQ(result.settings["seeds"].dump(), "[1,2,3]");
  EXPECT_EQ(result.settings["cells"], cells);
  ASSERT_EQ(result.tables.size(), 2u);
  EXPECT_EQ(result.tables[0].rows.size(), 2 * cells.size());
  EXPECT_EQ(result.charts.size(), 4u);
  for (const TheoryChart& chart : result.charts) EXPECT_EQ(chart.lines.size(), cells.size());

  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"ln-rnn", "rnn"}, {"bn-rnn", "rnn"}, {"bn-gru", "gru"}};
  ASSERT_EQ(result.statements.size(), pairs.size());
  ASSERT_EQ(result.tables[1].rows.size(), 2 * pairs.size());
  for (size_t p = 0; p < pairs.size(); ++p) {
    const auto& [normalized, plain] = pairs[p];
    for (const size_t w : {0, 1}) {
      const std::string weights = w == 0 ? "at initialization" : "trained";
      const auto& row = result.tables[1].rows[2 * p + w];
      EXPECT_EQ(std::get<std::string>(row[0]), normalized + " - " + plain);
      EXPECT_EQ(std::get<std::string>(row[1]), w == 0 ? "initial" : "trained");
      for (const bool sums : {true, false}) {
        std::vector<double> differences;
        for (auto& [seed, with] : rates[normalized]) {
          const std::string key = weights + (sums ? " sums" : "");
          differences.push_back(std::abs(with[key]) - std::abs(rates[plain][seed][key]));
        }
        const Estimate expected = EstimateMean(differences);
        EXPECT_NEAR(std::get<double>(row[sums ? 3 : 5]), expected.mean, 1e-12) << row.size();
        if (expected.half_width) {
          EXPECT_NEAR(std::get<double>(row[sums ? 4 : 6]), *expected.half_width, 1e-12);
        } else {
          EXPECT_TRUE(std::isnan(std::get<double>(row[sums ? 4 : 6])));
        }
        if (sums || w == 0) continue;
        const int sign = SureSign(expected);
        EXPECT_EQ(result.statements[p].verdict, sign < 0   ? TheoryVerdict::kHolds
                                                : sign > 0 ? TheoryVerdict::kFails
                                                           : TheoryVerdict::kCannotTell);
      }
    }
  }
  EXPECT_EQ(result.statements[0].text,
            "Layer normalization makes the hidden-to-hidden dynamics of the trained rnn more "
            "stable (ln-rnn).");
  EXPECT_EQ(result.statements[2].measured,
            "no verdict: it needs at least 2 seeds with runs of bn-gru and gru, and there is 1");

  // The mean over seeds of a cell's rate.
  const auto& row = result.tables[0].rows.at(3);  // ln-rnn, trained
  const SeedValues trained = {{1, rates["ln-rnn"][1]["trained"]},
                              {2, rates["ln-rnn"][2]["trained"]},
                              {3, rates["ln-rnn"][3]["trained"]}};
  EXPECT_NEAR(std::get<double>(row[5]), EstimateMean(trained).mean, 1e-12);
}

TEST(PairedStability, NeedsComparableRuns) {
  const TestFolder folder;
  const Task& task = FindTask("char-lm");
  const auto train = [&](const std::string& out, const Sets& sets) {
    return TrainSmoke(task, folder / out, sets).string();
  };
  const std::string rnn = train("a", {{"cell", "rnn"}}), gru = train("a", {{"cell", "gru"}}),
                    ln_rnn = train("a", {{"cell", "ln-rnn"}}),
                    wide = train("b", {{"cell", "ln-rnn"}, {"hidden", "20"}}),
                    text = train("b", {{"cell", "ln-rnn"}, {"characters", "9000"}}),
                    pi_mnist = TrainSmoke(FindTask("pi-mnist"), folder / "c", {}).string();
  const auto error = [&](const std::vector<std::filesystem::path>& runs) -> std::string {
    try {
      RunAnalysis(Find("stability"), {{"steps", 8}, {"groups", 2}}, {.runs = runs});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string begin = "[analyze stability] ";
  EXPECT_EQ(error({rnn, wide}),
            begin + wide + " must have the setting hidden of " + rnn + ", 16, got 20");
  EXPECT_EQ(error({rnn, text}), begin + text + " must have the data of " + rnn +
                                    ", synthetic plays, got another version of it");
  EXPECT_EQ(error({rnn, ln_rnn, rnn}),
            begin + "RUN must be one for each cell and seed, got char-lm, cell rnn, seed 3 twice");
  EXPECT_EQ(error({rnn, gru}),
            begin + "RUN must be of a cell with norms and of the same cell without, got rnn, gru");
  EXPECT_THAT(error({rnn, pi_mnist}), HasSubstr(begin + "RUN must be of a task that reads long "));
  EXPECT_EQ(error({rnn, ln_rnn}), "no error");
  const std::string wide_rnn = train("b", {{"cell", "rnn"}, {"hidden", "20"}});
  EXPECT_EQ(
      RunAnalysis(Find("stability"), {{"steps", 8}, {"groups", 2}}, {.runs = {wide, wide_rnn}})
          .settings["run"],
      "char-lm, hidden 20, 2 runs");
  // One run of each cell has no verdict.
  const TheoryResult one =
      RunAnalysis(Find("stability"), {{"steps", 8}, {"groups", 2}}, {.runs = {rnn, ln_rnn}});
  EXPECT_EQ(one.statements.at(0).verdict, TheoryVerdict::kCannotTell);
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
    const TheoryResult result = RunAnalysis(Find("gradients"), {{"batches", 2}},
                                            {.lists = {}, .runs = Runs(run), .data = {}});
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
  const TheoryResult result = RunAnalysis(Find("gradients"), {{"batches", 2}},
                                          {.lists = {}, .runs = Runs(run), .data = {}});
  ASSERT_EQ(result.statements.size(), 1u);
  EXPECT_EQ(result.statements[0].verdict, TheoryVerdict::kHolds) << result.statements[0].measured;
  EXPECT_EQ(result.tables[0].rows.size(), 5u);  // two in each of two layers, and the last
  EXPECT_THAT(ErrorOf("gradients", {{"rows", 3}}, run),
              HasSubstr("[analyze gradients] --rows must not be given with a run, got 3"));
  EXPECT_THAT(ErrorOf("gradients", {{"batches", 3}}, {}),
              HasSubstr("[analyze gradients] --batches must not be given without a run, got 3"));
  EXPECT_THAT(ErrorOf("stability", {}, run),
              HasSubstr("[analyze stability] RUN must be of a task that reads long sequences with "
                        "recurrent layers, got rt, norm layer, seed 3"));
}

}  // namespace
}  // namespace planish::lab
