#include "lab/engine/task.h"

#include <ATen/ops/randperm.h>
#include <fmt/format.h>

#include "lab/error.h"

namespace planish::lab {

at::Tensor EpochPlan::batch(int64_t b) const {
  const auto i = static_cast<size_t>(b);
  return order.slice(0, offsets[i], offsets[i + 1]);
}

EpochPlan ShuffledBatches(int64_t cases, int64_t batch_size, at::Generator& generator) {
  if (batch_size > cases) {
    throw UsageError(fmt::format(
        "[engine] batch_size must be at most the {} training cases but has {}", cases, batch_size));
  }
  EpochPlan plan;
  plan.order = at::randperm(cases, generator, at::kLong);
  for (int64_t end = 0; end <= cases; end += batch_size) plan.offsets.push_back(end);
  return plan;
}

SettingSpec NormSetting(const std::vector<std::string>& norms) {
  return {"norm", norms.front(), "the normalisation", {}, {}, norms};
}

std::vector<SettingSpec> EngineSettings(const SettingSpec& compared) {
  return {
      compared,
      {"batch_size", 128, "cases an update averages over", 1, 1 << 24, {}},
      {"epochs", 60, "passes over the training cases", 1, 1e9, {}},
      {"lr", 1e-3, "Adam's learning rate", 0, 1e6, {}},
      {"adam_beta1", 0.9, "Adam's decay of the first moment", 0, 1, {}},
      {"adam_beta2", 0.999, "Adam's decay of the second moment", 0, 1, {}},
      {"adam_eps", 1e-8, "Adam's epsilon", 0, 1, {}},
      {"evaluations_per_epoch", 1, "evaluations an epoch, beside a few early ones", 1, 1e6, {}},
  };
}

}  // namespace planish::lab
