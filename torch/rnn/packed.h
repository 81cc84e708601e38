#ifndef PLANISH_TORCH_RNN_PACKED_H_
#define PLANISH_TORCH_RNN_PACKED_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "src/base/fingerprint.h"
#include "torch/rnn/call.h"

// Packed weights of the operators, and detection of changes of their parameters.
namespace planish {

using NamedTensors = RnnSteps::Sources;

/// A way to detect changes of tensors.
enum class Check {
  kBytes,     ///< by a fingerprint of the bytes: detects every change
  kVersions,  ///< by address and version counter: misses writes that do not bump the version
};

/// Returns whether the elements of a tensor can be read from memory without the dispatcher. The
/// tensor must be strided, on the CPU, not a wrapper of a transform, and not lazily negated or
/// zero.
bool IsPlain(const at::Tensor& t);

/// Returns whether a transform, mode or tracer sees the calls of this thread.
bool AreCallsObserved();

/// Named tensors, and their state at construction.
class Watched {
 public:
  explicit Watched(const NamedTensors& tensors);

  /// Like Watched(tensors), and returns copies of the tensors in `copies`. Changed(kBytes) compares
  /// with the bytes of the copies, even if another thread or process writes to the tensors
  /// meanwhile. The copies are contiguous, named, and have a history if gradients are enabled.
  static Watched WithCopies(const NamedTensors& tensors, NamedTensors& copies);

  /// Returns the name of a tensor that has changed since construction, or null. Tensors whose
  /// memory is hidden, such as wrappers of a transform, never count as changed. Tensors outside the
  /// CPU are compared by kVersions.
  const std::string* Changed(Check check) const;

  /// Returns whether `tensors` are the same objects, not only tensors with equal elements.
  bool AreTensors(at::ArrayRef<at::Tensor> tensors) const;

 private:
  struct State {
    /// Computes no fingerprint.
    explicit State(const at::Tensor& t);
    bool HasTypeAndSizesOf(const State& other) const;
    bool HasMemoryAndVersionOf(const State& other) const;

    bool visible = false;
    bool negative = false;  ///< whether the elements in memory are lazily negated
    at::ScalarType type = at::kFloat;
    c10::SmallVector<int64_t, 2> sizes, strides;
    c10::Storage storage;  ///< keeps its address from being reused
    const void* data = nullptr;
    int64_t version = 0;
    std::optional<internal::Fingerprint> fingerprint;
  };

  NamedTensors tensors_;
  std::vector<State> states_;
};

/// Packed weights in float or double.
struct PackedWeights {
  template <class T>
  RnnPackedParams<T>& of() {
    if constexpr (std::is_same_v<T, float>) {
      return of_float;
    } else {
      return of_double;
    }
  }

  RnnPackedParams<float> of_float;
  RnnPackedParams<double> of_double;
};

/// Packs the parameters of `call`. `sizes` is the result of CheckParams. With `backward`, also
/// packs them for RnnBackward, then as WeightType::kFull.
PackedWeights Pack(const Call& call, const Sizes& sizes, bool backward = false,
                   WeightType weight_type = WeightType::kFull);

/// Adds PyTorch's second bias, if it is defined, to bias, except for the part of the GRU's that r
/// multiplies, which becomes bias_hn.
void FoldBiases(Cell cell, const at::Tensor& bias_hh, RnnTensors& tensors);

/// Returns the operators' tensors from a module's parameters, named as in the state dict without
/// the layer's suffix: folds the biases. Accepts the operators' own names, too.
RnnTensors FoldedParams(Cell cell, const NamedTensors& params);

/// The object behind RnnPacked.
struct PackedParams final : torch::CustomClassHolder {
  explicit PackedParams(PackedWeights weights_) : weights(std::move(weights_)) {}

  PackedWeights weights;
  std::optional<Watched> watched;  ///< the parameters of a module that were packed
};

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_PACKED_H_
