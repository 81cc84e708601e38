#ifndef PLANISH_LAB_MODEL_RESIDUAL_H_
#define PLANISH_LAB_MODEL_RESIDUAL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lab/model/norms.h"

// Places of the norms in a Transformer: around each sublayer f of its residual connections, of the
// embedding, and after the last layer.
namespace planish::lab {

enum class Placement {
  kPre,         ///< x + f(norm(x)), and a norm at the end (Xiong et al. 2020)
  kPost,        ///< norm(x + f(x)) (Vaswani et al. 2017)
  kPeri,        ///< kSandwich with a norm of the embedding (Kim et al. 2025, "Peri-LN")
  kSandwich,    ///< x + norm(f(norm(x))), and a norm at the end (Ding et al. 2021, "CogView")
  kDeepNorm,    ///< norm(alpha * x + f(x)), smaller initial weights of f (Wang et al. 2022)
  kPreNoFinal,  ///< kPre without the norm at the end: pre_lnorm of Transformer-XL's code
};

/// Returns the names of the placements from kPre to kDeepNorm. `first`, a task's default, comes
/// first.
std::vector<std::string> PlacementNames(const std::string& first);

/// Name of kPreNoFinal.
inline constexpr char kPreNoFinalName[] = "pre-no-final";

/// Returns the placement with that name. Throws UsageError for an unknown name.
Placement PlacementOf(const std::string& name);

/// Returns true if a norm precedes each sublayer.
bool HasInputNorm(Placement placement);
/// Returns true if a norm follows the last layer. Otherwise the last residual connection ends with
/// one, except for kPreNoFinal.
bool HasFinalNorm(Placement placement);
/// Returns true if the embedding is normalized.
bool HasEmbeddingNorm(Placement placement);

/// Factors of DeepNorm (Wang et al. 2022, Figure 2): alpha multiplies x, and beta the initial
/// weights of values, of the outputs of attention, and of the feed-forward sublayers. 1 for all
/// other placements.
struct ResidualFactors {
  double alpha = 1;
  double beta = 1;
};

/// Returns the factors of an encoder or a decoder by itself: (2 N)^(1/4) and (8 N)^(-1/4).
ResidualFactors FactorsOfStack(Placement placement, int64_t layers);
/// Returns those of an encoder of N layers below a decoder of M: 0.81 (N^4 M)^(1/16) and
/// 0.87 (N^4 M)^(-1/16).
ResidualFactors FactorsOfEncoder(Placement placement, int64_t layers, int64_t decoder_layers);
/// Returns those of a decoder of M layers above an encoder: (3 M)^(1/4) and (12 M)^(-1/4).
ResidualFactors FactorsOfDecoder(Placement placement, int64_t layers);

/// Options of residual connections.
struct ResidualOptions {
  Placement placement = Placement::kPre;
  double alpha = 1;    ///< ResidualFactors::alpha
  double dropout = 0;  ///< of the sublayer's result, directly before it is added
};

/// Residual connection of a sublayer and its norms.
class Residual {
 public:
  /// Registers the norms in `layer`: `name`_norm, and for kPeri and kSandwich `name`_out_norm, the
  /// norm of the sublayer's result.
  Residual(torch::nn::Module& layer, const std::string& name, const ResidualOptions& options,
           const std::function<std::shared_ptr<NormModule>()>& make_norm);

  /// Returns the input of the sublayer for the stream x.
  at::Tensor Input(const at::Tensor& x) const;

  /// Returns the stream after the sublayer, whose result is y.
  at::Tensor Output(const at::Tensor& x, const at::Tensor& y, bool training) const;

 private:
  ResidualOptions options_;
  std::shared_ptr<NormModule> norm_, out_norm_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_RESIDUAL_H_
