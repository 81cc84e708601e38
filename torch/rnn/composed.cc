#include "torch/rnn/composed.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "src/rnn/cell.h"
#include "torch/rnn/call.h"

namespace planish {

namespace {

using at::Tensor;
using internal::Arithmetic;
using internal::CellNorm;
using internal::CellRecipe;
using internal::Over;
using internal::Sums;
using torch::autograd::variable_list;

/// Disables autocast for everything below, except in torch.func transforms, which enable it again
/// for the levels below theirs.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

Tensor MaybeAdd(const Tensor& t, const Tensor& bias) { return bias.defined() ? t + bias : t; }

/// Returns t where the mask is true, and `otherwise` (by default 0) elsewhere.
Tensor Where(const Tensor& mask, const Tensor& t, const Tensor& otherwise = {}) {
  return otherwise.defined() ? at::where(mask, t, otherwise) : t.masked_fill(mask.logical_not(), 0);
}

/// The equations of planish/rnn.h with the differences in CellRecipe. Uses no in-place operators,
/// which torch.export does not allow; ATen's `1 - t` contains one. Masks of active
/// sequences [..., B, 1] are true for sequences that have the step; undefined means all.
class ComposedLayer {
 public:
  ComposedLayer(Cell cell, const RnnTensors& tensors, const RnnSettings& settings)
      : recipe_(internal::RecipeOf(cell)),
        p_(tensors),
        settings_(settings),
        sizes_(WeightSizes(recipe_, tensors)) {}

  RnnOutputs operator()() const {
    const Tensor& x = p_.x;
    const c10::SymInt batch = x.sym_size(1);
    const int64_t time = x.sym_size(0).guard_int(__FILE__, __LINE__);
    const auto first = [&](const Tensor& state, const c10::SymInt& width) {
      return state.defined() ? state.clone() : at::zeros_symint({batch, width}, x.options());
    };
    Tensor h = first(p_.h0, sizes_.outputs);
    Tensor c = !recipe_.is_lstm() ? at::empty({0}, x.options())
               : p_.c0.defined()  ? p_.c0.clone()
                                  : AbsentC().expand_symint({batch, -1}).contiguous();

    Tensor active, resets;
    if (p_.lengths.defined()) {
      const Tensor steps = at::arange(time, p_.lengths.options());
      active = (steps.unsqueeze(1) < p_.lengths).unsqueeze(-1);
    }
    if (p_.resets.defined()) {
      resets = p_.resets.unsqueeze(-1);
      if (active.defined()) resets = resets.logical_and(active);
    }
    const std::vector<Tensor> ax = InputSums(active).unbind(0);
    const std::vector<Tensor> all_active = UnbindOrNone(active), all_resets = UnbindOrNone(resets);

    std::vector<Tensor> y(ax.size());
    for (size_t step = 0; step < ax.size(); ++step) {
      const size_t t = settings_.reverse ? ax.size() - 1 - step : step;
      if (resets.defined()) {
        const Tensor keep = all_resets[t].logical_not();
        h = Where(keep, h, p_.h_reset);
        if (recipe_.is_lstm()) {
          c = Where(keep, c, p_.c_reset.defined() ? p_.c_reset : AbsentC());
        }
      }
      if (!active.defined()) {
        std::tie(h, c) = Step(ax[t], h, c, {});
        y[t] = h;
        continue;
      }
      const auto [h_next, c_next] = Step(ax[t], h, c, all_active[t]);
      y[t] = Where(all_active[t], h_next);
      h = Where(all_active[t], h_next, h);
      if (recipe_.is_lstm()) c = Where(all_active[t], c_next, c);
    }
    const Tensor none = at::zeros_symint({0, batch, sizes_.outputs}, x.options());
    return {time == 0 ? none : at::stack(y), h, c};
  }

 private:
  static std::vector<Tensor> UnbindOrNone(const Tensor& t) {
    return t.defined() ? t.unbind(0) : std::vector<Tensor>();
  }

