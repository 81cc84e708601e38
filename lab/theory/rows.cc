#include "lab/theory/rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace planish::lab {
namespace {

// Returns a number above 0 and at most 1.
double Uniform(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 1) * 0x1p-53;
}

double Normal(std::mt19937_64& random) {
  const double radius = std::sqrt(-2 * std::log(Uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * Uniform(random));
}

}  // namespace

std::string NameOf(RowKind kind) {
  switch (kind) {
    case RowKind::kNormal:
      return "normal";
    case RowKind::kUniform:
      return "uniform";
    case RowKind::kSkewed:
      return "exponential";
    case RowKind::kHeavy:
      return "Student's t, 3 degrees";
    case RowKind::kSpike:
      return "one spike";
  }
  return "";
}

void DrawRow(RowKind kind, std::mt19937_64& random, std::span<double> row) {
  for (double& value : row) {
    switch (kind) {
      case RowKind::kNormal:
        value = Normal(random);
        break;
      case RowKind::kUniform:
        value = 2 * Uniform(random) - 1;
        break;
      case RowKind::kSkewed:
        value = -std::log(Uniform(random));
        break;
      case RowKind::kHeavy: {
        double squares = 0;
        for (int i = 0; i < 3; ++i) squares += std::pow(Normal(random), 2);
        value = Normal(random) / std::sqrt(squares / 3);
        break;
      }
      case RowKind::kSpike:
        value = 0;
        break;
    }
  }
  if (kind == RowKind::kSpike) row[random() % row.size()] = random() % 2 == 0 ? 1 : -1;
}

RowMoments MomentsOf(std::span<const double> row) {
  const auto n = static_cast<double>(row.size());
  double sum = 0, rest = 0, squares = 0;
  for (const double value : row) sum += value;
  const double mean = sum / n;
  for (const double value : row) {
    rest += value - mean;
    squares += (value - mean) * (value - mean);
  }
  const double correction = rest / n;
  return {mean + correction, squares / n - correction * correction};
}

void NormalizeRow(std::span<double> row) {
  const RowMoments moments = MomentsOf(row);
  const double rstd = 1 / std::sqrt(moments.variance);
  for (double& value : row) value = (value - moments.mean) * rstd;
}

}  // namespace planish::lab
