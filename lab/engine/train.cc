#include "lab/engine/train.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "lab/engine/checkpoint.h"
#include "lab/engine/nonfinite.h"
#include "lab/engine/schedule.h"
#include "lab/engine/shards.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/run/events.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"
#include "lab/run/writer.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the CPU time of this process and its threads.
double CpuSeconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

// Epoch number that seeds the generator of samples.
constexpr int64_t kSampling = -1;

// Returns true if an evaluation is due after an update that raises the completed batches of an
// epoch from `before` to `done`. Evaluations are evenly spaced, `per_epoch` in each epoch.
// The first epoch has more after 1/16, 1/8, 1/4 and 1/2, where curves change fastest.
bool EvaluationDue(int64_t epoch, int64_t before, int64_t done, int64_t batches,
                   int64_t per_epoch) {
  if (done * per_epoch / batches != before * per_epoch / batches) return true;
  if (epoch > 0) return false;
  for (const int64_t part : {16, 8, 4, 2}) {
    if (done * part / batches >= 1 && before * part / batches == 0) return true;
  }
  return false;
}

std::vector<at::Tensor> GradientsOf(torch::nn::Module& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& weight : model.parameters()) {
    if (weight.grad().defined()) gradients.push_back(weight.grad());
  }
  return gradients;
}

// Returns "nan", "inf" or "-inf". Drops the sign that a NaN can have.
std::string Named(double value) {
  return fmt::format("{}", std::isnan(value) ? std::abs(value) : value);
}

// One run during its training.
class Training {
 public:
  Training(const Task& task, const Dataset& data, const RunPlan& plan, const TrainOptions& options,
           Progress& progress)
      : task_(task),
        plan_(plan),
        options_(options),
        progress_(progress),
        metrics_(task.MetricsOf(plan.settings)),
        schedule_{plan.settings.Text("schedule"), plan.settings.Real("lr"),
                  plan.settings.Int("warmup")},
        epochs_(static_cast<double>(plan.settings.Int("epochs"))) {
    experiment_ = task.MakeSeeded(plan.settings, data, plan.seed);
    experiment_->MoveTo(options.device);
    experiment_->SetStop(options.stop_evaluation);
    optimizer_ = task.MakeOptimizer(ParametersOf(model()), plan.settings);
    clipping_ = task.MakeClipping(plan.settings);
    state_.threads = std::to_string(at::get_num_threads());
    state_.device = options.device.str();
    state_.data = options.data;
    if (plan.settings.Int("shards") > 1 || processes().size() > 1) {
      sharded_.emplace(*experiment_, processes(), plan.settings.Int("shards"), plan.seed);
      if (plan.settings.Flag("sync_batch_norm")) sharded_->SynchronizeStatistics();
    }
    for (const auto& item : model().named_modules("", /*include_self=*/false)) {
      if (auto norm = std::dynamic_pointer_cast<NormModule>(item.value()))
        norms_.emplace_back(item.key(), std::move(norm));
    }
    if (!MeasuresCpu()) state_.cpu_seconds.reset();
  }

  int64_t step() const { return state_.step; }

  // Continues from the checkpoint if there is one. `writer` is null in all processes but the first.
  void Resume(RunWriter* writer) {
    writer_ = writer;
    const fs::path file = CheckpointFile(plan_.folder);
    if (!fs::exists(file)) {
      if (writer_) writer_->TruncateAfter(-1);
      return;
    }
    const std::string threads = state_.threads, device = state_.device;
    state_ = LoadCheckpoint(file, model(), *optimizer_);
    state_.data = options_.data;
    CheckState(file);
    if (writer_) {
      CheckEvaluations();
      writer_->TruncateAfter(LastEvaluated());
    }
    progress_.Note(
        fmt::format("{}: resuming at step {}", plan_.folder.filename().string(), state_.step));
    const auto warn = [&](const std::string& difference) {
      progress_.Warn(
          fmt::format("warning: {}: the checkpoint was made {}: the last bits can differ",
                      plan_.folder.filename().string(), difference));
    };
    if (state_.threads != threads) {
      warn(fmt::format("with {} threads and continues with {}", state_.threads, threads));
    }
    if (state_.device != device) {
      warn(fmt::format("on {} and continues on {}", state_.device, device));
    }
    state_.threads = threads;
    state_.device = device;
    if (!MeasuresCpu()) state_.cpu_seconds.reset();
  }

