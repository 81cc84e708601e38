#include "lab/model/recurrent.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lab/error.h"
#include "planish/torch.h"
#include "src/rnn/cell.h"

namespace planish::lab {

namespace {

template <class Layer>
void FillGains(Layer& layer, double gain) {
  const at::NoGradGuard no_grad;
  for (auto& item : layer->named_parameters()) {
    const bool is_gain =
        item.key().starts_with("ln_") && item.key().find("_weight") != item.key().npos;
    if (is_gain) item.value().fill_(gain);
  }
}

// Returns zeros of the type of a module's parameters.
at::Tensor Zeros(at::IntArrayRef sizes, const torch::nn::Module& module) {
  return at::zeros(sizes, module.parameters()[0].options().requires_grad(false));
}

// Returns states [S, ...] before the first step.
at::Tensor FirstStates(at::IntArrayRef sizes, const torch::nn::Module& module) {
  at::Tensor states = Zeros(sizes, module);
  if (sizes[0] == 3) states[2].fill_(-std::numeric_limits<double>::infinity());
  return states;
}

// Returns the bias, and bias_hn of cells that have one, of a module's two biases.
std::vector<at::Tensor> FoldedBiases(Cell cell, const at::Tensor& bias_ih,
                                     const at::Tensor& bias_hh) {
  if (!bias_hh.defined()) return {bias_ih};
  static const auto fold =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("planish::rnn_fold_biases", "")
          .typed<std::vector<at::Tensor>(std::string_view, const at::Tensor&, const at::Tensor&)>();
  return fold.call(cell_name(cell), bias_ih, bias_hh);
}

// Returns block-diagonal weights [G, H / heads] as one matrix [G, H].
at::Tensor WithoutHeads(const at::Tensor& weight, int64_t gates, int64_t heads) {
  const int64_t units = weight.size(1);
  const at::Tensor blocks = weight.view({gates, heads, units, units});
  const at::Tensor whole = at::zeros({gates, heads, units, heads, units}, weight.options());
  for (int64_t n = 0; n < heads; ++n) whole.select(1, n).select(2, n).copy_(blocks.select(1, n));
  return whole.view({gates * heads * units, heads * units});
}

// Returns copies of the parameters of a module's layer number `index`.
RecurrentParams LayerOf(const torch::nn::Module& module, Cell cell, const RecurrentOptions& options,
                        int64_t index) {
  RecurrentParams layer{.cell = cell,
                        .inputs = index == 0 ? options.inputs : options.hidden,
                        .hidden = options.hidden,
                        .epsilon = options.epsilon};
  const auto parameters = module.named_parameters(/*recurse=*/false);
  const auto named = [&](std::string_view name) {
    const at::Tensor* found = parameters.find(fmt::format("{}_l{}", name, index));
    return found == nullptr ? at::Tensor()
                            : found->detach().to(at::kCPU, at::kDouble).clone().contiguous();
  };
  const internal::CellRecipe recipe = internal::RecipeOf(cell);
  const std::vector<at::Tensor> biases = FoldedBiases(cell, named("bias_ih"), named("bias_hh"));
  const RnnShape shape{.inputs = layer.inputs, .hidden = layer.hidden};
  for (const auto& param : internal::ParamsOf<const double>(recipe, shape)) {
    if (!param.taken) continue;
    const std::string_view name = param.name;
    at::Tensor t = name == "bias" ? biases[0] : name == "bias_hn" ? biases.at(1) : named(name);
    if (name == "weight_hh") t = WithoutHeads(t, recipe.gates(), options.heads);
    layer.params.*param.member = t.const_data_ptr<double>();
    layer.tensors.push_back(std::move(t));
  }
  return layer;
}

// Adapter of a layer of Planish or PyTorch. kStates is S of RecurrentModule.
template <class Layer, int64_t kStates>
class Wrapped final : public RecurrentModule {
 public:
  Wrapped(const RecurrentOptions& options, Layer layer)
      : options_(options), layer_(register_module("layer", std::move(layer))) {
    FillGains(layer_, options.gain);
  }

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                            const at::Tensor& lengths) override {
    if constexpr (kStates > 1) {
      // c [layers, B, (S - 1) H]
      const at::Tensor c = state.slice(0, 1).movedim(0, 2).flatten(2);
      const auto [y, last] = Run(x, std::make_tuple(state[0], c), lengths);
      const auto& [h_n, c_n] = last;
      return {y, at::cat({h_n.unsqueeze(0), c_n.unflatten(2, {kStates - 1, -1}).movedim(2, 0)})};
    } else {
      const auto [y, last] = Run(x, state[0], lengths);
      return {y, last.unsqueeze(0)};
    }
  }

