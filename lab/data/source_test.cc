#include "lab/data/source.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

// Sets or removes PLANISH_DATA for the duration of a test.
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

std::string ErrorOf(const std::string& flag) {
  try {
    DataFolder(flag);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(DataFolder, FlagThenEnvironmentThenNothing) {
  const TestFolder temp;
  const std::string flag = temp.path() / "flag", variable = temp.path() / "variable";
  WriteFile(flag, "x");
  WriteFile(variable, "x");
  {
    const Environment environment(variable.c_str());
    EXPECT_EQ(DataFolder(flag), flag);
    EXPECT_EQ(DataFolder(""), variable);
    EXPECT_EQ(GivenData(""), std::nullopt);
  }
  for (const char* none : {"", static_cast<const char*>(nullptr)}) {
    const Environment environment(none);
    EXPECT_EQ(DataFolder(flag), flag);
    EXPECT_EQ(DataFolder(""), std::nullopt);
  }
}

TEST(DataFolder, RefusesAMissingPath) {
  const TestFolder temp;
  const Environment none(nullptr);
  EXPECT_EQ(ErrorOf("/no/such"), "no such folder: /no/such");
  EXPECT_EQ(ErrorOf("/no/such.txt"), "no such file: /no/such.txt");
  WriteFile(temp.path() / "file", "x");
  const std::string below = temp.path() / "file/below";
  EXPECT_EQ(ErrorOf(below), "no such folder: " + below);
  EXPECT_EQ(ErrorOf(std::string(5000, 'a')),
            "cannot read " + std::string(5000, 'a') + ": File name too long");
  const Environment environment("/no/such");
  EXPECT_EQ(ErrorOf(""), "no such folder: /no/such (from PLANISH_DATA)");
}

TEST(DataFolder, RefusesANameThatIsNotUtf8) {
  const TestFolder temp;
  const std::string path = (temp.path() / "b\xfcse").string();
  WriteFile(path, "x");
  const std::string escaped = (temp.path() / "b\\xfcse").string();
  EXPECT_EQ(ErrorOf(path), "the path of the data must be UTF-8: " + escaped);
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
