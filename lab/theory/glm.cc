#include "lab/theory/glm.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "lab/base/random.h"
#include "lab/theory/rows.h"
#include "planish/batch_norm.h"
#include "planish/norm.h"
#include "planish/weight_norm.h"

namespace planish::lab {
namespace {

// Derivatives of the natural parameters t of one case: dt_i/dw_j = slope[i, j] * feature[j], dt_i/
// db_i = 1 and dt_i/dg_i = z[i].
struct Derivatives {
  std::vector<double> slope;    // [units, units]
  std::vector<double> feature;  // [units, inputs]
  std::vector<double> z;        // [units]
};

size_t Count(int64_t rows, int64_t cols = 1) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double Phi(const Glm& glm) { return glm.family == GlmFamily::kGaussian ? kGaussianPhi : 1; }

// Returns a = W x of every case, [cases, units].
std::vector<double> Sums(const Glm& glm) {
  std::vector<double> sums;
  sums.reserve(Count(glm.cases, glm.units));
  for (int64_t n = 0; n < glm.cases; ++n) {
    for (int64_t i = 0; i < glm.units; ++i) {
      sums.push_back(
          Dot(&glm.weights[Count(i, glm.inputs)], &glm.x[Count(n, glm.inputs)], glm.inputs));
    }
  }
  return sums;
}

// z and t of all cases, and their derivatives, computed by the core's kernels.
class GlmOutputs {
 public:
  explicit GlmOutputs(const Glm& glm)
      : glm_(glm), sums_(Sums(glm)), z_(sums_.size()), t_(sums_.size()) {
    Normalize();
    for (int64_t n = 0; n < glm.cases; ++n) {
      for (int64_t i = 0; i < glm.units; ++i) {
        const size_t at = Count(n, glm.units) + Count(i), unit = Count(i);
        const double gain = glm.norm == GlmNorm::kNone ? 1 : glm.gains[unit];
        t_[at] = gain * z_[at] + glm.biases[unit];
      }
    }
  }

  // Natural parameters of a case, [units].
  const double* t(int64_t n) const { return &t_[Count(n, glm_.units)]; }

  // Computes the derivatives of a case.
  Derivatives At(int64_t n) const {
    const int64_t units = glm_.units, inputs = glm_.inputs;
    const double* x = &glm_.x[Count(n, inputs)];
    Derivatives d{.slope = std::vector<double>(Count(units, units)),
                  .feature = std::vector<double>(Count(units, inputs)),
                  .z = {z_.begin() + n * units, z_.begin() + (n + 1) * units}};
    for (int64_t i = 0; i < units; ++i) {
      d.slope[Count(i, units + 1)] = 1;
      std::copy_n(x, inputs, &d.feature[Count(i, inputs)]);
    }
    switch (glm_.norm) {
      case GlmNorm::kNone:
        break;
      case GlmNorm::kLayer: {
        // Row i has the gradient of t_i, so the case is repeated for each unit.
        std::vector<double> rows(d.slope.size()), dy(d.slope);
        for (int64_t i = 0; i < units; ++i) {
          std::copy_n(&sums_[Count(n, units)], units, &rows[Count(i, units)]);
        }
        const std::vector<double> mean(Count(units), mean_[Count(n)]),
            mean_lo(Count(units), mean_lo_[Count(n)]), rstd(Count(units), rstd_[Count(n)]);
        NormBackward<double>(Norm::kLayer, {.rows = units,
                                            .cols = units,
                                            .dy = dy.data(),
                                            .x = rows.data(),
                                            .gain = glm_.gains.data(),
                                            .mean = mean.data(),
                                            .mean_lo = mean_lo.data(),
                                            .rstd = rstd.data(),
                                            .dx = d.slope.data()});
        break;
      }
      case GlmNorm::kBatch: {
        // Gradients of t of this case with respect to the sums of all cases.
        std::vector<double> dy(sums_.size());
        std::fill_n(dy.begin() + n * units, units, 1);
        std::vector<double> da(sums_.size());
        BatchNormBackward<double>({.batch = glm_.cases,
                                   .channels = units,
                                   .dy = dy.data(),
                                   .x = sums_.data(),
                                   .gain = glm_.gains.data(),
                                   .mean = mean_.data(),
                                   .mean_lo = mean_lo_.data(),
                                   .rstd = rstd_.data(),
                                   .dx = da.data()});
        std::fill(d.feature.begin(), d.feature.end(), 0);
        for (int64_t m = 0; m < glm_.cases; ++m) {
          for (int64_t i = 0; i < units; ++i) {
            const double factor = da[Count(m, units) + Count(i)];
            for (int64_t s = 0; s < inputs; ++s) {
              d.feature[Count(i, inputs) + Count(s)] +=
                  factor * glm_.x[Count(m, inputs) + Count(s)];
            }
          }
        }
        break;
      }
      case GlmNorm::kWeight: {
        const std::vector<double> dw(d.feature);
        WeightNormBackward<double>({.rows = units,
                                    .cols = inputs,
                                    .dw = dw.data(),
                                    .v = glm_.weights.data(),
                                    .g = glm_.gains.data(),
                                    .norm = norm_.data(),
                                    .dv = d.feature.data()});
        break;
      }
    }
    return d;
  }

