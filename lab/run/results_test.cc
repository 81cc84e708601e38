#include "lab/run/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

RunConfig Config() {
  RunConfig config;
  config.task = "digits";
  config.preset = "quick";
  config.settings = Json{{"norm", "layer"}, {"batch_size", 4}, {"rate", 0.1}, {"widths", {3, 2}}};
  config.seed = -3;
  config.data = {
      "mnist", "files", "Handwritten digits.", "abc", {{"train", 60000}, {"test", 10000}}};
  config.metrics = {{"test_error", "test error", "%", true}, {"bits", "bits", "", false}};
  config.report.title = "Digits";
  config.report.curves = {"test_error"};
  config.report.targets = {{"test_error", {0.02, 0.01}}};
  config.stamps = {{"version", "0.1.0"}};
  return config;
}

const char kLine[] = R"({"step":5,"epoch":0.5,"cases":20,"seconds":1.25,"values":{"loss":0.1}})";

// Writes a minimal run folder.
void WriteRun(const fs::path& folder) {
  fs::create_directories(folder);
  WriteFile(folder / "config.json", Json(Config()).dump());
}

// Returns the error for a folder with `metrics`, or "none".
std::string MetricsFault(const std::string& metrics) {
  const TestFolder folder;
  WriteRun(folder.path());
  WriteFile(folder / "metrics.jsonl", metrics);
  try {
    ReadRun(folder.path());
  } catch (const RunError& e) {
    EXPECT_THAT(e.what(), HasSubstr((folder / "metrics.jsonl").string()));
    return e.what();
  }
  return "none";
}

TEST(ReadRun, RoundTripsTheConfig) {
  const TestFolder folder;
  WriteRun(folder.path());
  const auto run = ReadRun(folder.path());
  EXPECT_EQ(run.folder, folder.path());
  EXPECT_EQ(Json(run.config), Json(Config()));
  EXPECT_EQ(run.config.seed, -3);
  EXPECT_EQ(run.config.settings.begin().key(), "norm");
  EXPECT_EQ(run.config.data.sizes.at("train"), 60000);
  EXPECT_EQ(run.config.metrics.at(1).name, "bits");
  EXPECT_FALSE(run.config.metrics.at(1).lower_is_better);
  EXPECT_THAT(run.config.report.targets.at(0).values, ElementsAre(0.02, 0.01));
  EXPECT_TRUE(run.evaluations.empty());
  EXPECT_FALSE(run.result);
}

// Older versions stored the claims of the papers, which are derived now.
TEST(ReadRun, IgnoresStoredClaims) {
  const TestFolder folder;
  Json config = Config();
  config["report"]["claims"] = {{{"text", "a"}, {"where", {{"batch_size", 4}}}}};
  WriteFile(folder / "config.json", config.dump());
  EXPECT_EQ(Json(ReadRun(folder.path()).config), Json(Config()));
}

TEST(ReadRun, RoundTripsAConfigWithoutSettings) {
  const TestFolder folder;
  WriteFile(folder / "config.json", Json(RunConfig()).dump());
  EXPECT_EQ(ReadRun(folder.path()).config.settings, Json::object());
}

TEST(ReadRun, RoundTripsEvaluationsToTheBit) {
  const TestFolder folder;
  WriteRun(folder.path());
  const double values[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1.0 / 3, 3};
  Evaluation evaluation{int64_t{1} << 53, 1.0 / 7, (int64_t{1} << 62) + 1, 1e-9, {}};
  for (const double& value : values) evaluation.values[std::to_string(&value - values)] = value;
  WriteFile(folder / "metrics.jsonl", Json(evaluation).dump() + "\n");
  const auto run = ReadRun(folder.path());
  ASSERT_EQ(run.evaluations.size(), 1u);
  const Evaluation& read = run.evaluations[0];
  EXPECT_EQ(read.step, evaluation.step);
  EXPECT_EQ(read.cases, evaluation.cases);
  EXPECT_EQ(read.epoch, evaluation.epoch);
  EXPECT_EQ(read.seconds, evaluation.seconds);
  EXPECT_EQ(read.values, evaluation.values);
  EXPECT_TRUE(std::signbit(read.values.at("1")));
}

