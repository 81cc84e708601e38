#include "lab/engine/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lab/engine/adam.h"
#include "lab/error.h"
#include "lab/run/safetensors.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  explicit Net(int64_t width)
      : linear(register_module("linear", torch::nn::Linear(3, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))) {}
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
};

// Returns the state before the first update, after the first evaluation.
TrainingState StateOf(const torch::nn::Module& model) {
  TrainingState state;
  state.last.values = {{"valid", 0.5}};
  state.best = RunResult::Best{"valid", 0, {{"valid", 0.5}}};
  for (const auto& [name, t] : WeightsOf(model)) state.best_weights.emplace_back(name, t.clone());
  state.threads = "1";
  return state;
}

class CheckpointTest : public ::testing::Test {
 protected:
  TestFolder folder;
  std::filesystem::path file = folder.path() / "checkpoint" / "state.safetensors";
};

TEST_F(CheckpointTest, BringsEverythingBack) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  for (int i = 0; i < 12; ++i) {
    for (const auto& [name, p] : ParametersOf(net)) p.mutable_grad() = at::randn_like(p);
    adam.Step();
  }
  net.norm->running_mean.normal_();
  TrainingState state;
  state.step = 12;
  state.epoch = 3;
  state.batch = 2;
  state.epoch_fraction = 3.1;
  state.cases = 48;
  state.seconds = 0.1 + 0.2;
  state.evaluation_seconds = 1e-300;
  state.loss_sum = 1.0 / 3;
  state.loss_count = 4;
  state.input_seconds = 0.25;
  state.cpu_seconds = 0.125;
  state.data = "where it was";
  state.best = RunResult::Best{"valid", 8, {{"valid", 0.25}}};
  for (const auto& [name, t] : WeightsOf(net)) state.best_weights.emplace_back(name, t.clone() + 1);
  state.last = {.step = 8, .epoch = 2, .cases = 32, .seconds = 0.2, .values = {{"valid", 0.5}}};
  state.evaluation_due = true;
  state.gradients = {{.norm = "norm", .rows = 3, .sigma = 0.5, .variance_after = 0.1}};
  state.threads = "2";
  SaveCheckpoint(file, net, adam, state);
  const at::Tensor next = at::rand({5});  // next draw after the checkpoint

  Net other(4);
  Adam other_adam(ParametersOf(other), {});
  const TrainingState back = LoadCheckpoint(file, other, other_adam);
  EXPECT_TRUE(at::rand({5}).equal(next));
  for (const auto& item : net.named_parameters())
    EXPECT_TRUE(item.value().equal(other.named_parameters()[item.key()])) << item.key();
  for (const auto& item : net.named_buffers())
    EXPECT_TRUE(item.value().equal(other.named_buffers()[item.key()])) << item.key();
  const NamedTensors a = adam.State(), b = other_adam.State();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.epoch, 3);
  EXPECT_EQ(back.batch, 2);
  EXPECT_EQ(back.epoch_fraction, 3.1);
  EXPECT_EQ(back.cases, 48);
  EXPECT_EQ(back.seconds, 0.1 + 0.2);
  EXPECT_EQ(back.evaluation_seconds, 1e-300);
  EXPECT_EQ(back.loss_sum, 1.0 / 3);
  EXPECT_EQ(back.loss_count, 4);
  EXPECT_EQ(back.best->values.at("valid"), 0.25);
  EXPECT_EQ(back.last.values.at("valid"), 0.5);
  EXPECT_TRUE(back.evaluation_due);
  ASSERT_EQ(back.gradients.size(), 1);
  EXPECT_EQ(back.gradients[0].norm, "norm");
  EXPECT_EQ(back.gradients[0].rows, 3);
  EXPECT_EQ(back.gradients[0].sigma, 0.5);
  EXPECT_EQ(back.gradients[0].variance_after, 0.1);
  EXPECT_EQ(back.threads, "2");
  EXPECT_EQ(back.input_seconds, 0.25);
  EXPECT_EQ(back.cpu_seconds, 0.125);
  EXPECT_EQ(back.data, "where it was");
  EXPECT_EQ(SummarizeCheckpoint(file).data, "where it was");
  ASSERT_EQ(back.best_weights.size(), state.best_weights.size());
  Net best(4);
  LoadBestWeights(file, best);
  const NamedTensors weights = WeightsOf(best);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(back.best_weights[i].second.equal(state.best_weights[i].second));
    EXPECT_TRUE(weights[i].second.equal(state.best_weights[i].second)) << weights[i].first;
  }
}

