// The Planish side of bench/pi-mnist/bench.py: runs updates of the pi-mnist task with the code of
// `planish train`. One command a line on stdin, one answer a line on stdout.
//   data FILE              writes the training cases: "images" U8 [N, 784], "labels" I64 [N]
//   setup NORM BATCH FILE  makes a model; writes its parameters and the "order" I64 of the cases of
//                          the first epoch, which all later updates repeat
//   losses N               makes N updates: the loss of each
//   steps N                makes N updates: seconds, minor page faults
//   parts N                runs the necessary parts of an update (see Parts) N times: seconds each
// The first line on stdout, before any command, has the stamps of the machine as JSON.
//   usage: pi_mnist_steps THREADS [DATA_FOLDER]

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lab/data/source.h"
#include "lab/engine/adam.h"
#include "lab/engine/machine.h"
#include "lab/engine/memory.h"
#include "lab/engine/train.h"
#include "lab/run/safetensors.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kTrainCases = 55'000;
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

StoredTensor Store(const std::string& name, const char* dtype, const at::Tensor& t) {
  return {name,
          dtype,
          t.sizes().vec(),
          {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}};
}

class Steps {
 public:
  explicit Steps(std::optional<fs::path> folder)
      : folder_(std::move(folder)), task_(FindTask("pi-mnist")), settings_(task_.settings) {
    settings_.Set("train_cases", std::to_string(kTrainCases));
    settings_.Set("valid_cases", "1");
    settings_.Set("test_cases", "1");
    data_ = task_.Load(settings_, folder_);
  }

  void WriteData(const fs::path& file) const {
    // The images that Load took: the first training images.
    const Images images = OpenDigits(folder_, {.train = kTrainCases + 1, .test = 1}).train;
    const int64_t pixels = images.height * images.width;
    const at::Tensor labels = at::empty({kTrainCases}, at::kLong);
    std::copy_n(images.labels.begin(), kTrainCases, labels.mutable_data_ptr<int64_t>());
    const auto bytes = std::as_bytes(std::span(images.pixels)).first(kTrainCases * pixels);
    WriteSafetensors(file, std::vector<StoredTensor>{{"images", "U8", {kTrainCases, pixels}, bytes},
                                                     Store("labels", "I64", labels)});
  }

  void Setup(const std::string& norm, const std::string& batch_size, const fs::path& file) {
    settings_.Set("norm", norm);
    settings_.Set("batch_size", batch_size);
    settings_.Set("bn_variance", "biased");  // like torch.nn.BatchNorm1d, at any batch size
    at::Generator weights = at::detail::getDefaultCPUGenerator();
    weights.set_current_seed(kSeed);
    optimizer_.reset();
    experiment_ = task_.Make(settings_, *data_);
    optimizer_ = task_.MakeOptimizer(ParametersOf(experiment_->model()), settings_);
    at::Generator order = at::detail::createCPUGenerator(kSeed);
    epoch_ = experiment_->PlanEpoch(order);
    next_ = 0;
    std::vector<StoredTensor> stored = {Store("order", "I64", epoch_.order)};
    for (const auto& item : experiment_->model().named_parameters())
      stored.push_back(Store(item.key(), "F32", item.value()));
    WriteSafetensors(file, stored);
  }

  double Update() {
    if (!experiment_) throw std::runtime_error("[Update] the first command must be setup");
    const double loss = UpdateWeights(*experiment_, *optimizer_, {{epoch_.batch(next_)}}).loss;
    if (!std::isfinite(loss)) throw std::runtime_error("[Update] the loss must be finite");
    next_ = (next_ + 1) % epoch_.batches();
    return loss;
  }

  int64_t BatchSize() const { return settings_.Int("batch_size"); }

 private:
  std::optional<fs::path> folder_;
  const Task& task_;
  Settings settings_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Experiment> experiment_;
  std::unique_ptr<Optimizer> optimizer_;
  EpochPlan epoch_;
  int64_t next_ = 0;
};