TEST(ReadRun, RoundTripsSamples) {
  const TestFolder folder;
  WriteRun(folder.path());
  RunResult result;
  const std::string svg = std::string(kSvgBegin) + "viewBox=\"0 0 1 1\"><path d=\"\"/></svg>";
  result.samples = {{"first", "a\n\"é\""}, {"second", "no \xFF UTF-8"}, {"third", "", svg}};
  WriteFile(folder / "result.json", Json(result).dump());
  const RunResult read = *ReadRun(folder.path()).result;
  ASSERT_EQ(read.samples.size(), 3u);
  EXPECT_EQ(read.samples[0].title, "first");
  EXPECT_EQ(read.samples[0].text, "a\n\"é\"");
  EXPECT_EQ(read.samples[1].text, "no \xEF\xBF\xBD UTF-8");
  EXPECT_EQ(read.samples[1].svg, "");
  EXPECT_EQ(read.samples[2].svg, svg);
}

TEST(ReadRun, RefusesPicturesThatAreNoSvg) {
  const TestFolder folder;
  WriteRun(folder.path());
  const std::string begin(kSvgBegin);
  for (const std::string& svg :
       {std::string("<script>alert(1)</script>"), "<svg></svg>" + begin, begin + "width=\"1\"/>",
        begin + "></svg>\n", " " + begin + "></svg>"}) {
    RunResult result;
    result.samples = {{"drawn", "", svg}};
    WriteFile(folder / "result.json", Json(result).dump());
    try {
      ReadRun(folder.path());
      FAIL() << svg;
    } catch (const RunError& e) {
      EXPECT_THAT(e.what(), HasSubstr("result.json"));
      EXPECT_THAT(e.what(), HasSubstr("a sample's svg must begin with <svg xmlns="));
    }
  }
}

TEST(ReadRun, RoundTripsTheResult) {
  const TestFolder folder;
  WriteRun(folder.path());
  RunResult result{"diverged", "the loss is NaN", 7,  0.5, 1.5, 0.125, 0.25,
                   1234,       {{"loss", 2}},     {}, {}};
  for (const bool with_best : {false, true}) {
    if (with_best) {
      result.best = RunResult::Best{"valid_error", 5, {{"test_error", 0.02}}};
      result.cpu_seconds = 1.25;
    }
    WriteFile(folder / "result.json", Json(result).dump());
    const auto run = ReadRun(folder.path());
    ASSERT_TRUE(run.result);
    EXPECT_EQ(Json(*run.result), Json(result));
    EXPECT_EQ(run.result->message, "the loss is NaN");
    EXPECT_EQ(run.result->parameters, 1234);
    EXPECT_EQ(run.result->best.has_value(), with_best);
    EXPECT_EQ(run.result->cpu_seconds.has_value(), with_best);
  }
}

TEST(ReadRun, LeavesOutAHalfWrittenLastLine) {
  const std::string line = kLine;
  for (const size_t half : {size_t{1}, line.size() / 2, line.size()}) {
    const TestFolder folder;
    WriteRun(folder.path());
    WriteFile(folder / "metrics.jsonl", line + "\n" + line.substr(0, half));
    EXPECT_EQ(ReadRun(folder.path()).evaluations.size(), 1u) << half;
  }
  EXPECT_EQ(MetricsFault(line.substr(0, 10)), "none");
  EXPECT_EQ(MetricsFault(""), "none");
}

TEST(ReadRun, NamesTheMalformedLine) {
  const std::string line = std::string(kLine) + "\n";
  EXPECT_EQ(MetricsFault(line + line), "none");
  for (const std::string& bad : std::vector<std::string>{
           "{", "", "nonsense", "{}{}", "\xff", R"({"step":1e999})", std::string(kLine) + '\0'}) {
    EXPECT_THAT(MetricsFault(line + line + bad + "\n" + line),
                AllOf(HasSubstr("cannot read"), HasSubstr("line 3: ")))
        << bad;
  }
  EXPECT_THAT(MetricsFault(std::string(1, '\0') + "\n"), HasSubstr("line 1: a zero byte"));
}

TEST(ReadRun, NamesTheMissingKeyAndItsLine) {
  for (const char* key : {"step", "epoch", "cases", "seconds", "values"}) {
    Json json = Json::parse(kLine);
    json.erase(key);
    EXPECT_THAT(MetricsFault(std::string(kLine) + "\n" + json.dump() + "\n"),
                AllOf(HasSubstr("line 2: "), HasSubstr(key)));
  }
  EXPECT_THAT(MetricsFault("[]\n"), HasSubstr("line 1: "));
}

