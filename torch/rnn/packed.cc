#include "torch/rnn/packed.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "src/rnn/cell.h"
#include "torch/base/core.h"
#include "torch/rnn/fields.h"

namespace planish {

using at::Tensor;

namespace {

/// Returns whether `t` is a wrapper or has no memory. DispatchKeySet::has_any would fail in builds
/// with assertions.
bool IsSubclassLike(const Tensor& t) { return !(t.key_set() & at::kTensorSubclassLike).empty(); }

}  // namespace

bool IsPlain(const Tensor& t) {
  return t.is_cpu() && t.layout() == at::kStrided && !t.is_neg() && !t._is_zerotensor() &&
         t.has_storage() && !IsSubclassLike(t);
}

bool AreCallsObserved() {
  using c10::DispatchKey;
  using c10::impl::tls_is_dispatch_key_included;
  return tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         tls_is_dispatch_key_included(DispatchKey::Tracer) ||
         tls_is_dispatch_key_included(DispatchKey::PreDispatch) ||
         tls_is_dispatch_key_included(DispatchKey::Python);
}

namespace {

/// Returns the fingerprint of the elements, or none if the tensor is not on the CPU or has no
/// memory. A call of resize_(0) of its storage frees the memory.
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
    : visible(t.defined() && t.has_storage() && !IsSubclassLike(t)) {
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

bool Watched::AreTensors(at::ArrayRef<Tensor> tensors) const {
  return std::equal(tensors.begin(), tensors.end(), tensors_.begin(), tensors_.end(),
                    [](const Tensor& t, const auto& own) { return t.is_same(own.second); });
}

PackedWeights Pack(const Call& call, const Sizes& sizes, bool backward, WeightType weight_type) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const RnnTensors tensors = Computed(call.tensors);
  const RnnShape shape = sizes.ints();
  PackedWeights packed;
  ByType(tensors.weight_ih.scalar_type(), [&]<class T>() {
    packed.of<T>() = RnnPackedParams<T>(call.cell, shape.inputs, shape.hidden,
                                        CoreParams<T>(call.recipe(), tensors), TorchParallelFor,
                                        backward, shape.projected, shape.heads, weight_type);
  });
  return packed;
}

void FoldBiases(Cell cell, const Tensor& bias_hh, RnnTensors& tensors) {
  if (!bias_hh.defined()) return;
  const Tensor bias_ih = tensors.bias;
  if (!internal::RecipeOf(cell).splits_n()) {
    tensors.bias = bias_ih + bias_hh;
    return;
  }
  const c10::SymInt end = bias_hh.sym_size(0), r_and_z = end / 3 * 2;
  const auto part = [](const Tensor& t, const c10::SymInt& first, const c10::SymInt& last) {
    return t.slice_symint(0, first, last);
  };
  const Tensor sums = part(bias_ih, 0, r_and_z) + part(bias_hh, 0, r_and_z);
  tensors.bias = at::cat({sums, part(bias_ih, r_and_z, end)});
  tensors.bias_hn = part(bias_hh, r_and_z, end);
}

RnnTensors FoldedParams(Cell cell, const NamedTensors& params) {
  RnnTensors tensors;
  Tensor bias_hh;
  for (const auto& [name, tensor] : params) {
    if (name == "bias_hh") {
      bias_hh = tensor;
      continue;
    }
    const std::string_view own = name == "bias_ih" ? "bias" : std::string_view(name);
    const auto* const last = kFields + kH0;
    const auto* const field =
        std::find_if(kFields + kFirstParam, last, [&](const Field& f) { return own == f.name; });
    TORCH_CHECK_VALUE(field != last, "[RnnSteps] sources must be the parameters of a module, got ",
                      name);
    tensors.*field->member = tensor;
  }
  FoldBiases(cell, bias_hh, tensors);
  return tensors;
}

}  // namespace planish
