#include "lab/run/former_settings.h"

#include <gtest/gtest.h>

#include "lab/run/results.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;

TEST(FormerSettings, HavePresentNamesAndValues) {
  EXPECT_EQ(PresentSetting("norm_position"), "placement");
  EXPECT_EQ(PresentSetting("placement"), "placement");
  EXPECT_EQ(PresentSetting(""), "");
  EXPECT_EQ(PresentValue("norm_position", "pre"), "pre-no-final");
  EXPECT_EQ(PresentValue("norm_position", "post"), "post");
  EXPECT_EQ(PresentValue("placement", "pre"), "pre");
}

TEST(FormerSettings, AreUpdatedInTheirOrder) {
  Json settings = {{"norm", "layer"}, {"norm_position", "pre"}, {"lr", 0.1}};
  UpdateSettings("enwik8", settings);
  EXPECT_EQ(settings.dump(),
            R"({"norm":"layer","placement":"pre-no-final","lr":0.1,"qk_norm":false})");
  const Json present = settings;
  UpdateSettings("enwik8", settings);
  EXPECT_EQ(settings, present);

  settings = {{"norm", "rms"}};
  UpdateSettings("mt", settings);
  EXPECT_EQ(settings.dump(), R"({"norm":"rms","placement":"pre","qk_norm":false,"init":"glorot",)"
                             R"("source_vocabulary":0,"columns":"","split_seed":1})");
  settings = {{"norm", "rms"}, {"qk_norm", true}, {"placement", "peri"}};
  UpdateSettings("rt", settings);
  EXPECT_EQ(settings.dump(),
            R"({"norm":"rms","qk_norm":true,"placement":"peri","split_by_seed":false})");
  settings = {{"cell", "gru"}};
  UpdateSettings("char-lm", settings);
  EXPECT_EQ(settings.dump(), R"({"cell":"gru","heads":1,"unit":"byte"})");
  settings = {{"norm", "online-1"}};
  UpdateSettings("online-ln", settings);
  EXPECT_EQ(settings.dump(), R"({"norm":"online-1","alpha_schedule":"constant"})");
  settings = {{"norm", "rms"}};
  UpdateSettings("pi-mnist", settings);
  EXPECT_EQ(settings.dump(), R"({"norm":"rms"})");
}

TEST(FormerSettings, AreUpdatedInAConfig) {
  RunConfig config;
  config.task = "enwik8";
  config.settings = {{"norm_position", "post"}};
  config.report.panel = "norm_position";
  const auto read = Json(config).get<RunConfig>();
  EXPECT_EQ(read.settings.dump(), R"({"placement":"post","qk_norm":false})");
  EXPECT_EQ(read.report.panel, "placement");
}

TEST(FormerSettings, UnitsOfByteRunsAreUpdatedInAConfig) {
  RunConfig config;
  config.task = "char-lm";
  config.metrics = {{"train_loss", "training loss of the batches", "nats/char", true},
                    {"test_bits", "test loss", "bits/char", true},
                    {"other", "other", "%", true}};
  const auto units = [&](const nlohmann::ordered_json& settings) {
    config.settings = settings;
    std::vector<std::string> texts;
    for (const MetricSpec& metric : Json(config).get<RunConfig>().metrics) {
      texts.push_back(metric.unit);
    }
    return texts;
  };
  const std::vector<std::string> of_bytes = {"nats/byte", "bits/byte", "%"};
  const std::vector<std::string> of_characters = {"nats/char", "bits/char", "%"};
  EXPECT_EQ(units({{"unit", "byte"}}), of_bytes);
  EXPECT_EQ(units({{"unit", "character"}}), of_characters);
  EXPECT_EQ(units({{"hidden", 3}}), of_bytes);  // of a version that counted only bytes
  config.task = "other";
  EXPECT_EQ(units({{"unit", "byte"}}), of_characters);
}

}  // namespace
}  // namespace planish::lab