  at::Tensor ZeroState(int64_t batch) const override {
    return FirstStates({kStates, options_.layers, batch, options_.hidden}, *layer_);
  }

  std::vector<RecurrentParams> Layers() const override {
    Cell cell = kStates > 1 ? Cell::kLstm : Cell::kGru;  // of PyTorch's layers
    if constexpr (requires { layer_->options.variant(); }) cell = layer_->options.variant();
    std::vector<RecurrentParams> layers;
    for (int64_t l = 0; l < options_.layers; ++l) {
      layers.push_back(LayerOf(*layer_, cell, options_, l));
    }
    return layers;
  }

 private:
  template <class State>
  std::tuple<at::Tensor, State> Run(const at::Tensor& x, const State& state,
                                    const at::Tensor& lengths) {
    if constexpr (requires { layer_->forward(x, state, nn::RnnSequences()); }) {
      return layer_->forward(x, state, {.lengths = lengths});
    } else {
      if (!lengths.defined()) return layer_->forward(x, state);
      namespace rnn = torch::nn::utils::rnn;
      const auto packed =
          rnn::pack_padded_sequence(x, lengths.cpu(), false, /*enforce_sorted=*/false);
      const auto [y, last] = layer_->forward_with_packed_input(packed, state);
      return {std::get<0>(rnn::pad_packed_sequence(y, false, 0, x.size(0))), last};
    }
  }

  RecurrentOptions options_;
  Layer layer_;
};

// Stack of Planish's layers with batch norm over the sequences of a batch. Training uses the
// statistics of each time step. Evaluation uses running estimates, folded into the parameters of
// the cell without norms.
class BatchNormed final : public RecurrentModule {
 public:
  // `layer` has the parameters of all layers.
  BatchNormed(const RecurrentOptions& options, Cell cell, std::shared_ptr<torch::nn::Module> layer)
      : options_(options),
        cell_(cell),
        plain_(CellWithoutNorms(cell).value()),
        is_joint_(internal::RecipeOf(cell).sums == internal::Sums::kJoint),
        layer_(register_module("layer", std::move(layer))) {
    FillGains(layer_, options.gain);
    const int64_t sums = is_joint_ ? 1 : 2;
    const int64_t width = internal::RecipeOf(cell).gates() * options.hidden;
    for (int64_t l = 0; l < options.layers; ++l) {
      means_.push_back(
          register_buffer(fmt::format("running_mean_l{}", l), Zeros({sums, width}, *layer_)));
      variances_.push_back(
          register_buffer(fmt::format("running_var_l{}", l), Zeros({sums, width}, *layer_) + 1));
    }
  }

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                            const at::Tensor& lengths) override {
    if (is_training() && x.size(1) < 2) {
      throw UsageError(
          fmt::format("[RecurrentModule] batch must have at least 2 sequences in training with "
                      "batch norm, got {}",
                      x.size(1)));
    }
    const RnnSettings settings{.eps = options_.epsilon, .composed = options_.composed};
    at::Tensor y = x;
    std::vector<at::Tensor> last;
    for (int64_t l = 0; l < options_.layers; ++l) {
      RnnTensors tensors = Params(l);
      tensors.x = y;
      tensors.h0 = state[0][l];
      tensors.lengths = lengths;
      const RnnOutputs outputs = is_training() ? rnn_forward(cell_, tensors, settings)
                                               : rnn_forward(plain_, Folded(l, tensors), settings);
      if (is_training()) UpdateEstimates(l, tensors, outputs.y);
      y = outputs.y;
      last.push_back(outputs.h_n);
    }
    return {y, at::stack(last).unsqueeze(0)};
  }

