#include "torch/rnn/packed.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "src/rnn/cell.h"
#include "torch/base/core.h"
#include "torch/rnn/fields.h"

namespace planish {

using at::Tensor;

bool IsPlain(const Tensor& t) {
  return t.is_cpu() && t.layout() == at::kStrided && !t.is_neg() && !t._is_zerotensor() &&
         t.has_storage() && !t.key_set().has_any(at::kTensorSubclassLike);
}

namespace {

/// Returns the fingerprint of the elements; none if the tensor is not on the CPU or its memory has
/// been freed, as by resize_(0) of its storage.
std::optional<internal::Fingerprint> FingerprintOf(const Tensor& t) {
  if (!t.is_cpu() || t.layout() != at::kStrided) return std::nullopt;
  if (t.numel() > 0 && t.storage().data() == nullptr) return std::nullopt;
  const auto of = [](const Tensor& contiguous) {
    return internal::FingerprintOf(contiguous.const_data_ptr(),
                                   static_cast<int64_t>(contiguous.nbytes()), TorchParallelFor);
  };
  if (t.is_contiguous()) return of(t);
  using c10::DispatchKey;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                           DispatchKey::FuncTorchDynamicLayerFrontMode}));
  return of(t.contiguous());
}

}  // namespace

Watched::State::State(const Tensor& t)
    : visible(t.defined() && t.has_storage() && !t.key_set().has_any(at::kTensorSubclassLike)) {
  if (!visible) return;
  negative = t.is_neg();
  type = t.scalar_type();
  sizes.assign(t.sizes().begin(), t.sizes().end());
  strides.assign(t.strides().begin(), t.strides().end());
  storage = t.storage();
  data = t.const_data_ptr();
  version = t.is_inference() ? 0 : t._version();
}

bool Watched::State::HasTypeAndSizesOf(const State& other) const {
  return visible == other.visible && negative == other.negative && type == other.type &&
         sizes == other.sizes;
}

bool Watched::State::HasMemoryAndVersionOf(const State& other) const {
  return data == other.data && strides == other.strides && version == other.version;
}

Watched::Watched(const NamedTensors& tensors) : tensors_(tensors) {
  states_.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    State& state = states_.emplace_back(tensor);
    if (state.visible) state.fingerprint = FingerprintOf(tensor);
  }
}

Watched Watched::WithCopies(const NamedTensors& tensors, NamedTensors& copies) {
  Watched watched({});
  watched.tensors_ = tensors;
  // Records addresses and versions before copying, so that Changed(kVersions) detects later writes.
  for (const auto& [name, tensor] : tensors) watched.states_.emplace_back(tensor);
  copies.clear();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    const Tensor copy = tensor.resolve_neg().clone(at::MemoryFormat::Contiguous);
    if (watched.states_[i].visible) watched.states_[i].fingerprint = FingerprintOf(copy);
    copies.emplace_back(name, copy);
  }
  return watched;
}

const std::string* Watched::Changed(Check check) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& [name, tensor] = tensors_[i];
    const State now(tensor);
    const State& then = states_[i];
    if (!now.HasTypeAndSizesOf(then)) return &name;
    if (!now.visible) continue;
    const bool same = check == Check::kBytes && then.fingerprint
                          ? FingerprintOf(tensor) == then.fingerprint
                          : now.HasMemoryAndVersionOf(then);
    if (!same) return &name;
  }
  return nullptr;
}

PackedWeights Pack(const Call& call, const Sizes& sizes, bool backward) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const RnnTensors tensors = Computed(call.tensors);
  const RnnShape shape = sizes.ints();
  PackedWeights packed;
  ByType(tensors.weight_ih.scalar_type(), [&]<class T>() {
    packed.of<T>() =
        RnnPackedParams<T>(call.cell, shape.inputs, shape.hidden,
                           CoreParams<T>(call.recipe(), tensors), TorchParallelFor, backward);
  });
  return packed;
}

RnnTensors ParamsOfModule(Cell cell, const NamedTensors& params) {
  RnnTensors tensors;
  Tensor bias_ih, bias_hh;
  for (const auto& [name, tensor] : params) {
    const auto* const last = kFields + kH0;
    const auto* const field =
        std::find_if(kFields + kFirstParam, last, [&](const Field& f) { return name == f.name; });
    if (field != last) {
      tensors.*field->member = tensor;
    } else {
      TORCH_CHECK_VALUE(name == "bias_ih" || name == "bias_hh",
                        "[RnnPackedParams] params must be those of a module, got ", name);
      (name == "bias_ih" ? bias_ih : bias_hh) = tensor;
    }
  }
  // Adds PyTorch's two biases, except the GRU's bias_hn, which r multiplies.
  if (!bias_hh.defined()) {
    if (bias_ih.defined()) tensors.bias = bias_ih;
  } else if (!internal::RecipeOf(cell).is_gru()) {
    tensors.bias = bias_ih + bias_hh;
  } else {
    const int64_t r_and_z = 2 * tensors.weight_hh.size(1);
    tensors.bias = at::cat(
        {bias_ih.slice(0, 0, r_and_z) + bias_hh.slice(0, 0, r_and_z), bias_ih.slice(0, r_and_z)});
    tensors.bias_hn = bias_hh.slice(0, r_and_z);
  }
  return tensors;
}

PackedWeights PackedParams::Now() {
  const std::shared_ptr<const Snapshot> snapshot = SnapshotNow();
  return snapshot ? snapshot->weights : weights_;
}

std::shared_ptr<const PackedParams::Snapshot> PackedParams::SnapshotNow() {
  if (!source_) return nullptr;
  std::shared_ptr<const Snapshot> snapshot;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    snapshot = snapshot_;
  }
  if (snapshot) {
    const std::string* const changed = snapshot->watched.Changed(source_->check);
    if (!changed) return snapshot;
    TORCH_CHECK(source_->check == Check::kBytes, "[", source_->module, "] ", *changed,
                " has changed while the module is frozen: call unfreeze() before changing it");
  }
  snapshot = MakeSnapshot();
  const std::lock_guard<std::mutex> lock(mutex_);
  snapshot_ = snapshot;
  return snapshot;
}

std::shared_ptr<const PackedParams::Snapshot> PackedParams::MakeSnapshot() const {
  NamedTensors named = source_->params, copies;
  for (auto& [name, tensor] : named) name += source_->suffix;
  const at::AutoDispatchBelowADInplaceOrView guard;
  Watched watched = Watched::WithCopies(named, copies);
  for (size_t i = 0; i < copies.size(); ++i) copies[i].first = source_->params[i].first;
  const Call call{source_->cell, ParamsOfModule(source_->cell, copies), {}};
  CheckGiven("rnn_pack", call.tensors, kFirstParam);
  return std::make_shared<const Snapshot>(
      Snapshot{std::move(watched), Pack(call, CheckParams("rnn_pack", call))});
}

}  // namespace planish