  /// Returns xhat of z [..., B, n] over rows, or over the batch. Does not use at::layer_norm, whose
  /// third derivative is wrong (PyTorch 2.11 to 2.15).
  Tensor Xhat(const Tensor& z, const Tensor& active) const {
    const bool rows = recipe_.over == Over::kRow;
    const int64_t dim = rows ? -1 : -2;
    const auto mean = [&](const Tensor& t) {
      if (rows || !active.defined()) return t.mean(dim, /*keepdim=*/true);
      return Where(active, t).sum(dim, true) / active.sum(dim, true).clamp_min(1);
    };
    const Tensor centred = z - mean(z);
    Tensor variance = mean(centred.square()) + settings_.eps;
    // Unused rows can have variance 0. With eps = 0 the derivative would be NaN instead of 0.
    if (active.defined()) {
      variance =
          at::where(rows ? active : active.any(dim, true), variance, at::ones_like(variance));
    }
    return centred * variance.rsqrt();
  }

  /// Returns gain * xhat + bias of z [..., B, n], with one norm for each group of gates.
  Tensor Norm(const Tensor& z, const internal::Groups& groups, const Tensor& gain,
              const Tensor& bias, const Tensor& active) const {
    c10::SmallVector<c10::SymInt, 4> sizes;
    for (const int8_t group : groups) {
      if (group > 0) sizes.push_back(sizes_.hidden * group);
    }
    std::vector<Tensor> xhat = z.split_with_sizes_symint(sizes, -1);
    for (Tensor& group : xhat) group = Xhat(group, active);
    const Tensor whole = xhat.size() == 1 ? xhat[0] : at::cat(xhat, -1);
    return MaybeAdd(gain.defined() ? whole * gain : whole, bias);
  }

  /// Returns the part of the sums that comes from x, for all steps [T, B, G]. The bias is added
  /// after a joint norm.
  Tensor InputSums(const Tensor& active) const {
    // Inputs past the length of a sequence are masked: NaN would reach the weight's gradient.
    const Tensor x = active.defined() ? Where(active, p_.x) : p_.x;
    Tensor zx = x.matmul(p_.weight_ih.t());
    if (recipe_.sums == Sums::kSeparate) {
      zx = Norm(zx, recipe_.groups, p_.ln_ih_weight, p_.ln_ih_bias, active);
    }
    return recipe_.sums == Sums::kJoint ? zx : MaybeAdd(zx, p_.bias);
  }

  /// Returns weight_hh h, [B, G].
  Tensor HiddenProduct(const Tensor& h) const {
    if (sizes_.heads == 1) return h.matmul(p_.weight_hh.t());
    const int64_t heads = sizes_.heads, gates = recipe_.gates();
    const c10::SymInt batch = h.sym_size(0), units = p_.weight_hh.sym_size(1);
    // [N, B, H / N] times [N, H / N, gates * H / N].
    const Tensor of_heads = h.reshape_symint({batch, heads, units}).transpose(0, 1);
    const Tensor weights = p_.weight_hh.reshape_symint({gates, heads, units, units})
                               .permute({1, 3, 0, 2})
                               .reshape_symint({heads, units, units * gates});
    return of_heads.matmul(weights)
        .reshape_symint({heads, batch, gates, units})
        .permute({1, 2, 0, 3})
        .reshape_symint({batch, units * (heads * gates)});
  }

