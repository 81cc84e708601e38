#include "lab/analysis/thin.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Thin, KeepsTheDataOfTheReport) {
  const lab::Run thinned = Thinned(LongRun());
  EXPECT_LE(thinned.evaluations.size(), 67u);
  EXPECT_EQ(thinned.evaluations.front().step, 100);
  EXPECT_EQ(thinned.evaluations.back().step, 100'000);
  // .5 - .000432... * i is first at or below .10 at i = 926, which even spacing leaves out.
  EXPECT_EQ(
      Reach(Summarize({thinned})[0].panels[0].groups[0], thinned.config.metrics[2], .10).steps.mean,
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

TEST(Thin, KeepsTheFirstMatchOfAnotherRunsBest) {
  std::vector<double> errors(1000, .5);
  for (size_t i = 0; i < 40; ++i) errors[17 * i + 5] = .4 - .01 * static_cast<double>(i);
  const lab::Run thinned = Thinned(FinishedRun("layer", 4, 1, errors));
  EXPECT_LE(thinned.evaluations.size(), 141u);
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

// Returns the names of the runs in an archive.
std::vector<std::string> NamesIn(const std::filesystem::path& archive) {
  std::vector<std::string> names;
  for (const auto& [name, files] : ReadArchive(archive)) names.push_back(name);
  return names;
}

std::vector<std::string> FilesBelow(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(folder));
  }
  std::ranges::sort(names);
  return names;
}

constexpr const char* kFiles[] = {"config.json", "metrics.jsonl", "result.json"};

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
  EXPECT_EQ(ThinRunsToFolders(folder / "runs", folder / "folders").count, 3u);
  const std::string before = Findings(FindRuns({folder / "runs"}).runs);
  EXPECT_EQ(Findings(FindRuns({folder / "thin"}).runs), before);
  EXPECT_EQ(Findings(FindRuns({folder / "folders"}).runs), before);
  EXPECT_THAT(FilesBelow(folder / "folders"),
              ElementsAre("a/one/config.json", "a/one/metrics.jsonl", "a/one/result.json",
                          "a/two/config.json", "a/two/metrics.jsonl", "a/two/result.json",
                          "b/config.json", "b/metrics.jsonl"));
  for (const char* file : kFiles) {
    EXPECT_THAT(ReadFile(folder / "folders/a/one" / file), Not(HasSubstr("/home"))) << file;
  }
}

TEST(Thin, RunsOfAColumnShareAnArchive) {
  const TestFolder folder;
  for (const char* norm : {"none", "layer-simple"}) {
    for (const int batch : {4, 128}) {
      for (const int seed : {1, 12}) {
        for (const char* more : {"", "-lr=0.1"}) {
          Write(folder / fmt::format("runs/task/small-{}-b{}{}-s{}", norm, batch, more, seed),
                FinishedRun(norm, batch, seed, {.5}));
        }
      }
    }
  }
  Write(folder / "runs/task/mine", FinishedRun("none", 4, 1, {.5}));
  Write(folder / "runs/small-none-b4-s1", FinishedRun("none", 4, 1, {.5}));
  Write(folder / "runs/other/small-none-b4-s2", FinishedRun("none", 4, 1, {.5}));  // seed 1
  EXPECT_EQ(ThinRuns(folder / "runs", folder / "thin").count, 19u);
  EXPECT_THAT(FilesBelow(folder / "thin"),
              ElementsAre("other/small-none-b4-s2.runs.tar.gz", "small-b4.runs.tar.gz",
                          "task/mine.runs.tar.gz", "task/small-b128-lr=0.1.runs.tar.gz",
                          "task/small-b128.runs.tar.gz", "task/small-b4-lr=0.1.runs.tar.gz",
                          "task/small-b4.runs.tar.gz"));
  EXPECT_THAT(NamesIn(folder / "thin/task/small-b4.runs.tar.gz"),
              ElementsAre("small-layer-simple-b4-s1", "small-layer-simple-b4-s12",
                          "small-none-b4-s1", "small-none-b4-s12"));
}