TEST(ReadRun, RefusesNumbersOfAnotherTypeOrRange) {
  const auto with = [](const char* key, const char* value) {
    Json json = Json::parse(kLine);
    json[key] = Json::parse(value);
    return MetricsFault(json.dump() + "\n");
  };
  for (const char* step : {"1.5", "1e300", "true", "\"1\"", "null", "9223372036854775808"}) {
    EXPECT_THAT(with("step", step), HasSubstr("line 1: ")) << step;
    EXPECT_THAT(with("cases", step), HasSubstr("line 1: ")) << step;
  }
  EXPECT_EQ(with("step", "9223372036854775807"), "none");
  EXPECT_EQ(with("epoch", "3"), "none");
  for (const char* value : {"true", "\"1\"", "null", "[]"}) {
    EXPECT_THAT(with("seconds", value), HasSubstr("line 1: ")) << value;
    EXPECT_THAT(with("values", (std::string("{\"loss\":") + value + "}").c_str()),
                HasSubstr("line 1: "))
        << value;
  }
}

TEST(ReadRun, NamesTheFileAndTheMissingKeyOfTheConfig) {
  const Json good = Config();
  for (const auto& [key, value] : good.items()) {
    const TestFolder folder;
    Json json = good;
    json.erase(key);
    WriteFile(folder / "config.json", json.dump());
    EXPECT_THAT(
        [&] { ReadRun(folder.path()); },
        ThrowsMessage<RunError>(
            AllOf(HasSubstr("cannot read " + (folder / "config.json").string()), HasSubstr(key))));
  }
}

TEST(ReadRun, RefusesMalformedConfigs) {
  const auto with = [](const char* pointer, Json value) -> std::string {
    const TestFolder folder;
    Json json = Config();
    json[Json::json_pointer(pointer)] = std::move(value);
    WriteFile(folder / "config.json", json.dump());
    try {
      ReadRun(folder.path());
    } catch (const RunError& e) {
      EXPECT_THAT(e.what(), HasSubstr((folder / "config.json").string()));
      return e.what();
    }
    return "none";
  };
  EXPECT_EQ(with("/seed", 4), "none");
  EXPECT_THAT(with("/format", "planish-run/2"), HasSubstr("planish-run/2"));
  EXPECT_THAT(with("/settings", Json::array()), HasSubstr("settings must be an object"));
  EXPECT_THAT(with("/seed", 1.5), HasSubstr("an integer must be"));
  EXPECT_THAT(with("/data/sizes/train", 1e30), HasSubstr("an integer must be"));
  EXPECT_THAT(with("/data/sizes", 3), HasSubstr("data.sizes must be an object"));
  EXPECT_THAT(with("/metrics/0", 3), HasSubstr("cannot use at() with number"));
}

TEST(ReadRun, RefusesSyntaxErrors) {
  const std::string good = Json(Config()).dump();
  for (const std::string& bad : {good + '\0', good + "x", std::string(), std::string(100, '\0')}) {
    const TestFolder folder;
    WriteFile(folder / "config.json", bad);
    EXPECT_THAT([&] { ReadRun(folder.path()); },
                ThrowsMessage<RunError>(HasSubstr((folder / "config.json").string())));
  }
}

TEST(ReadRun, NamesTheFileOfAMalformedResult) {
  const TestFolder folder;
  WriteRun(folder.path());
  WriteFile(folder / "result.json", R"({"status":"finished"})");
  EXPECT_THAT([&] { ReadRun(folder.path()); },
              ThrowsMessage<RunError>(HasSubstr((folder / "result.json").string())));
}

TEST(ReadRun, RefusesIrregularFiles) {
  const TestFolder folder;
  EXPECT_THAT([&] { ReadRun(folder / "no"); }, ThrowsMessage<RunError>(HasSubstr("config.json")));
  fs::create_directories(folder / "a" / "config.json");
  EXPECT_THAT([&] { ReadRun(folder / "a"); },
              ThrowsMessage<RunError>(HasSubstr("not a regular file")));
  for (const char* name : {"metrics.jsonl", "result.json"}) {
    WriteRun(folder / "b");
    fs::create_directories(folder / "b" / name);
    EXPECT_THAT([&] { ReadRun(folder / "b"); }, ThrowsMessage<RunError>(HasSubstr(name)));
    fs::remove_all(folder / "b");
  }
}

