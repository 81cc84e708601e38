#include "lab/tasks/mt/corpus.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ParallelText SomeText() {
  ParallelText text;
  for (int i = 0; i < 20; ++i) {
    text.train.push_back({"the dog sees the cat", "der Hund sieht die Katze"});
    text.train.push_back({"a cat", "eine Katze"});
  }
  text.valid = {{"a dog", "ein Hund"}, {"a dog sees", "Hund"}};
  text.test = {{"the cat", "die Katze"}};
  text.name = "some en-de";
  text.description = "some";
  text.sha256 = "sha";
  return text;
}

std::vector<int64_t> Numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous().flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(Corpus, HasPiecesWithTheirEndAndPadding) {
  const Corpus corpus(SomeText(), 60, 100, {});
  EXPECT_EQ(corpus.train.size(), 40);
  EXPECT_EQ(corpus.about.sizes,
            (std::map<std::string, int64_t>{{"train", 40}, {"valid", 2}, {"test", 1}}));
  EXPECT_EQ(corpus.about.name, "some en-de");
  EXPECT_THAT(corpus.about.sha256, ::testing::SizeIs(64));
  EXPECT_EQ(corpus.about.sha256, Corpus(SomeText(), 60, 100, {}).about.sha256);
  EXPECT_NE(corpus.about.sha256, Corpus(SomeText(), 50, 100, {}).about.sha256);
  ParallelText other = SomeText();
  other.sha256 = "other";
  EXPECT_NE(corpus.about.sha256, Corpus(other, 60, 100, {}).about.sha256);
  EXPECT_THAT(corpus.about.description,
              HasSubstr("some; " + std::to_string(corpus.bpe.size()) + " pieces in the voc"));
  EXPECT_THAT(corpus.about.description, Not(HasSubstr("left out")));
  for (const PairSet* set : {&corpus.train, &corpus.valid, &corpus.test}) {
    for (int64_t i = 0; i < set->size(); ++i) {
      const SentencePair& pair = set->text[static_cast<size_t>(i)];
      for (const auto& [pieces, line] :
           {std::pair(&set->source, pair.source), std::pair(&set->target, pair.target)}) {
        const int64_t length = pieces->lengths[i].item<int64_t>();
        std::vector<int64_t> expected;
        for (const int32_t piece : corpus.bpe.Encode(line)) expected.push_back(piece);
        expected.push_back(Bpe::kEnd);
        EXPECT_EQ(std::ssize(expected), length);
        expected.resize(static_cast<size_t>(pieces->rows.size(1)), Bpe::kPad);
        EXPECT_EQ(Numbers(pieces->rows[i]), expected);
      }
    }
  }
}

TEST(Corpus, HasAVocabularyForEachLanguage) {
  const ParallelText text = SomeText();
  const Corpus corpus(text, 30, 100, {}, 25), joint(text, 30, 100, {});
  EXPECT_FALSE(joint.source_bpe);
  EXPECT_EQ(&joint.SourceBpe(), &joint.bpe);
  ASSERT_TRUE(corpus.source_bpe);
  EXPECT_NE(corpus.about.sha256, joint.about.sha256);
  std::vector<std::string> source, target;
  for (const SentencePair& pair : text.train) {
    source.push_back(pair.source);
    target.push_back(pair.target);
  }
  EXPECT_EQ(corpus.SourceBpe().model(), Bpe::Train(source, 25).model());
  EXPECT_EQ(corpus.bpe.model(), Bpe::Train(target, 30).model());
  EXPECT_THAT(corpus.about.description,
              HasSubstr("some; " + std::to_string(corpus.source_bpe->size()) +
                        " pieces in the source's vocabulary, " + std::to_string(corpus.bpe.size()) +
                        " in the target's"));
  const Pieces row = corpus.train.source.Select(at::tensor({1}, at::kLong));
  EXPECT_TRUE(row.rows.equal(EncodeLines(corpus.SourceBpe(), {{"a cat"}}).rows));
  // "K" is no letter of the English sentences.
  EXPECT_THAT(corpus.SourceBpe().Encode("Katze"), ::testing::Contains(Bpe::kUnknown));
  EXPECT_THAT(corpus.bpe.Encode("Katze"), Not(::testing::Contains(Bpe::kUnknown)));
}

TEST(Corpus, SelectsRowsAndCutsThem) {
  const Corpus corpus(SomeText(), 60, 100, {});
  const Pieces& all = corpus.train.source;
  const Pieces some = all.Select(at::tensor({3, 1}, at::kLong));  // the short ones
  EXPECT_EQ(some.rows.size(1), all.lengths[1].item<int64_t>());
  EXPECT_LT(some.rows.size(1), all.rows.size(1));
  EXPECT_EQ(Numbers(some.lengths), Numbers(all.lengths.index_select(0, at::tensor({3, 1}))));
  EXPECT_TRUE(some.rows[0].equal(all.rows[3].slice(0, 0, some.rows.size(1))));
}

// Over-long pairs, sides without letters, and characters outside the vocabulary are counted.
TEST(Corpus, CountsLeftOutPairs) {
  ParallelText text = SomeText();
  std::string longer;
  for (int i = 0; i < 30; ++i) longer += "dog cat ";
  text.train.push_back({longer, "kurz"});
  text.train.push_back({"short", longer});
  text.valid.push_back({longer, longer});
  text.test.push_back({longer, longer});        // is kept
  text.valid.push_back({"\u200b", "nothing"});  // a zero-width space, which NFKC drops
  text.test.push_back({"дог", "Hund"});
  const Corpus corpus(text, 60, 20, {});
  EXPECT_EQ(corpus.train.size(), 40);
  EXPECT_EQ(corpus.valid.size(), 2);
  EXPECT_EQ(corpus.test.size(), 3);
  EXPECT_EQ(std::ssize(corpus.test.text), 3);
  EXPECT_THAT(corpus.about.description,
              HasSubstr("; 3 pairs of more than 20 pieces left out of training and validation"));
  EXPECT_THAT(corpus.about.description, HasSubstr("; 1 pair left out of which a side has no"));
  EXPECT_THAT(corpus.about.description,
              HasSubstr("; 1 piece of validation and test is not in the vocabulary"));
}

TEST(Corpus, RefusesAnEmptySplit) {
  try {
    Corpus(SomeText(), 60, 2, {});
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("some en-de has no training pairs of at most max_length = 2 "
                                    "pieces"));
  }
}

TEST(SortedBatches, HaveEveryCaseOnceWithinTheTokens) {
  const at::Tensor lengths = at::tensor({5, 1, 9, 3, 3, 20, 2}, at::kLong);
  const auto batches = SortedBatches(lengths, 10);
  std::vector<std::vector<int64_t>> cases;
  for (const at::Tensor& batch : batches) cases.push_back(Numbers(batch));
  EXPECT_THAT(cases,
              ::testing::ElementsAre(::testing::ElementsAre(1, 6, 3), ::testing::ElementsAre(4, 0),
                                     ::testing::ElementsAre(2), ::testing::ElementsAre(5)));
}

}  // namespace
}  // namespace planish::lab
