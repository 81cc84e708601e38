#ifndef PLANISH_LAB_TASKS_SPLIT_SETTINGS_H_
#define PLANISH_LAB_TASKS_SPLIT_SETTINGS_H_

#include <vector>

#include "lab/data/class_split.h"
#include "lab/engine/settings.h"

namespace planish::lab {

/// Returns the settings of a random split: split_seed, valid_share and test_share.
std::vector<SettingSpec> SplitSettings();

/// Returns their values, and max_train from the setting train_cases.
SplitOptions SplitOptionsOf(const Settings& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SPLIT_SETTINGS_H_
