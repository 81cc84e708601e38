#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_pack_padded_sequence.h>
#include <ATen/ops/_pad_packed_sequence.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "torch/base/core.h"
#include "torch/rnn/layer.h"

namespace planish::nn {
inline namespace PLANISH_API {

namespace {

using at::Tensor;
using internal::CellRecipe;
using torch::nn::utils::rnn::PackedSequence;

// Return the module's name for errors: LayerNormLSTM, LayerNormGRUCell, ...
template <Cell kDefault>
std::string NameOf(const RecurrentOptions<kDefault>& /*options*/) {
  constexpr CellRecipe recipe = internal::RecipeOf(kDefault);
  return recipe.is_lstm() ? "LayerNormLSTM" : recipe.is_gru() ? "LayerNormGRU" : "LayerNormRNN";
}
template <Cell kDefault>
std::string NameOf(const RecurrentCellOptions<kDefault>& /*options*/) {
  std::string name = NameOf(RecurrentOptions<kDefault>(1, 1));
  name += "Cell";
  return name;
}

void CheckAtLeastOne(const std::string& module, const char* name, int64_t size) {
  TORCH_CHECK_VALUE(size >= 1, "[", module, "] ", name, " must be at least 1, got ", size);
}

/// Checks the options common to layers and cells.
template <class Options>
void CheckOptions(const std::string& module, const Options& options) {
  CheckAtLeastOne(module, "input_size", options.input_size());
  CheckAtLeastOne(module, "hidden_size", options.hidden_size());
  const int64_t projected = options.proj_size();
  TORCH_CHECK_VALUE(projected >= 0, "[", module, "] proj_size must be at least 0, got ", projected);
  TORCH_CHECK_VALUE(projected < options.hidden_size(), "[", module,
                    "] proj_size must be less than hidden_size, ", options.hidden_size(), ", got ",
                    projected);
  TORCH_CHECK_VALUE(projected == 0 || internal::RecipeOf(Options::kDefaultVariant).is_lstm(), "[",
                    module, "] proj_size must be 0, got ", projected);
  CheckAtLeastOne(module, "num_heads", options.num_heads());
  TORCH_CHECK_VALUE(options.hidden_size() % options.num_heads() == 0, "[", module,
                    "] num_heads must divide hidden_size, ", options.hidden_size(), ", got ",
                    options.num_heads());
  TORCH_CHECK_VALUE(projected == 0 || options.num_heads() == 1, "[", module,
                    "] num_heads must be 1 with proj_size, got ", options.num_heads());
  const int gates = internal::RecipeOf(Options::kDefaultVariant).gates();
  TORCH_CHECK_VALUE(internal::RecipeOf(options.variant()).gates() == gates, "[", module,
                    "] variant must be a cell with ", gates, gates == 1 ? " gate" : " gates",
                    ", got ", cell_name(options.variant()));
  planish::CheckEps(module.c_str(), options.eps());
}

void CheckSizes(const std::string& module, const char* name, const Tensor& t,
                at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(!t.defined() || t.sizes() == sizes, "[", module, "] ", name, " must have ",
                    sizes, ", got ", t.sizes());
}

void CheckInput(const std::string& module, const Tensor& x, int64_t input_size) {
  TORCH_CHECK_VALUE(x.size(-1) == input_size, "[", module, "] x must have input_size, ", input_size,
                    ", as its last dimension, got ", x.sizes());
}

/// Returns lengths of any integer type as int64 on x's device.
Tensor LengthsAsInt64(const std::string& module, const Tensor& lengths, const Tensor& x) {
  if (!lengths.defined()) return lengths;
  TORCH_CHECK_VALUE(at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false), "[", module,
                    "] lengths must be integers, got ", lengths.scalar_type());
  return lengths.to(x.device(), at::kLong);
}

/// Returns resets, 0 or 1 of any real type, as bool. `sizes` are those of the input without its
/// last dimension; resets can have an extra last dimension of size 1.
Tensor ResetsAsBool(const std::string& module, const Tensor& resets, at::IntArrayRef sizes) {
  if (!resets.defined()) return resets;
  const bool has_last = resets.dim() > 0 && resets.dim() == std::ssize(sizes) + 1;
  Tensor t = has_last && resets.size(-1) == 1 ? resets.squeeze(-1) : resets;
  CheckSizes(module, "resets", t, sizes);
  if (t.scalar_type() == at::kBool) return t;
  TORCH_CHECK_VALUE(!t.is_complex(), "[", module,
                    "] resets must be bool, integers or floating point, got ", t.scalar_type());
  const Tensor flags = t.ne(0), wrong = flags.logical_and(t.ne(1));
  TORCH_CHECK_VALUE(!wrong.any().item<bool>(), "[", module, "] resets must be 0 or 1, got ",
                    t.masked_select(wrong)[0].item<double>());
  return flags;
}

/// Initializes the parameters like the Python modules. z's ln_bias of DreamerV3's GRU starts at 1.
void ResetParameters(torch::nn::Module& module, Cell cell, int64_t hidden) {
  at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  for (auto& item : module.named_parameters(/*recurse=*/false)) {
    if (!item.key().starts_with("ln_")) {
      item.value().uniform_(-bound, bound);
    } else {
      item.value().fill_(item.key().find("_weight") != std::string::npos ? 1 : 0);
    }
    if (cell == Cell::kLnGruDreamer && item.key().starts_with("ln_bias")) {
      item.value().slice(0, hidden, 2 * hidden).fill_(1);
    }
  }
}

/// Returns the sizes of a module's layer with `inputs` inputs.
template <class Options>
RnnShape ShapeOf(const Options& options, int64_t inputs) {
  return {.inputs = inputs,
          .hidden = options.hidden_size(),
          .projected = options.proj_size(),
          .heads = options.num_heads()};
}

/// Returns the elements of a module's cell state.
template <class Options>
int64_t CellWidth(const Options& options) {
  return options.hidden_size() * internal::RecipeOf(options.variant()).cell_parts();
}

Tensor SelectOrUndefined(const Tensor& t, int64_t index) {
  return t.defined() ? t.select(0, index) : t;
}

Tensor PermuteBatch(const Tensor& states, const Tensor& indices) {
  return states.defined() && indices.defined() ? states.index_select(1, indices) : states;
}

/// Ends the text of a module, with its type of packed weights if that is not the default.
void PrintEnd(WeightType type, std::ostream& stream) {
  if (type != WeightType::kFull) stream << ", weight_type=" << weight_type_name(type);
  stream << ")";
}

/// Checks the type of a module's packed weights.
void CheckWeightType(const std::string& module, const torch::nn::Module& of, WeightType type) {
  const char* const name = weight_type_name(type);
  const bool is_double = of.parameters(/*recurse=*/false).front().scalar_type() == at::kDouble;
  TORCH_CHECK_VALUE(type == WeightType::kFull || !is_double, "[", module,
                    "] weight_type must be full for parameters of type double, got ", name);
}

template <class State>
std::pair<Tensor, Tensor> HAndC(const std::optional<State>& state) {
  return state ? std::pair(std::get<0>(*state), std::get<1>(*state)) : std::pair<Tensor, Tensor>();
}

}  // namespace

namespace detail {

RecurrentLayer::RecurrentLayer(torch::nn::Module& module, const std::string& owner, Cell cell,
                               const RnnShape& shape, bool bias, const std::string& suffix)
    : layer_(std::make_shared<internal::RnnLayer>(cell, bias, suffix, owner)) {
  for (const ModuleParam& param : layer_->params(shape.projected > 0)) {
    const Tensor empty = at::empty(SizesOf(param, cell, shape));
    params_.push_back(module.register_parameter(param.name + suffix, empty));
  }
}

RecurrentLayer::RecurrentLayer(const RecurrentLayer& other)
    : params_(other.params_),
      layer_(other.layer_ ? std::make_shared<internal::RnnLayer>(*other.layer_) : nullptr) {}

RecurrentLayer& RecurrentLayer::operator=(const RecurrentLayer& other) {
  RecurrentLayer copy(other);
  std::swap(params_, copy.params_);
  std::swap(layer_, copy.layer_);
  return *this;
}

template <class Derived, class Options>
RecurrentImpl<Derived, Options>::RecurrentImpl(const Options& options_) : options(options_) {
  RecurrentImpl::reset();
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::reset() {
  const std::string module = NameOf(options);
  CheckOptions(module, options);
  CheckAtLeastOne(module, "num_layers", options.num_layers());
  TORCH_CHECK_VALUE(options.dropout() >= 0 && options.dropout() <= 1, "[", module,
                    "] dropout must be from 0 to 1, got ", options.dropout());
  const int64_t directions = options.bidirectional() ? 2 : 1;
  const WeightType type = layers_.empty() ? WeightType::kFull : weight_type();
  layers_.clear();
  for (int64_t layer = 0; layer < options.num_layers(); ++layer) {
    const int64_t below = directions * ShapeOf(options, 0).outputs();
    const RnnShape shape = ShapeOf(options, layer == 0 ? options.input_size() : below);
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
      layers_.emplace_back(*this, module, options.variant(), shape, options.bias(), suffix);
      layers_.back()->SetWeightType(type);
    }
  }
  reset_parameters();
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::train(bool on) {
  torch::nn::Cloneable<Derived>::train(on);
  if (on) unfreeze();
  for (const RecurrentLayer& layer : layers_) layer->Drop();
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::freeze() {
  for (const RecurrentLayer& layer : layers_) layer->Freeze();
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::unfreeze() {
  for (const RecurrentLayer& layer : layers_) layer->Unfreeze();
}

template <class Derived, class Options>
bool RecurrentImpl<Derived, Options>::is_frozen() const {
  return layers_.front()->is_frozen();
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::quantize_(WeightType weight_type) {
  CheckWeightType(NameOf(options), *this, weight_type);
  for (const RecurrentLayer& layer : layers_) layer->SetWeightType(weight_type);
}

template <class Derived, class Options>
WeightType RecurrentImpl<Derived, Options>::weight_type() const {
  return layers_.front()->weight_type();
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::reset_parameters() {
  ResetParameters(*this, options.variant(), options.hidden_size());
}

template <class Derived, class Options>
void RecurrentImpl<Derived, Options>::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "planish::nn::" << NameOf(options)
         << "(input_size=" << options.input_size() << ", hidden_size=" << options.hidden_size()
         << ", num_layers=" << options.num_layers() << ", bias=" << options.bias()
         << ", batch_first=" << options.batch_first() << ", dropout=" << options.dropout()
         << ", bidirectional=" << options.bidirectional();
  if (options.proj_size() > 0) stream << ", proj_size=" << options.proj_size();
  if (options.num_heads() > 1) stream << ", num_heads=" << options.num_heads();
  stream << ", variant=" << cell_name(options.variant()) << ", eps=" << options.eps()
         << ", checkpoint=" << options.checkpoint()
         << (options.composed() ? ", composed=true" : "");
  PrintEnd(weight_type(), stream);
}

template <class Derived, class Options>
RnnOutputs RecurrentImpl<Derived, Options>::RunLayers(const Tensor& x, const Tensor& h0,
                                                      const Tensor& c0,
                                                      const RnnSequences& sequences) {
  const int64_t directions = options.bidirectional() ? 2 : 1;
  Tensor input = x;
  std::vector<Tensor> h_n, c_n;
  for (int64_t layer = 0; layer < options.num_layers(); ++layer) {
    if (layer > 0) input = at::dropout(input, options.dropout(), this->is_training());
    std::vector<Tensor> y;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t index = layer * directions + direction;
      RnnTensors inputs;
      inputs.x = input;
      inputs.h0 = SelectOrUndefined(h0, index);
      inputs.c0 = SelectOrUndefined(c0, index);
      inputs.h_reset = SelectOrUndefined(sequences.h_reset, index);
      inputs.c_reset = SelectOrUndefined(sequences.c_reset, index);
      inputs.lengths = sequences.lengths;
      inputs.resets = sequences.resets;
      const RecurrentLayer& own = layers_[static_cast<size_t>(index)];
      const RnnOutputs outputs =
          own->Forward(own.params(), {.training = this->is_training()}, inputs,
                       {.reverse = direction == 1,
                        .eps = options.eps(),
                        .checkpoint = options.checkpoint(),
                        .composed = options.composed()});
      y.push_back(outputs.y);
      h_n.push_back(outputs.h_n);
      c_n.push_back(outputs.c_n);
    }
    input = directions == 1 ? y[0] : at::cat(y, -1);
  }
  const bool lstm = internal::RecipeOf(options.variant()).is_lstm();
  return {input, at::stack(h_n), lstm ? at::stack(c_n) : Tensor()};
}

template <class Derived, class Options>
RnnOutputs RecurrentImpl<Derived, Options>::Run(const Tensor& x, const Tensor& h0, const Tensor& c0,
                                                const RnnSequences& sequences) {
  const std::string module = NameOf(options);
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 3, "[", module,
                    "] x must have 2 or 3 dimensions, got ", x.sizes());
  CheckInput(module, x, options.input_size());
  const bool unbatched = x.dim() == 2;
  const auto layers = static_cast<int64_t>(layers_.size());
  const int64_t of_c = CellWidth(options), of_h = ShapeOf(options, 0).outputs();
  const auto check_state = [&](const char* name, const Tensor& state, int64_t width) {
    std::vector<int64_t> sizes = {layers, width};
    if (!unbatched) sizes.insert(sizes.begin() + 1, x.size(options.batch_first() ? 0 : 1));
    CheckSizes(module, name, state, sizes);
  };
  check_state("h_0", h0, of_h);
  check_state("c_0", c0, of_c);
  const Tensor resets =
      ResetsAsBool(module, sequences.resets, x.sizes().slice(0, x.sizes().size() - 1));
  CheckSizes(module, "h_reset", sequences.h_reset, {layers, of_h});
  CheckSizes(module, "c_reset", sequences.c_reset, {layers, of_c});
  TORCH_CHECK_VALUE(!unbatched || !sequences.lengths.defined(), "[", module,
                    "] lengths must be left out for x [T, I], got ", sequences.lengths.sizes());

  const auto add_batch = [&](const Tensor& t) {
    return t.defined() && unbatched ? t.unsqueeze(1) : t;
  };
  const auto swap = [&](const Tensor& t) {
    return t.defined() && !unbatched && options.batch_first() ? t.transpose(0, 1) : t;
  };
  const auto drop_batch = [&](const Tensor& t) {
    return t.defined() && unbatched ? t.squeeze(1) : t;
  };
  RnnSequences time_first = sequences;
  time_first.resets = swap(add_batch(resets));
  time_first.lengths = LengthsAsInt64(module, sequences.lengths, x);
  const RnnOutputs outputs =
      RunLayers(swap(add_batch(x)), add_batch(h0), add_batch(c0), time_first);
  return {swap(drop_batch(outputs.y)), drop_batch(outputs.h_n), drop_batch(outputs.c_n)};
}

template <class Derived, class Options>
RnnOutputs RecurrentImpl<Derived, Options>::RunPacked(const PackedSequence& x, const Tensor& h0,
                                                      const Tensor& c0) {
  const std::string module = NameOf(options);
  TORCH_CHECK_VALUE(x.data().dim() == 2, "[", module, "] x.data must have 2 dimensions, got ",
                    x.data().sizes());
  CheckInput(module, x.data(), options.input_size());
  const auto [padded, lengths] = at::_pad_packed_sequence(
      x.data(), x.batch_sizes(), /*batch_first=*/false, /*padding_value=*/0, /*total_length=*/-1);
  const auto layers = static_cast<int64_t>(layers_.size());
  CheckSizes(module, "h_0", h0, {layers, padded.size(1), ShapeOf(options, 0).outputs()});
  CheckSizes(module, "c_0", c0, {layers, padded.size(1), CellWidth(options)});
  const RnnOutputs outputs =
      RunLayers(padded, PermuteBatch(h0, x.sorted_indices()), PermuteBatch(c0, x.sorted_indices()),
                {.lengths = lengths.to(x.data().device())});
  return {std::get<0>(at::_pack_padded_sequence(outputs.y, lengths, /*batch_first=*/false)),
          PermuteBatch(outputs.h_n, x.unsorted_indices()),
          PermuteBatch(outputs.c_n, x.unsorted_indices())};
}

template <class Derived, class Options>
RecurrentCellImpl<Derived, Options>::RecurrentCellImpl(const Options& options_)
    : options(options_) {
  RecurrentCellImpl::reset();
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::reset() {
  const std::string module = NameOf(options);
  CheckOptions(module, options);
  TORCH_CHECK_VALUE(internal::RecipeOf(options.variant()).over == internal::Over::kRow, "[", module,
                    "] variant must be a cell without batch norm, got ",
                    cell_name(options.variant()));
  const RnnShape shape = ShapeOf(options, options.input_size());
  const WeightType type = layer_.params().empty() ? WeightType::kFull : weight_type();
  layer_ = RecurrentLayer(*this, module, options.variant(), shape, options.bias(), "");
  layer_->SetWeightType(type);
  reset_parameters();
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::train(bool on) {
  torch::nn::Cloneable<Derived>::train(on);
  if (on) unfreeze();
  layer_->Drop();
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::freeze() {
  layer_->Freeze();
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::unfreeze() {
  layer_->Unfreeze();
}

template <class Derived, class Options>
bool RecurrentCellImpl<Derived, Options>::is_frozen() const {
  return layer_->is_frozen();
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::quantize_(WeightType weight_type) {
  CheckWeightType(NameOf(options), *this, weight_type);
  layer_->SetWeightType(weight_type);
}

template <class Derived, class Options>
WeightType RecurrentCellImpl<Derived, Options>::weight_type() const {
  return layer_->weight_type();
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::reset_parameters() {
  ResetParameters(*this, options.variant(), options.hidden_size());
}

template <class Derived, class Options>
void RecurrentCellImpl<Derived, Options>::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "planish::nn::" << NameOf(options)
         << "(input_size=" << options.input_size() << ", hidden_size=" << options.hidden_size()
         << ", bias=" << options.bias();
  if (options.proj_size() > 0) stream << ", proj_size=" << options.proj_size();
  if (options.num_heads() > 1) stream << ", num_heads=" << options.num_heads();
  stream << ", variant=" << cell_name(options.variant()) << ", eps=" << options.eps()
         << (options.composed() ? ", composed=true" : "");
  PrintEnd(weight_type(), stream);
}

template <class Derived, class Options>
RnnSteps RecurrentCellImpl<Derived, Options>::steps() {
  TORCH_CHECK_VALUE(!options.composed(), "[", NameOf(options),
                    "] composed must be false for steps(), got true");
  return layer_->Steps(layer_.params(), {.training = this->is_training()}, options.eps());
}

template <class Derived, class Options>
std::tuple<Tensor, Tensor> RecurrentCellImpl<Derived, Options>::Run(const Tensor& x,
                                                                    const Tensor& h,
                                                                    const Tensor& c) {
  const std::string module = NameOf(options);
  TORCH_CHECK_VALUE(x.dim() == 1 || x.dim() == 2, "[", module,
                    "] x must have 1 or 2 dimensions, got ", x.sizes());
  CheckInput(module, x, options.input_size());
  const auto check_state = [&](const char* name, const Tensor& state, int64_t width) {
    std::vector<int64_t> sizes = {width};
    if (x.dim() == 2) sizes.insert(sizes.begin(), x.size(0));
    CheckSizes(module, name, state, sizes);
  };
  check_state("h", h, ShapeOf(options, 0).outputs());
  check_state("c", c, CellWidth(options));
  const auto add_batch = [&](const Tensor& t) {
    return t.defined() && x.dim() == 1 ? t.unsqueeze(0) : t;
  };
  RnnTensors inputs;
  inputs.x = add_batch(x);
  inputs.h0 = add_batch(h);
  inputs.c0 = add_batch(c);
  const auto [h1, c1] = layer_->Step(layer_.params(), {.training = this->is_training()}, inputs,
                                     {.eps = options.eps(), .composed = options.composed()});
  return x.dim() == 1 ? std::tuple(h1.squeeze(0), c1.squeeze(0)) : std::tuple(h1, c1);
}

template <class Derived, class Options>
std::tuple<Tensor, Tensor> HiddenStateImpl<Derived, Options>::forward(
    const Tensor& x, const Tensor& hx, const RnnSequences& sequences) {
  const RnnOutputs outputs = this->Run(x, hx, {}, sequences);
  return {outputs.y, outputs.h_n};
}

template <class Derived, class Options>
std::tuple<PackedSequence, Tensor> HiddenStateImpl<Derived, Options>::forward_with_packed_input(
    const PackedSequence& x, const Tensor& hx) {
  const RnnOutputs outputs = this->RunPacked(x, hx, {});
  return {PackedSequence(outputs.y, x.batch_sizes(), x.sorted_indices(), x.unsorted_indices()),
          outputs.h_n};
}

template <class Derived, class Options>
Tensor HiddenStateCellImpl<Derived, Options>::forward(const Tensor& x, const Tensor& hx) {
  return std::get<0>(this->Run(x, hx, {}));
}

template class RecurrentImpl<LayerNormLSTMImpl, LayerNormLSTMOptions>;
template class RecurrentImpl<LayerNormGRUImpl, LayerNormGRUOptions>;
template class RecurrentImpl<LayerNormRNNImpl, LayerNormRNNOptions>;
template class RecurrentCellImpl<LayerNormLSTMCellImpl, LayerNormLSTMCellOptions>;
template class RecurrentCellImpl<LayerNormGRUCellImpl, LayerNormGRUCellOptions>;
template class RecurrentCellImpl<LayerNormRNNCellImpl, LayerNormRNNCellOptions>;
template class HiddenStateImpl<LayerNormGRUImpl, LayerNormGRUOptions>;
template class HiddenStateImpl<LayerNormRNNImpl, LayerNormRNNOptions>;
template class HiddenStateCellImpl<LayerNormGRUCellImpl, LayerNormGRUCellOptions>;
template class HiddenStateCellImpl<LayerNormRNNCellImpl, LayerNormRNNCellOptions>;

}  // namespace detail

std::tuple<Tensor, LayerNormLSTMImpl::State> LayerNormLSTMImpl::forward(
    const Tensor& x, const std::optional<State>& hx, const RnnSequences& sequences) {
  const auto [h0, c0] = HAndC(hx);
  const RnnOutputs outputs = Run(x, h0, c0, sequences);
  return {outputs.y, {outputs.h_n, outputs.c_n}};
}

std::tuple<PackedSequence, LayerNormLSTMImpl::State> LayerNormLSTMImpl::forward_with_packed_input(
    const PackedSequence& x, const std::optional<State>& hx) {
  const auto [h0, c0] = HAndC(hx);
  const RnnOutputs outputs = RunPacked(x, h0, c0);
  return {PackedSequence(outputs.y, x.batch_sizes(), x.sorted_indices(), x.unsorted_indices()),
          {outputs.h_n, outputs.c_n}};
}

LayerNormLSTMCellImpl::State LayerNormLSTMCellImpl::forward(const Tensor& x,
                                                            const std::optional<State>& hx) {
  const auto [h, c] = HAndC(hx);
  return Run(x, h, c);
}

}  // namespace PLANISH_API
}  // namespace planish::nn
