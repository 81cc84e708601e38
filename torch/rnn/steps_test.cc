#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "torch/rnn/fields.h"
#include "torch/rnn/testing.h"

namespace planish {
namespace {

using at::Tensor;
using ::testing::HasSubstr;
using tests::ErrorOf;
using tests::ExpectNear;
using tests::ExpectSame;
using tests::FlipABit;
using tests::Given;
using tests::IsLstm;
using tests::Leaves;
using tests::Random;
using tests::RandomLayer;
using tests::Shaped;
using Tensors = std::vector<Tensor>;

constexpr double kEps = 1e-3;

/// A state; c is undefined except for an LSTM.
struct State {
  Tensor h, c;
};

/// A function that computes a step.
using Step = std::function<State(const Tensor& x, const State& state)>;

RnnTensors OnlyParams(const RnnTensors& layer) {
  RnnTensors params = layer;
  params.x = params.h0 = params.c0 = Tensor();
  return params;
}

/// Returns a step by rnn_step, whose gradients autograd adds up step by step.
Step OneByOne(Cell cell, const RnnTensors& layer) {
  return [cell, params = OnlyParams(layer)](const Tensor& x, const State& state) -> State {
    RnnTensors tensors = params;
    tensors.x = x;
    tensors.h0 = state.h;
    tensors.c0 = state.c;
    const auto [h, c] = rnn_step(cell, tensors, kEps);
    return {h, IsLstm(cell) ? c : Tensor()};
  };
}

Step Together(Cell cell, const RnnTensors& layer) {
  return [cell, steps = RnnSteps(cell, OnlyParams(layer), kEps)](const Tensor& x,
                                                                 const State& state) -> State {
    const auto [h, c] = steps.step(x, state.h, state.c);
    return {h, IsLstm(cell) ? c : Tensor()};
  };
}

/// Returns the leaves that are defined.
Tensors Inputs(const RnnTensors& leaves) {
  Tensors list;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    if ((leaves.*kFields[i].member).defined()) list.push_back(leaves.*kFields[i].member);
  }
  return list;
}

/// A loss of a layer's states, with the same weights for every Step.
using Loss = std::function<Tensor(const RnnTensors& leaves, const Step& step)>;

Tensor Weighted(const Tensor& t, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return (t * at::randn_like(t)).sum();
}

/// Returns a loss of the states after every step.
Tensor OfAllStates(const RnnTensors& leaves, const Step& step) {
  State state = {leaves.h0, leaves.c0};
  Tensor loss;
  for (int64_t t = 0; t < leaves.x.size(0); ++t) {
    state = step(leaves.x[t], state);
    const Tensor term = Weighted(state.h, static_cast<int>(t));
    loss = loss.defined() ? loss + term : term;
  }
  return state.c.defined() ? loss + Weighted(state.c, 1000) : loss;
}

/// Expects RnnSteps and rnn_step to have the same loss and gradients.
void ExpectSameGradients(Cell cell, const RnnTensors& layer, const Loss& loss) {
  const RnnTensors ours = Leaves(layer), theirs = Leaves(layer);
  const Tensor our_loss = loss(ours, Together(cell, ours));
  const Tensor their_loss = loss(theirs, OneByOne(cell, theirs));
  ExpectSame(our_loss, their_loss, "loss");
  const Tensors a = torch::autograd::grad({our_loss}, Inputs(ours), {}, {}, false, true);
  const Tensors b = torch::autograd::grad({their_loss}, Inputs(theirs), {}, {}, false, true);
  for (size_t i = 0; i < a.size(); ++i) {
    // The gradient of a tensor without influence can be undefined or zeros.
    if (!a[i].defined() && !b[i].defined()) continue;
    const Tensor zeros = at::zeros_like(Inputs(ours)[i]);
    ExpectNear(a[i].defined() ? a[i] : zeros, b[i].defined() ? b[i] : zeros, std::to_string(i));
  }
}

class EveryStepCell : public ::testing::TestWithParam<tests::Kind> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

std::vector<tests::Kind> KindsOfSteps() {
  std::vector<tests::Kind> kinds;
  for (const tests::Kind& kind : tests::kKinds) {
    if (internal::RecipeOf(kind.cell).over == internal::Over::kRow) kinds.push_back(kind);
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryStepCell, ::testing::ValuesIn(KindsOfSteps()),
                         [](const auto& kind) { return tests::NameOf(kind.param); });

// Matrix products have 256 rows: tests fewer, as many, and more.
TEST_P(EveryStepCell, MatchesGradientsOfSingleSteps) {
  const auto [cell, recurrence] = GetParam();
  for (const RnnShape& shape :
       {RnnShape{1, 2, 3, 5}, {6, 5, 3, 7}, {16, 16, 2, 3}, {3, 150, 3, 2}}) {
    for (const Given& given : {Given{}, Given{.states = false, .affine = false}}) {
      ExpectSameGradients(cell, RandomLayer(cell, Shaped(shape, recurrence), given), OfAllStates);
    }
  }
}

TEST_P(EveryStepCell, HasTheBitsOfASequence) {
  const auto [cell, recurrence] = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const RnnTensors layer = RandomLayer(cell, Shaped({7, 5, 3, 6}, recurrence), {}, type);
    const RnnTensors ours = Leaves(layer), theirs = Leaves(layer);
    const Tensor loss = OfAllStates(ours, Together(cell, ours));
    // 35 rows are one product, in the same order as in the sequence.
    const RnnOutputs outputs = rnn_forward(cell, theirs, {.eps = kEps});
    Tensor whole;
    for (int64_t t = 0; t < 7; ++t) {
      const Tensor term = Weighted(outputs.y[t], static_cast<int>(t));
      whole = whole.defined() ? whole + term : term;
    }
    if (IsLstm(cell)) whole = whole + Weighted(outputs.c_n, 1000);
    ExpectSame(loss, whole, "loss");
    const Tensors a = torch::autograd::grad({loss}, Inputs(ours));
    const Tensors b = torch::autograd::grad({whole}, Inputs(theirs));
    for (size_t i = 0; i < a.size(); ++i) ExpectSame(a[i], b[i], std::to_string(i));
  }
}

TEST_P(EveryStepCell, AllowsUnusedDetachedAndBranchedSteps) {
  const auto [cell, recurrence] = GetParam();
  const RnnTensors layer = RandomLayer(cell, Shaped({8, 3, 3, 5}, recurrence));
  // The loss sees the first half only through c and h of the second half, and not the last step.
  ExpectSameGradients(cell, layer, [](const RnnTensors& leaves, const Step& step) {
    State state = {leaves.h0, leaves.c0};
    for (int64_t t = 0; t < 7; ++t) state = step(leaves.x[t], state);
    const State unused = step(leaves.x[7], state);
    EXPECT_TRUE(unused.h.requires_grad());
    return Weighted(state.h, 1);
  });
  // No gradient passes from the second half into the first.
  ExpectSameGradients(cell, layer, [](const RnnTensors& leaves, const Step& step) {
    State state = {leaves.h0, leaves.c0};
    Tensor loss = at::zeros({}, at::kDouble);
    for (int64_t t = 0; t < 8; ++t) {
      if (t == 4) state = {state.h.detach(), state.c.defined() ? state.c.detach() : Tensor()};
      state = step(leaves.x[t], state);
      loss = loss + Weighted(state.h, static_cast<int>(t));
    }
    return loss;
  });
  // Two continuations of one state, one with a new c; and a state that is used twice.
  ExpectSameGradients(cell, layer, [](const RnnTensors& leaves, const Step& step) {
    const State first = step(leaves.x[0], {leaves.h0, leaves.c0});
    const State a = step(leaves.x[1], first), b = step(leaves.x[2], {first.h, {}});
    return Weighted(step(leaves.x[3], {a.h + b.h, a.c}).h, 1);
  });
  // The last step gets only the gradient of c, if there is one.
  ExpectSameGradients(cell, layer, [](const RnnTensors& leaves, const Step& step) {
    const State last = step(leaves.x[1], step(leaves.x[0], {leaves.h0, leaves.c0}));
    return Weighted(last.c.defined() ? last.c : last.h, 1);
  });
}

// Inputs computed from the previous output, as in a decoder.
TEST_P(EveryStepCell, AllowsInputsComputedFromOutputs) {
  const auto [cell, recurrence] = GetParam();
  ExpectSameGradients(
      cell,
      RandomLayer(cell, Shaped({6, 3, Shaped({.hidden = 5}, recurrence).outputs(), 5}, recurrence)),
      [](const RnnTensors& leaves, const Step& step) {
        State state = {leaves.h0, leaves.c0};
        for (int64_t t = 0; t < 6; ++t) state = step(leaves.x[t] + state.h.tanh(), state);
        return Weighted(state.h, 1);
      });
}

TEST_P(EveryStepCell, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto [cell, recurrence] = GetParam();
  Tensors expected;
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    const RnnTensors leaves =
        Leaves(RandomLayer(cell, Shaped({5, 64, 90, 130}, recurrence), {}, at::kFloat));
    const Tensor loss = OfAllStates(leaves, Together(cell, leaves));
    Tensors now = torch::autograd::grad({loss}, Inputs(leaves));
    now.push_back(loss);
    for (size_t i = 0; i < expected.size(); ++i) ExpectSame(now[i], expected[i], "thread");
    expected = now;
  }
}

