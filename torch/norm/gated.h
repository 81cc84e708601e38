#ifndef PLANISH_TORCH_NORM_GATED_H_
#define PLANISH_TORCH_NORM_GATED_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "torch/base/route.h"
#include "torch/norm/ops.h"
#include "torch/norm/spec.h"

// Gated norms of rows for the operators of gated.cc and quantized.cc. Norms that round before the
// product with the weight are among them, with or without a gate.
namespace planish {

/// The arguments of gated_norm_forward; gate, weight and bias can be undefined.
struct GatedInputs {
  const at::Tensor &x, &gate, &weight, &bias;

  GatedInputs(const at::Tensor& x_, const OptionalTensor& gate_, const OptionalTensor& weight_,
              const OptionalTensor& bias_)
      : x(x_), gate(OrUndefined(gate_)), weight(OrUndefined(weight_)), bias(OrUndefined(bias_)) {}
  GatedInputs(const at::Tensor& x_, const at::Tensor& gate_, const at::Tensor& weight_,
              const at::Tensor& bias_)
      : x(x_), gate(gate_), weight(weight_), bias(bias_) {}

  c10::DispatchKeySet keys() const {
    return KeysOf(x) | KeysOf(gate) | KeysOf(weight) | KeysOf(bias);
  }
};

/// Returns the settings in the arguments of `op`.
NormSpec GatedSpecOf(const char* op, std::string_view norm, int64_t over, double eps,
                     bool gate_before_norm, bool cast_before_weight);

void CheckGated(const NormSpec& spec, const GatedInputs& in);

/// Returns the norm's statistics, composed of PyTorch's operators.
at::Tensor ComposedGatedStatistics(const NormSpec& spec, const GatedInputs& in);

/// Returns the output in the type of the arithmetic, composed of PyTorch's operators.
at::Tensor ComposedWideGatedNorm(const NormSpec& spec, const GatedInputs& in,
                                 const at::Tensor& statistics);

/// The arguments of a gated norm for users, in the form that the operators take.
class GatedRows {
 public:
  GatedRows(const char* function, const at::Tensor& x, const OptionalTensor& gate,
            c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
            const OptionalTensor& bias);

  GatedInputs inputs() const { return {x_, gate_, rows_.weight(), rows_.bias()}; }
  const Rows& rows() const { return rows_; }

 private:
  KernelParameters parameters_;
  int64_t dims_;
  Rows rows_;
  at::Tensor x_;
  OptionalTensor gate_;
};

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_GATED_H_
