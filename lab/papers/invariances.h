#ifndef PLANISH_LAB_PAPERS_INVARIANCES_H_
#define PLANISH_LAB_PAPERS_INVARIANCES_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

// Measurement of Table 1 of Ba, Kiros & Hinton 2016: invariances of a normalized linear layer to
// transformations of its weights and data. planish.invariances (docs/analysis.md) measures them for
// any Python module.
namespace planish::lab {

/// Rows of the table.
enum class Normalization { kBatch, kWeight, kLayer };

/// Columns of the table, with a scalar d and a vector gamma.
enum class Transformation {
  kWeightMatrixScale,   ///< W -> d W
  kWeightMatrixCentre,  ///< W -> W + 1 gamma^T: adds gamma to the weights of every unit
  kWeightVectorScale,   ///< w_i -> d w_i, of one unit i
  kDataScale,           ///< x -> d x, of all cases
  kDataCentre,          ///< x -> x + gamma, of all cases
  kCaseScale,           ///< x -> d x, of one case
};

/// In the table's order.
inline constexpr std::array kTransformations = {
    Transformation::kWeightMatrixScale, Transformation::kWeightMatrixCentre,
    Transformation::kWeightVectorScale, Transformation::kDataScale,
    Transformation::kDataCentre,        Transformation::kCaseScale};

/// Returns the label in the table's head: "Weight matrix re-scaling".
std::string_view LabelOf(Transformation transformation);

/// Linear layer without bias, the gains and biases of its norm, and a batch of inputs.
struct LinearLayer {
  int64_t cases = 0, inputs = 0, units = 0;
  std::vector<double> x;     ///< [cases, inputs]
  std::vector<double> w;     ///< [units, inputs]
  std::vector<double> gain;  ///< [units]
  std::vector<double> bias;  ///< [units]
};

/// Returns a layer of 50 units and 32 cases of its 20 inputs. Values are random from -1 to 1, gains
/// from 1/2 to 3/2, drawn from a std::mt19937_64 with a fixed seed.
LinearLayer RandomLinearLayer();

/// Parameters of a transformation. Each kind reads those that it needs.
struct TransformationParameters {
  double d = 1;
  std::vector<double> gamma;  ///< [inputs]
  int64_t unit = 0;           ///< the unit whose weights kWeightVectorScale scales
  int64_t row = 0;            ///< the case that kCaseScale scales
};

/// Returns d = 2, 1/2 and 3, each with its own gamma, unit and case, for RandomLinearLayer().
std::vector<TransformationParameters> RandomTransformationParameters();

/// Returns `layer` with its weights or data transformed.
LinearLayer Transformed(LinearLayer layer, Transformation transformation,
                        const TransformationParameters& parameters);

/// Returns gain / sigma * (a - mu) + bias [cases, units] of a = x W^T (Eq. 5 without f). The norms
/// of the library compute it in double with eps = 0. mu and sigma are
/// - over the batch for each unit (batch norm),
/// - over the units for each case (layer norm),
/// - 0 and the length of the unit's weights (weight norm).
std::vector<double> NormalizedOutputs(Normalization norm, const LinearLayer& layer);

/// Returns the largest |y' - y| relative to the largest |y|, where y' are the outputs of the
/// transformed RandomLinearLayer(). Takes the maximum over RandomTransformationParameters().
double LargestChange(Normalization norm, Transformation transformation);

/// Largest change that counts as rounding, so the outputs are invariant. A sum of 20 products of
/// values up to 2 (a weight plus a gamma) and 1 has an error of at most 20 * 40 * 2^-53 = 9e-14.
/// Typical errors are a hundredth of that, then divided by a sigma above 1; d scales both. Outputs
/// that are not invariant change by tenths.
inline constexpr double kInvariant = 1e-12;

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_INVARIANCES_H_