TEST_F(CheckpointTest, RefusesAnotherModel) {
  Net net(4), wider(5);
  Adam adam(ParametersOf(net), {}), wider_adam(ParametersOf(wider), {});
  SaveCheckpoint(file, net, adam, StateOf(net));
  try {
    LoadCheckpoint(file, wider, wider_adam);
    FAIL();
  } catch (const RunError& e) {
    EXPECT_THAT(e.what(), HasSubstr("must have type F32 and shape [5,3], got F32 and [4,3]"));
  }
  torch::nn::Linear linear(3, 4);
  Adam linear_adam(ParametersOf(*linear), {});
  EXPECT_THROW(LoadCheckpoint(file, *linear, linear_adam), RunError);
}

TEST_F(CheckpointTest, RefusesAnotherFile) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  std::filesystem::create_directories(file.parent_path());
  WriteSafetensors(file, {}, {{"format", "something else"}});
  EXPECT_THROW(LoadCheckpoint(file, net, adam), RunError);
  WriteSafetensors(file, {}, {{"format", "planish-checkpoint/2"}});
  EXPECT_THROW(LoadCheckpoint(file, net, adam), RunError);
  EXPECT_THROW(LoadCheckpoint(folder.path() / "none", net, adam), RunError);
}

// Rewrites the file with a valid checksum after change(state, tensors).
template <class F>
void Alter(const std::filesystem::path& file, const F& change) {
  const auto stored = SafetensorsFile::Read(file, Checksum::kRequired);
  std::map<std::string, std::string> metadata = stored.metadata();
  Json state = Json::parse(metadata.at("state"));
  std::vector<StoredTensor> tensors = stored.tensors();
  change(state, tensors);
  metadata["state"] = state.dump();
  WriteSafetensors(file, tensors, metadata);
}

// Returns the error message of LoadCheckpoint, or "".
std::string FaultOf(const std::filesystem::path& file) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  try {
    LoadCheckpoint(file, net, adam);
  } catch (const RunError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot read " + file.string()));
    return e.what();
  }
  return "";
}

TEST_F(CheckpointTest, RefusesStatesInWhichNoTrainingStops) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  SaveCheckpoint(file, net, adam, StateOf(net));
  ASSERT_EQ(FaultOf(file), "");
  const std::string good = ReadFile(file);
  const auto fault = [&](const char* pointer, const Json& value) {
    WriteFile(file, good);
    Alter(file, [&](Json& state, auto&) {
      const Json::json_pointer at(pointer);
      if (value.is_discarded()) {
        state[at.parent_pointer()].erase(at.back());
      } else {
        state[at] = value;
      }
    });
    return FaultOf(file);
  };
  const Json absent(Json::value_t::discarded);
  for (const char* key :
       {"step", "epoch", "batch", "epoch_fraction", "cases", "seconds", "input_seconds",
        "evaluation_seconds", "loss_sum", "loss_count", "last", "threads", "data", "best"}) {
    EXPECT_THAT(fault(("/" + std::string(key)).c_str(), absent),
                HasSubstr(std::string(key) + " is missing"));
  }
  for (const char* key : {"step", "epoch", "batch", "cases", "loss_count"}) {
    for (const Json& bad : {Json(-1), Json(INT64_MIN), Json(1e300), Json(1.5), Json(UINT64_MAX),
                            Json("1"), Json(true), Json(nullptr), Json::array()}) {
      EXPECT_THAT(fault(("/" + std::string(key)).c_str(), bad),
                  HasSubstr(std::string("state: ") + key + " must be"))
          << bad;
    }
  }
  for (const char* key : {"seconds", "input_seconds", "evaluation_seconds", "epoch_fraction"}) {
    for (const Json& bad : {Json(-1), Json(1e300), Json("1"), Json(nullptr)}) {
      EXPECT_THAT(fault(("/" + std::string(key)).c_str(), bad),
                  HasSubstr(std::string("state: ") + key + " must be"))
          << bad;
    }
  }
  EXPECT_THAT(fault("/step", 7), HasSubstr("loss_count must be an integer from 7 to 7"));
  EXPECT_THAT(fault("/last/step", 3), HasSubstr("state: last.step must be"));
  EXPECT_THAT(fault("/last/values", absent), HasSubstr("last: key 'values' not found"));
  EXPECT_THAT(fault("/last/values/valid", nullptr), HasSubstr("last: "));
  EXPECT_THAT(fault("/best/step", 1), HasSubstr("state: best.step must be"));
  EXPECT_THAT(fault("/best/by", 3), HasSubstr("best.by: type must be string"));
  EXPECT_THAT(fault("/best/by", "other"), HasSubstr("best.values must have \"other\""));
  EXPECT_THAT(fault("/best", Json::array()), HasSubstr("best.by is missing"));
  EXPECT_THAT(fault("/evaluation_due", 1), HasSubstr("evaluation_due: type must be boolean"));
  EXPECT_THAT(fault("/evaluation_due", true), HasSubstr("evaluation_due must be false"));
  EXPECT_THAT(fault("/gradients", absent), HasSubstr("gradients is missing"));
  EXPECT_THAT(fault("/gradients", Json::array({1})), HasSubstr("gradients: "));
  EXPECT_EQ(fault("/evaluation_due", absent), "");  // as older versions wrote it
  EXPECT_THAT(fault("/threads", "\x1b[31m"), HasSubstr("threads must be digits"));
}

