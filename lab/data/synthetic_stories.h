#ifndef PLANISH_LAB_DATA_SYNTHETIC_STORIES_H_
#define PLANISH_LAB_DATA_SYNTHETIC_STORIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace planish::lab {

/// Number of places of synthetic stories.
inline constexpr size_t kSyntheticPlaces = 4;

/// Generator of stories from a small grammar. It uses only integer arithmetic, so a seed gives the
/// same stories on every machine.
class StoryTeller {
 public:
  explicit StoryTeller(uint64_t seed) : random_(seed) {}

  /// Returns the five to nine sentences of a story with one place and one person.
  std::vector<std::string> Story();

  /// Returns a sentence and the index of its place, below kSyntheticPlaces.
  std::pair<std::string, size_t> Sentence();

 private:
  size_t Choose(size_t n);
  std::string Tell(size_t place, const std::string& person, std::string& thing);

  std::mt19937_64 random_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SYNTHETIC_STORIES_H_
