#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_BATCH_NORM_LSTM_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_BATCH_NORM_LSTM_H_

#include <cstdint>
#include <utility>

#include "lab/model/recurrent.h"
#include "planish/torch.h"

namespace planish::lab {

/// Layer of the batch-normalized LSTM (Cooijmans et al. 2016, Eq. 6-8; Cell::kBnLstm). T, B, H:
/// time, batch, hidden. Training uses the statistics of each time step over the sequences that have
/// it. Evaluation uses means over the batches read between BeginEstimates and EndEstimates, at
/// steps without any those of the last step that has some.
class BatchNormLstm final : public RecurrentModule {
 public:
  struct Options {
    int64_t inputs = 0;
    int64_t hidden = 0;
    double epsilon = 1e-5;
    double gain = 0.1;      ///< initial value, of all three norms
    bool composed = false;  ///< trains with PyTorch's operators instead of Planish's kernels
    int64_t steps = 1;      ///< maximum number of steps with estimates
  };

  /// Draws weights like planish::nn::LayerNormLSTM, those of the products first.
  explicit BatchNormLstm(const Options& options);

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                            const at::Tensor& lengths = {}) override;
  at::Tensor ZeroState(int64_t batch) const override;

  /// Starts an estimation: forward passes without gradients also normalize with their batch's
  /// statistics in evaluation mode, and add to the estimates.
  void BeginEstimates();

  /// Ends an estimation and replaces the estimates. Steps that too few sequences reach get those of
  /// the last step before with enough.
  void EndEstimates();

 private:
  // Statistics of one step, each [columns], or of all steps.
  struct Statistics {
    at::Tensor mean, variance;
  };
  // Sums over the batches of an estimation for all steps, weighted by numbers of sequences.
  struct Sums {
    at::Tensor count;           // [S], double
    at::Tensor mean, variance;  // [S, 9H], double
  };

  std::pair<at::Tensor, at::Tensor> Composed(const at::Tensor& x, const at::Tensor& state,
                                             const at::Tensor& lengths);
  at::Tensor Normalize(const at::Tensor& z, int64_t step, int64_t column, const at::Tensor& active);

  Options options_;
  nn::LayerNormLSTM layer_;
  at::Tensor mean_, variance_;  // [S, 9H]: of the inputs' sums, the state's, and c
  Sums sums_;                   // defined between BeginEstimates and EndEstimates
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_BATCH_NORM_LSTM_H_
