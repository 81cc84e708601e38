#include "lab/tasks/handwriting/handwriting.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lab/data/source.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/handwriting/corpus.h"
#include "lab/tasks/handwriting/mixture.h"
#include "lab/tasks/handwriting/model.h"
#include "lab/tasks/handwriting/testing.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using Parameters = std::map<std::string, at::Tensor>;

// ---- Reference model

constexpr double kEps = 1e-5;

HandwritingModel::Options Small(const std::string& norm) {
  return {.norm = norm, .alphabet = 5, .hidden = 6, .window = 3, .mixture = 2, .advance = 0.4};
}

struct Clips {
  double outputs = 0, layers = 0;
};

// Returns a tensor whose derivative is clipped.
at::Tensor Clipped(const at::Tensor& x, double limit) {
  if (limit == 0) return x;
  at::Tensor y = x.clone();
  y.register_hook([limit](const at::Tensor& d) { return d.clamp(-limit, limit); });
  return y;
}

class WrittenOut {
 public:
  WrittenOut(Parameters parameters, const HandwritingModel::Options& options, const Clips& clips)
      : p_(std::move(parameters)), options_(options), clips_(clips) {}

  // Computes one line: x [T, 3], the text's symbols [U] -> y [T, outputs].
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& symbols) const {
    const int64_t steps = x.size(0), hidden = options_.hidden, k = options_.window;
    const at::Tensor text = at::one_hot(symbols, options_.alphabet).to(at::kDouble);
    const at::Tensor places =
        at::arange(1, symbols.size(0) + 1, at::TensorOptions(at::kDouble)).unsqueeze(0);
    std::vector<at::Tensor> h(4, at::zeros({hidden}, at::kDouble)), c = h, n = h, ys;
    at::Tensor window = at::zeros({options_.alphabet}, at::kDouble),
               position = at::zeros({k, 1}, at::kDouble);
    for (int64_t t = 0; t < steps; ++t) {
      Step("first", "", at::cat({x[t], window}), h[1], c[1], n[1]);
      h[1] = Clipped(h[1], clips_.layers);
      const at::Tensor raw = p_.at("window.weight").matmul(h[1]) + p_.at("window.bias");
      const auto part = [&](int64_t i) { return raw.slice(0, i * k, (i + 1) * k).unsqueeze(1); };
      position = position + part(2).exp();
      const at::Tensor phi = part(0).exp() * (-part(1).exp() * (position - places).square()).exp();
      window = phi.sum(0).matmul(text);
      Step("second", "_l0", at::cat({x[t], window, h[1]}), h[2], c[2], n[2]);
      const at::Tensor h2 = Clipped(h[2], clips_.layers);
      Step("third", "_l0", at::cat({x[t], window, h2}), h[3], c[3], n[3]);
      const at::Tensor h3 = Clipped(h[3], clips_.layers);
      const at::Tensor y =
          p_.at("output.weight").matmul(at::cat({h[1], h2, h3})) + p_.at("output.bias");
      ys.push_back(Clipped(y, clips_.outputs));
    }
    return at::stack(ys);
  }

 private:
  static at::Tensor Norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias) {
    const at::Tensor centred = x - x.mean();
    return centred / (centred.square().mean() + kEps).sqrt() * gain + bias;
  }

  // Ba et al. 2016, Eq. 17-22, or Beck et al. 2024, Eq. 8-17 before the stabilization.
  void Step(const std::string& layer, const std::string& end, const at::Tensor& x, at::Tensor& h,
            at::Tensor& c, at::Tensor& n) const {
    const auto p = [&](const std::string& name) { return p_.at(layer + ".layer." + name + end); };
    at::Tensor of_x = p("weight_ih").matmul(x), of_h = p("weight_hh").matmul(h);
    const bool is_normed = options_.norm == "layer";
    if (is_normed) {
      of_x = Norm(of_x, p("ln_ih_weight"), p("ln_ih_bias"));
      of_h = Norm(of_h, p("ln_hh_weight"), p("ln_hh_bias"));
    }
    at::Tensor a = of_x + of_h + p("bias_ih");
    if (options_.norm == "none") a = a + p("bias_hh");
    const auto gates = a.chunk(4);
    if (options_.norm == "slstm") {
      n = gates[1].sigmoid() * n + gates[0].exp();
      c = gates[1].sigmoid() * c + gates[0].exp() * gates[2].tanh();
      h = gates[3].sigmoid() * c / n;
      return;
    }
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    const at::Tensor seen = is_normed ? Norm(c, p("ln_c_weight"), p("ln_c_bias")) : c;
    h = gates[3].sigmoid() * seen.tanh();
  }

  Parameters p_;
  HandwritingModel::Options options_;
  Clips clips_;
};

