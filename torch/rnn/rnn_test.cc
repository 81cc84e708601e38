#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/cuda_rnn.h"
#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "torch/rnn/fields.h"
#include "torch/rnn/testing.h"

namespace planish {
namespace {

using at::Tensor;
using internal::CellRecipe;
using internal::RecipeOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::utils::rnn::PackedSequence;

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

/// Named results, and gradients of a random loss.
using Named = std::vector<std::pair<std::string, Tensor>>;

Named WithGradients(const RnnTensors& leaves, const RnnOutputs& outputs) {
  Named results = {{"y", outputs.y}, {"h_n", outputs.h_n}, {"c_n", outputs.c_n}};
  at::manual_seed(8);
  std::vector<Tensor> roots, weights;
  for (const auto& [name, output] : results) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    weights.push_back(at::randn_like(output));
  }
  std::vector<std::string> names;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    const Tensor& t = leaves.*kFields[i].member;
    if (!t.defined() || !t.requires_grad()) continue;
    names.emplace_back(std::string("d") + kFields[i].name);
    inputs.push_back(t);
  }
  const auto gradients = torch::autograd::grad(roots, inputs, weights);
  for (size_t i = 0; i < names.size(); ++i) results.emplace_back(names[i], gradients[i]);
  return results;
}

Named Ours(Cell cell, const RnnTensors& layer, const RnnSettings& settings = {}) {
  const RnnTensors leaves = Leaves(layer);
  return WithGradients(leaves, rnn_forward(cell, leaves, settings));
}

// ---- The equations of planish/rnn.h in PyTorch's operators, differentiated by PyTorch's autograd

Tensor Over(const Tensor& t, const Tensor& otherwise) { return t.defined() ? t : otherwise; }

Tensor LayerNorm(const Tensor& z, const Tensor& gain, const Tensor& bias, double eps) {
  const auto optional = [](const Tensor& t) {
    return t.defined() ? std::optional<Tensor>(t) : std::nullopt;
  };
  return at::layer_norm(z, {z.size(-1)}, optional(gain), optional(bias), eps);
}

/// Normalizes over the batch if `batch`, otherwise each group of columns separately.
Tensor Norm(bool batch, const Tensor& z, const Tensor& gain, const Tensor& bias, double eps,
            at::IntArrayRef groups) {
  if (batch) {
    const Tensor centred = z - z.mean(0, true);
    const Tensor xhat = centred / (centred.pow(2).mean(0, true) + eps).sqrt();
    return xhat * Over(gain, at::ones_like(z[0])) + Over(bias, at::zeros_like(z[0]));
  }
  std::vector<Tensor> normalized;
  int64_t begin = 0;
  for (const int64_t group : groups) {
    const auto columns = [&](const Tensor& t) {
      return t.defined() ? t.narrow(-1, begin, group) : t;
    };
    normalized.push_back(LayerNorm(columns(z), columns(gain), columns(bias), eps));
    begin += group;
  }
  return at::cat(normalized, -1);
}

std::pair<Tensor, Tensor> ComposedStep(Cell cell, const RnnTensors& p, const Tensor& x,
                                       const Tensor& h, const Tensor& c, double eps) {
  const int64_t n = p.weight_hh.size(0) / RecipeOf(cell).gates();
  // A block-diagonal weight_hh, as a whole matrix of zeros and blocks.
  const int64_t units = p.weight_hh.size(1), heads = h.size(1) / units;
  const Tensor blocks = at::block_diag(std::vector<Tensor>(
      static_cast<size_t>(heads), at::ones({units, units}, p.weight_hh.options())));
  const Tensor weight_hh =
      heads == 1 ? p.weight_hh
                 : p.weight_hh.repeat({1, heads}) * blocks.repeat({RecipeOf(cell).gates(), 1});
  const Tensor zx = x.matmul(p.weight_ih.t()), zh = h.matmul(weight_hh.t());
  const Tensor bias = Over(p.bias, at::zeros_like(zx[0]));
  const auto ih = [&](bool batch, at::IntArrayRef groups) {
    return Norm(batch, zx, p.ln_ih_weight, p.ln_ih_bias, eps, groups);
  };
  const auto hh = [&](bool batch, at::IntArrayRef groups) {
    return Norm(batch, zh, p.ln_hh_weight, p.ln_hh_bias, eps, groups);
  };
  const auto sum = [&](bool batch, at::IntArrayRef groups) {
    return Norm(batch, zx + zh, p.ln_weight, p.ln_bias, eps, groups);
  };
  const auto gru = [&](const Tensor& ax, const Tensor& ah, const Tensor& bias_hn) {
    const auto a = ax.chunk(3, 1), b = ah.chunk(3, 1);
    const Tensor r = (a[0] + b[0]).sigmoid(), z = (a[1] + b[1]).sigmoid();
    const Tensor m = (a[2] + r * (b[2] + Over(bias_hn, at::zeros_like(b[2][0])))).tanh();
    return std::pair((1 - z) * m + z * h, Tensor());
  };
  enum CellNorm { kNone, kOutput, kCarried };
  const auto lstm = [&](const Tensor& a, CellNorm norm, bool batch = false) {
    const auto gates = a.chunk(4, 1);
    Tensor raw = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    const Tensor seen =
        norm == kNone ? raw : Norm(batch, raw, p.ln_c_weight, p.ln_c_bias, eps, {n});
    const Tensor out = gates[3].sigmoid() * seen.tanh();
    return std::pair(p.weight_hr.defined() ? out.matmul(p.weight_hr.t()) : out,
                     norm == kCarried ? seen : raw);
  };
  switch (cell) {
    case Cell::kRnn:
      return {(zx + zh + bias).tanh(), {}};
    case Cell::kRnnRelu:
      return {(zx + zh + bias).relu(), {}};
    case Cell::kLnRnn:
      return {sum(false, {n}).tanh(), {}};
    case Cell::kLnRnnRelu:
      return {sum(false, {n}).relu(), {}};
    case Cell::kBnRnn:
      return {sum(true, {n}).tanh(), {}};
    case Cell::kGru:
      return gru(zx + bias, zh, p.bias_hn);
    case Cell::kLnGru:
      return gru(ih(false, {2 * n, n}), hh(false, {2 * n, n}), {});
    case Cell::kBnGru:
      return gru(ih(true, {}), hh(true, {}), {});
    case Cell::kLstm:
      return lstm(zx + zh + bias, kNone);
    case Cell::kDrawLstm:
      return lstm(zx + zh + bias, kOutput);
    case Cell::kLnLstm:
    case Cell::kLnLstmHaste:
      return lstm(ih(false, {4 * n}) + hh(false, {4 * n}) + bias, kOutput);
    case Cell::kLnLstmFastRnns:
    case Cell::kLnLstmTfa:
      return lstm(ih(false, {4 * n}) + hh(false, {4 * n}) + bias, kCarried);
    case Cell::kLnLstmContrib:
      return lstm(sum(false, {n, n, n, n}), kCarried);
    case Cell::kBnLstm:
      return lstm(ih(true, {}) + hh(true, {}) + bias, kOutput, true);
    case Cell::kLnLstmTorchaudio:
      return lstm(sum(false, {4 * n}), kCarried);
    case Cell::kLnLstmTflite:
      return lstm(sum(false, {n, n, n, n}) + bias, kNone);
    case Cell::kSlstm: {
      // The paper's equations, with c and n scaled by exp(-m).
      const auto gates = (zx + zh + bias).chunk(4, 1), before = c.chunk(2, 1);
      const Tensor log_f = gates[1].sigmoid().log(), i = gates[0];
      const Tensor m = at::maximum(log_f + before[1], i).detach();
      const Tensor keep = (log_f + before[1] - m).exp(), in = (i - m).exp(), next_n = keep + in;
      const Tensor mean = (keep * before[0] + in * gates[2].tanh()) / next_n;
      const Tensor out = gates[3].sigmoid() * mean;
      return {p.weight_hr.defined() ? out.matmul(p.weight_hr.t()) : out,
              at::cat({mean, next_n.log() + m}, 1)};
    }
    case Cell::kLnGruHaste:
      return gru(ih(false, {3 * n}) + bias, hh(false, {3 * n}), p.bias_hn);
    case Cell::kLnGruDreamer: {
      const auto a = sum(false, {3 * n}).chunk(3, 1);
      const Tensor z = a[1].sigmoid();
      return {(1 - z) * (a[0].sigmoid() * a[2]).tanh() + z * h, {}};
    }
  }
  return {};
}

RnnOutputs Composed(Cell cell, const RnnTensors& p, const RnnSettings& settings) {
  const int64_t time = p.x.size(0), batch = p.x.size(1);
  const int64_t hidden = p.weight_hh.size(0) / RecipeOf(cell).gates();
  const int64_t outputs = p.weight_hr.defined() ? p.weight_hr.size(0) : hidden;
  const Tensor zeros = at::zeros({batch, outputs}, p.x.options());
  Tensor zeros_c = at::zeros({batch, hidden}, p.x.options());
  if (cell == Cell::kSlstm) zeros_c = at::cat({zeros_c, at::full_like(zeros_c, -INFINITY)}, 1);
  Tensor h = Over(p.h0, zeros), c = Over(p.c0, zeros_c);
  std::vector<Tensor> y(static_cast<size_t>(time));
  for (int64_t step = 0; step < time; ++step) {
    const int64_t t = settings.reverse ? time - 1 - step : step;
    const Tensor active =
        p.lengths.defined() ? (p.lengths > t).unsqueeze(1) : at::ones({batch, 1}, at::kBool);
    if (p.resets.defined()) {
      const Tensor reset = p.resets[t].unsqueeze(1).logical_and(active);
      h = at::where(reset, Over(p.h_reset, zeros[0]), h);
      c = at::where(reset, Over(p.c_reset, zeros_c[0]), c);
    }
    const auto [h_next, c_next] = ComposedStep(cell, p, p.x[t], h, c, settings.eps);
    h = at::where(active, h_next, h);
    if (IsLstm(cell)) c = at::where(active, c_next, c);
    y[static_cast<size_t>(t)] = at::where(active, h, zeros);
  }
  return {at::stack(y), h, IsLstm(cell) ? c : at::empty({0}, p.x.options())};
}

// Runs on one thread: ATen splits even the smallest norms, which is slow on a busy machine.
class EveryCell : public ::testing::TestWithParam<tests::Kind> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

INSTANTIATE_TEST_SUITE_P(Cells, EveryCell, ::testing::ValuesIn(tests::kKinds),
                         [](const auto& kind) { return tests::NameOf(kind.param); });

TEST_P(EveryCell, MatchesItsEquations) {
  const auto [cell, recurrence] = GetParam();
  // The composed cells take statistics over all sequences, even those that have ended.
  const bool lengths = RecipeOf(cell).over == internal::Over::kRow;
  for (const Given& given : {Given{}, Given{.states = false}, Given{.affine = false},
                             Given{.lengths = lengths, .resets = true},
                             Given{.lengths = lengths, .resets = true, .reverse = true},
                             Given{.resets = true, .checkpoint = true}}) {
    SCOPED_TRACE(::testing::Message()
                 << "lengths " << given.lengths << ", resets " << given.resets << ", reverse "
                 << given.reverse << ", affine " << given.affine);
    const RnnTensors layer = RandomLayer(cell, Shaped({6, 5, 3, 7}, recurrence), given);
    const Named ours = Ours(cell, layer, given.settings());
    const RnnTensors leaves = Leaves(layer);
    const Named theirs = WithGradients(leaves, Composed(cell, leaves, given.settings()));
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(ours[i].first, theirs[i].first);
      ExpectNear(ours[i].second, theirs[i].second, ours[i].first);
    }
  }
}

