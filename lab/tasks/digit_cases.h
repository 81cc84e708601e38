#ifndef PLANISH_LAB_TASKS_DIGIT_CASES_H_
#define PLANISH_LAB_TASKS_DIGIT_CASES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/engine/task.h"

// What the tasks that tell digits apart share: the images as tensors, and how good a classifier is.
namespace planish::lab {

/// Images with their classes.
struct Cases {
  at::Tensor x;       ///< [N, 784] float, 0 .. 1, row by row
  at::Tensor labels;  ///< [N] int64
};

struct DigitCases final : Dataset {
  Cases train, valid, test;
};

/// Settings train_cases, valid_cases and test_cases; by default 55,000, 5,000 and 10,000.
std::vector<SettingSpec> DigitCaseSettings();

/// The names of these settings.
std::vector<std::string> DigitCaseSettingNames();

/// As many cases as the settings ask for, from MNIST in `folder` or drawn: the first of the
/// training images for training, those after them for validation, the first of the test images for
/// testing. Throws what OpenDigits throws, and UsageError, which names the `task`, where there are
/// fewer images.
std::unique_ptr<DigitCases> LoadDigitCases(std::string_view task, const Settings& settings,
                                           const std::optional<std::filesystem::path>& folder);

/// The cases numbered `numbers`: images [B, 784] and labels [B].
Tensors TakeCases(const Cases& cases, const at::Tensor& numbers);

/// The first `count` cases, all when there are fewer: views.
Cases FirstCases(const Cases& cases, int64_t count);

/// How good a classifier is: means over cases.
struct Scores {
  double nll = 0;       ///< negative log-likelihood of the class, nats
  double error = 0;     ///< the share of the cases whose most likely class is another
  double accuracy = 0;  ///< the share of the others
};

/// Of the classifier `logits`, [B, 784] -> [B, 10], which is given `at_once` cases at a time.
Scores Score(const std::function<at::Tensor(const at::Tensor&)>& logits, const Cases& cases,
             int64_t at_once);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DIGIT_CASES_H_
