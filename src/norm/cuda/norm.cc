#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "planish/cuda.h"
#include "src/base/check.h"
#include "src/base/cuda/device.h"
#include "src/base/cuda/pack.h"
#include "src/norm/check.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/cuda/gate.h"
#include "src/norm/cuda/rows.h"
#include "src/norm/cuda/rows_plan.h"
#include "src/norm/element_types.h"
#include "src/norm/recipe.h"
#include "src/norm/sets.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::Recipe;
using internal::cuda::KernelSettingsOf;
using internal::cuda::kFullPack;
using internal::cuda::RowsPlan;
using internal::cuda::RowsShape;
using internal::cuda::StridedArray;
using internal::cuda::Untyped;

template <class T>
RowsShape RowsShapeOf(int64_t rows, int64_t cols, bool columns,
                      std::initializer_list<StridedArray> arrays) {
  return {.rows = rows,
          .cols = cols,
          .pack = internal::cuda::PackOf<T>(cols, arrays),
          .element_bytes = static_cast<int>(sizeof(T)),
          .columns = columns,
          .cluster_blocks = internal::cuda::MaxClusterBlocks()};
}

// Returns the maximum over all alignments and devices. T is the kernels' element type.
template <class T, class Args, class Bytes>
int64_t MaxBytes(const Args& args, bool columns, const Bytes& bytes) {
  int64_t max = 0;
  if (args.rows == 0 || args.cols == 0) return max;
  for (const int pack : {1, kFullPack<T>}) {
    if (args.cols % pack != 0) continue;
    for (int blocks = 1; blocks <= internal::cuda::kMaxClusterBlocks; blocks *= 2) {
      max = std::max(max, bytes(RowsShape{.rows = args.rows / args.sets,
                                          .cols = args.cols,
                                          .pack = pack,
                                          .element_bytes = static_cast<int>(sizeof(T)),
                                          .columns = columns,
                                          .cluster_blocks = blocks}));
    }
  }
  return max;
}

// Return whether a call needs the kernels of gate.h.
template <class T, class P>
bool NeedsGate(const NormForwardArgs<T, P>& args) {
  return args.gate != nullptr || args.quantized != nullptr ||
         (sizeof(T) == 2 && args.cast_before_gain);
}
template <class T, class P>
bool NeedsGate(const NormBackwardArgs<T, P>& args) {
  return args.gate != nullptr;
}

// The type of the parameters of a norm in Compute<T>.
template <class T, class P>
using GateParam = std::conditional_t<sizeof(P) == 2, float, P>;

// Arrays at the start of the workspace of a call that NeedsGate: two of its rows in Compute<T> (one
// in forward), and three of parameters if they are 16-bit.
template <class T, class P>
class GateArrays {
 public:
  using C = Compute<T>;

  template <class Args>
  GateArrays(const char* function, const Args& args)
      : rows_bytes_(Padded(Elements(function, args))),
        params_bytes_(sizeof(P) == 2 ? Padded(args.cols) : 0),
        count_(std::is_same_v<Args, NormForwardArgs<T, P>> ? 1 : 2),
        cols_(args.cols) {}

  int64_t bytes() const { return count_ * rows_bytes_ + 3 * params_bytes_; }
  C* rows(void* workspace, int64_t i) const { return At(workspace, i * rows_bytes_); }

  // Returns parameters in a type that the kernels of Compute<T> read. Converts them to array i.
  const GateParam<T, P>* Widened(const char* function, const P* params, int64_t i,
                                 const NormOptions& options) const {
    if constexpr (sizeof(P) == 2) {
      if (params == nullptr) return nullptr;
      C* const to = Param(options, i);
      internal::cuda::RunWiden<T>(function, params, cols_, to, options.stream);
      return to;
    } else {
      return params;
    }
  }

  // Returns where gradients of parameters are computed: array i, or `gradients` itself.
  GateParam<T, P>* Gradient(P* gradients, int64_t i, const NormOptions& options) const {
    if constexpr (sizeof(P) == 2) {
      return gradients == nullptr ? nullptr : Param(options, i);
    } else {
      return gradients;
    }
  }

  // Rounds what was computed in Gradient().
  void Round(const char* function, const GateParam<T, P>* from, P* gradients,
             const NormOptions& options) const {
    if constexpr (sizeof(P) == 2) {
      if (gradients == nullptr) return;
      internal::cuda::RunRound<T>(function, from, cols_, gradients, options.stream);
    }
  }

