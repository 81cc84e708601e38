#ifndef PLANISH_LAB_ENGINE_TOY_TASK_H_
#define PLANISH_LAB_ENGINE_TOY_TASK_H_

#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "lab/engine/task.h"

// Smallest task that uses all of the engine, for its tests.
namespace planish::lab {

struct ToyData final : Dataset {
  at::Tensor x, y;
};

struct ToyModel : torch::nn::Module {
  explicit ToyModel(const std::string& name) : norm(register_module("norm", MakeNorm(name, {3}))) {}
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
  std::shared_ptr<NormModule> norm;
  at::Tensor seen = register_buffer("seen", at::zeros({}, at::kLong));
  at::Tensor estimate = register_buffer("estimate", at::zeros({}));
};

// Regression whose loss draws from the default generator, like dropout.
struct ToyExperiment final : Experiment {
  ToyExperiment(const Settings& settings, const ToyData& points)
      : batch_size(settings.Int("batch_size")),
        spoil(settings.Text("spoil")),
        data(points),
        net(settings.Text("norm")) {}

  torch::nn::Module& model() override { return net; }
  EpochPlan PlanEpoch(at::Generator& generator) override {
    return ShuffledBatches(data.x.size(0), batch_size, generator);
  }
  Tensors Batch(const at::Tensor& cases) override {
    return {data.x.index_select(0, cases), data.y.index_select(0, cases)};
  }
  at::Tensor Loss(const Tensors& batch) override {
    net.seen.add_(1);
    if (spoil == "loss" && net.seen.item<int64_t>() == 3)
      return at::full({}, NAN).requires_grad_(true);
    if (spoil == "layer" && net.seen.item<int64_t>() == 3) FillWeights(3e38);
    if (spoil == "parameter" && net.seen.item<int64_t>() == 3) FillWeights(NAN);
    const at::Tensor kept = batch[0] * at::rand_like(batch[0]).gt(0.3).to(at::kFloat);
    return (net.norm->forward(net.linear->forward(kept)).select(1, 0) - batch[1]).square().mean();
  }
  Values Evaluate() override {
    const double loss = Error();
    const bool bad = spoil == "metric" && net.seen.item<int64_t>() > 2;
    return {{"valid_loss", bad ? INFINITY : loss}};
  }
  Values Test() override { return {{"test_loss", spoil == "test" ? NAN : Error() + 1}}; }
  double Error() {
    if (spoil == "evaluation" && net.seen.item<int64_t>() > 2) FillWeights(3e38);
    net.estimate.copy_(at::rand({}));  // like population statistics from random batches
    Poll();
    const at::Tensor y = net.norm->forward(net.linear->forward(data.x)).select(1, 0);
    return (y - data.y).square().mean().item<double>();
  }
  void FillWeights(double value) {
    const at::NoGradGuard no_grad;
    net.linear->weight.fill_(value);
  }
  std::vector<RunResult::Sample> Samples(at::Generator& generator) override {
    return {{"a number", std::to_string(at::rand({}, generator).item<double>())}};
  }

  int64_t batch_size;
  std::string spoil;
  const ToyData& data;
  ToyModel net;
};

struct ToyTask : Task {
  ToyTask() {
    name = "toy";
    summary = "a regression";
    settings = EngineSettings(NormSetting({"none", "layer"}));
    settings.push_back(
        Choice("spoil", "no", "the value that becomes NaN or infinite",
               {"no", "loss", "metric", "test", "layer", "parameter", "evaluation"}));
    presets = {{"paper", "", {{"epochs", 3}, {"batch_size", 5}}}};
    metrics = {{kTrainLoss, "loss", "", true},
               {"valid_loss", "validation loss", "", true},
               {"test_loss", "test loss", "", true}};
    choose_by = "valid_loss";
    report.headline = "valid_loss";
    report.compare = "norm";
  }
  std::unique_ptr<Dataset> Load(const Settings&,
                                const std::optional<std::filesystem::path>&) const override {
    auto data = std::make_unique<ToyData>();
    at::Generator generator = at::detail::createCPUGenerator(1);
    data->x = at::randn({43, 6}, generator);  // 43: a remainder of 3 for batches of 5
    data->y = data->x.select(1, 0) - 2 * data->x.select(1, 3);
    data->about = {"toy", "embedded", "43 points", "0", {{"train", 43}}};
    return data;
  }
  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    return std::make_unique<ToyExperiment>(s, dynamic_cast<const ToyData&>(data));
  }
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TOY_TASK_H_
