#ifndef PLANISH_LAB_TASKS_DRAW_CASES_H_
#define PLANISH_LAB_TASKS_DRAW_CASES_H_

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/task.h"

namespace planish::lab {

/// Binary images, each split [N, 784] uint8 of 0 and 1.
struct BinaryCases final : Dataset {
  at::Tensor train, valid, test;
};

/// Settings train_cases, valid_cases and test_cases; by default 50,000, 10,000 and 10,000.
std::vector<SettingSpec> BinaryCaseSettings();

/// The names of these settings.
std::vector<std::string> BinaryCaseSettingNames();

/// As many cases as the settings ask for, from binarised MNIST in `folder` or drawn. The test set's
/// file is sorted by digit, so the images of each split are put in a random order first, the same
/// always. Throws what LoadBinaryMnist and DrawBinaryDigits throw, and UsageError where there are
/// fewer images.
std::unique_ptr<BinaryCases> LoadBinaryCases(const Settings& settings,
                                             const std::optional<std::filesystem::path>& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_CASES_H_