 private:
  void Normalize() {
    switch (glm_.norm) {
      case GlmNorm::kNone:
        z_ = sums_;
        break;
      case GlmNorm::kLayer:
        mean_.resize(Count(glm_.cases));
        mean_lo_ = rstd_ = mean_;
        NormForward<double>(Norm::kLayerSimple,
                            {.rows = glm_.cases,
                             .cols = glm_.units,
                             .x = sums_.data(),
                             .y = z_.data(),
                             .mean = mean_.data(),
                             .mean_lo = mean_lo_.data(),
                             .rstd = rstd_.data()},
                            {.eps = 0});
        break;
      case GlmNorm::kBatch:
        mean_.resize(Count(glm_.units));
        mean_lo_ = rstd_ = mean_;
        BatchNormForward<double>({.batch = glm_.cases,
                                  .channels = glm_.units,
                                  .x = sums_.data(),
                                  .y = z_.data(),
                                  .mean = mean_.data(),
                                  .mean_lo = mean_lo_.data(),
                                  .rstd = rstd_.data()},
                                 {.eps = 0});
        break;
      case GlmNorm::kWeight: {
        norm_.resize(Count(glm_.units));
        const std::vector<double> ones(Count(glm_.units), 1);
        Glm unit = glm_;
        WeightNormForward<double>({.rows = glm_.units,
                                   .cols = glm_.inputs,
                                   .v = glm_.weights.data(),
                                   .g = ones.data(),
                                   .w = unit.weights.data(),
                                   .norm = norm_.data()});
        z_ = Sums(unit);
        break;
      }
    }
  }

