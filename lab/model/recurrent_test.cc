#include "lab/model/recurrent.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lab/error.h"
#include "planish/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

// Both sides compute in double. They sum some tens of terms in different orders, through a few
// steps whose norms can enlarge a rounding error tenfold. 1e-11 of the largest value is 2^-53 times
// 10^5.
constexpr double kDouble = 1e-11;

std::map<std::string, at::Tensor> Parameters(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : module.named_parameters()) all[item.key()] = item.value();
  return all;
}

std::shared_ptr<RecurrentModule> Seeded(const std::string& cell, const RecurrentOptions& options) {
  at::manual_seed(1);
  return MakeRecurrent(cell, options);
}

// Returns S of RecurrentModule.
int64_t StatesOf(const std::string& cell) {
  return cell == "slstm" ? 3 : cell.find("lstm") != cell.npos ? 2 : 1;
}

// Expects the empty state: zeros, with n = 0 in an sLSTM.
void ExpectZero(const at::Tensor& state) {
  const auto count = [](const at::Tensor& t) { return t.count_nonzero().item<int64_t>(); };
  const int64_t zeros = std::min<int64_t>(state.size(0), 2);
  EXPECT_EQ(count(state.slice(0, 0, zeros)), 0);
  EXPECT_EQ(count(state.slice(0, zeros).exp()), 0);
}

bool IsPyTorchs(const std::string& cell) { return cell.starts_with("torch-"); }

// Sets parameters that differ from 0 and 1, so that each gradient tests its own equation.
void Randomise(torch::nn::Module& module) {
  at::manual_seed(2);
  module.to(at::kDouble);
  for (at::Tensor& parameter : module.parameters()) {
    parameter.set_data(parameter.detach() + 0.3 * at::randn_like(parameter));
  }
}

// Also the estimates of cells with batch norm; variances stay positive.
void RandomiseEstimates(torch::nn::Module& module) {
  for (auto& item : module.named_buffers()) {
    item.value().add_(at::rand_like(item.value()));
  }
}

void ExpectNear(const at::Tensor& a, const at::Tensor& b, const std::string& name) {
  ASSERT_EQ(a.sizes(), b.sizes()) << name;
  const double largest = std::max(1.0, b.abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>(), kDouble * largest) << name;
}

// Expects the results `a` and `b` to be equal, and the gradients of a random loss of them with
// respect to `inputs_a` and `inputs_b`.
void ExpectSameGradients(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& inputs_a,
                         const std::vector<at::Tensor>& b,
                         const std::vector<at::Tensor>& inputs_b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(inputs_a.size(), inputs_b.size());
  std::vector<at::Tensor> weights;
  for (size_t i = 0; i < a.size(); ++i) {
    ExpectNear(a[i], b[i], "result " + std::to_string(i));
    weights.push_back(at::randn_like(b[i]));
  }
  const auto da = torch::autograd::grad(a, inputs_a, weights, /*retain_graph=*/true);
  const auto db = torch::autograd::grad(b, inputs_b, weights, /*retain_graph=*/true);
  for (size_t i = 0; i < da.size(); ++i) {
    ExpectNear(da[i], db[i], "gradient " + std::to_string(i));
    EXPECT_GT(db[i].abs().max().item<double>(), 1e-6) << "gradient " << i;
  }
}

// Returns `leaves` and the module's parameters.
std::vector<at::Tensor> WithParameters(const torch::nn::Module& module,
                                       std::vector<at::Tensor> leaves) {
  for (const at::Tensor& parameter : module.parameters()) leaves.push_back(parameter);
  return leaves;
}

at::Tensor Leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_(true);
}

