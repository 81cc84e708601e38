#ifndef PLANISH_LAB_PAPERS_INVARIANCES_H_
#define PLANISH_LAB_PAPERS_INVARIANCES_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

// Table 1 of Ba, Kiros & Hinton 2016, measured: to which transformations of its weights and data
// the outputs of a normalised linear layer are invariant. planish.invariances (docs/analysis.md)
// measures the same of any module in Python.
namespace planish::lab {

/// The rows of the table.
enum class Normalisation { kBatch, kWeight, kLayer };

/// The columns of the table, with a number d and a vector gamma.
enum class Transformation {
  kWeightMatrixScale,   ///< W -> d W
  kWeightMatrixCentre,  ///< W -> W + 1 gamma^T: the same vector is added to every unit's weights
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

/// As the table's head has it: "Weight matrix re-scaling".
std::string_view LabelOf(Transformation transformation);

/// A linear layer without bias, the gains and biases of its norm, and a batch for it.
struct LinearLayer {
  int64_t cases = 0, inputs = 0, units = 0;
  std::vector<double> x;     ///< [cases, inputs]
  std::vector<double> w;     ///< [units, inputs]
  std::vector<double> gain;  ///< [units]
  std::vector<double> bias;  ///< [units]
};

/// 32 cases, 20 inputs and 50 units: numbers from -1 to 1, and gains from 1/2 to 3/2, drawn from a
/// std::mt19937_64 with a seed of its own.
LinearLayer MadeLinearLayer();

/// What a transformation takes. A kind reads what it needs.
struct TransformationNumbers {
  double d = 1;
  std::vector<double> gamma;  ///< [inputs]
  int64_t unit = 0;           ///< whose weights kWeightVectorScale scales
  int64_t row = 0;            ///< the case that kCaseScale scales
};

/// d = 2, 1/2 and 3, each with a gamma, a unit and a case of its own, for MadeLinearLayer().
std::vector<TransformationNumbers> MadeTransformationNumbers();

/// `layer` with its weights or data transformed.
LinearLayer Transformed(LinearLayer layer, Transformation transformation,
                        const TransformationNumbers& numbers);

/// gain / sigma * (a - mu) + bias [cases, units] of a = x W^T (Eq. 5 without f), by the library's
/// norms in double with eps = 0. Of batch norm mu and sigma are of the unit's numbers in the batch,
/// of layer norm of the case's; of weight norm they are 0 and the length of the unit's weights.
std::vector<double> NormalisedOutputs(Normalisation norm, const LinearLayer& layer);

/// The largest |y' - y| as a part of the largest |y|, y' being the outputs of MadeLinearLayer()
/// transformed: the worst of MadeTransformationNumbers().
double LargestChange(Normalisation norm, Transformation transformation);

/// A largest change up to this is rounding, and the outputs are invariant. A sum of 20 products of
/// numbers up to 2 (a weight with a gamma) and 1 is off by 20 * 40 * 2^-53 = 9e-14 at most, mostly
/// by a hundredth of that, and is divided by a sigma above 1; a d scales both. What is not
/// invariant changes by tenths.
inline constexpr double kInvariant = 1e-12;

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_INVARIANCES_H_
