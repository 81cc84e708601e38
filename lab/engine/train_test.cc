#include "lab/engine/train.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lab/engine/adam.h"
#include "lab/engine/checkpoint.h"
#include "lab/engine/sweep.h"
#include "lab/engine/toy_task.h"
#include "lab/engine/trained.h"
#include "lab/error.h"
#include "lab/run/safetensors.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The toy has 43 cases in batches of 5: 8 updates an epoch, 24 in all.
class TrainTest : public ::testing::Test {
 protected:
  RunPlan Plan(const std::string& out,
               const std::vector<std::pair<std::string, std::string>>& sets = {},
               int64_t seed = 1) {
    SweepRequest request{.preset = "paper", .values = {}, .seeds = {seed}, .out = folder / out};
    for (const auto& [name, value] : sets) request.values.push_back({name, {value}});
    return PlanSweep(task, request).front();
  }

  Outcome Run(const RunPlan& plan, const TrainOptions& options = {}) {
    Progress progress(1, ProgressMode::kQuiet);
    return Train(task, *data, plan, {{"threads", "1"}}, options, progress);
  }

  // Calls Train until it is done, stopping it after the given numbers of updates.
  Outcome RunInPieces(const RunPlan& plan, const std::vector<int>& pieces) {
    for (const int piece : pieces) {
      int updates = 0;
      EXPECT_EQ(Run(plan, {.stop = [&] { return ++updates == piece; }}), Outcome::kInterrupted);
      // The default generator's state between two calls must not matter.
      at::rand({3});
    }
    return Run(plan);
  }

  // Returns every metric at every step, without times.
  static std::string Metrics(const RunPlan& plan) {
    std::string text;
    for (Evaluation evaluation : ReadRun(plan.folder).evaluations) {
      evaluation.seconds = 0;
      nlohmann::ordered_json j;
      to_json(j, evaluation);
      text += j.dump() + "\n";
    }
    return text;
  }

  // Returns every tensor of the checkpoint as bytes.
  static std::map<std::string, std::string> Tensors(const RunPlan& plan) {
    const auto file = SafetensorsFile::Read(plan.folder / "checkpoint" / "state.safetensors",
                                            Checksum::kRequired);
    std::map<std::string, std::string> all;
    for (const StoredTensor& t : file.tensors()) {
      all[t.name] = std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    }
    return all;
  }

  TestFolder folder;
  ToyTask task;
  std::unique_ptr<Dataset> data = task.Load(Settings(task.settings), {});
};

TEST_F(TrainTest, WritesTheFilesOfARun) {
  const RunPlan plan = Plan("a");
  EXPECT_EQ(Run(plan), Outcome::kFinished);
  const lab::Run run = ReadRun(plan.folder);
  EXPECT_EQ(run.config.task, "toy");
  EXPECT_EQ(run.config.settings.at("epochs"), 3);
  EXPECT_EQ(run.config.data.description, "43 points");
  ASSERT_TRUE(run.result);
  EXPECT_EQ(run.result->status, "finished");
  EXPECT_EQ(run.result->steps, 24);
  EXPECT_EQ(run.result->epochs, 3);
  EXPECT_EQ(run.result->parameters, 21);
  EXPECT_EQ(run.result->final_values, run.evaluations.back().values);
  // Before any update; after 1/8, 1/4 and 1/2 of the first epoch (1/16 is less than one update);
  // and after each epoch.
  std::vector<int64_t> steps;
  for (const Evaluation& e : run.evaluations) steps.push_back(e.step);
  EXPECT_THAT(steps, ElementsAre(0, 1, 2, 4, 8, 16, 24));
  EXPECT_EQ(run.evaluations.back().cases, 120);
  EXPECT_LT(run.evaluations.back().values.at("valid_loss"),
            run.evaluations.front().values.at("valid_loss"));
  // The best evaluation has the lowest validation loss.
  double lowest = INFINITY;
  for (const Evaluation& e : run.evaluations) lowest = std::min(lowest, e.values.at("valid_loss"));
  EXPECT_EQ(run.result->best->values.at("valid_loss"), lowest);
  // The mean training loss exists only after the first batches.
  EXPECT_FALSE(run.evaluations[0].values.contains(kTrainLoss));
  EXPECT_TRUE(run.evaluations[1].values.contains(kTrainLoss));
}