  const Glm& glm_;
  std::vector<double> sums_, z_, t_;  // [cases, units]
  // Saved by the forward kernels: [cases] for kLayer, [units] for kBatch; norm_ for kWeight.
  std::vector<double> mean_, mean_lo_, rstd_, norm_;
};

// Returns softmax(t).
std::vector<double> Softmax(const double* t, int64_t units) {
  std::vector<double> p(t, t + units);
  const double largest = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - largest);
  for (double& value : p) value /= sum;
  return p;
}

double Sigmoid(double t) { return 1 / (1 + std::exp(-t)); }

// Returns Cov[y|x] / phi^2 of a case.
SquareMatrix Covariance(const Glm& glm, const double* t) {
  SquareMatrix covariance(glm.units);
  if (glm.family == GlmFamily::kSoftmax) {
    const std::vector<double> p = Softmax(t, glm.units);
    for (int64_t i = 0; i < glm.units; ++i) {
      for (int64_t j = 0; j < glm.units; ++j) {
        covariance.Row(i)[j] = (i == j ? p[Count(i)] : 0) - p[Count(i)] * p[Count(j)];
      }
    }
    return covariance;
  }
  for (int64_t i = 0; i < glm.units; ++i) {
    double& variance = covariance.Row(i)[i];
    if (glm.family == GlmFamily::kGaussian) {
      variance = 1 / kGaussianPhi;
    } else if (glm.family == GlmFamily::kBernoulli) {
      variance = Sigmoid(t[i]) * Sigmoid(-t[i]);
    } else {
      variance = std::exp(t[i]);
    }
  }
  return covariance;
}

// Returns A^T B. Skips zeros of A, which most norms' slopes and most families' covariances are.
SquareMatrix TransposedProduct(const SquareMatrix& a, const SquareMatrix& b) {
  SquareMatrix product(a.size);
  for (int64_t k = 0; k < a.size; ++k) {
    for (int64_t i = 0; i < a.size; ++i) {
      const double factor = a.Row(k)[i];
      if (factor == 0) continue;
      double* row = product.Row(i);
      for (int64_t j = 0; j < a.size; ++j) row[j] += factor * b.Row(k)[j];
    }
  }
  return product;
}

// Adds J^T C J of one case to the upper blocks of `fisher`.
void AddCase(const Glm& glm, const Derivatives& d, const SquareMatrix& covariance,
             SquareMatrix& fisher) {
  const int64_t units = glm.units, inputs = glm.inputs, width = glm.UnitParameters();
  SquareMatrix slope(units);
  slope.values = d.slope;
  // A^T C, C A and A^T C A, with A = dt/da. dt/db is the unit matrix.
  const SquareMatrix sum_bias = TransposedProduct(slope, covariance);
  const SquareMatrix bias_sum = TransposedProduct(covariance, slope);
  const SquareMatrix sum_sum = TransposedProduct(slope, bias_sum);
  for (int64_t i = 0; i < units; ++i) {
    const double* of_i = &d.feature[Count(i, inputs)];
    for (int64_t j = i; j < units; ++j) {
      const double* of_j = &d.feature[Count(j, inputs)];
      const double z_i = d.z[Count(i)], z_j = d.z[Count(j)], c = covariance.Row(i)[j];
      for (int64_t s = 0; s < inputs; ++s) {
        double* row = fisher.Row(i * width + s) + j * width;
        const double factor = sum_sum.Row(i)[j] * of_i[s], with_bias = sum_bias.Row(i)[j] * of_i[s];
        for (int64_t k = 0; k < inputs; ++k) row[k] += factor * of_j[k];
        row[inputs] += with_bias;
        if (width > inputs + 1) row[inputs + 1] += with_bias * z_j;
      }
      double* bias = fisher.Row(i * width + inputs) + j * width;
      for (int64_t k = 0; k < inputs; ++k) bias[k] += bias_sum.Row(i)[j] * of_j[k];
      bias[inputs] += c;
      if (width == inputs + 1) continue;
      bias[inputs + 1] += c * z_j;
      double* gain = fisher.Row(i * width + inputs + 1) + j * width;
      for (int64_t k = 0; k < inputs; ++k) gain[k] += z_i * bias_sum.Row(i)[j] * of_j[k];
      gain[inputs] += c * z_i;
      gain[inputs + 1] += c * z_i * z_j;
    }
  }
}

// Divides by the number of cases and copies the upper blocks to the lower ones.
void Finish(const Glm& glm, SquareMatrix& fisher) {
  for (double& value : fisher.values) value /= static_cast<double>(glm.cases);
  const int64_t width = glm.UnitParameters();
  for (int64_t r = 0; r < fisher.size; ++r) {
    for (int64_t c = (r / width + 1) * width; c < fisher.size; ++c) {
      fisher.Row(c)[r] = fisher.Row(r)[c];
    }
  }
}

// Returns mean and variance of `count` sums that are `stride` elements apart.
RowMoments Moments(const std::vector<double>& sums, int64_t begin, int64_t count, int64_t stride) {
  std::vector<double> row;
  for (int64_t i = 0; i < count; ++i) row.push_back(sums[Count(begin) + Count(i, stride)]);
  return MomentsOf(row);
}

// Derivatives of a case by Eq. 13-14: g_i / sigma_i chi_i.
Derivatives PrintedDerivatives(const Glm& glm, const std::vector<double>& sums, int64_t n) {
  const int64_t units = glm.units, inputs = glm.inputs;
  const auto x = [&](int64_t m, int64_t s) { return glm.x[Count(m, inputs) + Count(s)]; };
  Derivatives d{.slope = std::vector<double>(Count(units, units)),
                .feature = std::vector<double>(Count(units, inputs)),
                .z = std::vector<double>(Count(units))};
  for (int64_t i = 0; i < units; ++i) {
    const double* w = &glm.weights[Count(i, inputs)];
    double mean = 0, sigma = std::sqrt(Dot(w, w, inputs));
    if (glm.norm != GlmNorm::kWeight) {
      const RowMoments moments = glm.norm == GlmNorm::kLayer ? Moments(sums, n * units, units, 1)
                                                             : Moments(sums, i, glm.cases, units);
      mean = moments.mean;
      sigma = std::sqrt(moments.variance);
    }
    const double z = (sums[Count(n, units) + Count(i)] - mean) / sigma;
    d.z[Count(i)] = z;
    d.slope[Count(i, units + 1)] = glm.gains[Count(i)] / sigma;
    for (int64_t s = 0; s < inputs; ++s) {
      double dmean = 0, dsigma = 0;  // with respect to w_i
      if (glm.norm == GlmNorm::kWeight) {
        dsigma = w[s] / sigma;
      } else if (glm.norm == GlmNorm::kLayer) {
        dmean = x(n, s) / static_cast<double>(units);
        dsigma = z * x(n, s) / static_cast<double>(units);
      } else {
        for (int64_t m = 0; m < glm.cases; ++m) {
          dmean += x(m, s);
          dsigma += (sums[Count(m, units) + Count(i)] - mean) / sigma * x(m, s);
        }
        dmean /= static_cast<double>(glm.cases);
        dsigma /= static_cast<double>(glm.cases);
      }
      d.feature[Count(i, inputs) + Count(s)] = x(n, s) - dmean - z * dsigma;
    }
  }
  return d;
}

// Returns KL(p || q) of one case. It is the convex function eta of Eq. 10 at q's t minus its
// tangent at p's, over phi. exp(d) - 1 keeps the accuracy for small differences d.
double CaseDivergence(const Glm& glm, const double* p, const double* q) {
  double sum = 0;
  if (glm.family == GlmFamily::kSoftmax) {
    const std::vector<double> mean = Softmax(p, glm.units);
    double linear = 0;
    for (int64_t i = 0; i < glm.units; ++i) {
      sum += mean[Count(i)] * std::expm1(q[i] - p[i]);
      linear += mean[Count(i)] * (q[i] - p[i]);
    }
    return std::log1p(sum) - linear;
  }
  for (int64_t i = 0; i < glm.units; ++i) {
    const double difference = q[i] - p[i];
    if (glm.family == GlmFamily::kGaussian) {
      sum += difference * difference / 2;
    } else if (glm.family == GlmFamily::kBernoulli) {
      const double mean = Sigmoid(p[i]);
      sum += std::log1p(mean * std::expm1(difference)) - mean * difference;
    } else {
      sum += std::exp(p[i]) * (std::expm1(difference) - difference);
    }
  }
  return sum / Phi(glm);
}

}  // namespace

