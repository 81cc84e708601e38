#include "lab/engine/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lab/error.h"
#include "lab/run/safetensors.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr char kFormat[] = "planish-checkpoint/2";
constexpr char kGenerator[] = "generator.cpu";
constexpr char kModel[] = "model.", kBest[] = "best.";

// Names of the types that safetensors and ATen both have.
constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kDouble, "F64"}, {at::kFloat, "F32"}, {at::kHalf, "F16"},  {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},   {at::kInt, "I32"},   {at::kShort, "I16"}, {at::kChar, "I8"},
    {at::kByte, "U8"},    {at::kBool, "BOOL"}};

std::string TypeName(at::ScalarType type) {
  for (const auto& [key, name] : kTypes) {
    if (key == type) return name;
  }
  throw RunError(
      fmt::format("[SaveCheckpoint] a tensor must have a type that safetensors knows but has {}",
                  c10::toString(type)));
}

// Everything that is saved, sharing memory with its owners.
NamedTensors AllTensors(const torch::nn::Module& model, const Adam& adam,
                        const TrainingState& state) {
  NamedTensors all;
  for (const auto& [name, tensor] : WeightsOf(model)) all.emplace_back(kModel + name, tensor);
  for (const auto& [name, tensor] : state.best_weights) all.emplace_back(kBest + name, tensor);
  for (const auto& item : adam.State()) all.push_back(item);
  return all;
}

StoredTensor Store(const std::string& name, const at::Tensor& t) {
  return {name,
          TypeName(t.scalar_type()),
          t.sizes().vec(),
          {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}};
}

// Copies a stored tensor over `target`, which must be its like.
void Load(const fs::path& file, const SafetensorsFile& stored, const std::string& name,
          at::Tensor target) {
  const StoredTensor* from = stored.Find(name);
  if (from == nullptr) {
    throw RunError(
        fmt::format("[LoadCheckpoint] {} must hold {} but does not: it belongs to another model",
                    file.string(), name));
  }
  if (from->dtype != TypeName(target.scalar_type()) ||
      at::IntArrayRef(from->shape) != target.sizes()) {
    throw RunError(
        fmt::format("[LoadCheckpoint] {} in {} must have type {} and shape {} but has {} and {}",
                    name, file.string(), TypeName(target.scalar_type()),
                    Json(target.sizes().vec()).dump(), from->dtype, Json(from->shape).dump()));
  }
  if (target.nbytes() > 0)
    std::memcpy(target.mutable_data_ptr(), from->data.data(), target.nbytes());
}

SafetensorsFile ReadCheckpoint(const fs::path& file) {
  SafetensorsFile stored = SafetensorsFile::Read(file, Checksum::kRequired);
  const auto format = stored.metadata().find("format");
  if (format == stored.metadata().end() || format->second != kFormat) {
    throw RunError(fmt::format("[LoadCheckpoint] {} must have format {} but has another",
                               file.string(), kFormat));
  }
  return stored;
}

TrainingState ReadState(const fs::path& file, const SafetensorsFile& stored) {
  TrainingState state;
  try {
    const Json j = Json::parse(stored.metadata().at("state"));
    j.at("step").get_to(state.step);
    j.at("epoch").get_to(state.epoch);
    j.at("batch").get_to(state.batch);
    j.at("epoch_fraction").get_to(state.epoch_fraction);
    j.at("cases").get_to(state.cases);
    j.at("seconds").get_to(state.seconds);
    j.at("input_seconds").get_to(state.input_seconds);
    j.at("evaluation_seconds").get_to(state.evaluation_seconds);
    j.at("loss_sum").get_to(state.loss_sum);
    j.at("loss_count").get_to(state.loss_count);
    j.at("last").get_to(state.last);
    j.at("threads").get_to(state.threads);
    j.at("data").get_to(state.data);
    if (j.contains("best")) {
      state.best.emplace();
      j.at("best").at("by").get_to(state.best->by);
      j.at("best").at("step").get_to(state.best->step);
      j.at("best").at("values").get_to(state.best->values);
    }
  } catch (const std::exception& e) {
    throw RunError(fmt::format("[LoadCheckpoint] {} must hold the state of a run but has: {}",
                               file.string(), e.what()));
  }
  return state;
}

}  // namespace

NamedTensors WeightsOf(const torch::nn::Module& model) {
  NamedTensors all;
  for (const auto& item : model.named_parameters())
    all.emplace_back(item.key(), item.value().detach());
  for (const auto& item : model.named_buffers())
    all.emplace_back(item.key(), item.value().detach());
  return all;
}

fs::path CheckpointFile(const fs::path& run) { return run / "checkpoint" / "state.safetensors"; }

void SaveCheckpoint(const fs::path& file, const torch::nn::Module& model, const Adam& adam,
                    const TrainingState& state) {
  NamedTensors tensors = AllTensors(model, adam, state);
  for (auto& [name, tensor] : tensors) tensor = tensor.contiguous();
  tensors.emplace_back(kGenerator, at::detail::getDefaultCPUGenerator().get_state());
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) stored.push_back(Store(name, tensor));

  Json j = {{"step", state.step},
            {"epoch", state.epoch},
            {"batch", state.batch},
            {"epoch_fraction", state.epoch_fraction},
            {"cases", state.cases},
            {"seconds", state.seconds},
            {"input_seconds", state.input_seconds},
            {"evaluation_seconds", state.evaluation_seconds},
            {"loss_sum", state.loss_sum},
            {"loss_count", state.loss_count},
            {"last", state.last},
            {"threads", state.threads},
            {"data", state.data}};
  if (state.best)
    j["best"] = {
        {"by", state.best->by}, {"step", state.best->step}, {"values", state.best->values}};
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error)
    throw RunError(fmt::format("[SaveCheckpoint] {} must be creatable but has: {}",
                               file.parent_path().string(), error.message()));
  WriteSafetensors(file, stored, {{"format", kFormat}, {"state", j.dump()}});
}

TrainingState LoadCheckpoint(const fs::path& file, torch::nn::Module& model, Adam& adam) {
  const SafetensorsFile stored = ReadCheckpoint(file);
  TrainingState state = ReadState(file, stored);
  at::NoGradGuard no_grad;
  if (state.best) {
    for (const auto& [name, tensor] : WeightsOf(model))
      state.best_weights.emplace_back(name, tensor.clone());
  }
  for (const auto& [name, tensor] : AllTensors(model, adam, state))
    Load(file, stored, name, tensor);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor generator_state = generator.get_state();
  Load(file, stored, kGenerator, generator_state);
  generator.set_state(generator_state);
  return state;
}

void LoadBestWeights(const fs::path& file, torch::nn::Module& model) {
  const SafetensorsFile stored = ReadCheckpoint(file);
  const TrainingState state = ReadState(file, stored);
  if (!state.best) {
    throw RunError(fmt::format(
        "[LoadBestWeights] {} must hold the weights of an evaluation but has none", file.string()));
  }
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : WeightsOf(model)) Load(file, stored, kBest + name, tensor);
}

std::string CheckpointData(const fs::path& file) {
  return ReadState(file, ReadCheckpoint(file)).data;
}

}  // namespace planish::lab