 private:
  // Returns the number of elements of a set. Throws ArgumentError if bytes() would overflow.
  template <class Args>
  static int64_t Elements(const char* function, const Args& args) {
    const int64_t max = INT64_MAX / 8 / static_cast<int64_t>(sizeof(C));
    if (args.cols > 0 && args.rows > max / args.cols) {
      internal::Fail(
          function, "rows * cols",
          "be at most " + std::to_string(max) + " with a gate, cast_before_gain or quantized",
          std::to_string(args.rows) + " * " + std::to_string(args.cols));
    }
    return args.rows / args.sets * args.cols;
  }
  static int64_t Padded(int64_t elements) {
    return internal::cuda::CeilDiv(elements * static_cast<int64_t>(sizeof(C)), 16) * 16;
  }
  static C* At(void* workspace, int64_t bytes) {
    return reinterpret_cast<C*>(static_cast<char*>(workspace) + bytes);
  }
  C* Param(const NormOptions& options, int64_t i) const {
    return At(options.workspace, count_ * rows_bytes_ + i * params_bytes_);
  }

  int64_t rows_bytes_, params_bytes_, count_, cols_;
};

}  // namespace

int Devices() { return internal::cuda::Devices(); }

template <class T, class P>
int64_t WorkspaceBytes(const NormForwardArgs<T, P>& args) {
  internal::CheckRowSizes("WorkspaceBytes", args);
  const auto bytes = [](const RowsShape& shape) {
    return ForwardWorkspaceBytes(shape, PlanForward(shape));
  };
  if (!NeedsGate(args)) return MaxBytes<T>(args, false, bytes);
  return GateArrays<T, P>("WorkspaceBytes", args).bytes() +
         MaxBytes<Compute<T>>(args, false, bytes);
}

template <class T, class P>
int64_t WorkspaceBytes(const NormBackwardArgs<T, P>& args) {
  internal::CheckRowSizes("WorkspaceBytes", args);
  const auto bytes = [](const RowsShape& shape) {
    return BackwardWorkspaceBytes(shape, PlanBackward(shape), sizeof(Compute<T>));
  };
  const bool columns = internal::HasParamGradients(args);
  if (!NeedsGate(args)) return MaxBytes<T>(args, columns, bytes);
  return GateArrays<T, P>("WorkspaceBytes", args).bytes() +
         MaxBytes<Compute<T>>(args, columns, bytes);
}

