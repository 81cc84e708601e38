#include "lab/analysis/thin.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/analysis/summary.h"
#include "lab/analysis/test_runs.h"
#include "lab/error.h"
#include "lab/report/report.h"
#include "lab/run/writer.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

// Returns a run of 1,000 evaluations with gradients, whose texts contain paths.
Run LongRun() {
  std::vector<double> errors;
  for (int i = 0; i < 1000; ++i) errors.push_back(.5 - .0004321234567 * i);
  Run run = FinishedRun("layer", 4, 1, errors);
  for (Evaluation& evaluation : run.evaluations) {
    evaluation.gradients = {{"first", 10, 1.23456789, 1, 1, 1, 1, 1, 1}};
    evaluation.values["unused"] = 1;
  }
  run.config.settings["source"] = "/home/someone/data/train.de";
  run.config.data.description = "Read from /home/someone/data/train.de (3 pairs, 1/2 kept).";
  run.config.stamps["folder"] = "/home/someone";
  return run;
}

void Write(const std::filesystem::path& folder, const Run& run) {
  RunWriter writer(folder);
  writer.WriteConfig(run.config);
  for (const Evaluation& evaluation : run.evaluations) writer.Append(evaluation);
  if (run.result) writer.Finish(*run.result);
}

TEST(Thin, KeepsWhatTheReportDraws) {
  const lab::Run thinned = Thinned(LongRun());
  EXPECT_LE(thinned.evaluations.size(), 64u);
  EXPECT_EQ(thinned.evaluations.front().step, 100);
  EXPECT_EQ(thinned.evaluations.back().step, 100'000);
  // .5 - .000432... * i is first at or below .10 at i = 926, which even spacing leaves out.
  EXPECT_EQ(
      Reach(Summarise({thinned})[0].panels[0].groups[0], thinned.config.metrics[2], .10).steps.mean,
      92'700);
  for (const Evaluation& evaluation : thinned.evaluations) {
    EXPECT_FALSE(evaluation.values.contains("unused"));
    EXPECT_FALSE(evaluation.values.contains("accuracy"));
    EXPECT_EQ(evaluation.values.size(),
              3u);  // loss, test_error, and the metric that chose the best
    EXPECT_EQ(evaluation.gradients.empty(), evaluation.step != 100'000);
  }
  EXPECT_EQ(thinned.evaluations.back().gradients[0].sigma, 1.23457);
}

TEST(Thin, KeepsWhereARunWasFirstAsGoodAsAnotherAtItsBest) {
  std::vector<double> errors(1000, .5);
  for (size_t i = 0; i < 40; ++i) errors[17 * i + 5] = .4 - .01 * static_cast<double>(i);
  const lab::Run thinned = Thinned(FinishedRun("layer", 4, 1, errors));
  EXPECT_LE(thinned.evaluations.size(), 101u);
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_THAT(thinned.evaluations, Contains(Field(&Evaluation::step, 100 * (17 * i + 6))));
  }
}

TEST(Thin, LeavesNoPaths) {
  const lab::Run thinned = Thinned(LongRun());
  EXPECT_EQ(thinned.config.settings["source"], "train.de");
  EXPECT_EQ(thinned.config.data.description, "Read from train.de (3 pairs, 1/2 kept).");
  EXPECT_EQ(thinned.config.stamps.at("folder"), "someone");
}

TEST(Thin, TheCopyGivesTheSameFindings) {
  const TestFolder folder;
  lab::Run run = LongRun();
  run.config.settings.erase("source");  // findings name settings
  Write(folder / "runs/a/one", run);
  Write(folder / "runs/a/two", FinishedRun("none", 4, 1, {.5, .3}));
  Write(folder / "runs/b", StartedRun("none", 4, 2));
  std::filesystem::create_directory(folder / "runs/a/one/checkpoint");
  WriteFile(folder / "runs/a/one/checkpoint/state.safetensors", "weights");
  WriteFile(folder / "runs/a/one/events.out.tfevents.1", "events");
  EXPECT_EQ(ThinRuns(folder / "runs", folder / "thin").count, 3u);
  const Runs before = FindRuns({folder / "runs"}).runs;
  const Runs after = FindRuns({folder / "thin"}).runs;
  EXPECT_EQ(Findings(after), Findings(before));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "thin/a/one")) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("config.json", "metrics.jsonl", "result.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "thin/b/result.json"));
  for (const char* file : {"config.json", "metrics.jsonl", "result.json"}) {
    EXPECT_THAT(ReadFile(folder / "thin/a/one" / file), Not(HasSubstr("/home"))) << file;
  }
}

TEST(Thin, ACopyOfACopyIsTheSame) {
  const TestFolder folder;
  Write(folder / "runs/one", LongRun());
  ThinRuns(folder / "runs", folder / "a");
  ThinRuns(folder / "a", folder / "b");
  for (const char* file : {"config.json", "metrics.jsonl", "result.json"}) {
    EXPECT_TRUE(ReadFile(folder / "a/one" / file) == ReadFile(folder / "b/one" / file)) << file;
  }
}

TEST(Thin, RefusesAPlaceAmongTheRuns) {
  const TestFolder folder;
  Write(folder / "runs/one", LongRun());
  EXPECT_THROW(ThinRuns(folder / "runs", folder / "runs"), RunError);
  EXPECT_THROW(ThinRuns(folder / "runs", folder / "runs/thin"), RunError);
  EXPECT_THROW(ThinRuns(folder / "absent", folder / "thin"), DataError);
}

TEST(Thin, LeavesBrokenRunsOut) {
  const TestFolder folder;
  Write(folder / "runs/one", LongRun());
  Write(folder / "runs/two", FinishedRun("none", 4, 1, {.5, .3}));
  WriteFile(folder / "runs/two/result.json", "");
  const ThinnedRuns thinned = ThinRuns(folder / "runs", folder / "thin");
  EXPECT_EQ(thinned.count, 1u);
  EXPECT_THAT(thinned.faults, ElementsAre(HasSubstr("two/result.json")));
  EXPECT_FALSE(std::filesystem::exists(folder / "thin/two"));
}

}  // namespace
}  // namespace planish::lab
