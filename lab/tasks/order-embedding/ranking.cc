#include "lab/tasks/order-embedding/ranking.h"

#include <ATen/Functions.h>

#include "lab/tasks/order-embedding/captions.h"

namespace planish::lab {

at::Tensor ImageRanks(const at::Tensor& errors) {
  const at::Tensor image =
      at::arange(errors.size(0), at::kLong).floor_divide(kCaptionsPerImage).unsqueeze(1);
  // Candidates that are not surely worse, including the right image.
  return errors.gt(errors.gather(1, image)).logical_not().sum(1);
}

at::Tensor CaptionRanks(const at::Tensor& errors) {
  const int64_t images = errors.size(1);
  // For each image the errors of its own captions: [5, N].
  const at::Tensor own = errors.view({images, kCaptionsPerImage, images}).diagonal(0, 0, 2);
  const at::Tensor first = own.amin(0);
  const at::Tensor all = errors.gt(first).logical_not().sum(0);
  return all - own.gt(first).logical_not().sum(0) + 1;
}

RankSummary Summarize(const at::Tensor& ranks) {
  const auto share = [&](int64_t max_rank) {
    return (ranks <= max_rank).to(at::kDouble).mean().item<double>();
  };
  const at::Tensor sorted = std::get<0>(ranks.sort());
  const int64_t n = sorted.size(0);
  const int64_t median = (sorted[(n - 1) / 2].item<int64_t>() + sorted[n / 2].item<int64_t>()) / 2;
  return {.r1 = share(1),
          .r5 = share(5),
          .r10 = share(10),
          .median = static_cast<double>(median),
          .mean = ranks.to(at::kDouble).mean().item<double>()};
}

}  // namespace planish::lab
