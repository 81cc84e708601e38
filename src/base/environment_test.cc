// The environment is read once in a process, so each case here runs its own process.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
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

/// Sanitizers and emulators map memory of their own.
bool CanLimitMemory() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__linux__)
  return false;
#else
  return std::string(PLANISH_PROBE).find("qemu") == std::string::npos;
#endif
}

TEST(EnvironmentTest, ThreadsThatTheSystemRefuses) {
  if (!CanLimitMemory()) GTEST_SKIP() << "limits count a sanitizer's or an emulator's threads";
  for (const int processes : {1, 2, 5}) {
    const std::vector<std::string> lines =
        RunProbe("PLANISH_THREADS=100000", "limit processes " + std::to_string(processes));
    // Other processes of the same user count, too.
    ASSERT_EQ(lines.size(), 1);
    EXPECT_TRUE(lines[0].ends_with(" same")) << lines[0];
    EXPECT_LE(std::stoi(lines[0]), processes);
  }
}

// From too little memory for any call to enough for 1,024 threads.
TEST(EnvironmentTest, MemoryThatTheSystemRefuses) {
  if (!CanLimitMemory()) GTEST_SKIP() << "a sanitizer or an emulator maps memory of its own";
  int failures = 0, successes = 0;
  for (const std::string threads : {"1", "4", "100000"}) {
    for (int64_t kilobytes = 0; kilobytes < (int64_t{1} << 25);
         kilobytes = kilobytes < 2000 ? kilobytes + 100 : kilobytes * 3 / 2) {
      const std::vector<std::string> lines =
          RunProbe("PLANISH_THREADS=" + threads, "limit memory " + std::to_string(kilobytes));
      ASSERT_EQ(lines.size(), 1);
      failures += lines[0].ends_with(" bad_alloc");
      successes += lines[0].ends_with(" same");
      EXPECT_TRUE(lines[0].ends_with(" bad_alloc") || lines[0].ends_with(" same"))
          << lines[0] << " with " << kilobytes << " KiB and " << threads << " threads";
    }
  }
  EXPECT_GT(failures, 0);
  EXPECT_GT(successes, 0);
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
