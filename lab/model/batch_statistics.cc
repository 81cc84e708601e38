#include "lab/model/batch_statistics.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace planish::lab {

namespace {

at::Tensor Sum(const at::Tensor& t, const SumOverProcesses& sum) {
  at::Tensor on_cpu = t.detach().cpu().clone(at::MemoryFormat::Contiguous);
  sum(on_cpu);
  return on_cpu.to(t.device());
}

// Box for a SumOverProcesses, because an autograd context stores only IValues.
struct SumHolder final : torch::CustomClassHolder {
  explicit SumHolder(SumOverProcesses s) : sum(std::move(s)) {}
  SumOverProcesses sum;
};

struct SumFunction final : torch::autograd::Function<SumFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& t,
                            const SumOverProcesses& sum) {
    context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<SumHolder>(sum));
    return Sum(t, sum);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto holder = context->saved_data["sum"].toCapsule();
    return {Sum(gradients[0], static_cast<const SumHolder&>(*holder).sum), at::Tensor()};
  }
};

}  // namespace

at::Tensor BatchStatistics::SumOf(const at::Tensor& t) const {
  return sum_ ? SumFunction::apply(t, sum_) : t;
}

}  // namespace planish::lab
