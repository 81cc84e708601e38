// The environment is read once in a process, so each case here runs its own process.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace planish {
namespace {

/// Returns the lines that the probe prints with `settings` in its environment.
std::vector<std::string> RunProbe(const std::string& settings, const std::string& argument = "") {
  const std::string command = settings + " " PLANISH_PROBE " " + argument;
  FILE* pipe = popen(command.c_str(), "r");  // contains no user input
  std::vector<std::string> lines;
  std::array<char, 1000> line;
  while (pipe && std::fgets(line.data(), line.size(), pipe)) {
    lines.emplace_back(line.data());
    lines.back().pop_back();
  }
  if (pipe == nullptr || pclose(pipe) != 0) lines.emplace_back("failed");
  return lines;
}

std::vector<std::string> Twice(const std::string& line) { return {line, line}; }

TEST(EnvironmentTest, TargetOfEveryName) {
  const std::vector<std::string> targets = RunProbe("", "targets");
  ASSERT_GE(targets.size(), 1);
  EXPECT_EQ(RunProbe("PLANISH_THREADS=2"), Twice(targets[0] + " 2 1"));
  for (const std::string& target : targets) {
    EXPECT_EQ(RunProbe("PLANISH_THREADS=3 PLANISH_TARGET=" + target), Twice(target + " 3 1"));
  }
}

// The error repeats at each call.
TEST(EnvironmentTest, WrongTarget) {
  std::string names;
  for (const std::string& target : RunProbe("", "targets")) {
    names += (names.empty() ? "" : ", ") + target;
  }
  for (const std::string name : {"avx2", "AVX9", ""}) {
    EXPECT_EQ(RunProbe("PLANISH_TARGET='" + name + "'"),
              Twice("[PLANISH_TARGET] target must be one of " + names + ", got \"" + name + "\""));
  }
}

TEST(EnvironmentTest, WrongNumberOfThreads) {
  for (const std::string text : {"0", "-1", "two", "3x", "", "99999999999", " 2"}) {
    EXPECT_EQ(
        RunProbe("PLANISH_THREADS='" + text + "'"),
        Twice("[PLANISH_THREADS] threads must be a number of at least 1, got \"" + text + "\""));
  }
}

TEST(EnvironmentTest, TuningDoesNotChangeResults) {
  const std::vector<std::string> lines = RunProbe("PLANISH_THREADS=2");
  EXPECT_EQ(RunProbe("PLANISH_THREADS=2 PLANISH_TUNING="), lines);
  EXPECT_EQ(RunProbe("PLANISH_THREADS=2 PLANISH_TUNING=slow_l3=1,nt_store_call_bytes=0"), lines);
}

TEST(EnvironmentTest, WrongTuning) {
  EXPECT_EQ(RunProbe("PLANISH_TUNING=slow_l3=2"),
            Twice("[PLANISH_TUNING] slow_l3 must be an integer from 0 to 1, got \"2\""));
  EXPECT_EQ(RunProbe("PLANISH_TUNING=l2_bytes=x"),
            Twice("[PLANISH_TUNING] l2_bytes must be an integer from 1 to 1125899906842624, got "
                  "\"x\""));
  const std::vector<std::string> lines = RunProbe("PLANISH_TUNING=l4_bytes=1");
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].find("[PLANISH_TUNING] field must be one of l1_bytes, l2_bytes, "), 0);
  EXPECT_EQ(lines[1], lines[0]);
}

TEST(EnvironmentTest, EveryFunctionThrowsForAWrongTuningBeforeItWrites) {
  const std::vector<std::string> wrong = RunProbe("PLANISH_TUNING=x=1", "functions");
  const std::vector<std::string> right = RunProbe("PLANISH_TUNING=slow_l3=1", "functions");
  ASSERT_EQ(wrong.size(), 15);
  ASSERT_EQ(right.size(), 15);
  for (size_t i = 0; i < wrong.size(); ++i) {
    const std::string name = right[i].substr(0, right[i].find(' '));
    EXPECT_EQ(wrong[i], name + " throws");
    EXPECT_EQ(right[i], name + " returns, writes");
  }
}

}  // namespace
}  // namespace planish