// ---- Backward passes

struct Problem {
  RnnTensors leaves = Leaves(RandomLayer(Cell::kLnLstm, {6, 3, 3, 5}));
  Step step = Together(Cell::kLnLstm, leaves);
  Tensors inputs = Inputs(leaves);

  Tensor Loss() const { return OfAllStates(leaves, step); }
};

TEST(RnnSteps, GiveTheSameInEveryPass) {
  const Problem p;
  const Tensor loss = p.Loss();
  const Tensors first = torch::autograd::grad({loss}, p.inputs, {}, /*retain_graph=*/true);
  const Tensors second = torch::autograd::grad({loss}, p.inputs);
  for (size_t i = 0; i < first.size(); ++i) ExpectSame(first[i], second[i], "pass");
  EXPECT_THAT(ErrorOf([&] { torch::autograd::grad({loss}, p.inputs); }),
              HasSubstr("backward through the graph a second time"));
  // Further steps have their own graphs.
  const Tensors third = torch::autograd::grad({p.Loss()}, p.inputs);
  for (size_t i = 0; i < first.size(); ++i) ExpectSame(third[i], first[i], "again");
}

// The gradients of a loss in two parts, with one pass each, add up; shared steps are passed twice.
TEST(RnnSteps, AccumulateGradientsOverPasses) {
  const Problem p;
  State state = {p.leaves.h0, p.leaves.c0};
  Tensors states;
  for (int64_t t = 0; t < 6; ++t) {
    state = p.step(p.leaves.x[t], state);
    states.push_back(state.h);
  }
  const Tensor early = Weighted(states[2], 1), late = Weighted(states[5], 2);
  const Tensors whole = torch::autograd::grad({early + late}, p.inputs, {}, true);
  early.backward({}, /*retain_graph=*/true);
  late.backward();
  for (size_t i = 0; i < whole.size(); ++i) {
    ExpectNear(p.inputs[i].grad(), whole[i], std::to_string(i));
  }
  // Detached parts need no retained graph, even though they share parameters.
  const Problem q;
  const State first = q.step(q.leaves.x[0], {q.leaves.h0, q.leaves.c0});
  const State second = q.step(q.leaves.x[1], {first.h.detach(), first.c.detach()});
  Weighted(second.h, 1).backward();
  const Tensor once = q.leaves.weight_hh.grad().clone();
  EXPECT_GT(once.abs().max().item<double>(), 1e-3);
  Weighted(first.h, 1).backward();
  EXPECT_FALSE(q.leaves.weight_hh.grad().equal(once));
}