  at::Tensor ZeroState(int64_t batch) const override {
    return FirstStates({1, options_.layers, batch, options_.hidden}, *layer_);
  }

  std::vector<RecurrentParams> Layers() const override {
    std::vector<RecurrentParams> layers;
    for (int64_t l = 0; l < options_.layers; ++l) {
      layers.push_back(LayerOf(*layer_, cell_, options_, l));
    }
    return layers;
  }

 private:
  // Weight of a new value in a running estimate: that of PyTorch's BatchNorm.
  static constexpr double kMomentum = 0.1;

  // Returns the parameters of layer number `index`.
  RnnTensors Params(int64_t index) const {
    const auto parameters = layer_->named_parameters(/*recurse=*/false);
    const auto named = [&](const char* name) {
      const at::Tensor* found = parameters.find(fmt::format("{}_l{}", name, index));
      return found == nullptr ? at::Tensor() : *found;
    };
    return {.weight_ih = named("weight_ih"),
            .weight_hh = named("weight_hh"),
            .ln_ih_weight = named("ln_ih_weight"),
            .ln_ih_bias = named("ln_ih_bias"),
            .ln_hh_weight = named("ln_hh_weight"),
            .ln_hh_bias = named("ln_hh_bias"),
            .ln_weight = named("ln_weight"),
            .ln_bias = named("ln_bias")};
  }

  // Returns the tensors of the cell without norms that computes what `t` does with the estimates.
  RnnTensors Folded(int64_t index, const RnnTensors& t) const {
    const auto l = static_cast<size_t>(index);
    const at::Tensor rstd = (variances_[l] + options_.epsilon).rsqrt();
    // Returns the factor of the rows of a weight, and the bias.
    const auto fold = [&](int64_t sum, const at::Tensor& gain, const at::Tensor& bias) {
      const at::Tensor scale = gain * rstd[sum];
      return std::pair{scale.unsqueeze(1), bias - means_[l][sum] * scale};
    };
    RnnTensors plain{.x = t.x, .h0 = t.h0, .lengths = t.lengths};
    if (is_joint_) {
      const auto [scale, bias] = fold(0, t.ln_weight, t.ln_bias);
      plain.weight_ih = t.weight_ih * scale;
      plain.weight_hh = t.weight_hh * scale;
      plain.bias = bias;
    } else {
      const auto [scale_ih, bias_ih] = fold(0, t.ln_ih_weight, t.ln_ih_bias);
      const auto [scale_hh, bias_hh] = fold(1, t.ln_hh_weight, t.ln_hh_bias);
      plain.weight_ih = t.weight_ih * scale_ih;
      plain.weight_hh = t.weight_hh * scale_hh;
      const std::vector<at::Tensor> biases = FoldedBiases(plain_, bias_ih, bias_hh);
      plain.bias = biases[0];
      if (biases.size() > 1) plain.bias_hn = biases[1];
    }
    return plain;
  }

  // Moves the estimates towards the means over time of the mean and the unbiased variance of each
  // step over its sequences. Leaves out steps of a single sequence.
  void UpdateEstimates(int64_t index, const RnnTensors& t, const at::Tensor& y) {
    const at::NoGradGuard no_grad;
    int64_t steps = t.x.size(0);
    at::Tensor inactive;  // [T, B, 1]
    if (t.lengths.defined()) {
      const at::Tensor lengths = t.lengths.to(t.x.device());
      steps = std::get<0>(lengths.sort(/*dim=*/0, /*descending=*/true))[1].item<int64_t>();
      inactive = (at::arange(steps, lengths.options()).unsqueeze(1) >= lengths).unsqueeze(2);
    }
    if (steps == 0) return;
    const at::Tensor before = at::cat({t.h0.unsqueeze(0), y.slice(0, 0, steps - 1)});
    const at::Tensor w_hh =
        WithoutHeads(t.weight_hh, internal::RecipeOf(cell_).gates(), options_.heads);
    const at::Tensor zx = t.x.slice(0, 0, steps).matmul(t.weight_ih.t()),
                     zh = before.matmul(w_hh.t());
    if (is_joint_) {
      UpdateEstimates(index, 0, zx + zh, inactive);
    } else {
      UpdateEstimates(index, 0, zx, inactive);
      UpdateEstimates(index, 1, zh, inactive);
    }
  }

