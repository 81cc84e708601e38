#include "lab/tasks/attentive-reader/model.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lab/model/parameter_count.h"

namespace planish::lab {
namespace {

const std::vector<std::string> kNorms = {"none", "layer", "batch", "batch-everywhere"};

AttentiveReader::Options SmallOptions(const std::string& norm) {
  return {.symbols = 20,
          .entities = 6,
          .embedding = 5,
          .hidden = 4,
          .dropout = 0,
          .deviation = 0.5,
          .norm = norm,
          .gain = 0.7,
          .passage_steps = 7,
          .question_steps = 3};
}

std::shared_ptr<AttentiveReader> Model(const AttentiveReader::Options& options) {
  at::manual_seed(1);
  return std::make_shared<AttentiveReader>(options);
}

TEST(AttentiveReader, HasTheParametersOfItsEquations) {
  for (const bool released : {true, false}) {
    for (const std::string& norm : kNorms) {
      AttentiveReader::Options o = SmallOptions(norm);
      o.released = released;
      const int64_t d = o.embedding, h = o.hidden, squares = released ? 6 : 4;
      // With normalized sums an LSTM has one bias instead of PyTorch's two. LN has a gain and a
      // bias for each sum, batch norm a gain.
      const int64_t lstm = 4 * h * (d + h) + (norm == "none"    ? 8 * h
                                              : norm == "layer" ? 4 * h + 16 * h + 2 * h
                                                                : 4 * h + 8 * h + 2 * h);
      const int64_t norms = norm == "batch-everywhere" ? (released ? 5 : 4) * 2 * h : 0;
      EXPECT_EQ(ParameterCount(*Model(o)), o.symbols * d + squares * h * h + 3 * h +
                                               o.entities * (h + 1) + 2 * (lstm + 2 * h) + norms)
          << norm << released;
    }
  }
}

TEST(AttentiveReader, StartsFromTheSameWeightsWithEveryNorm) {
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : kNorms) {
    const auto model = Model(SmallOptions(norm));
    std::map<std::string, at::Tensor> now = {{"the next number", at::rand({1})}};
    for (const auto& item : model->named_parameters()) {
      const std::string& key = item.key();
      if (key.find("ln_") == std::string::npos && key.find("_norm.") == std::string::npos &&
          key.find("bias_hh") == std::string::npos) {
        now[key] = item.value();
      }
    }
    // Twelve of the reader, four states, three of each LSTM.
    EXPECT_EQ(now.size(), 1u + 12 + 4 + 6) << norm;
    if (first.empty()) first = now;
    for (const auto& [name, tensor] : now)
      EXPECT_TRUE(tensor.equal(first.at(name))) << norm << name;
  }
  EXPECT_FALSE(first.at("passage_lstm.layer.weight_ih_l0")
                   .equal(first.at("question_lstm.layer.weight_ih_l0")));
}

// As if the generator were reseeded for each gate. Everything else has its usual initial values.
TEST(AttentiveReader, GivesGatesEqualWeightsOnRequest) {
  for (const std::string& norm : kNorms) {
    AttentiveReader::Options options = SmallOptions(norm);
    const auto without = Model(options)->named_parameters();
    options.equal_gates = true;
    const auto model = Model(options);
    int products = 0;
    for (const auto& item : model->named_parameters()) {
      const at::Tensor& tensor = item.value();
      const at::Tensor& other = without[item.key()];
      if (item.key().find("_lstm.") == std::string::npos || tensor.dim() < 2) {
        EXPECT_TRUE(tensor.equal(other)) << item.key();
        continue;
      }
      ++products;
      for (int64_t gate = 0; gate < 4; ++gate) {
        EXPECT_TRUE(tensor.slice(0, 4 * gate, 4 * gate + 4).equal(other.slice(0, 0, 4)))
            << item.key() << gate;
      }
      EXPECT_FALSE(tensor.equal(other)) << item.key();
    }
    EXPECT_EQ(products, 4) << norm;  // of the input and the state, in both LSTMs
  }
}

// Reference for one question in double, with every parameter of the model and the statistics for
// evaluation.
class Composition {
 public:
  Composition(const AttentiveReader& model, const AttentiveReader::Options& options)
      : options_(options) {
    for (const auto& item : model.named_parameters()) Add(item.key(), item.value());
    for (const auto& item : model.named_buffers()) Add(item.key(), item.value());
  }

