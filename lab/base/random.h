#ifndef PLANISH_LAB_BASE_RANDOM_H_
#define PLANISH_LAB_BASE_RANDOM_H_

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

// What the lab makes and chooses by chance. Only the generators are fixed by the standard: its
// distributions and std::shuffle differ between implementations, these do not.
namespace planish::lab {

/// A number from 0 to n - 1, 1 <= n < 2^32, each as likely as any other to one part in 2^32 / n.
inline size_t Choose(std::mt19937_64& random, size_t n) {
  return static_cast<size_t>(((random() >> 32) * n) >> 32);
}

/// Puts `items` in random order, each order as likely as any other (Fisher and Yates).
template <class T>
void Shuffle(std::vector<T>& items, std::mt19937_64& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Choose(random, i)]);
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_RANDOM_H_