  // Does so for sum number `sum`, z [T, B, G]. `inactive` undefined: all sequences have all steps.
  void UpdateEstimates(int64_t index, int64_t sum, const at::Tensor& z,
                       const at::Tensor& inactive) {
    at::Tensor count = at::full({1, 1, 1}, z.size(1), z.options());  // [1 or T, 1, 1]
    if (inactive.defined()) count = count - inactive.sum(1, /*keepdim=*/true);
    const auto total = [&](const at::Tensor& values) {
      return (inactive.defined() ? values.masked_fill(inactive, 0) : values)
          .sum(1, /*keepdim=*/true);
    };
    const at::Tensor mean = total(z) / count;
    const at::Tensor variance = total((z - mean).square_()) / (count - 1);
    const auto l = static_cast<size_t>(index);
    means_[l][sum].lerp_(mean.mean(0).squeeze(0), kMomentum);
    variances_[l][sum].lerp_(variance.mean(0).squeeze(0), kMomentum);
  }

  RecurrentOptions options_;
  Cell cell_, plain_;
  bool is_joint_;  ///< one norm of zx + zh; otherwise norms of zx and of zh
  std::shared_ptr<torch::nn::Module> layer_;
  std::vector<at::Tensor> means_, variances_;  ///< running estimates of each layer, [sums, G]
};

// Like Wrapped, but one step at a time: Layer is a cell.
template <class Layer, int64_t kStates>
class WrappedSteps final : public RecurrentSteps {
 public:
  WrappedSteps(const RecurrentOptions& options, Layer layer)
      : options_(options), layer_(register_module("layer", std::move(layer))) {
    FillGains(layer_, options.gain);
  }

  void Begin() override {
    begun_ = true;
    if constexpr (kHasSteps) {
      // Single steps with packed weights are for the CPU.
      if (options_.composed || !layer_->parameters()[0].is_cpu()) return;
      // Freezes the layer at each Begin, because the parameters can have changed since the last
      // one.
      layer_->unfreeze();
      layer_->freeze();
      steps_ = layer_->steps();
    }
  }

  RecurrentState Step(const at::Tensor& x, const RecurrentState& state) override {
    if (!begun_) throw Error("[RecurrentSteps] call Begin before Step");
    if (steps_) {
      // Only operators are recorded, and a step with packed weights is none.
      at::RecordFunction record(at::RecordScope::FUNCTION);
      if (record.isActive()) {
        const c10::IValue inputs[] = {x, state.h, state.c, layer_->parameters()[0]};
        record.before("RecurrentSteps::Step", inputs);
      }
      const auto [h, c] = steps_.step(x, state.h, state.c);
      if (record.isActive()) record.setOutputs(std::vector<c10::IValue>{h, c});
      return {h, kStates > 1 ? c : at::Tensor()};
    }
    if constexpr (kStates > 1) {
      const auto [h, c] = layer_->forward(x, std::make_tuple(state.h, state.c));
      return {h, c};
    } else {
      return {layer_->forward(x, state.h), {}};
    }
  }

  RecurrentState ZeroState(int64_t batch) const override {
    const at::Tensor first = FirstStates({kStates, batch, options_.hidden}, *layer_);
    if constexpr (kStates == 1) return {first[0], {}};
    return {first[0], first.slice(0, 1).movedim(0, 1).flatten(1)};
  }

 private:
  static constexpr bool kHasSteps = requires(Layer layer) { layer->steps(); };

  RecurrentOptions options_;
  Layer layer_;
  bool begun_ = false;
  RnnSteps steps_;  ///< of Planish's cells
};