TEST_P(EveryCell, HasSecondDerivatives) {
  const auto [cell, recurrence] = GetParam();
  const bool lengths = RecipeOf(cell).over == internal::Over::kRow;
  for (const Given& given : {Given{}, Given{.lengths = lengths, .resets = true, .reverse = true},
                             Given{.states = false, .affine = false, .checkpoint = true}}) {
    const RnnTensors layer = RandomLayer(cell, Shaped({3, 4, 3, 5}, recurrence), given);
    const auto second = [&](auto forward) {
      const RnnTensors leaves = Leaves(layer);
      const RnnOutputs outputs = forward(leaves);
      at::manual_seed(8);
      std::vector<Tensor> roots, inputs, dy, dgradients;
      for (const Tensor& output : {outputs.y, outputs.h_n, outputs.c_n}) {
        if (!output.requires_grad()) continue;
        roots.push_back(output);
        dy.push_back(at::randn_like(output).requires_grad_(true));
      }
      for (size_t i = 0; i < kDifferentiables; ++i) {
        const Tensor& t = leaves.*kFields[i].member;
        if (t.defined()) inputs.push_back(t);
      }
      const auto gradients = torch::autograd::grad(roots, inputs, dy, true, /*create_graph=*/true);
      for (const Tensor& gradient : gradients) dgradients.push_back(at::randn_like(gradient));
      inputs.insert(inputs.end(), dy.begin(), dy.end());
      auto seconds = torch::autograd::grad(gradients, inputs, dgradients, {}, false,
                                           /*allow_unused=*/true);
      for (size_t i = 0; i < seconds.size(); ++i) {
        if (!seconds[i].defined()) seconds[i] = at::zeros_like(inputs[i]);
      }
      return seconds;
    };
    const auto ours = second([&](const auto& t) { return rnn_forward(cell, t, given.settings()); });
    const auto theirs = second([&](const auto& t) { return Composed(cell, t, given.settings()); });
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) ExpectNear(ours[i], theirs[i], std::to_string(i));
  }
}

/// Returns what rnn_forward saves for backward; an empty tensor if it saves nothing.
Tensor SavedOf(Cell cell, const RnnTensors& layer, bool save = false) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("planish::rnn_forward", "");
  torch::jit::Stack stack = {cell_name(cell)};
  ForArguments(0, kTensors, [&](size_t field) {
    const Tensor& t = layer.*kFields[field].member;
    stack.push_back(t.defined() ? c10::IValue(t) : c10::IValue());
  });
  torch::jit::push(stack, /*reverse=*/false, /*eps=*/1e-5, /*checkpoint=*/false, save,
                   /*packed=*/c10::IValue());
  op.callBoxed(stack);
  return stack[3].toTensor();
}

TEST_P(EveryCell, SavesNothingWithoutGradients) {
  const auto [cell, recurrence] = GetParam();
  const RnnTensors layer = RandomLayer(cell, Shaped({4, 2, 3, 5}, recurrence));
  EXPECT_EQ(SavedOf(cell, layer).numel(), 0);
  const int64_t kept = SavedOf(cell, Leaves(layer)).numel();
  EXPECT_EQ(kept, SavedOf(cell, layer, /*save=*/true).numel());
  EXPECT_GE(kept, RnnSavedSize<double>(cell, {4, 2, 3, 5}));
  const at::NoGradGuard guard;
  EXPECT_EQ(SavedOf(cell, Leaves(layer)).numel(), 0);
  EXPECT_FALSE(rnn_forward(cell, Leaves(layer)).y.requires_grad());
}

// `saved` has the same size on every device.
TEST_P(EveryCell, SavedFitsWhatAGpuSaves) {
  const auto [cell, recurrence] = GetParam();
  if (!internal::RecipeOf(cell).has_cuda_kernels()) return;
  for (const int64_t time : {1, 2, 7}) {
    for (const int64_t batch : {1, 3, 4}) {
      for (const int64_t hidden : {1, 2, 3, 8, 15, 16, 17, 33}) {
        const RnnShape shape = {time, batch, 2, hidden};
        for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
          const RnnTensors layer = RandomLayer(cell, Shaped(shape, recurrence), {}, type);
          EXPECT_GE(SavedOf(cell, layer, /*save=*/true).numel(),
                    type == at::kFloat ? cuda::RnnSavedSize<float>(cell, shape)
                                       : cuda::RnnSavedSize<double>(cell, shape))
              << "T " << time << " B " << batch << " H " << hidden;
        }
      }
    }
  }
}

// The meta kernel returns the size of `saved` with T and B as symbols.
TEST_P(EveryCell, SavedSizeIsLinearInSteps) {
  const auto size = [](int64_t time, int64_t batch) {
    return RnnSavedSize<float>(GetParam().cell, {time, batch, 5, 6});
  };
  const int64_t slope = size(1, 2) - size(1, 1), rest = size(1, 1) - slope;
  for (const int64_t time : {0, 1, 7, 1000}) {
    for (const int64_t batch : {0, 1, 3, 50}) {
      EXPECT_EQ(size(time, batch), time * (batch * slope + rest)) << time << " x " << batch;
    }
  }
}

TEST_P(EveryCell, AcceptsNoStepsAndNoSequences) {
  const auto [cell, recurrence] = GetParam();
  for (const RnnShape& shape : {RnnShape{0, 2, 3, 4}, RnnShape{3, 0, 3, 4}, RnnShape{0, 0, 3, 4}}) {
    const RnnTensors layer = RandomLayer(cell, Shaped(shape, recurrence), {.resets = true});
    for (const auto& [name, t] : Ours(cell, layer)) {
      if (name == "y") {
        EXPECT_EQ(t.sizes(), at::IntArrayRef({shape.time, shape.batch, layer.h0.size(1)}));
      } else if (name == "h_n") {
        ExpectSame(t, layer.h0, name);
      } else if (name == "c_n") {
        ExpectSame(t, IsLstm(cell) ? layer.c0 : at::empty({0}, at::kDouble), name);
      } else if (name == "dx") {
        EXPECT_EQ(t.sizes(), layer.x.sizes());
      } else if (name != "dh0" && name != "dc0") {
        EXPECT_TRUE(t.equal(at::zeros_like(t))) << name;  // a sum over no steps
      }
    }
  }
}

TEST_P(EveryCell, AcceptsNonContiguousTensors) {
  const auto [cell, recurrence] = GetParam();
  const Given given = {.lengths = true, .resets = true};
  const RnnTensors layer = RandomLayer(cell, Shaped({4, 3, 5, 6}, recurrence), given);
  RnnTensors strided = layer;
  for (const Field& field : kFields) {
    Tensor& t = strided.*field.member;
    if (!t.defined()) continue;
    t = at::stack({t, t}, -1).select(-1, 0);
    ASSERT_FALSE(t.is_contiguous());
    if (field.member != &RnnTensors::lengths && field.member != &RnnTensors::resets) {
      t.requires_grad_(true);
    }
  }
  const Named ours = Ours(cell, layer);
  const Named others = WithGradients(strided, rnn_forward(cell, strided));
  for (size_t i = 0; i < ours.size(); ++i) {
    ExpectSame(others[i].second, ours[i].second, ours[i].first);
  }
}

TEST_P(EveryCell, StepsMatchTheSequence) {
  const auto [cell, recurrence] = GetParam();
  if (RecipeOf(cell).over == internal::Over::kBatch) return;  // rnn_step rejects it
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const RnnTensors layer = RandomLayer(cell, Shaped({4, 3, 5, 6}, recurrence), {}, type);
    const RnnOutputs sequence = rnn_forward(cell, layer);
    RnnTensors step = layer;
    for (int64_t t = 0; t < 4; ++t) {
      step.x = layer.x[t];
      const auto [h, c] = rnn_step(cell, step);
      ExpectSame(h, sequence.y[t], "y");
      step.h0 = h;
      if (IsLstm(cell)) step.c0 = c;
    }
    ExpectSame(step.h0, sequence.h_n, "h_n");
    if (IsLstm(cell)) ExpectSame(step.c0, sequence.c_n, "c_n");
  }
}

TEST_P(EveryCell, StepsHaveGradients) {
  const auto [cell, recurrence] = GetParam();
  if (RecipeOf(cell).over == internal::Over::kBatch) return;
  const RnnTensors layer = RandomLayer(cell, Shaped({4, 3, 5, 6}, recurrence));
  const Named sequence = Ours(cell, layer);
  const RnnTensors leaves = Leaves(layer);
  RnnTensors step = leaves;
  std::vector<Tensor> y;
  for (int64_t t = 0; t < 4; ++t) {
    step.x = leaves.x[t];
    const auto [h, c] = rnn_step(cell, step);
    y.push_back(h);
    step.h0 = h;
    if (IsLstm(cell)) step.c0 = c;
  }
  const Named steps = WithGradients(
      leaves, {at::stack(y), step.h0, IsLstm(cell) ? step.c0 : at::empty({0}, at::kDouble)});
  ASSERT_EQ(steps.size(), sequence.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    ExpectNear(steps[i].second, sequence[i].second, sequence[i].first);
  }
}

TEST_P(EveryCell, AcceptsPackedWeights) {
  const auto [cell, recurrence] = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Given given = {.lengths = true, .resets = true};
    const RnnTensors layer = RandomLayer(cell, Shaped({4, 3, 5, 6}, recurrence), given, type);
    const RnnPacked packed = rnn_pack(cell, layer);
    RnnTensors others = layer;  // of the parameters, only the weights, for their sizes
    for (size_t field = kFirstParam + 2; field < kWeightHr; ++field) {
      others.*kFields[field].member = Tensor();
    }
    const RnnOutputs expected = rnn_forward(cell, layer);
    const RnnOutputs outputs = rnn_forward(cell, others, {}, packed);
    ExpectSame(outputs.y, expected.y, "y");
    ExpectSame(outputs.h_n, expected.h_n, "h_n");
    ExpectSame(outputs.c_n, expected.c_n, "c_n");
    if (RecipeOf(cell).over == internal::Over::kBatch) continue;
    RnnTensors step = layer, other_step = others;
    for (RnnTensors* tensors : {&step, &other_step}) {
      tensors->x = layer.x[0];
      tensors->h_reset = tensors->c_reset = tensors->lengths = tensors->resets = Tensor();
    }
    EXPECT_TRUE(std::get<0>(rnn_step(cell, other_step, 1e-5, packed))
                    .equal(std::get<0>(rnn_step(cell, step))));
  }
}