TEST_F(TrainTest, ResumesWithTheSameBits) {
  const RunPlan whole = Plan("whole");
  ASSERT_EQ(Run(whole), Outcome::kFinished);
  // Within an epoch, at its end, twice, right after the start, and right before the end.
  const std::vector<std::vector<int>> cuts = {{3}, {8}, {5, 6, 5}, {1}, {23}, {24 - 8, 1}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    const RunPlan pieces = Plan("pieces" + std::to_string(i));
    ASSERT_EQ(RunInPieces(pieces, cuts[i]), Outcome::kFinished);
    EXPECT_EQ(Metrics(pieces), Metrics(whole)) << i;
    EXPECT_EQ(Tensors(pieces), Tensors(whole)) << i;
    EXPECT_EQ(ReadRun(pieces.folder).result->best->step, ReadRun(whole.folder).result->best->step);
  }
}

TEST_F(TrainTest, SamplesDependOnlyOnTheSeed) {
  const RunPlan whole = Plan("whole"), pieces = Plan("pieces"), other = Plan("other", {}, 2);
  const RunPlan diverged = Plan("diverged", {{"spoil", "loss"}});
  ASSERT_EQ(Run(whole), Outcome::kFinished);
  ASSERT_EQ(RunInPieces(pieces, {3}), Outcome::kFinished);
  ASSERT_EQ(Run(other), Outcome::kFinished);
  ASSERT_EQ(Run(diverged), Outcome::kDiverged);
  const auto text = [](const RunPlan& plan) {
    return ReadRun(plan.folder).result->samples.at(0).text;
  };
  EXPECT_EQ(text(pieces), text(whole));
  EXPECT_NE(text(other), text(whole));
  EXPECT_TRUE(ReadRun(diverged.folder).result->samples.empty());
}

// The toy polls once an evaluation: seven times in 24 updates, and once in the test.
TEST_F(TrainTest, StopInAnEvaluationLosesNoUpdate) {
  const RunPlan whole = Plan("whole");
  int calls = 0;
  ASSERT_EQ(Run(whole, {.stop_evaluation = [&] { return ++calls < 0; }}), Outcome::kFinished);
  EXPECT_EQ(calls, 8);
  for (int at = 1; at <= 8; ++at) {
    const RunPlan cut = Plan("cut" + std::to_string(at));
    calls = 0;
    int updates = 0;
    const auto count = [&] { return ++updates < 0; };
    const auto stop = [&] { return ++calls == at; };
    ASSERT_EQ(Run(cut, {.stop = count, .stop_evaluation = stop}), Outcome::kInterrupted) << at;
    EXPECT_FALSE(ReadRun(cut.folder).result) << at;
    EXPECT_EQ(fs::exists(CheckpointFile(cut.folder)), at > 1) << at;
    at::rand({3});
    // The evaluation is interrupted twice; then the process is killed right after it.
    calls = at - 1;
    ASSERT_EQ(Run(cut, {.stop = count, .stop_evaluation = stop}), Outcome::kInterrupted) << at;
    const std::string checkpoint = at > 1 ? ReadFile(CheckpointFile(cut.folder)) : "";
    ASSERT_EQ(Run(cut, {.stop = count}), Outcome::kFinished);
    // `stop` is called once an update, except before an interrupted evaluation.
    const bool in_evaluation = at > 1 && at < 8;
    EXPECT_EQ(updates, in_evaluation ? 23 : 24) << at;
    EXPECT_EQ(Metrics(cut), Metrics(whole)) << at;
    if (at == 1) continue;
    WriteFile(CheckpointFile(cut.folder), checkpoint);
    fs::remove(cut.folder / "result.json");
    ASSERT_EQ(Run(cut), Outcome::kFinished);
    EXPECT_EQ(Metrics(cut), Metrics(whole)) << at;
    EXPECT_EQ(Tensors(cut), Tensors(whole)) << at;
    EXPECT_EQ(ReadRun(cut.folder).result->best->values, ReadRun(whole.folder).result->best->values);
  }
}