TEST(Recurrent, AreATable) {
  EXPECT_THAT(
      CellNames(),
      ElementsAre("lstm", "ln-lstm", "gru", "ln-gru", "rnn", "ln-rnn", "rnn-relu", "ln-rnn-relu",
                  "bn-rnn", "bn-gru", "ln-lstm-haste", "ln-lstm-fastrnns", "ln-lstm-tfa",
                  "ln-lstm-contrib", "ln-lstm-torchaudio", "ln-lstm-tflite", "ln-gru-haste",
                  "ln-gru-dreamer", "draw-lstm", "slstm", "torch-lstm", "torch-gru"));
  EXPECT_THROW(MakeRecurrent("ln", {.inputs = 3, .hidden = 4}), UsageError);
  EXPECT_THROW(MakeRecurrent("torch-lstm", {.inputs = 3, .hidden = 4, .composed = true}),
               UsageError);
  EXPECT_THROW(MakeRecurrentSteps("ln", {.inputs = 3, .hidden = 4}), UsageError);
  EXPECT_THROW(MakeRecurrentSteps("gru", {.inputs = 3, .hidden = 4, .layers = 2}), UsageError);
  EXPECT_THROW(MakeRecurrentSteps("bn-rnn", {.inputs = 3, .hidden = 4}), UsageError);
  EXPECT_TRUE(HasBatchNorm("bn-gru"));
  EXPECT_FALSE(HasBatchNorm("ln-gru"));
  EXPECT_FALSE(HasBatchNorm("torch-gru"));
  EXPECT_EQ(CellWithoutNorms(Cell::kLnLstmContrib), Cell::kLstm);
  EXPECT_EQ(CellWithoutNorms(Cell::kDrawLstm), Cell::kLstm);
  EXPECT_EQ(CellWithoutNorms(Cell::kBnRnn), Cell::kRnn);
  EXPECT_EQ(CellWithoutNorms(Cell::kLnRnnRelu), Cell::kRnnRelu);
  EXPECT_EQ(CellWithoutNorms(Cell::kGru), Cell::kGru);
  EXPECT_EQ(CellWithoutNorms(Cell::kLnGruDreamer), std::nullopt);
}

// A sequence in two pieces with the state carried between them equals the whole sequence.
TEST(Recurrent, CarryTheirState) {
  for (const std::string& cell : CellNames()) {
    for (const int64_t layers : {1, 2}) {
      const auto module = Seeded(cell, {.inputs = 3, .hidden = 4, .layers = layers});
      const at::Tensor x = at::randn({7, 2, 3});
      const at::Tensor zero = module->ZeroState(2);
      EXPECT_EQ(zero.sizes(), at::IntArrayRef({StatesOf(cell), layers, 2, 4})) << cell;
      ExpectZero(zero);
      const auto [y, last] = module->forward(x, zero);
      EXPECT_EQ(y.sizes(), at::IntArrayRef({7, 2, 4}));
      EXPECT_EQ(last.sizes(), zero.sizes());
      // The last state h of the last layer is the last of y.
      EXPECT_TRUE(last[0][layers - 1].equal(y[6])) << cell;
      const auto [y1, middle] = module->forward(x.slice(0, 0, 3), zero);
      const auto [y2, end] = module->forward(x.slice(0, 3, 7), middle);
      // GEMMs over 3, 4 and 7 steps can round differently. Values of size 1 pass through 7 steps
      // and up to 2 layers with norms over 4 elements.
      EXPECT_LT((at::cat({y1, y2}) - y).abs().max().item<double>(), 1e-4) << cell;
      EXPECT_LT((end - last).abs().max().item<double>(), 1e-4) << cell;
      const at::Tensor other = module->forward(x.slice(0, 3, 7), zero).first;
      EXPECT_GT((other - y2).abs().max().item<double>(), 1e-2) << cell;
    }
  }
}

// Planish's plain cells equal PyTorch's: keys, weights for one seed, results.
TEST(Recurrent, PlainCellsAreThoseOfPyTorch) {
  for (const std::string cell : {"lstm", "gru"}) {
    const RecurrentOptions options = {.inputs = 3, .hidden = 5, .layers = 2};
    const auto ours = Seeded(cell, options), torchs = Seeded("torch-" + cell, options);
    const auto a = Parameters(*ours), b = Parameters(*torchs);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
    const at::Tensor x = at::randn({6, 2, 3});
    const at::Tensor state = at::randn_like(ours->ZeroState(2));
    const auto [y, last] = ours->forward(x, state);
    const auto [expected, expected_last] = torchs->forward(x, state);
    // Values below 1, sums of 5 of them, 6 steps, 2 layers: some tens of roundings of 6e-8.
    EXPECT_LT((y - expected).abs().max().item<double>(), 2e-6) << cell;
    EXPECT_LT((last - expected_last).abs().max().item<double>(), 2e-6) << cell;
  }
}

