#include "lab/tasks/split_settings.h"

namespace planish::lab {

std::vector<SettingSpec> SplitSettings() {
  const SplitOptions options;
  return {
      {"split_seed", options.seed, "seed of a random split", 0, 1e9, {}},
      {"valid_share",
       options.valid_share,
       "share of each class for validation in a random split",
       0.01,
       0.45,
       {}},
      {"test_share",
       options.test_share,
       "share of each class for the test in a random split",
       0.01,
       0.45,
       {}},
  };
}

SplitOptions SplitOptionsOf(const Settings& settings) {
  return {.seed = settings.Int("split_seed"),
          .valid_share = settings.Real("valid_share"),
          .test_share = settings.Real("test_share"),
          .max_train = settings.Int("train_cases")};
}

}  // namespace planish::lab
