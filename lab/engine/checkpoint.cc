#include "lab/engine/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lab/engine/stored_weights.h"
#include "lab/error.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"
#include "lab/run/safetensors.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr char kFormat[] = "planish-checkpoint/2";
constexpr char kGenerator[] = "generator.cpu";
constexpr char kModel[] = "model.", kBest[] = "best.";

// Returns every tensor of a checkpoint, sharing memory with its owner.
NamedTensors AllTensors(const torch::nn::Module& model, const Optimizer& optimizer,
                        const TrainingState& state) {
  NamedTensors all;
  for (const auto& [name, tensor] : WeightsOf(model)) all.emplace_back(kModel + name, tensor);
  for (const auto& [name, tensor] : state.best_weights) all.emplace_back(kBest + name, tensor);
  for (const auto& item : optimizer.State()) all.push_back(item);
  return all;
}

SafetensorsFile ReadCheckpoint(const fs::path& file) {
  SafetensorsFile stored = SafetensorsFile::Read(file, Checksum::kRequired);
  const auto format = stored.metadata().find("format");
  if (format == stored.metadata().end() || format->second != kFormat) {
    throw CannotRead(file, fmt::format("format must be {}", kFormat));
  }
  return stored;
}

// Returns object[key]. Throws std::invalid_argument naming the key.
template <class T>
T ValueAt(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) {
    throw std::invalid_argument(fmt::format("{} is missing", key));
  }
  try {
    return object.at(key).get<T>();
  } catch (const std::exception& e) {
    throw std::invalid_argument(fmt::format("{}: {}", key, JsonReason(e)));
  }
}

// Returns read(). Errors of `read` then name `object`.
template <class F>
auto Within(const char* object, const F& read) {
  try {
    return read();
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(fmt::format("{}.{}", object, e.what()));
  }
}

// Parses the JSON state that SaveCheckpoint wrote. Throws std::invalid_argument naming a value that
// no interrupted training can have.
TrainingState ParseState(const std::string& text) {
  constexpr int64_t kMax = int64_t{1} << 53;
  constexpr double kMaxSeconds = 1e12;
  const Json j = ParseJson(text);
  TrainingState state;
  state.step = IntegerAt(j, "step", 0, kMax);
  state.epoch = IntegerAt(j, "epoch", 0, kMax);
  state.batch = IntegerAt(j, "batch", 0, kMax);
  state.epoch_fraction = NumberAt(j, "epoch_fraction", static_cast<double>(state.epoch),
                                  static_cast<double>(state.epoch + 1));
  state.cases = IntegerAt(j, "cases", 0, std::numeric_limits<int64_t>::max());
  state.seconds = NumberAt(j, "seconds", 0, kMaxSeconds);
  state.input_seconds = NumberAt(j, "input_seconds", 0, kMaxSeconds);
  state.cpu_seconds.reset();  // older checkpoints do not have it
  if (j.contains("cpu_seconds")) state.cpu_seconds = NumberAt(j, "cpu_seconds", 0, kMaxSeconds);
  state.evaluation_seconds = NumberAt(j, "evaluation_seconds", 0, kMaxSeconds);
  state.last = ValueAt<Evaluation>(j, "last");
  Within("last", [&] { return IntegerAt(j["last"], "step", 0, state.step); });
  const int64_t since = state.step - state.last.step;
  state.loss_count = IntegerAt(j, "loss_count", since, since);
  const double max_loss = std::numeric_limits<double>::max();
  state.loss_sum = NumberAt(j, "loss_sum", -max_loss, max_loss);
  state.threads = ValueAt<std::string>(j, "threads");
  if (state.threads.find_first_not_of("0123456789") != state.threads.npos) {
    throw std::invalid_argument("threads must be digits, got " + BriefText(state.threads));
  }
  if (j.contains("device")) state.device = ValueAt<std::string>(j, "device");
  state.data = ValueAt<std::string>(j, "data");
  if (j.contains("evaluation_due")) {
    state.evaluation_due = ValueAt<bool>(j, "evaluation_due");
    state.gradients = ValueAt<std::vector<NormGradients>>(j, "gradients");
    if (state.evaluation_due && since == 0) {
      throw std::invalid_argument("evaluation_due must be false right after an evaluation");
    }
  }
  const auto best = ValueAt<Json>(j, "best");
  state.best = Within("best", [&] {
    return RunResult::Best{ValueAt<std::string>(best, "by"),
                           IntegerAt(best, "step", 0, state.last.step),
                           ValueAt<std::map<std::string, double>>(best, "values")};
  });
  if (!state.best->values.contains(state.best->by)) {
    throw std::invalid_argument("best.values must have " + BriefText(state.best->by));
  }
  return state;
}

TrainingState ReadState(const fs::path& file, const SafetensorsFile& stored) {
  const auto text = stored.metadata().find("state");
  if (text == stored.metadata().end()) throw CannotRead(file, "state is missing");
  try {
    return ParseState(text->second);
  } catch (const std::invalid_argument& e) {
    throw CannotRead(file, fmt::format("state: {}", e.what()));
  }
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

void SaveCheckpoint(const fs::path& file, const torch::nn::Module& model,
                    const Optimizer& optimizer, const TrainingState& state) {
  NamedTensors tensors = AllTensors(model, optimizer, state);
  for (auto& [name, tensor] : tensors) tensor = tensor.cpu().contiguous();
  tensors.emplace_back(kGenerator, at::detail::getDefaultCPUGenerator().get_state());
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) stored.push_back(Stored(name, tensor));

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
            {"evaluation_due", state.evaluation_due},
            {"gradients", state.gradients},
            {"threads", state.threads},
            {"device", state.device},
            {"data", state.data}};
  if (state.cpu_seconds) j["cpu_seconds"] = *state.cpu_seconds;
  if (state.best)
    j["best"] = {
        {"by", state.best->by}, {"step", state.best->step}, {"values", state.best->values}};
  // Only this folder is created: a run folder that was removed is not created again.
  const fs::path folder = file.parent_path();
  CreateFolder(folder);
  std::error_code error;
  if (fs::is_symlink(folder, error)) throw CannotWrite(folder, "it is a symbolic link");
  WriteSafetensors(file, stored, {{"format", kFormat}, {"state", j.dump()}});
}

TrainingState LoadCheckpoint(const fs::path& file, torch::nn::Module& model, Optimizer& optimizer) {
  const SafetensorsFile stored = ReadCheckpoint(file);
  TrainingState state = ReadState(file, stored);
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : WeightsOf(model))
    state.best_weights.emplace_back(name, tensor.clone());
  for (const auto& [name, tensor] : AllTensors(model, optimizer, state))
    LoadInto(file, stored, name, tensor);
  try {
    optimizer.CheckState(state.step);
  } catch (const std::invalid_argument& e) {
    throw CannotRead(file, e.what());
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor generator_state = generator.get_state();
  LoadInto(file, stored, kGenerator, generator_state);
  try {
    generator.set_state(generator_state);
  } catch (const std::exception&) {
    throw CannotRead(file, fmt::format("{} must be the state of a Mersenne twister", kGenerator));
  }
  return state;
}

void LoadBestWeights(const fs::path& file, torch::nn::Module& model) {
  const SafetensorsFile stored = ReadCheckpoint(file);
  ReadState(file, stored);
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : WeightsOf(model)) LoadInto(file, stored, kBest + name, tensor);
}

CheckpointSummary SummarizeCheckpoint(const fs::path& file) {
  const SafetensorsFile stored = ReadCheckpoint(file);
  return {ReadState(file, stored).data, ElementsOf(stored, kModel)};
}

}  // namespace planish::lab
