#ifndef PLANISH_LAB_MODEL_RECURRENT_H_
#define PLANISH_LAB_MODEL_RECURRENT_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Which recurrent cell a model uses is a name in its settings; this is the one place that turns the
// name into a module.
namespace planish::lab {

/// The sizes of a recurrent layer, or of several on top of each other, and what its norms start
/// from.
struct RecurrentOptions {
  int64_t inputs = 0;
  int64_t hidden = 0;
  int64_t layers = 1;
  double epsilon = 1e-5;
  double gain = 1;  ///< every gain of a norm before training; cells without norms have none
  /// Whether to compute with PyTorch's operators in place of Planish's kernels, for comparison.
  bool composed = false;
};

/// A recurrent layer. T, B, I, H: time, batch, inputs, hidden.
class RecurrentModule : public torch::nn::Module {
 public:
  /// x [T, B, I] and the state before the first step -> y [T, B, H], the state h of the last layer
  /// after every step, and the state after the last one. `lengths` [B] int64, each from 1 to T, in
  /// any order: beyond the length of a sequence y is 0, and the state is that after its own last
  /// step; undefined: all are T.
  virtual std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                                    const at::Tensor& lengths = {}) = 0;

  /// The state that a sequence starts from: zeros [S, layers, B, H]. S is 2 for an LSTM, whose
  /// second state is c, and 1 for the others.
  virtual at::Tensor ZeroState(int64_t batch) const = 0;
};

/// The state of one layer, each [B, H]; c is undefined but for an LSTM.
struct RecurrentState {
  at::Tensor h, c;
};

/// One recurrent layer that goes a step at a time, for models whose next input depends on the last
/// output. What is known ahead goes through a RecurrentModule, whose products are of many steps.
class RecurrentSteps : public torch::nn::Module {
 public:
  /// To be called before the first step of a sequence of steps, which packs the weights once for
  /// all of them and lets their gradients be taken together, and again after a change of the
  /// parameters: steps that go on after one throw an error. Without gradients enabled parameters
  /// are constants until the next Begin().
  virtual void Begin() = 0;

  /// x [B, I] and the state before the step -> the state after it. Throws planish::Error before a
  /// Begin().
  virtual RecurrentState Step(const at::Tensor& x, const RecurrentState& state) = 0;

  /// The state that a sequence starts from: zeros.
  virtual RecurrentState ZeroState(int64_t batch) const = 0;
};

/// Names that MakeRecurrent and MakeRecurrentSteps know: the cells of planish/rnn.h, such as lstm,
/// gru, ln-lstm, ln-gru, and torch-lstm and torch-gru, PyTorch's own layers, for comparison. Cells
/// with batch norm are not among them: they have no running estimates, and so nothing to evaluate a
/// model or to write a sample with.
const std::vector<std::string>& CellNames();

/// The recurrent layer of the cell called `name`. Weights come from the default generator, those of
/// the first layer's products first: for one seed, cells with as many gates have the same there.
/// Throws UsageError for an unknown name, and for PyTorch's own layers with `composed`.
std::shared_ptr<RecurrentModule> MakeRecurrent(const std::string& name,
                                               const RecurrentOptions& options);

/// The same one step at a time, with the same weights for one seed. Throws UsageError as
/// MakeRecurrent does, and for layers other than 1.
std::shared_ptr<RecurrentSteps> MakeRecurrentSteps(const std::string& name,
                                                   const RecurrentOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_RECURRENT_H_
