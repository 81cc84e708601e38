#include "lab/engine/nonfinite.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <limits>

#include "lab/model/linear.h"
#include "lab/model/norms.h"
#include "lab/model/recurrent.h"

namespace planish::lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Net : torch::nn::Module {
  explicit Net(const std::string& norm = "layer")
      : linear0(register_module("linear0", Seeded())),
        norm1(register_module("norm1", MakeNorm(norm, {4}))) {
    for (int i = 0; i < 3; ++i) layers->push_back(Linear(4, 4));
  }

  at::Tensor forward(at::Tensor x) {
    x = norm1->forward(linear0->forward(x)).relu();
    for (const auto& layer : *layers) x = layer->as<Linear>()->forward(x);
    return recurrent->forward(x.unsqueeze(0), recurrent->ZeroState(x.size(0))).first.squeeze(0);
  }

  void Set(const std::string& parameter, double value) {
    const at::NoGradGuard no_grad;
    named_parameters()[parameter].fill_(value);
  }

  static torch::nn::Linear Seeded() {
    at::manual_seed(1);
    return torch::nn::Linear(3, 4);
  }

  torch::nn::Linear linear0;
  std::shared_ptr<NormModule> norm1;
  torch::nn::ModuleList layers = register_module("layers", torch::nn::ModuleList());
  std::shared_ptr<RecurrentModule> recurrent =
      register_module("recurrent", MakeRecurrent("ln-lstm", {.inputs = 4, .hidden = 2}));
  at::Tensor state = register_buffer("state", at::zeros({4}));
};

at::Tensor Input() { return at::linspace(-1, 1, 15).view({5, 3}); }

std::string Find(Net& net, const at::Tensor& x) {
  return FindNonFiniteLayer(net, {x}, [&] { return net.forward(x).square().mean(); });
}

TEST(NonFiniteTest, FiniteModelHasNoOrigin) {
  Net net;
  EXPECT_EQ(Find(net, Input()), "");
}

TEST(NonFiniteTest, NamesTheFirstParameter) {
  Net net;
  net.Set("layers.1.bias", kInf);
  EXPECT_EQ(Find(net, Input()), "the parameter layers.1.bias was inf");
  net.Set("norm1.norm.weight", -kInf);
  net.Set("recurrent.layer.weight_hh_l0", kNan);
  EXPECT_EQ(Find(net, Input()), "the parameter norm1.norm.weight was -inf, the first of 3");
}

TEST(NonFiniteTest, NamesTheLayerWhoseOutputOverflows) {
  for (const std::string layer : {"layers.0", "layers.2"}) {
    Net net;
    net.Set(layer + ".weight", 3e38);
    net.Set(layer + ".bias", 3e38);
    EXPECT_EQ(Find(net, Input()), "the output of " + layer + " was inf");
  }
  Net net;
  net.Set("linear0.weight", 3e38);
  net.Set("linear0.bias", -3e38);
  EXPECT_EQ(Find(net, Input()), "the output of linear0 was inf");
}

TEST(NonFiniteTest, NamesANormWithoutItsWrapper) {
  Net net;
  net.Set("norm1.norm.weight", 3e38);
  net.Set("norm1.norm.bias", 3e38);
  EXPECT_EQ(Find(net, Input()), "the output of norm1 was inf");
}

TEST(NonFiniteTest, NamesARecurrentLayer) {
  Net net;
  // The forget, input and output gates of overflowing products are nan.
  net.Set("recurrent.layer.weight_ih_l0", 3e38);
  for (int i = 0; i < 3; ++i) net.Set("layers." + std::to_string(i) + ".weight", 2);
  EXPECT_EQ(Find(net, Input()), "the output of recurrent was nan");
}

TEST(NonFiniteTest, NamesALayerThatRunsStepByStep) {
  struct Steps : torch::nn::Module {
    std::shared_ptr<RecurrentSteps> cell =
        register_module("cell", MakeRecurrentSteps("ln-gru", {.inputs = 3, .hidden = 2}));
  } net;
  {
    const at::NoGradGuard no_grad;
    net.named_parameters()["cell.layer.weight_ih"].fill_(3e38);
  }
  const auto loss = [&] {
    net.cell->Begin();
    RecurrentState state = net.cell->ZeroState(5);
    for (int i = 0; i < 2; ++i) state = net.cell->Step(Input() * 4, state);
    return state.h.sum();
  };
  EXPECT_EQ(FindNonFiniteLayer(net, {}, loss), "the output of cell was nan");
}

TEST(NonFiniteTest, TellsWhetherTheBatchIsTheOrigin) {
  Net net;
  at::Tensor x = Input();
  x[2][1] = kNan;
  EXPECT_EQ(Find(net, x), "the batch had nan");
  // As in models that take a part of the batch before their first layer.
  EXPECT_EQ(FindNonFiniteLayer(net, {x}, [&] { return net.forward(x.slice(0, 1, 4)).sum(); }),
            "the batch had nan");
  EXPECT_EQ(FindNonFiniteLayer(net, {x}, [&] { return net.forward(x.slice(0, 3)).sum(); }), "");
  // Data that is not in the batch.
  EXPECT_EQ(FindNonFiniteLayer(net, {}, [&] { return net.forward(x).sum(); }),
            "the input of linear0 was nan");
}