TEST(Recurrent, NormsAddNothingToTheFirstWeights) {
  const std::map<std::string, std::vector<std::string>> kinds = {
      {"lstm",
       {"ln-lstm", "ln-lstm-haste", "ln-lstm-fastrnns", "ln-lstm-tfa", "ln-lstm-contrib",
        "ln-lstm-torchaudio", "ln-lstm-tflite"}},
      {"gru", {"ln-gru", "ln-gru-haste", "ln-gru-dreamer", "bn-gru"}},
      {"rnn", {"ln-rnn", "rnn-relu", "ln-rnn-relu", "bn-rnn"}}};
  for (const auto& [plain, cells] : kinds) {
    const auto expected = Parameters(*Seeded(plain, {.inputs = 3, .hidden = 4}));
    for (const std::string& cell : cells) {
      const auto now = Parameters(*Seeded(cell, {.inputs = 3, .hidden = 4}));
      for (const std::string name : {"layer.weight_ih_l0", "layer.weight_hh_l0"}) {
        EXPECT_TRUE(now.at(name).equal(expected.at(name))) << cell << name;
      }
    }
  }
}

TEST(Recurrent, GainsStartAtTheRequestedValue) {
  for (const std::string& cell : CellNames()) {
    const auto with = Parameters(*Seeded(cell, {.inputs = 3, .hidden = 4, .gain = 0.25}));
    const auto without = Parameters(*Seeded(cell, {.inputs = 3, .hidden = 4}));
    int gains = 0;
    for (const auto& [name, tensor] : with) {
      const bool gain = name.starts_with("layer.ln_") && name.find("_weight") != name.npos;
      gains += gain;
      EXPECT_TRUE(tensor.equal(gain ? at::full_like(tensor, 0.25) : without.at(name)))
          << cell << name;
      if (gain) {
        EXPECT_TRUE(without.at(name).equal(at::ones_like(tensor))) << cell;
      }
    }
    EXPECT_EQ(gains > 0, cell.find("ln-") != cell.npos || HasBatchNorm(cell) || cell == "draw-lstm")
        << cell;
  }
}

// Each sequence of a batch has the results of a run with only it, cut to its length. With batch
// norm this holds in evaluation.
TEST(Recurrent, StopAtTheLengthOfEachSequence) {
  const at::Tensor lengths = at::tensor({2, 5, 1, 4}, at::kLong);
  for (const std::string& cell : CellNames()) {
    for (const bool composed : {false, true}) {
      if (composed && IsPyTorchs(cell)) continue;
      SCOPED_TRACE(cell);
      const auto module =
          Seeded(cell, {.inputs = 3, .hidden = 4, .layers = 2, .composed = composed});
      Randomise(*module);
      RandomiseEstimates(*module);
      if (HasBatchNorm(cell)) module->eval();
      const at::Tensor x = Leaf({6, 4, 3}), state = Leaf(module->ZeroState(4).sizes());
      const auto [y, last] = module->forward(x, state, lengths);
      std::vector<at::Tensor> ys, lasts;
      for (int64_t b = 0; b < 4; ++b) {
        const int64_t length = lengths[b].item<int64_t>();
        const auto [own_y, own_last] =
            module->forward(x.slice(0, 0, length).slice(1, b, b + 1), state.slice(2, b, b + 1));
        ys.push_back(at::cat({own_y, at::zeros({6 - length, 1, 4}, at::kDouble)}));
        lasts.push_back(own_last);
      }
      const auto inputs = WithParameters(*module, {x, state});
      ExpectSameGradients({y, last}, inputs, {at::cat(ys, 1), at::cat(lasts, 2)}, inputs);
    }
  }
}

