#include "lab/engine/model_file.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lab/engine/checkpoint.h"
#include "lab/engine/stored_weights.h"
#include "lab/engine/toy_task.h"
#include "lab/error.h"
#include "lab/run/safetensors.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The toy task, whose models keep the first input.
struct PackingTask : ToyTask {
  std::optional<PackedData> Pack(const Dataset& data) const override {
    const auto& toy = dynamic_cast<const ToyData&>(data);
    return PackedData{.values = {{"points", toy.x.size(0)}},
                      .tensors = {{"first", toy.x.slice(0, 0, 1)}}};
  }
  std::unique_ptr<Dataset> Unpack(const Settings& /*settings*/,
                                  const PackedData& packed) const override {
    auto data = std::make_unique<ToyData>();
    data->x = TensorNamed(packed, "first");
    data->y = at::full({1}, packed.values.at("points").get<double>());
    return data;
  }
};

class ModelFileTest : public ::testing::Test {
 protected:
  ModelFileTest() {
    settings.Set("norm", "layer");
    trained.data = task.Load(settings, {});
    trained.experiment = task.MakeSeeded(settings, *trained.data, 1);
    run.config = {.task = "toy",
                  .preset = "paper",
                  .settings = nlohmann::ordered_json::parse(R"({"norm": "layer"})"),
                  .seed = 1,
                  .data = trained.data->about,
                  .metrics = task.metrics,
                  .report = task.report,
                  .stamps = {{"torch", "from /opt/torch"}}};
    run.config.data.description = "43 points read from /home/someone/points.txt";
  }

  std::string Fault(const fs::path& path) {
    try {
      OpenModel(task, ReadModel(path));
    } catch (const RunError& e) {
      return e.what();
    }
    return "no error";
  }

  // Writes the file again with a changed copy of its metadata.
  fs::path Changed(const std::string& key, const std::string& value) {
    const SafetensorsFile stored = SafetensorsFile::Read(file);
    std::map<std::string, std::string> metadata = stored.metadata();
    metadata[key] = value;
    WriteSafetensors(folder / "changed", stored.tensors(), metadata);
    return folder / "changed";
  }

  TestFolder folder;
  fs::path file = folder / "model.safetensors";
  PackingTask task;
  Settings settings{task.settings};
  Trained trained;
  lab::Run run;
};

TEST_F(ModelFileTest, KeepsWeightsAndDataButNoPaths) {
  ExportModel(file, task, run, trained, at::kFloat);
  EXPECT_TRUE(IsExportedModel(file));
  const ExportedModel model = ReadModel(file);
  EXPECT_EQ(model.run.config.data.description, "43 points read from points.txt");
  EXPECT_EQ(model.run.config.stamps.at("torch"), "from torch");
  const Trained opened = OpenModel(task, model);
  EXPECT_EQ(opened.data->about.sizes.at("train"), 43);
  const NamedTensors before = WeightsOf(trained.experiment->model());
  const NamedTensors after = WeightsOf(opened.experiment->model());
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].second.equal(after[i].second)) << before[i].first;
  }
  const auto& data = dynamic_cast<const ToyData&>(*opened.data);
  EXPECT_TRUE(data.x.equal(dynamic_cast<const ToyData&>(*trained.data).x.slice(0, 0, 1)));
  EXPECT_EQ(data.y.item<double>(), 43);
  EXPECT_FALSE(opened.experiment->model().is_training());
}

