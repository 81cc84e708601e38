#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/rnn.h>

#include <string>
#include <tuple>
#include <vector>

#include "planish/cuda_rnn.h"
#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "torch/base/fake_cuda_device.h"
#include "torch/rnn/call.h"
#include "torch/rnn/testing.h"

// Recurrent layers on the fake CUDA device against the CPU, whose tests compare with references.
namespace planish::tests {
namespace {

using ::testing::HasSubstr;

RnnTensors OnGpu(const RnnTensors& layer) {
  RnnTensors there;
  for (const Field& field : kFields) there.*field.member = ToGpu(layer.*field.member);
  return there;
}

/// Returns the outputs, and all gradients, on the CPU.
std::vector<Tensor> Results(Cell cell, const RnnTensors& layer, const RnnSettings& settings) {
  RnnTensors leaves;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < kTensors; ++i) {
    const Tensor& t = layer.*kFields[i].member;
    leaves.*kFields[i].member =
        t.defined() && i < kDifferentiables ? t.detach().requires_grad_(true) : t;
    if (t.defined() && i < kDifferentiables) inputs.push_back(leaves.*kFields[i].member);
  }
  const RnnOutputs out = rnn_forward(cell, leaves, settings);
  std::vector<Tensor> outputs = {out.y, out.h_n}, seeds;
  if (IsLstm(cell)) outputs.push_back(out.c_n);
  at::manual_seed(3);
  for (const Tensor& t : outputs) {
    EXPECT_EQ(t.device(), layer.x.device());
    const Tensor seed = Random(t.sizes(), t.scalar_type());
    seeds.push_back(layer.x.is_cpu() ? seed : ToGpu(seed));
  }
  std::vector<Tensor> results = outputs;
  for (const Tensor& g : torch::autograd::grad(outputs, inputs, seeds)) results.push_back(g);
  for (Tensor& t : results) t = layer.x.is_cpu() ? t.detach() : ToCpu(t);
  return results;
}

void ExpectAgree(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ExpectNear(found[i], expected[i], what + ", result " + std::to_string(i));
  }
}

// One step, with the caller's matrix products, and several, with the persistent kernel if they fit.
TEST(RnnOnGpu, MatchesTheCpu) {
  for (const Kind& kind : CudaKinds()) {
    const Cell cell = kind.cell;
    for (const int64_t time : {1, 4}) {
      for (const bool more : {false, true}) {
        const Given given = {
            .states = more, .lengths = more, .resets = more, .reverse = more, .affine = !more};
        const RnnTensors layer = RandomLayer(cell, Shaped({time, 3, 5, 6}, kind.recurrence), given);
        ExpectAgree(Results(cell, OnGpu(layer), given.settings()),
                    Results(cell, layer, given.settings()),
                    NameOf(kind) + ", T " + std::to_string(time) + (more ? ", more" : ""));
      }
    }
  }
}

// 16-bit tensors are computed in float and rounded. Sums of norms of few elements in another order
// differ in float's last bits, which can change the rounding: one ulp of bfloat16.
TEST(RnnOnGpu, MatchesTheCpuInSixteenBits) {
  for (const Cell cell : {Cell::kLnLstm, Cell::kLnGru, Cell::kLnRnn, Cell::kLstm, Cell::kSlstm}) {
    const RnnTensors layer = RandomLayer(cell, {4, 3, 5, 7}, {.resets = true}, at::kBFloat16);
    const auto found = Results(cell, OnGpu(layer), {}), expected = Results(cell, layer, {});
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
      const Tensor a = found[i].to(at::kDouble), b = expected[i].to(at::kDouble);
      EXPECT_LE((a - b).abs().max().item<double>(), 0x1p-7 * b.abs().max().item<double>())
          << cell_name(cell) << ", result " << i;
    }
  }
}

// More sequences than the persistent kernel takes.
TEST(RnnOnGpu, MatchesTheCpuForManySequences) {
  for (const Cell cell : {Cell::kLnLstm, Cell::kLnGru, Cell::kRnn, Cell::kSlstm}) {
    const RnnTensors layer = RandomLayer(cell, {3, 70, 2, 3});
    ExpectAgree(Results(cell, OnGpu(layer), {}), Results(cell, layer, {}), cell_name(cell));
  }
}

TEST(RnnOnGpu, StepMatchesTheCpu) {
  for (const Kind& kind : CudaKinds()) {
    RnnTensors layer = RandomLayer(kind.cell, Shaped({1, 3, 5, 6}, kind.recurrence));
    layer.x = layer.x.squeeze(0);
    const auto [h, c] = rnn_step(kind.cell, layer, 1e-3);
    const auto [gpu_h, gpu_c] = rnn_step(kind.cell, OnGpu(layer), 1e-3);
    ExpectNear(ToCpu(gpu_h), h, NameOf(kind));
    ExpectNear(ToCpu(gpu_c), c, NameOf(kind));
  }
}

