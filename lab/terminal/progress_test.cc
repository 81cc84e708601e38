#include "lab/terminal/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace planish::lab {
namespace {

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

TEST(FormatProgress, ShowsEverything) {
  EXPECT_EQ(FormatProgress(Sample()),
            "epoch 2.4/5  1:05 left  loss 0.123  test error 2.31%  41,200 cases/s");
}

TEST(FormatProgress, LeavesOutAbsentValues) {
  EXPECT_EQ(FormatProgress({}), "epoch 0.0");
  RunProgress progress;
  progress.epochs = 2.5;
  for (const double bad : {kNan, kInfinity, -1.0}) {
    progress.cases_per_second = bad;
    progress.seconds_left = bad;
    EXPECT_EQ(FormatProgress(progress), "epoch 0.0/2.5") << bad;
  }
}

TEST(FormatProgress, ShowsNumbersOfEverySize) {
  const auto loss = [](double value) {
    RunProgress progress;
    progress.loss = value;
    return FormatProgress(progress).substr(sizeof("epoch 0.0  loss ") - 1);
  };
  EXPECT_EQ(loss(0), "0.000");
  EXPECT_EQ(loss(0.00099), "9.90e-04");
  EXPECT_EQ(loss(-1.5), "-1.500");
  EXPECT_EQ(loss(12.345), "12.35");
  EXPECT_EQ(loss(123.45), "123.5");
  EXPECT_EQ(loss(12345), "12345");
  EXPECT_EQ(loss(1e300), "1.00e+300");
  EXPECT_EQ(loss(kNan), "nan");
  EXPECT_EQ(loss(-kInfinity), "-inf");
  const auto rate = [](double value) {
    RunProgress progress;
    progress.cases_per_second = value;
    return FormatProgress(progress).substr(sizeof("epoch 0.0  ") - 1);
  };
  EXPECT_EQ(rate(0), "0.0 cases/s");
  EXPECT_EQ(rate(9.94), "9.9 cases/s");
  EXPECT_EQ(rate(9.96), "10 cases/s");
  EXPECT_EQ(rate(999), "999 cases/s");
  EXPECT_EQ(rate(999.6), "1,000 cases/s");
  EXPECT_EQ(rate(1234567), "1,234,567 cases/s");
  EXPECT_EQ(rate(1e18), "1.00e+18 cases/s");
}

TEST(FormatProgress, ShowsTheMetricsUnit) {
  RunProgress progress;
  progress.metric = {"bound", 84.25, "nats"};
  EXPECT_EQ(FormatProgress(progress), "epoch 0.0  bound 84.25 nats");
  progress.metric = {"score", 0.5, ""};
  EXPECT_EQ(FormatProgress(progress), "epoch 0.0  score 0.500");
  progress.metric = {"error", kNan, "%"};
  EXPECT_EQ(FormatProgress(progress), "epoch 0.0  error nan%");
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
  terminal.columns = 100;
  {
    Progress progress(12, ProgressMode::kLive, terminal.Output());
    EXPECT_EQ(terminal.Take(), "");
    progress.StartRun(3, "layer-b4-s1");
    EXPECT_EQ(terminal.Take(), "\rrun 3/12 layer-b4-s1\x1b[K");
    terminal.now += 0.2;
    progress.Update(Sample());
    EXPECT_EQ(terminal.Take(),
              "\rrun 3/12 layer-b4-s1  epoch 2.4/5  1:05 left  loss 0.123  test error 2.31%  "
              "41,200 cases/s\x1b[K");
    progress.EndRun("test error 2.20%  2:10");
    EXPECT_EQ(terminal.Take(), "\r\x1b[Krun 3/12 layer-b4-s1  test error 2.20%  2:10\n");
  }
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
  EXPECT_EQ(terminal.Take(), "\rrun 2/2 b\x1b[K");
}

TEST(Progress, FollowsTheTerminalsWidth) {
  Terminal terminal;
  terminal.columns = 10;
  Progress progress(1, ProgressMode::kLive, terminal.Output());
  progress.StartRun(1, "abcdef");
  EXPECT_EQ(terminal.Take(), "\rrun 1/1 a\x1b[K");
  terminal.columns = 12;
  terminal.now += 1;
  progress.Update(RunProgress{});
  EXPECT_EQ(terminal.Take(), "\rrun 1/1 abc\x1b[K");
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
  EXPECT_EQ(terminal.Take(), "\r\x1b[Kcheckpoint written\nrun 1/1 a\x1b[K");
  // The line below the note is the newest, even if its redraw was not due.
  progress.Update({.epoch = 1});
  EXPECT_EQ(terminal.Take(), "");
  progress.Note("x");
  EXPECT_EQ(terminal.Take(), "\r\x1b[Kx\nrun 1/1 a  epoch 1.0\x1b[K");
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
    EXPECT_EQ(terminal.Take(), "run 1/2 first?\n");
    for (int i = 0; i < 100; ++i) {
      terminal.now += 1;
      progress.Update({.epoch = 0.1 * i});
    }
    EXPECT_EQ(terminal.Take(),
              "run 1/2 first?  epoch 2.9\nrun 1/2 first?  epoch 5.9\nrun 1/2 first?  epoch 8.9\n");
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