TEST_F(ModelFileTest, RoundsWeightsToHalf) {
  ExportModel(file, task, run, trained, at::kHalf);
  const SafetensorsFile stored = SafetensorsFile::Read(file);
  EXPECT_EQ(stored.Find("model.linear.weight")->dtype, "F16");
  EXPECT_EQ(stored.Find("model.seen")->dtype, "I64");
  EXPECT_EQ(stored.Find("data.first")->dtype, "F32");
  const Trained opened = OpenModel(task, ReadModel(file));
  const NamedTensors before = WeightsOf(trained.experiment->model());
  const NamedTensors after = WeightsOf(opened.experiment->model());
  for (size_t i = 0; i < before.size(); ++i) {
    const at::Tensor expected = before[i].second.is_floating_point()
                                    ? before[i].second.to(at::kHalf).to(at::kFloat)
                                    : before[i].second;
    EXPECT_TRUE(expected.equal(after[i].second)) << before[i].first;
  }
  const at::NoGradGuard no_grad;
  trained.experiment->model().named_parameters()["linear.weight"][0][0] = 1e6;
  EXPECT_THROW(ExportModel(file, task, run, trained, at::kHalf), UsageError);
}

TEST_F(ModelFileTest, RefusesATaskThatNeedsItsData) {
  const ToyTask toy;
  EXPECT_THROW(ExportModel(file, toy, run, trained, at::kFloat), UsageError);
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(ModelFileTest, RefusesToReplaceAFileOfARun) {
  WriteFile(folder / "config.json", "{}");
  fs::create_directory(folder / "checkpoint");
  for (const char* name : {"config.json", "result.json", ".lock", "events.out.tfevents.1",
                           "checkpoint/state.safetensors"}) {
    EXPECT_THROW(ExportModel(folder / name, task, run, trained, at::kFloat), UsageError) << name;
  }
  EXPECT_EQ(ReadFile(folder / "config.json"), "{}");
  EXPECT_NO_THROW(ExportModel(file, task, run, trained, at::kFloat));
}

TEST_F(ModelFileTest, NamesFaultsOfAFile) {
  {
    const at::NoGradGuard no_grad;
    const at::Tensor weight = trained.experiment->model().named_parameters()["linear.weight"];
    const at::Tensor before = weight.clone();
    weight[0][0] = NAN;
    ExportModel(file, task, run, trained, at::kFloat);
    EXPECT_THAT(Fault(file), HasSubstr("model.linear.weight must have only finite values"));
    weight.copy_(before);
  }
  ExportModel(file, task, run, trained, at::kFloat);
  EXPECT_EQ(Fault(Changed("other", "x")), "no error");
  EXPECT_THAT(Fault(Changed("format", "planish-model/2")),
              HasSubstr("format must be planish-model/1"));
  EXPECT_TRUE(IsExportedModel(folder / "changed"));
  EXPECT_THAT(Fault(Changed("format", "pt")), HasSubstr("format must be planish-model/1"));
  EXPECT_FALSE(IsExportedModel(folder / "changed"));
  EXPECT_THAT(Fault(Changed("config", "{")), HasSubstr("changed: config: "));
  EXPECT_THAT(Fault(Changed("config", std::string(100'000, '['))), HasSubstr("nested too deeply"));
  EXPECT_THAT(Fault(Changed("data", "[1]")), HasSubstr("changed: data: it must be an object"));
  EXPECT_THAT(Fault(Changed("data", R"({"points": "many"})")), HasSubstr("changed: data: "));

  const SafetensorsFile stored = SafetensorsFile::Read(file);
  std::vector<StoredTensor> tensors = stored.tensors();
  const auto write = [&] {
    WriteSafetensors(folder / "changed", tensors, stored.metadata());
    return Fault(folder / "changed");
  };
  const auto weight = std::ranges::find(tensors, "model.linear.weight", &StoredTensor::name);
  weight->shape = {6, 3};
  EXPECT_THAT(write(), HasSubstr("model.linear.weight must have type F32 and shape [3,6]"));
  weight->shape = {3, 6};
  weight->dtype = "I32";
  EXPECT_THAT(write(), HasSubstr("model.linear.weight must have type F32"));
  tensors.erase(weight);
  EXPECT_THAT(write(), HasSubstr("model.linear.weight is missing"));

  std::string bytes = ReadFile(file);
  bytes[bytes.size() - 3] ^= 1;
  WriteFile(folder / "changed", bytes);
  EXPECT_THAT(Fault(folder / "changed"), HasSubstr("checksum"));
}

}  // namespace
}  // namespace planish::lab
