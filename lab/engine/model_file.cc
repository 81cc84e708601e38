#include "lab/engine/model_file.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/engine/checkpoint.h"
#include "lab/engine/stored_weights.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr char kModelFormat[] = "planish-model/1";
constexpr std::string_view kWeights = "model.", kPackedData = "data.";

// Returns t in `type`, if it is in floating point and no element becomes infinite.
at::Tensor Rounded(const std::string& name, const at::Tensor& t, at::ScalarType type) {
  if (!t.is_floating_point()) return t;
  at::Tensor rounded = t.to(type);
  if (!at::isfinite(rounded).equal(at::isfinite(t))) {
    throw UsageError(fmt::format(
        "[export] --dtype must have the range of all weights, got {}: {} "
        "has {}",
        type == at::kHalf ? "float16" : c10::toString(type), name, t.abs().max().item<double>()));
  }
  return rounded;
}

// Returns the text of the metadata's `key`.
const std::string& TextAt(const fs::path& file, const SafetensorsFile& stored, const char* key) {
  const auto found = stored.metadata().find(key);
  if (found == stored.metadata().end()) throw CannotRead(file, fmt::format("{} is missing", key));
  return found->second;
}

// Returns read(JSON of the metadata's `key`). Its errors name file and key.
template <class F>
auto Parsed(const fs::path& file, const SafetensorsFile& stored, const char* key, const F& read) {
  const std::string& text = TextAt(file, stored, key);
  try {
    const Json json = ParseJson(text);
    if (!json.is_object()) throw std::invalid_argument("it must be an object");
    return read(json);
  } catch (const std::exception& e) {
    throw CannotRead(file, fmt::format("{}: {}", key, JsonReason(e)));
  }
}

}  // namespace

void ExportModel(const fs::path& file, const Task& task, const Run& run, const Trained& trained,
                 at::ScalarType type) {
  const std::optional<PackedData> packed = task.Pack(*trained.data);
  if (!packed) {
    throw UsageError(
        fmt::format("[export] {} must be of a task whose models work without data, got task {}",
                    run.folder.string(), task.name));
  }
  NamedTensors tensors;
  for (const auto& [name, t] : WeightsOf(trained.experiment->model())) {
    tensors.emplace_back(std::string(kWeights) + name, Rounded(name, t.cpu(), type).contiguous());
  }
  for (const auto& [name, t] : packed->tensors) {
    tensors.emplace_back(std::string(kPackedData) + name, t.contiguous());
  }
  std::vector<StoredTensor> stored;
  for (const auto& [name, t] : tensors) stored.push_back(Stored(name, t));
  RunConfig config = run.config;
  RemovePaths(config);
  const Json best = run.result && run.result->best ? Json(run.result->best->values) : Json();
  WriteSafetensors(OutputTarget(file), stored,
                   {{"format", kModelFormat},
                    {"config", Json(config).dump()},
                    {"values", best.dump()},
                    {"data", packed->values.dump()}});
}

bool IsExportedModel(const fs::path& path) try {
  const SafetensorsFile stored = SafetensorsFile::Read(path);
  const auto format = stored.metadata().find("format");
  return format != stored.metadata().end() && format->second.starts_with("planish-model/");
} catch (const RunError&) {
  return false;
}

ExportedModel ReadModel(const fs::path& file) {
  ExportedModel model;
  model.weights = SafetensorsFile::Read(file);
  const SafetensorsFile& stored = model.weights;
  const auto format = stored.metadata().find("format");
  if (format == stored.metadata().end() || format->second != kModelFormat) {
    throw CannotRead(file, fmt::format("format must be {}", kModelFormat));
  }
  model.run.folder = file;
  model.run.config =
      Parsed(file, stored, "config", [](const Json& j) { return j.get<RunConfig>(); });
  model.data.values = Parsed(file, stored, "data", [](const Json& j) { return j; });
  for (const StoredTensor& t : stored.tensors()) {
    if (!t.name.starts_with(kPackedData)) continue;
    model.data.tensors.emplace_back(t.name.substr(kPackedData.size()), ToTensor(file, t));
  }
  return model;
}

Trained OpenModel(const Task& task, const ExportedModel& model) {
  const fs::path& file = model.run.folder;
  const Settings settings = SettingsOf(task, model.run);
  Trained trained;
  try {
    trained.data = task.Unpack(settings, model.data);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw CannotRead(file, fmt::format("data: {}", JsonReason(e)));
  }
  trained.data->about = model.run.config.data;
  try {
    trained.experiment = MakeStored(file, task, settings, *trained.data, /*cases=*/0,
                                    ElementsOf(model.weights, kWeights));
  } catch (const UsageError& e) {
    throw CannotRead(file, e.what());
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : WeightsOf(trained.experiment->model())) {
    const std::string stored_name = std::string(kWeights) + name;
    const StoredTensor* stored = model.weights.Find(stored_name);
    if (stored == nullptr || !target.is_floating_point()) {
      LoadInto(file, model.weights, stored_name, target);
      continue;
    }
    const at::Tensor values = ToTensor(file, *stored);
    if (!values.is_floating_point() || values.sizes() != target.sizes()) {
      LoadInto(file, model.weights, stored_name, target);  // throws what differs
    }
    if (!at::isfinite(values).all().item<bool>()) {
      throw CannotRead(file, fmt::format("{} must have only finite values", stored_name));
    }
    target.copy_(values);
  }
  trained.experiment->model().eval();
  return trained;
}

}  // namespace planish::lab
