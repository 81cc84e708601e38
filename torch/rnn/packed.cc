#include "torch/rnn/packed.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstddef>
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

Watched::State::State(const Tensor& t, Check check) {
  visible = t.defined() && t.has_storage() && !t.key_set().has_any(at::kTensorSubclassLike);
  if (!visible) return;
  negative = t.is_neg();
  type = t.scalar_type();
  sizes.assign(t.sizes().begin(), t.sizes().end());
  if (check == Check::kVersions || !t.is_cpu() || t.layout() != at::kStrided) {
    storage = t.storage();
    data = t.const_data_ptr();
    version = t.is_inference() ? 0 : t._version();
    return;
  }
  const auto of = [](const Tensor& contiguous) {
    return internal::FingerprintOf(contiguous.const_data_ptr(),
                                   static_cast<int64_t>(contiguous.nbytes()), TorchParallelFor);
  };
  if (t.is_contiguous()) {
    fingerprint = of(t);
    return;
  }
  using c10::DispatchKey;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                           DispatchKey::FuncTorchDynamicLayerFrontMode}));
  fingerprint = of(t.contiguous());
}

bool Watched::State::operator==(const State& other) const {
  return visible == other.visible && negative == other.negative && type == other.type &&
         sizes == other.sizes && fingerprint == other.fingerprint && data == other.data &&
         version == other.version;
}

Watched::Watched(const NamedTensors& tensors, Check check) : tensors_(tensors), check_(check) {
  states_.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) states_.emplace_back(tensor, check);
}

const std::string* Watched::Changed() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!(State(tensors_[i].second, check_) == states_[i])) return &tensors_[i].first;
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
                        "[RnnPackedParams] params must be those of a module but has ", name);
      (name == "bias_ih" ? bias_ih : bias_hh) = tensor;
    }
  }
  // PyTorch's two biases as one, but for bias_hn of the GRU, which r multiplies.
  if (!bias_hh.defined()) {
    tensors.bias = bias_ih;
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
  if (!source_) return weights_;
  std::shared_ptr<const Snapshot> snapshot;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    snapshot = snapshot_;
  }
  if (snapshot) {
    const std::string* const changed = snapshot->watched.Changed();
    if (!changed) return snapshot->weights;
    TORCH_CHECK(source_->check == Check::kBytes, "[", source_->module, "] ", *changed,
                " has changed while the module is frozen: call unfreeze() before changing it");
  }
  snapshot = MakeSnapshot();
  const std::lock_guard<std::mutex> lock(mutex_);
  snapshot_ = snapshot;
  return snapshot->weights;
}

std::shared_ptr<const PackedParams::Snapshot> PackedParams::MakeSnapshot() const {
  NamedTensors named = source_->params;
  for (auto& [name, tensor] : named) name += source_->suffix;
  // Before the parameters are packed: a write in between is then noticed by the next use.
  Watched watched(named, source_->check);
  const at::AutoDispatchBelowADInplaceOrView guard;
  NamedTensors params = source_->params;
  for (auto& [name, tensor] : params) tensor = tensor.resolve_neg();
  const Call call{source_->cell, ParamsOfModule(source_->cell, params), {}};
  CheckGiven("rnn_pack", call.tensors, kFirstParam);
  return std::make_shared<const Snapshot>(
      Snapshot{std::move(watched), Pack(call, CheckParams("rnn_pack", call))});
}

}  // namespace planish
