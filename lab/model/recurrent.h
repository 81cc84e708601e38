#ifndef PLANISH_LAB_MODEL_RECURRENT_H_
#define PLANISH_LAB_MODEL_RECURRENT_H_

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
};

/// A recurrent layer. T, B, I, H: time, batch, inputs, hidden.
class RecurrentModule : public torch::nn::Module {
 public:
  /// x [T, B, I] and the state before the first step -> y [T, B, H], the state h of the last layer
  /// after every step, and the state after the last one.
  virtual std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x,
                                                    const at::Tensor& state) = 0;

  /// The state that a sequence starts from: zeros [S, layers, B, H]. S is 2 for an LSTM, whose
  /// second state is c, and 1 for the others.
  virtual at::Tensor ZeroState(int64_t batch) const = 0;
};

/// Names that MakeRecurrent knows: the cells of planish/rnn.h, such as lstm, gru, ln-lstm, ln-gru,
/// and torch-lstm and torch-gru, PyTorch's own layers, for comparison. Cells with batch norm are
/// not among them: they have no running estimates, and so nothing to evaluate a model or to write a
/// sample with.
const std::vector<std::string>& CellNames();

/// The recurrent layer of the cell called `name`. Weights come from the default generator, those of
/// the first layer's products first: for one seed, cells with as many gates have the same there.
/// Throws UsageError for an unknown name.
std::shared_ptr<RecurrentModule> MakeRecurrent(const std::string& name,
                                               const RecurrentOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_RECURRENT_H_
