#ifndef PLANISH_LAB_BASE_NORM_NAME_H_
#define PLANISH_LAB_BASE_NORM_NAME_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "src/norm/recipe.h"

// The lab's names of norms, for code with and without PyTorch.
namespace planish::lab {

/// Returns the lab's name of a norm over rows: hyphens, and the papers' word for the deviation.
inline std::string LabNameOf(const internal::NormName& row) {
  if (row.norm == Norm::kDetachDeviation) return "detach-std";
  std::string name = row.name;
  std::ranges::replace(name, '_', '-');
  return name;
}

/// Online layer norm with the weight alpha of a new case.
struct OnlineNormName {
  const char* name;
  double alpha;
};
inline constexpr OnlineNormName kOnlineNormNames[] = {{"online-1", 1},
                                                      {"online-0.3", 0.3},
                                                      {"online-0.1", 0.1},
                                                      {"online-0.03", 0.03},
                                                      {"online-0.01", 0.01}};

/// Returns the number of groups for GroupNorm: the largest divisor of `channels` up to 8 that gives
/// each group at least 4 elements. A channel has `size` elements.
inline int64_t GroupsOf(int64_t channels, int64_t size) {
  int64_t groups = 8;
  while (groups > 1 && (channels % groups != 0 || channels * size < 4 * groups)) --groups;
  return groups;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_NORM_NAME_H_
