#include "lab/tasks/draw/draw.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/draw/cases.h"
#include "lab/tasks/draw/model.h"
#include "lab/tasks/draw/picture.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

const std::vector<std::string> kDrawNorms = {"none", "layer", "layer-full"};

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Reference: DRAW by the equations in model.h and attention.h, one grid point at a time.
struct WrittenOut {
  std::map<std::string, at::Tensor> p;
  DrawModel::Options o;

  // [B, n, A] from [B].
  at::Tensor Filters(const at::Tensor& g, const at::Tensor& log_delta,
                     const at::Tensor& log_variance, int64_t n) const {
    const auto a = static_cast<double>(o.side);
    std::vector<at::Tensor> rows;
    for (int64_t i = 1; i <= n; ++i) {
      const at::Tensor stride = n > 1 ? (a - 1) / static_cast<double>(n - 1) * log_delta.exp()
                                      : at::zeros_like(log_delta);
      const at::Tensor mu = (a + 1) / 2 * (g + 1) +
                            (static_cast<double>(i) - static_cast<double>(n) / 2 - 0.5) * stride;
      std::vector<at::Tensor> weights;
      for (int64_t pixel = 1; pixel <= o.side; ++pixel) {
        weights.push_back(
            (-(static_cast<double>(pixel) - mu).square() / (2 * log_variance.exp())).exp());
      }
      const at::Tensor row = at::stack(weights, 1);
      rows.push_back(row / row.sum(1, /*keepdim=*/true));
    }
    return at::stack(rows, 1);
  }

  at::Tensor HeadOf(const at::Tensor& h) const {
    return at::linear(h, p.at("head.weight"), p.at("head.bias"));
  }

  at::Tensor Read(const at::Tensor& h, const at::Tensor& x, const at::Tensor& shown) const {
    const at::Tensor k = HeadOf(h);
    const auto column = [&](int64_t i) { return k.select(1, i); };
    const at::Tensor fx = Filters(column(0), column(4), column(6), o.read);
    const at::Tensor fy = Filters(column(1), column(4), column(6), o.read);
    const auto glimpse = [&](const at::Tensor& image) {
      return at::einsum("bia,bac,bjc->bij", {fy, image, fx}).flatten(1);
    };
    return column(8).exp().unsqueeze(1) * at::cat({glimpse(x), glimpse(x - shown)}, 1);
  }

  at::Tensor Written(const at::Tensor& h) const {
    const at::Tensor k = HeadOf(h);
    const auto column = [&](int64_t i) { return k.select(1, i); };
    const at::Tensor fx = Filters(column(2), column(5), column(7), o.write);
    const at::Tensor fy = Filters(column(3), column(5), column(7), o.write);
    const at::Tensor patch = k.slice(1, 10).view({-1, o.write, o.write});
    return at::einsum("bia,bij,bjc->bac", {fy, patch, fx}) / column(9).exp().view({-1, 1, 1});
  }

  void Step(const std::string& name, const at::Tensor& x, at::Tensor& h, at::Tensor& c) const {
    const auto get = [&](const std::string& key) { return p.at(name + ".layer." + key); };
    const auto norm = [&](const at::Tensor& t, const std::string& key) {
      return at::layer_norm(t, {t.size(1)}, get(key + "_weight"), get(key + "_bias"), o.epsilon);
    };
    at::Tensor from_x = at::linear(x, get("weight_ih")), from_h = at::linear(h, get("weight_hh"));
    at::Tensor bias = get("bias_ih");
    if (o.cell == "ln-lstm") {
      from_x = norm(from_x, "ln_ih");
      from_h = norm(from_h, "ln_hh");
    } else {
      bias = bias + get("bias_hh");
    }
    const std::vector<at::Tensor> gates = (from_x + from_h + bias).chunk(4, 1);  // i, f, g, o
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    h = gates[3].sigmoid() * (o.cell == "lstm" ? c : norm(c, "ln_c")).tanh();
  }

