#ifndef PLANISH_LAB_TASKS_DRAW_MODEL_H_
#define PLANISH_LAB_TASKS_DRAW_MODEL_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "lab/model/linear.h"
#include "lab/model/recurrent.h"
#include "lab/tasks/draw/attention.h"

namespace planish::lab {

/// DRAW (Gregor et al. 2015, Eq. 3-8) with encoder e, decoder h and canvas c, the logits of A x A
/// pixels. Initial states and canvas are learned. For each of T glimpses
///   r_t = read(x, x - sigmoid(c_{t-1}), h_{t-1}),   e_t = LSTM([r_t, h_{t-1}], e_{t-1}),
///   z_t = mean_t + exp(log_sigma_t) noise_t,        [mean_t, log_sigma_t] = W e_t + b,
///   h_t = LSTM(z_t, h_{t-1}),                       c_t = c_{t-1} + write(h_t).
class DrawModel : public torch::nn::Module {
 public:
  struct Options {
    std::string cell = "lstm";  ///< of both LSTMs, a name of MakeRecurrentSteps
    bool composed = false;      ///< uses PyTorch's operators
    int64_t side = 28;          ///< A
    int64_t hidden = 256;       ///< H, units of each LSTM
    int64_t latents = 100;      ///< Z
    int64_t read = 2;           ///< reads with a grid of read x read filters
    int64_t write = 5;          ///< writes with a grid of write x write filters
    double epsilon = 1e-5;      ///< of the norms
    double gain = 1;            ///< initial value, of the norms
  };

  /// Initializes weights from U(-1 / sqrt(H), 1 / sqrt(H)), biases and first states with 0. A seed
  /// of the default generator gives every cell the same weights and leaves the generator in the
  /// same state.
  explicit DrawModel(const Options& options);

  /// Cost of a code of x: reconstruction + kl is an upper bound of -log p(x) on average over noise.
  struct Bound {
    at::Tensor reconstruction;  ///< [B] nats: cross entropy of the pixels given the last canvas
    at::Tensor kl;              ///< [B] nats: of q(z_t) from N(0, 1), summed over glimpses
  };
  /// x: [B, A A], 0 and 1. noise: [T, B, Z] from N(0, 1).
  Bound forward(const at::Tensor& x, const at::Tensor& noise);

  struct Drawing {
    at::Tensor canvases;  ///< [T, B, A A]: probabilities of ink after each glimpse
    at::Tensor windows;   ///< [T, B, 4]: written windows, see SelectiveAttention::WriteWindows
  };
  /// Generates images from the prior: z_t is the noise [T, B, Z].
  Drawing Generate(const at::Tensor& noise);

 private:
  // Decoder output: parameters of the attention, and the patch to write.
  struct Head {
    at::Tensor attention, patch;
  };
  Head HeadOf(const at::Tensor& h);

  Options options_;
  SelectiveAttention attention_;
  Linear posterior_;  // e -> means and logarithms of the deviations
  Linear head_;
  std::shared_ptr<RecurrentSteps> encoder_, decoder_;
  at::Tensor encoder_start_, decoder_start_;  // [2, H]: h and c
  at::Tensor canvas_start_;                   // [A, A]
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_MODEL_H_
