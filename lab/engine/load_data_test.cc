#include "lab/engine/load_data.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

// Task whose data has unprintable names, or that runs out of memory.
struct HungryTask final : Task {
  std::unique_ptr<Dataset> Load(const Settings&,
                                const std::optional<std::filesystem::path>&) const override {
    ++loaded;
    if (fails == "malloc") throw std::bad_alloc();
    if (fails == "torch") at::empty({int64_t{1} << 60}, at::kByte);
    if (fails == "other") throw std::runtime_error("other");
    auto data = std::make_unique<Dataset>();
    data->about.name = "a\x1b[31m";
    data->about.description = "read from \xff";
    return data;
  }
  std::unique_ptr<Experiment> Make(const Settings&, const Dataset&) const override {
    return nullptr;
  }
  std::string fails;
  mutable int loaded = 0;
};

std::string ErrorOf(const HungryTask& task, const std::optional<std::filesystem::path>& path) {
  try {
    LoadData(task, Settings(task.settings), path);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(LoadData, EscapesNamesOfFilesAndPaths) {
  const HungryTask task;
  const auto data = LoadData(task, Settings(task.settings), "/data");
  EXPECT_EQ(data->about.name, "a\\x1b[31m");
  EXPECT_EQ(data->about.description, "read from \\xff");
}

TEST(LoadData, RefusesAPathThatIsNotUtf8BeforeItReads) {
  const HungryTask task;
  EXPECT_EQ(ErrorOf(task, "/d\xff/\x1b"), "the data path /d\\xff/\\x1b is not UTF-8: rename it");
  EXPECT_EQ(task.loaded, 0);
  EXPECT_EQ(ErrorOf(task, "/d\u00e4ta"), "no error");
}

TEST(LoadData, RefusesArchivesBeforeItReads) {
  const HungryTask task;
  const TestFolder folder;
  WriteFile(folder / "data", "PK\3\4");
  EXPECT_EQ(ErrorOf(task, folder / "data"),
            "cannot read " + (folder / "data").string() +
                ": it is a zip archive, and only gzip is read: unpack it first (unzip)");
  EXPECT_EQ(ErrorOf(task, "/dev/null"),
            "cannot read /dev/null: it is a device or pipe, not a regular file");
  EXPECT_EQ(task.loaded, 0);
  WriteFile(folder / "data", "text");
  EXPECT_EQ(ErrorOf(task, folder / "data"), "no error");
}

TEST(LoadData, NamesTheDataWhenMemoryRunsOut) {
  HungryTask task;
  for (const char* fails : {"malloc", "torch"}) {
    task.fails = fails;
    EXPECT_EQ(ErrorOf(task, "/data"), "cannot read /data: not enough memory") << fails;
  }
  EXPECT_THROW(LoadData(task, Settings(task.settings), std::nullopt), std::exception);
  task.fails = "other";
  EXPECT_THROW(LoadData(task, Settings(task.settings), "/data"), std::runtime_error);
}

}  // namespace
}  // namespace planish::lab