// Compares values and all gradients, with lines of different lengths, without and with clipping.
TEST(HandwritingModel, MatchesTheReferenceModel) {
  for (const std::string norm : {"none", "layer", "slstm"}) {
    for (const Clips& clips : {Clips{}, Clips{.outputs = 0.05, .layers = 0.01}}) {
      HandwritingModel::Options options = Small(norm);
      options.clip_outputs = clips.outputs * 2;  // of a sum that is twice the loss
      options.clip_layers = clips.layers * 2;
      at::manual_seed(3);
      HandwritingModel model(options);
      model.to(at::kDouble);
      {
        const at::NoGradGuard no_grad;
        for (auto& item : model.named_parameters()) {
          item.value().add_(0.3 * Normal(item.value().sizes(), item.key().size()));
        }
      }
      const at::Tensor x = Normal({7, 2, 3}, 1);
      const at::Tensor lengths = at::tensor({4, 7}, at::kLong);
      const at::Tensor symbols = at::tensor({1, 4, 0, 2, 2, -1}, at::kLong).view({2, 3});
      const at::Tensor weights = Normal({11, MixtureSize(2)}, 2);
      const auto cut = [](const at::Tensor& y, const at::Tensor& z) {
        return at::cat({y.slice(0, 0, 4), z});
      };
      const at::Tensor y = model.forward(x, lengths, symbols, 0.5);
      const at::Tensor ours = cut(y.select(1, 0), y.select(1, 1));
      (ours * weights).sum().backward();

      Parameters copies;
      for (const auto& item : model.named_parameters()) {
        copies[item.key()] = item.value().detach().clone().requires_grad_();
      }
      const WrittenOut written_out(copies, options, clips);
      const at::Tensor expected = cut(written_out(x.slice(0, 0, 4).select(1, 0), symbols[0]),
                                      written_out(x.select(1, 1), symbols[1].slice(0, 0, 2)));
      (expected * weights).sum().backward();
      // Double, through seven steps of values of size 1.
      EXPECT_TRUE(at::allclose(ours, expected, 1e-10, 1e-10)) << norm;
      for (const auto& item : model.named_parameters()) {
        const at::Tensor& theirs = copies.at(item.key()).grad();
        ASSERT_TRUE(item.value().grad().defined()) << item.key();
        EXPECT_TRUE(at::allclose(item.value().grad(), theirs, 1e-9, 1e-10))
            << norm << " " << item.key() << " " << clips.layers;
      }
    }
  }
}

// Compares single steps, as in writing texts, with the sequence.
TEST(HandwritingModel, StepsAsItReads) {
  for (const std::string& norm : HandwritingNorms()) {
    at::manual_seed(3);
    HandwritingModel model(Small(norm));
    model.eval();
    const at::NoGradGuard no_grad;
    const at::Tensor x = Normal({9, 2, 3}, 1).to(at::kFloat);
    const at::Tensor symbols = at::tensor({1, 4, 0, 2, 2, -1}, at::kLong).view({2, 3});
    const at::Tensor whole = model.forward(x, at::full({2}, 9, at::kLong), symbols, 1);
    HandwritingModel::Pen pen = model.Start(2);
    for (int64_t t = 0; t < 9; ++t) {
      // Float, nine steps of values of size 1.
      EXPECT_TRUE(at::allclose(model.Step(x[t], symbols, pen), whole[t], 1e-4, 1e-5)) << norm << t;
    }
  }
}

// ---- The task

class HandwritingTest : public TaskTest<MakeHandwriting> {
 protected:
  // Returns the experiment that Train would make of `sets` for seed 5.
  std::unique_ptr<Experiment> Make(const Dataset& data, const Settings& settings) {
    at::manual_seed(5);
    return task->Make(settings, data);
  }

  // Returns the losses of some updates.
  std::vector<double> Train(Experiment& experiment, const Settings& settings, int updates) {
    return LossesOf(*task, experiment, settings, updates);
  }
};