TEST(RnnSteps, AllowNestedPasses) {
  const Problem p;
  State state = {p.leaves.h0, p.leaves.c0};
  Tensor middle;
  for (int64_t t = 0; t < 6; ++t) {
    state = p.step(p.leaves.x[t], state);
    if (t == 2) middle = state.h;
  }
  const Tensor inner_loss = Weighted(middle, 1), loss = Weighted(state.h, 2);
  const Tensors inner_expected = torch::autograd::grad({inner_loss}, p.inputs, {}, true);
  const Tensors expected = torch::autograd::grad({loss}, p.inputs, {}, true);
  Tensors inner;
  bool within = false;
  middle.register_hook([&](const Tensor& gradient) {
    if (within) return gradient;
    within = true;
    inner = torch::autograd::grad({inner_loss}, p.inputs, {}, true);
    return gradient;
  });
  const Tensors outer = torch::autograd::grad({loss}, p.inputs, {}, true);
  for (size_t i = 0; i < outer.size(); ++i) ExpectSame(outer[i], expected[i], "outer");
  ASSERT_EQ(inner.size(), inner_expected.size());
  for (size_t i = 0; i < inner.size(); ++i) ExpectSame(inner[i], inner_expected[i], "inner");
}

TEST(RnnSteps, AllowConcurrentPasses) {
  const Problem p;
  const Tensor loss = p.Loss();
  const Tensors expected = torch::autograd::grad({loss}, p.inputs, {}, true);
  std::vector<Tensors> results(4);
  std::vector<std::thread> threads;
  for (Tensors& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) result = torch::autograd::grad({loss}, p.inputs, {}, true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensors& result : results) {
    for (size_t i = 0; i < expected.size(); ++i) ExpectSame(result[i], expected[i], "thread");
  }
}

