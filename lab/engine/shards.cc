#include "lab/engine/shards.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "lab/base/random.h"
#include "lab/engine/nonfinite.h"
#include "lab/error.h"

namespace planish::lab {

using Clock = std::chrono::steady_clock;

// Sums over the shards of a batch.
struct ShardedUpdates::Sums {
  at::Tensor gradients;  // undefined if GradientBuckets adds them
  at::Tensor values;     // floating-point buffers
  at::Tensor doubles;    // the loss, then WatchedSums, then integer buffers
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

  // Returns the partial sums that Total would add to one more leaf, in the order of additions.
  std::vector<Sums> BeforeLast() const {
    std::vector<Sums> sums;
    for (auto i = stack_.rbegin(); i != stack_.rend(); ++i) sums.push_back(i->second);
    return sums;
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

at::Tensor Flat(const Tensors& tensors, const at::TensorOptions& options) {
  if (tensors.empty()) return at::empty({0}, options);
  Tensors flat;
  for (const at::Tensor& t : tensors) flat.push_back(t.flatten());
  return at::cat(flat).to(options);
}

}  // namespace

ShardedUpdates::ShardedUpdates(Experiment& experiment, Processes& processes, int64_t shards,
                               int64_t seed)
    : experiment_(experiment), processes_(processes), shards_(shards), seed_(seed) {
  first_ = shards / processes.size() * processes.rank();
  end_ = first_ + shards / processes.size();
  if (processes.size() > 1) buckets_.emplace(experiment.model().parameters(), processes);
}

void ShardedUpdates::SynchronizeStatistics() {
  for (const auto& module : experiment_.model().modules(/*include_self=*/false)) {
    if (auto* statistics = dynamic_cast<BatchStatistics*>(module.get())) {
      statistics_.push_back(statistics);
    }
  }
}

double ShardedUpdates::LossAndGradients(const Tensors& inputs, double factor,
                                        const std::function<void(const at::Tensor&)>& backward) {
  const auto set_sum = [&](const SumOverProcesses& sum) {
    for (BatchStatistics* statistics : statistics_) statistics->SetSum(sum);
  };
  set_sum([this](at::Tensor& values) { processes_.Sum(values); });
  const at::Tensor value = experiment_.Loss(inputs) * factor;
  const auto loss = value.item<double>();
  backward(value);
  set_sum({});
  return loss;
}

bool ShardedUpdates::LastShardsHaveCases(const at::Tensor& batch) const {
  const int64_t each = shards_ / processes_.size();
  for (int64_t last = each - 1; last < shards_; last += each) {
    if (experiment_.ShardOfBatch(batch, {last, shards_}).numel() == 0) return false;
  }
  return true;
}

Tensors ShardedUpdates::TakeGradients() {
  Tensors gradients;
  for (const at::Tensor& weight : experiment_.model().parameters()) {
    const at::Tensor& gradient = weight.grad();
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(weight));
    weight.mutable_grad().reset();
  }
  return gradients;
}

Tensors ShardedUpdates::GradientsOf(const at::Tensor& flat) {
  Tensors gradients;
  int64_t at = 0;
  for (const at::Tensor& weight : experiment_.model().parameters()) {
    const at::Tensor part = flat.slice(0, at, at + weight.numel());
    gradients.push_back(part.view_as(weight).to(weight.options()));
    at += weight.numel();
  }
  return gradients;
}

ShardedUpdates::Sums ShardedUpdates::RunShard(const Place& place, const at::Tensor& batch,
                                              double batches, Update& update,
                                              const std::vector<Sums>* earlier,
                                              std::span<NormModule* const> norms) {
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
    for (NormModule* norm : norms) norm->Watch();
    loss = LossAndGradients(inputs, factor, [&](const at::Tensor& value) {
      // Runs backward even if the loss is not finite: the other processes wait for its gradients.
      if (earlier == nullptr) return value.backward();
      Tensors sums;
      for (const Sums& s : *earlier) sums.push_back(s.gradients);
      buckets_->Backward(value, std::move(sums));
    });
    if (!std::isfinite(loss) && update.origin.empty()) {
      generator.set_state(before);
      update.origin = FindNonFiniteLayer(model, inputs, [&] { return experiment_.Loss(inputs); });
    }
    experiment_.SetShard({});
  }
  at::NoGradGuard no_grad;
  Sums sums;
  if (earlier == nullptr) sums.gradients = Flat(TakeGradients(), at::kCPU);
  // Batch statistics count by cases. Integers, such as counts, are those of the last shard,
  // which always has cases.
  const double part = static_cast<double>(cases.numel()) / static_cast<double>(batch.numel());
  Tensors values, doubles = {at::full({1}, loss, at::kDouble)};
  for (NormModule* norm : norms) doubles.push_back(norm->WatchedSums());
  for (const at::Tensor& buffer : ChangingBuffers(experiment_)) {
    if (buffer.is_floating_point()) {
      values.push_back(buffer * part);
    } else {
      doubles.push_back(buffer.to(at::kCPU, at::kDouble) * (place.shard + 1 == shards_ ? 1 : 0));
    }
  }
  sums.values = Flat(values, at::kCPU);
  sums.doubles = Flat(doubles, at::kCPU);
  return sums;
}