TEST_F(TrainTest, DropsEvaluationsAfterTheCheckpoint) {
  const RunPlan whole = Plan("whole"), killed = Plan("killed");
  ASSERT_EQ(Run(whole), Outcome::kFinished);
  int updates = 0;
  ASSERT_EQ(Run(killed, {.stop = [&] { return ++updates == 9; }}), Outcome::kInterrupted);
  // A killed process had evaluated at step 16 without saving, and left half a line.
  const fs::path metrics = killed.folder / "metrics.jsonl";
  WriteFile(metrics,
            ReadFile(metrics) +
                R"({"step":16,"epoch":2.0,"cases":80,"seconds":1.0,"values":{"valid_loss":9.0}})" +
                "\n{\"st");
  ASSERT_EQ(Run(killed), Outcome::kFinished);
  EXPECT_EQ(Metrics(killed), Metrics(whole));
}

TEST_F(TrainTest, StartsAgainIfNothingWasSaved) {
  const RunPlan whole = Plan("whole"), killed = Plan("killed");
  ASSERT_EQ(Run(whole), Outcome::kFinished);
  int updates = 0;
  ASSERT_EQ(Run(killed, {.stop = [&] { return ++updates == 9; }}), Outcome::kInterrupted);
  fs::remove_all(killed.folder / "checkpoint");
  ASSERT_EQ(Run(killed), Outcome::kFinished);
  EXPECT_EQ(Metrics(killed), Metrics(whole));
}

TEST_F(TrainTest, SkipsAFinishedRun) {
  const RunPlan plan = Plan("a");
  ASSERT_EQ(Run(plan), Outcome::kFinished);
  const std::string before = ReadFile(plan.folder / "metrics.jsonl");
  EXPECT_EQ(Run(plan), Outcome::kSkipped);
  EXPECT_EQ(ReadFile(plan.folder / "metrics.jsonl"), before);
}

TEST_F(TrainTest, RefusesAFolderOfAnotherRun) {
  RunPlan plan = Plan("a");
  ASSERT_EQ(Run(plan), Outcome::kFinished);
  RunPlan other = Plan("b", {{"lr", "0.5"}}, 2);
  other.folder = plan.folder;
  try {
    Run(other);
    FAIL();
  } catch (const RunError& e) {
    EXPECT_THAT(e.what(), HasSubstr("lr"));
    EXPECT_THAT(e.what(), HasSubstr("0.5"));
    EXPECT_THAT(e.what(), HasSubstr("seed"));
  }
}

TEST_F(TrainTest, RefusesADamagedCheckpoint) {
  const RunPlan plan = Plan("a");
  int updates = 0;
  ASSERT_EQ(Run(plan, {.stop = [&] { return ++updates == 9; }}), Outcome::kInterrupted);
  const fs::path file = plan.folder / "checkpoint" / "state.safetensors";
  std::string bytes = ReadFile(file);
  bytes[bytes.size() - 1] ^= 1;
  WriteFile(file, bytes);
  EXPECT_THROW(Run(plan), RunError);
}