  // Returns logits [E] and attention [T].
  std::pair<at::Tensor, at::Tensor> operator()(const at::Tensor& passage,
                                               const at::Tensor& question) const {
    const at::Tensor y = Lstm("passage", passage), u = Lstm("question", question)[-1];
    std::vector<at::Tensor> scores;
    for (const at::Tensor& state : y.unbind(0)) {
      at::Tensor m =
          Norm("passage_attention_norm", P("passage_attention").mv(state)) +
          Norm("question_attention_norm", P("question_attention").mv(u) + P("attention_bias"));
      if (options_.released) {
        m = m + P("similarity").t().mv(state).dot(P("similarity").t().mv(u));
      }
      scores.push_back(P("attention_weight").dot(m.tanh()));
    }
    const at::Tensor attention = at::stack(scores).exp() / at::stack(scores).exp().sum();
    const at::Tensor r = y.t().mv(attention);
    at::Tensor g = Norm("passage_output_norm", P("passage_output").mv(r)) +
                   Norm("question_output_norm", P("question_output").mv(u) + P("output_bias"));
    if (options_.released) g = g + Norm("mean_output_norm", P("mean_output").mv(y.mean(0)));
    return {P("logits_weight").mv(g.tanh()) + P("logits_bias"), attention};
  }

 private:
  void Add(const std::string& name, const at::Tensor& value) {
    p_[name] = value.detach().to(at::kDouble);
  }
  const at::Tensor& P(const std::string& name) const { return p_.at(name); }

  at::Tensor Norm(const std::string& name, const at::Tensor& z) const {
    if (!p_.contains(name + ".norm.weight")) return z;
    const std::string n = name + ".norm.";
    return (z - P(n + "running_mean")) / (P(n + "running_var") + 1e-5).sqrt() * P(n + "weight") +
           P(n + "bias");
  }

  // Returns the states [T, H] after each of the words [T].
  at::Tensor Lstm(const std::string& name, const at::Tensor& words) const {
    const std::string lstm = name + "_lstm.", layer = lstm + "layer.";
    at::Tensor h = P(name + "_h0"), c = P(name + "_c0");
    const int64_t n = options_.hidden;
    std::vector<at::Tensor> states;
    for (int64_t t = 0; t < words.size(0); ++t) {
      // Normalizes z: over its elements, or with the estimates from `column` on.
      const auto normalized = [&](const at::Tensor& z, int64_t column, const std::string& part) {
        at::Tensor mean = z.mean(), variance = z.var(/*unbiased=*/false);
        if (options_.norm != "layer") {
          mean = P(lstm + "mean")[t].slice(0, column, column + z.size(0));
          variance = P(lstm + "variance")[t].slice(0, column, column + z.size(0));
        }
        const at::Tensor result =
            (z - mean) / (variance + 1e-5).sqrt() * P(layer + part + "_weight_l0");
        const std::string bias = layer + part + "_bias_l0";
        return p_.contains(bias) ? result + P(bias) : result;
      };
      const at::Tensor x = P("embedding")[words[t].item<int64_t>()];
      at::Tensor zx = P(layer + "weight_ih_l0").mv(x), zh = P(layer + "weight_hh_l0").mv(h);
      const bool plain = options_.norm == "none";
      at::Tensor a = plain ? zx + zh + P(layer + "bias_hh_l0")
                           : normalized(zx, 0, "ln_ih") + normalized(zh, 4 * n, "ln_hh");
      a = a + P(layer + "bias_ih_l0");
      const auto gate = [&](int64_t k) { return a.slice(0, k * n, (k + 1) * n); };
      c = gate(1).sigmoid() * c + gate(0).sigmoid() * gate(2).tanh();
      h = gate(3).sigmoid() * (plain ? c : normalized(c, 8 * n, "ln_c")).tanh();
      states.push_back(h);
    }
    return at::stack(states);
  }