  // Returns nats of each case. If `x` is undefined, returns the canvases of codes equal to the
  // noise.
  at::Tensor Run(const at::Tensor& x, const at::Tensor& noise) const {
    const int64_t batch = noise.size(1);
    const auto start = [&](const std::string& name, int64_t i) {
      return p.at(name)[i].unsqueeze(0).repeat({batch, 1});
    };
    at::Tensor e = start("encoder_start", 0), ec = start("encoder_start", 1);
    at::Tensor h = start("decoder_start", 0), hc = start("decoder_start", 1);
    at::Tensor canvas = p.at("canvas_start").unsqueeze(0).repeat({batch, 1, 1});
    at::Tensor nats = at::zeros({batch}, at::kDouble);
    std::vector<at::Tensor> canvases;
    for (int64_t t = 0; t < noise.size(0); ++t) {
      at::Tensor z = noise[t];
      if (x.defined()) {
        Step("encoder", at::cat({Read(h, x, canvas.sigmoid()), h}, 1), e, ec);
        const at::Tensor mean = at::linear(e, p.at("posterior.weight").slice(0, 0, o.latents),
                                           p.at("posterior.bias").slice(0, 0, o.latents));
        const at::Tensor log_sigma = at::linear(e, p.at("posterior.weight").slice(0, o.latents),
                                                p.at("posterior.bias").slice(0, o.latents));
        z = mean + log_sigma.exp() * z;
        // KL divergence of N(mean, sigma^2) from N(0, 1) (Gregor et al. 2015, Eq. 11).
        nats =
            nats +
            (mean.square() + log_sigma.exp().square() - log_sigma.exp().square().log() - 1).sum(1) /
                2;
      }
      Step("decoder", z, h, hc);
      canvas = canvas + Written(h);
      canvases.push_back(canvas.sigmoid().flatten(1));
    }
    if (!x.defined()) return at::stack(canvases);
    const at::Tensor ink = canvas.sigmoid();
    return nats - (x * ink.log() + (1 - x) * (1 - ink).log()).sum({1, 2});
  }
};

class DrawModelTest : public ::testing::TestWithParam<std::string> {
 protected:
  // A small model in double with random parameters, including gains and first states.
  void SetUp() override {
    at::manual_seed(3);
    options = {.cell = GetParam(), .side = 7, .hidden = 6, .latents = 3, .read = 2, .write = 3};
    model = std::make_shared<DrawModel>(options);
    model->to(at::kDouble);
    at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) item.value().normal_(0, 0.4);
    written = {.p = {}, .o = options};
    for (auto& item : model->named_parameters()) {
      written.p[item.key()] = item.value().detach().clone().requires_grad_(true);
    }
    x = at::bernoulli(at::full({4, 49}, 0.4, at::kDouble));
    noise = at::randn({3, 4, 3}, at::kDouble);
  }

  DrawModel::Options options;
  std::shared_ptr<DrawModel> model;
  WrittenOut written;
  at::Tensor x, noise;
};

TEST_P(DrawModelTest, ComputesTheBoundAndItsGradients) {
  const auto [reconstruction, kl] = model->forward(x, noise);
  const at::Tensor expected = written.Run(x.view({4, 7, 7}), noise);
  // Sums of some hundred terms of order 1, in double.
  EXPECT_LT(Difference(reconstruction + kl, expected), 1e-10);
  (reconstruction + kl).mean().backward();
  expected.mean().backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_LT(Difference(item.value().grad(), written.p.at(item.key()).grad()), 1e-10)
        << item.key();
  }
}

TEST_P(DrawModelTest, GeneratesFromThePrior) {
  at::NoGradGuard no_grad;
  const DrawModel::Drawing drawing = model->Generate(noise);
  EXPECT_LT(Difference(drawing.canvases, written.Run({}, noise)), 1e-12);
  EXPECT_EQ(drawing.windows.sizes(), at::IntArrayRef({3, 4, 4}));
}

INSTANTIATE_TEST_SUITE_P(All, DrawModelTest, ::testing::Values("lstm", "draw-lstm", "ln-lstm"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::erase(name, '-');
                           return name;
                         });

