#ifndef PLANISH_LAB_DOWNSTREAM_CORRELATION_H_
#define PLANISH_LAB_DOWNSTREAM_CORRELATION_H_

#include <span>

namespace planish::lab {

/// Pearson's correlation of two series of as many numbers; 0 where all numbers of one are the same.
double Pearson(std::span<const double> a, std::span<const double> b);

/// Spearman's: Pearson's of the ranks, numbers that are the same having the mean of theirs.
double Spearman(std::span<const double> a, std::span<const double> b);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_CORRELATION_H_
