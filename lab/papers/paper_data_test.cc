#include "lab/papers/paper_data.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lab/papers/paper.h"

namespace planish::lab {
namespace {

RunConfig Config(const std::string& preset, std::string_view sha256, int64_t train) {
  RunConfig config;
  config.preset = preset;
  config.data.name = "mnist";
  config.data.sha256 = sha256;
  config.data.sizes = {{"train", train}};
  return config;
}

constexpr std::string_view kMnist =
    "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a";

TEST(PaperDataTest, EveryRowHasAChecksumOfItsOwn) {
  std::set<std::string_view> checksums;
  for (const PaperData& data : KnownPaperData()) {
    EXPECT_EQ(data.sha256.size(), 64u) << data.name;
    EXPECT_EQ(data.sha256.find_first_not_of("0123456789abcdef"), std::string_view::npos);
    EXPECT_TRUE(checksums.insert(data.sha256).second) << data.name;
    EXPECT_GT(data.train, 0);
  }
}

TEST(EvidenceTest, OwnDataIsIdentifiedOnlyByItsChecksum) {
  EXPECT_EQ(EvidenceOf(Config("small", kMnist, 55'000), "mnist"), Evidence::kVerdict);
  EXPECT_EQ(EvidenceOf(Config("paper", kMnist, 55'000), "mnist"), Evidence::kVerdict);
  EXPECT_EQ(EvidenceOf(Config("small", "abc", 55'000), "mnist"), Evidence::kOtherData);
  EXPECT_EQ(EvidenceOf(Config("small", kMnist, 55'000), "rt"), Evidence::kOtherData);
  // The checksum of the paper's data is unknown.
  EXPECT_EQ(EvidenceOf(Config("small", kMnist, 55'000), ""), Evidence::kOtherData);
  EXPECT_EQ(EvidenceOf(Config("small", "", 55'000), "ptb"), Evidence::kOtherData);
}

TEST(EvidenceTest, SmokeRunsGetNoVerdictWhateverTheirData) {
  EXPECT_EQ(EvidenceOf(Config("smoke", kMnist, 55'000), "mnist"), Evidence::kSmoke);
  EXPECT_EQ(EvidenceOf(Config("smoke", "abc", 512), "mnist"), Evidence::kSmoke);
  EXPECT_EQ(EvidenceText(Evidence::kSmoke), "smoke run: no verdict");
}

TEST(EvidenceTest, ATenthOfThePapersCasesIsTheLeast) {
  EXPECT_EQ(EvidenceOf(Config("paper", kMnist, 512), "mnist"), Evidence::kFewCases);
  EXPECT_EQ(EvidenceOf(Config("paper", kMnist, 5'499), "mnist"), Evidence::kFewCases);
  EXPECT_EQ(EvidenceOf(Config("paper", kMnist, 5'500), "mnist"), Evidence::kVerdict);
  RunConfig config = Config("paper", kMnist, 0);
  config.data.sizes.clear();
  EXPECT_EQ(EvidenceOf(config, "mnist"), Evidence::kFewCases);
}

TEST(EvidenceTest, ColumnsNameKnownDataOrNone) {
  const std::set<std::string> unknown = {"",     "ptb",        "cnn",         "iam-ondb",
                                         "coco", "bookcorpus", "wmt14 en-de", "iwslt14 de-en"};
  for (const Paper& paper : Papers()) {
    for (const PaperColumn& column : paper.columns) {
      bool known = unknown.contains(column.data);
      for (const PaperData& data : KnownPaperData()) known |= data.name == column.data;
      EXPECT_TRUE(known) << paper.name << " " << column.name << ": " << column.data;
    }
  }
}

}  // namespace
}  // namespace planish::lab