  Outcome Run() {
    if (writer_) events_.emplace(plan_.folder, state_.step == 0 ? 0 : LastEvaluated() + 1);
    last_checkpoint_ = Clock::now();
    const bool begins = state_.step == 0 && state_.last.values.empty();
    if ((begins || state_.evaluation_due) && !Evaluate()) return Finish("diverged");

    const int64_t epochs = plan_.settings.Int("epochs");
    const int64_t per_epoch = plan_.settings.Int("evaluations_per_epoch");
    while (state_.epoch < epochs) {
      at::Generator order = OrderGenerator(plan_.seed, state_.epoch);
      const EpochPlan epoch = experiment_->PlanEpoch(order);
      if (state_.batch > epoch.batches()) {
        throw CannotRead(CheckpointFile(plan_.folder),
                         fmt::format("batch must be at most {}, the batches of the epoch, got {}",
                                     epoch.batches(), state_.batch));
      }
      while (state_.batch < epoch.batches()) {
        const int64_t end =
            std::min(state_.batch + plan_.settings.Int("accumulate"), epoch.batches());
        const bool evaluate =
            EvaluationDue(state_.epoch, state_.batch, end, epoch.batches(), per_epoch);
        if (!Advance(epoch, end, evaluate)) return Finish("diverged");
        if (evaluate) {
          // One process alone saves when its evaluation is stopped.
          if (processes().size() > 1) {
            state_.evaluation_due = true;
            Save();
          }
          if (!Evaluate()) return Finish("diverged");
        }
        ShowProgress();
        if (!sharded_) wishes_ = Wishes();
        if (wishes_[kStop].item<bool>()) {
          Save();
          return Outcome::kInterrupted;
        }
        if (wishes_[kSave].item<bool>()) Save();
      }
      state_.batch = 0;
      ++state_.epoch;
    }
    Save();
    return Finish("finished");
  }

 private:
  // Elements of wishes_.
  enum { kStop, kSave };

  // Returns true if this process computes all updates on the CPU.
  bool MeasuresCpu() { return options_.device.is_cpu() && processes().size() == 1; }

  torch::nn::Module& model() { return experiment_->model(); }
  Processes& processes() { return options_.processes ? *options_.processes : alone_; }

  // Returns what this process wants to be done after an update: kStop and kSave, 1 or 0.
  at::Tensor Wishes() {
    const bool save = SecondsSince(last_checkpoint_) > options_.checkpoint_seconds;
    return at::tensor({options_.stop() ? 1.0 : 0.0, save && processes().is_first() ? 1.0 : 0.0},
                      at::kDouble);
  }

  // Returns the latest step whose evaluation is in metrics.jsonl.
  int64_t LastEvaluated() const { return state_.step - (state_.evaluation_due ? 1 : 0); }

  // Throws RunError for a checkpoint that does not match the plan or the task.
  void CheckState(const fs::path& file) const {
    const int64_t epochs = plan_.settings.Int("epochs");
    if (state_.epoch > epochs || (state_.epoch == epochs && state_.batch > 0)) {
      throw CannotRead(
          file, fmt::format("the state must be within {} epochs, got epoch {}, batch {}", epochs,
                            state_.epoch, state_.batch));
    }
    if (state_.best->by != task_.choose_by || !state_.last.values.contains(task_.choose_by)) {
      throw CannotRead(file, fmt::format("best and last must have the metric {}", task_.choose_by));
    }
  }

  // Throws RunError if metrics.jsonl does not have the checkpoint's last evaluation.
  void CheckEvaluations() const {
    const fs::path metrics = plan_.folder / "metrics.jsonl";
    int64_t last = -1;
    for (const EvaluationLine& line : ReadEvaluationLines(metrics)) {
      if (line.evaluation.step <= LastEvaluated()) last = line.evaluation.step;
    }
    if (last != state_.last.step) {
      throw CannotRead(metrics, fmt::format("it must have the evaluation at step {}, as the "
                                            "checkpoint has. Remove {} to start again",
                                            state_.last.step, plan_.folder.string()));
    }
  }

