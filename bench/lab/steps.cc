// The Planish side of bench/lab/bench.py: runs updates of any task with the code of `planish
// train`. Reads a command from each line of stdin and writes one line, its answer; both are JSON. A
// member function of Steps describes each command.
//   usage: lab_steps THREADS   or, for the stamps of the machine: lab_steps --about

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/base/answer_lines.h"
#include "lab/engine/device.h"
#include "lab/engine/machine.h"
#include "lab/engine/memory.h"
#include "lab/engine/train.h"
#include "lab/run/json.h"
#include "lab/run/safetensors.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr uint64_t kSeed = 1;

template <class F>
double Seconds(F&& f) {
  const Clock::time_point start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t MinorFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

const char* Dtype(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kLong:
      return "I64";
    case at::kInt:
      return "I32";
    case at::kByte:
      return "U8";
    case at::kBool:
      return "BOOL";
    default:
      throw std::runtime_error("[Dtype] the type of a tensor is unknown");
  }
}

// Contents of a file: contiguous tensors, owned by the object.
class Store {
 public:
  void Add(const std::string& name, const at::Tensor& tensor) {
    const at::Tensor t = tensor.contiguous();
    kept_.push_back(t);
    stored_.push_back({name,
                       Dtype(t),
                       t.sizes().vec(),
                       {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
  }
  void Write(const fs::path& file) const { WriteSafetensors(file, stored_); }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<StoredTensor> stored_;
};

class Steps {
 public:
  // {"setup": TASK, "preset": NAME, "set": {SETTING: TEXT}, "data": FOLDER or null, "batches": N,
  // "file": FILE, "device": NAME}: makes a model on a device. Writes its parameters ("model.NAME")
  // and the first N batches of an epoch ("batch.INDEX.TENSOR") to FILE; all later updates repeat
  // these batches.
  Json Setup(const Json& command) {
    const Task& task = FindTask(command.at("setup").get<std::string>());
    settings_.emplace(task.settings);
    const auto name = command.at("preset").get<std::string>();
    const auto preset = std::ranges::find(task.presets, name, &Preset::name);
    if (preset == task.presets.end()) {
      throw std::runtime_error(
          fmt::format("[Setup] preset must be one of {}'s, got \"{}\"", task.name, name));
    }
    settings_->Apply(*preset);
    for (const auto& [setting, value] : command.at("set").items())
      settings_->Set(setting, value.get<std::string>());
    std::optional<fs::path> folder;
    if (!command.at("data").is_null()) folder = command.at("data").get<std::string>();
    Load(task, folder);
    task.Check(*settings_, *data_);

    at::Generator weights = at::detail::getDefaultCPUGenerator();
    weights.set_current_seed(kSeed);
    optimizer_.reset();
    experiment_ = task.Make(*settings_, *data_);
    at::Generator order = at::detail::createCPUGenerator(kSeed);
    epoch_ = experiment_->PlanEpoch(order);
    batches_ = std::min(command.at("batches").get<int64_t>(), epoch_.batches());
    next_ = 0;
    WriteStart(command.at("file").get<std::string>());
    experiment_->MoveTo(ParseDevice(command.at("device").get<std::string>()));
    optimizer_ = task.MakeOptimizer(ParametersOf(experiment_->model()), *settings_);
    clipping_ = task.MakeClipping(*settings_);
    return {{"settings", settings_->values()},
            {"data", data_->about.description},
            {"batches", batches_},
            {"epoch_batches", epoch_.batches()}};
  }

  // {"losses": N}: makes N updates. Answers with the loss of each.
  Json Losses(int64_t count) {
    Json losses = Json::array();
    for (int64_t i = 0; i < count; ++i) losses.push_back(MakeUpdate().loss);
    return losses;
  }

  // {"steps": N}: makes N updates. Answers with their seconds, the seconds within
  // Experiment::Batch, and the minor page faults.
  Json Measure(int64_t count) {
    const int64_t before = MinorFaults();
    double input_seconds = 0;
    const double seconds = Seconds([&] {
      for (int64_t i = 0; i < count; ++i) input_seconds += MakeUpdate().input_seconds;
      experiment_->model().parameters().front().sum().cpu();  // waits for a GPU
    });
    return {
        {"seconds", seconds}, {"input_seconds", input_seconds}, {"faults", MinorFaults() - before}};
  }

  // {"plans": N}: plans N epochs. Answers with the seconds of the fastest.
  double Plan(int64_t count) {
    double fastest = INFINITY;
    at::Generator order = at::detail::createCPUGenerator(kSeed);
    for (int64_t i = 0; i < count; ++i)
      fastest = std::min(fastest, Seconds([&] { experiment_->PlanEpoch(order); }));
    return fastest;
  }

 private:
  // Reads the data unless it is already loaded.
  void Load(const Task& task, const std::optional<fs::path>& folder) {
    std::string key = fmt::format("{}\n{}", task.name, folder ? folder->string() : "");
    for (const std::string& name : task.data_settings) {
      key += fmt::format("\n{}", settings_->values().at(name).dump());
    }
    if (key == data_key_) return;
    experiment_.reset();  // it refers to the data
    data_ = task.Load(*settings_, folder);
    data_key_ = key;
  }

  void WriteStart(const fs::path& file) {
    at::NoGradGuard no_grad;
    Store store;
    for (const auto& item : experiment_->model().named_parameters())
      store.Add("model." + item.key(), item.value());
    // The updates repeat a batch's random draws, such as the noise of codes.
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor state = generator.get_state();
    for (int64_t b = 0; b < batches_; ++b) {
      const Tensors batch = experiment_->Batch(epoch_.batch(b));
      for (size_t i = 0; i < batch.size(); ++i) {
        if (batch[i].defined()) store.Add(fmt::format("batch.{}.{}", b, i), batch[i]);
      }
    }
    generator.set_state(state);
    store.Write(file);
  }

  Update MakeUpdate() {
    if (!experiment_) throw std::runtime_error("[MakeUpdate] the first command must be setup");
    std::vector<at::Tensor> batches;
    for (int64_t i = 0; i < settings_->Int("accumulate"); ++i) {
      batches.push_back(epoch_.batch(next_));
      next_ = (next_ + 1) % batches_;
    }
    const Update update = UpdateWeights(*experiment_, *optimizer_, batches, clipping_);
    if (!std::isfinite(update.loss)) {
      throw std::runtime_error("[MakeUpdate] the loss must be finite");
    }
    return update;
  }

  std::optional<Settings> settings_;
  std::string data_key_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Experiment> experiment_;
  std::unique_ptr<Optimizer> optimizer_;
  Clipping clipping_;
  EpochPlan epoch_;
  int64_t batches_ = 0, next_ = 0;
};

Json Answer(Steps& steps, const std::string& line) {
  const Json command = ParseJson(line);
  const auto count = [&](const char* name) { return command.at(name).get<int64_t>(); };
  if (command.contains("setup")) return steps.Setup(command);
  if (command.contains("losses")) return steps.Losses(count("losses"));
  if (command.contains("steps")) return steps.Measure(count("steps"));
  if (command.contains("plans")) return steps.Plan(count("plans"));
  throw std::runtime_error("[Answer] a line must be a command, got " + line);
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--about") {
    std::cout << Json(MachineStamps()).dump() << std::endl;
    return 0;
  }
  const auto threads = static_cast<int>(argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0);
  if (threads < 1) {
    fmt::print(stderr, "usage: lab_steps THREADS | --about\n");
    return 2;
  }
  at::set_num_threads(threads);
  Steps steps;
  bench::AnswerLines([&](const std::string& line) { return Answer(steps, line); });
  return 0;
}

}  // namespace
}  // namespace planish::lab

int main(int argc, char** argv) try {
  planish::lab::KeepFreedMemory();
  return planish::lab::Main(argc, argv);
} catch (const std::exception& e) {
  fmt::print(stderr, "lab_steps: {}\n", e.what());
  return 1;
}
