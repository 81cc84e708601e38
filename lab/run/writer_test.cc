#include "lab/run/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

RunConfig Config() {
  RunConfig config;
  config.task = "digits";
  config.preset = "quick";
  config.settings = Json{{"norm", "layer"}, {"rate", 0.1}, {"widths", {3, 2}}};
  config.seed = 1;
  config.data.name = "mnist";
  config.data.sha256 = "abc";
  return config;
}

Evaluation At(int64_t step) { return {step, 0.1 * static_cast<double>(step), 4 * step, 0.5, {}}; }

std::vector<int64_t> Steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const Evaluation& evaluation : ReadRun(folder).evaluations) steps.push_back(evaluation.step);
  return steps;
}

TEST(RunWriter, ReadRunReadsItsFiles) {
  const TestFolder folder;
  const fs::path path = folder / "runs/new";
  RunWriter writer(path);
  EXPECT_EQ(writer.folder(), path);
  writer.WriteConfig(Config());
  Evaluation evaluation = At(3);
  evaluation.values = {{"a", 1.0 / 3}, {"b", -0.0}, {"c", 5e-324}, {"d", 4}};
  writer.Append(evaluation);
  writer.Append(At(5));
  writer.Sync();
  EXPECT_FALSE(ReadRun(path).result);
  RunResult result;
  result.status = "finished";
  result.final_values = {{"a", 1e300}};
  result.best = RunResult::Best{"a", 3, {{"a", 0.1}}};
  writer.Finish(result);
  const auto run = ReadRun(path);
  EXPECT_EQ(Json(run.config), Json(Config()));
  ASSERT_EQ(run.evaluations.size(), 2u);
  EXPECT_EQ(run.evaluations[0].values, evaluation.values);
  EXPECT_TRUE(std::signbit(run.evaluations[0].values.at("b")));
  EXPECT_EQ(run.evaluations[0].epoch, evaluation.epoch);
  EXPECT_EQ(Json(run.result.value()), Json(result));
}

TEST(RunWriter, MakesEachLineReadableAtOnce) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  writer.WriteConfig(Config());
  for (int64_t step = 1; step <= 3; ++step) {
    writer.Append(At(step));
    EXPECT_EQ(Steps(folder.path()).size(), static_cast<size_t>(step));
  }
}

TEST(RunWriter, RefusesNumbersThatJsonHasNot) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  const auto says = [](const char* key) {
    return ThrowsMessage<RunError>(AllOf(HasSubstr(", which JSON cannot store"), HasSubstr(key)));
  };
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    Evaluation evaluation = At(1);
    evaluation.values["test_error"] = bad;
    EXPECT_THAT([&] { writer.Append(evaluation); }, says("evaluation.values.test_error"));
    evaluation = At(1);
    evaluation.seconds = bad;
    EXPECT_THAT([&] { writer.Append(evaluation); }, says("evaluation.seconds"));
    RunConfig config = Config();
    config.settings["widths"][1] = bad;
    EXPECT_THAT([&] { writer.WriteConfig(config); }, says("config.settings.widths.1"));
    RunResult result;
    result.final_values["loss"] = bad;
    EXPECT_THAT([&] { writer.Finish(result); }, says("result.final.loss"));
  }
  EXPECT_THAT(folder.Entries(), ElementsAre(".lock"));
}

TEST(RunWriter, RefusesTextThatIsNotUtf8) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  RunConfig config = Config();
  config.preset = "\xff";
  EXPECT_THAT([&] { writer.WriteConfig(config); },
              ThrowsMessage<RunError>(HasSubstr("config.json: the config is not UTF-8")));
}