TEST(ReadRun, RefusesDeepNesting) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "[";
  for (int i = 0; i < 100'000; ++i) deep += "]";
  const Json good = Config();
  // In a setting, in the data and in an unknown key.
  for (const char* pointer : {"/settings/deep", "/data/sizes", "/unknown", "/report/title"}) {
    const TestFolder folder;
    Json json = good;
    json[Json::json_pointer(pointer)] = "DEEP";
    std::string text = json.dump();
    text.replace(text.find("\"DEEP\""), 6, deep);
    WriteFile(folder / "config.json", text);
    EXPECT_THAT([&] { ReadRun(folder.path()); },
                ThrowsMessage<RunError>(AllOf(HasSubstr((folder / "config.json").string()),
                                              HasSubstr("nested too deeply"))))
        << pointer;
  }
  const TestFolder folder;
  WriteRun(folder.path());
  WriteFile(folder / "result.json", deep);
  EXPECT_THAT(
      [&] { ReadRun(folder.path()); },
      ThrowsMessage<RunError>(AllOf(HasSubstr("result.json"), HasSubstr("nested too deeply"))));
  EXPECT_THAT(MetricsFault(std::string(kLine) + "\n" + deep + "\n"),
              HasSubstr("line 2: nested too deeply"));
}

// Reading these would never end.
TEST(ReadRun, RefusesPipesAndDevices) {
  for (const char* name : {"config.json", "metrics.jsonl", "result.json"}) {
    for (const bool device : {false, true}) {
      const TestFolder folder;
      WriteRun(folder.path());
      fs::remove(folder / name);
      if (device) {
        fs::create_symlink("/dev/zero", folder / name);
      } else {
        ASSERT_EQ(mkfifo((folder / name).c_str(), 0600), 0);
      }
      EXPECT_THAT([&] { ReadRun(folder.path()); },
                  ThrowsMessage<RunError>(AllOf(HasSubstr((folder / name).string()),
                                                HasSubstr("it is not a regular file"))))
          << name << device;
    }
  }
}

// Sparse files have a size without using the disk.
TEST(ReadRun, RefusesFilesThatAreTooLarge) {
  for (const char* name : {"config.json", "metrics.jsonl", "result.json"}) {
    const TestFolder folder;
    WriteRun(folder.path());
    WriteFile(folder / name, "");
    fs::resize_file(folder / name, uintmax_t{1} << 40);
    EXPECT_THAT([&] { ReadRun(folder.path()); },
                ThrowsMessage<RunError>(
                    AllOf(HasSubstr((folder / name).string()), HasSubstr("1099511627776 bytes"))));
  }
}

TEST(ReadRun, RefusesAFinishedRunWithoutEvaluations) {
  const TestFolder folder;
  WriteRun(folder.path());
  RunResult result;
  result.status = "finished";
  WriteFile(folder / "result.json", Json(result).dump());
  for (const char* metrics : {"", "half a line"}) {
    WriteFile(folder / "metrics.jsonl", metrics);
    EXPECT_THAT([&] { ReadRun(folder.path()); },
                ThrowsMessage<RunError>(AllOf(HasSubstr((folder / "metrics.jsonl").string()),
                                              HasSubstr("no evaluation"))));
  }
  WriteFile(folder / "metrics.jsonl", std::string(kLine) + "\n");
  EXPECT_EQ(ReadRun(folder.path()).evaluations.size(), 1u);
}

std::vector<std::string> Names(const std::vector<Run>& runs, const fs::path& root) {
  std::vector<std::string> names;
  for (const Run& run : runs) names.push_back(fs::relative(run.folder, root).string());
  return names;
}

TEST(FindRuns, FindsNestedRunsSorted) {
  const TestFolder folder;
  for (const char* name : {"b", "a/deep/er", "a/deep", "c/run"}) WriteRun(folder / name);
  fs::create_directories(folder / "empty");
  EXPECT_THAT(Names(FindRuns({folder.path()}).runs, folder.path()),
              ElementsAre("a/deep", "a/deep/er", "b", "c/run"));
  EXPECT_THAT(Names(FindRuns({folder / "b"}).runs, folder.path()), ElementsAre("b"));
}

TEST(FindRuns, FindsARunOnce) {
  const TestFolder folder;
  for (const char* name : {"a", "b"}) WriteRun(folder / name);
  fs::create_directory_symlink(folder / "a", folder / "link");
  EXPECT_THAT(Names(FindRuns({folder / "a", folder.path(), folder / "b" / ".." / "a",
                              folder / "link", folder / "a" / ""})
                        .runs,
                    folder.path()),
              ElementsAre("a", "b"));
}

