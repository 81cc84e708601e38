#ifndef PLANISH_LAB_MODEL_RECURRENT_H_
#define PLANISH_LAB_MODEL_RECURRENT_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planish/rnn.h"

// Recurrent cells by name. Only this file turns the name in a model's settings into a module.
namespace planish::lab {

/// Sizes of one or several stacked recurrent layers, and initial values of their norms.
struct RecurrentOptions {
  int64_t inputs = 0;
  int64_t hidden = 0;
  int64_t layers = 1;
  double epsilon = 1e-5;
  double gain = 1;    ///< initial value of every gain of a norm; cells without norms have none
  int64_t heads = 1;  ///< RnnShape::heads, divides H
  /// Computes with PyTorch's operators instead of Planish's kernels, for comparison.
  bool composed = false;
};

/// Parameters of one layer in double, as planish/rnn.h takes them.
struct RecurrentParams {
  Cell cell = Cell::kRnn;
  int64_t inputs = 0, hidden = 0;
  double epsilon = 0;
  RnnParams<const double> params;   ///< with one head: weight_hh has zeros between heads
  std::vector<at::Tensor> tensors;  ///< memory of `params`
};

/// Recurrent layer. T, B, I, H: time, batch, inputs, hidden.
class RecurrentModule : public torch::nn::Module {
 public:
  /// Returns y [T, B, H], the last layer's hidden state after every step of x [T, B, I], and the
  /// state after the last step. `state` is the state before the first step. `lengths` [B] int64 are
  /// from 1 to T, in any order; undefined: all are T. After the length of a sequence y is 0, and
  /// its state is that after its own last step.
  virtual std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                                    const at::Tensor& lengths = {}) = 0;

  /// Returns the initial state of a sequence: zeros [S, layers, B, H]. S is 2 for an LSTM, whose
  /// second state is c, 3 for an sLSTM, and 1 for the others. The third state of an sLSTM is log(n)
  /// with n = 0, -infinity.
  virtual at::Tensor ZeroState(int64_t batch) const = 0;

  /// Returns copies of the parameters of each layer, the first layer first; none for a cell that
  /// MakeRecurrent does not know.
  virtual std::vector<RecurrentParams> Layers() const { return {}; }
};

/// State of one layer: h [B, H], and c [B, H] of an LSTM or [B, 2H] of an sLSTM (planish/rnn.h),
/// undefined for other cells.
struct RecurrentState {
  at::Tensor h, c;
};

/// Recurrent layer that runs one step at a time, for models whose next input depends on the last
/// output. Inputs that are known ahead use a RecurrentModule, whose GEMMs are over many steps.
class RecurrentSteps : public torch::nn::Module {
 public:
  /// Packs the weights for the following steps, whose weight gradients are computed together. Call
  /// it before the first step of a sequence and after a change of the parameters; otherwise Step
  /// throws. With gradients disabled, parameters are constants until the next Begin().
  virtual void Begin() = 0;

  /// Maps x [B, I] and the state before the step to the state after it. Throws planish::Error
  /// before Begin().
  virtual RecurrentState Step(const at::Tensor& x, const RecurrentState& state) = 0;

  /// Returns the initial state of a sequence: that of RecurrentModule.
  virtual RecurrentState ZeroState(int64_t batch) const = 0;
};

/// Returns the names that MakeRecurrent knows: the cells of planish/rnn.h (lstm, gru, slstm,
/// ln-lstm, bn-rnn and so on) except bn-lstm, and torch-lstm and torch-gru.
///
/// Cells with batch norm use the statistics of each time step over its sequences in training, where
/// a batch must have at least two. In evaluation they use running estimates, which all time steps
/// share: buffers running_mean_l0 and running_var_l0 [S, G] of the first layer and so on, with a
/// row for the norm of zx + zh, or a row each for zx and zh. Each training pass moves them by 0.1
/// towards its means over time of the steps' means and unbiased variances.
const std::vector<std::string>& CellNames();

/// Returns the cell with the same gates and states and no norms; nothing if there is none.
std::optional<Cell> CellWithoutNorms(Cell cell);

/// Returns true for names of cells with batch norm.
bool HasBatchNorm(const std::string& name);

/// Throws UsageError for an unknown name, if heads do not divide H, and for PyTorch's layers with
/// `composed` or several heads.
void CheckRecurrent(const std::string& name, const RecurrentOptions& options);

/// Returns the recurrent layer of the cell called `name`. Draws weights from the default generator,
/// matrices of the first layer first. So with one seed, cells with the same number of gates have
/// equal matrices. Throws like CheckRecurrent. The module throws UsageError in training with batch
/// norm if the batch has fewer than two sequences.
std::shared_ptr<RecurrentModule> MakeRecurrent(const std::string& name,
                                               const RecurrentOptions& options);

/// Like MakeRecurrent, with the same weights for one seed, but one step at a time. Throws
/// UsageError also if layers is not 1, and for cells with batch norm.
std::shared_ptr<RecurrentSteps> MakeRecurrentSteps(const std::string& name,
                                                   const RecurrentOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_RECURRENT_H_