TEST(RunWriter, TruncatesAfterACheckpoint) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  writer.WriteConfig(Config());
  for (const int64_t step : {0, 10, 20, 30}) writer.Append(At(step));
  const std::string all = ReadFile(folder / "metrics.jsonl");
  writer.Finish(RunResult());
  writer.TruncateAfter(30);
  EXPECT_EQ(ReadFile(folder / "metrics.jsonl"), all);
  EXPECT_FALSE(ReadRun(folder.path()).result);
  writer.TruncateAfter(29);
  EXPECT_THAT(Steps(folder.path()), ElementsAre(0, 10, 20));
  writer.TruncateAfter(10);
  writer.Append(At(15));
  EXPECT_THAT(Steps(folder.path()), ElementsAre(0, 10, 15));
  writer.TruncateAfter(-1);
  EXPECT_THAT(Steps(folder.path()), IsEmpty());
  EXPECT_THAT(folder.Entries(), ElementsAre(".lock", "config.json", "metrics.jsonl"));
}

TEST(RunWriter, TruncatesAHalfWrittenLastLineAway) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  writer.WriteConfig(Config());
  writer.Append(At(1));
  const std::string whole = ReadFile(folder / "metrics.jsonl");
  WriteFile(folder / "metrics.jsonl", whole + R"({"step":2,"ep)");
  writer.TruncateAfter(2);
  EXPECT_EQ(ReadFile(folder / "metrics.jsonl"), whole);
}

TEST(RunWriter, TruncatesWithoutMetrics) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  writer.WriteConfig(Config());
  writer.TruncateAfter(5);
  EXPECT_THAT(Steps(folder.path()), IsEmpty());
}

TEST(RunWriter, DoesNotGlueALineToAHalfWrittenOne) {
  const TestFolder folder;
  for (const std::string left : {R"({"step":2,"ep)", "x"}) {
    WriteFile(folder / "metrics.jsonl", left);
    RunWriter writer(folder.path());
    writer.WriteConfig(Config());
    writer.Append(At(1));
    EXPECT_THAT(Steps(folder.path()), ElementsAre(1));
    WriteFile(folder / "metrics.jsonl", ReadFile(folder / "metrics.jsonl") + left);
  }
  RunWriter writer(folder.path());
  writer.Append(At(2));
  EXPECT_THAT(Steps(folder.path()), ElementsAre(1, 2));
}

TEST(RunWriter, RefusesToTruncateMalformedMetrics) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  WriteFile(folder / "metrics.jsonl", "nonsense\n");
  EXPECT_THAT([&] { writer.TruncateAfter(1); }, ThrowsMessage<RunError>(HasSubstr("line 1")));
  EXPECT_EQ(ReadFile(folder / "metrics.jsonl"), "nonsense\n");
}

// A file size limit cuts a write short like a full disk.
TEST(RunWriter, LeavesWholeLinesWhenTheDiskIsFull) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  writer.WriteConfig(Config());
  writer.Append(At(1));
  const rlim_t size = ReadFile(folder / "metrics.jsonl").size();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = size + 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT([&] { writer.Append(At(2)); }, ThrowsMessage<RunError>(HasSubstr("File too large")));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ReadFile(folder / "metrics.jsonl").size(), size);
  writer.Append(At(3));
  EXPECT_THAT(Steps(folder.path()), ElementsAre(1, 3));
}

TEST(RunWriter, ReportsWhyTheFolderCannotBeCreated) {
  const TestFolder folder;
  WriteFile(folder / "file", "");
  EXPECT_THAT(
      [&] { RunWriter(folder / "file" / "run"); },
      ThrowsMessage<RunError>(AllOf(HasSubstr("cannot write"), HasSubstr("Not a directory"))));
}

