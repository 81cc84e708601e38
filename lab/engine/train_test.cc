#include "lab/engine/train.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lab/engine/sweep.h"
#include "lab/engine/toy_task.h"
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

  // Calls Train until it is done, stopping it after the updates given.
  Outcome RunInPieces(const RunPlan& plan, const std::vector<int>& pieces) {
    for (const int piece : pieces) {
      int updates = 0;
      EXPECT_EQ(Run(plan, {.stop = [&] { return ++updates == piece; }}), Outcome::kInterrupted);
      // Whatever happens to the default generator between two calls must not matter.
      at::rand({3});
    }
    return Run(plan);
  }

  // Every metric at every step, without the times.
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

  // Every tensor of the checkpoint, as bytes.
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
  EXPECT_EQ(run.result->parameters, 7);
  EXPECT_EQ(run.result->final_values, run.evaluations.back().values);
  // Before any update; after 1/8, 1/4 and 1/2 of the first epoch (1/16 is less than an update); and
  // at the end of each epoch.
  std::vector<int64_t> steps;
  for (const Evaluation& e : run.evaluations) steps.push_back(e.step);
  EXPECT_THAT(steps, ElementsAre(0, 1, 2, 4, 8, 16, 24));
  EXPECT_EQ(run.evaluations.back().cases, 120);
  EXPECT_LT(run.evaluations.back().values.at("valid_loss"),
            run.evaluations.front().values.at("valid_loss"));
  // The best is the least validation loss of all evaluations.
  double least = INFINITY;
  for (const Evaluation& e : run.evaluations) least = std::min(least, e.values.at("valid_loss"));
  EXPECT_EQ(run.result->best->values.at("valid_loss"), least);
  // The loss of the batches is there once there were batches.
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

TEST_F(TrainTest, DrawsSamplesThatTheSeedAloneDecides) {
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

TEST_F(TrainTest, ForgetsWhatCameAfterTheCheckpoint) {
  const RunPlan whole = Plan("whole"), killed = Plan("killed");
  ASSERT_EQ(Run(whole), Outcome::kFinished);
  int updates = 0;
  ASSERT_EQ(Run(killed, {.stop = [&] { return ++updates == 9; }}), Outcome::kInterrupted);
  // A process that was killed had evaluated at step 16, but not yet saved; half a line is left,
  // too.
  const fs::path metrics = killed.folder / "metrics.jsonl";
  WriteFile(metrics,
            ReadFile(metrics) +
                R"({"step":16,"epoch":2.0,"cases":80,"seconds":1.0,"values":{"valid_loss":9.0}})" +
                "\n{\"st");
  ASSERT_EQ(Run(killed), Outcome::kFinished);
  EXPECT_EQ(Metrics(killed), Metrics(whole));
}

TEST_F(TrainTest, StartsAgainWhereNothingWasSaved) {
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

TEST(ShuffledBatches, CoversEachCaseAtMostOnce) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const EpochPlan plan = ShuffledBatches(10, 3, generator);
  ASSERT_EQ(plan.batches(), 3);
  std::vector<int64_t> seen;
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor batch = plan.batch(b);
    for (int64_t i = 0; i < batch.size(0); ++i) seen.push_back(batch[i].item<int64_t>());
  }
  EXPECT_EQ(seen.size(), 9u);
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
}

}  // namespace
}  // namespace planish::lab