namespace {

// A call of the norm's kernels between those of gate.h: in Compute<T>, with the workspace after the
// arrays of GateArrays.
template <class Options>
Options WithoutGateArrays(Options options, int64_t bytes) {
  options.workspace = static_cast<char*>(options.workspace) + bytes;
  options.workspace_bytes -= bytes;
  return options;
}

// Launches the kernels for a checked call with one parameter set and at least one element.
template <class T, class P>
void ForwardSet(const char* function, const Recipe& recipe, const NormForwardArgs<T, P>& args,
                const NormOptions& options) {
  const RowsShape shape = RowsShapeOf<T>(args.rows, args.cols, false,
                                         {{args.x, args.x_stride},
                                          {args.y, args.y_stride},
                                          {args.residual, args.residual_stride},
                                          {args.sum, args.sum_stride},
                                          args.gain,
                                          args.bias});
  const RowsPlan plan = PlanForward(shape);
  internal::CheckWorkspace(function, options, ForwardWorkspaceBytes(shape, plan));
  const internal::cuda::Forward<T> call = {Untyped(args),
                                           KernelSettingsOf<Compute<T>>(recipe, options)};
  RunForward(function, call, plan, options.stream, options.workspace);
}

// Like ForwardSet, for a call that NeedsGate.
template <class T, class P>
void GatedForwardSet(const char* function, const Recipe& recipe, const NormForwardArgs<T, P>& args,
                     const NormOptions& options) {
  using C = Compute<T>;
  constexpr bool kHalf = sizeof(T) == 2;
  const GateArrays<T, P> arrays(function, args);
  internal::CheckWorkspace(function, options, arrays.bytes());
  const internal::cuda::Forward<T> call = {Untyped(args), KernelSettingsOf<C>(recipe, options)};
  C* const v = arrays.rows(options.workspace, 0);
  const bool cast = kHalf && args.cast_before_gain;
  const bool before = args.gate && args.gate_before_norm;
  NormForwardArgs<C, GateParam<T, P>> norm = {.rows = args.rows,
                                              .cols = args.cols,
                                              .x = v,
                                              .y = v,
                                              .mean = args.mean,
                                              .mean_lo = args.mean_lo,
                                              .rstd = args.rstd,
                                              .x_stride = args.cols,
                                              .y_stride = args.cols};
  if (!cast) {
    norm.gain = arrays.Widened(function, args.gain, 0, options);
    norm.bias = arrays.Widened(function, args.bias, 1, options);
  }
  const bool quantized = args.quantized != nullptr;
  const bool has_output = (args.gate && !before) || (quantized ? cast || args.y : kHalf);
  bool has_input = true;
  if constexpr (!kHalf) {
    has_input = before || args.residual;
    if (!has_input) norm.x = args.x, norm.x_stride = args.x_stride;
    if (!has_output && !quantized) norm.y = args.y, norm.y_stride = args.y_stride;
  }
  if (has_input) RunGateInput(function, call, v, options.stream);
  ForwardSet(function, recipe, norm, WithoutGateArrays(options, arrays.bytes()));
  if (has_output) RunGateOutput(function, call, v, cast, options.stream);
  if (quantized) RunQuantize(function, call, v, options.stream);
}

template <class T, class P>
void BackwardSet(const char* function, const Recipe& recipe, const NormBackwardArgs<T, P>& args,
                 const NormOptions& options) {
  const bool columns = internal::HasParamGradients(args);
  if (!columns && args.dx == nullptr) return;
  internal::cuda::Backward<T> call = {Untyped(args), KernelSettingsOf<Compute<T>>(recipe, options)};
  internal::cuda::DropUnread(recipe, call);
  const RowsShape shape = RowsShapeOf<T>(args.rows, args.cols, columns,
                                         {{args.dy, args.dy_stride},
                                          {call.x, args.x_stride},
                                          {args.dx, args.dx_stride},
                                          {args.dsum, args.dsum_stride},
                                          args.gain});
  const RowsPlan plan = PlanBackward(shape);
  internal::CheckWorkspace(function, options,
                           BackwardWorkspaceBytes(shape, plan, sizeof(Compute<T>)));
  RunBackward(function, call, plan, options.stream, options.workspace);
}

// Like BackwardSet, for a call with a gate.
template <class T, class P>
void GatedBackwardSet(const char* function, const Recipe& recipe,
                      const NormBackwardArgs<T, P>& args, const NormOptions& options) {
  using C = Compute<T>;
  const GateArrays<T, P> arrays(function, args);
  internal::CheckWorkspace(function, options, arrays.bytes());
  internal::cuda::Backward<T> call = {Untyped(args), KernelSettingsOf<C>(recipe, options)};
  internal::cuda::DropUnread(recipe, call);
  C* const x = arrays.rows(options.workspace, 0);
  C* const g = arrays.rows(options.workspace, 1);
  const bool has_output = args.dx || (args.gate_before_norm && args.dgate);
  const NormBackwardArgs<C, GateParam<T, P>> norm = {
      .rows = args.rows,
      .cols = args.cols,
      .dy = g,
      .x = x,
      .gain = arrays.Widened(function, args.gain, 0, options),
      .mean = args.mean,
      .mean_lo = args.mean_lo,
      .rstd = args.rstd,
      .dx = has_output ? g : nullptr,
      .dgain = arrays.Gradient(args.dgain, 1, options),
      .dbias = arrays.Gradient(args.dbias, 2, options),
      .dy_stride = args.cols,
      .x_stride = args.cols,
      .dx_stride = args.cols};
  RunGateGradientInput(function, call, x, g, options.stream);
  BackwardSet(function, recipe, norm, WithoutGateArrays(options, arrays.bytes()));
  if (has_output) RunGateGradientOutput(function, call, g, options.stream);
  arrays.Round(function, norm.dgain, args.dgain, options);
  arrays.Round(function, norm.dbias, args.dbias, options);
}

}  // namespace

template <class T, class P>
void NormForward(Norm norm, const NormForwardArgs<T, P>& arguments, const NormOptions& options) {
  constexpr const char* kFunction = "NormForward";
  const Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm(kFunction, recipe, arguments, options);
  if (args.rows == 0) return;
  if (args.cols == 0) {
    internal::cuda::FillEach(kFunction, {args.mean, args.mean_lo, args.rstd, args.row_scale},
                             args.rows, internal::cuda::kNanByte, options.stream);
    return;
  }
  for (int64_t set = 0; set < args.sets; ++set) {
    const auto one = internal::SetOf(args, recipe, set);
    NeedsGate(one) ? GatedForwardSet(kFunction, recipe, one, options)
                   : ForwardSet(kFunction, recipe, one, options);
  }
}

template <class T, class P>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& arguments, const NormOptions& options) {
  constexpr const char* kFunction = "NormBackward";
  const Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm(kFunction, recipe, arguments, options);
  if (args.rows == 0 || args.cols == 0) {
    internal::cuda::FillEach(kFunction, {args.dgain, args.dbias}, args.sets * args.cols,
                             internal::cuda::kZeroByte, options.stream);
    return;
  }
  for (int64_t set = 0; set < args.sets; ++set) {
    const auto one = internal::SetOf(args, recipe, set);
    NeedsGate(one) ? GatedBackwardSet(kFunction, recipe, one, options)
                   : BackwardSet(kFunction, recipe, one, options);
  }
}

#define PLANISH_INSTANTIATE(T, P)                                                    \
  template int64_t WorkspaceBytes(const NormForwardArgs<T, P>&);                     \
  template int64_t WorkspaceBytes(const NormBackwardArgs<T, P>&);                    \
  template void NormForward(Norm, const NormForwardArgs<T, P>&, const NormOptions&); \
  template void NormBackward(Norm, const NormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