class RnnModulesOnGpu : public ::testing::TestWithParam<Kind> {};

TEST_P(RnnModulesOnGpu, LayersAndCellsMatchTheCpu) {
  at::manual_seed(1);
  torch::NoGradGuard no_grad;
  const auto [variant, recurrence] = GetParam();
  const int64_t heads = recurrence == Recurrence::kHeads ? 2 : 1;
  nn::LayerNormLSTM layer(
      nn::LayerNormLSTMOptions(5, 6).num_layers(2).bidirectional(true).variant(variant).num_heads(
          heads));
  layer->to(torch::kDouble);
  nn::LayerNormLSTMCell lstm_cell(
      nn::LayerNormLSTMCellOptions(5, 6).variant(variant).num_heads(heads));
  lstm_cell->to(torch::kDouble);
  const Tensor x = Random({4, 3, 5});
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({4, 2, 1}));
  nn::LayerNormGRUCell cell(nn::LayerNormGRUCellOptions(5, 6));
  cell->to(torch::kDouble);

  const auto results = [&](bool gpu) {
    const auto place = [&](const Tensor& t) { return gpu ? ToGpu(t) : t; };
    const auto back = [&](const Tensor& t) { return gpu ? ToCpu(t) : t; };
    const auto [y, states] = layer->forward(place(x));
    const torch::nn::utils::rnn::PackedSequence given(place(packed.data()), packed.batch_sizes());
    const auto [packed_y, packed_states] = layer->forward_with_packed_input(given);
    const Tensor h = cell->forward(place(x[0]));
    std::tuple<Tensor, Tensor> state = lstm_cell->forward(place(x[0]));
    const RnnSteps steps = lstm_cell->steps();
    for (int64_t t = 1; t < 4; ++t) {
      state = steps.step(place(x[t]), std::get<0>(state), std::get<1>(state));
    }
    return std::vector<Tensor>{back(y),
                               back(std::get<0>(states)),
                               back(std::get<1>(states)),
                               back(packed_y.data()),
                               back(std::get<0>(packed_states)),
                               back(h),
                               back(std::get<0>(state)),
                               back(std::get<1>(state))};
  };
  const std::vector<torch::nn::Module*> modules = {layer.get(), cell.get(), lstm_cell.get()};
  for (const bool training : {true, false}) {  // in evaluation the CPU packs its weights
    for (torch::nn::Module* module : modules) module->train(training);
    const std::vector<Tensor> expected = results(false);
    for (torch::nn::Module* module : modules) module->to(torch::kCUDA);
    ExpectAgree(results(true), expected, training ? "training" : "evaluation");
    for (torch::nn::Module* module : modules) module->to(torch::kCPU);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RnnModulesOnGpu,
                         ::testing::Values(Kind{Cell::kLnLstm, Recurrence::kDense},
                                           Kind{Cell::kSlstm, Recurrence::kHeads}),
                         [](const auto& test) { return NameOf(test.param); });

TEST(RnnOnGpu, RejectsOptionsOfTheCpu) {
  const RnnTensors layer = RandomLayer(Cell::kLnLstm, {3, 2, 4, 5}), there = OnGpu(layer);
  EXPECT_THAT(
      ErrorOf([&] { rnn_forward(Cell::kLnLstm, there, {.checkpoint = true}); }),
      HasSubstr("[rnn_forward] checkpoint must be false unless x is on the CPU, got x on cuda:0"));
  const RnnPacked packed = rnn_pack(Cell::kLnLstm, layer);
  EXPECT_THAT(
      ErrorOf([&] { rnn_forward(Cell::kLnLstm, there, {}, packed); }),
      HasSubstr("[rnn_forward] packed must be left out unless x is on the CPU, got x on cuda:0"));
  EXPECT_THAT(ErrorOf([&] { rnn_pack(Cell::kLnLstm, there); }),
              HasSubstr("[rnn_pack] weight_ih must be on the CPU, got a tensor on cuda:0"));
  const RnnTensors batch = OnGpu(RandomLayer(Cell::kBnLstm, {3, 2, 4, 5}));
  EXPECT_THAT(ErrorOf([&] { rnn_forward(Cell::kBnLstm, batch); }),
              HasSubstr("cell must be a cell without batch norm, got"));
}

}  // namespace
}  // namespace planish::tests
