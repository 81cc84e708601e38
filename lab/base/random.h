#ifndef PLANISH_LAB_BASE_RANDOM_H_
#define PLANISH_LAB_BASE_RANDOM_H_

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

// Random choices that are equal everywhere. The standard fixes only the generators; its
// distributions and std::shuffle differ between implementations.
namespace planish::lab {

/// Returns a uniform number from 0 to n - 1, 1 <= n < 2^32. Probabilities differ by at most one
/// part in 2^32 / n.
inline size_t Choose(std::mt19937_64& random, size_t n) {
  return static_cast<size_t>(((random() >> 32) * n) >> 32);
}

/// Shuffles `items` uniformly (Fisher and Yates).
template <class T>
void Shuffle(std::vector<T>& items, std::mt19937_64& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Choose(random, i)]);
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_RANDOM_H_