// Partial sums of a pass that failed are not part of the next pass.
TEST(RnnSteps, IgnoreAPassThatThrew) {
  const Problem p;
  State state = {p.leaves.h0, p.leaves.c0};
  bool fail = false;
  for (int64_t t = 0; t < 6; ++t) {
    state = p.step(p.leaves.x[t], state);
    if (t != 2) continue;
    state.h.register_hook([&](const Tensor& gradient) {
      if (fail) throw std::runtime_error("of the hook");
      return gradient;
    });
  }
  const Tensor loss = Weighted(state.h, 1);
  const Tensors expected = torch::autograd::grad({loss}, p.inputs, {}, true);
  fail = true;
  EXPECT_THAT(ErrorOf([&] { torch::autograd::grad({loss}, p.inputs, {}, true); }),
              HasSubstr("of the hook"));
  fail = false;
  const Tensors again = torch::autograd::grad({loss}, p.inputs, {}, true);
  for (size_t i = 0; i < again.size(); ++i) ExpectSame(again[i], expected[i], "again");
}

TEST(RnnSteps, ComputeOnlyRequestedGradients) {
  const Problem p;
  const Tensor loss = p.Loss();
  const Tensors all = torch::autograd::grad({loss}, p.inputs, {}, true);
  for (size_t i = 0; i < all.size(); ++i) {
    ExpectSame(torch::autograd::grad({loss}, {p.inputs[i]}, {}, true)[0], all[i], "one");
  }
  // Constant parameters have no gradient; those of the others stay the same.
  for (size_t constant = 0; constant < kDifferentiables; ++constant) {
    RnnTensors leaves = Leaves(RandomLayer(Cell::kLnLstm, {6, 3, 3, 5}));
    Tensor& frozen = leaves.*kFields[constant].member;
    if (!frozen.defined()) continue;
    frozen.requires_grad_(false);
    const Tensor other = OfAllStates(leaves, Together(Cell::kLnLstm, leaves));
    other.backward();
    const Tensors inputs = Inputs(leaves);
    for (size_t i = 0; i < inputs.size(); ++i) {
      ExpectSame(inputs[i].grad(), inputs[i].is_same(frozen) ? Tensor() : all[i], "frozen");
    }
  }
}

