#ifndef PLANISH_LAB_THEORY_INVARIANCE_H_
#define PLANISH_LAB_THEORY_INVARIANCE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/papers/invariances.h"
#include "planish/rnn.h"
#include "src/rnn/cell.h"

// Invariances beside those of lab/papers/invariances.h: with eps > 0, and of recurrent layers.
// docs/math.md derives the closed forms.
namespace planish::lab {

/// Returns whether the norm adds an eps to its variance or deviation.
bool HasEps(const std::string& norm);

/// Sums that a norm normalizes.
struct NormalizedValues {
  std::string norm;  ///< one with an eps
  int64_t cases = 0, units = 0;
  std::vector<double> a;  ///< [cases, units]
};

/// Returns the deviations sigma that the norm divides by with eps = 0, one for each set of elements
/// that it normalizes together: [cases] for norms over rows, [units] for batch norm, and [cases,
/// groups] for group norm.
std::vector<double> DeviationsOf(const NormalizedValues& values);

/// Returns the size of the normalized values of d * a, relative to those with eps = 0, by closed
/// form: 1 / sqrt(1 + eps / (d sigma)^2), and 1 / (1 + eps / (d sigma)) for ada-as-coded.
double SizeWithEps(const std::string& norm, double sigma, double eps, double d);

/// Returns the scale d < 1 at which normalized values are smaller than those of d = 1 by the part
/// `change`, by closed form:
///   d^2 sigma^2 = eps / ((1 + eps / sigma^2) / (1 - change)^2 - 1), about eps / (2 change)
/// for small eps and change. 0 with eps = 0.
double BreakingScale(const std::string& norm, double sigma, double eps, double change);

/// Returns the largest relative change of the size of normalized values, over the sets of
/// DeviationsOf, if d * a takes the place of a. Sets whose values are
/// all equal have no size and are left out. The library computes in double, AdaNorm with k = 0.
double ChangeOfScale(const NormalizedValues& values, double eps, double d);

/// Returns the largest d < 1 at which ChangeOfScale is `change`, by bisection; 0 if there is none
/// above 1e-100.
double MeasuredBreakingScale(const NormalizedValues& values, double eps, double change);

/// Returns the largest derivative of log |xhat(d a)| by log d at d = 1, over the sets of
/// DeviationsOf, from the library's backward pass. NaN for norms whose backward is not the
/// derivative of their forward.
double SlopeOfScale(const NormalizedValues& values, double eps);

/// Returns this derivative for a deviation, by closed form: eps / (sigma^2 + eps), and eps / (sigma
/// + eps) for ada-as-coded.
double ClosedSlopeOfScale(const std::string& norm, double sigma, double eps);

/// Returns for each case t = 1, 2, ... the factor of the values that online layer norm normalizes
/// to, if the weights are scaled by d. The state starts with mu = 0 and sigma_0 = 1, which is not
/// scaled, so by closed form
///   sigma_t' = d sigma_t + (1 - alpha)^t (1 - d) sigma_0,   factor = d sigma_t / sigma_t'
/// Reads sigma_t from the library.
std::vector<double> OnlineScaleFactors(const LinearLayer& layer, double alpha, double d);

/// Transformations of a recurrent layer, with a scalar d, and vectors gamma.
enum class RecurrentTransformation {
  kInputWeightsScale,       ///< W_x -> d W_x
  kRecurrentWeightsScale,   ///< W_h -> d W_h
  kWeightsScale,            ///< both: scales all summed inputs (Ba et al. 2016, section 3.1)
  kInputWeightsCentre,      ///< W_x -> W_x + 1 gamma^T
  kRecurrentWeightsCentre,  ///< W_h -> W_h + 1 gamma^T
  kUnitScale,               ///< both weights of all gates of one unit
  kInputScale,              ///< x -> d x, at all steps
  kInputCentre,             ///< x -> x + gamma, at all steps
  kStepScale,               ///< x -> d x, at one step
  kSequenceScale,           ///< x -> d x, of one sequence
};
inline constexpr std::array kRecurrentTransformations = {
    RecurrentTransformation::kInputWeightsScale,
    RecurrentTransformation::kRecurrentWeightsScale,
    RecurrentTransformation::kWeightsScale,
    RecurrentTransformation::kInputWeightsCentre,
    RecurrentTransformation::kRecurrentWeightsCentre,
    RecurrentTransformation::kUnitScale,
    RecurrentTransformation::kInputScale,
    RecurrentTransformation::kInputCentre,
    RecurrentTransformation::kStepScale,
    RecurrentTransformation::kSequenceScale};

/// Returns the label in tables: "W_x scale".
std::string_view LabelOf(RecurrentTransformation transformation);

/// Recurrent layer in double, and its inputs.
struct RecurrentLayer {
  Cell cell = Cell::kRnn;
  RnnShape shape;
  double eps = 0;
  std::vector<double> x;   ///< [T, B, I]
  std::vector<double> h0;  ///< [B, H], or empty for zeros
  std::vector<double> c0;  ///< cell state as in RnnInputs, or empty
  /// In the order of internal::ParamsOf; empty if the cell does not take them.
  std::array<std::vector<double>, internal::kParams> params;
};

/// Returns a layer with random weights, gains and biases that the cell takes, inputs, and states
/// before the first step; with `zero_states` without these. eps is 0, with `zero_states` 1e-30, so
/// that the norm of zeros is 0.
RecurrentLayer RandomRecurrentLayer(Cell cell, const RnnShape& shape, int64_t seed,
                                    bool zero_states = false);

/// Parameters of a transformation. Each kind reads those that it needs.
struct RecurrentParameters {
  double d = 1;
  std::vector<double> gamma_x;  ///< [I]
  std::vector<double> gamma_h;  ///< [H]
  int64_t unit = 0, sequence = 0;
  int64_t step = 0;  ///< the step whose inputs kStepScale scales
};

/// Returns d = 2, 1/2 and 3, each with random vectors, unit and sequence, and the step T / 2.
std::vector<RecurrentParameters> RandomRecurrentParameters(const RnnShape& shape, int64_t seed);

/// Returns `layer` with its weights or inputs transformed.
RecurrentLayer Transformed(RecurrentLayer layer, RecurrentTransformation transformation,
                           const RecurrentParameters& parameters);

/// Returns the hidden states after all steps, [T, B, H]. Throws as RnnForward does.
std::vector<double> HiddenStates(const RecurrentLayer& layer);

/// Returns the largest change of the hidden states at each step, [T], relative to the largest
/// hidden state of the sequence. Takes the maximum over `parameters`.
std::vector<double> ChangesByStep(const RecurrentLayer& layer,
                                  RecurrentTransformation transformation,
                                  const std::vector<RecurrentParameters>& parameters);

/// Largest change that counts as rounding in a recurrent layer. Each step rounds by about 1e-15,
/// and can amplify earlier errors: to 1e-12 in 32 steps, but to 1e-6 in 50 steps of bn_lstm with
/// four sequences. Hidden states that are not invariant change by hundredths.
inline constexpr double kRecurrentInvariant = 1e-9;

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_INVARIANCE_H_
