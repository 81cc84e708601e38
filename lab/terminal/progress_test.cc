#include "lab/terminal/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace planish::lab {
namespace {

using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

RunProgress Sample() {
  RunProgress progress;
  progress.epoch = 2.4;
  progress.epochs = 5;
  progress.loss = 0.1234;
  progress.metric = {"test error", 0.02314, "%"};
  progress.cases_per_second = 41200.4;
  progress.seconds_left = 65;
  return progress;
}

TEST(ProgressFields, ShowEverything) {
  EXPECT_THAT(ProgressFields(Sample()),
              ElementsAre("epoch 2.4/5", "loss 0.123", "test error 2.31%", "41,200 cases/s"));
}

TEST(ProgressFields, LeaveOutAbsentValues) {
  EXPECT_THAT(ProgressFields({}), ElementsAre("epoch 0.0"));
  RunProgress progress;
  progress.epochs = 2.5;
  for (const double bad : {kNan, kInfinity, -1.0}) {
    progress.cases_per_second = bad;
    EXPECT_THAT(ProgressFields(progress), ElementsAre("epoch 0.0/2.5")) << bad;
  }
}

TEST(ProgressFields, ShowNumbersOfEverySize) {
  const auto loss = [](double value) {
    RunProgress progress;
    progress.loss = value;
    return ProgressFields(progress).at(1);
  };
  EXPECT_EQ(loss(0), "loss 0.000");
  EXPECT_EQ(loss(0.00099), "loss 9.90e-04");
  EXPECT_EQ(loss(-1.5), "loss -1.500");
  EXPECT_EQ(loss(12.345), "loss 12.35");
  EXPECT_EQ(loss(123.45), "loss 123.5");
  EXPECT_EQ(loss(12345), "loss 12345");
  EXPECT_EQ(loss(1e300), "loss 1.00e+300");
  EXPECT_EQ(loss(kNan), "loss nan");
  EXPECT_EQ(loss(-kInfinity), "loss -inf");
  const auto rate = [](double value) {
    RunProgress progress;
    progress.cases_per_second = value;
    return ProgressFields(progress).at(1);
  };
  EXPECT_EQ(rate(0), "0.0 cases/s");
  EXPECT_EQ(rate(9.94), "9.9 cases/s");
  EXPECT_EQ(rate(9.96), "10 cases/s");
  EXPECT_EQ(rate(999), "999 cases/s");
  EXPECT_EQ(rate(999.6), "1,000 cases/s");
  EXPECT_EQ(rate(1234567), "1,234,567 cases/s");
  EXPECT_EQ(rate(1e18), "1.00e+18 cases/s");
}

TEST(ProgressFields, ShowTheMetricsUnit) {
  RunProgress progress;
  progress.metric = {"bound", 84.25, "nats"};
  EXPECT_EQ(ProgressFields(progress).at(1), "bound 84.25 nats");
  progress.metric = {"score", 0.5, ""};
  EXPECT_EQ(ProgressFields(progress).at(1), "score 0.500");
  progress.metric = {"error", kNan, "%"};
  EXPECT_EQ(ProgressFields(progress).at(1), "error nan%");
}

TEST(ParseReport, ReadsWhatFormatReportWrites) {
  const auto parse = [](const ProgressReport& report) {
    std::string line = FormatReport(report);
    EXPECT_EQ(line.back(), '\n');
    line.pop_back();
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return ParseReport(line);
  };
  auto report = parse({0.25, 12.5, ""});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->fraction, 0.25);
  EXPECT_EQ(report->seconds_left, 12.5);
  EXPECT_EQ(report->phase, "");
  report = parse({0, std::nullopt, "testing on 7\nsets"});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->seconds_left, std::nullopt);
  EXPECT_EQ(report->phase, "testing on 7?sets");
}

TEST(ParseReport, RefusesOtherLines) {
  for (const char* line : {"", "0.5 1 x", "\x1e",
                           "\x1e"
                           "0.5",
                           "\x1e"
                           "0.5 1",
                           "\x1e"
                           "a 1 x",
                           "\x1enan 1 x",
                           "\x1e"
                           "0.5 inf x",
                           "warning: 0.5 1 x"}) {
    EXPECT_FALSE(ParseReport(line)) << line;
  }
}

