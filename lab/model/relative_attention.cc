#include "lab/model/relative_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace planish::lab {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tensors are by heads: [H, B, T, d], or [H * B, T, d] for a GEMM per head and sequence.
//
// One GEMM per head computes scores by distance, [H, B * T, K + 1] for K = M + T keys. Row t has
// key j in column j + T - t, which is element t * K + T + j of the head and sequence. So elements
// from T on are the scores by position, [T, K]. Those of keys after the query are overwritten.

// Returns part `part` (width W) of x [B, T, n * W] as [H, B, T, d]: a view.
at::Tensor ByHeads(const at::Tensor& x, int64_t part, int64_t parts, int64_t heads) {
  return x.view({x.size(0), x.size(1), parts, heads, -1}).select(2, part).permute({2, 0, 1, 3});
}

// Returns distances [H, B * T, K + 1] by position: a view [H * B, T, K].
at::Tensor ByPosition(const at::Tensor& distances, int64_t queries) {
  const int64_t keys = distances.size(2) - 1;
  return distances.view({-1, queries * (keys + 1)}).slice(1, queries).view({-1, queries, keys});
}

// Concatenates part `part` of memory and segment: [H, B, M + T, d].
at::Tensor Joined(const at::Tensor& memory, const at::Tensor& segment, int64_t part,
                  int64_t heads) {
  const at::Tensor now = ByHeads(segment, part, 2, heads);
  return memory.size(1) > 0 ? at::cat({ByHeads(memory, part, 2, heads), now}, 2) : now.contiguous();
}

// Sets the score of hidden keys to -inf: keys after the query and, with a window, keys before it.
template <class T>
void Hide(at::Tensor& scores, int64_t window) {
  const int64_t queries = scores.size(1), keys = scores.size(2), memory = keys - queries;
  T* const data = scores.mutable_data_ptr<T>();
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  at::parallel_for(0, scores.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * queries; row < end * queries; ++row) {
      const int64_t last = memory + row % queries;
      T* const line = data + row * keys;
      std::fill(line + last + 1, line + keys, kHidden);
      if (window > 0) std::fill(line, line + std::max<int64_t>(last + 1 - window, 0), kHidden);
    }
  });
}

// Like Hide, on any device.
void HideKeys(at::Tensor& scores, int64_t window) {
  if (scores.is_cpu()) {
    AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "Hide",
                               [&] { Hide<scalar_t>(scores, window); });
    return;
  }
  const int64_t queries = scores.size(1), keys = scores.size(2);
  const auto options = scores.options().dtype(at::kLong);
  const at::Tensor key = at::arange(keys, options);
  const at::Tensor last = at::arange(keys - queries, keys, options).unsqueeze(1);
  at::Tensor hidden = key > last;
  if (window > 0) hidden = hidden.logical_or(key <= last - window);
  scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