TEST(FindRuns, DoesNotFollowALoop) {
  const TestFolder folder;
  WriteRun(folder / "a");
  fs::create_directory_symlink(folder.path(), folder / "a" / "loop");
  fs::create_symlink("self", folder / "self");
  EXPECT_THAT(Names(FindRuns({folder.path()}).runs, folder.path()), ElementsAre("a"));
}

TEST(FindRuns, NamesTheRootWithoutRuns) {
  const TestFolder folder;
  WriteRun(folder / "a");
  fs::create_directories(folder / "empty");
  WriteFile(folder / "file", "");
  const auto says = [&](const char* name, const char* text) {
    return ThrowsMessage<DataError>(AllOf(HasSubstr((folder / name).string()), HasSubstr(text)));
  };
  EXPECT_THAT([&] { FindRuns({folder / "no"}); }, says("no", "no such file or folder: "));
  EXPECT_THAT([&] { FindRuns({folder / "file"}); }, says("file", "is not a folder or an archive"));
  EXPECT_THAT([&] { FindRuns({folder / "empty"}); }, says("empty", "there is no run"));
  EXPECT_THAT([&] { FindRuns({folder / "a", folder / "empty"}); },
              says("empty", "there is no run"));
  EXPECT_THAT([&] { FindRuns({folder / "empty", folder / "a"}); },
              says("empty", "there is no run"));
  EXPECT_THAT(Names(FindRuns({folder.path(), folder / "a"}).runs, folder.path()), ElementsAre("a"));
  EXPECT_TRUE(FindRuns({}).runs.empty());
}

TEST(FindRuns, NamesBrokenRunsAndReadsTheOthers) {
  const TestFolder folder;
  for (const char* name : {"a", "b", "c", "d"}) WriteRun(folder / name);
  WriteFile(folder / "a/result.json", "");
  WriteFile(folder / "c/config.json", "{");
  WriteFile(folder / "d/metrics.jsonl", "{}\n");
  const FoundRuns found = FindRuns({folder.path()});
  EXPECT_THAT(Names(found.runs, folder.path()), ElementsAre("b"));
  EXPECT_THAT(found.faults, ElementsAre(HasSubstr((folder / "a/result.json").string() + ": empty"),
                                        HasSubstr((folder / "c/config.json").string()),
                                        HasSubstr((folder / "d/metrics.jsonl").string())));
}

// Returns the files of a run that WriteRun writes.
RunFiles MinimalRun() { return {Json(Config()).dump(), "", std::nullopt}; }

TEST(FindRuns, ReadsArchivesBesideFolders) {
  const TestFolder folder;
  WriteRun(folder / "a/x");
  WriteRun(folder / "a/z");
  AddToArchive(folder / "a/column.runs.tar.gz", {{"w", MinimalRun()}, {"y", MinimalRun()}});
  AddToArchive(folder / "b.runs.tar.gz", {{"run", MinimalRun()}});
  const std::vector<lab::Run> runs = FindRuns({folder.path()}).runs;
  EXPECT_THAT(Names(runs, folder.path()), ElementsAre("a/w", "a/x", "a/y", "a/z", "run"));
  EXPECT_EQ(Json(runs[0].config), Json(runs[1].config));
  // Each archive once, whether it is a root itself, and however it is called.
  EXPECT_THAT(Names(FindRuns({folder / "b.runs.tar.gz"}).runs, folder.path()), ElementsAre("run"));
  EXPECT_EQ(FindRuns({folder / "b.runs.tar.gz", folder / "a/../b.runs.tar.gz", folder.path()})
                .runs.size(),
            5u);
}

TEST(FindRuns, RunsOfALinkedArchiveBelongToTheLinksPlace) {
  const TestFolder folder;
  AddToArchive(folder / "there/a.runs.tar.gz", {{"run", MinimalRun()}});
  fs::create_directory(folder / "here");
  fs::create_symlink(folder / "there/a.runs.tar.gz", folder / "here/b.runs.tar.gz");
  EXPECT_THAT(Names(FindRuns({folder / "here"}).runs, folder / "here"), ElementsAre("run"));
}

