#include "src/rnn/cuda/layer.h"

#include <algorithm>
#include <cstdint>

#include "src/base/cuda/device.h"
#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/persistent.h"
#include "src/rnn/element_types.h"

namespace planish::internal::cuda {
namespace {

using planish::cuda::MatmulArgs;
using planish::cuda::RnnOptions;

/// Divides workspace into arrays aligned to 16 bytes. Given null, only counts the bytes.
class Workspace {
 public:
  explicit Workspace(void* data) : data_(static_cast<char*>(data)) {}

  template <class T>
  void Take(T*& array, int64_t elements) {
    array = data_ == nullptr ? nullptr : reinterpret_cast<T*>(data_ + bytes_);
    bytes_ += (elements * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_;
  int64_t bytes_ = 0;
};

/// The sizes of arrays, in elements.
struct Sizes {
  Sizes(const CellRecipe& recipe, const RnnShape& shape)
      : hidden(shape.hidden),
        columns(recipe.gates() * shape.hidden),
        outputs(shape.outputs()),
        projected(shape.projected),
        heads(shape.heads),
        cells(recipe.cell_parts() * shape.hidden),
        states(shape.batch * shape.hidden),
        c_states(shape.batch * cells),
        h_states(shape.batch * shape.outputs()),
        step_sums(shape.batch * columns),
        rows(shape.time * shape.batch),
        parts((rows + kRnnRowsInTurn - 1) / kRnnRowsInTurn) {}

  int64_t hidden, columns, outputs, projected, heads;
  int64_t cells;  ///< of a cell state
  int64_t states, c_states, h_states, step_sums, rows, parts;
};

bool HasCellNorm(const CellRecipe& recipe) { return recipe.cell != CellNorm::kNone; }
bool IsDisjoint(const CellRecipe& recipe) { return recipe.sums == Sums::kSeparate; }
/// Returns whether zx and zh have the same gradient.
bool HasOneGradient(const CellRecipe& recipe) {
  return recipe.sums == Sums::kPlain && !recipe.splits_n();
}

template <class T>
CellLayer<T> LayerOf(const CellRecipe& recipe, const RnnInputs<T>& in,
                     const RnnOptions<T>& options) {
  CellLayer<T> layer = {};
  layer.arithmetic = recipe.arithmetic;
  layer.sums = recipe.sums;
  layer.cell_norm = recipe.cell;
  layer.gates = recipe.gates();
  layer.norms = recipe.norms();
  layer.gates_of_a_norm = recipe.norms() > 0 ? recipe.groups[0] : recipe.gates();
  layer.time = in.shape.time;
  layer.batch = in.shape.batch;
  layer.hidden = in.shape.hidden;
  layer.params.stride = in.shape.hidden;
  layer.eps = options.eps;
  layer.lengths = in.lengths;
  layer.resets = in.resets;
  layer.h_reset = in.h_reset;
  layer.c_reset = in.c_reset;
  return layer;
}

/// Returns the layer for kernels of its hidden states, whose units are its outputs.
template <class T>
CellLayer<T> OfOutputs(CellLayer<T> layer, const Sizes& n) {
  layer.hidden = n.outputs;
  return layer;
}

/// Returns the layer for kernels of its cell states, whose units are their elements.
template <class T>
CellLayer<T> OfCells(CellLayer<T> layer, const Sizes& n) {
  layer.hidden = n.cells;
  return layer;
}

template <class T>
void TakeParams(Workspace& workspace, const CellRecipe& recipe, const Sizes& n,
                CellParams<T>& params) {
  if (recipe.sums != Sums::kPlain) workspace.Take(params.gain_ih, n.columns);
  if (IsDisjoint(recipe)) workspace.Take(params.gain_hh, n.columns);
  workspace.Take(params.bias, n.columns);
  if (recipe.splits_n()) workspace.Take(params.bias_hn, n.hidden);
  if (!HasCellNorm(recipe)) return;
  workspace.Take(params.gain_c, n.hidden);
  workspace.Take(params.bias_c, n.hidden);
}

/// Assigns the saved arrays.
template <class T>
void TakeKept(Workspace& workspace, const CellRecipe& recipe, const Sizes& n, CellLayer<T>& layer) {
  const int64_t norm_coefficients = n.rows * recipe.norms() * kNormCoefficients;
  if (recipe.sums != Sums::kPlain) {
    workspace.Take(layer.zx, n.rows * n.columns);
    workspace.Take(layer.norm_ih, norm_coefficients);
  }
  if (IsDisjoint(recipe)) {
    workspace.Take(layer.zh, n.rows * n.columns);
    workspace.Take(layer.norm_hh, norm_coefficients);
  }
  if (recipe.is_gru()) workspace.Take(layer.candidate, n.rows * n.hidden);
  if (recipe.is_gru() || recipe.is_lstm()) workspace.Take(layer.gates_kept, n.rows * n.columns);
  if (recipe.is_lstm()) {
    workspace.Take(layer.before, n.rows * n.hidden);
    workspace.Take(layer.tanh_c, n.rows * n.hidden);
  }
  if (HasCellNorm(recipe)) workspace.Take(layer.norm_c, n.rows * kNormCoefficients);
}

/// The workspace of forward.
template <class T>
struct ForwardWorkspace {
  T *h = nullptr, *c = nullptr, *o = nullptr;
  T* zh = nullptr;                                     ///< of one step, unless it is saved
  T* weight_hh = nullptr;                              ///< with heads: expanded
  T *unprojected = nullptr, *projected = nullptr;      ///< of all steps, and of one
  double *sum_parts = nullptr, *cell_parts = nullptr;  ///< of the persistent kernel
};

/// Assigns the workspace of forward, and zx and norm_ih unless they are saved. The plan need not
/// fit.
template <class T>
ForwardWorkspace<T> TakeForward(Workspace& workspace, const CellRecipe& recipe, const Sizes& n,
                                bool saved, const PersistentPlan& plan, CellLayer<T>& layer) {
  ForwardWorkspace<T> to;
  TakeParams(workspace, recipe, n, layer.params);
  if (n.heads > 1) workspace.Take(to.weight_hh, n.columns * n.hidden);
  if (plan.fits) {
    workspace.Take(to.h, 2 * n.states / n.hidden * plan.stride);
    workspace.Take(to.sum_parts, plan.sum_parts);
    workspace.Take(to.cell_parts, plan.cell_parts);
  } else {
    workspace.Take(to.h, n.h_states);
    if (n.projected > 0) {
      workspace.Take(to.unprojected, n.rows * n.hidden);
      workspace.Take(to.projected, n.h_states);
    }
    if (recipe.is_lstm()) workspace.Take(to.c, n.c_states);
    if (HasCellNorm(recipe)) workspace.Take(to.o, n.states);
    if (!saved || !IsDisjoint(recipe)) workspace.Take(to.zh, n.step_sums);
  }
  if (!saved || recipe.sums == Sums::kPlain) workspace.Take(layer.zx, n.rows * n.columns);
  if (!saved && IsDisjoint(recipe))
    workspace.Take(layer.norm_ih, n.rows * recipe.norms() * kNormCoefficients);
  return to;
}

/// The workspace of backward.
template <class T>
struct BackwardWorkspace {
  T *da = nullptr, *dzh = nullptr, *dcell = nullptr;
  T *h_before = nullptr, *x = nullptr;
  T *dh = nullptr, *dc = nullptr, *dh_reset = nullptr, *dc_reset = nullptr;
  T *dprojected = nullptr, *unprojected = nullptr;  ///< of all steps
  T* dunprojected = nullptr;
  T* weight_hh = nullptr;  ///< with heads: expanded; then its gradient
  T *partials = nullptr, *cell_partials = nullptr;
  double *sum_parts = nullptr, *cell_parts = nullptr;  ///< of the persistent kernel
  T* state_partials = nullptr;
};

/// Assigns the workspace of backward. The plan need not fit.
template <class T>
BackwardWorkspace<T> TakeBackward(Workspace& workspace, const CellRecipe& recipe, const Sizes& n,
                                  int64_t inputs, bool lengths, const PersistentBackwardPlan& plan,
                                  CellLayer<T>& layer) {
  BackwardWorkspace<T> to;
  TakeParams(workspace, recipe, n, layer.params);
  if (n.heads > 1) workspace.Take(to.weight_hh, n.columns * n.hidden);
  workspace.Take(to.da, n.rows * n.columns);
  to.dzh = to.da;
  if (!HasOneGradient(recipe)) workspace.Take(to.dzh, n.rows * n.columns);
  if (HasCellNorm(recipe)) workspace.Take(to.dcell, n.rows * n.hidden);
  workspace.Take(to.h_before, n.rows * n.outputs);
  if (lengths) workspace.Take(to.x, n.rows * inputs);
  workspace.Take(to.dh, n.h_states);
  workspace.Take(to.dh_reset, n.h_states);
  if (n.projected > 0) {
    workspace.Take(to.dprojected, n.rows * n.outputs);
    workspace.Take(to.unprojected, n.rows * n.hidden);
    workspace.Take(to.dunprojected, n.states);
  }
  if (recipe.is_lstm()) {
    workspace.Take(to.dc, n.c_states);
    workspace.Take(to.dc_reset, n.c_states);
  }
  workspace.Take(to.partials, n.parts * kColumnSums * n.columns);
  if (HasCellNorm(recipe)) workspace.Take(to.cell_partials, n.parts * kCellColumnSums * n.hidden);
  if (plan.fits) {
    workspace.Take(to.sum_parts, plan.sum_parts);
    workspace.Take(to.cell_parts, plan.cell_parts);
    workspace.Take(to.state_partials, plan.buffers * plan.partials);
  }
  return to;
}

/// Returns weight_hh [G, O], expanded to `expanded` if the layer has heads.
template <class T>
const T* ExpandedWeight(const char* function, const CellLayer<T>& layer, const RnnInputs<T>& in,
                        T* expanded, void* stream) {
  if (in.shape.heads == 1) return in.params.weight_hh;
  RunExpandHeads(function, layer, in.shape.heads, in.params.weight_hh, expanded, stream);
  return expanded;
}

/// Matrix products, by the caller's function or by this library's kernel.
template <class T>
class Products {
 public:
  Products(const char* function, const RnnOptions<T>& options)
      : function_(function), options_(options) {}

  void operator()(MatmulArgs<T> product) const {
    product.stream = options_.stream;
    options_.matmul ? options_.matmul(product) : RunMatmul(function_, product);
  }

 private:
  const char* function_;
  const RnnOptions<T>& options_;
};

template <class T>
void FillZero(const char* function, T* data, int64_t elements, void* stream) {
  Fill(function, data, 0, elements * static_cast<int64_t>(sizeof(T)), stream);
}

/// The kernels of a backward call with at least one step and one sequence.
template <class T>
class LayerBackward {
 public:
  LayerBackward(const char* function, const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                const RnnOptions<T>& options)
      : function_(function),
        recipe_(recipe),
        args_(args),
        in_(args.inputs),
        n_(recipe, in_.shape),
        plan_(options.persistent ? PlanBackwardOnDevice<T>(recipe, in_.shape)
                                 : PersistentBackwardPlan()),
        multiply_(function, options),
        stream_(options.stream),
        layer_(LayerOf(recipe, in_, options)),
        outputs_(OfOutputs(layer_, n_)),
        cells_(OfCells(layer_, n_)) {
    // `saved` is only read.
    Workspace saved(const_cast<T*>(args.saved)), workspace(options.workspace);
    TakeKept(saved, recipe, n_, layer_);
    to_ = TakeBackward(workspace, recipe, n_, in_.shape.inputs, in_.lengths != nullptr, plan_,
                       layer_);
  }

  void Run() const {
    BeginStates();
    RunSteps();
    EndStates();
    WriteParamGradients();
    WriteWeightAndInputGradients();
  }

 private:
  int64_t first() const { return in_.reverse ? in_.shape.time - 1 : 0; }

  /// Prepares the arrays that the steps read.
  void BeginStates() const {
    RunPackParams(function_, layer_, in_.params, stream_);
    RunBeginState<T>(function_, outputs_, -1, args_.dh_n, nullptr, n_.outputs, to_.dh, stream_);
    RunBeginState<T>(function_, cells_, -1, args_.dc_n, nullptr, n_.cells, to_.dc, stream_);
    if (in_.resets != nullptr) {
      FillZero(function_, to_.dh_reset, n_.h_states, stream_);
      FillZero(function_, to_.dc_reset, n_.c_states, stream_);
    }
    if (recipe_.is_gru() || args_.dparams.weight_hh != nullptr) {
      RunStatesBefore(function_, outputs_, in_.reverse, in_.h0, args_.y, to_.h_before, stream_);
    }
  }

  /// Computes the gradients of the sums of all steps, and of the first states.
  void RunSteps() const {
    const T* const weight_hh = ExpandedWeight<T>(function_, layer_, in_, to_.weight_hh, stream_);
    const BackwardArrays<T> arrays = {.y = args_.y,
                                      .h_before = to_.h_before,
                                      .dy = n_.projected > 0 ? nullptr : args_.dy,
                                      .dh = n_.projected > 0 ? to_.dunprojected : to_.dh,
                                      .dc = to_.dc,
                                      .da = to_.da,
                                      .dzh = to_.dzh,
                                      .dcell = to_.dcell,
                                      .dh_reset = n_.projected > 0 ? nullptr : to_.dh_reset,
                                      .dc_reset = to_.dc_reset};
    if (plan_.fits) {
      RunBackwardPersistent<T>(function_, layer_,
                               {arrays, plan_, in_.reverse, weight_hh, to_.sum_parts,
                                to_.cell_parts, to_.state_partials},
                               stream_);
      return;
    }
    const int64_t last = in_.shape.time - 1;
    int64_t later = -1;
    for (int64_t i = last; i >= 0; --i) {
      const int64_t t = in_.reverse ? last - i : i;
      if (n_.projected > 0) {
        RunGradientOfProjected<T>(function_, outputs_, t, later, args_.dy, to_.dh, to_.dh_reset,
                                  to_.dprojected, stream_);
        multiply_({.rows = in_.shape.batch,
                   .cols = n_.hidden,
                   .inner = n_.projected,
                   .a = to_.dprojected + t * n_.h_states,
                   .b = in_.params.weight_hr,
                   .c = to_.dunprojected});
      }
      RunBackwardStep<T>(function_, layer_, {arrays, t, later}, stream_);
      multiply_({.rows = in_.shape.batch,
                 .cols = n_.outputs,
                 .inner = n_.columns,
                 .a = to_.dzh + t * n_.step_sums,
                 .b = weight_hh,
                 .c = to_.dh,
                 .accumulate = true});
      later = t;
    }
  }

  void EndStates() const {
    const bool resets = in_.resets != nullptr;
    RunEndState<T>(function_, outputs_, first(), to_.dh, resets ? to_.dh_reset : nullptr, args_.dh0,
                   args_.dh_reset, stream_);
    RunEndState<T>(function_, cells_, first(), to_.dc, resets ? to_.dc_reset : nullptr, args_.dc0,
                   args_.dc_reset, stream_);
  }

  /// Writes the gradients of all parameters except the weights, from the column sums.
  void WriteParamGradients() const {
    const RnnParams<T>& to = args_.dparams;
    const auto params = ParamsOf<T>(recipe_, in_.shape);
    // The weights are the first two parameters and the last.
    if (std::none_of(params.begin() + 2, params.end() - 1,
                     [&](const Param<T>& param) { return to.*param.member != nullptr; })) {
      return;
    }
    RunColumnSums<T>(function_, layer_, to_.da, to_.dcell, to_.partials, to_.cell_partials,
                     stream_);
    const auto of = [&](T* data, ColumnSum sum) {
      return SumsOutput<T>{data, static_cast<int>(sum), 0, n_.columns};
    };
    using enum ColumnSum;
    const bool disjoint = IsDisjoint(recipe_);
    const SumsOutputs<T> outputs = {{of(to.bias, kDa),
                                     {to.bias_hn, static_cast<int>(kDah), 2 * n_.hidden, n_.hidden},
                                     of(disjoint ? to.ln_ih_weight : to.ln_weight, kDaXhatX),
                                     of(disjoint ? to.ln_ih_bias : to.ln_bias, kDa),
                                     of(to.ln_hh_weight, kDahXhatH),
                                     of(to.ln_hh_bias, kDah)}};
    RunFinishSums(function_, to_.partials, n_.parts, kColumnSums, n_.columns, outputs, stream_);
    if (!HasCellNorm(recipe_)) return;
    RunFinishSums(function_, to_.cell_partials, n_.parts, kCellColumnSums, n_.hidden,
                  {{{to.ln_c_bias, 0, 0, n_.hidden}, {to.ln_c_weight, 1, 0, n_.hidden}}}, stream_);
  }

  /// Computes the matrix products for the gradients of the weights and of x.
  void WriteWeightAndInputGradients() const {
    const int64_t inputs = in_.shape.inputs;
    if (args_.dparams.weight_hh != nullptr) {
      multiply_({.rows = n_.columns,
                 .cols = n_.outputs,
                 .inner = n_.rows,
                 .a = to_.dzh,
                 .b = to_.h_before,
                 .c = n_.heads > 1 ? to_.weight_hh : args_.dparams.weight_hh,
                 .a_transposed = true});
      if (n_.heads > 1) {
        RunTakeHeads<T>(function_, layer_, n_.heads, to_.weight_hh, args_.dparams.weight_hh,
                        stream_);
      }
    }
    if (args_.dparams.weight_hr != nullptr) {
      RunUnproject(function_, layer_, to_.unprojected, stream_);
      multiply_({.rows = n_.projected,
                 .cols = n_.hidden,
                 .inner = n_.rows,
                 .a = to_.dprojected,
                 .b = to_.unprojected,
                 .c = args_.dparams.weight_hr,
                 .a_transposed = true});
    }
    if (args_.dparams.weight_ih == nullptr && args_.dx == nullptr) return;
    if (IsDisjoint(recipe_)) RunInputNormBackward(function_, layer_, to_.da, stream_);
    const T* const dzx = recipe_.sums == Sums::kJoint ? to_.dzh : to_.da;
    if (args_.dparams.weight_ih != nullptr) {
      // Inputs past the length of a sequence are undefined and must not be read.
      if (in_.lengths != nullptr) RunMaskInputs(function_, layer_, inputs, in_.x, to_.x, stream_);
      multiply_({.rows = n_.columns,
                 .cols = inputs,
                 .inner = n_.rows,
                 .a = dzx,
                 .b = in_.lengths != nullptr ? to_.x : in_.x,
                 .c = args_.dparams.weight_ih,
                 .a_transposed = true});
    }
    if (args_.dx != nullptr) {
      multiply_({.rows = n_.rows,
                 .cols = inputs,
                 .inner = n_.columns,
                 .a = dzx,
                 .b = in_.params.weight_ih,
                 .c = args_.dx});
    }
  }

  const char* const function_;
  const CellRecipe& recipe_;
  const RnnBackwardArgs<T>& args_;
  const RnnInputs<T>& in_;
  const Sizes n_;
  const PersistentBackwardPlan plan_;
  const Products<T> multiply_;
  void* const stream_;
  CellLayer<T> layer_;
  const CellLayer<T> outputs_, cells_;  ///< for kernels of states; have no saved arrays
  BackwardWorkspace<T> to_;
};

}  // namespace

template <class T>
int64_t SavedBytes(const CellRecipe& recipe, const RnnShape& shape) {
  Workspace workspace(nullptr);
  CellLayer<T> layer = {};
  TakeKept(workspace, recipe, Sizes(recipe, shape), layer);
  return workspace.bytes();
}

template <class T>
bool FitsPersistent(const CellRecipe& recipe, const RnnShape& shape) {
  return PlanOnDevice<T>(recipe, shape).fits;
}

template <class T>
int64_t WorkspaceBytesOf(const CellRecipe& recipe, const RnnForwardArgs<T>& args, bool persistent) {
  const RnnShape& shape = args.inputs.shape;
  Workspace workspace(nullptr);
  CellLayer<T> layer = {};
  const PersistentPlan plan = persistent ? PlanOnDevice<T>(recipe, shape) : PersistentPlan();
  TakeForward(workspace, recipe, Sizes(recipe, shape), args.saved != nullptr, plan, layer);
  return workspace.bytes();
}

template <class T>
int64_t WorkspaceBytesOf(const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                         bool persistent) {
  const RnnShape& shape = args.inputs.shape;
  Workspace workspace(nullptr);
  CellLayer<T> layer = {};
  const PersistentBackwardPlan plan =
      persistent ? PlanBackwardOnDevice<T>(recipe, shape) : PersistentBackwardPlan();
  TakeBackward(workspace, recipe, Sizes(recipe, shape), shape.inputs,
               args.inputs.lengths != nullptr, plan, layer);
  return workspace.bytes();
}

template <class T>
void ForwardLayer(const char* function, const CellRecipe& recipe, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options) {
  const RnnInputs<T>& in = args.inputs;
  const RnnShape& shape = in.shape;
  const Sizes n(recipe, shape);
  void* const stream = options.stream;
  if (shape.batch == 0) return;
  CellLayer<T> layer = LayerOf(recipe, in, options);
  const CellLayer<T> outputs = OfOutputs(layer, n), cells = OfCells(layer, n);
  if (shape.time == 0) {
    RunBeginState<T>(function, outputs, -1, in.h0, nullptr, n.outputs, args.h_n, stream);
    RunBeginState<T>(function, cells, -1, in.c0, nullptr, n.hidden, args.c_n, stream);
    return;
  }
  Workspace saved(args.saved), workspace(options.workspace);
  if (args.saved != nullptr) TakeKept(saved, recipe, n, layer);
  const PersistentPlan plan =
      options.persistent ? PlanOnDevice<T>(recipe, shape) : PersistentPlan();
  const ForwardWorkspace<T> to =
      TakeForward(workspace, recipe, n, args.saved != nullptr, plan, layer);
  const Products<T> multiply(function, options);

  RunPackParams(function, layer, in.params, stream);
  const T* const weight_hh = ExpandedWeight<T>(function, layer, in, to.weight_hh, stream);
  multiply({.rows = n.rows,
            .cols = n.columns,
            .inner = shape.inputs,
            .a = in.x,
            .b = in.params.weight_ih,
            .c = layer.zx,
            .b_transposed = true});
  if (IsDisjoint(recipe)) RunStatistics(function, layer, stream);
  if (plan.fits) {
    return RunPersistent<T>(function, layer,
                            {.plan = plan,
                             .reverse = in.reverse,
                             .weight_hh = weight_hh,
                             .h0 = in.h0,
                             .c0 = in.c0,
                             .h = to.h,
                             .sum_parts = to.sum_parts,
                             .cell_parts = to.cell_parts,
                             .y = args.y,
                             .h_n = args.h_n,
                             .c_n = args.c_n},
                            stream);
  }
  const int64_t last = shape.time - 1;
  const int64_t first = in.reverse ? last : 0;
  RunBeginState(function, outputs, first, in.h0, in.h_reset, n.outputs, to.h, stream);
  RunBeginState(function, cells, first, in.c0, in.c_reset, n.hidden, to.c, stream);
  for (int64_t i = 0; i < shape.time; ++i) {
    const int64_t t = in.reverse ? last - i : i;
    const bool ends = i == last;
    T* const zh = layer.zh == nullptr ? to.zh : layer.zh + t * n.step_sums;
    multiply({.rows = shape.batch,
              .cols = n.columns,
              .inner = n.outputs,
              .a = to.h,
              .b = weight_hh,
              .c = zh,
              .b_transposed = true});
    const int64_t next = ends ? -1 : in.reverse ? t - 1 : t + 1;
    const bool projects = n.projected > 0;
    T* const h_out = ends ? args.h_n : to.h;
    RunForwardStep(function, layer,
                   {.t = t,
                    .next = next,
                    .zh = zh,
                    .h = projects ? nullptr : to.h,
                    .c = to.c,
                    .o = to.o,
                    .y = projects ? to.unprojected : args.y,
                    .h_out = projects ? nullptr : h_out,
                    .c_out = ends ? args.c_n : to.c},
                   stream);
    if (!projects) continue;
    multiply({.rows = shape.batch,
              .cols = n.projected,
              .inner = n.hidden,
              .a = to.unprojected + t * n.states,
              .b = in.params.weight_hr,
              .c = to.projected,
              .b_transposed = true});
    RunEndProjection<T>(function, outputs, t, next, to.projected, to.h, args.y, h_out, stream);
  }
}

template <class T>
void BackwardLayer(const char* function, const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options) {
  const RnnShape& shape = args.inputs.shape;
  if (shape.time > 0 && shape.batch > 0) {
    LayerBackward<T>(function, recipe, args, options).Run();
    return;
  }
  const Sizes n(recipe, shape);
  void* const stream = options.stream;
  for (const auto& param : ParamsOf<T>(recipe, shape)) {
    if (param.taken) FillZero(function, args.dparams.*param.member, param.size, stream);
  }
  FillZero(function, args.dh_reset, n.outputs, stream);
  FillZero(function, args.dc_reset, n.cells, stream);
  if (shape.batch == 0) return;
  const CellLayer<T> layer = LayerOf(recipe, args.inputs, options);
  RunBeginState<T>(function, OfOutputs(layer, n), -1, args.dh_n, nullptr, n.outputs, args.dh0,
                   stream);
  RunBeginState<T>(function, OfCells(layer, n), -1, args.dc_n, nullptr, n.cells, args.dc0, stream);
}

#define PLANISH_INSTANTIATE(T)                                                           \
  template int64_t SavedBytes<T>(const CellRecipe&, const RnnShape&);                    \
  template bool FitsPersistent<T>(const CellRecipe&, const RnnShape&);                   \
  template int64_t WorkspaceBytesOf(const CellRecipe&, const RnnForwardArgs<T>&, bool);  \
  template int64_t WorkspaceBytesOf(const CellRecipe&, const RnnBackwardArgs<T>&, bool); \
  template void ForwardLayer(const char*, const CellRecipe&, const RnnForwardArgs<T>&,   \
                             const RnnOptions<T>&);                                      \
  template void BackwardLayer(const char*, const CellRecipe&, const RnnBackwardArgs<T>&, \
                              const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal::cuda
