#ifndef PLANISH_LAB_TASKS_HANDWRITING_MODEL_H_
#define PLANISH_LAB_TASKS_HANDWRITING_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/model/linear.h"
#include "lab/model/recurrent.h"

namespace planish::lab {

/// Names of the settings' norms, and their cells: none is an LSTM, layer the paper's LN-LSTM,
/// layer- one of its variants, and slstm an sLSTM.
const std::vector<std::string>& HandwritingNorms();
std::string HandwritingCell(const std::string& norm);

/// The synthesis network of Graves 2013, 5.2 (Figure 12). It has three recurrent layers, whose
/// inputs are the pen's last point, the window on the text and the layer below. The window depends
/// on the first layer, which reads it one step later. The outputs read all three layers and
/// parameterize a mixture (mixture.h).
class HandwritingModel : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "layer";
    bool composed = false;    ///< uses PyTorch's operators, for comparison
    int64_t alphabet = 57;    ///< V, symbols
    int64_t hidden = 400;     ///< H, of each layer
    int64_t heads = 1;        ///< RecurrentOptions::heads
    int64_t window = 10;      ///< K, Gaussians of the window
    int64_t mixture = 20;     ///< M, Gaussians of an offset
    double epsilon = 1e-5;    ///< of the norms
    double gain = 1;          ///< initial value, of the norms
    double advance = 0.04;    ///< initial advance of the window in characters a step
    double clip_outputs = 0;  ///< largest derivative by an output of the mixture; 0: no limit
    double clip_layers = 0;   ///< largest derivative by an output of a layer; 0: no limit
  };

  /// State between two steps.
  struct Pen {
    RecurrentState first;
    at::Tensor second, third;  ///< in RecurrentModule's format
    at::Tensor window;         ///< [B, V]
    at::Tensor positions;      ///< [B, K]
    at::Tensor raw;            ///< [B, 3K], parameters of the window
  };

  /// Draws weights and biases uniformly from +-1/sqrt(H), those of the products first and equal for
  /// every norm. The LSTM's second bias, which the normalized cells lack, starts at 0.
  explicit HandwritingModel(const Options& options);

  /// Maps x [T, B, 3], lengths [B] and symbols [B, U] (see TextWindow) to y [T, B, MixtureSize(M)].
  /// Clips derivatives at y and the layers' outputs, in the first layer including those through
  /// time, as if the loss were `scale` times a sum.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& lengths, const at::Tensor& symbols,
                     double scale);

  /// Returns the state before the first point, for inference.
  Pen Start(int64_t batch);

  /// Computes one step: x [B, 3] -> y [B, MixtureSize(M)].
  at::Tensor Step(const at::Tensor& x, const at::Tensor& symbols, Pen& pen);

 private:
  Options options_;
  torch::nn::Linear window_{nullptr};  // of one step; PyTorch's own has less overhead
  Linear output_{nullptr};
  std::shared_ptr<RecurrentSteps> first_;
  std::shared_ptr<RecurrentModule> second_, third_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_MODEL_H_