// Codes equal to the prior have no cost, and the cross entropy of a blank canvas is 784 ln 2.
TEST(DrawModel, BoundOfABlankModelIsKnown) {
  DrawModel model({.hidden = 4, .latents = 2});
  at::NoGradGuard no_grad;
  for (at::Tensor& p : model.parameters()) p.zero_();
  const auto [reconstruction, kl] = model.forward(at::ones({2, 784}), at::randn({3, 2, 2}));
  EXPECT_EQ(kl.abs().max().item<double>(), 0);
  // A sum of 784 floats.
  EXPECT_LT((reconstruction - 784 * std::log(2)).abs().max().item<double>(), 1e-3);
}

TEST(DrawModel, HasThePapersSize) {
  const auto size = [](const std::string& cell) {
    return ParameterCount(DrawModel({.cell = cell}));
  };
  // PyTorch's LSTMs of 8 + 256 and of 100 inputs, and two states of 256 for each. Two linear layers
  // of 256 inputs with 2 x 100 and 10 + 25 outputs. The canvas.
  const int64_t plain = ParameterCount(*torch::nn::LSTMCell(264, 256)) +
                        ParameterCount(*torch::nn::LSTMCell(100, 256)) + 257 * 200 + 257 * 35 +
                        4 * 256 + 784;
  EXPECT_EQ(plain, 963'323);
  EXPECT_EQ(size("lstm"), plain);
  EXPECT_EQ(size("draw-lstm"), plain + 2 * 2 * 256);
  // Norms of two products and of c, and one bias instead of two.
  EXPECT_EQ(size("ln-lstm"), plain + 2 * (2 * 2 * 1024 + 2 * 256 - 1024));
}

TEST(SelectiveAttention, FiltersAreAtTheirCentres) {
  const SelectiveAttention attention(28, 2, 5);
  // All 0: centre (1 + 28) / 2, delta~ = 1, sigma = 1, gamma = 1.
  at::Tensor parameters = at::zeros({2, SelectiveAttention::kParameters}, at::kDouble);
  // The second case reads from the left edge with filters as narrow as a pixel, and writes far
  // outside.
  const at::Tensor second = parameters[1];
  second[0] = 4.0 * 2 / 29 - 1;  // g_X = 4
  second[4] = std::log(2.0 / 27);
  second[6] = -8;
  second[2] = 1000;
  second[8] = std::log(3.0);
  second[9] = std::log(5.0);
  const auto f = attention.MakeFilters(parameters);
  for (const at::Tensor& filters : {f.read_x, f.read_y, f.write_x, f.write_y}) {
    // Rounding of 28 terms.
    EXPECT_LT((filters.sum(2) - 1).abs().max().item<double>(), 1e-14);
    EXPECT_TRUE(filters.isfinite().all().item<bool>());
  }
  const at::Tensor pixels = at::arange(1, 29, at::kDouble);
  const auto centres = [&](const at::Tensor& filters) { return (filters * pixels).sum(1); };
  // 5 filters over 27 pixels; the outer ones are cut off by the edge.
  const at::Tensor written = centres(f.write_x[0]);
  for (int64_t i = 1; i <= 3; ++i) {
    // Minus the tails beyond the edge, 7 deviations away and more.
    EXPECT_NEAR(written[i].item<double>(), 1 + 6.75 * static_cast<double>(i), 1e-7);
  }
  EXPECT_NEAR(written[2].item<double>() - pixels.mean().item<double>(), 0, 1e-12);
  EXPECT_NEAR(centres(f.read_x[1])[0].item<double>(), 3, 1e-9);
  EXPECT_NEAR(centres(f.read_x[1])[1].item<double>(), 5, 1e-9);
  EXPECT_NEAR(centres(f.write_x[1])[0].item<double>(), 28, 1e-9);  // the nearest pixel
  EXPECT_EQ(f.read_gain.flatten()[0].item<double>(), 1);
  EXPECT_NEAR(f.read_gain.flatten()[1].item<double>(), 3, 1e-15);
  EXPECT_NEAR(f.write_gain.flatten()[1].item<double>(), 0.2, 1e-16);
  const at::Tensor windows = attention.WriteWindows(parameters);
  EXPECT_LT(Difference(windows[0], at::tensor({14.5, 14.5, 27.0, 1.0}, at::kDouble)), 1e-12);
}

// Gradients through a grid far outside the image: a quotient would be 0 / 0.
TEST(SelectiveAttention, StaysDifferentiableOutsideOfTheImage) {
  const SelectiveAttention attention(28, 1, 2);
  at::Tensor parameters = at::zeros({1, SelectiveAttention::kParameters});
  parameters.slice(1, 0, 4).fill_(50);
  parameters.requires_grad_(true);
  const auto f = attention.MakeFilters(parameters);
  const at::Tensor x = at::rand({1, 28, 28});
  const at::Tensor canvas = attention.Write(f, at::ones({1, 4}), x);
  (attention.Read(f, x, canvas).sum() + canvas.sum()).backward();
  EXPECT_TRUE(parameters.grad().isfinite().all().item<bool>());
}

TEST(ShownGlimpses, AreEvenlySpread) {
  EXPECT_THAT(ShownGlimpses(3, 16), ElementsAre(1, 2, 3));
  EXPECT_THAT(ShownGlimpses(64, 4), ElementsAre(16, 32, 48, 64));
  EXPECT_THAT(ShownGlimpses(5, 2), ElementsAre(2, 5));
}

TEST(DrawCanvases, IsAnSvgOfAllThatIsShown) {
  const DrawModel::Drawing drawing = {at::rand({3, 2, 784}), at::full({3, 2, 4}, 1e30)};
  const std::string svg = DrawCanvases(drawing, {1, 3});
  EXPECT_THAT(svg, StartsWith(std::string(kSvgBegin) +
                              "width=\"120\" height=\"120\" viewBox=\"0 0 60 60\"><image "));
  EXPECT_THAT(svg, HasSubstr("href=\"data:image/png;base64,iVBORw0KGgo"));
  EXPECT_TRUE(svg.ends_with("</g></svg>"));
  size_t windows = 0;
  for (size_t at = 0; (at = svg.find("<rect", at)) != std::string::npos; ++at) ++windows;
  EXPECT_EQ(windows, 4u);
  EXPECT_LT(svg.size(), 8'000u);  // even for noise, and with values that cannot be drawn
}

class DrawTest : public TaskTest<MakeDraw> {
 protected:
  // Returns the experiment that Train would make of `sets` for seed 5.
  std::unique_ptr<Experiment> Make(const Dataset& data, const Sets& sets = {}) {
    at::manual_seed(5);
    auto experiment = task->Make(Smoke(sets), data);
    experiment->model().train();
    return experiment;
  }

  // Returns the losses of the first updates.
  std::vector<double> Losses(const Dataset& data, int64_t count, const Sets& sets) {
    const auto experiment = Make(data, sets);
    return LossesOf(*task, *experiment, Smoke(sets), count);
  }
};

TEST_F(DrawTest, StartsEveryNormFromTheSameWeightsAndNoise) {
  const auto data = task->Load(Smoke(), {});
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : kDrawNorms) {
    for (const std::string cell : {"fused", "composed"}) {
      const auto experiment = Make(*data, {{"norm", norm}, {"cell", cell}});
      std::map<std::string, at::Tensor> now = {
          {"noise", experiment->Batch(at::arange(0, 3)).at(1)}};
      for (const auto& item : experiment->model().named_parameters()) {
        if (item.key().find("ln_") == std::string::npos &&
            item.key().find("bias_hh") == std::string::npos) {
          now[item.key()] = item.value();
        }
      }
      ASSERT_EQ(now.size(), 14u);  // three of each LSTM, four of linear layers, three first states
      if (first.empty()) first = now;
      for (const auto& [name, tensor] : now) {
        EXPECT_TRUE(tensor.equal(first.at(name))) << norm << cell << name;
      }
    }
  }
}

TEST_F(DrawTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  const Values values = experiment->Evaluate();
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  std::vector<std::string> declared;
  for (const MetricSpec& metric : task->metrics) {
    if (metric.name != kTrainLoss) declared.push_back(metric.name);
  }
  EXPECT_THAT(names, UnorderedElementsAreArray(declared));
  // A nearly blank canvas, and codes close to the prior.
  EXPECT_NEAR(values.at("test_bound"), 784 * std::log(2), 30);
  EXPECT_GT(values.at("test_kl"), 0);
  EXPECT_LT(values.at("test_kl"), 20);
}

// Evaluations are paired: they depend only on the weights, not on earlier draws.
TEST_F(DrawTest, EvaluatesWithTheSameNoiseAlways) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  const Values values = experiment->Evaluate();
  const at::Tensor next = at::rand({3});
  EXPECT_EQ(experiment->Evaluate(), values);
  // An evaluation does not draw from the generator of training either.
  at::manual_seed(5);
  task->Make(Smoke(), *data);
  EXPECT_TRUE(at::rand({3}).equal(next));
}