TEST_F(HandwritingTest, HasThePapersParameters) {
  const Sets few = {{"lines", "8"}, {"held_out", "1"}};
  const Settings paper = Chosen("paper", few);
  const auto data = task->Load(paper, {});
  for (const auto& [norm, known] : {std::pair("none", 3'654'951), {"layer", 3'671'751}}) {
    Settings settings = paper;
    settings.Set("norm", norm);
    const auto experiment = Make(*data, settings);
    const int64_t h = 400, x = 3, v = 57, k = 10, m = 20;
    const int64_t products = 4 * h * (x + v + h) + 2 * 4 * h * (x + v + h + h);
    // An LSTM's two biases; the LN-LSTM's one, with gains and biases of two norms of 4H and one of
    // H.
    const int64_t of_layer = std::string(norm) == "none" ? 2 * 4 * h : 4 * h + 4 * 4 * h + 2 * h;
    const int64_t expected = products + 3 * of_layer + (h + 1) * 3 * k + (3 * h + 1) * (1 + 6 * m);
    EXPECT_EQ(expected, known);  // Ba et al. 2016, 6.5: "approximately 3.7M"
    EXPECT_EQ(ParameterCount(experiment->model()), expected);
    EXPECT_TRUE(std::isfinite(Train(*experiment, settings, 1)[0]));
  }
}

TEST_F(HandwritingTest, GivesEveryNormTheSameStartAndTheSameBatches) {
  const auto data = task->Load(Smoke(), {});
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : HandwritingNorms()) {
    const auto experiment = Make(*data, Smoke({{"norm", norm}}));
    at::Generator generator = Generator(1);
    std::map<std::string, at::Tensor> now = {{"order", experiment->PlanEpoch(generator).order}};
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().find("ln_") == std::string::npos &&
          item.key().find("bias_hh") == std::string::npos) {
        now[item.key()] = item.value();
      }
    }
    // Some variants have no bias beside their norms'.
    ASSERT_GE(now.size(), 1u + 4 + 3 * 2) << norm;
    if (first.empty()) first = now;
    for (const auto& [name, tensor] : now) EXPECT_TRUE(tensor.equal(first[name])) << norm << name;
  }
  // Bounded by 1/sqrt(16), and spread over that range.
  const at::Tensor& weight = first.at("second.layer.weight_ih_l0");
  EXPECT_LE(weight.abs().max().item<double>(), 0.25);
  EXPECT_NEAR(weight.var().item<double>(), 0.25 * 0.25 / 3, 0.002);
}

// Compares the losses of 20 updates. The tolerance is eight times the largest distance so far to
// losses of runs whose initial weights differ in their last bit. It is at least 1e-5 of the loss,
// some roundings of sums of 60 steps.
TEST_F(HandwritingTest, FusedIsComposed) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string norm : {"none", "layer", "slstm"}) {
    const auto losses = [&](const char* cell, uint64_t nudge) {
      const Settings settings = Smoke({{"norm", norm}, {"cell", cell}, {"lr", "0.0003"}});
      const auto experiment = Make(*data, settings);
      at::Generator generator = Generator(nudge);
      const at::NoGradGuard no_grad;
      for (at::Tensor& weight : experiment->model().parameters()) {
        const at::Tensor by = at::rand(weight.sizes(), generator, weight.options()) * 2 - 1;
        if (nudge > 0) weight.mul_(1 + 0x1p-23 * by);
      }
      const at::AutoGradMode grad(true);
      return Train(*experiment, settings, 20);
    };
    const auto fused = losses("fused", 0), composed = losses("composed", 0);
    const std::vector<std::vector<double>> nudged = {losses("fused", 1), losses("fused", 2),
                                                     losses("fused", 3)};
    double rounding = 0;
    for (size_t i = 0; i < 20; ++i) {
      for (const auto& other : nudged) rounding = std::max(rounding, std::abs(other[i] - fused[i]));
      EXPECT_NEAR(composed[i], fused[i], std::max(8 * rounding, 1e-5 * fused[i])) << norm << i;
      EXPECT_LT(rounding, 1e-3 * fused[i]) << norm << i;  // else it would hide errors
    }
  }
}

TEST_F(HandwritingTest, HasHeads) {
  const auto data = task->Load(Smoke(), {});
  const Settings settings = Smoke({{"norm", "slstm"}, {"heads", "4"}});
  const auto experiment = Make(*data, settings);
  int layers = 0;
  for (const auto& item : experiment->model().named_parameters()) {
    if (item.key().find("weight_hh") == std::string::npos) continue;
    EXPECT_EQ(item.value().sizes(), at::IntArrayRef({4 * 16, 16 / 4})) << item.key();
    ++layers;
  }
  EXPECT_EQ(layers, 3);
  EXPECT_TRUE(std::isfinite(Train(*experiment, settings, 2)[1]));
  EXPECT_THROW(Make(*data, Smoke({{"heads", "3"}})), UsageError);
}

TEST_F(HandwritingTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : HandwritingNorms()) {
    const Settings settings = Smoke({{"norm", norm}});
    const auto experiment = Make(*data, settings);
    const auto nats = [&] {
      const at::NoGradGuard no_grad;
      experiment->model().eval();
      return experiment->Evaluate().at("valid_point_nats");
    };
    const double before = nats();
    // Two standard normal values and a fair coin have 3.5.
    EXPECT_NEAR(before, 3.5, 0.7) << norm;
    Train(*experiment, settings, 48);
    EXPECT_LT(nats(), before - 0.5) << norm;
  }
}

