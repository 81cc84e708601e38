#ifndef PLANISH_TORCH_RNN_LAYER_H_
#define PLANISH_TORCH_RNN_LAYER_H_

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "torch/rnn/call.h"
#include "torch/rnn/packed.h"

// The layer that the C++ and the Python modules share.
namespace planish {

/// A parameter of a module.
struct ModuleParam {
  const char* name;  ///< in the state dict, without the layer's suffix
  size_t field;      ///< index in kFields of the tensor that it is, or that it is added to
};

/// Returns the parameters of a module's layer: those of the cell, with PyTorch's biases bias_ih and
/// bias_hh. Modules register and initialize them in this order. The last, an LSTM's weight_hr, is
/// only in layers with a projection.
std::vector<ModuleParam> ModuleParams(Cell cell, bool bias);

/// Returns the sizes of a module's parameter.
std::vector<int64_t> SizesOf(const ModuleParam& param, Cell cell, const RnnShape& shape);

namespace internal {

/// A layer of a module in one direction: folds its biases, packs its weights, caches and compares
/// them, and runs it. Shared by the C++ modules and, as torch.classes.planish.RnnLayer, by those of
/// Python. Several threads can use an object at once.
///
/// The module owns the parameters and passes them to each call, in the order of ModuleParams, with
/// or without weight_hr.
class RnnLayer final : public torch::CustomClassHolder {
 public:
  using Params = std::vector<at::Tensor>;

  /// The state of the module at a call.
  struct Mode {
    bool training = false;
    bool computed = false;  ///< whether parameters are computed from others, as by parametrize
  };

  /// `suffix` ends the parameters' names in the state dict. Errors name `module`.
  RnnLayer(Cell cell, bool bias, std::string suffix, std::string module);
  /// Constructs a layer like `other`, with its type of weights, without packed weights and not
  /// frozen.
  RnnLayer(const RnnLayer& other);
  RnnLayer& operator=(const RnnLayer&) = delete;

  Cell cell() const { return cell_; }
  bool bias() const { return bias_; }
  const std::string& suffix() const { return suffix_; }
  const std::string& module() const { return module_; }
  /// Returns the parameters of a layer with or without a projection.
  std::vector<ModuleParam> params(bool projects) const;

  /// Computes rnn_forward or rnn_step. `inputs` are the tensors other than the parameters. Throws
  /// as they do, and c10::Error if a parameter of a frozen layer has changed.
  RnnOutputs Forward(const Params& params, Mode mode, const RnnTensors& inputs,
                     const RnnSettings& settings);
  std::tuple<at::Tensor, at::Tensor> Step(const Params& params, Mode mode, const RnnTensors& inputs,
                                          const RnnSettings& settings);

  /// Returns single steps with the present parameters, which compare versions while the layer is
  /// frozen, otherwise bytes. `sources` are the tensors that computed parameters depend on.
  RnnSteps Steps(const Params& params, Mode mode, double eps, const NamedTensors& sources = {});

  /// Frees the packed weights.
  void Drop();
  /// Skips the comparison of bytes in calls until Unfreeze().
  void Freeze();
  void Unfreeze();
  bool is_frozen() const;
  /// Sets the type in which weights are packed, and frees the packed weights.
  void SetWeightType(WeightType type);
  WeightType weight_type() const;
  /// Returns the number of times that the present packed weights were packed; 0 if there are none.
  int64_t packings() const;

 private:
  /// True from a Freeze() to the next Unfreeze(), then false for good.
  using Freezing = std::shared_ptr<std::atomic<bool>>;
  struct State {
    Freezing freezing;  ///< null if the layer is not frozen
    c10::intrusive_ptr<PackedParams> packed;
    int64_t packings = 0;
    WeightType weight_type = WeightType::kFull;
  };

  State Now() const;
  void CheckCount(const Params& given) const;
  NamedTensors Named(const Params& params) const;
  /// Returns the operators' tensors.
  RnnTensors Folded(const Params& params) const;
  /// Returns the operators' arguments of a call, and sets `packed` if it can use packed weights.
  RnnTensors Prepare(const Params& params, Mode mode, const RnnTensors& inputs, RnnPacked& packed);
  /// Returns the present packed weights, or null if the call must use the parameters. No other
  /// function makes this decision.
  c10::intrusive_ptr<PackedParams> Packed(const Params& params, Mode mode,
                                          const RnnTensors& inputs);
  c10::intrusive_ptr<PackedParams> Pack(const Params& params, WeightType weight_type) const;

  const Cell cell_;
  const bool bias_;
  const std::string suffix_, module_;
  const std::vector<ModuleParam> params_;
  mutable std::mutex mutex_;  ///< guards state_
  State state_;
};

}  // namespace internal
}  // namespace planish

#endif  // PLANISH_TORCH_RNN_LAYER_H_