TEST(Recurrent, ComposedAreAsTheKernels) {
  for (const std::string& cell : CellNames()) {
    if (IsPyTorchs(cell)) continue;
    SCOPED_TRACE(cell);
    RecurrentOptions options = {.inputs = 3, .hidden = 5, .layers = 2, .epsilon = 1e-3};
    const auto fused = Seeded(cell, options);
    options.composed = true;
    const auto composed = Seeded(cell, options);
    for (const auto& [name, tensor] : Parameters(*fused)) {
      EXPECT_TRUE(tensor.equal(Parameters(*composed).at(name))) << name;
    }
    Randomise(*fused);
    Randomise(*composed);
    const at::Tensor x = Leaf({4, 3, 3}), state = Leaf(fused->ZeroState(3).sizes());
    const auto [y, last] = fused->forward(x, state);
    const auto [composed_y, composed_last] = composed->forward(x, state);
    ExpectSameGradients({y, last}, WithParameters(*fused, {x, state}), {composed_y, composed_last},
                        WithParameters(*composed, {x, state}));
  }
}

// Steps, fused and composed, equal a sequence and start from the same weights.
TEST(RecurrentSteps, AreThoseOfASequence) {
  for (const std::string& cell : CellNames()) {
    if (HasBatchNorm(cell)) continue;
    for (const bool composed : {false, true}) {
      if (composed && IsPyTorchs(cell)) continue;
      SCOPED_TRACE(cell + (composed ? ", composed" : ""));
      RecurrentOptions options = {.inputs = 3, .hidden = 5, .epsilon = 1e-3, .gain = 0.5};
      const auto module = Seeded(cell, options);
      options.composed = composed;
      at::manual_seed(1);
      const auto steps = MakeRecurrentSteps(cell, options);
      const auto of_steps = Parameters(*steps);
      EXPECT_EQ(of_steps.size(), Parameters(*module).size());
      for (const auto& [name, tensor] : Parameters(*module)) {
        EXPECT_TRUE(tensor.equal(of_steps.at(name.substr(0, name.find("_l0"))))) << name;
      }
      Randomise(*module);
      Randomise(*steps);

      const at::Tensor x = Leaf({6, 3, 3}), state = Leaf(module->ZeroState(3).sizes());
      const auto [y, last] = module->forward(x, state);
      const bool lstm = state.size(0) > 1;
      const auto cell_state = [&](const at::Tensor& states) {  // [S, 1, B, H] -> [B, (S - 1) H]
        return lstm ? at::cat(states.select(1, 0).slice(0, 1).unbind(0), 1) : at::Tensor();
      };
      steps->Begin();
      RecurrentState now = {state[0][0], cell_state(state)};
      std::vector<at::Tensor> ys;
      for (int64_t t = 0; t < x.size(0); ++t) {
        now = steps->Step(x[t], now);
        EXPECT_EQ(now.c.defined(), lstm);
        ys.push_back(now.h);
      }
      std::vector<at::Tensor> results = {at::stack(ys)}, expected = {y};
      if (lstm) results.push_back(now.c), expected.push_back(cell_state(last));
      ExpectSameGradients(results, WithParameters(*steps, {x, state}), expected,
                          WithParameters(*module, {x, state}));
    }
  }
}

TEST(RecurrentSteps, StartFromZeros) {
  for (const std::string& cell : CellNames()) {
    if (HasBatchNorm(cell)) continue;
    const auto steps = MakeRecurrentSteps(cell, {.inputs = 3, .hidden = 4});
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      steps->to(type);
      const RecurrentState zero = steps->ZeroState(2);
      EXPECT_TRUE(zero.h.equal(at::zeros({2, 4}, type))) << cell;
      EXPECT_EQ(zero.c.defined(), StatesOf(cell) > 1) << cell;
      if (zero.c.defined()) {
        EXPECT_EQ(zero.c.scalar_type(), type) << cell;
        EXPECT_EQ(zero.c.size(1), 4 * (StatesOf(cell) - 1)) << cell;
        ExpectZero(at::stack({zero.h, zero.c.slice(1, 0, 4), zero.c.slice(1, -4)})
                       .slice(0, 0, StatesOf(cell)));
      }
    }
  }
}

// A sum of a cell with batch norm, with PyTorch's batch norm as the oracle.
struct ReferenceNorm {
  at::Tensor weight, bias, mean, variance;  // mean and variance: running estimates