TEST_P(EveryCell, InfersShapesOnTheMetaDevice) {
  const auto [cell, recurrence] = GetParam();
  const RnnTensors layer = RandomLayer(cell, Shaped({4, 3, 5, 6}, recurrence), {.resets = true});
  RnnTensors meta = Leaves(layer);
  for (size_t i = 0; i < kTensors; ++i) {
    Tensor& t = meta.*kFields[i].member;
    if (t.defined()) t = t.detach().to(at::kMeta);
    if (t.defined() && i < kDifferentiables) t.requires_grad_(true);
  }
  const Named ours = Ours(cell, layer);
  const RnnOutputs outputs = rnn_forward(cell, meta);
  std::vector<Tensor> roots = {outputs.y, outputs.h_n}, gradients = roots, inputs;
  for (Tensor& gradient : gradients) gradient = at::empty_like(gradient);
  Named theirs = {{"y", outputs.y}, {"h_n", outputs.h_n}, {"c_n", outputs.c_n}};
  for (size_t i = 0; i < kDifferentiables; ++i) {
    if ((meta.*kFields[i].member).defined()) inputs.push_back(meta.*kFields[i].member);
  }
  for (const Tensor& gradient : torch::autograd::grad(roots, inputs, gradients)) {
    theirs.emplace_back("gradient", gradient);
  }
  ASSERT_EQ(theirs.size(), ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(theirs[i].second.is_meta());
    EXPECT_EQ(theirs[i].second.sizes(), ours[i].second.sizes()) << ours[i].first;
  }
  if (RecipeOf(cell).over == internal::Over::kBatch) return;
  RnnTensors step = meta;
  step.x = meta.x[0];
  step.h_reset = step.c_reset = step.resets = Tensor();
  const at::NoGradGuard guard;
  const auto [h, c] = rnn_step(cell, step);
  EXPECT_TRUE(h.is_meta());
  EXPECT_EQ(h.sizes(), at::IntArrayRef({3, layer.h0.size(1)}));
  EXPECT_EQ(c.numel(), 18 * RecipeOf(cell).cell_parts());
}

// ---- Tests of all cells

TEST(RnnForward, ComputesOnlyNeededGradients) {
  const RnnTensors layer = RandomLayer(Cell::kLnLstm, {4, 3, 5, 6}, {.resets = true});
  const Named all = Ours(Cell::kLnLstm, layer);
  for (size_t wanted = 0; wanted < kDifferentiables; ++wanted) {
    RnnTensors one = layer;
    Tensor& t = one.*kFields[wanted].member;
    if (!t.defined()) continue;
    t = t.detach().clone().requires_grad_(true);
    const Named alone = WithGradients(one, rnn_forward(Cell::kLnLstm, one));
    ASSERT_EQ(alone.size(), 4U);
    const auto expected = std::find_if(all.begin(), all.end(),
                                       [&](const auto& r) { return r.first == alone[3].first; });
    ASSERT_NE(expected, all.end());
    ExpectSame(alone[3].second, expected->second, alone[3].first);
  }
}

TEST(RnnForward, AcceptsGradientsOfAnyOutput) {
  const RnnTensors layer = RandomLayer(Cell::kLnLstm, {4, 3, 5, 6});
  for (int output = 0; output < 3; ++output) {
    const auto gradient = [&](auto forward) {
      const RnnTensors leaves = Leaves(layer);
      const RnnOutputs outputs = forward(leaves);
      const Tensor root = output == 0 ? outputs.y : output == 1 ? outputs.h_n : outputs.c_n;
      return torch::autograd::grad({root.sum()}, {leaves.x})[0];
    };
    const Tensor ours = gradient([](const auto& t) { return rnn_forward(Cell::kLnLstm, t); });
    const Tensor theirs = gradient([](const auto& t) { return Composed(Cell::kLnLstm, t, {}); });
    ExpectNear(ours, theirs, "dx");
  }
}

TEST(RnnForward, HasTheSameBitsOnOneAndTwoThreads) {
  const int threads = at::get_num_threads();
  for (const Cell cell : {Cell::kLnLstm, Cell::kLnGru, Cell::kLnRnn}) {
    for (const RnnShape& shape : {RnnShape{20, 8, 40, 64}, RnnShape{20, 1, 40, 200}}) {
      const RnnTensors layer = RandomLayer(cell, shape, {}, at::kFloat);
      at::set_num_threads(1);
      const Named one = Ours(cell, layer);
      at::set_num_threads(2);
      const Named two = Ours(cell, layer);
      at::set_num_threads(threads);
      for (size_t i = 0; i < one.size(); ++i) {
        ExpectSame(one[i].second, two[i].second, one[i].first);
      }
    }
  }
}

TEST(RnnForward, SavesLessWithCheckpoint) {
  const RnnShape shape = {600, 4, 3, 5};
  const RnnTensors layer = RandomLayer(Cell::kLnLstm, shape, {.resets = true}, at::kFloat);
  const Named whole = Ours(Cell::kLnLstm, layer);
  const Named checkpoints = Ours(Cell::kLnLstm, layer, {.checkpoint = true});
  for (size_t i = 0; i < whole.size(); ++i) {
    ExpectSame(checkpoints[i].second, whole[i].second, whole[i].first);
  }
  EXPECT_LT(RnnSavedSize<float>(Cell::kLnLstm, shape, true),
            RnnSavedSize<float>(Cell::kLnLstm, shape, false) / 100);
}

// Only cells without layer norm: PyTorch's layer_norm, with which the others would be compared, has
// a wrong third derivative (2.11 to 2.15). The Python tests check the others by finite differences.
TEST(RnnForward, HasThirdDerivatives) {
  for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kBnLstm, Cell::kBnGru}) {
    SCOPED_TRACE(cell_name(cell));
    const RnnTensors layer = RandomLayer(cell, {2, 3, 3, 4});
    const auto third = [&](auto forward) {
      const RnnTensors leaves = Leaves(layer);
      Tensor d = forward(cell, leaves, RnnSettings{.eps = 0.1}).y.square().sum();
      for (const Tensor& by : {leaves.x, leaves.weight_hh}) {
        d = torch::autograd::grad({d}, {by}, {}, true, /*create_graph=*/true)[0].square().sum();
      }
      return torch::autograd::grad({d}, {leaves.x})[0];
    };
    ExpectNear(third([](auto... arguments) { return rnn_forward(arguments...); }),
               third([](auto... arguments) { return Composed(arguments...); }), "d3");
  }
}

// Second derivatives treat each argument as independent, even if one was computed from another.
TEST(RnnForward, HasSecondDerivativesOfDependentArguments) {
  const RnnTensors layer = RandomLayer(Cell::kLnGru, {3, 2, 4, 4});
  const auto second = [&](auto forward) {
    const RnnTensors leaves = Leaves(layer);
    RnnTensors made = leaves;
    made.h0 = leaves.x[0].sin();
    made.weight_hh = leaves.weight_ih * leaves.h0.sum();
    const Tensor dx = torch::autograd::grad({forward(made).y.square().sum()}, {leaves.x}, {}, true,
                                            /*create_graph=*/true)[0];
    return torch::autograd::grad({dx.square().sum()}, {leaves.x})[0];
  };
  ExpectNear(second([](const auto& t) { return rnn_forward(Cell::kLnGru, t); }),
             second([](const auto& t) { return Composed(Cell::kLnGru, t, {}); }), "d2x");
}

TEST(RnnForward, IsComposedOnRequest) {
  const RnnShape shape = {3, 2, 3, 4};
  const Given given = {.lengths = true, .resets = true, .reverse = true};
  const RnnTensors layer = RandomLayer(Cell::kLnLstm, shape, given);
  RnnSettings settings = given.settings();
  const Named kernels = Ours(Cell::kLnLstm, layer, settings);
  settings.composed = true;
  const Named composed = Ours(Cell::kLnLstm, layer, settings);
  ASSERT_EQ(composed.size(), kernels.size());
  for (size_t i = 0; i < composed.size(); ++i) {
    ExpectNear(composed[i].second, kernels[i].second, kernels[i].first);
  }
  const auto error = [&](const RnnTensors& tensors, double eps, const RnnPacked& packed) {
    return ErrorOf(
        [&] { rnn_forward(Cell::kLnLstm, tensors, {.eps = eps, .composed = true}, packed); });
  };
  EXPECT_EQ(error(layer, 0, {}), "no error");
  EXPECT_THAT(error(layer, -1, {}),
              HasSubstr("[rnn_forward] eps must be finite and at least 0, got -1"));
  EXPECT_THAT(error(layer, 0, rnn_pack(Cell::kLnLstm, layer)),
              HasSubstr("[rnn_forward] packed must be left out with composed, got packed weights"));
  RnnTensors wrong = layer;
  wrong.lengths = at::tensor({3, 0}, at::kLong);
  EXPECT_THAT(error(wrong, 0, {}), HasSubstr("[rnn_forward] lengths[1] must be at least 1 and at "
                                             "most time, 3, got 0"));
  wrong.lengths = at::tensor({4, 1}, at::kLong);
  EXPECT_THAT(error(wrong, 0, {}), HasSubstr("lengths[0] must be at least 1 and at most time, 3"));
  wrong.lengths = at::tensor({3}, at::kLong);
  EXPECT_THAT(error(wrong, 0, {}), HasSubstr("[rnn_forward] lengths must have [2], got [1]"));
}

TEST(RnnForward, BackwardDetectsChangedOutputs) {
  const RnnTensors leaves = Leaves(RandomLayer(Cell::kLnGru, {3, 2, 3, 4}));
  const Tensor y = rnn_forward(Cell::kLnGru, leaves).y;
  const Tensor loss = y.sum();
  y.detach().zero_();
  EXPECT_THAT(ErrorOf([&] { torch::autograd::grad({loss}, {leaves.x}); }),
              HasSubstr("modified by an inplace operation"));
}

// Schemas are an interface: Python callers and saved files depend on them.
TEST(RnnOperators, HaveStableSchemas) {
  const auto schema = [](const char* name) {
    std::ostringstream text;
    text << c10::Dispatcher::singleton().findSchemaOrThrow(name, "").schema();
    return text.str();
  };
  const std::string params =
      "Tensor weight_ih, Tensor weight_hh, Tensor? bias=None, Tensor? bias_hn=None, "
      "Tensor? ln_ih_weight=None, Tensor? ln_ih_bias=None, Tensor? ln_hh_weight=None, "
      "Tensor? ln_hh_bias=None, Tensor? ln_weight=None, Tensor? ln_bias=None, "
      "Tensor? ln_c_weight=None, Tensor? ln_c_bias=None";
  const std::string layer =
      "str cell, Tensor x, " + params +
      ", Tensor? h0=None, Tensor? c0=None, Tensor? h_reset=None, Tensor? c_reset=None, "
      "Tensor? lengths=None, Tensor? resets=None, Tensor? weight_hr=None, *, bool reverse=False, "
      "float eps=1.0000000000000001e-05, bool checkpoint=False, ";
  const std::string packed = "__torch__.torch.classes.planish.RnnPackedParams";
  EXPECT_EQ(schema("planish::rnn_forward"),
            "planish::rnn_forward(" + layer + "bool save=False, " + packed +
                "? packed=None) -> (Tensor y, Tensor h_n, Tensor c_n, Tensor saved)");
  EXPECT_EQ(
      schema("planish::rnn_backward"),
      "planish::rnn_backward(Tensor? dy, Tensor? dh_n, Tensor? dc_n, Tensor y, Tensor saved, " +
          layer +
          "bool[18] mask) -> (Tensor dx, Tensor dweight_ih, Tensor dweight_hh, Tensor dbias, "
          "Tensor dbias_hn, Tensor dln_ih_weight, Tensor dln_ih_bias, Tensor dln_hh_weight, "
          "Tensor dln_hh_bias, Tensor dln_weight, Tensor dln_bias, Tensor dln_c_weight, "
          "Tensor dln_c_bias, Tensor dh0, Tensor dc0, Tensor dh_reset, Tensor dc_reset, "
          "Tensor dweight_hr)");
  EXPECT_EQ(schema("planish::rnn_step"),
            "planish::rnn_step(str cell, Tensor x, " + params +
                ", Tensor? h0=None, Tensor? c0=None, Tensor? weight_hr=None, *, float "
                "eps=1.0000000000000001e-05, " +
                packed + "? packed=None) -> (Tensor h1, Tensor c1)");
  EXPECT_EQ(schema("planish::rnn_pack"), "planish::rnn_pack(str cell, " + params +
                                             ", Tensor? weight_hr=None, *, str "
                                             "weight_type=\"full\") -> " +
                                             packed + " packed");
}