TEST_F(DrawTest, LossIsTheMeanBoundOfTheBatch) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data, {{"norm", "layer"}});
  const Tensors batch = experiment->Batch(at::tensor({5, 0, 5}, at::kLong));
  EXPECT_TRUE(batch[0][0].equal(batch[0][2]));
  EXPECT_TRUE(batch[0].eq(0).logical_or(batch[0].eq(1)).all().item<bool>());
  EXPECT_EQ(batch[1].sizes(), at::IntArrayRef({4, 3, 8}));
  auto& model = dynamic_cast<DrawModel&>(experiment->model());
  const auto [reconstruction, kl] = model.forward(batch[0], batch[1]);
  EXPECT_EQ(experiment->Loss(batch).item<double>(), (reconstruction + kl).mean().item<double>());
}

TEST_F(DrawTest, FusedAndComposedTrainAlike) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : kDrawNorms) {
    const std::vector<double> fused = Losses(*data, 20, {{"norm", norm}});
    const std::vector<double> composed = Losses(*data, 20, {{"norm", norm}, {"cell", "composed"}});
    for (size_t i = 0; i < fused.size(); ++i) {
      // Floats of some hundred nats have a relative rounding of 6e-8 an operation. Adam, whose
      // first steps are signs of gradients, enlarges differences in the last bits.
      EXPECT_NEAR(fused[i], composed[i], 1e-5 * composed[i]) << norm << " update " << i;
    }
    EXPECT_LT(fused.back(), fused.front());
  }
}