  // Returns the norm of z [B, G]. In training, adds the step's statistics to `means` and
  // `variances`.
  at::Tensor operator()(const at::Tensor& z, bool training, std::vector<at::Tensor>& means,
                        std::vector<at::Tensor>& variances) const {
    if (!training) return at::batch_norm(z, weight, bias, mean, variance, false, 0, kEps, false);
    const at::Tensor own_mean = at::zeros_like(mean), own_variance = at::zeros_like(variance);
    const at::Tensor y =
        at::batch_norm(z, weight, bias, own_mean, own_variance, true, /*momentum=*/1, kEps, false);
    if (z.size(0) > 1) means.push_back(own_mean), variances.push_back(own_variance);
    return y;
  }
  static constexpr double kEps = 1e-3;
};

// One layer of bn-rnn or bn-gru, one step and only its sequences at a time. Updates the estimates
// in `norms`.
std::vector<at::Tensor> ReferenceLayer(const std::map<std::string, at::Tensor>& p,
                                       const std::string& l, std::vector<ReferenceNorm>& norms,
                                       const at::Tensor& x, const at::Tensor& h0,
                                       const std::vector<int64_t>& lengths, bool training) {
  std::vector<std::vector<at::Tensor>> means(norms.size()), variances(norms.size());
  at::Tensor h = h0;
  std::vector<at::Tensor> ys;
  for (int64_t t = 0; t < x.size(0); ++t) {
    std::vector<int64_t> there;
    for (size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] > t) there.push_back(static_cast<int64_t>(b));
    }
    const at::Tensor rows = at::tensor(there, at::kLong), own = h.index_select(0, rows);
    const at::Tensor zx = x[t].index_select(0, rows).matmul(p.at("weight_ih" + l).t());
    const at::Tensor zh = own.matmul(p.at("weight_hh" + l).t());
    const auto norm = [&](size_t i, const at::Tensor& z) {
      return norms[i](z, training, means[i], variances[i]);
    };
    at::Tensor next;
    if (norms.size() == 1) {
      next = norm(0, zx + zh).tanh();
    } else {
      const auto a = norm(0, zx).chunk(3, 1), b = norm(1, zh).chunk(3, 1);
      const at::Tensor r = (a[0] + b[0]).sigmoid(), u = (a[1] + b[1]).sigmoid();
      next = (1 - u) * (a[2] + r * b[2]).tanh() + u * own;
    }
    h = h.index_copy(0, rows, next);
    ys.push_back(at::zeros_like(h).index_copy(0, rows, next));
  }
  for (size_t i = 0; i < norms.size() && training; ++i) {
    const at::NoGradGuard no_grad;
    norms[i].mean = 0.9 * norms[i].mean + 0.1 * at::stack(means[i]).mean(0);
    norms[i].variance = 0.9 * norms[i].variance + 0.1 * at::stack(variances[i]).mean(0);
  }
  return {at::stack(ys), h};
}

