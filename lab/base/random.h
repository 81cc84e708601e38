#ifndef PLANISH_LAB_BASE_RANDOM_H_
#define PLANISH_LAB_BASE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

// Random choices that are equal everywhere. The standard fixes only the generators; its
// distributions and std::shuffle differ between implementations.
namespace planish::lab {

/// Returns the seed of one of many generators, which `numbers` name. Lists that differ in any number
/// give unrelated generators.
inline uint64_t MixedSeed(std::initializer_list<int64_t> numbers) {
  uint64_t z = numbers.size();
  for (const int64_t number : numbers) {  // splitmix64
    z += 0x9E3779B97F4A7C15u + static_cast<uint64_t>(number);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
  }
  return z;
}

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