  /// Returns the next h and c.
  std::pair<Tensor, Tensor> Step(const Tensor& ax, const Tensor& h, const Tensor& c,
                                 const Tensor& active) const {
    Tensor ah = HiddenProduct(h);
    if (recipe_.sums == Sums::kSeparate) {
      ah = Norm(ah, recipe_.groups, p_.ln_hh_weight, p_.ln_hh_bias, active);
    }
    if (recipe_.splits_n()) return {Gru(ax, ah, h), c};
    Tensor a = ax + ah;
    if (recipe_.sums == Sums::kJoint) {
      a = MaybeAdd(Norm(a, recipe_.groups, p_.ln_weight, p_.ln_bias, active), p_.bias);
    }
    if (recipe_.is_gru()) return {GruOfSum(a, h), c};
    if (recipe_.is_slstm()) return Slstm(a, c);
    if (recipe_.is_lstm()) return Lstm(a, c, active);
    return {recipe_.arithmetic == Arithmetic::kRnn ? a.tanh() : a.relu(), c};
  }

  Tensor Gru(const Tensor& ax, const Tensor& ah, const Tensor& h) const {
    const auto x = ax.chunk(3, -1), s = ah.chunk(3, -1);
    const Tensor r = (x[0] + s[0]).sigmoid(), z = (x[1] + s[1]).sigmoid();
    const Tensor n = (x[2] + r * MaybeAdd(s[2], p_.bias_hn)).tanh();
    return at::rsub(z, 1) * n + z * h;
  }

  static Tensor GruOfSum(const Tensor& a, const Tensor& h) {
    const auto gates = a.chunk(3, -1);
    const Tensor z = gates[1].sigmoid();
    return at::rsub(z, 1) * (gates[0].sigmoid() * gates[2]).tanh() + z * h;
  }

  std::pair<Tensor, Tensor> Lstm(const Tensor& a, const Tensor& c, const Tensor& active) const {
    const auto gates = a.chunk(4, -1);
    const Tensor raw = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    const Tensor seen = recipe_.cell == CellNorm::kNone
                            ? raw
                            : Norm(raw, {1}, p_.ln_c_weight, p_.ln_c_bias, active);
    const Tensor h = gates[3].sigmoid() * seen.tanh();
    return {p_.weight_hr.defined() ? h.matmul(p_.weight_hr.t()) : h,
            recipe_.cell == CellNorm::kCarried ? seen : raw};
  }

  /// Returns the cell state of a sequence without one: zeros, and -infinity for an sLSTM's log(n).
  Tensor AbsentC() const {
    const Tensor zeros = at::zeros_symint({sizes_.hidden}, p_.x.options());
    if (!recipe_.is_slstm()) return zeros;
    return at::cat({zeros, zeros - std::numeric_limits<double>::infinity()});
  }

  std::pair<Tensor, Tensor> Slstm(const Tensor& a, const Tensor& c) const {
    const auto gates = a.chunk(4, -1), before = c.chunk(2, -1);
    const Tensor gap = before[1] + at::log_sigmoid(gates[1]) - gates[0];
    const Tensor alpha = gap.sigmoid(), g = gates[2].tanh();
    const Tensor mean = alpha * (before[0] - g) + g;
    const Tensor log_n = gates[0] - at::log_sigmoid(-gap);
    const Tensor h = gates[3].sigmoid() * mean;
    return {p_.weight_hr.defined() ? h.matmul(p_.weight_hr.t()) : h, at::cat({mean, log_n}, -1)};
  }

  const CellRecipe recipe_;
  const RnnTensors& p_;
  const RnnSettings& settings_;
  const Sizes sizes_;
};

/// A layer and its gradients. The history starts at the object's own copies of the tensors. Thus,
/// if one argument was computed from another, the gradient of the other does not include that path.
struct GradientGraph {
  RnnTensors tensors;
  OutputGradients output_gradients;
  Gradients gradients;  ///< undefined if zero

