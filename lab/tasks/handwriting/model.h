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

/// How the settings' norms are called, and the cells that they stand for: none is an LSTM, layer
/// the paper's LN-LSTM, and there are its variants.
const std::vector<std::string>& HandwritingNorms();
std::string HandwritingCell(const std::string& norm);

/// The synthesis network of Graves 2013, 5.2 (Figure 12): three recurrent layers, each of the pen's
/// last point, the window on the text and the layer below; the window follows the first layer,
/// which gets it back a step later; the outputs see all three layers and describe a mixture
/// (mixture.h).
class HandwritingModel : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "layer";
    bool composed = false;    ///< of PyTorch's operators, for comparison
    int64_t alphabet = 57;    ///< V, symbols
    int64_t hidden = 400;     ///< H, of each layer
    int64_t window = 10;      ///< K, Gaussians of the window
    int64_t mixture = 20;     ///< M, Gaussians of an offset
    double epsilon = 1e-5;    ///< of the norms
    double gain = 1;          ///< of the norms, before training
    double advance = 0.04;    ///< characters that the window goes on in a step, before training
    double clip_outputs = 0;  ///< largest derivative by an output of the mixture; 0: any
    double clip_layers = 0;   ///< largest derivative by an output of a layer; 0: any
  };

  /// What is known between two steps.
  struct Pen {
    RecurrentState first;
    at::Tensor second, third;  ///< as RecurrentModule has them
    at::Tensor window;         ///< [B, V]
    at::Tensor positions;      ///< [B, K]
    at::Tensor raw;            ///< [B, 3K], what the window was made from
  };

  /// Draws weights and biases uniformly from +-1/sqrt(H), those of the products first and the same
  /// ones whatever the norm. The LSTM's second bias, which the normalised ones lack, starts at 0.
  explicit HandwritingModel(const Options& options);

  /// x [T, B, 3], lengths [B], symbols [B, U] as TextWindow takes them -> y [T, B,
  /// MixtureSize(M)]. Derivatives are clipped that reach y and the layers' outputs, and, for the
  /// first layer, those that come back through time, as if the loss were `scale` times a sum.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& lengths, const at::Tensor& symbols,
                     double scale);

  /// The state before the first point, for inference.
  Pen Start(int64_t batch);

  /// One step: x [B, 3] -> y [B, MixtureSize(M)].
  at::Tensor Step(const at::Tensor& x, const at::Tensor& symbols, Pen& pen);

 private:
  Options options_;
  torch::nn::Linear window_{nullptr};  // of one step, which PyTorch calls faster
  Linear output_{nullptr};
  std::shared_ptr<RecurrentSteps> first_;
  std::shared_ptr<RecurrentModule> second_, third_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_MODEL_H_
