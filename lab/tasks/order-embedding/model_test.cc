#include "lab/tasks/order-embedding/model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lab/model/parameter_count.h"

namespace planish::lab {
namespace {

OrderEmbedding::Options Small(const std::string& cell, bool order = true) {
  OrderEmbedding::Options options;
  options.cell = cell;
  options.words = 11;
  options.word_size = 3;
  options.hidden = 6;
  options.features = 5;
  options.order = order;
  return options;
}

// Returns the model of `options` for one seed.
std::shared_ptr<OrderEmbedding> Seeded(const OrderEmbedding::Options& options) {
  at::manual_seed(2);
  return std::make_shared<OrderEmbedding>(options);
}

std::map<std::string, at::Tensor> Parameters(const OrderEmbedding& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters()) {
    all[item.key().substr(item.key().rfind('.') == std::string::npos ? 0
                                                                     : item.key().find('.') + 1)] =
        item.value().detach();
  }
  return all;
}

// V word embeddings of width D, F features, and a GRU of H units. The GRU has three matrices of its
// input and of its state, with PyTorch's two biases each. Instead of the biases, the LN-GRU has two
// norms of 3 H sums with gain and bias.
TEST(OrderEmbedding, HasTheParametersOfItsFormula) {
  const auto formula = [](int64_t v, int64_t d, int64_t h, int64_t f, int64_t vectors) {
    return v * d + 3 * h * (d + h) + vectors * 3 * h + f * h + h;
  };
  EXPECT_EQ(ParameterCount(*Seeded(Small("gru"))), formula(11, 3, 6, 5, 2));
  EXPECT_EQ(ParameterCount(*Seeded(Small("ln-gru"))), formula(11, 3, 6, 5, 4));
  // The released code's sizes with a lexicon of 10,000. Its GRU has one bias per gate; PyTorch's
  // two differ only in how they reach the candidate.
  OrderEmbedding::Options paper;
  paper.words = 10'000;
  const int64_t released =
      10'000 * 300 + 3 * (300 * 1024 + 1024 * 1024 + 1024) + 4096 * 1024 + 1024;
  EXPECT_EQ(ParameterCount(*Seeded(paper)), released + 3 * 1024);
  EXPECT_EQ(released, 11'265'728);
  paper.cell = "ln-gru";
  EXPECT_EQ(ParameterCount(*Seeded(paper)), 11'274'944);
}

TEST(OrderEmbedding, StartsAsTheReleasedCode) {
  OrderEmbedding::Options options = Small("ln-gru");
  options.words = 200;
  options.gain = 0.5;
  const auto p = Parameters(*Seeded(options));
  for (const std::string name : {"words", "layer.weight_ih_l0"}) {
    const at::Tensor size = p.at(name).abs();
    EXPECT_LE(size.max().item<double>(), 0.1F) << name;
    EXPECT_NEAR(size.mean().item<double>(), 0.05, 0.01) << name;  // of 54 values or more
  }
  const double glorot = std::sqrt(6.0 / (5 + 6));
  EXPECT_LE(p.at("weight").abs().max().item<double>(), glorot);
  EXPECT_GT(p.at("weight").abs().max().item<double>(), 0.8 * glorot);
  EXPECT_EQ(p.at("bias").count_nonzero().item<int64_t>(), 0);
  for (const at::Tensor& gate : p.at("layer.weight_hh_l0").chunk(3)) {
    // Products of 6 values below 1 in floats.
    EXPECT_LT((gate.mm(gate.t()) - at::eye(6)).abs().max().item<double>(), 1e-6);
  }
  for (const auto& [name, tensor] : p) {
    if (name.find("ln_") == name.npos) continue;
    const bool gain = name.find("_weight") != name.npos;
    EXPECT_TRUE(tensor.equal(at::full_like(tensor, gain ? 0.5 : 0))) << name;
  }
}

TEST(OrderEmbedding, CellsStartFromTheSameWeights) {
  const auto gru = Parameters(*Seeded(Small("gru")));
  for (const bool composed : {false, true}) {
    for (const std::string cell : {"gru", "ln-gru"}) {
      OrderEmbedding::Options options = Small(cell);
      options.composed = composed;
      const auto other = Parameters(*Seeded(options));
      for (const std::string name :
           {"words", "layer.weight_ih_l0", "layer.weight_hh_l0", "weight", "bias"}) {
        EXPECT_TRUE(other.at(name).equal(gru.at(name))) << cell << name;
      }
      for (const auto& [name, tensor] : other) {
        if (name.find("bias_") != name.npos) {
          EXPECT_EQ(tensor.count_nonzero().item<int64_t>(), 0);
        }
      }
    }
  }
}

at::Tensor Norm(const at::Tensor& z, const at::Tensor& gain, const at::Tensor& bias) {
  const at::Tensor centred = z - z.mean();
  return gain * centred / (centred.square().mean() + 1e-5).sqrt() + bias;
}

// Reference: a caption word by word, one row at a time.
at::Tensor CaptionByHand(const std::map<std::string, at::Tensor>& p,
                         const std::vector<int64_t>& caption, bool layer_norm) {
  const int64_t hidden = 6;
  at::Tensor h = at::zeros({hidden}, at::kDouble);
  for (const int64_t word : caption) {
    at::Tensor a = p.at("layer.weight_ih_l0").mv(p.at("words")[word]);
    at::Tensor b = p.at("layer.weight_hh_l0").mv(h);
    if (layer_norm) {
      const auto of = [&](const at::Tensor& z, const std::string& norm) {
        const at::Tensor& gain = p.at("layer.ln_" + norm + "_weight_l0");
        const at::Tensor& bias = p.at("layer.ln_" + norm + "_bias_l0");
        const auto part = [&](int64_t from, int64_t to) {
          return Norm(z.slice(0, from, to), gain.slice(0, from, to), bias.slice(0, from, to));
        };
        return at::cat({part(0, 2 * hidden), part(2 * hidden, 3 * hidden)});
      };
      a = of(a, "ih");
      b = of(b, "hh");
    } else {
      a = a + p.at("layer.bias_ih_l0");
      b = b + p.at("layer.bias_hh_l0");
    }
    const auto sums = a.chunk(3), states = b.chunk(3);  // r, z, n
    const at::Tensor r = (sums[0] + states[0]).sigmoid(), z = (sums[1] + states[1]).sigmoid();
    const at::Tensor n = (sums[2] + r * states[2]).tanh();
    h = (1 - z) * n + z * h;
  }
  return h;
}

TEST(OrderEmbedding, MatchesTheReferenceModel) {
  const std::vector<std::vector<int64_t>> captions = {{3, 0, 10}, {1, 2, 3, 4, 10}, {10}, {7, 10}};
  const at::Tensor rows = at::full({5, 4}, 10, at::kLong), lengths = at::empty({4}, at::kLong);
  for (int64_t i = 0; i < 4; ++i) {
    const auto& caption = captions[static_cast<size_t>(i)];
    lengths[i] = std::ssize(caption);
    for (size_t t = 0; t < caption.size(); ++t) rows[static_cast<int64_t>(t)][i] = caption[t];
  }
  const at::Tensor features = at::randn({4, 5}, at::kDouble);
  for (const bool order : {true, false}) {
    for (const std::string cell : {"gru", "ln-gru"}) {
      const auto model = Seeded(Small(cell, order));
      model->to(at::kDouble);
      const at::NoGradGuard no_grad;
      // Biases, gains and words that matter.
      for (at::Tensor& parameter : model->parameters())
        parameter += 0.3 * at::randn_like(parameter);
      const auto p = Parameters(*model);
      std::vector<at::Tensor> by_hand, image_by_hand;
      for (size_t i = 0; i < captions.size(); ++i) {
        at::Tensor u = CaptionByHand(p, captions[i], cell == "ln-gru");
        at::Tensor v = p.at("weight").mv(features[static_cast<int64_t>(i)]) + p.at("bias");
        u = u / u.square().sum().sqrt();
        v = v / v.square().sum().sqrt();
        by_hand.push_back(order ? u.abs() : u);
        image_by_hand.push_back(order ? v.abs() : v);
      }
      const at::Tensor u = model->Captions(rows, lengths), v = model->Images(features);
      // Doubles of size 1, five steps of sums of six.
      EXPECT_LT((u - at::stack(by_hand)).abs().max().item<double>(), 1e-12) << cell;
      EXPECT_LT((v - at::stack(image_by_hand)).abs().max().item<double>(), 1e-13);
      const at::Tensor errors = model->Errors(u, v);
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < 4; ++j) {
          const auto& a = by_hand[static_cast<size_t>(i)];
          const auto& b = image_by_hand[static_cast<size_t>(j)];
          const at::Tensor expected = order ? (a - b).clamp_min(0).square().sum() : -(a * b).sum();
          EXPECT_NEAR(errors[i][j].item<double>(), expected.item<double>(), 1e-12);
        }
      }
    }
  }
}

TEST(OrderEmbedding, GivesNothingAPlace) {
  const auto model = Seeded(Small("gru"));
  const at::Tensor place = model->Images(at::zeros({1, 5}));
  EXPECT_EQ(place.count_nonzero().item<int64_t>(), 0);
  place.sum().backward();
  for (const auto& item : model->named_parameters()) {
    if (item.value().grad().defined()) {
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

TEST(ContrastiveLoss, IsTheSumOfItsTerms) {
  at::manual_seed(4);
  const at::Tensor e = at::rand({7, 7}, at::kDouble);
  for (const double margin : {0.05, 0.2, 2.0}) {
    double expected = 0;
    const auto at = e.accessor<double, 2>();
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t j = 0; j < 7; ++j) {
        if (i == j) continue;
        expected += std::max(0.0, margin - at[i][j] + at[i][i]);
        expected += std::max(0.0, margin - at[i][j] + at[j][j]);
      }
    }
    // 84 terms of size 1 in double.
    EXPECT_NEAR(ContrastiveLoss(e, margin).item<double>(), expected, 1e-12);
  }
  EXPECT_EQ(ContrastiveLoss(at::ones({1, 1}), 0.2).item<double>(), 0);
}

}  // namespace
}  // namespace planish::lab
