#include "lab/engine/train.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lab/engine/checkpoint.h"
#include "lab/error.h"
#include "lab/run/events.h"
#include "lab/run/writer.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// In place of an epoch, for the generator of samples.
constexpr int64_t kSampling = -1;

// A generator for the order of one epoch. It depends on seed and epoch alone, so that the order
// needs no place in the checkpoint and is the same for every norm.
at::Generator OrderGenerator(int64_t seed, int64_t epoch) {
  // splitmix64's finaliser: neighbouring seeds and epochs give unrelated streams.
  uint64_t z = static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(epoch) + 1;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return at::detail::createCPUGenerator(z ^ (z >> 31));
}

// Whether an evaluation is due once `done` of the `batches` of an epoch are done: `per_epoch`
// times, evenly; in the first epoch also after 1/16, 1/8, 1/4 and 1/2, where the curves move
// fastest.
bool EvaluationDue(int64_t epoch, int64_t done, int64_t batches, int64_t per_epoch) {
  if (done * per_epoch / batches != (done - 1) * per_epoch / batches) return true;
  if (epoch > 0) return false;
  for (const int64_t part : {16, 8, 4, 2}) {
    if (done * part / batches == 1 && (done - 1) * part / batches == 0) return true;
  }
  return false;
}

// "nan", "inf" or "-inf": without the sign that a NaN may have.
std::string Named(double value) {
  return fmt::format("{}", std::isnan(value) ? std::abs(value) : value);
}

// One run while it is being trained.
class Training {
 public:
  Training(const Task& task, const Dataset& data, const RunPlan& plan, const TrainOptions& options,
           Progress& progress)
      : task_(task), plan_(plan), options_(options), progress_(progress) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(static_cast<uint64_t>(plan.seed));
    experiment_ = task.Make(plan.settings, data);
    adam_.emplace(MakeAdam(model(), plan.settings));
    state_.threads = std::to_string(at::get_num_threads());
  }

  // Goes on from the checkpoint, where there is one.
  void Resume(RunWriter& writer) {
    if (!fs::exists(CheckpointFile())) {
      writer.TruncateAfter(-1);
      return;
    }
    const std::string threads = state_.threads;
    state_ = LoadCheckpoint(CheckpointFile(), model(), *adam_);
    writer.TruncateAfter(state_.step);
    progress_.Note(
        fmt::format("{}: resuming at step {}", plan_.folder.filename().string(), state_.step));
    if (state_.threads != threads) {
      progress_.Warn(fmt::format(
          "warning: {}: the checkpoint was made with {} threads and goes on with {}: the last "
          "bits may differ",
          plan_.folder.filename().string(), state_.threads, threads));
    }
    state_.threads = threads;
  }

  Outcome Run(RunWriter& writer) {
    EventWriter events(plan_.folder, state_.step == 0 ? 0 : state_.step + 1);
    writer_ = &writer;
    events_ = &events;
    last_checkpoint_ = Clock::now();
    if (state_.step == 0 && state_.last.values.empty() && !Evaluate()) return Finish("diverged");

    const int64_t epochs = plan_.settings.Int("epochs");
    const int64_t per_epoch = plan_.settings.Int("evaluations_per_epoch");
    while (state_.epoch < epochs) {
      at::Generator order = OrderGenerator(plan_.seed, state_.epoch);
      const EpochPlan epoch = experiment_->PlanEpoch(order);
      while (state_.batch < epoch.batches()) {
        if (!Update(epoch)) return Finish("diverged");
        if (EvaluationDue(state_.epoch, state_.batch, epoch.batches(), per_epoch) && !Evaluate()) {
          return Finish("diverged");
        }
        ShowProgress();
        if (options_.stop()) {
          Save();
          return Outcome::kInterrupted;
        }
        if (SecondsSince(last_checkpoint_) > options_.checkpoint_seconds) Save();
      }
      state_.batch = 0;
      ++state_.epoch;
    }
    Save();
    return Finish("finished");
  }

 private:
  torch::nn::Module& model() { return experiment_->model(); }
  fs::path CheckpointFile() const { return plan_.folder / "checkpoint" / "state.safetensors"; }

  // One update of the weights. False when the loss is not finite.
  bool Update(const EpochPlan& epoch) {
    const Clock::time_point start = Clock::now();
    const at::Tensor cases = epoch.batch(state_.batch);
    const double value = UpdateWeights(*experiment_, *adam_, cases);
    if (!std::isfinite(value)) {
      message_ = fmt::format("the training loss was {} at step {}", Named(value), state_.step);
      return false;
    }
    ++state_.step;
    ++state_.batch;
    state_.cases += cases.size(0);
    state_.loss_sum += value;
    ++state_.loss_count;
    state_.seconds += SecondsSince(start);
    state_.epoch_fraction =
        static_cast<double>(state_.epoch) +
        static_cast<double>(state_.batch) / static_cast<double>(epoch.batches());
    return true;
  }

  // Measures every metric and writes them down. False when one is not finite.
  bool Evaluate() {
    const Clock::time_point start = Clock::now();
    Evaluation evaluation;
    {
      at::NoGradGuard no_grad;
      model().eval();
      evaluation.values = experiment_->Evaluate();
    }
    if (state_.loss_count > 0) {
      evaluation.values[kTrainLoss] = state_.loss_sum / static_cast<double>(state_.loss_count);
    }
    state_.evaluation_seconds += SecondsSince(start);
    for (const auto& [name, value] : evaluation.values) {
      if (!std::isfinite(value)) {
        message_ = fmt::format("{} was {} at step {}", name, Named(value), state_.step);
        return false;
      }
    }
    evaluation.step = state_.step;
    evaluation.epoch = state_.epoch_fraction;
    evaluation.cases = state_.cases;
    evaluation.seconds = state_.seconds;
    state_.loss_sum = 0;
    state_.loss_count = 0;
    ChooseBest(evaluation);
    state_.last = evaluation;
    writer_->Append(evaluation);
    events_->Scalars(evaluation.step, evaluation.values);
    return true;
  }

  void ChooseBest(const Evaluation& evaluation) {
    const auto spec = std::ranges::find(task_.metrics, task_.choose_by, &MetricSpec::name);
    const double value = evaluation.values.at(task_.choose_by);
    if (state_.best) {
      const double best = state_.best->values.at(task_.choose_by);
      if (spec->lower_is_better ? value >= best : value <= best) return;
    }
    state_.best = RunResult::Best{task_.choose_by, evaluation.step, evaluation.values};
  }

  void Save() {
    writer_->Sync();
    SaveCheckpoint(CheckpointFile(), model(), *adam_, state_);
    last_checkpoint_ = Clock::now();
  }

  Outcome Finish(const std::string& status) {
    RunResult result;
    result.status = status;
    result.message = message_;
    result.steps = state_.step;
    result.epochs = state_.epoch_fraction;
    result.seconds = state_.seconds;
    result.evaluation_seconds = state_.evaluation_seconds;
    for (const at::Tensor& weight : model().parameters()) result.parameters += weight.numel();
    result.final_values = state_.last.values;
    result.best = state_.best;
    if (status == "finished") {
      at::NoGradGuard no_grad;
      model().eval();
      at::Generator generator = OrderGenerator(plan_.seed, kSampling);
      result.samples = experiment_->Samples(generator);
    }
    writer_->Finish(result);
    return status == "finished" ? Outcome::kFinished : Outcome::kDiverged;
  }

  void ShowProgress() {
    RunProgress now;
    now.epoch = state_.epoch_fraction;
    now.epochs = static_cast<double>(plan_.settings.Int("epochs"));
    if (state_.loss_count > 0) now.loss = state_.loss_sum / static_cast<double>(state_.loss_count);
    const auto metric = state_.last.values.find(task_.report.headline);
    if (metric != state_.last.values.end()) {
      const auto spec = std::ranges::find(task_.metrics, task_.report.headline, &MetricSpec::name);
      now.metric = {spec->label, metric->second, spec->unit};
    }
    now.cases_per_second = static_cast<double>(state_.cases) / state_.seconds;
    const double spent = state_.seconds + state_.evaluation_seconds;
    now.seconds_left = spent / state_.epoch_fraction * (now.epochs - state_.epoch_fraction);
    progress_.Update(now);
  }

  const Task& task_;
  const RunPlan& plan_;
  const TrainOptions& options_;
  Progress& progress_;
  std::unique_ptr<Experiment> experiment_;
  std::optional<Adam> adam_;
  TrainingState state_;
  std::string message_;
  RunWriter* writer_ = nullptr;
  EventWriter* events_ = nullptr;
  Clock::time_point last_checkpoint_;
};

}  // namespace