// Each kind of link out of the folder, in place of each file that is written.
TEST(RunWriter, WritesNothingThroughLinks) {
  for (const bool hard : {false, true}) {
    for (const char* name : {".lock", "metrics.jsonl", "config.json", "result.json",
                             "predictions.csv.gz", ".config.json.tmp", ".metrics.jsonl.tmp",
                             ".result.json.tmp", ".predictions.csv.gz.tmp"}) {
      SCOPED_TRACE(std::string(hard ? "hard " : "symbolic ") + name);
      const TestFolder folder;
      WriteFile(folder / "victim", "kept");
      fs::create_directory(folder / "run");
      if (hard) {
        fs::create_hard_link(folder / "victim", folder / "run" / name);
      } else {
        fs::create_symlink("../victim", folder / "run" / name);
      }
      try {
        RunWriter writer(folder / "run");
        writer.WriteConfig(Config());
        writer.Append(At(1));
        writer.Finish(RunResult(), PredictionsOf({"label"}, {{1}}));
        writer.TruncateAfter(0);
      } catch (const RunError& e) {
        EXPECT_THAT(e.what(), AllOf(HasSubstr("cannot"), HasSubstr(name)));
      }
      EXPECT_EQ(ReadFile(folder / "victim"), "kept");
    }
  }
}

TEST(RunWriter, RefusesALockThatIsNoFile) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / ".lock").c_str(), 0600), 0);
  EXPECT_THAT([&] { RunWriter(folder.path()); },
              ThrowsMessage<RunError>(
                  AllOf(HasSubstr((folder / ".lock").string()), HasSubstr("regular file"))));
}

// Whatever the file contains, the message shows a process number or none.
TEST(RunWriter, ShowsNoOtherContentsOfTheLock) {
  const TestFolder folder;
  const RunWriter writer(folder.path());
  WriteFile(folder / ".lock", "12\x1b[31m");
  EXPECT_THAT([&] { RunWriter(folder.path()); },
              ThrowsMessage<RunError>(HasSubstr("another process is using the run")));
}

// Each write after the folder was removed, moved or replaced.
TEST(RunWriter, WritesNothingOnceTheFolderIsGone) {
  for (const char* how : {"removed", "moved", "replaced"}) {
    for (const char* write : {"config", "append", "sync", "truncate", "finish"}) {
      SCOPED_TRACE(std::string(how) + " " + write);
      const TestFolder folder;
      const fs::path run = folder / "run";
      RunWriter writer(run);
      writer.WriteConfig(Config());
      writer.Append(At(1));
      if (how == std::string("removed")) {
        fs::remove_all(run);
      } else {
        fs::rename(run, folder / "elsewhere");
      }
      if (how == std::string("replaced")) {
        RunWriter(run).WriteConfig(Config());
      }
      const auto act = [&] {
        if (write == std::string("config")) writer.WriteConfig(Config());
        if (write == std::string("append")) writer.Append(At(2));
        if (write == std::string("sync")) writer.Sync();
        if (write == std::string("truncate")) writer.TruncateAfter(0);
        if (write == std::string("finish")) writer.Finish(RunResult());
      };
      EXPECT_THAT(act, ThrowsMessage<RunError>(AllOf(HasSubstr(run.string()),
                                                     HasSubstr("removed, moved or replaced"))));
      EXPECT_EQ(fs::exists(run), how == std::string("replaced"));
      if (fs::exists(run)) {
        EXPECT_TRUE(ReadRun(run).evaluations.empty());
      }
      if (fs::exists(folder / "elsewhere")) {
        EXPECT_THAT(Steps(folder / "elsewhere"), ElementsAre(1));
      }
    }
  }
}

TEST(RunWriter, StopsOnceMetricsAreGone) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  writer.Append(At(1));
  fs::remove(folder / "metrics.jsonl");
  EXPECT_THAT([&] { writer.Append(At(2)); }, ThrowsMessage<RunError>(HasSubstr("metrics.jsonl")));
  EXPECT_FALSE(fs::exists(folder / "metrics.jsonl"));
}

TEST(RunWriter, LocksItsFolder) {
  const TestFolder folder;
  EXPECT_FALSE(IsInUse(folder / "a"));
  {
    const RunWriter writer(folder / "a");
    EXPECT_TRUE(IsInUse(folder / "a"));
    EXPECT_THAT(
        [&] { RunWriter(folder / "a"); },
        ThrowsMessage<RunError>(AllOf(
            HasSubstr((folder / "a").string()),
            HasSubstr("another process (" + std::to_string(getpid()) + ") is using the run"))));
    const RunWriter other(folder / "b");
  }
  EXPECT_FALSE(IsInUse(folder / "a"));
  const RunWriter again(folder / "a");
}

