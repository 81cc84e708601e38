#include "lab/engine/model_file.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <fmt/format.h>
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

// A task whose model has `width` units and buffers of `steps` rows.
struct WideTask final : PackingTask {
  struct Wide final : Experiment {
    explicit Wide(const Settings& s) {
      const int64_t width = s.Int("width");
      for (int64_t i = 0; i < s.Int("layers"); ++i) {
        net.register_parameter(fmt::format("weight{}", i), at::ones({width, width}));
      }
      net.register_buffer("state", at::zeros({s.Int("steps"), width}));
    }
    torch::nn::Module& model() override { return net; }
    EpochPlan PlanEpoch(at::Generator& /*generator*/) override { return {}; }
    Tensors Batch(const at::Tensor& /*cases*/) override { return {}; }
    at::Tensor Loss(const Tensors& /*batch*/) override { return {}; }
    Values Evaluate() override { return {}; }
    torch::nn::Module net;
  };
  WideTask() {
    AddSettings({{"width", 8, "", 2, 1 << 20, {}},
                 {"heads", 2, "", 1, 1 << 20, {}},
                 {"layers", 2, "", 1, 1 << 20, {}},
                 {"steps", 4, "", 1, 1 << 30, {}}});
  }
  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& /*data*/) const override {
    if (s.Int("width") % s.Int("heads") != 0) throw UsageError("heads must divide width");
    return std::make_unique<Wide>(s);
  }
};

TEST_F(ModelFileTest, NamesTheSettingOfAModelThatIsTooLarge) {
  const WideTask wide;
  const Settings small(wide.settings);
  trained.experiment = wide.Make(small, *trained.data);
  run.config.settings = small.values();
  ExportModel(file, wide, run, trained, at::kFloat);
  const auto fault = [&](const std::map<std::string, int64_t>& changes) -> std::string {
    ExportedModel model = ReadModel(file);
    for (const auto& [name, value] : changes) model.run.config.settings[name] = value;
    try {
      OpenModel(wide, model);
    } catch (const DataError& e) {
      return e.what();
    } catch (const RunError& e) {
      return fmt::format("[RunError] {}", e.what());
    }
    return "no error";
  };
  const std::string before = fmt::format(
      "cannot read {}: its settings give a larger model than the 160 weights that are stored",
      file.string());
  EXPECT_EQ(fault({}), "no error");
  EXPECT_EQ(fault({{"width", 1 << 20}}), before + ": width is 1048576");  // 4 TB
  EXPECT_EQ(fault({{"steps", 1 << 30}}), before + ": steps is 1073741824");
  EXPECT_EQ(fault({{"layers", 1 << 20}}), before + ": layers is 1048576");
  // The smallest width is not divisible.
  EXPECT_EQ(fault({{"width", 1 << 20}, {"heads", 8}}), before + ": width is 1048576");
  EXPECT_EQ(fault({{"width", 1 << 20}, {"steps", 1 << 30}}), before);
  // A model that is a little too large is built, and its shapes are compared.
  EXPECT_THAT(fault({{"width", 10}}), HasSubstr("[RunError] "));
  EXPECT_THAT(fault({{"width", 10}}), HasSubstr("must have type F32 and shape [10,10]"));
}

}  // namespace
}  // namespace planish::lab
