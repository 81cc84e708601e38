#ifndef PLANISH_LAB_THEORY_GLM_H_
#define PLANISH_LAB_THEORY_GLM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Normalized generalized linear models (Ba, Kiros & Hinton 2016, Eq. 10-14) and their Fisher
// matrices. docs/math-geometry.md derives the equations. Functions are pure, so threads can call
// them at the same time.
namespace planish::lab {

/// How the summed inputs a = W x of a case are normalized to z. All with eps = 0.
enum class GlmNorm {
  kNone,    ///< z = a
  kLayer,   ///< over the units of a case
  kBatch,   ///< over the cases of a unit
  kWeight,  ///< z_i = a_i / ||w_i||
};
inline constexpr GlmNorm kGlmNorms[] = {GlmNorm::kNone, GlmNorm::kLayer, GlmNorm::kBatch,
                                        GlmNorm::kWeight};

/// The distribution of the outputs y given the natural parameters t.
enum class GlmFamily {
  kGaussian,   ///< independent, with variance phi = kGaussianPhi
  kBernoulli,  ///< independent
  kPoisson,    ///< independent
  kSoftmax,    ///< one of `units` classes, as a vector with a single 1
};
inline constexpr GlmFamily kGlmFamilies[] = {GlmFamily::kGaussian, GlmFamily::kBernoulli,
                                             GlmFamily::kPoisson, GlmFamily::kSoftmax};

/// phi of Eq. 10 for Gaussian outputs; it is 1 for all others.
inline constexpr double kGaussianPhi = 0.25;

/// Return the names in tables: "LN", "Bernoulli".
std::string NameOf(GlmNorm norm);
std::string NameOf(GlmFamily family);

/// A model with natural parameters t_i = g_i z_i + b_i (kNone: z_i + b_i), and the cases x over
/// which expectations are taken.
struct Glm {
  GlmNorm norm = GlmNorm::kNone;
  GlmFamily family = GlmFamily::kGaussian;
  int64_t units = 0, inputs = 0, cases = 0;
  std::vector<double> weights;        ///< [units, inputs]
  std::vector<double> biases, gains;  ///< [units]; kNone ignores the gains
  std::vector<double> x;              ///< [cases, inputs]

  /// Parameters of a unit, in the order w_i, b_i, g_i; kNone has no gain.
  int64_t UnitParameters() const { return inputs + (norm == GlmNorm::kNone ? 1 : 2); }
  int64_t Parameters() const { return units * UnitParameters(); }
};

/// Returns a model with random parameters and cases, equal for all norms and families.
Glm RandomGlm(int64_t units, int64_t inputs, int64_t cases, int64_t seed);

/// Returns the model with `step` times `direction` added to its parameters.
Glm Moved(const Glm& glm, std::span<const double> direction, double step);

/// A dense square matrix, row by row.
struct SquareMatrix {
  explicit SquareMatrix(int64_t n)
      : size(n), values(static_cast<size_t>(n) * static_cast<size_t>(n)) {}

  int64_t size;
  std::vector<double> values;

  double* Row(int64_t row) { return values.data() + row * size; }
  const double* Row(int64_t row) const { return values.data() + row * size; }
};

/// Returns v^T M v.
double QuadraticForm(const SquareMatrix& matrix, std::span<const double> v);

/// Returns the Frobenius norm of `other` - `matrix` over that of `matrix`.
double RelativeDifference(const SquareMatrix& matrix, const SquareMatrix& other);

/// Returns the rows and columns of a Fisher matrix that belong to weights.
SquareMatrix WeightBlocks(const Glm& glm, const SquareMatrix& fisher);

/// Returns the Fisher matrix (Eq. 9), F = mean over x of J^T Cov[y|x] / phi^2 J. J is the Jacobian
/// of t with respect to all parameters, from the backward kernels of the core.
SquareMatrix FisherMatrix(const Glm& glm);

/// Returns the Fisher matrix by the paper's equation: Eq. 12 for kNone, otherwise Eq. 13-14.
SquareMatrix PrintedFisherMatrix(const Glm& glm);

/// Returns the mean over x of Cov[y|x] / phi^2.
SquareMatrix MeanCovariance(const Glm& glm);

/// Returns the mean over x of the Kullback-Leibler divergence KL(p(y|x) || q(y|x)). p and q have
/// the same family and cases.
double Divergence(const Glm& p, const Glm& q);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_GLM_H_