std::string NameOf(GlmNorm norm) {
  switch (norm) {
    case GlmNorm::kNone:
      return "none";
    case GlmNorm::kLayer:
      return "LN";
    case GlmNorm::kBatch:
      return "BN";
    case GlmNorm::kWeight:
      return "WN";
  }
  return "";
}

std::string NameOf(GlmFamily family) {
  switch (family) {
    case GlmFamily::kGaussian:
      return "Gaussian";
    case GlmFamily::kBernoulli:
      return "Bernoulli";
    case GlmFamily::kPoisson:
      return "Poisson";
    case GlmFamily::kSoftmax:
      return "softmax";
  }
  return "";
}

Glm RandomGlm(int64_t units, int64_t inputs, int64_t cases, int64_t seed) {
  std::mt19937_64 random(MixedSeed({seed, units, inputs, cases}));
  const auto draw = [&](size_t count, double mean, double deviation) {
    std::vector<double> values(count);
    DrawRow(RowKind::kNormal, random, values);
    for (double& value : values) value = mean + deviation * value;
    return values;
  };
  Glm glm{.units = units, .inputs = inputs, .cases = cases};
  glm.weights = draw(Count(units, inputs), 0, 1 / std::sqrt(static_cast<double>(inputs)));
  glm.biases = draw(Count(units), 0, 0.5);
  glm.gains = draw(Count(units), 1, 0.25);
  glm.x = draw(Count(cases, inputs), 0.5, 1);
  return glm;
}

