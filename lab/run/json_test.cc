#include "lab/run/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Returns the error of ParseJson, or "" if it accepts `text`.
std::string FaultOf(const std::string& text) {
  try {
    ParseJson(text);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

std::string Nested(int depth, const std::string& open, const std::string& inside,
                   const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += inside;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(ParseJson, KeepsTheOrderOfKeysAndTheBitsOfNumbers) {
  const Json json = ParseJson(R"( {"b": [1, 0.1, -0.0], "a": {"c": null, "é": "\u00e9"}} )");
  EXPECT_EQ(json.dump(), R"({"b":[1,0.1,-0.0],"a":{"c":null,"é":"é"}})");
}

TEST(ParseJson, RefusesDeepNesting) {
  for (const auto& [open, close] :
       {std::pair<const char*, const char*>{"[", "]"}, {"{\"a\":", "}"}}) {
    EXPECT_EQ(FaultOf(Nested(kMaxJsonDepth, open, "1", close)), "");
    for (const int depth : {kMaxJsonDepth + 1, 100'000}) {
      EXPECT_THAT(FaultOf(Nested(depth, open, "1", close)), HasSubstr("nested too deeply"));
    }
    EXPECT_THAT(FaultOf(Nested(100'000, open, "", "")), HasSubstr("nested too deeply"));
  }
  EXPECT_THAT(FaultOf(R"({"a":{"b":)" + Nested(100'000, "[", "1", "]") + "}}"),
              HasSubstr("nested too deeply"));
  // Brackets in strings, and consecutive arrays, are not nested.
  EXPECT_EQ(FaultOf("\"" + std::string(1000, '[') + "\""), "");
  EXPECT_EQ(FaultOf("[" + Nested(1000, "[],", "[]", "") + "]"), "");
}

TEST(ParseJson, RefusesLargeTexts) {
  EXPECT_THAT(FaultOf(std::string(kMaxJsonBytes + 1, ' ')), HasSubstr("larger than"));
}

TEST(ParseJson, RefusesSyntaxErrors) {
  for (const char* bad : {"{", "nonsense", "{}{}", "\xff", "[1,]", "{\"a\":1", "'a'", "[NaN]"}) {
    EXPECT_THAT(FaultOf(bad), HasSubstr("not JSON (syntax error at byte")) << bad;
  }
  for (const char* empty : {"", " ", "\n\t"}) EXPECT_EQ(FaultOf(empty), "empty");
  EXPECT_THAT(FaultOf(std::string("{}\0", 3)), HasSubstr("zero byte"));
  EXPECT_THAT(FaultOf("[1e999]"), HasSubstr("too large"));
}

TEST(ParseJson, RefusesAKeyTwiceInAnObject) {
  EXPECT_THAT(FaultOf(R"({"a":1,"b":2,"a":3})"), HasSubstr("the key \"a\" twice"));
  EXPECT_THAT(FaultOf(R"([{"b":{"c":1,"c":1}}])"), HasSubstr("the key \"c\" twice"));
  EXPECT_EQ(FaultOf(R"([{"a":{"a":1}},{"a":1}])"), "");
}

// Messages go to a terminal.
TEST(ParseJson, MessagesAreShortAndPrintable) {
  const std::string escape = "\x1b]0;title\x07";
  for (const std::string& bad : std::vector<std::string>{
           "\"" + escape, "{\"a\":x" + escape, std::string(1'000'000, '1') + "x",
           R"({"\u001b[31m\u009b":1,"\u001b[31m\u009b":1})",
           "{\"" + std::string(1000, 'k') + "\":1,\"" + std::string(1000, 'k') + "\":1}"}) {
    const std::string fault = FaultOf(bad);
    EXPECT_NE(fault, "");
    EXPECT_LT(fault.size(), 200u);
    for (const char c : fault) EXPECT_TRUE(c >= ' ' && c <= '~') << fault;
  }
}

TEST(IntegerAt, NamesTheKeyAndTheValue) {
  const Json json =
      ParseJson(R"({"i":7,"n":-1,"f":1.5,"b":18446744073709551615,"t":true,"s":"7","o":{}})");
  EXPECT_EQ(IntegerAt(json, "i", 0, 7), 7);
  EXPECT_EQ(IntegerAt(json, "n", -1, 0), -1);
  const auto says = [](const char* text) { return ThrowsMessage<std::invalid_argument>(text); };
  EXPECT_THAT([&] { IntegerAt(json, "i", 0, 6); }, says("i must be an integer from 0 to 6, got 7"));
  EXPECT_THAT([&] { IntegerAt(json, "n", 0, 6); },
              says("n must be an integer from 0 to 6, got -1"));
  EXPECT_THAT([&] { IntegerAt(json, "o", 0, 6); },
              says("o must be an integer from 0 to 6, got an object"));
  EXPECT_THAT([&] { IntegerAt(json, "x", 0, 6); }, says("x is missing"));
  for (const char* key : {"f", "b", "t", "s"}) {
    EXPECT_THROW(IntegerAt(json, key, 0, INT64_MAX), std::invalid_argument) << key;
  }
  EXPECT_THROW(IntegerAt(Json(3), "i", 0, 6), std::invalid_argument);
}

TEST(NumberAt, NamesTheKeyAndTheValue) {
  const Json json = ParseJson(R"({"i":7,"f":1.5,"t":true,"s":"7","z":null})");
  EXPECT_EQ(NumberAt(json, "i", 0, 7), 7);
  EXPECT_EQ(NumberAt(json, "f", 1.5, 2), 1.5);
  EXPECT_THAT([&] { NumberAt(json, "f", 2, 3); },
              ThrowsMessage<std::invalid_argument>("f must be a number from 2 to 3, got 1.5"));
  for (const char* key : {"t", "s", "z", "x"}) {
    EXPECT_THROW(NumberAt(json, key, 0, 9), std::invalid_argument) << key;
  }
}

}  // namespace
}  // namespace planish::lab