TEST_F(HandwritingTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data, Smoke());
  const at::NoGradGuard no_grad;
  experiment->model().eval();
  Values values = experiment->Evaluate();
  const auto& corpus = dynamic_cast<const HandwritingCorpus&>(*data);
  // Line by line, without padding.
  double nats = 0, points = 0;
  for (int64_t i = 0; i < corpus.valid.size(); ++i) {
    const Tensors batch = corpus.valid.Batch(at::tensor({i}, at::kLong));
    nats += experiment->Loss(batch).item<double>();
    points += static_cast<double>(batch[4].size(0));
  }
  // Sums of 480 values in float.
  EXPECT_NEAR(values.at("valid_nats"), nats / 8, 1e-2);
  EXPECT_NEAR(values.at("valid_point_nats"), nats / points, 1e-4);
  values.merge(experiment->Test());
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("train_nats", "train_point_nats", "valid_nats",
                                          "valid_point_nats", "test_nats", "test_point_nats"));
}

TEST_F(HandwritingTest, ResumesWithTheSameBits) { ExpectExactResume(*task); }

TEST_F(HandwritingTest, WritesTexts) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data, Smoke());
  const at::NoGradGuard no_grad;
  experiment->model().eval();
  auto& writer = dynamic_cast<HandWriter&>(*experiment);
  const auto write = [&](const HandWriter::Request& request, uint64_t seed) {
    at::Generator generator = Generator(seed);
    return writer.Write(request, generator);
  };
  const HandWriter::Request tea{.text = "tea < rose", .bias = 0.5, .steps = 40};
  EXPECT_THAT([&] { write(tea, 1); },
              ::testing::ThrowsMessage<UsageError>(
                  HasSubstr("[write] TEXT has characters that the model has not learned: \"<\"")));
  EXPECT_THAT([&] { write({.text = "tax", .bias = 0, .steps = 9}, 1); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("not learned: \"x\"")));
  EXPECT_THAT([&] { write({.text = "tea", .bias = 0, .steps = 9, .prime = 8}, 1); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("--prime-case must be below 8")));

  const HandWriter::Request one{.text = "tea", .bias = 0.5, .steps = 1000};
  const auto written = write(one, 1);
  EXPECT_TRUE(written.svg.starts_with(kSvgBegin));
  EXPECT_TRUE(written.svg.ends_with("</svg>"));
  // The window advances by e^-3.2 characters a step and more: it has passed three after about 80.
  EXPECT_TRUE(written.whole);
  EXPECT_EQ(write(one, 1).svg, written.svg);
  EXPECT_NE(write(one, 2).svg, written.svg);
  const auto points = [](const std::string& svg) {
    return std::ranges::count_if(svg, [](char c) { return c == 'M' || c == 'L'; });
  };
  const auto cut = write({.text = "tea", .bias = 0.5, .steps = 7}, 1);
  EXPECT_FALSE(cut.whole);
  // The first point is given.
  EXPECT_EQ(points(cut.svg), 1 + 7);
  // The primed line changes what follows, and is not drawn.
  const auto primed = write({.text = "tea", .bias = 0.5, .steps = 7, .prime = 0}, 1);
  EXPECT_NE(primed.svg, cut.svg);
  EXPECT_EQ(points(primed.svg), 7);

  at::Generator generator = Generator(1);
  const auto samples = experiment->Samples(generator);
  ASSERT_EQ(samples.size(), 2u);  // a line of the data, and the model's
  for (const auto& sample : samples) EXPECT_TRUE(sample.svg.starts_with(kSvgBegin));
}

TEST_F(HandwritingTest, RefusesBatchesLargerThanTheData) {
  const auto data = task->Load(Smoke(), {});
  EXPECT_THROW(Make(*data, Smoke({{"batch_size", "65"}})), UsageError);
}

TEST_F(HandwritingTest, TrainsOnDigilets) {
  const std::optional<fs::path> path = DataFolder("");
  if (!path || !fs::exists(*path / "digilets")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with digilets";
  }
  const Settings settings = Smoke({{"alphabet", "digits"}});
  const auto data = task->Load(settings, *path / "digilets");
  EXPECT_EQ(data->about.name, "digilets");
  const auto losses = Train(*Make(*data, settings), settings, 40);
  EXPECT_LT(losses.back(), losses.front() - 20);
}

}  // namespace
}  // namespace planish::lab