Update ShardedUpdates::Run(int64_t step, Optimizer& optimizer, std::span<const at::Tensor> batches,
                           const Clipping& clipping, at::Tensor& signals,
                           std::span<NormModule* const> norms) {
  torch::nn::Module& model = experiment_.model();
  model.train();
  const Tensors buffers = ChangingBuffers(experiment_);
  const auto add = [](const Sums& to, const Sums& from) {
    if (from.gradients.defined()) to.gradients.add_(from.gradients);
    to.values.add_(from.values);
    to.doubles.add_(from.doubles);
  };
  Update update;
  Tensors gradients;
  const auto count = static_cast<int64_t>(batches.size());
  for (int64_t b = 0; b < count; ++b) {
    const at::Tensor& batch = batches[static_cast<size_t>(b)];
    const bool in_buckets = buckets_ && LastShardsHaveCases(batch);
    if (!statistics_.empty() && buckets_ && !in_buckets) {
      throw RunError(
          fmt::format("a batch of {} cases has none for some of the {} processes, but "
                      "sync_batch_norm needs one for each",
                      batch.size(0), processes_.size()));
    }
    const Tensors before = Clones(buffers);
    TreeSum<Sums, decltype(add)> tree(add);
    for (int64_t shard = first_; shard < end_; ++shard) {
      CopyTo(buffers, before);
      std::optional<std::vector<Sums>> earlier;
      if (in_buckets && shard + 1 == end_) earlier = tree.BeforeLast();
      tree.Append(RunShard({step, b, shard}, batch, static_cast<double>(count), update,
                           earlier ? &*earlier : nullptr, norms));
    }
    Sums sums = tree.Total();
    at::NoGradGuard no_grad;
    Tensors of_batch;
    if (in_buckets) {
      of_batch = TakeGradients();
    } else {
      processes_.Sum(sums.gradients);
      of_batch = GradientsOf(sums.gradients);
    }
    processes_.Sum(sums.values);
    // The signals come with the last batch.
    const at::Tensor last = b + 1 == count ? signals : at::zeros_like(signals);
    sums.doubles = at::cat({sums.doubles, last});
    processes_.Sum(sums.doubles);
    if (b + 1 == count) signals.copy_(sums.doubles.slice(0, -signals.numel()));
    update.loss += sums.doubles[0].item<double>();
    if (!std::isfinite(update.loss)) {
      update.origin = processes_.AnyText(update.origin);
      return update;
    }
    TakeBuffers(sums, norms.size());
    const auto watched = static_cast<int64_t>(norms.size());
    const at::Tensor norm_sums = sums.doubles.slice(0, 1, 1 + watched * NormModule::kSums)
                                     .view({watched, NormModule::kSums});
    update.norm_sums = update.norm_sums.defined() ? update.norm_sums + norm_sums : norm_sums;
    if (gradients.empty()) {
      gradients = std::move(of_batch);
    } else {
      for (size_t i = 0; i < gradients.size(); ++i) gradients[i].add_(of_batch[i]);
    }
  }
  at::NoGradGuard no_grad;
  const Tensors weights = model.parameters();
  for (size_t i = 0; i < weights.size(); ++i) weights[i].mutable_grad() = gradients[i];
  if (clipping) clipping(gradients);
  optimizer.Step();
  // Evaluations draw the same numbers in every process.
  SeedGenerator({seed_, step});
  return update;
}

void ShardedUpdates::TakeBuffers(const Sums& sums, size_t norms) {
  int64_t value = 0, integer = 1 + static_cast<int64_t>(norms) * NormModule::kSums;
  for (const at::Tensor& buffer : ChangingBuffers(experiment_)) {
    int64_t& at = buffer.is_floating_point() ? value : integer;
    const at::Tensor& from = buffer.is_floating_point() ? sums.values : sums.doubles;
    buffer.copy_(from.slice(0, at, at + buffer.numel()).view_as(buffer));
    at += buffer.numel();
  }
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