  AttentiveReader::Options options_;
  std::map<std::string, at::Tensor> p_;
};

TEST(AttentiveReader, MatchesItsEquations) {
  for (const bool released : {true, false}) {
    for (const std::string& norm : kNorms) {
      SCOPED_TRACE(norm + (released ? " released" : " hermann"));
      AttentiveReader::Options options = SmallOptions(norm);
      options.released = released;
      const auto model = Model(options);
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : model->parameters())
        parameter.add_(at::randn_like(parameter), 0.3);
      for (const auto& item : model->named_buffers()) {
        if (!item.value().is_floating_point()) continue;
        const bool is_variance = item.key().find("var") != std::string::npos;
        at::Tensor buffer = item.value();
        buffer.copy_(is_variance ? at::rand_like(buffer) + 0.5 : at::randn_like(buffer));
      }
      model->eval();
      const std::vector<int64_t> lengths = {7, 3, 5}, question_lengths = {1, 3, 2};
      const at::Tensor passage = at::randint(20, {7, 3}, at::kLong);
      const at::Tensor question = at::randint(20, {3, 3}, at::kLong);
      const auto reading = model->forward(passage, at::tensor(lengths, at::kLong), question,
                                          at::tensor(question_lengths, at::kLong));
      const Composition composition(*model, options);
      for (int64_t b = 0; b < 3; ++b) {
        const auto i = static_cast<size_t>(b);
        const auto [logits, attention] =
            composition(passage.select(1, b).slice(0, 0, lengths[i]),
                        question.select(1, b).slice(0, 0, question_lengths[i]));
        // Float against double: values of size 1 to 5, some hundred roundings of 6e-8, and norms
        // that enlarge them up to tenfold.
        EXPECT_LE((reading.logits[b] - logits).abs().max().item<double>(), 3e-5);
        const at::Tensor shares = reading.attention.select(1, b);
        EXPECT_LE((shares.slice(0, 0, lengths[i]) - attention).abs().max().item<double>(), 3e-5);
        EXPECT_EQ(shares.slice(0, lengths[i]).abs().sum().item<double>(), 0);
      }
    }
  }
}

// In training, padding also affects neither the attention nor a batch's statistics.
TEST(AttentiveReader, TrainingIgnoresPadding) {
  for (const std::string& norm : kNorms) {
    const auto model = Model(SmallOptions(norm));
    const at::NoGradGuard no_grad;
    model->train();
    const at::Tensor lengths = at::tensor({4, 2, 3}, at::kLong);
    const at::Tensor question_lengths = at::tensor({1, 2, 2}, at::kLong);
    const at::Tensor passage = at::randint(20, {4, 3}, at::kLong);
    const at::Tensor question = at::randint(20, {2, 3}, at::kLong);
    const auto longer = [](const at::Tensor& words) {
      return at::cat({words, at::full({3, words.size(1)}, 19, at::kLong)});
    };
    const at::Tensor a = model->forward(passage, lengths, question, question_lengths).logits;
    const at::Tensor b =
        model->forward(longer(passage), lengths, longer(question), question_lengths).logits;
    // Values of size 1; sums are in another order.
    EXPECT_LE((a - b).abs().max().item<double>(), 1e-6) << norm;
  }
}

TEST(AttentiveReader, DropsWordsAndReadOutOnlyInTraining) {
  AttentiveReader::Options options = SmallOptions("layer");
  options.dropout = 0.5;
  const auto model = Model(options);
  const at::NoGradGuard no_grad;
  const at::Tensor lengths = at::tensor({4, 2}, at::kLong);
  const at::Tensor words = at::randint(20, {4, 2}, at::kLong);
  const auto logits = [&] { return model->forward(words, lengths, words, lengths).logits; };
  EXPECT_FALSE(logits().equal(logits()));
  model->eval();
  EXPECT_TRUE(logits().equal(logits()));
}

}  // namespace
}  // namespace planish::lab
