#include "tests/readers/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>

#include "lab/testing/test_folder.h"

// Every reader with damaged files. `make asan` runs the same under sanitizers.
namespace planish::lab {

void PrintTo(const Reader& reader, std::ostream* out) { *out << reader.name; }

namespace {

class ReaderTest : public testing::TestWithParam<Reader> {};

// Returns true if every truncation and every bit is tested, not only one in 29.
bool TestsAll() { return std::getenv("PLANISH_LONG_TESTS") != nullptr; }

TEST_P(ReaderTest, AcceptsSeeds) {
  const TestFolder folder;
  const ReaderTrial trial(GetParam(), folder.path());
  const auto seeds = Seeds(GetParam());
  ASSERT_FALSE(seeds.empty());
  for (const auto& seed : seeds) EXPECT_EQ(trial.Read(ReadFile(seed)), "") << seed;
}

TEST_P(ReaderTest, ReportsTruncatedFilesInOneLine) {
  const TestFolder folder;
  const ReaderTrial trial(GetParam(), folder.path());
  const size_t stride = TestsAll() ? 1 : 29;
  for (const auto& seed : Seeds(GetParam())) {
    const std::string whole = ReadFile(seed);
    for (size_t size = 0; size < whole.size(); size += stride) {
      const std::string message = trial.Read(whole.substr(0, size));
      ASSERT_EQ(trial.Check(message), "")
          << seed << ", the first " << size << " bytes: " << message;
    }
  }
}

TEST_P(ReaderTest, ReportsFlippedBitsInOneLine) {
  const TestFolder folder;
  const ReaderTrial trial(GetParam(), folder.path());
  const size_t stride = TestsAll() ? 1 : 29;
  for (const auto& seed : Seeds(GetParam())) {
    std::string bytes = ReadFile(seed);
    for (size_t bit = 0; bit < bytes.size() * 8; bit += stride) {
      char& byte = bytes[bit / 8];
      byte = static_cast<char>(byte ^ (1 << bit % 8));
      const std::string message = trial.Read(bytes);
      ASSERT_EQ(trial.Check(message), "") << seed << ", bit " << bit << ": " << message;
      byte = static_cast<char>(byte ^ (1 << bit % 8));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReaderTest, testing::ValuesIn(Readers()), [](const auto& param) {
  std::string name = param.param.name;
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace planish::lab
