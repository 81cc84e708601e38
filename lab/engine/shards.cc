#include "lab/engine/shards.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "lab/base/random.h"
#include "lab/engine/nonfinite.h"

namespace planish::lab {

using Clock = std::chrono::steady_clock;

// Sums over the shards of a batch.
struct ShardedUpdates::Sums {
  at::Tensor values;   // gradients, then floating-point buffers
  at::Tensor doubles;  // the loss, then integer buffers
};

namespace {

// Returns the buffers that Loss can change, without the states of streams.
Tensors ChangingBuffers(Experiment& experiment) {
  const Tensors streams = experiment.StreamStates();
  Tensors buffers;
  for (const at::Tensor& buffer : experiment.model().buffers()) {
    const bool is_stream = std::ranges::any_of(
        streams, [&](const at::Tensor& stream) { return stream.is_alias_of(buffer); });
    if (!is_stream) buffers.push_back(buffer);
  }
  return buffers;
}

void SeedGenerator(std::initializer_list<int64_t> numbers) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(MixedSeed(numbers));
}

Tensors Clones(const Tensors& tensors) {
  Tensors clones;
  for (const at::Tensor& t : tensors) clones.push_back(t.clone());
  return clones;
}

void CopyTo(const Tensors& to, const Tensors& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

// Adds neighbours in pairs, then these sums in pairs, and so on, with the sums of few shards in
// memory at a time.
template <class Sums, class Add>
class TreeSum {
 public:
  explicit TreeSum(const Add& add) : add_(add) {}

  void Append(Sums leaf) {
    int64_t leaves = 1;
    while (!stack_.empty() && stack_.back().first == leaves) {
      Merge(leaf, leaves);
    }
    stack_.emplace_back(leaves, std::move(leaf));
  }

  Sums Total() {
    auto [leaves, total] = std::move(stack_.back());
    stack_.pop_back();
    while (!stack_.empty()) Merge(total, leaves);
    return std::move(total);
  }

 private:
  void Merge(Sums& right, int64_t& leaves) {
    auto [left_leaves, left] = std::move(stack_.back());
    stack_.pop_back();
    add_(left, right);
    right = std::move(left);
    leaves += left_leaves;
  }

  const Add& add_;
  std::vector<std::pair<int64_t, Sums>> stack_;
};

}  // namespace

ShardedUpdates::ShardedUpdates(Experiment& experiment, Processes& processes, int64_t shards,
                               int64_t seed)
    : experiment_(experiment), processes_(processes), shards_(shards), seed_(seed) {
  first_ = shards / processes.size() * processes.rank();
  end_ = first_ + shards / processes.size();
}

ShardedUpdates::Sums ShardedUpdates::RunShard(const Place& place, const at::Tensor& batch,
                                              double batches, Update& update) {
  torch::nn::Module& model = experiment_.model();
  const Shard shard{place.shard, shards_};
  const at::Tensor cases = experiment_.ShardOfBatch(batch, shard);
  double loss = 0;
  if (cases.numel() > 0) {
    experiment_.SetShard(shard);
    SeedGenerator({seed_, place.step, place.batch, place.shard});
    const Clock::time_point start = Clock::now();
    Tensors inputs;
    double factor = 0;
    {
      at::NoGradGuard no_grad;
      factor = experiment_.ShardFactor(cases, batch) / batches;
      inputs = ToDevice(experiment_.Batch(cases), experiment_.device());
    }
    update.input_seconds += std::chrono::duration<double>(Clock::now() - start).count();
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor before = generator.get_state();
    at::Tensor value = experiment_.Loss(inputs) * factor;
    loss = value.item<double>();
    if (std::isfinite(loss)) {
      value.backward();
    } else if (update.origin.empty()) {
      value.reset();  // frees the activations
      generator.set_state(before);
      update.origin = FindNonFiniteLayer(model, inputs, [&] { return experiment_.Loss(inputs); });
    }
    experiment_.SetShard({});
  }
  at::NoGradGuard no_grad;
  Tensors values, doubles = {at::full({1}, loss, at::kDouble)};
  for (const at::Tensor& weight : model.parameters()) {
    const at::Tensor& gradient = weight.grad();
    values.push_back((gradient.defined() ? gradient : at::zeros_like(weight)).flatten());
    weight.mutable_grad().reset();
  }
  // Batch statistics count by cases. Integers, such as counts, are those of the last shard,
  // which always has cases.
  const double part = static_cast<double>(cases.numel()) / static_cast<double>(batch.numel());
  for (const at::Tensor& buffer : ChangingBuffers(experiment_)) {
    if (buffer.is_floating_point()) {
      values.push_back(buffer.flatten() * part);
    } else {
      doubles.push_back(buffer.flatten().to(at::kCPU, at::kDouble) *
                        (place.shard + 1 == shards_ ? 1 : 0));
    }
  }
  return {at::cat(values).cpu(), at::cat(doubles)};
}

Update ShardedUpdates::Run(int64_t step, Optimizer& optimizer, std::span<const at::Tensor> batches,
                           const Clipping& clipping, at::Tensor& signals) {
  torch::nn::Module& model = experiment_.model();
  model.train();
  const Tensors buffers = ChangingBuffers(experiment_);
  const auto add = [](const Sums& to, const Sums& from) {
    to.values.add_(from.values);
    to.doubles.add_(from.doubles);
  };
  Update update;
  at::Tensor gradients;
  const auto count = static_cast<int64_t>(batches.size());
  for (int64_t b = 0; b < count; ++b) {
    const at::Tensor& batch = batches[static_cast<size_t>(b)];
    const Tensors before = Clones(buffers);
    TreeSum<Sums, decltype(add)> tree(add);
    for (int64_t shard = first_; shard < end_; ++shard) {
      CopyTo(buffers, before);
      tree.Append(RunShard({step, b, shard}, batch, static_cast<double>(count), update));
    }
    Sums sums = tree.Total();
    at::NoGradGuard no_grad;
    processes_.Sum(sums.values);
    // The signals come with the last batch.
    const at::Tensor last = b + 1 == count ? signals : at::zeros_like(signals);
    sums.doubles = at::cat({last, sums.doubles});
    processes_.Sum(sums.doubles);
    const int64_t size = signals.numel();
    if (b + 1 == count) signals.copy_(sums.doubles.slice(0, 0, size));
    update.loss += sums.doubles[size].item<double>();
    if (!std::isfinite(update.loss)) {
      update.origin = processes_.AnyText(update.origin);
      return update;
    }
    int64_t value = TakeBuffers(sums.values, sums.doubles.slice(0, size + 1));
    const at::Tensor of_batch = sums.values.slice(0, 0, value);
    gradients = gradients.defined() ? gradients.add_(of_batch) : of_batch;
  }
  at::NoGradGuard no_grad;
  int64_t at = 0;
  for (const at::Tensor& weight : model.parameters()) {
    weight.mutable_grad() =
        gradients.slice(0, at, at + weight.numel()).view_as(weight).to(weight.options());
    at += weight.numel();
  }
  if (clipping) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& weight : model.parameters()) all.push_back(weight.grad());
    clipping(all);
  }
  optimizer.Step();
  // Evaluations draw the same numbers in every process.
  SeedGenerator({seed_, step});
  return update;
}