// Two passes of training with whole and ragged batches, then an evaluation: results, gradients and
// running estimates.
TEST(RecurrentBatchNorm, IsThatOfPyTorchAtEveryStep) {
  for (const std::string cell : {"bn-rnn", "bn-gru"}) {
    for (const bool composed : {false, true}) {
      SCOPED_TRACE(cell + (composed ? ", composed" : ""));
      const auto module = Seeded(cell, {.inputs = 3,
                                        .hidden = 4,
                                        .layers = 2,
                                        .epsilon = ReferenceNorm::kEps,
                                        .composed = composed});
      Randomise(*module);
      std::map<std::string, at::Tensor> p;
      for (const auto& [name, tensor] : Parameters(*module)) p[name.substr(6)] = tensor;
      std::vector<std::vector<ReferenceNorm>> norms(2);
      for (size_t l = 0; l < 2; ++l) {
        const std::vector<std::string> prefixes = cell == "bn-rnn"
                                                      ? std::vector<std::string>{"ln"}
                                                      : std::vector<std::string>{"ln_ih", "ln_hh"};
        for (const std::string& prefix : prefixes) {
          const std::string end = "_l" + std::to_string(l);
          const at::Tensor& weight = p.at(prefix + "_weight" + end);
          norms[l].push_back({weight, p.at(prefix + "_bias" + end), at::zeros_like(weight).detach(),
                              at::ones_like(weight).detach()});
        }
      }
      for (const std::vector<int64_t>& lengths :
           {std::vector<int64_t>{6, 6, 6, 6, 6}, {2, 6, 1, 4, 5}, {3, 1, 6, 2, 2}}) {
        const bool training = lengths[0] != 3;
        module->train(training);
        const at::Tensor x = Leaf({6, 5, 3}), state = Leaf({1, 2, 5, 4});
        const bool whole = lengths[0] == 6;
        const auto [y, last] =
            module->forward(x, state, whole ? at::Tensor() : at::tensor(lengths, at::kLong));
        const auto first = ReferenceLayer(p, "_l0", norms[0], x, state[0][0], lengths, training);
        const auto second =
            ReferenceLayer(p, "_l1", norms[1], first[0], state[0][1], lengths, training);
        const auto inputs = WithParameters(*module, {x, state});
        ExpectSameGradients({y, last}, inputs,
                            {second[0], at::stack({first[1], second[1]}).unsqueeze(0)}, inputs);
        const auto buffers = module->named_buffers();
        for (size_t l = 0; l < 2; ++l) {
          for (size_t i = 0; i < norms[l].size(); ++i) {
            const auto estimate = [&](const char* name) {
              return buffers[name + std::to_string(l)][static_cast<int64_t>(i)];
            };
            ExpectNear(estimate("running_mean_l"), norms[l][i].mean, "mean");
            ExpectNear(estimate("running_var_l"), norms[l][i].variance, "variance");
          }
        }
      }
    }
  }
}

// A block-diagonal matrix equals that matrix with zeros.
TEST(RecurrentBatchNorm, EstimatesWithHeads) {
  for (const std::string cell : {"bn-rnn", "bn-gru"}) {
    SCOPED_TRACE(cell);
    const auto heads = Seeded(cell, {.inputs = 3, .hidden = 4, .heads = 2});
    Randomise(*heads);
    const auto whole = Seeded(cell, {.inputs = 3, .hidden = 4});
    whole->to(at::kDouble);
    const std::vector<RecurrentParams> layers = heads->Layers();
    for (const auto& [name, tensor] : Parameters(*whole)) {
      at::Tensor data = tensor;
      const at::Tensor of_heads = Parameters(*heads).at(name).detach();
      data.set_data(name != "layer.weight_hh_l0" ? of_heads : layers[0].tensors.at(1));
    }
    const at::Tensor x = at::randn({5, 3, 3}, at::kDouble);
    const at::Tensor state = at::randn({1, 1, 3, 4}, at::kDouble);
    for (const bool training : {true, false}) {
      heads->train(training);
      whole->train(training);
      ExpectNear(heads->forward(x, state).first, whole->forward(x, state).first, "y");
    }
    for (const auto& item : heads->named_buffers()) {
      ExpectNear(item.value(), whole->named_buffers()[item.key()], item.key());
    }
  }
}

TEST(RecurrentBatchNorm, NeedsTwoSequencesInTraining) {
  const auto module = Seeded("bn-rnn", {.inputs = 3, .hidden = 4});
  const auto run = [&](int64_t steps, int64_t batch) {
    return module->forward(at::randn({steps, batch, 3}), module->ZeroState(batch)).first;
  };
  for (const int64_t batch : {0, 1}) {
    try {
      run(2, batch);
      ADD_FAILURE() << "no error";
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()),
                "[RecurrentModule] batch must have at least 2 sequences in training with batch "
                "norm, got " +
                    std::to_string(batch));
    }
  }
  // No step changes no estimate; evaluation takes any batch.
  EXPECT_EQ(run(0, 2).sizes(), at::IntArrayRef({0, 2, 4}));
  EXPECT_TRUE(module->named_buffers()["running_var_l0"].equal(at::ones({1, 4})));
  module->eval();
  EXPECT_EQ(run(2, 1).sizes(), at::IntArrayRef({2, 1, 4}));
  EXPECT_EQ(run(2, 0).sizes(), at::IntArrayRef({2, 0, 4}));
  EXPECT_TRUE(module->named_buffers()["running_var_l0"].equal(at::ones({1, 4})));
}