TEST(NonFiniteTest, NamesAnOperatorByTheLayerBefore) {
  Net net;
  const at::Tensor x = Input();
  EXPECT_EQ(
      FindNonFiniteLayer(net, {x}, [&] { return (net.forward(x).square() * -1 - 1).log().sum(); }),
      "the output of aten::log after recurrent was nan");
  EXPECT_EQ(FindNonFiniteLayer(net, {x}, [&] { return at::full({}, kNan); }),
            "the output of aten::full was nan");
  // Views and conversions are not the origin.
  net.Set("linear0.bias", 3e38);
  net.Set("linear0.weight", 3e38);
  EXPECT_EQ(FindNonFiniteLayer(
                net, {x},
                [&] { return net.linear0->forward(x).to(at::kFloat).t().to(at::kDouble).sum(); }),
            "the output of linear0 was inf");
}

// Attention hides positions with -inf before its softmax.
TEST(NonFiniteTest, MasksAreNoOrigin) {
  const at::Tensor x = Input(), mask = at::zeros({5, 4}, at::kBool);
  mask[0][0] = true;
  const auto find = [&](Net& net) {
    return FindNonFiniteLayer(net, {x}, [&] {
      const at::Tensor hidden = net.linear0->forward(x).masked_fill(mask, -kInf).softmax(1);
      return net.layers[0]->as<Linear>()->forward(hidden).sum();
    });
  };
  Net net;
  EXPECT_EQ(find(net), "");
  net.Set("layers.0.weight", 3e38);
  net.Set("layers.0.bias", 3e38);
  EXPECT_EQ(find(net), "the output of layers.0 was inf");
  Net other;
  other.Set("linear0.bias", 3e38);
  other.Set("linear0.weight", 3e38);
  EXPECT_EQ(find(other), "the output of linear0 was inf");
  // Where everything is hidden.
  EXPECT_EQ(FindNonFiniteLayer(
                net, {x},
                [&] {
                  const at::Tensor hidden = at::full({5, 4}, -kInf).slice(1, 0, 2);
                  return (net.linear0->forward(x).slice(1, 0, 2) + hidden).softmax(1).sum();
                }),
            "the output of aten::softmax after linear0 was nan");
}

// The elements of new memory are undefined until they are written.
TEST(NonFiniteTest, UnwrittenMemoryIsNoOrigin) {
  Net net;
  const at::Tensor x = Input();
  const auto find = [&](double factor) {
    return FindNonFiniteLayer(net, {x}, [&] {
      const at::Tensor y = net.linear0->forward(x) * factor * factor;
      const at::Tensor dirty = at::full({5, 4}, kNan);
      dirty.copy_(y);
      const at::Tensor rows = at::empty({5, 4});
      for (int64_t i = 0; i < 5; ++i) rows[i].copy_(y[i]);
      return (dirty + rows).sum();
    });
  };
  EXPECT_EQ(find(1), "");
  EXPECT_EQ(find(1e30).substr(0, 40), "the output of aten::mul after linear0 wa");
}

TEST(NonFiniteTest, ClearsStatesThatTheFirstPassSpoiled) {
  Net net;
  const at::Tensor x = Input();
  net.Set("layers.1.weight", 3e38);
  net.Set("layers.1.bias", 3e38);
  const auto loss = [&] {
    const at::Tensor hidden = net.linear0->forward(x) + net.state;
    at::Tensor y = net.norm1->forward(hidden);
    for (const auto& layer : *net.layers) y = layer->as<Linear>()->forward(y);
    net.state.copy_(y.detach()[0]);
    return y.sum();
  };
  EXPECT_FALSE(std::isfinite(loss().item<double>()));
  EXPECT_TRUE(FindNonFiniteLayer(net, {x}, loss).starts_with("the output of layers.1 was "));
}

TEST(NonFiniteTest, FailingPassHasNoOrigin) {
  Net net;
  const auto loss = []() -> at::Tensor { throw std::bad_alloc(); };
  EXPECT_EQ(FindNonFiniteLayer(net, {}, loss), "");
}

TEST(NonFiniteTest, EndsAnEvaluationAtTheFirstValueRead) {
  Net net;
  const at::Tensor x = Input();
  int batches = 0;
  const auto evaluate = [&](const std::function<bool()>& found) {
    at::NoGradGuard no_grad;
    for (; batches < 9; ++batches) {
      if (found()) throw EvaluationStopped();
      net.Set("layers.0.bias", batches < 4 ? 0 : 3e38);
      net.Set("layers.0.weight", batches < 4 ? 0 : 3e38);
      net.forward(x).sum().item<double>();
    }
  };
  EXPECT_EQ(FindNonFiniteLayer(net, evaluate), "the output of layers.0 was inf");
  EXPECT_EQ(batches, 5);
}

TEST(NonFiniteTest, EvaluationWithFiniteTensorsHasNoOrigin) {
  Net net;
  const at::Tensor x = Input();
  const auto evaluate = [&](const std::function<bool()>&) {
    std::exp(net.forward(x).sum().item<double>() + 1e6);
  };
  EXPECT_EQ(FindNonFiniteLayer(net, evaluate), "");
  const auto stopped = [&](const std::function<bool()>&) { throw EvaluationStopped(); };
  EXPECT_EQ(FindNonFiniteLayer(net, stopped), "");
}

}  // namespace
}  // namespace planish::lab
