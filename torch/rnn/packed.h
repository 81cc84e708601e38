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

// Packed weights of the operators, and how a change of the parameters behind them is noticed.
namespace planish {

using NamedTensors = RnnSteps::Sources;

inline NamedTensors NamedTensorsOf(const c10::Dict<std::string, at::Tensor>& dict) {
  NamedTensors named;
  for (const auto& entry : dict) named.emplace_back(entry.key(), entry.value());
  return named;
}

/// How a change of tensors is noticed.
enum class Check {
  kBytes,     ///< by a fingerprint of their bytes: notices every change
  kVersions,  ///< by address and version counter: misses writers that bump no version
};

/// Returns whether the elements of a tensor can be read from memory without the dispatcher: a
/// strided CPU tensor, no wrapper of a transform and no lazily negated or zero tensor.
bool IsPlain(const at::Tensor& t);

/// Tensors by name, and their state when this was made.
class Watched {
 public:
  explicit Watched(const NamedTensors& tensors);

  /// Like Watched(tensors), and returns copies of the tensors in `copies` whose bytes are those
  /// that Changed(kBytes) compares with, also if another thread or process writes to the tensors
  /// meanwhile. The copies are contiguous, have a history if gradients are enabled, and keep the
  /// names.
  static Watched WithCopies(const NamedTensors& tensors, NamedTensors& copies);

  /// Returns the name of a tensor that has changed since, or null. Tensors whose memory is hidden,
  /// such as wrappers of a transform, never count as changed. Tensors on other devices than the CPU
  /// are always compared as with kVersions.
  const std::string* Changed(Check check) const;

 private:
  struct State {
    /// Without a fingerprint.
    explicit State(const at::Tensor& t);
    bool HasTypeAndSizesOf(const State& other) const;
    bool HasMemoryAndVersionOf(const State& other) const;

    bool visible = false;
    bool negative = false;  ///< whether the elements are those in memory with the other sign
    at::ScalarType type = at::kFloat;
    c10::SmallVector<int64_t, 2> sizes, strides;
    c10::Storage storage;  ///< kept, so that no other memory has its address
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

/// Returns the tensors of the operators made of a module's parameters, which go by their names in
/// the state dict without the suffix of the layer: bias and bias_hn are made of bias_ih and
/// bias_hh. The operators' own names are known, too.
RnnTensors ParamsOfModule(Cell cell, const NamedTensors& params);

/// The object behind RnnPacked: weights that rnn_pack packed, which stay as they are, or those of a
/// module, which are compared with the module's parameters at each use. Thread-safe.
class PackedParams final : public torch::CustomClassHolder {
 public:
  /// The parameters of a layer of a module, named as in ParamsOfModule.
  struct Source {
    Cell cell{};
    NamedTensors params;
    std::string suffix;  ///< of the names in the state dict
    std::string module;  ///< for errors
    Check check = Check::kBytes;
  };

  explicit PackedParams(PackedWeights weights) : weights_(std::move(weights)) {}
  /// Packs at the first use.
  explicit PackedParams(Source source) : source_(std::make_unique<Source>(std::move(source))) {}

  /// Packed weights, and the parameters whose bytes they were made of.
  struct Snapshot {
    Watched watched;
    PackedWeights weights;
  };

  /// Returns the packed weights. With Check::kBytes they are packed again if the parameters have
  /// changed; with Check::kVersions a change throws c10::Error.
  PackedWeights Now();

  /// Like Now, with the module's parameters. Returns null for the weights that rnn_pack packed.
  std::shared_ptr<const Snapshot> SnapshotNow();

 private:
  std::shared_ptr<const Snapshot> MakeSnapshot() const;

  PackedWeights weights_;
  std::unique_ptr<const Source> source_;  ///< null: weights_ are constant
  std::mutex mutex_;                      ///< of snapshot_
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_PACKED_H_
