#include "lab/tasks/attentive-reader/batch_norm_lstm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace planish::lab {
namespace {

constexpr int64_t kInputs = 5, kHidden = 4;

// Both sides compute in double. They sum some tens of terms in different orders, through a few
// steps whose norms can enlarge a rounding error a hundredfold. 1e-10 is 2^-53 times 10^6.
constexpr double kDouble = 1e-10;

void ExpectNear(const at::Tensor& a, const at::Tensor& b, const std::string& name) {
  ASSERT_EQ(a.sizes(), b.sizes()) << name;
  EXPECT_LE((a - b).abs().max().item<double>(),
            kDouble * std::max(1.0, b.abs().max().item<double>()))
      << name;
}

// Returns a layer in double with parameters that differ from 0 and 1.
std::shared_ptr<BatchNormLstm> Layer(bool composed, int64_t steps = 6) {
  at::manual_seed(1);
  auto layer = std::make_shared<BatchNormLstm>(BatchNormLstm::Options{
      .inputs = kInputs, .hidden = kHidden, .gain = 0.5, .composed = composed, .steps = steps});
  layer->to(at::kDouble);
  for (at::Tensor& parameter : layer->parameters()) {
    parameter.set_data(parameter.detach() + 0.3 * at::randn_like(parameter));
  }
  return layer;
}

at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

struct StepStatistics {
  double count = 0;
  at::Tensor mean, variance;  // [9H]
};

// Reference: one sequence after another at each step, with the statistics `given`, or else those of
// the batch, which it stores in `found`.
at::Tensor Reference(const BatchNormLstm& layer, const at::Tensor& x, const at::Tensor& h0,
                     const at::Tensor& c0, const std::vector<int64_t>& lengths,
                     const std::vector<StepStatistics>& given, std::vector<StepStatistics>* found) {
  std::map<std::string, at::Tensor> p;
  for (const auto& item : layer.named_parameters()) {
    p[item.key().substr(std::string("layer.").size())] = item.value().detach();
  }
  std::vector<at::Tensor> h, c;
  for (size_t b = 0; b < lengths.size(); ++b) {
    h.push_back(h0[static_cast<int64_t>(b)].clone());
    c.push_back(c0[static_cast<int64_t>(b)].clone());
  }
  at::Tensor y = at::zeros({x.size(0), x.size(1), kHidden}, at::kDouble);
  for (int64_t t = 0; t < x.size(0); ++t) {
    std::vector<size_t> there;
    for (size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] > t) there.push_back(b);
    }
    if (there.empty()) break;
    std::vector<at::Tensor> means, variances;
    int64_t column = 0;
    const auto normalize = [&](const std::vector<at::Tensor>& rows) {
      const at::Tensor all = at::stack(rows);
      at::Tensor mean = all.mean(0), variance = all.var(0, /*unbiased=*/false);
      if (!given.empty()) {
        const StepStatistics& statistics =
            given[std::min(static_cast<size_t>(t), given.size() - 1)];
        mean = statistics.mean.slice(0, column, column + all.size(1));
        variance = statistics.variance.slice(0, column, column + all.size(1));
      }
      column += all.size(1);
      means.push_back(mean);
      variances.push_back(variance);
      return ((all - mean) / (variance + 1e-5).sqrt()).unbind(0);
    };
    std::vector<at::Tensor> zx, zh, next;
    for (const size_t b : there) {
      zx.push_back(p.at("weight_ih_l0").mv(x[t][static_cast<int64_t>(b)]));
      zh.push_back(p.at("weight_hh_l0").mv(h[b]));
    }
    const auto nx = normalize(zx), nh = normalize(zh);
    std::vector<at::Tensor> o;
    for (size_t i = 0; i < there.size(); ++i) {
      const at::Tensor a =
          nx[i] * p.at("ln_ih_weight_l0") + nh[i] * p.at("ln_hh_weight_l0") + p.at("bias_ih_l0");
      const auto gate = [&](int64_t k) { return a.slice(0, k * kHidden, (k + 1) * kHidden); };
      o.push_back(gate(3).sigmoid());
      c[there[i]] = gate(1).sigmoid() * c[there[i]] + gate(0).sigmoid() * gate(2).tanh();
      next.push_back(c[there[i]]);
    }
    const auto nc = normalize(next);
    for (size_t i = 0; i < there.size(); ++i) {
      h[there[i]] = o[i] * (nc[i] * p.at("ln_c_weight_l0") + p.at("ln_c_bias_l0")).tanh();
      y[t][static_cast<int64_t>(there[i])] = h[there[i]];
    }
    if (found) {
      found->push_back({static_cast<double>(there.size()), at::cat(means), at::cat(variances)});
    }
  }
  return y;
}