TEST(RnnSteps, AcceptGradientsOfEveryForm) {
  const Problem p;
  const auto [h, c] = p.step(p.leaves.x[0], {p.leaves.h0, p.leaves.c0});
  const auto of = [&](const Tensor& dh, const Tensor& dc) {
    return torch::autograd::grad({h, c}, {p.leaves.h0, p.leaves.weight_hh, p.leaves.c0}, {dh, dc},
                                 true);
  };
  const auto expect_same = [&](const Tensors& a, const Tensors& b) {
    for (size_t i = 0; i < a.size(); ++i) ExpectSame(a[i], b[i], std::to_string(i));
  };
  const Tensor dh = Random({3, 5}), zeros = at::zeros({3, 5}, at::kDouble);
  const Tensors expected = of(dh, zeros);
  expect_same(of((-dh)._neg_view(), zeros), expected);
  expect_same(of(dh.t().contiguous().t(), zeros), expected);
  expect_same(of(dh, at::_efficientzerotensor({3, 5}, at::kDouble)), expected);
  expect_same(of(zeros + 2, zeros), of(at::full({}, 2, at::kDouble).expand({3, 5}), zeros));
}

// ---- Steps that call rnn_step, and errors

TEST(RnnSteps, AreConstantWithoutGradients) {
  for (const Cell cell : {Cell::kLnLstm, Cell::kGru}) {
    const RnnTensors leaves = Leaves(RandomLayer(cell, {4, 3, 3, 5}));
    const Step step = [&] {
      const at::NoGradGuard guard;
      return Together(cell, leaves);
    }();
    const Tensor expected = OfAllStates(leaves, OneByOne(cell, leaves));
    const Step with_gradients = Together(cell, leaves);
    {
      const at::NoGradGuard guard;
      const Tensor loss = OfAllStates(leaves, step);
      EXPECT_FALSE(loss.requires_grad());
      ExpectSame(loss, expected, "without gradients");
      ExpectSame(OfAllStates(leaves, with_gradients), expected, "made with gradients");
    }
    // Gradients of only the inputs and states.
    const Tensor loss = OfAllStates(leaves, step);
    ExpectSame(loss, expected, "with gradients");
    loss.backward();
    for (size_t i = 0; i < kDifferentiables; ++i) {
      const Tensor& t = leaves.*kFields[i].member;
      if (!t.defined()) continue;
      if (i >= kFirstParam && i < kH0) {
        EXPECT_FALSE(t.grad().defined()) << kFields[i].name;
      } else {
        ExpectNear(t.grad(), torch::autograd::grad({expected}, {t}, {}, true)[0], kFields[i].name);
      }
    }
    // With the caller's packed weights.
    const at::NoGradGuard guard;
    RnnTensors weights;
    weights.weight_ih = leaves.weight_ih;
    weights.weight_hh = leaves.weight_hh;
    const RnnSteps packed(cell, weights, kEps, rnn_pack(cell, OnlyParams(leaves)));
    const Step of_packed = [&](const Tensor& x, const State& state) -> State {
      const auto [h, c] = packed.step(x, state.h, state.c);
      return {h, IsLstm(cell) ? c : Tensor()};
    };
    ExpectSame(OfAllStates(leaves, of_packed), expected, "packed");
  }
}

TEST(RnnSteps, MatchRnnStepUnderAutocast) {
  const RnnTensors leaves = Leaves(RandomLayer(Cell::kLnGru, {1, 3, 3, 5}, {}, at::kFloat));
  const RnnSteps steps(Cell::kLnGru, OnlyParams(leaves), kEps);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor x = leaves.x[0].to(at::kBFloat16);
  const Tensor h = std::get<0>(steps.step(x, leaves.h0));
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(h.scalar_type(), at::kBFloat16);
  ExpectSame(h, std::get<0>(steps.step(x.to(at::kFloat), leaves.h0)).to(at::kBFloat16), "h");
  EXPECT_TRUE(torch::autograd::grad({h.sum()}, {leaves.weight_hh})[0].defined());
}