TEST(FindRuns, NamesBrokenArchivesAndRunsInThem) {
  const TestFolder folder;
  RunFiles broken = MinimalRun();
  broken.metrics = "{}\n";
  AddToArchive(folder / "a.runs.tar.gz", {{"one", MinimalRun()}, {"two", broken}});
  WriteFile(folder / "b.runs.tar.gz", "no archive");
  fs::create_symlink("nowhere", folder / "c.runs.tar.gz");
  ASSERT_EQ(mkfifo((folder / "d.runs.tar.gz").c_str(), 0600), 0);
  const FoundRuns found = FindRuns({folder.path()});
  EXPECT_THAT(Names(found.runs, folder.path()), ElementsAre("one"));
  EXPECT_THAT(found.faults,
              ElementsAre(HasSubstr((folder / "a.runs.tar.gz/two/metrics.jsonl line 1").string()),
                          HasSubstr((folder / "b.runs.tar.gz").string()),
                          HasSubstr((folder / "d.runs.tar.gz").string())));
  EXPECT_THAT([&] { FindRuns({folder / "b.runs.tar.gz"}); },
              ThrowsMessage<DataError>(HasSubstr("no run can be read")));
}

// Returns the files of a finished run, with `predictions`.
RunFiles FinishedRunWith(const std::string& predictions) {
  RunFiles files = MinimalRun();
  Evaluation evaluation;
  files.metrics = Json(evaluation).dump() + "\n";
  RunResult result;
  result.status = "finished";
  files.result = Json(result).dump();
  files.predictions = predictions;
  return files;
}

TEST(FindRuns, ReadsRunsWithoutTheirPredictionsIfTheseAreDamaged) {
  const TestFolder folder;
  const Predictions predictions = PredictionsOf({"label"}, {{1, 2}});
  const std::string packed = PackPredictions(predictions);
  RunFiles unfinished = FinishedRunWith(packed);
  unfinished.result.reset();
  AddToArchive(folder / "a.runs.tar.gz", {{"cut", FinishedRunWith(packed.substr(0, 20))},
                                          {"empty", FinishedRunWith("")},
                                          {"unfinished", unfinished},
                                          {"whole", FinishedRunWith(packed)}});
  const FoundRuns found = FindRuns({folder.path()});
  ASSERT_EQ(found.runs.size(), 4u);
  const fs::path archive = folder / "a.runs.tar.gz";
  EXPECT_THAT(
      found.faults,
      ElementsAre(
          "cannot read " + (archive / "cut/predictions.csv.gz").string() + ": it is truncated",
          "cannot read " + (archive / "empty/predictions.csv.gz").string() + ": it is truncated"));
  EXPECT_EQ(found.runs[0].predictions_fault, "it is truncated");
  EXPECT_EQ(found.runs[0].predictions, nullptr);
  EXPECT_EQ(found.runs[2].predictions, nullptr);
  EXPECT_EQ(*found.runs[3].predictions, predictions);
}

TEST(FindRuns, NamesPredictionsThatAreNoRegularFile) {
  const TestFolder folder;
  const RunFiles files = FinishedRunWith("");
  fs::create_directory(folder / "run");
  WriteFile(folder / "run/config.json", files.config);
  WriteFile(folder / "run/metrics.jsonl", files.metrics);
  WriteFile(folder / "run/result.json", *files.result);
  fs::create_directory(folder / "run/predictions.csv.gz");
  const FoundRuns found = FindRuns({folder.path()});
  ASSERT_EQ(found.runs.size(), 1u);
  EXPECT_THAT(found.faults, ElementsAre(HasSubstr("run/predictions.csv.gz: ")));
  EXPECT_FALSE(found.runs[0].predictions_fault.empty());
  EXPECT_THAT(found.runs[0].predictions_fault, Not(HasSubstr("predictions.csv.gz")));
}

TEST(FindRuns, ThrowsIfNoRunIsReadable) {
  const TestFolder folder;
  for (const char* name : {"a", "b"}) {
    WriteRun(folder / name);
    WriteFile(folder / name / "config.json", "");
  }
  EXPECT_THAT([&] { FindRuns({folder.path()}); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr((folder / "a/config.json").string()), HasSubstr("and 1 more"))));
}

TEST(FindRuns, NamesTheFolderThatCannotBeRead) {
  const TestFolder folder;
  WriteRun(folder / "a");
  const std::string long_name(5000, 'x');
  EXPECT_THAT([&] { FindRuns({folder / long_name}); },
              ThrowsMessage<RunError>(HasSubstr("File name too long")));
}

}  // namespace
}  // namespace planish::lab