TEST(Thin, AddsRunsToAnArchive) {
  const TestFolder folder;
  Write(folder / "first/small-none-b4-s1", FinishedRun("none", 4, 1, {.5}));
  Write(folder / "second/small-none-b4-s2", FinishedRun("none", 4, 2, {.4}));
  Write(folder / "second/small-none-b4-s1", StartedRun("none", 4, 1));
  ThinRuns(folder / "first", folder / "thin");
  const ThinnedRuns thinned = ThinRuns(folder / "second", folder / "thin");
  EXPECT_EQ(thinned.count, 1u);
  EXPECT_THAT(thinned.kept, ElementsAre(HasSubstr("small-none-b4-s1 has no result: ")));
  const std::filesystem::path archive = folder / "thin/small-b4.runs.tar.gz";
  EXPECT_THAT(NamesIn(archive), ElementsAre("small-none-b4-s1", "small-none-b4-s2"));
  EXPECT_TRUE(ReadArchive(archive).at("small-none-b4-s1").result);
}

TEST(Thin, ACopyOfACopyIsTheSame) {
  const TestFolder folder;
  Write(folder / "runs/one", LongRun());
  ThinRunsToFolders(folder / "runs", folder / "a");
  ThinRuns(folder / "a", folder / "b");
  ThinRuns(folder / "runs", folder / "c");
  EXPECT_EQ(ReadFile(folder / "b/one.runs.tar.gz"), ReadFile(folder / "c/one.runs.tar.gz"));
  ThinRunsToFolders(folder / "b/one.runs.tar.gz", folder / "d");
  for (const char* file : kFiles) {
    EXPECT_TRUE(ReadFile(folder / "a/one" / file) == ReadFile(folder / "d/one" / file)) << file;
  }
}

TEST(Thin, ARunFolderCountsMoreThanItsArchivedCopy) {
  const TestFolder folder;
  Write(folder / "runs/one", FinishedRun("none", 4, 1, {.5, .3}));
  ThinRuns(folder / "runs", folder / "thin");
  std::filesystem::copy(folder / "thin/one.runs.tar.gz", folder / "runs");
  std::filesystem::remove_all(folder / "runs/one");
  Write(folder / "runs/one", FinishedRun("none", 4, 1, {.5, .2}));
  EXPECT_EQ(ThinRunsToFolders(folder / "runs", folder / "folders").count, 1u);
  EXPECT_THAT(ReadFile(folder / "folders/one/metrics.jsonl"), HasSubstr("0.2"));
}

TEST(Thin, FoldersDoNotReplaceRuns) {
  const TestFolder folder;
  for (const char* name : {"runs/a", "runs/b", "there/b"}) Write(folder / name, LongRun());
  EXPECT_THAT([&] { ThinRunsToFolders(folder / "runs", folder / "there"); },
              testing::ThrowsMessage<RunError>(testing::AllOf(
                  HasSubstr((folder / "there/b").string()), HasSubstr("it contains another run"))));
  EXPECT_FALSE(std::filesystem::exists(folder / "there/a"));
}

TEST(Thin, FoldersThatWereWrittenInPartAreCompleted) {
  const TestFolder folder;
  for (const char* name : {"runs/a", "runs/b"}) Write(folder / name, LongRun());
  ThinRunsToFolders(folder / "runs", folder / "thin");
  std::filesystem::remove(folder / "thin/b/config.json");
  EXPECT_EQ(ThinRunsToFolders(folder / "runs", folder / "thin").count, 2u);
  EXPECT_EQ(ReadFile(folder / "thin/a/config.json"), ReadFile(folder / "thin/b/config.json"));
}

TEST(Thin, ASingleRunGetsAFolder) {
  const TestFolder folder;
  Write(folder / "runs/one", LongRun());
  ThinRunsToFolders(folder / "runs/one", folder / "a");
  ThinRuns(folder / "runs/one", folder / "a");
  EXPECT_THAT(FilesBelow(folder / "a"), ElementsAre("one.runs.tar.gz", "one/config.json",
                                                    "one/metrics.jsonl", "one/result.json"));
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
  EXPECT_THAT(FilesBelow(folder / "thin"), ElementsAre("one.runs.tar.gz"));
}

}  // namespace
}  // namespace planish::lab