TEST(RnnSteps, MatchTangentsOfRnnStep) {
  const RnnTensors layer = RandomLayer(Cell::kLnLstm, {1, 3, 3, 5});
  const RnnSteps steps(Cell::kLnLstm, OnlyParams(layer), kEps);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const Tensor x = at::_make_dual(layer.x[0], at::ones({3, 3}, at::kDouble), level);
  const Tensor h = std::get<0>(steps.step(x, layer.h0, layer.c0));
  RnnTensors tensors = layer;
  tensors.x = x;
  const Tensor expected = std::get<0>(rnn_step(Cell::kLnLstm, tensors, kEps));
  const Tensor tangent = std::get<1>(at::_unpack_dual(h, level));
  ASSERT_TRUE(tangent.defined());
  ExpectSame(tangent, std::get<1>(at::_unpack_dual(expected, level)), "tangent");
  EXPECT_GT(tangent.abs().max().item<double>(), 1e-3);
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST(RnnSteps, RejectInvalidArguments) {
  const Problem p;
  const RnnSteps steps(Cell::kLnLstm, OnlyParams(p.leaves), kEps);
  const auto error = [&](const Tensor& x, const Tensor& h, const Tensor& c) {
    return ErrorOf([&] { steps.step(x, h, c); });
  };
  const Tensor x = Random({2, 3}), h = Random({2, 5});
  EXPECT_EQ(error(x, h, h), "no error");
  EXPECT_EQ(error(x, {}, {}), "no error");
  EXPECT_THAT(error({}, h, h), HasSubstr("[RnnSteps] x must be a tensor, got none"));
  EXPECT_THAT(error(x[0], h, h), HasSubstr("[RnnSteps] x must have 2 dimensions, [B, I], got "));
  EXPECT_THAT(error(Random({2, 4}), h, h), HasSubstr("[RnnSteps] x must have [1, 2, 3], got"));
  EXPECT_THAT(error(x, Random({3, 5}), h), HasSubstr("[RnnSteps] h0 must have [2, 5], got"));
  EXPECT_THAT(error(x, h, h.to(at::kFloat)), HasSubstr("[RnnSteps] c0 must have x's type"));
  EXPECT_THAT(error(x.to(at::kFloat), {}, {}),
              HasSubstr("[RnnSteps] weight_ih must have x's type and device, Float on cpu"));
  EXPECT_THAT(ErrorOf([&] { RnnSteps().step(x); }), HasSubstr("[RnnSteps] step() needs a layer"));
  EXPECT_THAT(ErrorOf([] { RnnSteps(Cell::kLnLstm, {}); }),
              HasSubstr("[RnnSteps] weight_ih must be a tensor, got none"));
  EXPECT_THAT(ErrorOf([&] { RnnSteps(Cell::kLstm, OnlyParams(p.leaves)); }),
              HasSubstr("[RnnSteps] ln_ih_weight must be left out for lstm, got [20]"));
  const RnnTensors batch = Leaves(RandomLayer(Cell::kBnGru, {1, 2, 3, 5}));
  EXPECT_THAT(ErrorOf([&] { RnnSteps(Cell::kBnGru, OnlyParams(batch)); }),
              HasSubstr("[RnnSteps] cell must be a cell without batch norm, got bn_gru"));
  EXPECT_THAT(ErrorOf([&] { RnnSteps(Cell::kLnLstm, OnlyParams(p.leaves), -1); }),
              HasSubstr("[RnnSteps] eps must be finite and at least 0, got -1"));
  // Second derivatives.
  const Tensor loss = p.Loss();
  EXPECT_THAT(ErrorOf([&] { torch::autograd::grad({loss}, p.inputs, {}, {}, true); }),
              HasSubstr("[RnnSteps] create_graph must be false"));
}

TEST(RnnSteps, DetectChanges) {
  const Problem p;
  const State state = p.step(p.leaves.x[0], {p.leaves.h0, p.leaves.c0});
  // Tensors that backward needs must not change, as for any operator.
  Tensor x = Random({3, 3}), h = Random({3, 5});
  const Tensor of_x = p.step(x, state).h.sum(), of_h = p.step(p.leaves.x[0], {h, {}}).h.sum();
  x.add_(1);
  h.add_(1);
  for (const Tensor& loss : {of_x, of_h}) {
    EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("modified by an inplace operation"));
  }
  // Steps keep the parameters of their time; after a change the next step throws.
  const Tensor loss = Weighted(state.h, 1);
  const Tensors expected = torch::autograd::grad({loss}, p.inputs, {}, true);
  Tensor weight = p.leaves.weight_hh;
  {
    const at::NoGradGuard guard;
    weight.add_(1);
  }
  const Tensors after = torch::autograd::grad({loss}, p.inputs, {}, true);
  for (size_t i = 0; i < after.size(); ++i) ExpectSame(after[i], expected[i], "after");
  const auto step = [&] { p.step(p.leaves.x[0], state); };
  EXPECT_THAT(ErrorOf(step), HasSubstr("[RnnSteps] weight_hh has changed since the steps began"));
  weight.set_data(weight.detach().clone());
  EXPECT_THAT(ErrorOf(step), HasSubstr("weight_hh has changed since"));
}