  // Updates the weights once, from the batches up to `end`. With `watch`, also records the norms'
  // gradients. Returns false if the loss is not finite.
  bool Advance(const EpochPlan& epoch, int64_t end, bool watch) {
    const Clock::time_point start = Clock::now();
    const double cpu_start = CpuSeconds();
    std::vector<at::Tensor> batches;
    int64_t cases = 0;
    for (int64_t b = state_.batch; b < end; ++b) {
      batches.push_back(epoch.batch(b));
      cases += batches.back().size(0);
    }
    optimizer_->SetLearningRate(schedule_.Rate(state_.step + 1, state_.epoch_fraction / epochs_));
    Update update;
    if (sharded_) {
      wishes_ = Wishes();
      std::vector<NormModule*> norms;
      if (watch) {
        for (const auto& [name, norm] : norms_) norms.push_back(norm.get());
      }
      update = sharded_->Run(state_.step, *optimizer_, batches, clipping_, wishes_, norms);
    } else {
      if (watch) {
        for (const auto& [name, norm] : norms_) norm->Watch();
      }
      update = UpdateWeights(*experiment_, *optimizer_, batches, clipping_);
      if (watch) {
        std::vector<at::Tensor> sums;
        for (const auto& [name, norm] : norms_) sums.push_back(norm->WatchedSums());
        if (!sums.empty()) update.norm_sums = at::stack(sums);
      }
    }
    if (watch) TakeGradients(update.norm_sums);
    if (!std::isfinite(update.loss)) {
      SetMessage("the training loss", update.loss, state_.step, update.origin);
      return false;
    }
    ++state_.step;
    state_.batch = end;
    state_.cases += cases;
    state_.loss_sum += update.loss;
    ++state_.loss_count;
    state_.seconds += SecondsSince(start);
    if (state_.cpu_seconds) *state_.cpu_seconds += CpuSeconds() - cpu_start;
    state_.input_seconds += update.input_seconds;
    state_.epoch_fraction =
        static_cast<double>(state_.epoch) +
        static_cast<double>(state_.batch) / static_cast<double>(epoch.batches());
    return true;
  }

  // Stores the gradients around norms_ from their WatchedSums.
  void TakeGradients(const at::Tensor& sums) {
    state_.gradients.clear();
    if (!sums.defined()) return;  // no norms, or a loss that is not finite
    for (size_t i = 0; i < norms_.size(); ++i) {
      std::optional<NormGradients> watched = NormModule::GradientsOf(sums[static_cast<int64_t>(i)]);
      if (!watched) continue;
      watched->norm = norms_[i].first;
      // Overflowed values mean nothing, and JSON cannot store them.
      if (std::isfinite(watched->variance_detached) && std::isfinite(watched->variance_after) &&
          std::isfinite(watched->variance_before) && std::isfinite(watched->sigma)) {
        state_.gradients.push_back(std::move(*watched));
      }
    }
  }

  // Sets the reason of a divergence. `origin` is empty or FindNonFiniteLayer's.
  void SetMessage(const std::string& what, double value, int64_t step, const std::string& origin) {
    message_ = fmt::format("{} was {} at step {}", what, Named(value), step);
    if (!origin.empty()) message_ += ": " + origin;
  }

  // Returns the layer where a metric that `evaluate` computes stopped being finite.
  template <class F>
  std::string FindOrigin(const F& evaluate) {
    std::string origin = FindNonFiniteLayer(model(), [&](const std::function<bool()>& found) {
      experiment_->SetStop([this, found] { return found() || options_.stop_evaluation(); });
      evaluate();
    });
    experiment_->SetStop(options_.stop_evaluation);
    return origin;
  }

