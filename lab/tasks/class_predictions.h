#ifndef PLANISH_LAB_TASKS_CLASS_PREDICTIONS_H_
#define PLANISH_LAB_TASKS_CLASS_PREDICTIONS_H_

#include <ATen/core/Tensor.h>

#include "lab/run/predictions.h"

namespace planish::lab {

/// Returns the predictions of a classifier: the class of each item of the test set, `labels`, and
/// the class that the model found, `answers`. Both are [N] int64.
Predictions ClassPredictions(const at::Tensor& labels, const at::Tensor& answers);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CLASS_PREDICTIONS_H_
