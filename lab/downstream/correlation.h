#ifndef PLANISH_LAB_DOWNSTREAM_CORRELATION_H_
#define PLANISH_LAB_DOWNSTREAM_CORRELATION_H_

#include <span>

namespace planish::lab {

/// Returns Pearson's correlation of two series of equal size; 0 if all values of one are equal.
double Pearson(std::span<const double> a, std::span<const double> b);

/// Returns Spearman's correlation: Pearson's of the ranks. Equal values get the mean of their
/// ranks.
double Spearman(std::span<const double> a, std::span<const double> b);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_CORRELATION_H_