TEST(BatchNormLstm, TrainsAsItsComposition) {
  const auto fused = Layer(false), composed = Layer(true);
  at::manual_seed(3);
  const at::Tensor x = Random({6, 7, kInputs}).requires_grad_();
  const at::Tensor state = Random({2, 1, 7, kHidden}).requires_grad_();
  for (const at::Tensor& lengths : {at::Tensor(), at::tensor({6, 2, 5, 3, 6, 1, 4}, at::kLong)}) {
    const auto [y, last] = fused->forward(x, state, lengths);
    const auto [other_y, other_last] = composed->forward(x, state, lengths);
    ExpectNear(y, other_y, "y");
    ExpectNear(last, other_last, "last");
    const at::Tensor dy = at::randn_like(y), dlast = at::randn_like(last);
    const auto gradients = [&](const BatchNormLstm& layer, const at::Tensor& a,
                               const at::Tensor& b) {
      std::vector<at::Tensor> inputs = {x, state};
      for (const at::Tensor& parameter : layer.parameters()) inputs.push_back(parameter);
      return torch::autograd::grad({a, b}, inputs, {dy, dlast});
    };
    const auto a = gradients(*fused, y, last), b = gradients(*composed, other_y, other_last);
    for (size_t i = 0; i < a.size(); ++i) ExpectNear(a[i], b[i], "gradient " + std::to_string(i));
  }
}

TEST(BatchNormLstm, TrainsAsTheEquationsSay) {
  const auto layer = Layer(false);
  at::manual_seed(3);
  const at::NoGradGuard no_grad;
  const at::Tensor x = Random({6, 7, kInputs}), state = Random({2, 1, 7, kHidden});
  const std::vector<int64_t> lengths = {6, 2, 5, 3, 6, 1, 4};
  ExpectNear(layer->forward(x, state, at::tensor(lengths, at::kLong)).first,
             Reference(*layer, x, state[0][0], state[1][0], lengths, {}, nullptr), "y");
}

// Estimates statistics from three batches, weighted by the sequences at each step, then evaluates a
// longer batch with them.
TEST(BatchNormLstm, EvaluatesWithTheMeanStatisticsOfEachStep) {
  constexpr int64_t kSteps = 4;
  const auto layer = Layer(false, kSteps);
  layer->eval();
  at::manual_seed(4);
  const at::NoGradGuard no_grad;
  std::vector<StepStatistics> sums;
  layer->BeginEstimates();
  for (const int64_t batch : {16, 18, 20}) {
    const at::Tensor x = 2 * Random({5, batch, kInputs}) + 1;
    const at::Tensor state = Random({2, 1, batch, kHidden});
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < batch; ++b) lengths.push_back(b % 3 == 0 ? 5 : 1 + b % 4);
    std::vector<StepStatistics> found;
    const at::Tensor y = layer->forward(x, state, at::tensor(lengths, at::kLong)).first;
    ExpectNear(y, Reference(*layer, x, state[0][0], state[1][0], lengths, {}, &found),
               "estimating");
    sums.resize(kSteps);
    for (size_t t = 0; t < kSteps; ++t) {
      sums[t].count += found[t].count;
      for (const auto member : {&StepStatistics::mean, &StepStatistics::variance}) {
        const at::Tensor weighed = found[t].*member * found[t].count;
        sums[t].*member = (sums[t].*member).defined() ? sums[t].*member + weighed : weighed;
      }
    }
  }
  layer->EndEstimates();
  for (StepStatistics& sum : sums) {
    ASSERT_GE(sum.count, 16);
    sum.mean /= sum.count;
    sum.variance /= sum.count;
  }
  const std::vector<int64_t> lengths = {7, 1, 4};
  const at::Tensor x = Random({7, 3, kInputs}), state = Random({2, 1, 3, kHidden});
  const at::Tensor y = layer->forward(x, state, at::tensor(lengths, at::kLong)).first;
  ExpectNear(y, Reference(*layer, x, state[0][0], state[1][0], lengths, sums, nullptr), "y");
  // A single sequence without lengths: results do not depend on the other sequences.
  ExpectNear(layer->forward(x.narrow(1, 0, 1), state.narrow(2, 0, 1)).first, y.narrow(1, 0, 1),
             "one");
}

TEST(BatchNormLstm, UsesEarlierStatisticsForTimesWithFewSequences) {
  const auto layer = Layer(false, 6);
  layer->eval();
  at::manual_seed(5);
  const at::NoGradGuard no_grad;
  std::vector<int64_t> lengths(20, 2);
  std::fill_n(lengths.begin(), 16, 3);
  std::fill_n(lengths.begin(), 15, 5);
  layer->BeginEstimates();
  layer->forward(Random({5, 20, kInputs}), layer->ZeroState(20).to(at::kDouble),
                 at::tensor(lengths, at::kLong));
  layer->EndEstimates();
  for (const auto& item : layer->named_buffers()) {
    const at::Tensor rows = item.value();
    EXPECT_FALSE(rows[1].equal(rows[2])) << item.key();
    for (int64_t t = 3; t < 6; ++t) EXPECT_TRUE(rows[t].equal(rows[2])) << item.key() << t;
  }
}

}  // namespace
}  // namespace planish::lab
