#include "lab/engine/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/error.h"

namespace planish::lab {
namespace {

const std::vector<SettingSpec>& Specs() {
  static const std::vector<SettingSpec> specs = {
      Choice("norm", "none", "", {"none", "layer"}),
      {"width", 10, "", 1, 100, {}},
      {"lr", 1e-3, "", 0, {}, {}},
      {"tied", false, "", {}, {}, {}},
      {"words", "any", "", {}, {}, {}},
  };
  return specs;
}

std::string ErrorOf(const std::string& name, const std::string& text) {
  Settings settings(Specs());
  try {
    settings.Set(name, text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Settings, StartAtTheirDefaults) {
  const Settings s(Specs());
  EXPECT_EQ(s.Text("norm"), "none");
  EXPECT_EQ(s.Int("width"), 10);
  EXPECT_EQ(s.Real("lr"), 1e-3);
  EXPECT_FALSE(s.Flag("tied"));
  EXPECT_EQ(s.values().dump(),
            R"({"norm":"none","width":10,"lr":0.001,"tied":false,"words":"any"})");
}

TEST(Settings, AcceptValuesOfTheirType) {
  Settings s(Specs());
  s.Set("norm", "layer");
  s.Set("width", "100");
  s.Set("lr", "3e-4");
  s.Set("tied", "yes");
  s.Set("words", "a=b c");
  EXPECT_EQ(s.values().dump(),
            R"({"norm":"layer","width":100,"lr":0.0003,"tied":true,"words":"a=b c"})");
  s.Set("lr", "0");  // an integer for a real setting
  EXPECT_EQ(s.Real("lr"), 0);
}

TEST(Settings, RefuseInvalidValues) {
  EXPECT_EQ(ErrorOf("widht", "3"),
            "[settings] name must be one of norm, width, lr, tied, words, got \"widht\"");
  EXPECT_EQ(ErrorOf("width", "3.5"), "[settings] width must be a whole number, got \"3.5\"");
  EXPECT_EQ(ErrorOf("width", ""), "[settings] width must be a whole number, got \"\"");
  EXPECT_EQ(ErrorOf("width", "99999999999999999999"),
            "[settings] width must be a whole number, got \"99999999999999999999\"");
  EXPECT_EQ(ErrorOf("width", "0"), "[settings] width must be at least 1 and at most 100, got 0");
  EXPECT_EQ(ErrorOf("width", "101"),
            "[settings] width must be at least 1 and at most 100, got 101");
  EXPECT_EQ(ErrorOf("lr", "-1"), "[settings] lr must be at least 0, got -1.0");
  EXPECT_EQ(ErrorOf("lr", "nan"), "[settings] lr must be a number, got \"nan\"");
  EXPECT_EQ(ErrorOf("lr", "inf"), "[settings] lr must be a number, got \"inf\"");
  EXPECT_EQ(ErrorOf("tied", "maybe"), "[settings] tied must be true or false, got \"maybe\"");
  EXPECT_EQ(ErrorOf("norm", "group"), "[settings] norm must be one of none, layer, got \"group\"");
}

TEST(Settings, ReplaceFormerChoicesByPresentOnes) {
  const std::vector<SettingSpec> specs = {
      Choice("data", "auto", "", {"auto", "synthetic"}, {{"made", "synthetic"}})};
  Settings settings(specs);
  settings.Set("data", "made");
  EXPECT_EQ(settings.Text("data"), "synthetic");
  Settings preset(specs);
  preset.Apply({"old", "", {{"data", "made"}}});
  EXPECT_EQ(preset.values().dump(), R"({"data":"synthetic"})");
  try {
    settings.Set("data", "none");
    FAIL() << "must throw";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "[settings] data must be one of auto, synthetic, got \"none\"");
  }
}

TEST(Settings, CheckPresetsToo) {
  Settings s(Specs());
  s.Apply({"big", "", {{"width", 50}}});
  EXPECT_EQ(s.Int("width"), 50);
  EXPECT_THROW(s.Apply({"bad", "", {{"width", 500}}}), UsageError);
  EXPECT_THROW(s.Apply({"bad", "", {{"depth", 2}}}), UsageError);
}

}  // namespace
}  // namespace planish::lab