TEST(RunWriter, IsNotDisturbedByTestsOfItsLock) {
  const TestFolder folder;
  {
    const RunWriter writer(folder.path());
  }
  std::atomic<bool> stop = false;
  std::vector<std::thread> tests;
  for (int i = 0; i < 2; ++i) {
    tests.emplace_back([&] {
      while (!stop) {
        IsInUse(folder.path());
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
  for (int i = 0; i < 300; ++i) EXPECT_NO_THROW(RunWriter(folder.path()));
  stop = true;
  for (std::thread& test : tests) test.join();
}

TEST(RunWriter, IsLockedUntilAnotherProcessDies) {
  const TestFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunWriter writer(folder.path());
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT([&] { RunWriter(folder.path()); },
              ThrowsMessage<RunError>(HasSubstr("(" + std::to_string(child) + ")")));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const RunWriter writer(folder.path());
  close(ready[0]);
  close(ready[1]);
}

TEST(ConfigDifferences, IsEmptyForTheSameRun) {
  const RunConfig a = Config();
  RunConfig b = Config();
  EXPECT_THAT(ConfigDifferences(a, b), IsEmpty());
  b.settings = Json{{"widths", {3, 2}}, {"rate", 0.1}, {"norm", "layer"}};
  b.stamps["version"] = "2";
  b.metrics = {{"m", "m", "", true}};
  b.report.title = "title";
  b.data.source = "embedded";
  b.data.description = "other";
  EXPECT_THAT(ConfigDifferences(a, b), IsEmpty());
  EXPECT_THAT(ConfigDifferences(RunConfig(), RunConfig()), IsEmpty());
}

TEST(ConfigDifferences, NamesEveryDifference) {
  const RunConfig a = Config();
  RunConfig b = Config();
  b.task = "words";
  b.preset = "full";
  b.settings = Json{{"norm", "layer"}, {"rate", 0.25}, {"batch_size", 128}};
  b.seed = 2;
  b.data.name = "drawn";
  b.data.sha256 = "def";
  EXPECT_THAT(
      ConfigDifferences(a, b),
      ElementsAre(R"(task: "words" instead of "digits")", R"(preset: "full" instead of "quick")",
                  "rate: 0.25 instead of 0.1", "widths: nothing instead of [3,2]",
                  "batch_size: 128 instead of nothing", "seed: 2 instead of 1",
                  R"(data: "drawn" instead of "mnist")", R"(data sha256: "def" instead of "abc")"));
}

TEST(ConfigDifferences, SeesTheLastBitAndInsideValues) {
  const RunConfig a = Config();
  RunConfig b = Config();
  b.settings["rate"] = std::nextafter(0.1, 1);
  EXPECT_THAT(ConfigDifferences(a, b), ElementsAre("rate: 0.10000000000000002 instead of 0.1"));
  b = Config();
  b.settings["widths"] = {2, 3};
  EXPECT_THAT(ConfigDifferences(a, b), ElementsAre("widths: [2,3] instead of [3,2]"));
  // Read back from a file, 1.0 is still equal to 1.
  b = Config();
  RunConfig c = Config();
  b.settings["rate"] = 1;
  c.settings["rate"] = 1.0;
  EXPECT_THAT(ConfigDifferences(b, c), IsEmpty());
}

TEST(ConfigDifferences, IsEmptyAfterAFile) {
  const TestFolder folder;
  RunWriter writer(folder.path());
  RunConfig config = Config();
  config.settings["rate"] = 1.0 / 3;
  config.settings["whole"] = 2.0;
  writer.WriteConfig(config);
  EXPECT_THAT(ConfigDifferences(ReadRun(folder.path()).config, config), IsEmpty());
}

}  // namespace
}  // namespace planish::lab