  // Returns the metrics. If the evaluation is stopped, saves the state before it, marks the
  // evaluation as due, and rethrows EvaluationStopped.
  std::map<std::string, double> Measure() {
    at::NoGradGuard no_grad;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor generator_state = generator.get_state();
    std::vector<at::Tensor> buffers;  // an evaluation can change them (population statistics)
    for (const at::Tensor& buffer : model().buffers()) buffers.push_back(buffer.clone());
    model().eval();
    try {
      return experiment_->Evaluate();
    } catch (const EvaluationStopped&) {
      // Before the first update there is nothing to save; several processes have saved.
      if (state_.step > 0 && processes().size() == 1) {
        generator.set_state(generator_state);
        std::vector<at::Tensor> changed = model().buffers();
        for (size_t i = 0; i < changed.size(); ++i) changed[i].copy_(buffers[i]);
        state_.evaluation_due = true;
        Save();
      }
      throw;
    }
  }

  // Computes and records every metric. Returns false if one is not finite.
  bool Evaluate() {
    const Clock::time_point start = Clock::now();
    progress_.Phase("evaluating");
    Evaluation evaluation;
    evaluation.values = Measure();
    state_.evaluation_due = false;
    if (state_.loss_count > 0) {
      evaluation.values[kTrainLoss] = state_.loss_sum / static_cast<double>(state_.loss_count);
    }
    state_.evaluation_seconds += SecondsSince(start);
    for (const auto& [name, value] : evaluation.values) {
      if (!std::isfinite(value)) {
        SetMessage(name, value, state_.step, FindOrigin([&] { experiment_->Evaluate(); }));
        return false;
      }
    }
    evaluation.step = state_.step;
    evaluation.epoch = state_.epoch_fraction;
    evaluation.cases = state_.cases;
    evaluation.seconds = state_.seconds;
    evaluation.gradients = std::exchange(state_.gradients, {});
    state_.loss_sum = 0;
    state_.loss_count = 0;
    ChooseBest(evaluation);
    state_.last = evaluation;
    if (writer_) {
      writer_->Append(evaluation);
      events_->Scalars(evaluation.step, evaluation.values);
    }
    return true;
  }

  void ChooseBest(const Evaluation& evaluation) {
    const auto spec = std::ranges::find(metrics_, task_.choose_by, &MetricSpec::name);
    const double value = evaluation.values.at(task_.choose_by);
    if (state_.best) {
      const double best = state_.best->values.at(task_.choose_by);
      if (spec->lower_is_better ? value >= best : value <= best) return;
    }
    state_.best = RunResult::Best{task_.choose_by, evaluation.step, evaluation.values};
    state_.best_weights.clear();
    for (const auto& [name, tensor] : WeightsOf(model()))
      state_.best_weights.emplace_back(name, tensor.clone());
  }

  // Copies the weights that validation chose into the model.
  void TakeBestWeights() {
    const NamedTensors weights = WeightsOf(model());
    for (size_t i = 0; i < weights.size(); ++i) {
      at::Tensor weight = weights[i].second;
      weight.copy_(state_.best_weights[i].second);
    }
  }

  void Save() {
    if (sharded_) sharded_->CompleteStreams();
    if (writer_) {
      writer_->Sync();
      SaveCheckpoint(CheckpointFile(plan_.folder), model(), *optimizer_, state_);
    }
    last_checkpoint_ = Clock::now();
  }

  Outcome Finish(std::string status) {
    RunResult result;
    result.best = state_.best;
    if (status == "finished") {
      const Clock::time_point start = Clock::now();
      at::NoGradGuard no_grad;
      TakeBestWeights();
      model().eval();
      progress_.Phase(experiment_->TestPhase());
      for (const auto& [name, value] : experiment_->Test()) {
        if (!std::isfinite(value)) {
          if (status == "diverged") continue;
          SetMessage(name, value, result.best->step, FindOrigin([&] { experiment_->Test(); }));
          status = "diverged";
        } else {
          result.best->values[name] = value;
        }
      }
      at::Generator generator = OrderGenerator(plan_.seed, kSampling);
      result.samples = experiment_->Samples(generator);
      state_.evaluation_seconds += SecondsSince(start);
    }
    result.status = status;
    result.message = message_;
    result.steps = state_.step;
    result.epochs = state_.epoch_fraction;
    result.seconds = state_.seconds;
    result.input_seconds = state_.input_seconds;
    result.cpu_seconds = state_.cpu_seconds;
    result.evaluation_seconds = state_.evaluation_seconds;
    result.parameters = ParameterCount(model());
    result.final_values = state_.last.values;
    const bool has_tested = status == "finished";
    if (writer_) writer_->Finish(result, has_tested ? experiment_->predictions() : std::nullopt);
    processes().Meet();
    return status == "finished" ? Outcome::kFinished : Outcome::kDiverged;
  }