// Each head of a layer without norms equals a layer of its units only.
TEST(Recurrent, HeadsReadOnlyTheirPartOfTheState) {
  for (const std::string cell : {"lstm", "gru", "rnn", "slstm"}) {
    SCOPED_TRACE(cell);
    const auto both = Seeded(cell, {.inputs = 3, .hidden = 4, .heads = 2});
    Randomise(*both);
    const at::Tensor x = at::randn({5, 3, 3}, at::kDouble);
    const at::Tensor state = at::randn(both->ZeroState(3).sizes(), at::kDouble);
    const auto [y, last] = both->forward(x, state);
    for (const int64_t head : {0, 1}) {
      const auto units = [&](const at::Tensor& t, int64_t dim) {
        return t.slice(dim, 2 * head, 2 * head + 2);
      };
      const auto one = Seeded(cell, {.inputs = 3, .hidden = 2});
      one->to(at::kDouble);
      for (const auto& [name, tensor] : Parameters(*one)) {  // [G H, ...], one gate after the other
        const at::Tensor of_both = Parameters(*both).at(name).detach();
        at::Tensor data = tensor;
        data.set_data(units(of_both.unflatten(0, {-1, 4}), 1).flatten(0, 1).contiguous());
      }
      const auto [own_y, own_last] = one->forward(x, units(state, 3));
      ExpectNear(units(y, 2), own_y, "y");
      ExpectNear(units(last, 3), own_last, "last");
    }
  }
}

TEST(Recurrent, ReportsWrongHeads) {
  const auto error = [](const std::string& cell, int64_t heads) -> std::string {
    try {
      CheckRecurrent(cell, {.inputs = 3, .hidden = 4, .heads = heads});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  for (const std::string& cell : CellNames()) {
    if (IsPyTorchs(cell)) {
      EXPECT_EQ(error(cell, 2), "[CheckRecurrent] heads must be 1 for \"" + cell + "\", got 2");
    } else {
      EXPECT_EQ(error(cell, 3), "[CheckRecurrent] heads must divide the 4 units, got 3") << cell;
      EXPECT_EQ(error(cell, 8), "[CheckRecurrent] heads must divide the 4 units, got 8") << cell;
      EXPECT_EQ(error(cell, 0), "[CheckRecurrent] heads must divide the 4 units, got 0") << cell;
      EXPECT_EQ(error(cell, 2), "") << cell;
      EXPECT_EQ(error(cell, 4), "") << cell;
    }
    EXPECT_EQ(error(cell, 1), "") << cell;
  }
  EXPECT_THROW(MakeRecurrent("lstm", {.inputs = 3, .hidden = 4, .heads = 3}), UsageError);
  EXPECT_THROW(MakeRecurrentSteps("slstm", {.inputs = 3, .hidden = 4, .heads = 3}), UsageError);
}

TEST(RecurrentSteps, MustBegin) {
  const auto steps = MakeRecurrentSteps("ln-lstm", {.inputs = 3, .hidden = 4});
  EXPECT_THROW(steps->Step(at::randn({2, 3}), steps->ZeroState(2)), Error);
  steps->Begin();
  const auto step = [&] { return steps->Step(at::ones({2, 3}), steps->ZeroState(2)).h; };
  const at::Tensor h = step();
  EXPECT_EQ(h.sizes(), at::IntArrayRef({2, 4}));
  // And again after an update.
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : steps->parameters()) parameter.mul_(2);
  }
  EXPECT_THROW(step(), c10::Error);
  steps->Begin();
  EXPECT_FALSE(step().equal(h));
  // In evaluation, parameters are packed unchanged and not for backward.
  steps->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor before = step();
  steps->Begin();
  EXPECT_TRUE(step().equal(before));
  EXPECT_FALSE(step().requires_grad());
}

}  // namespace
}  // namespace planish::lab