TEST(FormatDuration, ShowsMinutesOrHours) {
  EXPECT_EQ(FormatDuration(0), "0:00");
  EXPECT_EQ(FormatDuration(59.4), "0:59");
  EXPECT_EQ(FormatDuration(59.6), "1:00");
  EXPECT_EQ(FormatDuration(3599), "59:59");
  EXPECT_EQ(FormatDuration(3600), "1:00:00");
  EXPECT_EQ(FormatDuration(100'000), "27:46:40");
  EXPECT_EQ(FormatDuration(-5), "0:00");
  EXPECT_EQ(FormatDuration(1e300), FormatDuration(1e15));
}

TEST(FitToColumns, CutsAtCharacters) {
  EXPECT_EQ(FitToColumns("abc", 3), "abc");
  EXPECT_EQ(FitToColumns("abc", 2), "ab");
  EXPECT_EQ(FitToColumns("abc", 0), "");
  EXPECT_EQ(FitToColumns("abc", -1), "");
  EXPECT_EQ(FitToColumns("", 3), "");
  EXPECT_EQ(FitToColumns("\u00e9\u20ac\U0001f600x", 3), "\u00e9\u20ac\U0001f600");
}

TEST(FitToColumns, ReplacesControlCharacters) {
  EXPECT_EQ(FitToColumns("a\n\x1b[K\x7f\t\r", 10), "a??[K???");
  EXPECT_EQ(FitToColumns("\u009bK", 10), "?K");
  EXPECT_EQ(FitToColumns(std::string_view("\0a", 2), 10), "?a");
}

TEST(FitToColumns, ReplacesMalformedUtf8) {
  EXPECT_EQ(FitToColumns("\xff\x80z", 10), "??z");
  EXPECT_EQ(FitToColumns("\xe2\x82", 10), "??");
  EXPECT_EQ(FitToColumns("\xc3z", 10), "?z");
}

TEST(FitFields, LeavesOutWholeFields) {
  const std::vector<std::string> fields = {"run 3/12", "1:05 left", "a-long-name-of-a-run",
                                           "epoch 2"};
  EXPECT_EQ(FitFields(fields, 80), "run 3/12  1:05 left  a-long-name-of-a-run  epoch 2");
  EXPECT_EQ(FitFields(fields, 50), "run 3/12  1:05 left  a-long-name-of-a-run  epoch 2");
  EXPECT_EQ(FitFields(fields, 49), "run 3/12  1:05 left  a-long-name-of-a-run");
  // A later field that fits takes the place of one that does not.
  EXPECT_EQ(FitFields(fields, 40), "run 3/12  1:05 left  epoch 2");
  EXPECT_EQ(FitFields(fields, 19), "run 3/12  1:05 left");
  EXPECT_EQ(FitFields(fields, 18), "run 3/12  epoch 2");
  EXPECT_EQ(FitFields(fields, 8), "run 3/12");
}

TEST(FitFields, LeavesOutWordsOfTheFirstField) {
  EXPECT_EQ(FitFields({"run 3/12", "b"}, 7), "run");
  EXPECT_EQ(FitFields({"run 3/12", "b"}, 3), "run");
  for (const int columns : {2, 0, -1}) EXPECT_EQ(FitFields({"run 3/12"}, columns), "");
  EXPECT_EQ(FitFields({}, 10), "");
  EXPECT_EQ(FitFields({"", "a"}, 10), "a");
}

TEST(FitFields, CountsCharactersAndReplacesControlCharacters) {
  EXPECT_EQ(FitFields({"\u00e9\u20ac", "\n\x1b"}, 6), "\u00e9\u20ac  ??");
  EXPECT_EQ(FitFields({"\u00e9\u20ac", "\n\x1b"}, 5), "\u00e9\u20ac");
}

TEST(ChooseProgressMode, DependsOnTerminalAndEnvironment) {
  const auto live = ProgressMode::kLive, lines = ProgressMode::kLines;
  EXPECT_EQ(ChooseProgressMode(false, true, "xterm", nullptr, nullptr), live);
  EXPECT_EQ(ChooseProgressMode(false, true, "xterm", "", ""), live);
  EXPECT_EQ(ChooseProgressMode(false, false, "xterm", nullptr, nullptr), lines);
  EXPECT_EQ(ChooseProgressMode(false, true, "dumb", nullptr, nullptr), lines);
  EXPECT_EQ(ChooseProgressMode(false, true, "", nullptr, nullptr), lines);
  EXPECT_EQ(ChooseProgressMode(false, true, nullptr, nullptr, nullptr), lines);
  EXPECT_EQ(ChooseProgressMode(false, true, "xterm", "1", nullptr), lines);
  EXPECT_EQ(ChooseProgressMode(false, true, "xterm", nullptr, "true"), lines);
  EXPECT_EQ(ChooseProgressMode(true, true, "xterm", nullptr, nullptr), ProgressMode::kQuiet);
}

// Terminal whose clock and width the test sets.
struct Terminal {
  double now = 1000;
  int columns = 80;
  std::string text;

  ProgressOutput Output() {
    return {.seconds = [this] { return now; },
            .write = [this](std::string_view more) { text += more; },
            .columns = [this] { return columns; }};
  }
  // Returns the output since the last call.
  std::string Take() { return std::exchange(text, {}); }
};

TEST(Progress, RedrawsOneLine) {
  Terminal terminal;
  terminal.columns = 101;
  {
    Progress progress(12, ProgressMode::kLive, terminal.Output());
    EXPECT_EQ(terminal.Take(), "");
    progress.StartRun(3, "layer-b4-s1");
    EXPECT_EQ(terminal.Take(), "\rrun 3/12  layer-b4-s1\x1b[K");
    terminal.now += 0.2;
    progress.Update(Sample());
    EXPECT_EQ(terminal.Take(),
              "\rrun 3/12  1:05 left  layer-b4-s1  epoch 2.4/5  loss 0.123  test error 2.31%  "
              "41,200 cases/s\x1b[K");
    progress.EndRun("test error 2.20%  2:10");
    EXPECT_EQ(terminal.Take(), "\r\x1b[Krun 3/12 layer-b4-s1  test error 2.20%  2:10\n");
  }
  EXPECT_EQ(terminal.Take(), "");
}

TEST(Progress, ShowsTheTimeLeftOfAllRuns) {
  Terminal terminal;
  Progress progress(2, ProgressMode::kLive, terminal.Output());
  progress.SetTimeLeft([](const RunTime& run) {
    return std::optional(1000 * run.elapsed + run.left.value_or(10'000));
  });
  progress.StartRun(1, "a");
  EXPECT_EQ(terminal.Take(), "\rrun 1/2  2:46:40 left  a\x1b[K");
  terminal.now += 1;
  RunProgress now;
  now.seconds_left = 60;
  progress.Update(now);
  EXPECT_EQ(terminal.Take(), "\rrun 1/2  17:40 left  a\x1b[K");
}

TEST(Progress, NamesPhasesWithTheTimeLeft) {
  Terminal terminal;
  Progress progress(1, ProgressMode::kLive, terminal.Output());
  progress.Phase("loading data");
  EXPECT_EQ(terminal.Take(), "\rloading data\x1b[K");
  progress.StartRun(1, "a");
  EXPECT_EQ(terminal.Take(), "\rrun 1/1  a\x1b[K");
  terminal.now += 1;
  RunProgress now{.epoch = 1, .epochs = 2, .seconds_left = 60};
  progress.Update(now);
  EXPECT_EQ(terminal.Take(), "\rrun 1/1  1:00 left  a  epoch 1.0/2\x1b[K");
  progress.Phase("evaluating");
  EXPECT_EQ(terminal.Take(), "");
  terminal.now += 1;
  progress.Tick();
  EXPECT_EQ(terminal.Take(), "\rrun 1/1  0:59 left  a  evaluating\x1b[K");
  terminal.now += 1;
  now = {.epoch = 2, .epochs = 2, .seconds_left = 0};
  progress.Update(now);
  EXPECT_EQ(terminal.Take(), "\rrun 1/1  a  epoch 2.0/2\x1b[K");
  terminal.now += 1;
  progress.Phase("testing on 7 sentence sets");
  EXPECT_EQ(terminal.Take(), "\rrun 1/1  a  testing on 7 sentence sets\x1b[K");
}

TEST(Progress, ReportsToTheProcessThatStartedIt) {
  Terminal terminal;
  Progress progress(1, ProgressMode::kReport, terminal.Output());
  progress.Phase("loading data");
  progress.Note("not for it");
  progress.StartRun(1, "a");
  EXPECT_EQ(terminal.Take(), FormatReport({0, std::nullopt, ""}));
  progress.Update({.epoch = 1, .epochs = 4, .seconds_left = 60});
  EXPECT_EQ(terminal.Take(), "");
  terminal.now += 1;
  progress.Tick();
  EXPECT_EQ(terminal.Take(), FormatReport({0.25, 59, ""}));
  terminal.now += 1;
  progress.Phase("testing");
  EXPECT_EQ(terminal.Take(), FormatReport({0.25, 58, "testing"}));
  progress.Warn("warning: seen");
  EXPECT_EQ(terminal.Take(), "warning: seen\n");
  progress.EndRun("done");
  EXPECT_EQ(terminal.Take(), "");
}

TEST(Progress, RedrawsTenTimesASecondAtMost) {
  Terminal terminal;
  Progress progress(1, ProgressMode::kLive, terminal.Output());
  progress.StartRun(1, "a");
  terminal.Take();
  int drawn = 0;
  for (int i = 0; i < 1000; ++i) {
    terminal.now += 1.0 / 1024;
    progress.Update({.epoch = static_cast<double>(i)});
    if (!terminal.Take().empty()) ++drawn;
  }
  // A redraw happens at the first update 0.1 s after the last: every 103rd of these.
  EXPECT_EQ(drawn, 9);
}

TEST(Progress, ShowsTheNextRunAtOnce) {
  Terminal terminal;
  Progress progress(2, ProgressMode::kLive, terminal.Output());
  progress.StartRun(1, "a");
  progress.EndRun("done");
  terminal.Take();
  progress.StartRun(2, "b");
  EXPECT_EQ(terminal.Take(), "\rrun 2/2  b\x1b[K");
}

TEST(Progress, FollowsTheTerminalsWidth) {
  Terminal terminal;
  terminal.columns = 15;
  Progress progress(1, ProgressMode::kLive, terminal.Output());
  progress.StartRun(1, "abcdef");
  EXPECT_EQ(terminal.Take(), "\rrun 1/1\x1b[K");
  terminal.columns = 16;
  terminal.now += 1;
  progress.Update(RunProgress{});
  EXPECT_EQ(terminal.Take(), "\rrun 1/1  abcdef\x1b[K");
  terminal.columns = 1;
  terminal.now += 1;
  progress.Update(RunProgress{});
  EXPECT_EQ(terminal.Take(), "\r\x1b[K");
}

TEST(Progress, PutsNotesAboveTheLine) {
  Terminal terminal;
  Progress progress(1, ProgressMode::kLive, terminal.Output());
  progress.Note("before");
  EXPECT_EQ(terminal.Take(), "before\n");
  progress.StartRun(1, "a");
  terminal.Take();
  progress.Note("checkpoint written");
  EXPECT_EQ(terminal.Take(), "\r\x1b[Kcheckpoint written\nrun 1/1  a\x1b[K");
  // The line below the note is the newest, even if its redraw was not due.
  progress.Update({.epoch = 1});
  EXPECT_EQ(terminal.Take(), "");
  progress.Note("x");
  EXPECT_EQ(terminal.Take(), "\r\x1b[Kx\nrun 1/1  a  epoch 1.0\x1b[K");
  progress.EndRun("done");
  terminal.Take();
  progress.Note("after");
  EXPECT_EQ(terminal.Take(), "after\n");
}

TEST(Progress, ClearsTheLineAtItsEnd) {
  Terminal terminal;
  {
    Progress progress(1, ProgressMode::kLive, terminal.Output());
    progress.StartRun(1, "a");
    terminal.Take();
  }
  EXPECT_EQ(terminal.Take(), "\r\x1b[K");
}

TEST(Progress, WritesALineInThirtySecondsElsewhere) {
  Terminal terminal;
  terminal.columns = 10;  // does not affect a file
  {
    Progress progress(2, ProgressMode::kLines, terminal.Output());
    progress.StartRun(1, "first\n");
    EXPECT_EQ(terminal.Take(), "run 1/2  first?\n");
    for (int i = 0; i < 100; ++i) {
      terminal.now += 1;
      progress.Update({.epoch = 0.1 * i});
    }
    EXPECT_EQ(
        terminal.Take(),
        "run 1/2  first?  epoch 2.9\nrun 1/2  first?  epoch 5.9\nrun 1/2  first?  epoch 8.9\n");
    progress.Note("note");
    progress.EndRun("done");
    progress.StartRun(2, "b");
    progress.EndRun("done");
    EXPECT_EQ(terminal.Take(), "note\nrun 1/2 first?  done\nrun 2/2 b  done\n");
  }
  EXPECT_EQ(terminal.Take(), "");
}

TEST(Progress, ShowsNothingWhenQuiet) {
  Terminal terminal;
  {
    Progress progress(1, ProgressMode::kQuiet, terminal.Output());
    progress.StartRun(1, "a");
    terminal.now += 100;
    progress.Update(Sample());
    progress.Note("note");
    progress.EndRun("done");
    EXPECT_EQ(terminal.Take(), "");
    progress.Warn("warning: seen all the same");
    EXPECT_EQ(terminal.Take(), "warning: seen all the same\n");
  }
  EXPECT_EQ(terminal.Take(), "");
}

}  // namespace
}  // namespace planish::lab