  void ShowProgress() {
    RunProgress now;
    now.epoch = state_.epoch_fraction;
    now.epochs = epochs_;
    if (state_.loss_count > 0) now.loss = state_.loss_sum / static_cast<double>(state_.loss_count);
    // The test set is read only at the end, unless the task draws its curve.
    const std::string& shown = state_.last.values.contains(task_.report.headline)
                                   ? task_.report.headline
                                   : task_.choose_by;
    const auto spec = std::ranges::find(metrics_, shown, &MetricSpec::name);
    now.metric = {spec->label, state_.last.values.at(shown), spec->unit};
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
  std::unique_ptr<Optimizer> optimizer_;
  Clipping clipping_;
  TrainingState state_;
  std::vector<MetricSpec> metrics_;
  Schedule schedule_;
  double epochs_;
  std::vector<std::pair<std::string, std::shared_ptr<NormModule>>> norms_;
  std::string message_;
  RunWriter* writer_ = nullptr;
  std::optional<EventWriter> events_;
  Processes alone_;
  std::optional<ShardedUpdates> sharded_;  // unless one process has the whole batch
  at::Tensor wishes_;
  Clock::time_point last_checkpoint_;
};

}  // namespace

at::Generator OrderGenerator(int64_t seed, int64_t epoch) {
  // splitmix64's finalizer: neighbouring seeds and epochs give unrelated streams.
  uint64_t z = static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(epoch) + 1;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return at::detail::createCPUGenerator(z ^ (z >> 31));
}

Update UpdateWeights(Experiment& experiment, Optimizer& optimizer,
                     std::span<const at::Tensor> batches, const Clipping& clipping) {
  experiment.model().train();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  Update update;
  const auto count = static_cast<double>(batches.size());
  for (const at::Tensor& cases : batches) {
    const Clock::time_point start = Clock::now();
    Tensors batch;
    {
      at::NoGradGuard no_grad;
      batch = ToDevice(experiment.Batch(cases), experiment.device());
    }
    update.input_seconds += SecondsSince(start);
    const at::Tensor before = generator.get_state();
    at::Tensor loss = experiment.Loss(batch);
    if (batches.size() > 1) loss = loss / count;
    update.loss += loss.item<double>();
    if (!std::isfinite(update.loss)) {
      loss.reset();  // frees the activations
      generator.set_state(before);
      update.origin =
          FindNonFiniteLayer(experiment.model(), batch, [&] { return experiment.Loss(batch); });
      for (const at::Tensor& weight : experiment.model().parameters())
        weight.mutable_grad().reset();
      return update;
    }
    loss.backward();
  }
  if (clipping) clipping(GradientsOf(experiment.model()));
  optimizer.Step();
  return update;
}

nlohmann::ordered_json StoredSettings(const Settings& settings) {
  nlohmann::ordered_json stored = settings.values();
  // Leaves out settings that older versions did not have, so that their runs can be continued.
  if (settings.Int("shards") == 1) stored.erase("shards");
  if (!settings.Flag("sync_batch_norm")) stored.erase("sync_batch_norm");
  return stored;
}

RunConfig MakeConfig(const Task& task, const Dataset& data, const RunPlan& plan,
                     const std::map<std::string, std::string>& stamps) {
  RunConfig config;
  config.task = task.name;
  config.preset = plan.preset;
  config.settings = StoredSettings(plan.settings);
  config.seed = plan.seed;
  config.data = data.about;
  config.metrics = task.MetricsOf(plan.settings);
  config.report = task.report;
  config.stamps = stamps;
  return config;
}

