#ifndef PLANISH_LAB_TASKS_DRAW_CASES_H_
#define PLANISH_LAB_TASKS_DRAW_CASES_H_

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "lab/engine/task.h"

namespace planish::lab {

/// Binary images, each split [N, 784] uint8 of 0 and 1.
struct BinaryCases final : Dataset {
  at::Tensor train, valid, test;
};

/// Returns the settings train_cases, valid_cases and test_cases; by default 50,000, 10,000 and
/// 10,000.
std::vector<SettingSpec> BinaryCaseSettings();

/// Returns the cases of the settings, from binarized MNIST in `folder` or drawn. Shuffles the
/// images of each split in a fixed order, because the test set's file is sorted by digit.
/// Throws like LoadBinaryMnist and DrawBinaryDigits, and UsageError if there are fewer images.
std::unique_ptr<BinaryCases> LoadBinaryCases(const Settings& settings,
                                             const std::optional<std::filesystem::path>& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_CASES_H_