TEST(RnnForward, RejectsInvalidArguments) {
  const RnnTensors good =
      RandomLayer(Cell::kLnLstm, {4, 3, 5, 6}, {.lengths = true, .resets = true});
  const auto error = [&](const std::function<void(RnnTensors&)>& change, Cell cell = Cell::kLnLstm,
                         const RnnSettings& settings = {}) {
    RnnTensors tensors = good;
    change(tensors);
    return ErrorOf([&] { rnn_forward(cell, tensors, settings); });
  };
  EXPECT_EQ(error([](RnnTensors&) {}), "no error");
  EXPECT_THAT(error([](RnnTensors& t) { t.x = t.x[0]; }),
              HasSubstr("[rnn_forward] x must have 3 dimensions, [T, B, I], got [3, 5]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.x = t.x.narrow(2, 0, 4); }),
              HasSubstr("[rnn_forward] x must have [4, 3, 5], got [4, 3, 4]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.x = t.x.to(at::kInt); }),
              HasSubstr("x must be float, double, bfloat16 or half, got Int"));
  EXPECT_THAT(error([](RnnTensors& t) { t.x = Tensor(); }),
              HasSubstr("x must be a tensor, got none"));
  EXPECT_THAT(error([](RnnTensors& t) { t.weight_hh = t.weight_hh.narrow(0, 0, 18); }),
              HasSubstr("weight_hh must have [24, 6], got [18, 6]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.weight_hh = t.weight_hh[0]; }),
              HasSubstr("weight_hh must have 2 dimensions and at least one column, got [6]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.weight_ih = t.weight_ih.narrow(1, 0, 0); }),
              HasSubstr("weight_ih must have 2 dimensions and at least one column, got [24, 0]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.ln_c_bias = at::zeros({24}, at::kDouble); }),
              HasSubstr("ln_c_bias must have [6], got [24]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.bias = t.bias.to(at::kFloat); }),
              HasSubstr("bias must have x's type and device, Double on cpu, got Float on cpu"));
  EXPECT_THAT(error([](RnnTensors& t) { t.h0 = t.h0.narrow(0, 0, 2); }),
              HasSubstr("h0 must have [3, 6], got [2, 6]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.c_reset = t.c_reset.unsqueeze(0); }),
              HasSubstr("c_reset must have [6], got [1, 6]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.resets = t.resets.t(); }),
              HasSubstr("resets must have [4, 3], got [3, 4]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.resets = t.resets.to(at::kFloat); }),
              HasSubstr("resets must be Bool on cpu, got Float on cpu"));
  EXPECT_THAT(error([](RnnTensors& t) { t.resets = Tensor(); }),
              HasSubstr("h_reset must be left out without resets, got [6]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.lengths = t.lengths.to(at::kInt); }),
              HasSubstr("lengths must be Long on cpu, got Int on cpu"));
  EXPECT_THAT(error([](RnnTensors& t) { t.lengths = t.lengths.narrow(0, 0, 2); }),
              HasSubstr("lengths must have [3], got [2]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.lengths = at::tensor({4, 0, 1}, at::kLong); }),
              HasSubstr("lengths[1] must be at least 1 and at most time, 4, got 0"));
  EXPECT_THAT(error([](RnnTensors& t) { t.lengths = at::tensor({4, 1, 5}, at::kLong); }),
              HasSubstr("lengths[2] must be at least 1 and at most time, 4, got 5"));
  EXPECT_THAT(error([](RnnTensors&) {}, Cell::kLnLstmFastRnns),
              HasSubstr("bias must be left out for ln_lstm_fastrnns, got [24]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.ln_hh_bias = Tensor(); }, Cell::kLnLstmHaste),
              HasSubstr("ln_ih_bias must be left out for ln_lstm_haste, got [24]"));
  EXPECT_THAT(error([](RnnTensors&) {}, Cell::kLnLstm, {.eps = -1}),
              HasSubstr("[rnn_forward] eps must be finite and at least 0, got -1"));
  EXPECT_THAT(error([](RnnTensors&) {}, static_cast<Cell>(99)), HasSubstr("cell must"));

  const auto with_projection = [](int64_t rows, int64_t columns) {
    return [=](RnnTensors& t) { t.weight_hr = at::zeros({rows, columns}, at::kDouble); };
  };
  EXPECT_THAT(error(with_projection(6, 6)),
              HasSubstr("[rnn_forward] weight_hr must have fewer rows than columns, got [6, 6]"));
  EXPECT_THAT(error(with_projection(3, 9)), HasSubstr("weight_ih must have [36, 5], got [24, 5]"));
  EXPECT_THAT(error(with_projection(3, 6)), HasSubstr("weight_hr must have [6, 6], got [3, 6]"));
  EXPECT_THAT(error([](RnnTensors& t) { t.weight_hr = at::zeros({6}, at::kDouble); }),
              HasSubstr("weight_hr must have 2 dimensions and at least one column, got [6]"));

  RnnTensors gru = RandomLayer(Cell::kLnGru, {4, 3, 5, 6});
  gru.weight_hr = at::zeros({3, 6}, at::kDouble);
  EXPECT_THAT(ErrorOf([&] { rnn_forward(Cell::kLnGru, gru); }),
              HasSubstr("weight_hr must be left out for ln_gru, got [3, 6]"));
  gru.weight_hr = Tensor();
  gru.c0 = gru.h0;
  EXPECT_THAT(ErrorOf([&] { rnn_forward(Cell::kLnGru, gru); }),
              HasSubstr("c0 must be left out for ln_gru, got [3, 6]"));

  RnnTensors step = good;
  EXPECT_THAT(ErrorOf([&] { rnn_step(Cell::kLnLstm, step); }),
              HasSubstr("[rnn_step] h_reset must be left out, got [6]"));
  step.h_reset = step.c_reset = step.lengths = step.resets = Tensor();
  EXPECT_THAT(ErrorOf([&] { rnn_step(Cell::kLnLstm, step); }),
              HasSubstr("[rnn_step] x must have 2 dimensions, [B, I], got [4, 3, 5]"));
  step = RandomLayer(Cell::kBnLstm, {1, 3, 5, 6});
  step.x = step.x[0];
  for (const bool gradients : {false, true}) {
    step.x.requires_grad_(gradients);
    EXPECT_THAT(ErrorOf([&] { rnn_step(Cell::kBnLstm, step); }),
                HasSubstr("[rnn_step] cell must be a cell without batch norm, got bn_lstm"));
  }
}

TEST(RnnPack, RejectsInvalidArguments) {
  const RnnTensors layer = RandomLayer(Cell::kLnGru, {4, 3, 5, 6});
  const RnnPacked packed = rnn_pack(Cell::kLnGru, layer);
  RnnTensors wrong = layer;
  wrong.ln_ih_bias = layer.ln_ih_bias.to(at::kFloat);
  EXPECT_THAT(ErrorOf([&] { rnn_pack(Cell::kLnGru, wrong); }),
              HasSubstr("[rnn_pack] ln_ih_bias must have weight_ih's type and device, Double on "
                        "cpu, got Float on cpu"));
  wrong.weight_ih = Tensor();
  EXPECT_THAT(ErrorOf([&] { rnn_pack(Cell::kLnGru, wrong); }),
              HasSubstr("[rnn_pack] weight_ih must be a tensor, got none"));
  EXPECT_THAT(ErrorOf([&] { rnn_pack(Cell::kGru, layer); }),
              HasSubstr("ln_ih_weight must be left out for gru, got [18]"));
  EXPECT_THAT(ErrorOf([&] { rnn_pack(Cell::kLnGru, layer, WeightType::kInt8); }),
              HasSubstr("weight_type must be full for a layer in double, got int8"));
  const auto error = [&](Cell cell, const RnnTensors& tensors) {
    return ErrorOf([&] { rnn_forward(cell, tensors, {}, packed); });
  };
  EXPECT_EQ(error(Cell::kLnGru, layer), "no error");
  EXPECT_THAT(error(Cell::kBnGru, layer), HasSubstr("packed must be weights of the same cell"));
  EXPECT_THAT(error(Cell::kLnGru, RandomLayer(Cell::kLnGru, {4, 3, 5, 7})),
              HasSubstr("packed must have hidden = 7, got 6"));
  EXPECT_THAT(error(Cell::kLnGru, RandomLayer(Cell::kLnGru, {4, 3, 5, 6}, {}, at::kFloat)),
              HasSubstr("[rnn_forward] packed must have x's type, Float, got another type"));
  const std::string gradients =
      "packed must be left out if gradients are needed, got packed weights";
  EXPECT_THAT(error(Cell::kLnGru, Leaves(layer)), HasSubstr("[rnn_forward] " + gradients));
  RnnTensors step = Leaves(layer);
  step.x = step.x[0];
  EXPECT_THAT(ErrorOf([&] { rnn_step(Cell::kLnGru, step, 1e-5, packed); }),
              HasSubstr("[rnn_step] " + gradients));
}

TEST(RnnBackward, RejectsInvalidArguments) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("planish::rnn_backward", "");
  const RnnTensors layer = RandomLayer(Cell::kLnGru, {4, 3, 5, 6});
  const Tensor y = Random({4, 3, 6}), states = Random({3, 6});
  const Tensor saved = SavedOf(Cell::kLnGru, layer, /*save=*/true);
  const auto error = [&](const c10::IValue& dy, const c10::IValue& dc_n, const Tensor& kept,
                         const c10::List<bool>& mask, const char* cell = "ln_gru") {
    torch::jit::Stack stack = {dy, c10::IValue(), dc_n, y, kept, cell};
    ForArguments(0, kTensors, [&](size_t field) {
      const Tensor& t = layer.*kFields[field].member;
      stack.push_back(t.defined() ? c10::IValue(t) : c10::IValue());
    });
    torch::jit::push(stack, /*reverse=*/false, /*eps=*/1e-5, /*checkpoint=*/false, mask);
    return ErrorOf([&] { op.callBoxed(stack); });
  };
  c10::List<bool> mask;
  mask.resize(kDifferentiables, false);
  const c10::IValue none;
  EXPECT_EQ(error(y, none, saved, mask), "no error");
  EXPECT_THAT(error(y.narrow(0, 0, 3), none, saved, mask),
              HasSubstr("[rnn_backward] dy must have [4, 3, 6], got [3, 3, 6]"));
  EXPECT_THAT(error(y.to(at::kFloat), none, saved, mask),
              HasSubstr("dy must have x's type and device, Double on cpu, got Float on cpu"));
  EXPECT_THAT(error(y, states, saved, mask),
              HasSubstr("dc_n must be left out for ln_gru, got [3, 6]"));
  EXPECT_THAT(error(y, none, saved.narrow(0, 0, 5), mask), HasSubstr("saved must have ["));
  EXPECT_THAT(error(y, none, saved, mask, "lngru"),
              HasSubstr("[rnn_backward] cell must be one of rnn, rnn_relu, lstm, gru, ln_rnn, "));
  constexpr size_t kMaskC0 = 14, kMaskHReset = 15;
  mask.set(kMaskC0, true);
  EXPECT_THAT(error(y, none, saved, mask),
              HasSubstr("mask[14] must be false for ln_gru, got true"));
  mask.set(kMaskC0, false);
  mask.set(kMaskHReset, true);
  EXPECT_EQ(error(y, none, saved, mask), "no error");
  EXPECT_THAT(error(y.clone().requires_grad_(true), none, saved, mask),
              HasSubstr("mask[15] must be false without h_reset if second derivatives are "
                        "needed, got true"));
  mask.resize(3);
  EXPECT_THAT(error(y, none, saved, mask), HasSubstr("mask must have 18 values, got 3"));
}

// ---- Modules

template <class From, class To>
void CopyState(const From& from, To& to) {
  const at::NoGradGuard guard;
  const auto source = from->named_parameters();
  auto target = to->named_parameters();
  ASSERT_EQ(source.keys(), target.keys());
  for (auto& item : target) item.value().copy_(source[item.key()]);
}

struct Layout {
  int64_t layers = 1;
  bool bidirectional = false, batch_first = false, bias = true;
};
const Layout kLayouts[] = {{},
                           {.layers = 3},
                           {.bidirectional = true},
                           {.layers = 2, .bidirectional = true, .batch_first = true},
                           {.batch_first = true},
                           {.layers = 2, .bias = false}};

constexpr int64_t kInputs = 3, kHidden = 4;

template <class Options>
Options WithLayout(const Layout& layout) {
  return Options(kInputs, kHidden)
      .num_layers(layout.layers)
      .bidirectional(layout.bidirectional)
      .batch_first(layout.batch_first)
      .bias(layout.bias);
}

/// The outputs of a module: y, h_n, and c_n if the module has one.
using Outputs = std::vector<Tensor>;

Outputs Flat(const std::tuple<Tensor, Tensor>& results) {
  return {std::get<0>(results), std::get<1>(results)};
}
Outputs Flat(const std::tuple<Tensor, std::tuple<Tensor, Tensor>>& results) {
  const auto& [y, states] = results;
  return {y, std::get<0>(states), std::get<1>(states)};
}
Outputs Flat(const std::tuple<PackedSequence, Tensor>& results) {
  return {std::get<0>(results).data(), std::get<1>(results)};
}
Outputs Flat(const std::tuple<PackedSequence, std::tuple<Tensor, Tensor>>& results) {
  const auto& [y, states] = results;
  return {y.data(), std::get<0>(states), std::get<1>(states)};
}

/// Runs both modules in double with the parameters of `theirs`, on the same x and states. Compares
/// outputs and the gradients of a random loss.
template <class Theirs, class OurModule, class Call>
void ExpectSameModule(Theirs theirs, OurModule ours, const std::vector<Tensor>& inputs,
                      const Call& call) {
  theirs->to(at::kDouble);
  ours->to(at::kDouble);
  CopyState(theirs, ours);
  const auto run = [&](auto& module) {
    std::vector<Tensor> leaves;
    for (const Tensor& input : inputs) leaves.push_back(input.clone().requires_grad_(true));
    Outputs results = call(module, leaves);
    at::manual_seed(3);
    std::vector<Tensor> weights;
    for (const Tensor& output : results) weights.push_back(Random(output.sizes()));
    for (const Tensor& parameter : module->parameters()) leaves.push_back(parameter);
    const auto gradients = torch::autograd::grad(results, leaves, weights);
    results.insert(results.end(), gradients.begin(), gradients.end());
    return results;
  };
  const Outputs a = run(ours), b = run(theirs);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ExpectNear(a[i], b[i], "result " + std::to_string(i));
}

/// Calls f for all kinds of module, PyTorch's and ours, with a layout and their states.
template <class F>
void ForEveryKind(const Layout& layout, const F& f) {
  f(torch::nn::LSTM(WithLayout<torch::nn::LSTMOptions>(layout)),
    nn::LayerNormLSTM(WithLayout<nn::LayerNormLSTMOptions>(layout).variant(Cell::kLstm)), 2);
  f(torch::nn::GRU(WithLayout<torch::nn::GRUOptions>(layout)),
    nn::LayerNormGRU(WithLayout<nn::LayerNormGRUOptions>(layout).variant(Cell::kGru)), 1);
  f(torch::nn::RNN(WithLayout<torch::nn::RNNOptions>(layout)),
    nn::LayerNormRNN(WithLayout<nn::LayerNormRNNOptions>(layout).variant(Cell::kRnn)), 1);
  f(torch::nn::RNN(WithLayout<torch::nn::RNNOptions>(layout).nonlinearity(torch::kReLU)),
    nn::LayerNormRNN(WithLayout<nn::LayerNormRNNOptions>(layout).variant(Cell::kRnnRelu)), 1);
}

/// Calls a module with x and, if given, states.
Outputs Forward(auto& module, const std::vector<Tensor>& inputs) {
  if (inputs.size() == 1) return Flat(module->forward(inputs[0]));
  if constexpr (requires { module->forward(inputs[0], inputs[1]); }) {
    return Flat(module->forward(inputs[0], inputs[1]));
  } else {
    return Flat(module->forward(inputs[0], std::tuple(inputs[1], inputs[2])));
  }
}

Outputs ForwardPacked(auto& module, const std::vector<Tensor>& inputs, const Tensor& lengths) {
  const PackedSequence packed = torch::nn::utils::rnn::pack_padded_sequence(
      inputs[0], lengths, /*batch_first=*/false, /*enforce_sorted=*/false);
  if (inputs.size() == 1) return Flat(module->forward_with_packed_input(packed));
  if constexpr (requires { module->forward_with_packed_input(packed, inputs[1]); }) {
    return Flat(module->forward_with_packed_input(packed, inputs[1]));
  } else {
    return Flat(module->forward_with_packed_input(packed, std::tuple(inputs[1], inputs[2])));
  }
}

std::vector<Tensor> WithStates(const Tensor& x, at::IntArrayRef sizes, int states) {
  std::vector<Tensor> inputs = {x};
  for (int i = 0; i < states; ++i) inputs.push_back(Random(sizes));
  return inputs;
}

TEST(RecurrentModules, PlainVariantsMatchPyTorch) {
  for (const Layout& layout : kLayouts) {
    const int64_t time = 5, batch = 2, states = layout.layers * (layout.bidirectional ? 2 : 1);
    at::manual_seed(1);
    const Tensor x =
        layout.batch_first ? Random({batch, time, kInputs}) : Random({time, batch, kInputs});
    ForEveryKind(layout, [&](auto theirs, auto ours, int parts) {
      SCOPED_TRACE(::testing::Message() << *ours);
      const auto call = [](auto& module, const auto& inputs) { return Forward(module, inputs); };
      ExpectSameModule(theirs, ours, {x}, call);
      ExpectSameModule(theirs, ours, WithStates(x, {states, batch, kHidden}, parts), call);
    });
  }
}

TEST(RecurrentModules, ProjectionsMatchPyTorch) {
  constexpr int64_t kProjected = 2;
  for (const Layout& layout : kLayouts) {
    const int64_t time = 5, batch = 4, states = layout.layers * (layout.bidirectional ? 2 : 1);
    torch::nn::LSTM theirs(WithLayout<torch::nn::LSTMOptions>(layout).proj_size(kProjected));
    nn::LayerNormLSTM ours(
        WithLayout<nn::LayerNormLSTMOptions>(layout).variant(Cell::kLstm).proj_size(kProjected));
    SCOPED_TRACE(::testing::Message() << *ours);
    at::manual_seed(1);
    const Tensor h = Random({states, batch, kProjected}), c = Random({states, batch, kHidden});
    const Tensor x =
        layout.batch_first ? Random({batch, time, kInputs}) : Random({time, batch, kInputs});
    const auto call = [](auto& module, const auto& inputs) { return Forward(module, inputs); };
    ExpectSameModule(theirs, ours, {x}, call);
    ExpectSameModule(theirs, ours, {x, h, c}, call);
    const Tensor lengths = at::tensor({2, 5, 1, 5}, at::kLong);
    const auto packed = [&](auto& module, const auto& inputs) {
      return ForwardPacked(module, inputs, lengths);
    };
    ExpectSameModule(theirs, ours, {Random({time, batch, kInputs}), h, c}, packed);
    // In inference, with packed weights.
    ours->eval();
    const at::NoGradGuard guard;
    for (int twice = 0; twice < 2; ++twice) {
      const Outputs a = Forward(ours, {x, h, c}), b = Forward(theirs, {x, h, c});
      for (size_t i = 0; i < a.size(); ++i) ExpectNear(a[i], b[i], std::to_string(i));
    }
  }
}

// torch::nn's C++ modules accept only batches, so theirs gets a batch of one.
TEST(RecurrentModules, AcceptASingleSequence) {
  for (const Layout& layout : kLayouts) {
    const int64_t states = layout.layers * (layout.bidirectional ? 2 : 1);
    at::manual_seed(2);
    const Tensor x = Random({5, kInputs});
    ForEveryKind(layout, [&](auto theirs, auto ours, int parts) {
      SCOPED_TRACE(::testing::Message() << *ours);
      const auto call = [&](auto& module, std::vector<Tensor> inputs) {
        constexpr bool kBatch = requires { module->options_base; };
        const int64_t batch = layout.batch_first ? 0 : 1;
        for (size_t i = 0; kBatch && i < inputs.size(); ++i) {
          inputs[i] = inputs[i].unsqueeze(i == 0 ? batch : 1);
        }
        Outputs outputs = Forward(module, inputs);
        for (size_t i = 0; kBatch && i < outputs.size(); ++i) {
          outputs[i] = outputs[i].squeeze(i == 0 ? batch : 1);
        }
        return outputs;
      };
      ExpectSameModule(theirs, ours, {x}, call);
      ExpectSameModule(theirs, ours, WithStates(x, {states, kHidden}, parts), call);
    });
  }
}

TEST(RecurrentModules, AcceptPackedSequences) {
  for (const Layout& layout : kLayouts) {
    const int64_t time = 5, batch = 4, states = layout.layers * (layout.bidirectional ? 2 : 1);
    at::manual_seed(3);
    const Tensor x = Random({time, batch, kInputs}), lengths = at::tensor({2, 5, 1, 5}, at::kLong);
    ForEveryKind(layout, [&](auto theirs, auto ours, int parts) {
      SCOPED_TRACE(::testing::Message() << *ours);
      const auto call = [&](auto& module, const auto& inputs) {
        return ForwardPacked(module, inputs, lengths);
      };
      ExpectSameModule(theirs, ours, {x}, call);
      ExpectSameModule(theirs, ours, WithStates(x, {states, batch, kHidden}, parts), call);
    });
  }
}

TEST(RecurrentModules, LengthsMatchPackedSequences) {
  at::manual_seed(4);
  const Tensor x = Random({5, 3, kInputs}), lengths = at::tensor({2, 5, 1}, at::kLong);
  nn::LayerNormLSTM module(nn::LayerNormLSTMOptions(kInputs, kHidden)
                               .num_layers(2)
                               .bidirectional(true)
                               .batch_first(true));
  module->to(at::kDouble);
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, lengths, false, false);
  const auto [y, states] = module->forward(x.transpose(0, 1), {}, {.lengths = lengths});
  const auto [packed_y, packed_states] = module->forward_with_packed_input(packed);
  ExpectSame(y.transpose(0, 1), std::get<0>(torch::nn::utils::rnn::pad_packed_sequence(packed_y)),
             "y");
  ExpectSame(std::get<0>(states), std::get<0>(packed_states), "h_n");
  ExpectSame(std::get<1>(states), std::get<1>(packed_states), "c_n");
  for (const at::ScalarType type : {at::kByte, at::kChar, at::kShort, at::kInt}) {
    const auto typed = module->forward(x.transpose(0, 1), {}, {.lengths = lengths.to(type)});
    ExpectSame(std::get<0>(typed), y, "y");
  }
}

TEST(RecurrentModules, ResetStates) {
  at::manual_seed(5);
  nn::LayerNormLSTM module(nn::LayerNormLSTMOptions(kInputs, kHidden).num_layers(2));
  module->to(at::kDouble);
  const Tensor x = Random({6, 2, kInputs});
  const Tensor h = Random({2, kHidden}), c = Random({2, kHidden});
  // All sequences start again before step 4, as if the first part did not exist.
  Tensor resets = at::zeros({6, 2}, at::kBool);
  resets[4].fill_(true);
  const auto batch = [](const Tensor& t) { return t.unsqueeze(1).expand({2, 2, kHidden}); };
  const auto [y, states] = module->forward(x, {}, {.resets = resets, .h_reset = h, .c_reset = c});
  const auto [tail, tail_states] = module->forward(x.slice(0, 4), std::tuple(batch(h), batch(c)));
  ExpectSame(y.slice(0, 4), tail, "y");
  ExpectSame(std::get<0>(states), std::get<0>(tail_states), "h_n");
  ExpectSame(std::get<1>(states), std::get<1>(tail_states), "c_n");

  // Resets without h_reset are to zeros; also for one sequence [T, I], and with batch_first.
  const auto zeros = module->forward(x, {}, {.resets = resets});
  ExpectSame(std::get<0>(zeros).slice(0, 4), std::get<0>(module->forward(x.slice(0, 4))), "y");
  const auto one = module->forward(x.select(1, 1), {}, {.resets = resets.select(1, 1)});
  ExpectSame(std::get<0>(one), std::get<0>(zeros).select(1, 1), "y");
  module->options.batch_first(true);
  const auto first = module->forward(x.transpose(0, 1), {}, {.resets = resets.t()});
  ExpectSame(std::get<0>(first).transpose(0, 1), std::get<0>(zeros), "y");

  // Resets of other types, and with a last dimension of 1.
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kInt, at::kHalf, at::kFloat}) {
    const Tensor typed = resets.t().to(type);
    for (const Tensor& given : {typed, typed.unsqueeze(-1)}) {
      const auto other = module->forward(x.transpose(0, 1), {}, {.resets = given});
      ExpectSame(std::get<0>(other), std::get<0>(first), "y");
    }
  }
}

TEST(RecurrentModules, LearnTheStateAfterAReset) {
  at::manual_seed(6);
  nn::LayerNormGRU module(nn::LayerNormGRUOptions(kInputs, kHidden));
  const Tensor h = at::zeros({1, kHidden}).requires_grad_(true);
  const Tensor resets = at::ones({3, 2}, at::kBool);
  const Tensor y = std::get<0>(
      module->forward(at::randn({3, 2, kInputs}), {}, {.resets = resets, .h_reset = h}));
  EXPECT_GT(torch::autograd::grad({y.pow(2).sum()}, {h})[0].abs().max().item<double>(), 0);
}

TEST(RecurrentModules, HaveTheKeysOfTheirVariant) {
  const auto lstm = [](Cell cell) {
    return nn::LayerNormLSTM(nn::LayerNormLSTMOptions(3, 4).variant(cell))
        ->named_parameters()
        .keys();
  };
  EXPECT_THAT(lstm(Cell::kLstm),
              ElementsAre("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"));
  EXPECT_THAT(
      lstm(Cell::kLnLstm),
      ElementsAre("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "ln_ih_weight_l0", "ln_ih_bias_l0",
                  "ln_hh_weight_l0", "ln_hh_bias_l0", "ln_c_weight_l0", "ln_c_bias_l0"));
  EXPECT_THAT(lstm(Cell::kLnLstmHaste),
              ElementsAre("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "ln_ih_weight_l0",
                          "ln_hh_weight_l0", "ln_c_weight_l0", "ln_c_bias_l0"));
  EXPECT_THAT(lstm(Cell::kLnLstmContrib),
              ElementsAre("weight_ih_l0", "weight_hh_l0", "ln_weight_l0", "ln_bias_l0",
                          "ln_c_weight_l0", "ln_c_bias_l0"));
  EXPECT_THAT(lstm(Cell::kDrawLstm), ElementsAre("weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
                                                 "bias_hh_l0", "ln_c_weight_l0", "ln_c_bias_l0"));
  const auto options = nn::LayerNormGRUOptions(3, 4).num_layers(2).bidirectional(true).bias(false);
  const auto parameters = nn::LayerNormGRU(options)->named_parameters();
  EXPECT_EQ(parameters.size(), 24U);
  EXPECT_EQ(parameters["weight_ih_l0_reverse"].sizes(), at::IntArrayRef({12, 3}));
  EXPECT_EQ(parameters["weight_ih_l1"].sizes(), at::IntArrayRef({12, 8}));
  EXPECT_EQ(parameters["ln_hh_bias_l1_reverse"].sizes(), at::IntArrayRef({12}));
  EXPECT_THAT(nn::LayerNormRNN(3, 4)->named_parameters().keys(),
              ElementsAre("weight_ih_l0", "weight_hh_l0", "ln_weight_l0", "ln_bias_l0"));
  EXPECT_THAT(nn::LayerNormLSTMCell(3, 4)->named_parameters().keys(),
              ElementsAre("weight_ih", "weight_hh", "bias_ih", "ln_ih_weight", "ln_ih_bias",
                          "ln_hh_weight", "ln_hh_bias", "ln_c_weight", "ln_c_bias"));
}

TEST(RecurrentModules, PassTheirParametersToTheOperator) {
  at::manual_seed(15);
  const Tensor x = Random({4, 3, kInputs});
  const auto expect = [&](auto module, Cell cell) {
    SCOPED_TRACE(cell_name(cell));
    module->to(at::kDouble);
    RnnTensors tensors;
    tensors.x = x;
    for (auto& item : module->named_parameters()) {
      const at::NoGradGuard guard;
      item.value().normal_();
      const std::string name = item.key().substr(0, item.key().find("_l0"));
      for (const Field& field : kFields) {
        if (name == field.name) tensors.*field.member = item.value();
      }
      if (name == "bias_ih") tensors.bias = item.value();
    }
    const Outputs ours = Flat(module->forward(x));
    const RnnOutputs theirs = Composed(cell, tensors, {.eps = module->options.eps()});
    ExpectNear(ours[0], theirs.y, "y");
    ExpectNear(ours[1], theirs.h_n.unsqueeze(0), "h_n");
    if (ours.size() > 2) ExpectNear(ours[2], theirs.c_n.unsqueeze(0), "c_n");
  };
  for (const Cell cell : internal::kCells) {
    const CellRecipe recipe = RecipeOf(cell);
    // These have two biases.
    if (recipe.sums == internal::Sums::kPlain || recipe.has_bias_hn()) continue;
    if (recipe.is_lstm()) {
      expect(nn::LayerNormLSTM(nn::LayerNormLSTMOptions(kInputs, kHidden).variant(cell).eps(1e-3)),
             cell);
    } else if (recipe.is_gru()) {
      expect(nn::LayerNormGRU(nn::LayerNormGRUOptions(kInputs, kHidden).variant(cell)), cell);
    } else {
      expect(nn::LayerNormRNN(nn::LayerNormRNNOptions(kInputs, kHidden).variant(cell)), cell);
    }
  }
}

TEST(RecurrentModules, InitializeLikePyTorch) {
  const Layout layout = {.layers = 2, .bidirectional = true};
  at::manual_seed(9);
  torch::nn::GRU theirs(WithLayout<torch::nn::GRUOptions>(layout));
  at::manual_seed(9);
  nn::LayerNormGRU ours(WithLayout<nn::LayerNormGRUOptions>(layout).variant(Cell::kGru));
  for (const auto& item : ours->named_parameters()) {
    ExpectSame(item.value(), theirs->named_parameters()[item.key()], item.key());
  }
  const auto normalized = nn::LayerNormLSTM(3, 16)->named_parameters();
  EXPECT_TRUE(normalized["ln_ih_weight_l0"].equal(at::ones({64})));
  EXPECT_TRUE(normalized["ln_ih_bias_l0"].equal(at::zeros({64})));
  EXPECT_TRUE(normalized["ln_c_weight_l0"].equal(at::ones({16})));
  for (const char* key : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0"}) {
    // The largest of 64 or more draws is below 0.8 of the bound with a probability of 1e-6.
    const double most = normalized[key].abs().max().item<double>();
    EXPECT_LE(most, 0.25) << key;
    EXPECT_GT(most, 0.2) << key;
  }
}

TEST(RecurrentModules, ApplyDropoutBetweenLayersInTraining) {
  at::manual_seed(10);
  nn::LayerNormGRU module(nn::LayerNormGRUOptions(kInputs, kHidden).num_layers(2).dropout(1));
  const Tensor x = at::randn({4, 2, kInputs});
  const auto [dropped, states] = module->forward(x);
  // Dropout of 1 removes all outputs of the first layer, but not its last state.
  const auto [others, other_states] = module->forward(x + 1);
  ExpectSame(dropped, others, "y");
  EXPECT_FALSE(states[0].equal(other_states[0]));
  module->eval();
  const auto [kept, kept_states] = module->forward(x);
  EXPECT_FALSE(kept.equal(dropped));
  module->options.dropout(0);
  module->train();
  ExpectSame(std::get<0>(module->forward(x)), kept, "y");
}

/// Expects that a module in inference, with packed weights, computes the same as without, after any
/// change of its parameters.
template <class Module, class Call>
void ExpectSameInInference(Module module, const Call& call) {
  const auto inference = [&] {
    const at::NoGradGuard guard;
    return call(module);
  };
  const auto expect_same = [&](const char* when) {
    SCOPED_TRACE(when);
    module->train();
    const Outputs expected = call(module);
    module->eval();
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Outputs outputs = inference();
      for (size_t i = 0; i < outputs.size(); ++i) ExpectSame(outputs[i], expected[i], when);
    }
  };
  expect_same("at first");
  const auto parameters = module->named_parameters();
  for (const auto& item : parameters) {
    // Not with expect_same, which changes the mode and so frees packed weights.
    const Outputs before = inference();
    {
      const at::NoGradGuard guard;
      item.value().add_(0.25 * at::randn_like(item.value()));
    }
    EXPECT_FALSE(inference()[0].equal(before[0])) << item.key();
    Tensor parameter = item.value();
    const Outputs changed = inference();
    parameter.set_data(parameter.detach() + 0.25 * at::randn_like(parameter));
    const Outputs unwritten = inference();
    EXPECT_FALSE(unwritten[0].equal(changed[0])) << item.key();
    const int64_t version = item.value()._version();
    FlipABit(item.value());
    ASSERT_EQ(item.value()._version(), version);
    const Outputs written = inference();
    EXPECT_FALSE(written[0].equal(unwritten[0])) << item.key();
    ExpectSame(written[0], call(module)[0], item.key());
    const c10::InferenceMode mode;
    const Outputs again = call(module), plain = inference();
    ExpectSame(again[0], plain[0], item.key());
  }
  expect_same("after changes");
  module->to(at::kDouble);
  module->to(at::kFloat);
  expect_same("after conversions");
}

TEST(RecurrentModules, PackWeightsInInference) {
  at::manual_seed(13);
  const Tensor x = at::randn({3, 2, kInputs});
  for (const Cell cell : {Cell::kLstm, Cell::kLnLstm, Cell::kLnLstmContrib}) {
    SCOPED_TRACE(cell_name(cell));
    const auto options = nn::LayerNormLSTMOptions(kInputs, kHidden).variant(cell);
    nn::LayerNormLSTM module(nn::LayerNormLSTMOptions(options).num_layers(2).bidirectional(true));
    ExpectSameInInference(module, [&](auto& m) { return Flat(m->forward(x)); });
    ExpectSameInInference(
        nn::LayerNormLSTMCell(nn::LayerNormLSTMCellOptions(kInputs, kHidden).variant(cell)),
        [&](auto& m) {
          const auto [h, c] = m->forward(x[1], m->forward(x[0]));
          return Outputs{h, c};
        });
  }
  ExpectSameInInference(
      nn::LayerNormGRUCell(nn::LayerNormGRUCellOptions(kInputs, kHidden).variant(Cell::kGru)),
      [&](auto& m) { return Outputs{m->forward(x[1], m->forward(x[0]))}; });
}

/// Expects that a frozen module detects changes of address, version and type.
template <class Module, class Call>
void ExpectFreezes(Module module, const Call& call) {
  const at::NoGradGuard guard;
  module->eval();
  const Outputs before = call(module);
  module->freeze();
  EXPECT_TRUE(module->is_frozen());
  ExpectSame(call(module)[0], before[0], "frozen");
  Tensor weight = module->parameters()[1];
  // A change that freeze() forbids: the bytes are not compared.
  FlipABit(weight);
  ExpectSame(call(module)[0], before[0], "promise");
  module->unfreeze();
  EXPECT_FALSE(module->is_frozen());
  const Outputs after = call(module);
  EXPECT_FALSE(after[0].equal(before[0]));
  const std::string error = "has changed while the module is frozen: call unfreeze() before";
  const auto call_it = [&] { call(module); };
  for (int change = 0; change < 3; ++change) {
    module->freeze();
    call_it();
    if (change == 0) weight.mul_(2);
    if (change == 1) weight.set_data(weight.clone());
    if (change == 2) module->to(at::kDouble), module->to(at::kFloat);
    EXPECT_THAT(ErrorOf(call_it), HasSubstr(error)) << change;
    module->unfreeze();
    EXPECT_EQ(ErrorOf(call_it), "no error") << change;
  }
  module->freeze();
  module->eval();
  EXPECT_TRUE(module->is_frozen());
  module->train();
  EXPECT_FALSE(module->is_frozen());
  module->freeze();
  using Impl = std::remove_reference_t<decltype(*module)>;
  EXPECT_FALSE(std::dynamic_pointer_cast<Impl>(module->clone())->is_frozen());
  EXPECT_FALSE(Impl(*module).is_frozen());
}

TEST(RecurrentModules, StayFrozenUntilAChangeOrUnfreeze) {
  at::manual_seed(16);
  const Tensor x = at::randn({3, 2, kInputs});
  ExpectFreezes(nn::LayerNormLSTM(nn::LayerNormLSTMOptions(kInputs, kHidden).num_layers(2)),
                [&](auto& m) { return Flat(m->forward(x)); });
  ExpectFreezes(nn::LayerNormGRUCell(kInputs, kHidden),
                [&](auto& m) { return Outputs{m->forward(x[1], m->forward(x[0]))}; });
}

/// Calls f inside torch.func.vmap with the rows of `rows`. Returns the stacked results.
template <class F>
Tensor Vmap(const Tensor& rows, const F& f) {
  namespace functorch = at::functorch;
  const int64_t level = functorch::initAndPushDynamicLayer(
      functorch::TransformType::Vmap, c10::SymInt(rows.size(0)), functorch::RandomnessType::Error);
  const Tensor y = f(functorch::makeBatched(rows, 0, level));
  const auto* const batched = functorch::maybeGetBatchedImpl(y);
  const Tensor stacked = batched->value().movedim(batched->bdim(), 0);
  functorch::popDynamicLayerAndDeleteMetadata();
  return stacked;
}

/// Calls f inside torch.func.grad. Returns the result.
template <class F>
Tensor InsideGrad(const Tensor& x, const F& f) {
  namespace functorch = at::functorch;
  const int64_t level = functorch::initAndPushDynamicLayer(functorch::TransformType::Grad, {}, {},
                                                           /*prev_grad_mode=*/false);
  const Tensor y = f(functorch::makeTensorWrapper(x, level));
  const Tensor value = functorch::maybeGetTensorWrapper(y)->value();
  functorch::popDynamicLayerAndDeleteMetadata();
  return value;
}

/// Expects that a frozen module inside a transform computes from its parameters. Its packed weights
/// are told apart by a write that they do not follow.
template <class Module, class Call>
void ExpectNoPackedWeightsInTransforms(Module module, const Call& call) {
  const at::NoGradGuard guard;
  const Tensor x = at::randn({2, 3, kInputs});
  module->eval();
  module->freeze();
  const Tensor old = call(module, x[0]);
  FlipABit(module->parameters()[0]);
  ExpectSame(call(module, x[0]), old, "packed");
  const auto inside = [&](const Tensor& t) { return call(module, t); };
  const Tensor mapped = Vmap(x, inside), differentiated = InsideGrad(x[0], inside);
  module->unfreeze();
  EXPECT_FALSE(call(module, x[0]).equal(old));
  ExpectSame(mapped, at::stack({call(module, x[0]), call(module, x[1])}), "vmap");
  ExpectSame(differentiated, call(module, x[0]), "grad");
}

TEST(RecurrentModules, UseNoPackedWeightsInTransforms) {
  at::manual_seed(17);
  ExpectNoPackedWeightsInTransforms(
      nn::LayerNormLSTM(kInputs, kHidden),
      [](auto& m, const Tensor& x) { return std::get<0>(m->forward(x)); });
  ExpectNoPackedWeightsInTransforms(nn::LayerNormGRUCell(kInputs, kHidden),
                                    [](auto& m, const Tensor& x) { return m->forward(x); });
}

TEST(RecurrentModules, UseNoPackedWeightsWithTangents) {
  at::manual_seed(18);
  const at::NoGradGuard guard;
  nn::LayerNormLSTM module(kInputs, kHidden);
  module->to(at::kDouble);
  module->eval();
  const Tensor x = Random({4, 2, kInputs}), dx = at::randn_like(x);
  const Tensor y = std::get<0>(module->forward(x));
  const auto level = torch::autograd::ForwardADLevel::get_next_idx();
  {
    const Tensor dual = at::_make_dual(x, dx, static_cast<int64_t>(level));
    const Tensor result = std::get<0>(module->forward(dual));
    ExpectNear(std::get<0>(at::_unpack_dual(result, static_cast<int64_t>(level))), y, "y");
    EXPECT_TRUE(result._fw_grad(level).defined());
  }
  torch::autograd::ForwardADLevel::release_idx(level);
}

// Inference computes with packed weights of each type, gradients with the parameters.
TEST(RecurrentModules, ComputeWithTheirTypeOfWeights) {
  at::manual_seed(17);
  const Tensor x = at::randn({5, 2, kInputs});
  nn::LayerNormLSTM layer(nn::LayerNormLSTMOptions(kInputs, kHidden).num_layers(2));
  nn::LayerNormGRUCell cell(nn::LayerNormGRUCellOptions(kInputs, kHidden));
  layer->eval();
  cell->eval();
  EXPECT_EQ(layer->weight_type(), WeightType::kFull);
  const Tensor with_gradients = std::get<0>(layer->forward(x)).detach();
  RnnTensors params;
  const auto of_cell = cell->named_parameters();
  params.weight_ih = of_cell["weight_ih"].detach();
  params.weight_hh = of_cell["weight_hh"].detach();
  params.ln_ih_weight = of_cell["ln_ih_weight"].detach();
  params.ln_ih_bias = of_cell["ln_ih_bias"].detach();
  params.ln_hh_weight = of_cell["ln_hh_weight"].detach();
  params.ln_hh_bias = of_cell["ln_hh_bias"].detach();
  for (const WeightType type : {WeightType::kBfloat16, WeightType::kInt8, WeightType::kFull}) {
    SCOPED_TRACE(weight_type_name(type));
    layer->freeze();
    layer->quantize_(type);
    cell->quantize_(type);
    EXPECT_TRUE(layer->is_frozen());
    EXPECT_EQ(cell->weight_type(), type);
    ExpectSame(std::get<0>(layer->forward(x)).detach(), with_gradients, "with gradients");
    const at::NoGradGuard guard;
    RnnTensors tensors = params;
    tensors.x = x[0];
    const RnnPacked packed = rnn_pack(Cell::kLnGru, params, type);
    ExpectSame(cell->forward(x[0]), std::get<0>(rnn_step(Cell::kLnGru, tensors, 1e-5, packed)),
               "step");
    const Tensor y = std::get<0>(layer->forward(x));
    EXPECT_EQ(y.equal(with_gradients), type == WeightType::kFull);
    // Half a unit of bfloat16 is 2e-3 of a weight, one of int8 is 4e-3 of the largest one. Two
    // layers of five steps with norms of few elements multiply that by 10 at most.
    EXPECT_LE((y - with_gradients).abs().max().item<double>(), 0.05);
    // Copies keep the type.
    const auto clone = std::dynamic_pointer_cast<nn::LayerNormLSTMImpl>(layer->clone());
    ExpectSame(std::get<0>(clone->forward(x)), y, "clone");
    ExpectSame(std::get<0>(nn::LayerNormLSTMImpl(*layer).forward(x)), y, "copy");
    // So does a change of mode.
    layer->train();
    layer->eval();
    EXPECT_EQ(layer->weight_type(), type);
  }
  cell->quantize_(WeightType::kInt8);
  std::ostringstream text;
  text << *cell;
  EXPECT_THAT(text.str(), HasSubstr(", weight_type=int8)"));
  cell->to(at::kDouble);
  EXPECT_THAT(
      ErrorOf([&] { cell->quantize_(WeightType::kBfloat16); }),
      HasSubstr("[LayerNormGRUCell] weight_type must be full for parameters of type double, "
                "got bfloat16"));
  const at::NoGradGuard guard;
  EXPECT_THAT(ErrorOf([&] { cell->forward(x[0].to(at::kDouble)); }),
              HasSubstr("weight_type must be full for a layer in double, got int8"));
}

TEST(RecurrentModules, AllowConcurrentCalls) {
  at::manual_seed(14);
  nn::LayerNormGRUCell module(nn::LayerNormGRUCellOptions(kInputs, kHidden));
  module->eval();
  const Tensor x = at::randn({2, kInputs}), expected = module->forward(x).detach();
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const at::NoGradGuard guard;
      for (int repeat = 0; repeat < 50; ++repeat) same += module->forward(x).equal(expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 200);
}

TEST(RecurrentModules, CloneAndPrint) {
  nn::LayerNormLSTM module(nn::LayerNormLSTMOptions(3, 4).variant(Cell::kLnLstmTfa).eps(1e-3));
  const auto copy = std::dynamic_pointer_cast<nn::LayerNormLSTMImpl>(module->clone());
  const Tensor x = at::randn({4, 2, 3});
  const Tensor y = std::get<0>(module->forward(x));
  ExpectSame(std::get<0>(copy->forward(x)), y, "y");
  {
    const at::NoGradGuard guard;
    for (Tensor& parameter : module->parameters()) parameter.zero_();
  }
  ExpectSame(std::get<0>(copy->forward(x)), y, "y");
  EXPECT_FALSE(std::get<0>(module->forward(x)).equal(y));
  std::ostringstream text;
  text << *module << " " << *nn::LayerNormGRUCell(nn::LayerNormGRUCellOptions(3, 4).composed(true));
  EXPECT_EQ(text.str(),
            "planish::nn::LayerNormLSTM(input_size=3, hidden_size=4, num_layers=1, bias=true, "
            "batch_first=false, dropout=0, bidirectional=false, variant=ln_lstm_tfa, eps=0.001, "
            "checkpoint=false) "
            "planish::nn::LayerNormGRUCell(input_size=3, hidden_size=4, bias=true, "
            "variant=ln_gru, eps=1e-05, composed=true)");
}

TEST(RecurrentModules, FitIntoAnAnyModule) {
  nn::LayerNormLSTM module(3, 4);
  torch::nn::AnyModule any(module);
  const Tensor x = at::randn({4, 2, 3});
  const auto results = any.forward<std::tuple<Tensor, nn::LayerNormLSTMImpl::State>>(x);
  ExpectSame(std::get<0>(results), std::get<0>(module->forward(x)), "y");
}

TEST(RecurrentModules, RejectInvalidArguments) {
  using Options = nn::LayerNormLSTMOptions;
  const auto made = [](const Options& options) {
    return ErrorOf([&] { nn::LayerNormLSTM module(options); });
  };
  EXPECT_THAT(made(Options(0, 4)),
              HasSubstr("[LayerNormLSTM] input_size must be at least 1, got 0"));
  EXPECT_THAT(made(Options(3, -1)), HasSubstr("hidden_size must be at least 1, got -1"));
  EXPECT_THAT(made(Options(3, 4).num_layers(0)), HasSubstr("num_layers must be at least 1"));
  EXPECT_THAT(made(Options(3, 4).dropout(1.5)), HasSubstr("dropout must be from 0 to 1, got 1.5"));
  EXPECT_THAT(made(Options(3, 4).eps(-1)),
              HasSubstr("[LayerNormLSTM] eps must be finite and at least 0, got -1"));
  EXPECT_THAT(made(Options(3, 4).num_heads(0)), HasSubstr("num_heads must be at least 1, got 0"));
  EXPECT_THAT(made(Options(3, 4).num_heads(3)),
              HasSubstr("[LayerNormLSTM] num_heads must divide hidden_size, 4, got 3"));
  EXPECT_THAT(made(Options(3, 4).num_heads(2).proj_size(2)),
              HasSubstr("num_heads must be 1 with proj_size, got 2"));
  EXPECT_THAT(made(Options(3, 4).proj_size(-1)), HasSubstr("proj_size must be at least 0, got -1"));
  EXPECT_THAT(made(Options(3, 4).proj_size(4)),
              HasSubstr("[LayerNormLSTM] proj_size must be less than hidden_size, 4, got 4"));
  EXPECT_THAT(ErrorOf([] { nn::LayerNormGRU module(nn::LayerNormGRUOptions(3, 4).proj_size(2)); }),
              HasSubstr("[LayerNormGRU] proj_size must be 0, got 2"));
  EXPECT_THAT(made(Options(3, 4).variant(Cell::kLnGru)),
              HasSubstr("variant must be a cell with 4 gates, got ln_gru"));
  EXPECT_THAT(ErrorOf([] {
                nn::LayerNormRNNCell cell(nn::LayerNormRNNCellOptions(3, 4).variant(Cell::kBnRnn));
              }),
              HasSubstr("[LayerNormRNNCell] variant must be a cell without batch norm, got "
                        "bn_rnn"));

  nn::LayerNormLSTM module(Options(3, 4).num_layers(2).batch_first(true));
  const Tensor x = at::randn({2, 5, 3}), states = at::randn({2, 2, 4});
  const auto error = [&](const Tensor& input, std::optional<nn::LayerNormLSTMImpl::State> hx = {},
                         const nn::RnnSequences& sequences = {}) {
    return ErrorOf([&] { module->forward(input, hx, sequences); });
  };
  EXPECT_EQ(error(x, std::tuple(states, states)), "no error");
  EXPECT_THAT(error(x[0][0]), HasSubstr("x must have 2 or 3 dimensions, got [3]"));
  EXPECT_THAT(error(x.narrow(2, 0, 2)),
              HasSubstr("x must have input_size, 3, as its last dimension, got [2, 5, 2]"));
  EXPECT_THAT(error(x, std::tuple(states[0], states)),
              HasSubstr("h_0 must have [2, 2, 4], got [2, 4]"));
  EXPECT_THAT(error(x, std::tuple(states, at::randn({2, 5, 4}))),
              HasSubstr("c_0 must have [2, 2, 4], got [2, 5, 4]"));
  EXPECT_THAT(error(x[0], std::tuple(states, states)),
              HasSubstr("h_0 must have [2, 4], got [2, 2, 4]"));
  EXPECT_THAT(error(x, {}, {.resets = at::zeros({5, 2}, at::kBool)}),
              HasSubstr("resets must have [2, 5], got [5, 2]"));
  EXPECT_THAT(error(x, {}, {.resets = at::zeros({2, 5}, at::kBool), .h_reset = at::zeros({4})}),
              HasSubstr("h_reset must have [2, 4], got [4]"));
  EXPECT_THAT(error(x, {}, {.lengths = at::tensor({6, 1}, at::kLong)}),
              HasSubstr("lengths[0] must be at least 1 and at most time, 5, got 6"));
  EXPECT_THAT(error(x, {}, {.lengths = at::tensor({0, 1}, at::kInt)}),
              HasSubstr("lengths[0] must be at least 1 and at most time, 5, got 0"));
  EXPECT_THAT(error(x, {}, {.lengths = at::tensor({4.5, 1.0})}),
              HasSubstr("[LayerNormLSTM] lengths must be integers, got Double"));
  EXPECT_THAT(error(x, {}, {.resets = at::full({2, 5}, 0.5)}),
              HasSubstr("[LayerNormLSTM] resets must be 0 or 1, got 0.5"));
  EXPECT_THAT(error(x, {}, {.resets = at::full({2, 5}, 2, at::kByte)}),
              HasSubstr("[LayerNormLSTM] resets must be 0 or 1, got 2"));
  EXPECT_THAT(error(x, {}, {.resets = at::zeros({2, 5, 2})}),
              HasSubstr("[LayerNormLSTM] resets must have [2, 5], got [2, 5, 2]"));
  EXPECT_THAT(error(x[0], {}, {.lengths = at::tensor({5}, at::kLong)}),
              HasSubstr("lengths must be left out for x [T, I], got [1]"));
  EXPECT_THAT(error(x.to(at::kDouble)),
              HasSubstr("weight_ih must have x's type and device, Double on cpu, got Float"));
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(
      x.narrow(2, 0, 2), at::tensor({5, 2}, at::kLong), true);
  EXPECT_THAT(ErrorOf([&] { module->forward_with_packed_input(packed); }),
              HasSubstr("x must have input_size, 3, as its last dimension, got [7, 2]"));
}

// ---- Cells

// torch::nn's C++ modules accept only batches, so theirs gets a batch of one.
TEST(RecurrentCells, PlainVariantsMatchPyTorch) {
  at::manual_seed(11);
  const auto call = [](auto& module, std::vector<Tensor> inputs) {
    const bool add_batch = requires { module->options_base; } && inputs[0].dim() == 1;
    for (Tensor& input : inputs) input = add_batch ? input.unsqueeze(0) : input;
    Outputs outputs = [&]() -> Outputs {
      if constexpr (requires { module->forward(inputs[0], inputs[0]); }) {
        return {module->forward(inputs[0], inputs.size() > 1 ? inputs[1] : Tensor())};
      } else {
        const auto [h, c] = inputs.size() > 1
                                ? module->forward(inputs[0], std::tuple(inputs[1], inputs[2]))
                                : module->forward(inputs[0]);
        return {h, c};
      }
    }();
    for (Tensor& output : outputs) output = add_batch ? output.squeeze(0) : output;
    return outputs;
  };
  for (const bool bias : {true, false}) {
    for (const bool batch : {true, false}) {
      const auto random = [&](int64_t size) { return batch ? Random({2, size}) : Random({size}); };
      for (const bool states : {false, true}) {
        std::vector<Tensor> with_h = {random(kInputs)};
        if (states) with_h.push_back(random(kHidden));
        std::vector<Tensor> with_c = with_h;
        if (states) with_c.push_back(random(kHidden));
        const auto expect = [&](auto theirs, auto ours, const std::vector<Tensor>& inputs) {
          SCOPED_TRACE(::testing::Message() << *ours << ", batch " << batch << states);
          ExpectSameModule(theirs, ours, inputs, call);
        };
        expect(torch::nn::LSTMCell(torch::nn::LSTMCellOptions(kInputs, kHidden).bias(bias)),
               nn::LayerNormLSTMCell(
                   nn::LayerNormLSTMCellOptions(kInputs, kHidden).bias(bias).variant(Cell::kLstm)),
               with_c);
        expect(torch::nn::GRUCell(torch::nn::GRUCellOptions(kInputs, kHidden).bias(bias)),
               nn::LayerNormGRUCell(
                   nn::LayerNormGRUCellOptions(kInputs, kHidden).bias(bias).variant(Cell::kGru)),
               with_h);
        expect(torch::nn::RNNCell(torch::nn::RNNCellOptions(kInputs, kHidden).bias(bias)),
               nn::LayerNormRNNCell(
                   nn::LayerNormRNNCellOptions(kInputs, kHidden).bias(bias).variant(Cell::kRnn)),
               with_h);
      }
    }
  }
}

class StepsOfLayers : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};

INSTANTIATE_TEST_SUITE_P(Recurrences, StepsOfLayers,
                         ::testing::Values(std::pair(0, 1), std::pair(2, 1), std::pair(0, 2)));

TEST_P(StepsOfLayers, MatchTheirCells) {
  at::manual_seed(12);
  const auto [projected, heads] = GetParam();
  nn::LayerNormLSTM layer(
      nn::LayerNormLSTMOptions(kInputs, kHidden).proj_size(projected).num_heads(heads));
  nn::LayerNormLSTMCell cell(
      nn::LayerNormLSTMCellOptions(kInputs, kHidden).proj_size(projected).num_heads(heads));
  {
    const at::NoGradGuard guard;
    for (auto& item : cell->named_parameters()) {
      item.value().copy_(layer->named_parameters()[item.key() + "_l0"].normal_());
    }
  }
  const Tensor x = at::randn({5, 2, kInputs});
  const auto [y, states] = layer->forward(x);
  for (const bool gradients : {true, false}) {
    const at::AutoGradMode mode(gradients);
    std::optional<nn::LayerNormLSTMCellImpl::State> state;
    for (int64_t t = 0; t < 5; ++t) {
      state = cell->forward(x[t], state);
      EXPECT_EQ(std::get<0>(*state).requires_grad(), gradients);
      ExpectSame(std::get<0>(*state), y[t], "y");
    }
    ExpectSame(std::get<1>(*state), std::get<1>(states)[0], "c_n");
  }
}

TEST(RecurrentCells, RejectInvalidArguments) {
  nn::LayerNormGRUCell cell(3, 4);
  const auto error = [&](const Tensor& x, const Tensor& h) {
    return ErrorOf([&] { cell->forward(x, h); });
  };
  EXPECT_EQ(error(at::randn({2, 3}), at::randn({2, 4})), "no error");
  EXPECT_THAT(error(at::randn({1, 2, 3}), {}),
              HasSubstr("[LayerNormGRUCell] x must have 1 or 2 dimensions, got [1, 2, 3]"));
  EXPECT_THAT(error(at::randn({2, 2}), {}),
              HasSubstr("x must have input_size, 3, as its last dimension, got [2, 2]"));
  EXPECT_THAT(error(at::randn({2, 3}), at::randn({3, 4})),
              HasSubstr("h must have [2, 4], got [3, 4]"));
  EXPECT_THAT(error(at::randn({3}), at::randn({1, 4})), HasSubstr("h must have [4], got [1, 4]"));
}

}  // namespace
}  // namespace planish
