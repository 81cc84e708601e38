#include "lab/tasks/convnet/borders.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace planish::lab {

int64_t BorderWidth(int64_t side) { return std::max<int64_t>(1, side / 8); }

BorderStatistics StatisticsOf(const ConvNet::Units& units) {
  const int64_t side = units.sums.size(1), width = BorderWidth(side);
  at::Tensor border = at::ones({side, side}, units.sums.options().dtype(at::kBool));
  border.slice(0, width, side - width).slice(1, width, side - width).fill_(false);
  // [H, W, C] over the cases, then the units at one kind of place.
  const at::Tensor on = units.activated.gt(0).to(at::kFloat).mean(0);
  const at::Tensor mean = units.sums.mean(0);
  const at::Tensor deviation = units.sums.std(at::OptionalIntArrayRef(0), /*unbiased=*/true);
  const auto statistics = [&](const at::Tensor& places) {
    const auto average = [&](const at::Tensor& t) {
      return t.flatten(0, 1).index({places.flatten()}).mean().item<double>();
    };
    return UnitStatistics{average(on), average(mean), average(deviation)};
  };
  return {statistics(border), statistics(border.logical_not())};
}

}  // namespace planish::lab
