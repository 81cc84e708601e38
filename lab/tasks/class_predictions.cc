#include "lab/tasks/class_predictions.h"

#include <cstdint>
#include <vector>

#include "lab/run/item_metrics.h"

namespace planish::lab {

namespace {

std::vector<int64_t> ToVector(const at::Tensor& of) {
  const at::Tensor values = of.cpu().contiguous();
  const auto* const begin = values.const_data_ptr<int64_t>();
  return {begin, begin + values.numel()};
}

}  // namespace

Predictions ClassPredictions(const at::Tensor& labels, const at::Tensor& answers) {
  return PredictionsOf({kLabelColumn, kPredictionColumn}, {ToVector(labels), ToVector(answers)});
}

}  // namespace planish::lab
