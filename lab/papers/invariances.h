#ifndef PLANISH_LAB_PAPERS_INVARIANCES_H_
#define PLANISH_LAB_PAPERS_INVARIANCES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planish/online_norm.h"

// Measurement of Table 1 of Ba, Kiros & Hinton 2016, for all norms of the lab: invariances of a
// normalized linear layer to transformations of its weights and data. planish.invariances
// (docs/analysis.md) measures them for any Python module.
namespace planish::lab {

/// Returns the norms that can be measured: none, batch, weight, those of planish::Norm, group, dyt
/// and derf, as in NormNames() (lab/model/norms.h), and kOnlineNormNames.
const std::vector<std::string>& InvarianceNorms();

/// Columns of the table, with a scalar d and a vector gamma.
enum class Transformation {
  kWeightMatrixScale,   ///< W -> d W
  kWeightMatrixCentre,  ///< W -> W + 1 gamma^T: adds gamma to the weights of every unit
  kWeightVectorScale,   ///< w_i -> d w_i, of one unit i
  kDataScale,           ///< x -> d x, of all cases
  kDataCentre,          ///< x -> x + gamma, of all cases
  kCaseScale,           ///< x -> d x, of one case
  kWeightMatrixJoint,   ///< W -> d W + 1 gamma^T (Eq. 6); not a column
};

/// The columns in the table's order.
inline constexpr std::array kTransformations = {
    Transformation::kWeightMatrixScale, Transformation::kWeightMatrixCentre,
    Transformation::kWeightVectorScale, Transformation::kDataScale,
    Transformation::kDataCentre,        Transformation::kCaseScale};

/// Returns the label in the table's head: "Weight matrix re-scaling".
std::string_view LabelOf(Transformation transformation);

/// Linear layer, its norm's parameters, and a batch of inputs.
struct LinearLayer {
  int64_t cases = 0, inputs = 0, units = 0;
  std::vector<double> x;     ///< [cases, inputs]
  std::vector<double> w;     ///< [units, inputs]
  std::vector<double> gain;  ///< [units], or empty for ones
  std::vector<double> bias;  ///< [units], or empty for zeros
  /// [units] added to the sums before the norm, as weights of one more input that is 1; empty in
  /// the paper. Scaled with the weights; re-centring leaves them, and scaling the data, too.
  std::vector<double> offset = {};
  /// [units] expected statistics of batch norm; empty: those of the cases.
  std::vector<double> mean = {}, variance = {};
  /// State of online layer norm from which each case starts, as in evaluation. nullopt: cases in
  /// order start from the first state, mu = 0 and sigma = 1.
  std::optional<OnlineState> state = std::nullopt;
  double alpha = 0.5;  ///< factor of the sums in dyt and derf
  double shift = 0;    ///< added to them in derf
};

/// Returns a layer without offset. Values are random from -1 to 1, gains from 1/2 to 3/2, drawn
/// from a std::mt19937_64.
LinearLayer RandomLinearLayer(int64_t cases = 32, int64_t inputs = 20, int64_t units = 50,
                              uint64_t seed = 1);

/// Parameters of a transformation. Each kind reads those that it needs.
struct TransformationParameters {
  double d = 1;
  std::vector<double> gamma;  ///< [inputs]
  int64_t unit = 0;           ///< the unit whose weights kWeightVectorScale scales
  int64_t row = 0;            ///< the case that kCaseScale scales
};

/// Returns d = 2, 1/2 and 3, each with its own random gamma from -1 to 1, unit and case of `layer`.
std::vector<TransformationParameters> RandomTransformationParameters(const LinearLayer& layer,
                                                                     uint64_t seed = 2);

/// Returns `layer` with its weights or data transformed.
LinearLayer Transformed(LinearLayer layer, Transformation transformation,
                        const TransformationParameters& parameters);

/// Options of the norms. The defaults are exact: Table 1 needs eps = 0.
struct InvarianceOptions {
  double eps = 0;      ///< of batch, group and the norms over rows
  double scale = 1;    ///< C of AdaNorm
  double slope = 0.1;  ///< k of AdaNorm
};

/// Returns the norm of `a` [cases, units], with the gains and biases of `layer`, computed by the
/// library in double. `none` and `weight` return `a`.
std::vector<double> NormalizedSums(const std::string& norm, const LinearLayer& layer,
                                   std::vector<double> a, const InvarianceOptions& options = {});

/// Returns the sums x W^T + offset [cases, units]. For weight norm, W is gain * w / ||w||, and the
/// bias of the norm is added.
std::vector<double> SumsOf(const std::string& norm, const LinearLayer& layer);

/// Returns gain / sigma * (a - mu) + bias [cases, units] of a = x W^T (Eq. 5 without f). mu and
/// sigma are
/// - over the batch for each unit (batch norm),
/// - over the units for each case (layer norm),
/// - 0 and the length of the unit's weights (weight norm),
/// and so on for the other norms: NormalizedSums of SumsOf.
std::vector<double> NormalizedOutputs(const std::string& norm, const LinearLayer& layer,
                                      const InvarianceOptions& options = {});

/// Returns W xhat [cases, units], where xhat is the norm of the inputs instead of the sums, without
/// gain and bias. `norm` must not be weight, which has no values to normalize.
std::vector<double> OutputsOfNormalizedInputs(const std::string& norm, const LinearLayer& layer,
                                              const InvarianceOptions& options = {});

/// Outputs of a layer, such as NormalizedOutputs with a norm.
using LayerOutputs = std::function<std::vector<double>(const LinearLayer&)>;

/// Returns the largest |y' - y| relative to the largest |y|, where y' are the outputs of the
/// transformed layer. Takes the maximum over `parameters`. NaN outputs give NaN.
double LargestChange(const LayerOutputs& outputs, const LinearLayer& layer,
                     Transformation transformation,
                     const std::vector<TransformationParameters>& parameters);

/// Returns the largest change of NormalizedOutputs of RandomLinearLayer().
double LargestChange(const std::string& norm, Transformation transformation);

/// Largest change that counts as rounding, so the outputs are invariant. A sum of 20 products of
/// values up to 2 (a weight plus a gamma) and 1 has an error of at most 20 * 40 * 2^-53 = 9e-14.
/// Typical errors are a hundredth of that, then divided by a sigma above 1; d scales both. With the
/// 784 inputs of a trained layer they are about 1e-14. Outputs that are not invariant change by
/// tenths.
inline constexpr double kInvariant = 1e-12;

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_INVARIANCES_H_
