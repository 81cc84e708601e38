#include "lab/model/order_violation.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>

namespace planish::lab {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of v that are reused while they are in the L2 cache: with 1,024 floats each, 128 KiB.
constexpr int64_t kTile = 32;

template <class T>
T Violation(const T* u, const T* v, int64_t width) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < width; ++k) {
    const T above = std::max(u[k] - v[k], T(0));
    sum += above * above;
  }
  return sum;
}

template <class T>
void Forward(const at::Tensor& u, const at::Tensor& v, at::Tensor& e) {
  const int64_t rows = v.size(0), width = v.size(1);
  const T* const us = u.const_data_ptr<T>();
  const T* const vs = v.const_data_ptr<T>();
  T* const out = e.mutable_data_ptr<T>();
  at::parallel_for(0, u.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < rows; first += kTile) {
      const int64_t last = std::min(first + kTile, rows);
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = first; j < last; ++j) {
          out[i * rows + j] = Violation(us + i * width, vs + j * width, width);
        }
      }
    }
  });
}

// Adds sum_j 2 g[i, j] max(0, u[i] - v[j]) to du[i], where g[i, j] is at g[i * g_row + j *
// g_column]. In a contrastive loss most of g is 0.
template <class T>
void AddToUpper(const at::Tensor& u, const at::Tensor& v, const T* g, int64_t g_row,
                int64_t g_column, at::Tensor& du) {
  const int64_t rows = v.size(0), width = v.size(1);
  const T* const us = u.const_data_ptr<T>();
  const T* const vs = v.const_data_ptr<T>();
  T* const out = du.mutable_data_ptr<T>();
  at::parallel_for(0, u.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const a = us + i * width;
      T* const sum = out + i * width;
      for (int64_t j = 0; j < rows; ++j) {
        const T factor = 2 * g[i * g_row + j * g_column];
        if (factor == 0) continue;
        const T* const b = vs + j * width;
        for (int64_t k = 0; k < width; ++k) sum[k] += factor * std::max(a[k] - b[k], T(0));
      }
    }
  });
}

struct OrderViolationFunction final : torch::autograd::Function<OrderViolationFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& u, const at::Tensor& v) {
    context->save_for_backward({u, v});
    at::Tensor e = at::empty({u.size(0), v.size(0)}, u.options());
    AT_DISPATCH_FLOATING_TYPES(u.scalar_type(), "OrderViolation",
                               [&] { Forward<scalar_t>(u, v, e); });
    return e;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &u = saved[0], &v = saved[1];
    const at::Tensor g = gradients[0].contiguous();
    const at::Tensor minus_u = u.neg(), minus_v = v.neg(), minus_g = g.neg();
    variable_list result = {at::zeros_like(u), at::zeros_like(v)};
    AT_DISPATCH_FLOATING_TYPES(u.scalar_type(), "OrderViolation", [&] {
      AddToUpper<scalar_t>(u, v, g.const_data_ptr<scalar_t>(), g.size(1), 1, result[0]);
      // Uses the symmetry in -v and -u: v enters with the other sign.
      AddToUpper<scalar_t>(minus_v, minus_u, minus_g.const_data_ptr<scalar_t>(), 1, g.size(1),
                           result[1]);
    });
    return result;
  }
};

}  // namespace

at::Tensor OrderViolation(const at::Tensor& u, const at::Tensor& v) {
  if (!u.is_cpu()) return (u.unsqueeze(1) - v.unsqueeze(0)).clamp_min(0).square().sum(2);
  return OrderViolationFunction::apply(u.contiguous(), v.contiguous());
}

}  // namespace planish::lab