TEST_F(DrawTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : kDrawNorms) {
    const auto experiment = Make(*data, {{"norm", norm}});
    TrainEpochs(*task, *experiment, Smoke({{"lr", "0.01"}}), 20, ClipTogether(10));
    at::NoGradGuard no_grad;
    const Values values = experiment->Evaluate();
    // After 160 updates. A blank canvas costs 543 nats, every pixel by its own frequency about 175
    // (the next test), which needs only few updates.
    EXPECT_LT(values.at("valid_bound"), 200) << norm;
  }
}

TEST_F(DrawTest, SyntheticDigitsHaveAKnownCostWithoutCodes) {
  const auto data = task->Load(Smoke({{"train_cases", "2000"}, {"valid_cases", "500"}}), {});
  const auto& cases = dynamic_cast<const BinaryCases&>(*data);
  const at::Tensor p = (cases.train.to(at::kDouble).sum(0) + 1) / 2002;
  const at::Tensor x = cases.valid.to(at::kDouble);
  const double nats = -(x * p.log() + (1 - x) * (1 - p).log()).sum(1).mean().item<double>();
  EXPECT_NEAR(nats, 174.65, 0.05);  // the digits are equal everywhere
}

TEST_F(DrawTest, ResumesWithTheSameBits) {
  for (const std::string& norm : kDrawNorms) {
    ExpectExactResume(*task, {{"norm", norm}}, {1, 6, 3});
  }
  ExpectExactResume(*task, {{"norm", "layer"}, {"cell", "composed"}}, {2});
}

