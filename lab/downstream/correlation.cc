#include "lab/downstream/correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace planish::lab {

namespace {

double Mean(std::span<const double> a) {
  return std::accumulate(a.begin(), a.end(), 0.0) / static_cast<double>(a.size());
}

std::vector<double> Ranks(std::span<const double> a) {
  std::vector<size_t> order(a.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return a[i]; });
  std::vector<double> ranks(a.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && a[order[end]] == a[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
  }
  return ranks;
}

}  // namespace

double Pearson(std::span<const double> a, std::span<const double> b) {
  const double mean_a = Mean(a), mean_b = Mean(b);
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa) / std::sqrt(bb) : 0;
}

double Spearman(std::span<const double> a, std::span<const double> b) {
  return Pearson(Ranks(a), Ranks(b));
}

}  // namespace planish::lab