TEST(RnnSteps, DetectWritesThatBumpNoVersion) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const Cell cell : {Cell::kLnLstm, Cell::kGru, Cell::kLnRnn}) {
      const RnnTensors leaves = Leaves(RandomLayer(cell, {1, 3, 3, 5}, {}, type));
      const auto expect_notices = [&](const RnnSteps& steps, const char* when) {
        const auto step = [&] { steps.step(leaves.x[0], leaves.h0, leaves.c0); };
        for (size_t i = kFirstParam; i < kH0; ++i) {
          const Tensor& param = leaves.*kFields[i].member;
          if (!param.defined()) continue;
          EXPECT_EQ(ErrorOf(step), "no error") << when;
          FlipABit(param);
          EXPECT_THAT(ErrorOf(step), HasSubstr(std::string(kFields[i].name) +
                                               " has changed since the steps began"))
              << when;
          FlipABit(param);  // back
        }
      };
      expect_notices(RnnSteps(cell, OnlyParams(leaves), kEps), "with gradients");
      const at::NoGradGuard guard;
      expect_notices(RnnSteps(cell, OnlyParams(leaves), kEps), "constant");
      const RnnTensors params = OnlyParams(leaves);
      expect_notices(RnnSteps(cell, params, kEps, rnn_pack(cell, params)), "packed");
    }
  }
}

