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

/// Where a made story plays.
inline constexpr size_t kMadePlaces = 4;

/// Tells stories of a small grammar, with integer arithmetic alone, so that a seed gives the same
/// on every machine.
class StoryTeller {
 public:
  explicit StoryTeller(uint64_t seed) : random_(seed) {}

  /// The five to nine sentences of a story, which stays at one place with one person.
  std::vector<std::string> Story();

  /// A sentence, and the number of its place, below kMadePlaces.
  std::pair<std::string, size_t> Sentence();

 private:
  size_t Choose(size_t n);
  std::string Tell(size_t place, const std::string& person, std::string& thing);

  std::mt19937_64 random_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SYNTHETIC_STORIES_H_
