#include "lab/model/relative_attention.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace planish::lab {
namespace {

// Inputs of an attention over a memory and a segment.
struct Inputs {
  Inputs(int64_t batch, int64_t queries, int64_t memory, int64_t width) {
    at::manual_seed(1);
    const auto draw = [](at::IntArrayRef shape) {
      return at::randn(shape, at::kDouble).requires_grad_(true);
    };
    q = draw({batch, queries, width});
    kv = draw({batch, queries, 2 * width});
    if (memory > 0) memory_kv = draw({batch, memory, 2 * width});
    r = draw({memory + queries + 1, width});
    u = draw({width});
    v = draw({width});
  }

  std::vector<at::Tensor> All() const {
    std::vector<at::Tensor> all = {q, kv, r, u, v};
    if (memory_kv.defined()) all.push_back(memory_kv);
    return all;
  }

  at::Tensor q, kv, memory_kv, r, u, v;
};

// Evaluates the formula for each query of each head.
at::Tensor Explicit(const Inputs& in, int64_t heads, int64_t window) {
  const int64_t batch = in.q.size(0), queries = in.q.size(1), width = in.q.size(2) / heads;
  const at::Tensor kv = in.memory_kv.defined() ? at::cat({in.memory_kv, in.kv}, 1) : in.kv;
  const int64_t memory = kv.size(1) - queries;
  std::vector<at::Tensor> y;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < queries; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const auto part = [&](const at::Tensor& row, int64_t from) {
          return row.slice(0, from + h * width, from + (h + 1) * width);
        };
        const at::Tensor q = part(in.q[b][t], 0);
        std::vector<at::Tensor> scores, values;
        for (int64_t j = 0; j <= memory + t; ++j) {
          const int64_t distance = memory + t - j;
          if (window > 0 && distance >= window) continue;
          const at::Tensor r = part(in.r[memory + queries - distance], 0);
          scores.push_back(
              ((q + part(in.u, 0)).dot(part(kv[b][j], 0)) + (q + part(in.v, 0)).dot(r)) /
              std::sqrt(static_cast<double>(width)));
          values.push_back(part(kv[b][j], heads * width));
        }
        y.push_back(at::stack(scores).softmax(0).matmul(at::stack(values)));
      }
    }
  }
  return at::cat(y).view({batch, queries, heads * width});
}

struct Case {
  int64_t memory, window;
};

// Without memory, and with a memory shorter and longer than the queries. Windows end within the
// segment, at its beginning, within the memory and before it.
const std::vector<Case> kCases = {{0, 0}, {3, 0}, {9, 0}, {0, 2}, {9, 1}, {9, 5}, {9, 7}, {3, 100}};

// Doubles of size 1 to 10 from sums of 14 terms: 1e-12 is some thousand roundings.
TEST(RelativeAttention, IsTheExplicitFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << "memory " << c.memory << " window " << c.window);
    const Inputs in(2, 5, c.memory, 6);
    const at::Tensor y = RelativeAttention(in.q, in.kv, in.memory_kv, in.r, in.u, in.v,
                                           {.heads = 3, .window = c.window});
    const at::Tensor expected = Explicit(in, 3, c.window);
    EXPECT_LT((y - expected).abs().max().item<double>(), 1e-12);
    const at::Tensor dy = at::randn_like(y);
    y.backward(dy);
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& x : in.All()) gradients.push_back(x.grad().clone());
    for (const at::Tensor& x : in.All()) x.mutable_grad().reset();
    expected.backward(dy);
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LT((gradients[i] - in.All()[i].grad()).abs().max().item<double>(), 1e-12) << i;
    }
  }
}

TEST(RelativeAttention, AcceptsOneQueryAtATime) {
  const Inputs in(2, 5, 4, 6);
  const at::NoGradGuard no_grad;
  const RelativeAttentionOptions options{.heads = 2};
  const at::Tensor whole = RelativeAttention(in.q, in.kv, in.memory_kv, in.r, in.u, in.v, options);
  for (int64_t t = 0; t < 5; ++t) {
    const at::Tensor memory = at::cat({in.memory_kv, in.kv.slice(1, 0, t)}, 1);
    const at::Tensor y = RelativeAttention(in.q.slice(1, t, t + 1).contiguous(),
                                           in.kv.slice(1, t, t + 1).contiguous(), memory,
                                           in.r.slice(0, 4 - t), in.u, in.v, options);
    EXPECT_LT((y - whole.slice(1, t, t + 1)).abs().max().item<double>(), 1e-12) << t;
  }
}

// NaN and infinite keys and values after a query do not change it.
TEST(RelativeAttention, SeesNothingOfTheFuture) {
  const Inputs in(1, 5, 2, 4);
  const at::NoGradGuard no_grad;
  const auto run = [&](const at::Tensor& kv) {
    return RelativeAttention(in.q, kv, in.memory_kv, in.r, in.u, in.v, {.heads = 2});
  };
  const at::Tensor before = run(in.kv);
  at::Tensor kv = in.kv.clone();
  kv.slice(1, 3).slice(2, 0, 4).fill_(std::numeric_limits<double>::quiet_NaN());  // keys
  kv.slice(1, 3).slice(2, 4) += 1000;                                             // values
  const at::Tensor after = run(kv);
  EXPECT_TRUE(after.slice(1, 0, 3).equal(before.slice(1, 0, 3)));
  EXPECT_TRUE(after.slice(1, 3).isnan().all().item<bool>());
}

// With zero queries, keys and positions every probability of query t is 1 / (t + 1). With values of
// 1, y is the fraction of probabilities kept, divided by 1 - p.
TEST(RelativeAttention, DropsProbabilities) {
  const int64_t length = 40;
  const at::Tensor zeros = at::zeros({8, length, 4}), kv = at::cat({zeros, zeros + 1}, 2);
  const auto run = [&](double dropout) {
    at::manual_seed(2);
    const at::Tensor memory;
    at::Tensor input = kv.clone().requires_grad_(true);
    const at::Tensor y =
        RelativeAttention(zeros, input, memory, at::zeros({length + 1, 4}), at::zeros({4}),
                          at::zeros({4}), {.heads = 2, .dropout = dropout});
    y.sum().backward();
    return std::pair{y, input.grad()};
  };
  EXPECT_TRUE(run(0).first.allclose(at::ones({8, length, 4})));
  const auto [y, gradient] = run(0.25);
  for (int64_t t = 0; t < length; ++t) {
    const at::Tensor kept = y.select(1, t) * (0.75 * static_cast<double>(t + 1));
    // An integer number of values, which is kept * probability in float: 40 roundings of 6e-8 of
    // 40.
    EXPECT_LT((kept - kept.round()).abs().max().item<double>(), 1e-4) << t;
  }
  // 16 heads and sequences of 40 * 41 / 2 = 820 probabilities. Their weighted mean is 1, with a
  // deviation of sqrt(1/3 / 16 / 40 * mean(1 / (t + 1)) * ...) < .01 for the last ten rows.
  EXPECT_NEAR(y.slice(1, 30).mean().item<double>(), 1, 0.1);
  // The gradient of a value is the sum of its kept probabilities, so the total equals that of y.
  EXPECT_NEAR(gradient.slice(2, 4).sum().item<double>(), y.sum().item<double>(), 1e-2);
}

}  // namespace
}  // namespace planish::lab