// A writer changes a weight back and forth while the steps are constructed. They use one of the two
// states, and throw in the other.
TEST(RnnSteps, UseTheComparedParametersWhileAnotherThreadWrites) {
  nn::LayerNormLSTMCell cell(nn::LayerNormLSTMCellOptions(32, 64));
  RnnTensors params;
  for (const auto& param : cell->named_parameters()) {
    for (const Field& field : kFields) {
      if (param.key() == field.name) params.*field.member = param.value();
    }
  }
  params.bias = cell->named_parameters()["bias_ih"];
  const Tensor x = Random({1, 32}).to(at::kFloat);
  float* const weights = cell->named_parameters()["ln_ih_weight"].mutable_data_ptr<float>();
  const auto write = [&](float value) { std::fill_n(weights, 256, value); };
  int refused = 0;
  for (int way = 0; way < 4; ++way) {
    const at::AutoGradMode gradients(way == 0 || way == 3);
    cell->train(way != 1);
    write(1);
    const Tensor expected = std::get<0>(rnn_step(Cell::kLnLstm, [&] {
      RnnTensors tensors = params;
      tensors.x = x;
      return tensors;
    }()));
    for (int i = 0; i < 50; ++i) {
      std::atomic<bool> stop = false, running = false;
      std::thread writer([&] {
        while (!stop) {
          write(2);
          write(1);
          running = true;
        }
      });
      while (!running) std::this_thread::yield();
      const RnnSteps steps = way == 3 ? RnnSteps(Cell::kLnLstm, params) : cell->steps();
      stop = true;
      writer.join();
      try {
        ExpectSame(std::get<0>(steps.step(x)), expected, "step");
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("has changed since the steps began"));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);  // otherwise the writer never ran between steps
}

TEST(RecurrentCells, GiveStepsThatCompareVersionsWhileFrozen) {
  nn::LayerNormLSTMCell cell(3, 5);
  cell->freeze();
  const RnnSteps steps = cell->steps();
  const Tensor x = at::ones({2, 3});
  const auto step = [&] { return std::get<0>(steps.step(x)); };
  const Tensor weight_hh = cell->parameters()[1], before = step();
  FlipABit(weight_hh);  // a change that freeze() forbids
  ExpectSame(step(), before, "promise");
  const at::NoGradGuard guard;
  Tensor(weight_hh).zero_();
  EXPECT_THAT(ErrorOf(step), HasSubstr("weight_hh has changed since the steps began"));
}

TEST(RecurrentCells, GiveStepsThatShareGradients) {
  at::manual_seed(15);
  nn::LayerNormLSTMCell cell(nn::LayerNormLSTMCellOptions(3, 5).variant(Cell::kLstm));
  const Tensor x = at::randn({4, 2, 3});
  const auto run = [&](const auto& step) {
    Tensor h = at::zeros({2, 5}), c = at::zeros({2, 5});
    for (int64_t t = 0; t < 4; ++t) std::tie(h, c) = step(x[t], h, c);
    return h;
  };
  const auto one_by_one = [&](const Tensor& input, const Tensor& h, const Tensor& c) {
    return cell->forward(input, std::tuple(h, c));
  };
  for (const bool training : {true, false}) {
    cell->train(training);
    for (const bool gradients : {true, false}) {
      const at::AutoGradMode mode(gradients);
      const RnnSteps steps = cell->steps();
      const Tensor together = run([&](const auto&... tensors) { return steps.step(tensors...); });
      const Tensor expected = run(one_by_one);
      ExpectSame(together, expected, "h");
      EXPECT_EQ(together.requires_grad(), gradients);
      if (!gradients) continue;
      const Tensors a = torch::autograd::grad({together.sum()}, cell->parameters());
      const Tensors b = torch::autograd::grad({expected.sum()}, cell->parameters());
      for (size_t i = 0; i < a.size(); ++i) {
        // Float sums of 8 terms of size 1 in two orders.
        EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-6) << i;
      }
    }
  }
  // Steps of a frozen cell compare versions until the cell is unfrozen.
  for (const bool gradients : {true, false}) {
    const at::AutoGradMode mode(gradients);
    const auto step_of = [&] {
      const RnnSteps steps = cell->steps();
      return [steps, x = x[0]] { steps.step(x); };
    };
    const auto compares = step_of();
    cell->freeze();
    const auto frozen = step_of();
    FlipABit(cell->parameters()[1]);
    EXPECT_EQ(ErrorOf(frozen), "no error");
    const std::string error = "weight_hh has changed since the steps began";
    EXPECT_THAT(ErrorOf(compares), HasSubstr(error));
    cell->unfreeze();
    EXPECT_THAT(ErrorOf(frozen), HasSubstr(error));
    cell->freeze();
    EXPECT_THAT(ErrorOf(frozen), HasSubstr(error));
    cell->unfreeze();
  }
  nn::LayerNormLSTMCell composed(nn::LayerNormLSTMCellOptions(3, 5).composed(true));
  EXPECT_THAT(ErrorOf([&] { composed->steps(); }),
              HasSubstr("[LayerNormLSTMCell] composed must be false for steps(), got true"));
}

}  // namespace
}  // namespace planish