// Each error names the wrong value. Otherwise such a checkpoint would crash, train forever, or
// silently skip a part of the training.
TEST_F(TrainTest, RefusesACheckpointOfAnotherTraining) {
  const RunPlan plan = Plan("a");
  int updates = 0;
  ASSERT_EQ(Run(plan, {.stop = [&] { return ++updates == 9; }}), Outcome::kInterrupted);
  const fs::path file = plan.folder / "checkpoint" / "state.safetensors";
  const std::string good = ReadFile(file);
  using Json = nlohmann::ordered_json;
  const auto fault = [&](const auto& change) -> std::string {
    WriteFile(file, good);
    {
      const auto stored = SafetensorsFile::Read(file, Checksum::kRequired);
      std::map<std::string, std::string> metadata = stored.metadata();
      Json state = Json::parse(metadata.at("state"));
      change(state);
      metadata["state"] = state.dump();
      WriteSafetensors(file, stored.tensors(), metadata);
    }
    try {
      Run(plan);
    } catch (const RunError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(fault([](Json& s) { s["epoch"] = -1; }), HasSubstr("epoch must be"));
  EXPECT_THAT(fault([](Json& s) { s["epoch"] = 4, s["epoch_fraction"] = 4; }),
              HasSubstr("must be within 3 epochs, got epoch 4"));
  EXPECT_THAT(fault([](Json& s) { s["epoch"] = 3, s["epoch_fraction"] = 3; }),
              HasSubstr("must be within 3 epochs, got epoch 3, batch 1"));
  EXPECT_THAT(fault([](Json& s) { s["batch"] = 9; }), HasSubstr("batch must be at most 8"));
  EXPECT_THAT(fault([](Json& s) { s.erase("best"); }), HasSubstr("best is missing"));
  EXPECT_THAT(fault([](Json& s) { s["best"]["by"] = "train_loss"; }),
              HasSubstr("must have the metric valid_loss"));
  EXPECT_THAT(fault([](Json& s) { s["last"]["values"] = Json::object(); }),
              HasSubstr("must have the metric valid_loss"));
  // A step that agrees with the rest of the state, but neither with the moments nor with
  // metrics.jsonl.
  EXPECT_THAT(fault([](Json& s) { s["step"] = 1009, s["last"]["step"] = 1008; }),
              HasSubstr("adam.step."));
  EXPECT_THAT(
      fault([](Json& s) { s["last"]["step"] = s["best"]["step"] = 7, s["loss_count"] = 2; }),
      HasSubstr("metrics.jsonl"));
  WriteFile(file, good);
  EXPECT_EQ(Run(plan), Outcome::kFinished);
}

TEST_F(TrainTest, StopsIfItsFolderIsRemovedOrMoved) {
  for (const bool moved : {false, true}) {
    for (const int at : {1, 3, 8, 23}) {
      const RunPlan plan = Plan((moved ? "moved" : "removed") + std::to_string(at));
      int updates = 0;
      const auto stop = [&] {
        if (++updates == at && moved) fs::rename(plan.folder, folder / "elsewhere");
        if (updates == at) fs::remove_all(plan.folder);
        return false;
      };
      try {
        Run(plan, {.checkpoint_seconds = at == 3 ? 0.0 : 60.0, .stop = stop});
        FAIL() << at;
      } catch (const RunError& e) {
        EXPECT_THAT(e.what(), HasSubstr(plan.folder.string()));
        EXPECT_THAT(e.what(), HasSubstr("removed, moved or replaced"));
      }
      EXPECT_FALSE(fs::exists(plan.folder)) << "was made again";
      EXPECT_EQ(Run(plan), Outcome::kFinished) << "is a new run";
      fs::remove_all(folder / "elsewhere");
    }
  }
}

TEST_F(TrainTest, RefusesARunThatWasRemovedInPart) {
  const RunPlan whole = Plan("whole");
  ASSERT_EQ(Run(whole), Outcome::kFinished);
  for (const char* part : {"checkpoint/state.safetensors", "metrics.jsonl", "result.json"}) {
    const RunPlan plan = Plan(part);
    fs::create_directories((plan.folder / part).parent_path());
    fs::copy(whole.folder / part, plan.folder / part);
    try {
      Run(plan);
      FAIL() << part;
    } catch (const RunError& e) {
      EXPECT_THAT(e.what(), HasSubstr((plan.folder / part).string()));
      EXPECT_THAT(e.what(), HasSubstr("config.json is missing"));
    }
    EXPECT_FALSE(fs::exists(plan.folder / "config.json"));
  }
}

// The evaluation before the checkpoint is missing.
TEST_F(TrainTest, RefusesACheckpointWithoutItsMetrics) {
  for (const bool all : {false, true}) {
    const RunPlan plan = Plan(all ? "all" : "one");
    int updates = 0;
    ASSERT_EQ(Run(plan, {.stop = [&] { return ++updates == 9; }}), Outcome::kInterrupted);
    const fs::path metrics = plan.folder / "metrics.jsonl";
    std::string text = ReadFile(metrics);
    text.pop_back();
    text.erase(all ? 0 : text.rfind('\n') + 1);
    WriteFile(metrics, text);
    EXPECT_THROW(Run(plan), RunError);
    EXPECT_EQ(ReadFile(metrics), text);
  }
}

TEST_F(TrainTest, EndsARunThatDiverges) {
  for (const std::string what : {"loss", "metric"}) {
    const RunPlan plan = Plan(what, {{"spoil", what}});
    EXPECT_EQ(Run(plan), Outcome::kDiverged);
    const RunResult result = *ReadRun(plan.folder).result;
    EXPECT_EQ(result.status, "diverged");
    EXPECT_THAT(result.message, HasSubstr(what == "loss" ? "training loss was nan at step 2"
                                                         : "valid_loss was inf at step 4"));
    EXPECT_EQ(Run(plan), Outcome::kSkipped);
  }
}

TEST_F(TrainTest, DivergenceNamesStepAndLayer) {
  const auto message = [&](const std::vector<std::pair<std::string, std::string>>& sets) {
    const RunPlan plan = Plan("a" + std::to_string(sets.size()) + sets[0].second, sets);
    EXPECT_EQ(Run(plan), Outcome::kDiverged);
    return ReadRun(plan.folder).result->message;
  };
  // Sums of products that overflow are inf or nan.
  const std::string output = ": the output of linear was ";
  EXPECT_THAT(message({{"spoil", "layer"}}),
              HasSubstr("the training loss was inf at step 2" + output));
  EXPECT_THAT(message({{"spoil", "layer"}, {"norm", "layer"}}), HasSubstr(output));
  EXPECT_THAT(message({{"spoil", "layer"}, {"norm", "layer"}, {"shards", "2"}}), HasSubstr(output));
  EXPECT_THAT(message({{"spoil", "evaluation"}}), HasSubstr("valid_loss was "));
  EXPECT_THAT(message({{"spoil", "evaluation"}, {"norm", "layer"}}), HasSubstr(output));
  const std::string parameter = "at step 2: the parameter linear.weight was nan";
  EXPECT_THAT(message({{"spoil", "parameter"}}), HasSubstr(parameter));
  EXPECT_THAT(message({{"spoil", "parameter"}, {"shards", "2"}}), HasSubstr(parameter));
}

TEST_F(TrainTest, DivergenceNamesDataThatAreNotFinite) {
  auto& points = dynamic_cast<ToyData&>(*data);
  const at::Tensor x = points.x.clone();
  points.x.fill_(NAN);
  const RunPlan plan = Plan("a");
  EXPECT_EQ(Run(plan), Outcome::kDiverged);
  EXPECT_EQ(ReadRun(plan.folder).result->message,
            "valid_loss was nan at step 0: the input of linear was nan");
  // The run continues with a batch.
  points.x.copy_(x);
  const RunPlan batch = Plan("b");
  int updates = 0;
  ASSERT_EQ(Run(batch, {.stop = [&] { return ++updates == 1; }}), Outcome::kInterrupted);
  points.x.fill_(NAN);
  EXPECT_EQ(Run(batch), Outcome::kDiverged);
  EXPECT_EQ(ReadRun(batch.folder).result->message,
            "the training loss was nan at step 1: the batch had nan");
}

TEST_F(TrainTest, GivesEachSeedItsOwnWeightsAndOrder) {
  const RunPlan one = Plan("a", {}, 1), two = Plan("a", {}, 2);
  ASSERT_EQ(Run(one), Outcome::kFinished);
  ASSERT_EQ(Run(two), Outcome::kFinished);
  EXPECT_NE(Metrics(one), Metrics(two));
}

TEST_F(TrainTest, ChecksTheBatchSizeAgainstTheData) {
  EXPECT_THROW(Run(Plan("a", {{"batch_size", "44"}})), UsageError);
  EXPECT_EQ(Run(Plan("b", {{"batch_size", "43"}})), Outcome::kFinished);
}

// The toy's test loss is its validation loss plus 1.
TEST_F(TrainTest, ReadsTheTestSetOnceWithTheWeightsThatValidationChose) {
  // A rate so high that the last evaluation is not the best.
  const RunPlan plan = Plan("a", {{"lr", "0.7"}, {"epochs", "8"}});
  ASSERT_EQ(Run(plan), Outcome::kFinished);
  const lab::Run run = ReadRun(plan.folder);
  const RunResult::Best& best = *run.result->best;
  EXPECT_LT(best.step, run.result->steps);
  EXPECT_EQ(best.values.at("test_loss"), best.values.at("valid_loss") + 1);
  EXPECT_FALSE(run.result->final_values.contains("test_loss"));
  for (const Evaluation& e : run.evaluations) EXPECT_FALSE(e.values.contains("test_loss"));
  // Also after a resumption later than the best evaluation.
  const RunPlan pieces = Plan("b", {{"lr", "0.7"}, {"epochs", "8"}});
  ASSERT_EQ(RunInPieces(pieces, {30, 33}), Outcome::kFinished);
  EXPECT_EQ(ReadRun(pieces.folder).result->best->values, best.values);
  // Also in commands that open the trained model later.
  const Trained trained = OpenTrained(task, run, {});
  EXPECT_EQ(trained.experiment->Test().at("test_loss"), best.values.at("test_loss"));
  fs::remove_all(plan.folder / "checkpoint");
  EXPECT_THROW(OpenTrained(task, run, {}), RunError);
}

TEST_F(TrainTest, OpensNoRunWhoseSettingsTheTaskLacks) {
  const RunPlan plan = Plan("a");
  ASSERT_EQ(Run(plan), Outcome::kFinished);
  lab::Run run = ReadRun(plan.folder);
  run.config.settings["batch_size"] = "many";
  EXPECT_THROW(OpenTrained(task, run, {}), RunError);
}

TEST_F(TrainTest, EndsARunWhoseTestMetricIsNotFinite) {
  const RunPlan plan = Plan("a", {{"spoil", "test"}});
  EXPECT_EQ(Run(plan), Outcome::kDiverged);
  EXPECT_THAT(ReadRun(plan.folder).result->message, HasSubstr("test_loss was nan"));
}

TEST_F(TrainTest, WritesTheGradientsAroundEachNormDown) {
  const RunPlan plain = Plan("none"), layer = Plan("layer", {{"norm", "layer"}});
  ASSERT_EQ(Run(plain), Outcome::kFinished);
  ASSERT_EQ(Run(layer), Outcome::kFinished);
  const auto evaluations = ReadRun(layer.folder).evaluations;
  EXPECT_TRUE(evaluations[0].gradients.empty()) << "before any update";
  for (size_t i = 1; i < evaluations.size(); ++i) {
    ASSERT_EQ(evaluations[i].gradients.size(), 1u) << i;
    const NormGradients& g = evaluations[i].gradients[0];
    EXPECT_EQ(g.norm, "norm");
    EXPECT_LE(g.rows, 5);
    EXPECT_GT(g.mean_detached, 0);
    EXPECT_LT(g.mean_after, 1e-6 * g.mean_detached + 1e-6);
    EXPECT_LE(g.variance_after, g.variance_detached);
  }
  const NormGradients g = ReadRun(plain.folder).evaluations.back().gradients.at(0);
  EXPECT_EQ(g.sigma, 1);
  EXPECT_EQ(g.mean_after, g.mean_before);
  EXPECT_EQ(g.variance_after, g.variance_detached);
}

TEST_F(TrainTest, AveragesTheGradientsOfAccumulatedBatches) {
  const Settings settings(task.settings);
  at::manual_seed(1);
  const auto a = task.Make(settings, *data);
  at::manual_seed(1);
  const auto b = task.Make(settings, *data);
  const auto one = task.MakeOptimizer(ParametersOf(a->model()), settings);
  const auto two = task.MakeOptimizer(ParametersOf(b->model()), settings);
  const at::Tensor first = at::arange(0, 5), second = at::arange(5, 10);
  // Both draw the same dropout masks: the first batch's, then the second's.
  at::manual_seed(2);
  (a->Loss(a->Batch(first)) / 2).backward();
  (a->Loss(a->Batch(second)) / 2).backward();
  one->Step();
  at::manual_seed(2);
  const Update update = UpdateWeights(*b, *two, {{first, second}});
  EXPECT_GT(update.loss, 0);
  for (const auto& item : a->model().named_parameters())
    EXPECT_TRUE(item.value().equal(b->model().named_parameters()[item.key()])) << item.key();
  // 43 cases in batches of 5 are 8 batches: three updates an epoch, of three, three and two
  // batches.
  const RunPlan plan = Plan("a", {{"accumulate", "3"}});
  ASSERT_EQ(Run(plan), Outcome::kFinished);
  EXPECT_EQ(ReadRun(plan.folder).result->steps, 9);
  EXPECT_EQ(ReadRun(plan.folder).evaluations.back().cases, 120);
  const RunPlan pieces = Plan("b", {{"accumulate", "3"}});
  ASSERT_EQ(RunInPieces(pieces, {2, 3}), Outcome::kFinished);
  EXPECT_EQ(Tensors(pieces), Tensors(plan));
}

// Adam's first moment after one step is (1 - beta1) times the gradient.
TEST_F(TrainTest, ClipsTheNormOfAllGradients) {
  const Settings settings(task.settings);
  const auto norm_after = [&](double clip) {
    at::manual_seed(1);
    const auto experiment = task.Make(settings, *data);
    const auto optimizer = task.MakeOptimizer(ParametersOf(experiment->model()), settings);
    UpdateWeights(*experiment, *optimizer, {{at::arange(5)}}, ClipTogether(clip));
    double square = 0;
    for (const auto& [name, t] : optimizer->State()) {
      if (name.starts_with("adam.first_moment.")) square += (t / 0.1).square().sum().item<double>();
    }
    return std::sqrt(square);
  };
  const double free = norm_after(0);
  ASSERT_GT(free, 0.5);
  // Sums of 21 squares in float.
  EXPECT_NEAR(norm_after(0.25), 0.25, 1e-6);
  EXPECT_EQ(norm_after(2 * free), free);
}

// Experiment with known gradients: the loss is 3 s a + 4 s b.
// Adam's first moments give the gradient norms of ToyTask's parameters, as in
// ClipsTheNormOfAllGradients.
TEST_F(TrainTest, ClipsTheNormOfEachGradient) {
  const Settings settings(task.settings);
  const auto norms_after = [&](double clip_each) {
    at::manual_seed(1);
    const auto experiment = task.Make(settings, *data);
    const auto optimizer = task.MakeOptimizer(ParametersOf(experiment->model()), settings);
    UpdateWeights(*experiment, *optimizer, {{at::arange(5)}}, ClipEach(clip_each));
    std::vector<double> norms;
    for (const auto& [name, t] : optimizer->State()) {
      if (name.starts_with("adam.first_moment.")) norms.push_back((t / 0.1).norm().item<double>());
    }
    return norms;
  };
  const std::vector<double> free = norms_after(0);
  const double limit = (std::ranges::min(free) + std::ranges::max(free)) / 2;
  const std::vector<double> clipped = norms_after(limit);
  ASSERT_EQ(clipped.size(), free.size());
  for (size_t i = 0; i < free.size(); ++i) {
    // Sums of at most 18 squares in float.
    EXPECT_NEAR(clipped[i], std::min(free[i], limit), 1e-6) << i;
  }
  EXPECT_LT(std::ranges::min(free), limit);
}

// A task whose updates are its own: they do nothing but count.
TEST_F(TrainTest, UsesOptimizerAndClippingOfTheTask) {
  struct Counting final : Adam {
    explicit Counting(const NamedTensors& parameters) : Adam(parameters, {}) {}
    void Move(const std::vector<at::Tensor>& /*gradients*/, double updates) override {
      count = static_cast<int>(updates);
    }
    int count = 0;
  };
  struct OwnUpdates final : ToyTask {
    std::unique_ptr<Optimizer> MakeOptimizer(const NamedTensors& parameters,
                                             const Settings& /*settings*/) const override {
      return std::make_unique<Counting>(parameters);
    }
    Clipping MakeClipping(const Settings& /*settings*/) const override {
      return [this](const std::vector<at::Tensor>& gradients) { clipped += !gradients.empty(); };
    }
    mutable int clipped = 0;
  };
  const OwnUpdates own;
  Progress progress(1, ProgressMode::kQuiet);
  ASSERT_EQ(Train(own, *data, Plan("own"), {}, {}, progress), Outcome::kFinished);
  const auto run = ReadRun(Plan("own").folder);
  EXPECT_EQ(run.evaluations.front().values.at("valid_loss"),
            run.evaluations.back().values.at("valid_loss"));
  EXPECT_EQ(own.clipped, run.result->steps);
}

TEST_F(TrainTest, FollowsItsSchedule) {
  const RunPlan constant = Plan("a"), cosine = Plan("b", {{"schedule", "cosine"}});
  const RunPlan warm = Plan("c", {{"warmup", "24"}});
  for (const RunPlan* plan : {&constant, &cosine, &warm}) ASSERT_EQ(Run(*plan), Outcome::kFinished);
  const auto loss = [&](const RunPlan& plan, size_t i) {
    return ReadRun(plan.folder).evaluations.at(i).values.at("valid_loss");
  };
  EXPECT_EQ(loss(cosine, 1), loss(constant, 1)) << "the first update has the whole rate";
  EXPECT_GT(loss(cosine, 6), loss(constant, 6)) << "and the last ones hardly any";
  EXPECT_GT(loss(warm, 1), loss(constant, 1));
}

}  // namespace
}  // namespace planish::lab