Adam MakeAdam(const torch::nn::Module& model, const Settings& settings) {
  NamedTensors parameters;
  for (const auto& item : model.named_parameters())
    parameters.emplace_back(item.key(), item.value());
  return Adam(std::move(parameters), {settings.Real("lr"), settings.Real("adam_beta1"),
                                      settings.Real("adam_beta2"), settings.Real("adam_eps")});
}

double UpdateWeights(Experiment& experiment, Adam& adam, const at::Tensor& cases) {
  experiment.model().train();
  const at::Tensor loss = experiment.Loss(cases);
  const double value = loss.item<double>();
  if (std::isfinite(value)) {
    loss.backward();
    adam.Step();
  }
  return value;
}

RunConfig MakeConfig(const Task& task, const Dataset& data, const RunPlan& plan,
                     const std::map<std::string, std::string>& stamps) {
  RunConfig config;
  config.task = task.name;
  config.preset = plan.preset;
  config.settings = plan.settings.values();
  config.seed = plan.seed;
  config.data = data.about;
  config.metrics = task.metrics;
  config.report = task.report;
  config.stamps = stamps;
  return config;
}

Outcome Train(const Task& task, const Dataset& data, const RunPlan& plan,
              const std::map<std::string, std::string>& stamps, const TrainOptions& options,
              Progress& progress) {
  const RunConfig config = MakeConfig(task, data, plan, stamps);
  RunWriter writer(plan.folder);
  const bool is_new = !fs::exists(plan.folder / "config.json");
  if (!is_new) {
    const lab::Run earlier = ReadRun(plan.folder);
    const std::vector<std::string> differences = ConfigDifferences(earlier.config, config);
    if (!differences.empty()) {
      throw RunError(
          fmt::format("[train] {} must hold the run asked for but has another: {}. Choose another "
                      "--out, or remove the folder",
                      plan.folder.string(), fmt::join(differences, "; ")));
    }
    if (earlier.result) return Outcome::kSkipped;
  }
  Training training(task, data, plan, options, progress);  // refuses settings that do not fit
  if (is_new) writer.WriteConfig(config);
  training.Resume(writer);
  return training.Run(writer);
}

}  // namespace planish::lab