bool IsToTrain(const RunPlan& plan, const RunConfig& config) {
  if (!fs::exists(plan.folder / "config.json")) {
    for (const fs::path& part : {CheckpointFile(plan.folder), plan.folder / "metrics.jsonl",
                                 plan.folder / "result.json"}) {
      if (!fs::exists(part)) continue;
      throw RunError(
          fmt::format("{} exists, but config.json is missing: the run was removed in part. Remove "
                      "the rest of {}, or choose another --out",
                      part.string(), plan.folder.string()));
    }
    return true;
  }
  const lab::Run earlier = ReadRun(plan.folder);
  const std::vector<std::string> differences = ConfigDifferences(earlier.config, config);
  if (!differences.empty()) {
    throw RunError(
        fmt::format("{} contains another run: {}. Choose another --out, or remove the folder",
                    plan.folder.string(), fmt::join(differences, "; ")));
  }
  return !earlier.result;
}

namespace {

// Throws RunError if the processes have different settings or data.
void CheckAgreement(Processes& processes, const RunConfig& config) {
  if (processes.size() == 1) return;
  const std::string first = processes.FirstText(nlohmann::ordered_json(config).dump());
  const std::vector<std::string> differences =
      ConfigDifferences(ParseJson(first).get<RunConfig>(), config);
  if (!differences.empty()) {
    throw RunError(fmt::format("process {} has other settings or data than process 0: {}",
                               processes.rank(), fmt::join(differences, "; ")));
  }
}

// Throws RunError if a process continues from another step than the first.
void CheckCheckpoint(Processes& processes, const RunPlan& plan, int64_t step) {
  const std::string first = processes.FirstText(std::to_string(step));
  if (first != std::to_string(step)) {
    throw RunError(fmt::format(
        "process {} finds step {} in {}, process 0 finds step {}: the folder must be one "
        "that all processes share",
        processes.rank(), step, plan.folder.string(), first));
  }
}

}  // namespace

Outcome Train(const Task& task, const Dataset& data, const RunPlan& plan,
              const std::map<std::string, std::string>& stamps, const TrainOptions& options,
              Progress& progress) {
  Processes alone;
  Processes& processes = options.processes ? *options.processes : alone;
  const int64_t shards = plan.settings.Int("shards");
  if (shards % processes.size() != 0) {
    throw UsageError(
        fmt::format("[train] shards must be a multiple of the {} processes (WORLD_SIZE), got {}",
                    processes.size(), shards));
  }
  if (plan.settings.Flag("sync_batch_norm") && shards != processes.size()) {
    throw UsageError(
        fmt::format("[train] sync_batch_norm needs one shard for each process: shards must be the "
                    "number of processes (WORLD_SIZE), {}, got {}",
                    processes.size(), shards));
  }
  const RunConfig config = MakeConfig(task, data, plan, stamps);
  std::optional<RunWriter> writer;
  bool is_new = false;
  std::string is_to_train = "yes";
  if (processes.is_first()) {
    writer.emplace(plan.folder);
    is_new = !fs::exists(plan.folder / "config.json");
    if (!IsToTrain(plan, config)) is_to_train = "no";
  }
  CheckAgreement(processes, config);
  if (processes.FirstText(is_to_train) == "no") return Outcome::kSkipped;
  Training training(task, data, plan, options, progress);  // throws for settings that do not fit
  if (is_new) writer->WriteConfig(config);
  training.Resume(writer ? &*writer : nullptr);
  // All have read the same checkpoint before it is replaced.
  CheckCheckpoint(processes, plan, training.step());
  try {
    return training.Run();
  } catch (const EvaluationStopped&) {
    return Outcome::kInterrupted;
  } catch (const RunError&) {
    // Another process that was stopped has ended.
    if (processes.size() > 1 && options.stop()) return Outcome::kInterrupted;
    throw;
  }
}

}  // namespace planish::lab
