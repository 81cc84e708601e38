#include "lab/engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace planish::lab {

const std::vector<std::string>& ScheduleNames() {
  static const std::vector<std::string> names = {"constant", "inverse-sqrt", "cosine"};
  return names;
}

double Schedule::Rate(int64_t update, double done) const {
  const auto now = static_cast<double>(update);
  const auto risen = static_cast<double>(std::max<int64_t>(warmup, 1));
  if (update < warmup) return peak * now / risen;
  if (shape == "inverse-sqrt") return peak * std::sqrt(risen / now);
  if (shape == "cosine") return peak * (1 + std::cos(std::numbers::pi * std::min(done, 1.0))) / 2;
  return peak;
}

}  // namespace planish::lab