  GradientGraph(Cell cell, const RnnTensors& given, const RnnSettings& settings,
                const OutputGradients& given_gradients, const Mask& mask, const SecondMask& needed,
                bool create_graph)
      : tensors(given) {
    for (size_t i = 0; i < kDifferentiables; ++i) {
      Tensor& t = tensors.*kFields[i].member;
      t = OwnTensor(t, mask[i] || needed[i]);
    }
    for (size_t i = 0; i < kOutputs; ++i) {
      output_gradients[i] = OwnTensor(given_gradients[i], needed[kDifferentiables + i]);
    }
    const RnnOutputs outputs = ComposedForward(cell, tensors, settings);
    const Tensor all_outputs[] = {outputs.y, outputs.h_n, outputs.c_n};
    variable_list roots, root_gradients, inputs;
    for (size_t i = 0; i < kOutputs; ++i) {
      if (!all_outputs[i].requires_grad() || !output_gradients[i].defined()) continue;
      roots.push_back(all_outputs[i]);
      root_gradients.push_back(output_gradients[i]);
    }
    for (size_t i = 0; i < kDifferentiables; ++i) {
      if (mask[i]) inputs.push_back(tensors.*kFields[i].member);
    }
    if (roots.empty() || inputs.empty()) return;
    const variable_list results =
        torch::autograd::grad(roots, inputs, root_gradients, create_graph, create_graph, true);
    auto result = results.begin();
    for (size_t i = 0; i < kDifferentiables; ++i) {
      if (mask[i]) gradients[i] = *result++;
    }
  }

  /// Returns the i-th input of rnn_backward.
  const Tensor& input(size_t i) const {
    return i < kDifferentiables ? tensors.*kFields[i].member
                                : output_gradients[i - kDifferentiables];
  }

 private:
  static Tensor OwnTensor(const Tensor& t, bool derive) {
    if (!t.defined()) return t;
    Tensor own = at::alias(t);
    if (derive && !own.requires_grad()) own.set_requires_grad(true);
    return own;
  }
};

}  // namespace

RnnOutputs ComposedForward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings) {
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  const at::ScalarType type = tensors.x.scalar_type();
  if (type == ComputeType(type)) return ComposedLayer(cell, tensors, settings)();
  const RnnTensors wide = WideTensors(tensors);
  const RnnOutputs outputs = ComposedLayer(cell, wide, settings)();
  return {outputs.y.to(type), outputs.h_n.to(type), outputs.c_n.to(type)};
}

Gradients ComposedBackward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings,
                           const OutputGradients& gradients, const Mask& mask, bool create_graph) {
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  const at::AutoGradMode mode(true);
  GradientGraph graph(cell, tensors, settings, gradients, mask, {}, create_graph);
  for (size_t i = 0; i < kDifferentiables; ++i) {
    Tensor& gradient = graph.gradients[i];
    if (mask[i] && !gradient.defined()) gradient = at::zeros_like(tensors.*kFields[i].member);
  }
  return graph.gradients;
}

SecondGradients ComposedDoubleBackward(Cell cell, const RnnTensors& tensors,
                                       const RnnSettings& settings,
                                       const OutputGradients& gradients, const Gradients& seconds,
                                       const SecondMask& needed, bool create_graph) {
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  const at::AutoGradMode mode(true);
  Mask mask;
  for (size_t i = 0; i < kDifferentiables; ++i) mask[i] = seconds[i].defined();
  const GradientGraph graph(cell, tensors, settings, gradients, mask, needed,
                            /*create_graph=*/true);
  variable_list roots, root_gradients, inputs;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    if (!graph.gradients[i].defined() || !graph.gradients[i].requires_grad()) continue;
    roots.push_back(graph.gradients[i]);
    root_gradients.push_back(seconds[i]);
  }
  for (size_t i = 0; i < kBackwardInputs; ++i) {
    if (needed[i] && graph.input(i).defined()) inputs.push_back(graph.input(i));
  }
  SecondGradients results;
  if (roots.empty() || inputs.empty()) return results;
  const variable_list list =
      torch::autograd::grad(roots, inputs, root_gradients, create_graph, create_graph, true);
  auto result = list.begin();
  for (size_t i = 0; i < kBackwardInputs; ++i) {
    if (needed[i] && graph.input(i).defined()) results[i] = *result++;
  }
  return results;
}

}  // namespace planish
