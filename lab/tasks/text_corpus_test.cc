#include "lab/tasks/text_corpus.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SplitText, KeepsTheOrder) {
  std::string letters;
  for (int i = 0; i < 100; ++i) letters += static_cast<char>('a' + i % 26);
  const auto corpus = SplitText({.characters = letters, .name = "letters"}, "task", 5);
  EXPECT_EQ(corpus->about.name, "letters");
  EXPECT_EQ(corpus->about.sizes,
            (std::map<std::string, int64_t>{{"train", 90}, {"valid", 5}, {"test", 5}}));
  std::string back;
  for (const at::Tensor& part : {corpus->train, corpus->valid, corpus->test}) {
    for (int64_t i = 0; i < part.size(0); ++i) {
      back += corpus->vocabulary.Decode(part[i].item<int64_t>());
    }
  }
  EXPECT_EQ(back, letters);
}

TEST(SplitText, RefusesTextsWithNothingToLearn) {
  const auto error = [](const std::string& characters) -> std::string {
    try {
      SplitText({.characters = characters}, "task", 2);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(std::string(39, 'a').append("b")), "no error");
  EXPECT_THAT(error(std::string(38, 'a').append("b")),
              HasSubstr(" has 39 bytes; task needs at least 40"));
  EXPECT_THAT(error(std::string(40, 'a')),
              HasSubstr(" repeats one byte; task needs two different bytes"));
}

// A deterministic model: b follows a, c follows b, a follows c.
TEST(WriteText, FollowsThePrompt) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::vector<std::vector<int64_t>> given;
  const auto logits = [&](const at::Tensor& numbers) {
    given.emplace_back(numbers.const_data_ptr<int64_t>(),
                       numbers.const_data_ptr<int64_t>() + numbers.numel());
    at::Tensor out = at::full({3}, -std::numeric_limits<float>::infinity());
    out[(given.back().back() + 1) % 3] = 0;
    return out;
  };
  const Vocabulary vocabulary("abc");
  EXPECT_EQ(WriteText(vocabulary, "cab", 4, 1, generator, logits), "cabc");
  EXPECT_THAT(given,
              ElementsAre(ElementsAre(2, 0, 1), ElementsAre(2), ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(WriteText(vocabulary, "", 2, 1, generator, logits), "bc");  // after the first, a
  EXPECT_EQ(WriteText(Vocabulary("a\nb"), "", 2, 1, generator, logits), "ab");  // after a line
  try {
    WriteText(vocabulary, "axb\xc3\xa9x", 1, 1, generator, logits);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "[sample] --prompt has what the training text does not have: \"x\", byte 0xc3, "
                 "byte 0xa9");
  }
}

// 300 characters need more than a byte for their indices, and are three bytes long each.
TEST(SplitText, CountsCharacters) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += {'\xe4', static_cast<char>(0x80 + i / 64), static_cast<char>(0x80 + i % 64)};
  }
  const auto corpus =
      SplitText({.characters = text, .name = "han", .unit = TextUnit::kCharacter}, "task", 5);
  EXPECT_EQ(corpus->about.sizes,
            (std::map<std::string, int64_t>{{"train", 270}, {"valid", 15}, {"test", 15}}));
  EXPECT_THAT(corpus->about.description, HasSubstr("; 300 different characters"));
  EXPECT_EQ(corpus->train.scalar_type(), at::kInt);
  EXPECT_TRUE(corpus->test.to(at::kLong).equal(at::arange(285, 300)));
  const auto bytes = SplitText({.characters = text, .name = "han"}, "task", 5);
  EXPECT_EQ(bytes->about.sizes.at("train"), 810);
  EXPECT_EQ(bytes->train.scalar_type(), at::kByte);
}

TEST(WriteText, WritesCharacters) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const Vocabulary vocabulary("a\xc3\xa9", TextUnit::kCharacter);
  const auto logits = [](const at::Tensor& numbers) {  // a follows é, é follows a
    at::Tensor out = at::zeros({2});
    out[1 - numbers[-1].item<int64_t>()] = 100;
    return out;
  };
  EXPECT_EQ(WriteText(vocabulary, "a\xc3\xa9", 3, 1, generator, logits),
            "a\xc3\xa9"
            "a");
  try {
    WriteText(vocabulary, "\xc3\xa8\xc3", 1, 1, generator, logits);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "[sample] --prompt has what the training text does not have: "
                 "\"\xc3\xa8\", byte 0xc3");
  }
}

}  // namespace
}  // namespace planish::lab
