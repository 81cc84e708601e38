#include "lab/engine/task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "lab/engine/adam.h"
#include "lab/engine/schedule.h"
#include "lab/error.h"
#include "lab/model/residual.h"

namespace planish::lab {

const at::Tensor& TensorNamed(const PackedData& packed, std::string_view name) {
  for (const auto& [key, tensor] : packed.tensors) {
    if (key == name) return tensor;
  }
  throw std::invalid_argument(fmt::format("{} is missing", name));
}

void AddBytes(PackedData& packed, const std::string& name, std::string_view text) {
  const at::Tensor bytes = at::empty({std::ssize(text)}, at::kByte);
  std::ranges::copy(text, bytes.mutable_data_ptr<uint8_t>());
  packed.tensors.emplace_back(name, bytes);
}

std::string BytesNamed(const PackedData& packed, std::string_view name) {
  const at::Tensor& bytes = TensorNamed(packed, name);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

void Experiment::MoveTo(c10::Device device) {
  device_ = device;
  if (device.is_cuda()) at::globalContext().setAllowTF32CuDNN(false);
  model().to(device);
}

at::Tensor Experiment::ShardOfBatch(const at::Tensor& batch, const Shard& shard) const {
  return batch.slice(0, shard.Begin(batch.size(0)), shard.End(batch.size(0)));
}

void Task::Check(const Settings& chosen, const Dataset& data) const {
  const int64_t cases = data.about.sizes.at("train"), batch = chosen.Int("batch_size");
  if (batch > cases) {
    throw UsageError(fmt::format("[train] batch_size must be at most the {} training cases, got {}",
                                 cases, batch));
  }
}

Settings Task::LoadSettings(const Settings& chosen, int64_t /*seed*/) const { return chosen; }

std::vector<MetricSpec> Task::MetricsOf(const Settings& /*chosen*/) const { return metrics; }

std::unique_ptr<Dataset> Task::Unpack(const Settings& /*chosen*/,
                                      const PackedData& /*packed*/) const {
  throw std::invalid_argument(fmt::format("models of task {} have no data", name));
}

std::unique_ptr<Experiment> Task::MakeSeeded(const Settings& chosen, const Dataset& data,
                                             int64_t seed) const {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(static_cast<uint64_t>(seed));
  return Make(chosen, data);
}

std::unique_ptr<Optimizer> Task::MakeOptimizer(const NamedTensors& parameters,
                                               const Settings& chosen) const {
  return std::make_unique<Adam>(parameters, AdamOptionsOf(chosen));
}

Clipping Task::MakeClipping(const Settings& chosen) const {
  return ClipTogether(chosen.Real("clip"));
}

void Task::Default(std::string_view setting, nlohmann::ordered_json value, std::string help) {
  const auto spec = std::ranges::find(settings, setting, &SettingSpec::name);
  if (spec == settings.end()) {
    throw std::logic_error(fmt::format("[Task] {} is not a setting", setting));
  }
  spec->value = std::move(value);
  if (!help.empty()) spec->help = std::move(help);
}

void Task::AddSettings(const std::vector<SettingSpec>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
}

void Task::AddDataSettings(const std::vector<SettingSpec>& more) {
  AddSettings(more);
  for (const SettingSpec& spec : more) data_settings.push_back(spec.name);
}

SettingSpec NormSetting(const std::vector<std::string>& norms) {
  SettingSpec spec = Choice("norm", norms.front(), "the normalization", norms);
  std::ranges::remove_copy_if(norms, std::back_inserter(spec.compared), IsAblation);
  return spec;
}

SettingSpec EpsSetting() {
  return {"eps", NormOptions().epsilon, "added to the variance by a norm", 0, 1, {}};
}

SettingSpec GainSetting() { return {"gain", 1.0, "initial gains of the norms", 0, 1e6, {}}; }

SettingSpec HeadsSetting() {
  return {"heads", 1,     "blocks of each block-diagonal recurrent matrix; must divide hidden",
          1,       65536, {}};
}

std::vector<SettingSpec> PlacementSettings(const std::string& value,
                                           const std::vector<std::string>& more) {
  std::vector<std::string> names = PlacementNames(value);
  names.insert(names.end(), more.begin(), more.end());
  return {
      Choice("placement", value,
             "places of the norms: pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + "
             "norm(f(norm(x))); peri: sandwich with a norm of the embedding; deepnorm: "
             "norm(alpha x + f(x))",
             names),
      {"qk_norm", false, "normalize the queries and keys of each head", {}, {}, {}},
  };
}

SettingSpec CellSetting(const std::string& layers) {
  return Choice("cell", "fused",
                "kernels of " + layers + ": Planish's, or composed of PyTorch's operators",
                {"fused", "composed"});
}

std::vector<SettingSpec> NormDetails() {
  const NormOptions options;
  return {
      EpsSetting(),
      {"ada_c", options.ada_c, "AdaNorm's C", 0, 1e6, {}},
      {"ada_k", options.ada_k, "AdaNorm's k", 0, 1e6, {}},
  };
}

NormOptions NormOptionsOf(const Settings& settings) {
  return {.epsilon = settings.Real("eps"),
          .ada_c = settings.Real("ada_c"),
          .ada_k = settings.Real("ada_k")};
}

std::vector<SettingSpec> EngineSettings(const SettingSpec& compared) {
  return {
      compared,
      {"batch_size", 128, "cases of a batch", 1, 1 << 24, {}},
      {"epochs", 60, "passes over the training cases", 1, 1e9, {}},
      {"lr", 1e-3, "highest learning rate of Adam", 0, 1e6, {}},
      Choice("schedule", "constant", "learning rate after warm-up; cosine ends at 0",
             ScheduleNames()),
      {"warmup", 0, "updates over which the learning rate rises from 0", 0, 1e9, {}},
      {"clip", 0.0, "maximum norm of the concatenated gradients; 0: no limit", 0, 1e9, {}},
      {"accumulate", 1, "batches averaged in an update", 1, 1e6, {}},
      {"shards",
       1,
       "parts of a batch for the processes that share it, a power of two for the same bits with "
       "any number",
       1,
       1024,
       {}},
      {"sync_batch_norm",
       false,
       "compute batch norm's statistics over the cases of all processes",
       {},
       {},
       {}},
      {"adam_beta1", 0.9, "Adam's decay rate of the first moment", 0, 1, {}},
      {"adam_beta2", 0.999, "Adam's decay rate of the second moment", 0, 1, {}},
      {"adam_eps", 1e-8, "Adam's epsilon", 0, 1, {}},
      {"evaluations_per_epoch",
       1,
       "evaluations an epoch, and a few more in the first one",
       1,
       1e6,
       {}},
  };
}

}  // namespace planish::lab