class Attend : public torch::autograd::Function<Attend> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& kv,
                            const at::Tensor& memory_kv, const at::Tensor& r, const at::Tensor& u,
                            const at::Tensor& v, int64_t heads, int64_t window, double dropout) {
    const int64_t batch = q.size(0), queries = q.size(1), width = q.size(2) / heads;
    const int64_t keys = r.size(0) - 1, rows = heads * batch;
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    // The queries include the scale.
    const at::Tensor by_heads = ByHeads(q, 0, 1, heads);
    const auto biased = [&](const at::Tensor& bias) {
      at::Tensor sum = at::empty({heads, batch, queries, width}, q.options());
      at::add_out(sum, (bias * scale).view({heads, 1, 1, width}), by_heads, scale);
      return sum;
    };
    const at::Tensor content = biased(u), position = biased(v);
    const at::Tensor k = Joined(memory_kv, kv, 0, heads).view({rows, keys, width});
    const at::Tensor w = Joined(memory_kv, kv, 1, heads).view({rows, keys, width});
    const at::Tensor distances = at::bmm(position.view({heads, batch * queries, width}),
                                         r.view({keys + 1, heads, width}).permute({1, 2, 0}));
    at::Tensor p = at::baddbmm(ByPosition(distances, queries), content.view({rows, queries, width}),
                               k.transpose(1, 2));
    HideKeys(p, window);
    at::_softmax_out(p, p, -1, /*half_to_float=*/false);
    at::Tensor kept;
    if (dropout > 0) {
      // Drawn on the CPU, like all random numbers of a run.
      kept = at::empty(p.sizes(), p.options().device(at::kCPU)).bernoulli_(1 - dropout);
      kept = kept.div_(1 - dropout).to(p.device());
    }
    const at::Tensor y = at::bmm(kept.defined() ? p * kept : p, w);
    context->save_for_backward({content, position, k, w, r, p, kept});
    context->saved_data["heads"] = heads;
    context->saved_data["scale"] = scale;
    return y.view({heads, batch, queries, width})
        .permute({1, 2, 0, 3})
        .reshape({batch, queries, heads * width});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &content = saved[0], &position = saved[1], &k = saved[2], &w = saved[3];
    const at::Tensor &r = saved[4], &p = saved[5], &kept = saved[6];
    const int64_t heads = context->saved_data["heads"].toInt();
    const double scale = context->saved_data["scale"].toDouble();
    const int64_t batch = content.size(1), queries = content.size(2), width = content.size(3);
    const int64_t keys = k.size(1), memory = keys - queries, rows = heads * batch;

    const at::Tensor dy =
        ByHeads(gradients[0].contiguous(), 0, 1, heads).contiguous().view({rows, queries, width});
    at::Tensor dp = at::bmm(dy, w.transpose(1, 2));
    if (kept.defined()) dp.mul_(kept);
    const at::Tensor dw = at::bmm((kept.defined() ? p * kept : p).transpose(1, 2), dy);
    const at::Tensor ds = at::_softmax_backward_data(dp, p, -1, p.scalar_type());
    const at::Tensor dk = at::bmm(ds.transpose(1, 2), content.view({rows, queries, width}));
    const at::Tensor dcontent = at::bmm(ds, k).view({heads, batch, queries, width});

    const at::Tensor ddistances = at::empty({heads, batch * queries, keys + 1}, p.options());
    ddistances.view({rows, -1}).slice(1, 0, queries).zero_();
    ByPosition(ddistances, queries).copy_(ds);
    const at::Tensor by_head = r.view({keys + 1, heads, width}).transpose(0, 1);
    const at::Tensor dposition = at::bmm(ddistances, by_head).view({heads, batch, queries, width});
    const at::Tensor dr = at::bmm(position.view({heads, batch * queries, width}).transpose(1, 2),
                                  ddistances);  // [H, d, K + 1]

    at::Tensor dq = at::empty({batch, queries, heads * width}, p.options());
    at::Tensor dq_by_heads = ByHeads(dq, 0, 1, heads);
    at::add_out(dq_by_heads, dcontent, dposition);
    dq.mul_(scale);
    const auto scatter = [&](int64_t from, int64_t to) {
      const at::Tensor dkv = at::empty({batch, to - from, 2 * heads * width}, p.options());
      int64_t part = 0;
      for (const at::Tensor& gradient : {dk, dw}) {
        ByHeads(dkv, part++, 2, heads)
            .copy_(gradient.view({heads, batch, keys, width}).slice(2, from, to));
      }
      return dkv;
    };
    const at::Tensor dmemory = memory > 0 ? scatter(0, memory) : at::Tensor();
    const auto bias = [&](const at::Tensor& gradient) {
      return gradient.sum({1, 2}).mul_(scale).view({heads * width});
    };
    return {dq,
            scatter(memory, keys),
            dmemory,
            dr.permute({2, 0, 1}).reshape({keys + 1, heads * width}),
            bias(dcontent),
            bias(dposition),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor RelativeAttention(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& memory_kv,
                             const at::Tensor& r, const at::Tensor& u, const at::Tensor& v,
                             const RelativeAttentionOptions& options) {
  // autograd::Function needs a defined tensor.
  const at::Tensor memory = memory_kv.defined() ? memory_kv : kv.detach().slice(1, 0, 0);
  return Attend::apply(q, kv, memory, r, u, v, options.heads, options.window, options.dropout);
}

}  // namespace planish::lab
