#include "lab/tasks/parser/model.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "lab/model/dropout.h"

namespace planish::lab {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Contribution of each pair: row u is embedding[tokens[u]] * weight[k] for the position k of u. One
// autograd node, so that the weights' gradient is written once instead of summed from a full tensor
// for each position.
struct PairProducts : torch::autograd::Function<PairProducts> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& embedding,
                            const at::Tensor& weight, const TokenPairs& pairs) {
    const at::Tensor x = embedding.index_select(0, pairs.tokens);
    at::Tensor products = at::empty({x.size(0), weight.size(2)}, x.options());
    for (int64_t k = 0; k < weight.size(0); ++k) {
      at::Tensor out = Rows(products, pairs.offsets, k);
      at::mm_out(out, Rows(x, pairs.offsets, k), weight[k]);
    }
    context->save_for_backward({x, weight, pairs.tokens});
    context->saved_data["offsets"] = pairs.offsets;
    context->saved_data["size"] = embedding.size(0);
    return products;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &tokens = saved[2];
    const std::vector<int64_t> offsets = context->saved_data["offsets"].toIntVector();
    const at::Tensor g = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(x), dweight = at::empty_like(weight);
    for (int64_t k = 0; k < weight.size(0); ++k) {
      const at::Tensor g_k = Rows(g, offsets, k);
      at::Tensor dx_k = Rows(dx, offsets, k), dweight_k = dweight[k];
      at::mm_out(dx_k, g_k, weight[k].t());
      at::mm_out(dweight_k, Rows(x, offsets, k).t(), g_k);
    }
    const int64_t size = context->saved_data["size"].toInt();
    return {at::embedding_dense_backward(dx, tokens, size, /*padding_idx=*/-1,
                                         /*scale_grad_by_freq=*/false),
            dweight, at::Tensor()};
  }

 private:
  static at::Tensor Rows(const at::Tensor& of, const std::vector<int64_t>& offsets, int64_t k) {
    const auto i = static_cast<size_t>(k);
    return of.slice(0, offsets[i], offsets[i + 1]);
  }
};

}  // namespace

TokenPairs FindPairs(const at::Tensor& tokens, int64_t vocabulary) {
  const at::Tensor places = tokens.cpu().contiguous();
  const int64_t count = places.size(0), positions = places.size(1);
  const int32_t* token = places.const_data_ptr<int32_t>();
  TokenPairs pairs;
  pairs.rows = at::empty({count * positions}, at::kInt);
  int32_t* row = pairs.rows.mutable_data_ptr<int32_t>();
  std::vector<int64_t> found;
  std::vector<int32_t> row_of(static_cast<size_t>(vocabulary), -1);
  for (int64_t k = 0; k < positions; ++k) {
    pairs.offsets.push_back(std::ssize(found));
    for (int64_t i = k; i < count * positions; i += positions) {
      int32_t& known = row_of[static_cast<size_t>(token[i])];
      if (known < pairs.offsets.back()) {
        known = static_cast<int32_t>(found.size());
        found.push_back(token[i]);
      }
      row[i] = known;
    }
  }
  pairs.offsets.push_back(std::ssize(found));
  pairs.tokens = at::tensor(found, at::kLong).to(tokens.device());
  pairs.rows = pairs.rows.to(tokens.device());
  return pairs;
}

TokenLinear::TokenLinear(int64_t tokens, int64_t positions, int64_t embedding, int64_t outputs)
    : embedding_(register_parameter("embedding", at::randn({tokens, embedding}))),
      weight_(register_parameter("weight", at::empty({positions, embedding, outputs}))),
      bias_(register_parameter("bias", at::empty({outputs}))) {
  const double bound = 1 / std::sqrt(static_cast<double>(positions * embedding));
  at::NoGradGuard no_grad;
  weight_.uniform_(-bound, bound);
  bias_.uniform_(-bound, bound);
}

at::Tensor TokenLinear::forward(const at::Tensor& tokens, const at::Tensor& weight) {
  const TokenPairs pairs = FindPairs(tokens, embedding_.size(0));
  const at::Tensor products = PairProducts::apply(embedding_, weight, pairs);
  const at::Tensor bags = at::arange(0, tokens.numel(), tokens.size(1), pairs.rows.options());
  return std::get<0>(at::embedding_bag(products, pairs.rows, bags)).add_(bias_);
}

ParserModel::ParserModel(const Options& options)
    : activation_(options.activation),
      dropout_(options.dropout),
      input_(register_module("input",
                             std::make_shared<TokenLinear>(options.tokens, options.features,
                                                           options.embedding, options.hidden))) {
  std::string name = "input";
  for (int64_t layer = 1; layer <= options.layers; ++layer) {
    norms_.push_back(register_module(
        name + "_norm", MakeNorm(options.norm, {options.hidden}, options.norm_options)));
    if (linears_.empty()) {
      norms_.back()->StartFrom(input_->weight(), TokenLinear::kUnits);
    } else {
      norms_.back()->StartFrom(linears_.back()->weight);
    }
    const bool is_last = layer == options.layers;
    name = is_last ? "output" : "hidden" + std::to_string(layer);
    linears_.push_back(
        register_module(name, Linear(options.hidden, is_last ? options.outputs : options.hidden)));
  }
}

at::Tensor ParserModel::forward(const at::Tensor& features) {
  at::Tensor x =
      input_->forward(features, norms_.front()->Weight(input_->weight(), TokenLinear::kUnits));
  for (size_t layer = 0; layer < linears_.size(); ++layer) {
    x = norms_[layer]->forward(x);
    if (activation_ == "relu") {
      x.relu_();  // in place: neither the product nor a norm needs its own output for backward
    } else {
      x = activation_ == "cube" ? x.pow(3) : x.tanh();
    }
    x = Dropout(x, dropout_, is_training());
    const bool is_last = layer + 1 == linears_.size();
    x = is_last ? linears_[layer]->forward(x) : InputOfNorm(*norms_[layer + 1], linears_[layer], x);
  }
  return x;
}

}  // namespace planish::lab
