#ifndef PLANISH_LAB_BASE_NEAREST_H_
#define PLANISH_LAB_BASE_NEAREST_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// Returns the smallest number of inserted, deleted, replaced and swapped adjacent bytes that turn
/// `a` into `b`, each byte edited at most once (optimal string alignment).
inline size_t EditDistance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<size_t> distances((a.size() + 1) * width);
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& distance = distances[i * width + j];
      if (i == 0 || j == 0) {
        distance = i + j;
        continue;
      }
      const bool is_equal = a[i - 1] == b[j - 1];
      distance = std::min({distances[(i - 1) * width + j] + 1, distances[i * width + j - 1] + 1,
                           distances[(i - 1) * width + j - 1] + (is_equal ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance = std::min(distance, distances[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return distances.back();
}

/// Returns the choice that was probably meant by `text`: the one with the smallest edit distance,
/// at most a third of its length, else the first that begins with `text`. Returns nullopt if there
/// is none.
inline std::optional<std::string> Nearest(std::string_view text,
                                          const std::vector<std::string>& choices) {
  constexpr size_t kMaxBytes = 64;  // bounds the work for text of any length
  if (text.empty() || text.size() > kMaxBytes) return std::nullopt;
  std::optional<std::string> nearest;
  size_t least = kMaxBytes;
  for (const std::string& choice : choices) {
    const size_t distance = EditDistance(text, choice);
    if (distance < least && distance * 3 <= choice.size()) {
      nearest = choice;
      least = distance;
    }
  }
  if (nearest) return nearest;
  const auto begun = std::ranges::find_if(
      choices, [&](const std::string& choice) { return choice.starts_with(text); });
  if (begun != choices.end()) nearest = *begun;
  return nearest;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_NEAREST_H_