using Module = std::shared_ptr<RecurrentModule>;
using Steps = std::shared_ptr<RecurrentSteps>;

// Modules of one kind of cell, from planish::nn or torch::nn.
template <class LayerType, class LayerOptionsType, class CellType, class CellOptionsType,
          int64_t kNumberOfStates>
struct Kind {
  using Layer = LayerType;
  using LayerOptions = LayerOptionsType;
  using StepLayer = CellType;
  using StepOptions = CellOptionsType;
  static constexpr int64_t kStates = kNumberOfStates;
};
using Lstm = Kind<nn::LayerNormLSTM, nn::LayerNormLSTMOptions, nn::LayerNormLSTMCell,
                  nn::LayerNormLSTMCellOptions, 2>;
using Slstm = Kind<nn::LayerNormLSTM, nn::LayerNormLSTMOptions, nn::LayerNormLSTMCell,
                   nn::LayerNormLSTMCellOptions, 3>;
using Gru = Kind<nn::LayerNormGRU, nn::LayerNormGRUOptions, nn::LayerNormGRUCell,
                 nn::LayerNormGRUCellOptions, 1>;
using Rnn = Kind<nn::LayerNormRNN, nn::LayerNormRNNOptions, nn::LayerNormRNNCell,
                 nn::LayerNormRNNCellOptions, 1>;
using TorchLstm = Kind<torch::nn::LSTM, torch::nn::LSTMOptions, torch::nn::LSTMCell,
                       torch::nn::LSTMCellOptions, 2>;
using TorchGru =
    Kind<torch::nn::GRU, torch::nn::GRUOptions, torch::nn::GRUCell, torch::nn::GRUCellOptions, 1>;

// Planish's modules have more options than PyTorch's, whose class determines the cell.
template <class Options>
constexpr bool kIsPlanishs = requires(Options options) { options.variant(); };

bool IsOverBatch(Cell cell) { return internal::RecipeOf(cell).over == internal::Over::kBatch; }

template <class Options>
Options WithCell(Options options, const RecurrentOptions& o, Cell cell) {
  if constexpr (kIsPlanishs<Options>) {
    options.variant(cell).eps(o.epsilon).num_heads(o.heads).composed(o.composed);
  }
  return options;
}

template <class K>
Module MakeModule(const RecurrentOptions& o, Cell cell) {
  using Options = typename K::LayerOptions;
  using Layer = typename K::Layer;
  const auto options = WithCell(Options(o.inputs, o.hidden).num_layers(o.layers), o, cell);
  if constexpr (kIsPlanishs<Options>) {
    if (IsOverBatch(cell)) return std::make_shared<BatchNormed>(o, cell, Layer(options).ptr());
  }
  return std::make_shared<Wrapped<Layer, K::kStates>>(o, Layer(options));
}

template <class K>
Steps MakeSteps(const RecurrentOptions& o, Cell cell) {
  using Options = typename K::StepOptions;
  using Layer = typename K::StepLayer;
  const auto options = WithCell(Options(o.inputs, o.hidden), o, cell);
  return std::make_shared<WrappedSteps<Layer, K::kStates>>(o, Layer(options));
}

struct Entry {
  std::string name;
  Cell cell;
  bool is_planishs;
  Module (*make)(const RecurrentOptions& options, Cell cell);
  Steps (*make_steps)(const RecurrentOptions& options, Cell cell);
};

template <class K>
Entry EntryOf(Cell cell) {
  constexpr bool kOwn = kIsPlanishs<typename K::LayerOptions>;
  std::string name = kOwn ? cell_name(cell) : std::string("torch-") + cell_name(cell);
  std::ranges::replace(name, '_', '-');
  return {std::move(name), cell, kOwn, MakeModule<K>, MakeSteps<K>};
}