// Necessary parts of an update of 784-1000-1000-10, separately, on the same arrays in turn: the
// memory of an update.
class Parts {
 public:
  explicit Parts(int64_t batch) {
    const std::vector<int64_t> widths = {784, 1000, 1000, 10};
    NamedTensors parameters;
    for (size_t layer = 0; layer + 1 < widths.size(); ++layer) {
      const int64_t in = widths[layer], out = widths[layer + 1];
      // Neither zeros nor denormals, which would change the speed of the arithmetic.
      layers_.push_back({.x = at::rand({batch, in}),
                         .weight = at::rand({out, in}),
                         .bias = at::rand({out}),
                         .dy = at::rand({batch, out}),
                         .y = at::empty({batch, out}),
                         .dx = at::empty({batch, in}),
                         .dweight = at::rand({out, in}),
                         .dbias = at::rand({out})});
      const std::string index = std::to_string(layer);
      parameters.emplace_back("weight" + index, layers_[layer].weight);
      parameters.emplace_back("bias" + index, layers_[layer].bias);
    }
    for (auto& [name, weight] : parameters) weight.requires_grad_(true);
    adam_.emplace(parameters, Adam::Options{});
    for (const auto& [name, tensor] : adam_->State())
      if (tensor.dim() > 0) moments_.push_back(tensor);
  }

  // Computes the matrix products of forward and backward.
  void Products() {
    at::NoGradGuard no_grad;
    for (Layer& l : layers_) at::addmm_out(l.y, l.bias, l.x, l.weight.t());
    for (size_t layer = layers_.size(); layer-- > 0;) {
      Layer& l = layers_[layer];
      at::mm_out(l.dweight, l.dy.t(), l.x);
      if (layer > 0) at::mm_out(l.dx, l.dy, l.weight);
    }
  }

  void AdamStep() {
    for (Layer& l : layers_) {
      l.weight.mutable_grad() = l.dweight;
      l.bias.mutable_grad() = l.dbias;
    }
    adam_->Step();
  }

  // Produces the memory traffic of Adam (weight, gradient and both moments read, all except the
  // gradient written) with minimal arithmetic.
  void Stream() {
    at::NoGradGuard no_grad;
    for (Layer& l : layers_) {
      l.weight.add_(l.dweight, 1e-8);
      l.bias.add_(l.dbias, 1e-8);
    }
    for (at::Tensor& moment : moments_) moment.mul_(1.0);
  }

 private:
  struct Layer {
    at::Tensor x, weight, bias, dy, y, dx, dweight, dbias;
  };
  std::vector<Layer> layers_;
  std::vector<at::Tensor> moments_;
  std::optional<Adam> adam_;
};

std::string Answer(Steps& steps, const std::string& line) {
  std::istringstream words(line);
  std::string command, norm, batch, file;
  words >> command;
  if (command == "data" && words >> file) {
    steps.WriteData(file);
    return "ok";
  }
  if (command == "setup" && words >> norm >> batch >> file) {
    steps.Setup(norm, batch, file);
    return "ok";
  }
  int64_t count = 0;
  if (!(words >> count) || count < 1)
    throw std::runtime_error("[Answer] a line must be a command, got \"" + line + "\"");
  if (command == "losses") {
    std::vector<double> losses;
    for (int64_t i = 0; i < count; ++i) losses.push_back(steps.Update());
    return fmt::format("{:.17g}", fmt::join(losses, " "));
  }
  if (command == "steps") {
    const int64_t before = MinorFaults();
    const double seconds = Seconds([&] {
      for (int64_t i = 0; i < count; ++i) steps.Update();
    });
    return fmt::format("{:.9g} {}", seconds, MinorFaults() - before);
  }
  if (command == "parts") {
    Parts parts(steps.BatchSize());
    double products = INFINITY, adam = INFINITY, stream = INFINITY;
    for (int64_t i = 0; i < count; ++i) {
      products = std::min(products, Seconds([&] { parts.Products(); }));
      adam = std::min(adam, Seconds([&] { parts.AdamStep(); }));
      stream = std::min(stream, Seconds([&] { parts.Stream(); }));
    }
    return fmt::format("{:.9g} {:.9g} {:.9g}", products, adam, stream);
  }
  throw std::runtime_error("[Answer] a line must be a command, got \"" + line + "\"");
}

int Main(int argc, char** argv) {
  const int threads = argc == 2 || argc == 3 ? std::atoi(argv[1]) : 0;
  if (threads < 1) {
    fmt::print(stderr, "usage: pi_mnist_steps THREADS [DATA_FOLDER]\n");
    return 2;
  }
  at::set_num_threads(threads);
  Steps steps(argc == 3 ? std::optional<fs::path>(argv[2]) : std::nullopt);
  std::cout << nlohmann::json(MachineStamps()).dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << Answer(steps, line) << std::endl;
  return 0;
}

}  // namespace
}  // namespace planish::lab

int main(int argc, char** argv) try {
  planish::lab::KeepFreedMemory();
  return planish::lab::Main(argc, argv);
} catch (const std::exception& e) {
  fmt::print(stderr, "pi_mnist_steps: {}\n", e.what());
  return 1;
}