TEST_F(CheckpointTest, RefusesAStateThatIsNestedTooDeeply) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  SaveCheckpoint(file, net, adam, StateOf(net));
  const auto stored = SafetensorsFile::Read(file, Checksum::kRequired);
  std::string state = "{\"step\":";
  for (int i = 0; i < 100'000; ++i) state += "[";
  for (int i = 0; i < 100'000; ++i) state += "]";
  std::map<std::string, std::string> metadata = stored.metadata();
  metadata["state"] = state + "}";
  WriteSafetensors(file, stored.tensors(), metadata);
  EXPECT_THAT(FaultOf(file), HasSubstr("nested too deeply"));
  EXPECT_THROW(SummarizeCheckpoint(file), RunError);
  EXPECT_THROW(LoadBestWeights(file, net), RunError);
}

TEST_F(CheckpointTest, RefusesTensorsThatNoTrainingLeaves) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  SaveCheckpoint(file, net, adam, StateOf(net));
  const std::string good = ReadFile(file);
  // Returns the error message after every element of the tensor is set to `value`.
  const auto fault = [&](const std::string& name, float value) {
    WriteFile(file, good);
    std::vector<float> values(100, value);
    Alter(file, [&](Json&, std::vector<StoredTensor>& tensors) {
      for (StoredTensor& t : tensors) {
        if (t.name == name) t.data = std::as_bytes(std::span(values)).first(t.data.size());
      }
    });
    return FaultOf(file);
  };
  EXPECT_EQ(fault("model.linear.weight", 3), "");
  for (const float bad : {-1.0f, 1.0f, 0.5f, NAN, INFINITY}) {
    EXPECT_THAT(fault("adam.step.linear.weight", bad),
                HasSubstr("adam.step.linear.weight must be 0"));
  }
  EXPECT_THAT(fault("adam.second_moment.linear.bias", -1),
              HasSubstr("adam.second_moment.linear.bias must have no element below 0"));
  // Overflowing gradients leave such moments; training then ends as diverged.
  for (const float large : {INFINITY, NAN}) {
    EXPECT_EQ(fault("adam.second_moment.linear.bias", large), "");
  }

  WriteFile(file, good);
  const std::vector<std::byte> ones(10'000, std::byte{255});
  Alter(file, [&](Json&, std::vector<StoredTensor>& tensors) {
    for (StoredTensor& t : tensors) {
      if (t.name == "generator.cpu") t.data = std::span(ones).first(t.data.size());
    }
  });
  EXPECT_THAT(FaultOf(file), HasSubstr("generator.cpu"));

  for (const char* name : {"model.linear.weight", "best.norm.running_var", "generator.cpu",
                           "adam.first_moment.norm.bias"}) {
    WriteFile(file, good);
    Alter(file, [&](Json&, std::vector<StoredTensor>& tensors) {
      std::erase_if(tensors, [&](const StoredTensor& t) { return t.name == name; });
    });
    EXPECT_THAT(FaultOf(file), HasSubstr(std::string(name) + " is missing"));
    WriteFile(file, good);
    Alter(file, [&](Json&, std::vector<StoredTensor>& tensors) {
      for (StoredTensor& t : tensors) {
        if (t.name != name) continue;
        t.dtype = "U8";
        t.shape = {static_cast<int64_t>(t.data.size()), 1};
      }
    });
    EXPECT_THAT(FaultOf(file), HasSubstr(std::string(name) + " must have type"));
  }
}

TEST_F(CheckpointTest, CreatesOnlyItsOwnFolder) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  EXPECT_THROW(
      SaveCheckpoint(folder / "gone/checkpoint/state.safetensors", net, adam, StateOf(net)),
      RunError);
  EXPECT_TRUE(folder.Entries().empty());
}

TEST_F(CheckpointTest, WritesNothingThroughALink) {
  Net net(4);
  Adam adam(ParametersOf(net), {});
  std::filesystem::create_directories(folder / "elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", file.parent_path());
  EXPECT_THROW(SaveCheckpoint(file, net, adam, StateOf(net)), RunError);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "elsewhere"));
}

}  // namespace
}  // namespace planish::lab
