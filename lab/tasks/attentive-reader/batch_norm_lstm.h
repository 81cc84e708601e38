#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_BATCH_NORM_LSTM_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_BATCH_NORM_LSTM_H_

#include <cstdint>
#include <utility>

#include "lab/model/recurrent.h"
#include "planish/torch.h"

namespace planish::lab {

/// A layer of the batch-normalised LSTM (Cooijmans et al. 2016, Eq. 6-8; Cell::kBnLstm), with
/// estimates of the moments to evaluate with, of every time step for itself. T, B, H: time, batch,
/// hidden.
///
/// In training the moments are those of the batch, of the sequences that have the step. In
/// evaluation they are the estimates of the step, or those of the last step that has any. Estimates
/// are means over batches that are read between BeginEstimates and EndEstimates: training pays
/// nothing for them, and they are of the weights that are evaluated.
class BatchNormLstm final : public RecurrentModule {
 public:
  struct Options {
    int64_t inputs = 0;
    int64_t hidden = 0;
    double epsilon = 1e-5;
    double gain = 0.1;      ///< of all three norms before training
    bool composed = false;  ///< train with PyTorch's operators in place of Planish's kernels
    int64_t steps = 1;      ///< that have estimates, at most
  };

  /// Draws weights as planish::nn::LayerNormLSTM does, those of the products first.
  explicit BatchNormLstm(const Options& options);

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                            const at::Tensor& lengths = {}) override;
  at::Tensor ZeroState(int64_t batch) const override;

  /// From now on forward passes, without gradients, normalise with the moments of their batch in
  /// evaluation mode, too, and count for the estimates.
  void BeginEstimates();

  /// Replaces the estimates. Steps that too few sequences have reached get those of the last one
  /// before that has enough.
  void EndEstimates();

 private:
  // The moments of one step, each [columns], or of all steps at once.
  struct Statistics {
    at::Tensor mean, variance;
  };
  // Sums over the batches of an estimation, of all steps: weights are numbers of sequences.
  struct Sums {
    at::Tensor count;           // [S], double
    at::Tensor mean, variance;  // [S, 9H], double
  };

  std::pair<at::Tensor, at::Tensor> Composed(const at::Tensor& x, const at::Tensor& state,
                                             const at::Tensor& lengths);
  at::Tensor Normalise(const at::Tensor& z, int64_t step, int64_t column, const at::Tensor& active);

  Options options_;
  nn::LayerNormLSTM layer_;
  at::Tensor mean_, variance_;  // [S, 9H]: of the inputs' sums, the state's, and c
  Sums sums_;                   // undefined but between BeginEstimates and EndEstimates
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_BATCH_NORM_LSTM_H_
