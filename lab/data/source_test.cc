#include "lab/data/source.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

// Sets PLANISH_DATA, or removes it, for the life of a test.
class Environment {
 public:
  explicit Environment(const char* value) {
    if (const char* old = getenv("PLANISH_DATA")) old_ = old;
    Set(value);
  }
  ~Environment() { Set(old_ ? old_->c_str() : nullptr); }

 private:
  static void Set(const char* value) {
    if (value) {
      setenv("PLANISH_DATA", value, 1);
    } else {
      unsetenv("PLANISH_DATA");
    }
  }
  std::optional<std::string> old_;
};

TEST(DataFolder, FlagThenEnvironmentThenNothing) {
  {
    const Environment environment("from/environment");
    EXPECT_EQ(DataFolder("from/flag"), "from/flag");
    EXPECT_EQ(DataFolder(""), "from/environment");
  }
  {
    const Environment environment("");
    EXPECT_EQ(DataFolder("from/flag"), "from/flag");
    EXPECT_EQ(DataFolder(""), std::nullopt);
  }
  const Environment environment(nullptr);
  EXPECT_EQ(DataFolder("from/flag"), "from/flag");
  EXPECT_EQ(DataFolder(""), std::nullopt);
}

TEST(OpenDigits, ReadsTheFolder) {
  const TestFolder temp;
  SmallSet().Write(temp.path() / "mnist");
  const ImageSet set = OpenDigits(temp.path(), {.train = 7, .test = 7, .seed = 1});
  EXPECT_EQ(set.source, "files");
  EXPECT_EQ(set.train.count, 3);
}

TEST(OpenDigits, NeverDrawsInsteadOfAFolderThatFails) {
  const TestFolder temp;
  EXPECT_THROW(OpenDigits(temp.path(), {}), DataError);
}

TEST(OpenDigits, DrawsWithoutAFolder) {
  const ImageSet set = OpenDigits(std::nullopt, {.train = 1000, .test = 5, .seed = 3});
  EXPECT_EQ(set.source, "embedded");
  EXPECT_EQ(set.name, "drawn digits");
  EXPECT_EQ(
      set.description,
      "digits drawn by planish (not MNIST): 1,000 training and 5 test images, drawing seed 3");
  EXPECT_EQ(set.sha256, DrawDigits({.train = 1000, .test = 5, .seed = 3}).sha256);
}

}  // namespace
}  // namespace planish::lab