Glm Moved(const Glm& glm, std::span<const double> direction, double step) {
  Glm moved = glm;
  size_t at = 0;
  for (int64_t i = 0; i < glm.units; ++i) {
    for (int64_t s = 0; s < glm.inputs; ++s) {
      moved.weights[Count(i, glm.inputs) + Count(s)] += step * direction[at++];
    }
    moved.biases[Count(i)] += step * direction[at++];
    if (glm.norm != GlmNorm::kNone) moved.gains[Count(i)] += step * direction[at++];
  }
  return moved;
}

double QuadraticForm(const SquareMatrix& matrix, std::span<const double> v) {
  double sum = 0;
  for (int64_t r = 0; r < matrix.size; ++r) {
    sum += v[Count(r)] * Dot(matrix.Row(r), v.data(), matrix.size);
  }
  return sum;
}

double RelativeDifference(const SquareMatrix& matrix, const SquareMatrix& other) {
  double difference = 0, squares = 0;
  for (size_t i = 0; i < matrix.values.size(); ++i) {
    const double value = matrix.values[i], rest = other.values[i] - value;
    difference += rest * rest;
    squares += value * value;
  }
  return std::sqrt(difference / squares);
}

SquareMatrix WeightBlocks(const Glm& glm, const SquareMatrix& fisher) {
  SquareMatrix blocks(glm.units * glm.inputs);
  for (int64_t r = 0; r < blocks.size; ++r) {
    const double* row = fisher.Row(r / glm.inputs * glm.UnitParameters() + r % glm.inputs);
    for (int64_t j = 0; j < glm.units; ++j) {
      std::copy_n(row + j * glm.UnitParameters(), glm.inputs, blocks.Row(r) + j * glm.inputs);
    }
  }
  return blocks;
}

SquareMatrix FisherMatrix(const Glm& glm) {
  const GlmOutputs outputs(glm);
  SquareMatrix fisher(glm.Parameters());
  for (int64_t n = 0; n < glm.cases; ++n) {
    AddCase(glm, outputs.At(n), Covariance(glm, outputs.t(n)), fisher);
  }
  Finish(glm, fisher);
  return fisher;
}

SquareMatrix PrintedFisherMatrix(const Glm& glm) {
  const GlmOutputs outputs(glm);
  SquareMatrix fisher(glm.Parameters());
  const std::vector<double> sums = Sums(glm);
  const int64_t width = glm.UnitParameters();
  for (int64_t n = 0; n < glm.cases; ++n) {
    const SquareMatrix covariance = Covariance(glm, outputs.t(n));
    if (glm.norm != GlmNorm::kNone) {
      AddCase(glm, PrintedDerivatives(glm, sums, n), covariance, fisher);
      continue;
    }
    // The Kronecker product of Eq. 12, with (x, 1).
    std::vector<double> x(&glm.x[Count(n, glm.inputs)], &glm.x[Count(n, glm.inputs)] + glm.inputs);
    x.push_back(1);
    for (int64_t r = 0; r < fisher.size; ++r) {
      for (int64_t c = 0; c < fisher.size; ++c) {
        fisher.Row(r)[c] +=
            covariance.Row(r / width)[c / width] * x[Count(r % width)] * x[Count(c % width)];
      }
    }
  }
  Finish(glm, fisher);
  return fisher;
}

SquareMatrix MeanCovariance(const Glm& glm) {
  const GlmOutputs outputs(glm);
  SquareMatrix mean(glm.units);
  for (int64_t n = 0; n < glm.cases; ++n) {
    const SquareMatrix covariance = Covariance(glm, outputs.t(n));
    for (size_t i = 0; i < mean.values.size(); ++i) {
      mean.values[i] += covariance.values[i] / static_cast<double>(glm.cases);
    }
  }
  return mean;
}

double Divergence(const Glm& p, const Glm& q) {
  const GlmOutputs of_p(p), of_q(q);
  double sum = 0;
  for (int64_t n = 0; n < p.cases; ++n) sum += CaseDivergence(p, of_p.t(n), of_q.t(n));
  return sum / static_cast<double>(p.cases);
}

}  // namespace planish::lab