TEST_F(DrawTest, SamplesDependOnlyOnTheGenerator) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  const auto draw = [&](uint64_t seed) {
    at::Generator generator = Generator(seed);
    return experiment->Samples(generator).at(0);
  };
  const RunResult::Sample sample = draw(1);
  EXPECT_EQ(sample.title,
            "8 digits, one a row, after glimpse 1, 2, 3, 4 of 4; red: where it wrote");
  EXPECT_EQ(sample.text, "");
  EXPECT_THAT(sample.svg, StartsWith(std::string(kSvgBegin)));
  EXPECT_EQ(draw(1).svg, sample.svg);
  EXPECT_NE(draw(2).svg, sample.svg);
}

TEST_F(DrawTest, TrainsThePaperPreset) {
  const Settings settings = PresetSettings(
      *task, "paper",
      {{"norm", "layer"}, {"train_cases", "256"}, {"valid_cases", "1"}, {"test_cases", "1"}});
  EXPECT_EQ(settings.Int("glimpses"), 64);
  EXPECT_EQ(settings.Int("batch_size"), 128);
  EXPECT_EQ(settings.Int("epochs"), 200);
  const auto data = task->Load(settings, {});
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  EXPECT_EQ(ParameterCount(experiment->model()), 963'323 + 1'024);
  experiment->model().train();
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
  at::Generator order = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  const double first =
      UpdateWeights(*experiment, *optimizer, {{plan.batch(0)}}, task->MakeClipping(settings)).loss;
  const double second =
      UpdateWeights(*experiment, *optimizer, {{plan.batch(0)}}, task->MakeClipping(settings)).loss;
  // A nearly blank canvas, and codes of 64 glimpses, whose cost of some hundred nats comes from c's
  // norm.
  EXPECT_GT(first, 784 * std::log(2));
  EXPECT_LT(first, 1'200);
  EXPECT_LT(second, first);
}

TEST_F(DrawTest, FewerCasesAreAPrefixOfMore) {
  const auto some = task->Load(Smoke(), {});
  EXPECT_EQ(some->about.sizes,
            (std::map<std::string, int64_t>{{"train", 256}, {"valid", 64}, {"test", 64}}));
  EXPECT_EQ(some->about.name, "drawn binary digits");
  const auto again = task->Load(Smoke(), {});
  const auto& a = dynamic_cast<const BinaryCases&>(*some);
  const auto& b = dynamic_cast<const BinaryCases&>(*again);
  EXPECT_TRUE(a.train.equal(b.train));
  EXPECT_TRUE(a.test.equal(b.test));
  EXPECT_EQ(a.train.sizes(), at::IntArrayRef({256, 784}));
  // Every image once: the drawn ones are all different.
  std::set<std::string> different;
  for (int64_t i = 0; i < 256; ++i) {
    const at::Tensor image = a.train[i].contiguous();
    different.emplace(static_cast<const char*>(image.const_data_ptr()), 784);
  }
  EXPECT_EQ(different.size(), 256u);
}

TEST_F(DrawTest, RequiresTheRequestedNumberOfImages) {
  EXPECT_THROW(task->Load(Smoke({{"train_cases", "9999999"}}), {}), UsageError);
  const std::optional<std::filesystem::path> folder = DataFolder("");
  if (!folder || !std::filesystem::exists(*folder / "mnist_binarized")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with mnist_binarized";
  }
  try {
    task->Load(Smoke({{"test_cases", "10001"}}), folder);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("[draw] test_cases must be at most the 10000 images there are, got"));
  }
  // The file has the digit 0 first. The first 64 shuffled images include every digit, so no pixel
  // pattern is common to all.
  const auto data = task->Load(Smoke(), folder);
  EXPECT_EQ(data->about.name, "binarized mnist");
  const auto& cases = dynamic_cast<const BinaryCases&>(*data);
  // Most zeros have no ink in the middle; most other digits have.
  const double middle = cases.test.view({64, 28, 28})
                            .slice(1, 12, 16)
                            .slice(2, 12, 16)
                            .to(at::kDouble)
                            .mean()
                            .item<double>();
  EXPECT_GT(middle, 0.3);
}

}  // namespace
}  // namespace planish::lab
