#ifndef PLANISH_TORCH_RNN_PACKED_H_
#define PLANISH_TORCH_RNN_PACKED_H_

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <mutex>
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

inline NamedTensors NamedTensorsOf(const c10::Dict<std::string, at::Tensor>& dict) {
  NamedTensors named;
  for (const auto& entry : dict) named.emplace_back(entry.key(), entry.value());
  return named;
}

/// A way to detect changes of tensors.
enum class Check {
  kBytes,     ///< by a fingerprint of the bytes: detects every change
  kVersions,  ///< by address and version counter: misses writes that do not bump the version
};

/// Returns whether the elements of a tensor can be read from memory without the dispatcher: it is a
/// strided CPU tensor, no wrapper of a transform, and not lazily negated or zero.
bool IsPlain(const at::Tensor& t);

/// Named tensors, and their state at construction.
class Watched {
 public:
  explicit Watched(const NamedTensors& tensors);

  /// Like Watched(tensors), and returns copies of the tensors in `copies` whose bytes are those
  /// that Changed(kBytes) compares with, even if another thread or process writes to the tensors
  /// meanwhile. The copies are contiguous, named, and have a history if gradients are enabled.
  static Watched WithCopies(const NamedTensors& tensors, NamedTensors& copies);

  /// Returns the name of a tensor that has changed since construction, or null. Tensors whose
  /// memory is hidden, such as wrappers of a transform, never count as changed. Tensors outside the
  /// CPU are compared by kVersions.
  const std::string* Changed(Check check) const;

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

/// Packs the parameters of `call`, whose sizes are those that CheckParams returned; with `backward`
/// for RnnBackward, too.
PackedWeights Pack(const Call& call, const Sizes& sizes, bool backward = false);

/// Returns the operators' tensors from a module's parameters, named as in the state dict without
/// the layer's suffix: computes bias and bias_hn from bias_ih and bias_hh. Accepts the operators'
/// own names, too.
RnnTensors ParamsOfModule(Cell cell, const NamedTensors& params);

/// The object behind RnnPacked: weights from rnn_pack, which are constant, or those of a module,
/// which are compared with the module's parameters at each use. Thread-safe.
class PackedParams final : public torch::CustomClassHolder {
 public:
  /// The parameters of a layer of a module, named as in ParamsOfModule.
  struct Source {
    Cell cell{};
    NamedTensors params;
    std::string suffix;  ///< of names in the state dict
    std::string module;  ///< for errors
    Check check = Check::kBytes;
  };

  explicit PackedParams(PackedWeights weights) : weights_(std::move(weights)) {}
  /// Creates an object that packs at its first use.
  explicit PackedParams(Source source) : source_(std::make_unique<Source>(std::move(source))) {}

  /// Packed weights, and the parameters that they were packed from.
  struct Snapshot {
    Watched watched;
    PackedWeights weights;
  };

  /// Returns the packed weights. If the parameters have changed, packs them again (Check::kBytes)
  /// or throws c10::Error (Check::kVersions).
  PackedWeights Now();

  /// Like Now(), with the module's parameters. Returns null for weights from rnn_pack.
  std::shared_ptr<const Snapshot> SnapshotNow();

 private:
  std::shared_ptr<const Snapshot> MakeSnapshot() const;

  PackedWeights weights_;
  std::unique_ptr<const Source> source_;  ///< null: weights_ are constant
  std::mutex mutex_;                      ///< guards snapshot_
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_PACKED_H_
