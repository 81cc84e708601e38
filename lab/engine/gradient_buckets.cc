#include "lab/engine/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace planish::lab {

namespace {

// Bucket size in bytes. Sending a bucket takes many times the latency of a message
// (docs/scaling.md).
constexpr int64_t kBucketBytes = 1 << 20;

// Number of backward passes after which a new Reducer replaces the old one. A Reducer appends all
// parameters to a list in each pass until it rebuilds its buckets, which needs a GPU backend.
constexpr int kPassesPerReducer = 1000;

// Creates a Reducer. Its constructor has another argument since PyTorch 2.13, a list of bucket
// sizes, which is empty by default in Python.
template <class Reducer, class... Args>
std::unique_ptr<Reducer> NewReducer(Args... args) {
  using Sizes = std::vector<int64_t>;
  if constexpr (std::is_constructible_v<Reducer, Args..., Sizes>) {
    return std::make_unique<Reducer>(std::move(args)..., Sizes());
  } else {
    return std::make_unique<Reducer>(std::move(args)...);
  }
}

}  // namespace

struct GradientBuckets::Parts {
  std::vector<at::Tensor> parameters;
  Processes& processes;
  std::unordered_map<const at::TensorImpl*, int64_t> offsets;  // in the tensors of `earlier`
  std::vector<at::Tensor> earlier;
  size_t sent = 0, buckets = 0;  // buckets sent in this backward pass, and all buckets
  int passes = 0;                // backward passes of the reducer
  std::unique_ptr<c10d::Reducer> reducer;

  void MakeReducer();
};

// Communication hook of the Reducer: adds `earlier` to a bucket's gradients and sends the bucket.
class GradientBuckets::Sum final : public c10d::CppCommHookInterface<Parts*> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = bucket.getParameters();
    const std::vector<at::Tensor> gradients = bucket.getGradients();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t begin = state_->offsets.at(parameters[i].unsafeGetTensorImpl());
      for (const at::Tensor& sums : state_->earlier) {
        const at::Tensor part = sums.slice(0, begin, begin + parameters[i].numel());
        gradients[i].add_(part.view_as(gradients[i]).to(gradients[i].device()));
      }
    }
    ++state_->sent;
    return state_->processes.SumInBackground(bucket.getBuffer());
  }
};

void GradientBuckets::Parts::MakeReducer() {
  const std::vector<bool> sparse(parameters.size(), false);
  // The backward pass computes the gradients of the last layers first.
  const std::vector<at::Tensor> reversed(parameters.rbegin(), parameters.rend());
  auto [indices, limits] = c10d::compute_bucket_assignment_by_size(
      reversed, {static_cast<size_t>(kBucketBytes)}, sparse, {}, {});
  for (std::vector<size_t>& bucket : indices) {
    for (size_t& i : bucket) i = parameters.size() - 1 - i;
  }
  buckets = indices.size();
  passes = 0;
  reducer.reset();  // removes its hooks
  // Without find_unused_parameters the group is used for its size only, so GPUs need no backend.
  reducer = NewReducer<c10d::Reducer>(
      parameters, indices, processes.group(), sparse, kBucketBytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false,
      std::unordered_map<size_t, std::string>(), kBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false);
  reducer->register_comm_hook(std::make_unique<Sum>(this));
}

GradientBuckets::GradientBuckets(std::vector<at::Tensor> parameters, Processes& processes)
    : parts_(new Parts{.parameters = std::move(parameters),
                       .processes = processes,
                       .offsets = {},
                       .earlier = {},
                       .reducer = {}}) {
  int64_t offset = 0;
  for (const at::Tensor& parameter : parts_->parameters) {
    parts_->offsets[parameter.unsafeGetTensorImpl()] = offset;
    offset += parameter.numel();
  }
  parts_->MakeReducer();
}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::Backward(const at::Tensor& loss, std::vector<at::Tensor> earlier) {
  if (parts_->passes++ == kPassesPerReducer) parts_->MakeReducer();
  parts_->earlier = std::move(earlier);
  parts_->sent = 0;
  parts_->reducer->prepare_for_backward({loss});
  loss.backward();
  parts_->earlier.clear();
  if (parts_->sent != parts_->buckets) {
    throw std::logic_error("[GradientBuckets] the loss must depend on all parameters");
  }
}

}  // namespace planish::lab
