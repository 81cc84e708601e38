#ifndef PLANISH_LAB_THEORY_ROWS_H_
#define PLANISH_LAB_THEORY_ROWS_H_

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

// Random rows on which statements about any row are tried.
namespace planish::lab {

/// A kind of rows.
enum class RowKind {
  kNormal,
  kUniform,
  kSkewed,  ///< exponential
  kHeavy,   ///< Student's t with three degrees of freedom
  kSpike,   ///< one element differs from all others, which are equal: the extreme of skewness
};
inline constexpr RowKind kRowKinds[] = {RowKind::kNormal, RowKind::kUniform, RowKind::kSkewed,
                                        RowKind::kHeavy, RowKind::kSpike};

/// Returns the name in tables: "normal".
std::string NameOf(RowKind kind);

/// Fills a row.
void DrawRow(RowKind kind, std::mt19937_64& random, std::span<double> row);

/// Mean and biased variance of a row.
struct RowMoments {
  double mean = 0, variance = 0;
};
RowMoments MomentsOf(std::span<const double> row);

/// Replaces a row by its normalized form, with mean 0 and biased variance 1. The row must not be
/// constant.
void NormalizeRow(std::span<double> row);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_ROWS_H_