// Without kBnLstm, whose norm of c cannot be folded into the LSTM's parameters.
const std::vector<Entry>& Table() {
  static const std::vector<Entry> table = {
      EntryOf<Lstm>(Cell::kLstm),
      EntryOf<Lstm>(Cell::kLnLstm),
      EntryOf<Gru>(Cell::kGru),
      EntryOf<Gru>(Cell::kLnGru),
      EntryOf<Rnn>(Cell::kRnn),
      EntryOf<Rnn>(Cell::kLnRnn),
      EntryOf<Rnn>(Cell::kRnnRelu),
      EntryOf<Rnn>(Cell::kLnRnnRelu),
      EntryOf<Rnn>(Cell::kBnRnn),
      EntryOf<Gru>(Cell::kBnGru),
      EntryOf<Lstm>(Cell::kLnLstmHaste),
      EntryOf<Lstm>(Cell::kLnLstmFastRnns),
      EntryOf<Lstm>(Cell::kLnLstmTfa),
      EntryOf<Lstm>(Cell::kLnLstmContrib),
      EntryOf<Lstm>(Cell::kLnLstmTorchaudio),
      EntryOf<Lstm>(Cell::kLnLstmTflite),
      EntryOf<Gru>(Cell::kLnGruHaste),
      EntryOf<Gru>(Cell::kLnGruDreamer),
      EntryOf<Lstm>(Cell::kDrawLstm),
      EntryOf<Slstm>(Cell::kSlstm),
      EntryOf<TorchLstm>(Cell::kLstm),
      EntryOf<TorchGru>(Cell::kGru),
  };
  return table;
}

// Returns the entry of a cell. Throws like CheckRecurrent.
const Entry& Find(const char* function, const std::string& name, const RecurrentOptions& options) {
  for (const Entry& entry : Table()) {
    if (entry.name != name) continue;
    const int64_t heads = options.heads;
    if (!entry.is_planishs && options.composed) {
      throw UsageError(
          fmt::format("[{}] composed must be false for \"{}\", got true", function, name));
    }
    if (!entry.is_planishs && heads != 1) {
      throw UsageError(
          fmt::format("[{}] heads must be 1 for \"{}\", got {}", function, name, heads));
    }
    if (heads < 1 || options.hidden % heads != 0) {
      throw UsageError(fmt::format("[{}] heads must divide the {} units, got {}", function,
                                   options.hidden, heads));
    }
    return entry;
  }
  throw UsageError(fmt::format("[{}] cell must be one of {}, got \"{}\"", function,
                               fmt::join(CellNames(), ", "), name));
}

}  // namespace

const std::vector<std::string>& CellNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : Table()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

std::optional<Cell> CellWithoutNorms(Cell cell) {
  const internal::Arithmetic arithmetic = internal::RecipeOf(cell).arithmetic;
  for (const internal::NamedCell& named : internal::kNamedCells) {
    const internal::CellRecipe recipe = internal::RecipeOf(named.cell);
    const bool has_norms =
        recipe.sums != internal::Sums::kPlain || recipe.cell != internal::CellNorm::kNone;
    if (recipe.arithmetic == arithmetic && !has_norms) return named.cell;
  }
  return std::nullopt;
}

bool HasBatchNorm(const std::string& name) {
  for (const Entry& entry : Table()) {
    if (entry.name == name) return IsOverBatch(entry.cell);
  }
  return false;
}

void CheckRecurrent(const std::string& name, const RecurrentOptions& options) {
  Find("CheckRecurrent", name, options);
}

std::shared_ptr<RecurrentModule> MakeRecurrent(const std::string& name,
                                               const RecurrentOptions& options) {
  const Entry& entry = Find("MakeRecurrent", name, options);
  return entry.make(options, entry.cell);
}

std::shared_ptr<RecurrentSteps> MakeRecurrentSteps(const std::string& name,
                                                   const RecurrentOptions& options) {
  const Entry& entry = Find("MakeRecurrentSteps", name, options);
  if (options.layers != 1) {
    throw UsageError(fmt::format("[MakeRecurrentSteps] layers must be 1, got {}", options.layers));
  }
  if (IsOverBatch(entry.cell)) {
    throw UsageError(
        fmt::format("[MakeRecurrentSteps] cell must not have batch norm, got \"{}\"", name));
  }
  return entry.make_steps(options, entry.cell);
}

}  // namespace planish::lab