int64_t ShardedUpdates::TakeBuffers(const at::Tensor& values, const at::Tensor& doubles) {
  int64_t value = 0, integer = 0;
  for (const at::Tensor& weight : experiment_.model().parameters()) value += weight.numel();
  const int64_t gradients = value;
  for (const at::Tensor& buffer : ChangingBuffers(experiment_)) {
    int64_t& at = buffer.is_floating_point() ? value : integer;
    const at::Tensor& from = buffer.is_floating_point() ? values : doubles;
    buffer.copy_(from.slice(0, at, at + buffer.numel()).view_as(buffer));
    at += buffer.numel();
  }
  return gradients;
}

void ShardedUpdates::CompleteStreams() {
  at::NoGradGuard no_grad;
  for (const at::Tensor& streams : experiment_.StreamStates()) {
    const int64_t n = streams.size(0);
    at::Tensor own = at::zeros(streams.sizes(), streams.options().device(at::kCPU));
    const int64_t begin = Shard{first_, shards_}.Begin(n), end = Shard{end_, shards_}.Begin(n);
    own.slice(0, begin, end).copy_(streams.slice(0, begin, end));
    // As integers, because a sum with zeros keeps their bits, also of -0.
    at::Tensor bits = own.view(own.element_size() == 8 ? at::kLong : at::kInt);
    processes_.Sum(bits);
    streams.copy_(own);
  }
}

}  // namespace planish::lab
