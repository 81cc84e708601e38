#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "planish/cuda_rnn.h"
#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "torch/base/compat.h"
#include "torch/base/core.h"
#include "torch/base/device.h"
#include "torch/base/route.h"
#include "torch/rnn/call.h"
#include "torch/rnn/composed.h"
#include "torch/rnn/fields.h"
#include "torch/rnn/packed.h"

// The recurrent layers as PyTorch operators. Their many arguments are kept in a struct, and the
// kernels are registered boxed: only Parse and Push depend on the schemas' order of arguments.
namespace planish {

namespace {

using at::Tensor;
using internal::CellRecipe;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;
using Arguments = c10::ArrayRef<c10::IValue>;

// Parts of several schemas. c_n and c1 are [0] for cells without a cell state. `saved` is [0]
// unless it is requested or a gradient is needed.
constexpr char kParamsSchema[] =
    "Tensor weight_ih, Tensor weight_hh, Tensor? bias=None, Tensor? bias_hn=None, "
    "Tensor? ln_ih_weight=None, Tensor? ln_ih_bias=None, Tensor? ln_hh_weight=None, "
    "Tensor? ln_hh_bias=None, Tensor? ln_weight=None, Tensor? ln_bias=None, "
    "Tensor? ln_c_weight=None, Tensor? ln_c_bias=None";
constexpr char kStatesSchema[] = ", Tensor? h0=None, Tensor? c0=None";
constexpr char kSequencesSchema[] =
    ", Tensor? h_reset=None, Tensor? c_reset=None, Tensor? lengths=None, Tensor? resets=None";
// The last argument of all operators, in the order of kArguments.
constexpr char kProjectionSchema[] = ", Tensor? weight_hr=None";
constexpr char kSettingsSchema[] =
    ", *, bool reverse=False, float eps=1e-05, bool checkpoint=False, ";
constexpr char kPackedSchema[] = "__torch__.torch.classes.planish.RnnPackedParams";
constexpr char kForwardOutputs[] = ") -> (Tensor y, Tensor h_n, Tensor c_n, Tensor saved)";
constexpr char kBackwardOutputs[] =
    ") -> (Tensor dx, Tensor dweight_ih, Tensor dweight_hh, Tensor dbias, Tensor dbias_hn, "
    "Tensor dln_ih_weight, Tensor dln_ih_bias, Tensor dln_hh_weight, Tensor dln_hh_bias, "
    "Tensor dln_weight, Tensor dln_bias, Tensor dln_c_weight, Tensor dln_c_bias, Tensor dh0, "
    "Tensor dc0, Tensor dh_reset, Tensor dc_reset, Tensor dweight_hr)";

struct ForwardCall : Call {
  static constexpr char kName[] = "rnn_forward";
  bool save = false;
  RnnPacked packed;
};
struct ForwardResults {
  Tensor y, h_n, c_n, saved;
};

// rnn_forward with PyTorch's operators, for programs that run without this library.
struct ComposedCall : Call {
  static constexpr char kName[] = "rnn_composed";
};

struct BackwardCall : Call {
  static constexpr char kName[] = "rnn_backward";
  Tensor dy, dh_n, dc_n, y, saved;
  Mask mask{};
};

struct StepCall : Call {
  static constexpr char kName[] = "rnn_step";
  RnnPacked packed;
};
struct StepResults {
  Tensor h1, c1;
};

struct PackCall : Call {
  static constexpr char kName[] = "rnn_pack";
  WeightType weight_type = WeightType::kFull;
};

// ---- Arguments and results of the dispatcher

const std::string kLayerSchema = std::string("str cell, Tensor x, ") + kParamsSchema +
                                 kStatesSchema + kSequencesSchema + kProjectionSchema +
                                 kSettingsSchema;

std::string ForwardSchema() {
  return "rnn_forward(" + kLayerSchema + "bool save=False, " + kPackedSchema + "? packed=None" +
         kForwardOutputs;
}
std::string ComposedSchema() {
  const std::string layer = kLayerSchema.substr(0, kLayerSchema.rfind(','));
  return std::string(ComposedCall::kName) + "(" + layer + ") -> (Tensor y, Tensor h_n, Tensor c_n)";
}
std::string BackwardSchema() {
  return "rnn_backward(Tensor? dy, Tensor? dh_n, Tensor? dc_n, Tensor y, Tensor saved, " +
         kLayerSchema + "bool[18] mask" + kBackwardOutputs;
}
std::string StepSchema() {
  return std::string("rnn_step(str cell, Tensor x, ") + kParamsSchema + kStatesSchema +
         kProjectionSchema + ", *, float eps=1e-05, " + kPackedSchema +
         "? packed=None) -> (Tensor h1, Tensor c1)";
}
std::string PackSchema() {
  return std::string("rnn_pack(str cell, ") + kParamsSchema + kProjectionSchema +
         ", *, str weight_type=\"full\") -> " + kPackedSchema + " packed";
}

Tensor TensorOf(const c10::IValue& value) { return value.isNone() ? Tensor() : value.toTensor(); }

c10::IValue ValueOf(const Tensor& tensor) { return tensor.defined() ? tensor : c10::IValue(); }

RnnPacked PackedOf(const c10::IValue& value) {
  return value.isNone() ? RnnPacked() : RnnPacked(value.toCustomClass<PackedParams>());
}

c10::IValue ValueOf(const RnnPacked& packed) {
  return packed ? c10::IValue(c10::dynamic_intrusive_pointer_cast<PackedParams>(packed))
                : c10::IValue();
}

/// Parses the cell and the tensors in [begin, end). Returns the remaining arguments.
Arguments ParseTensors(const char* function, Arguments arguments, size_t begin, size_t end,
                       Call& call) {
  call.cell = CellOf(function, arguments[0].toStringRef());
  size_t argument = 1;
  ForArguments(begin, end, [&](size_t field) {
    call.tensors.*kFields[field].member = TensorOf(arguments[argument++]);
  });
  return arguments.slice(argument);
}

void PushTensors(const Call& call, size_t begin, size_t end, Stack& stack) {
  stack.emplace_back(cell_name(call.cell));
  ForArguments(begin, end, [&](size_t field) { stack.push_back(ValueOf(call.tensor(field))); });
}

RnnSettings SettingsOf(Arguments arguments) {
  return {arguments[0].toBool(), arguments[1].toDouble(), arguments[2].toBool()};
}

void PushSettings(const RnnSettings& settings, Stack& stack) {
  torch::jit::push(stack, settings.reverse, settings.eps, settings.checkpoint);
}

void Parse(Arguments arguments, ForwardCall& call) {
  arguments = ParseTensors(call.kName, arguments, kX, kTensors, call);
  call.settings = SettingsOf(arguments);
  call.save = arguments[3].toBool();
  call.packed = PackedOf(arguments[4]);
}

void Push(const ForwardCall& call, Stack& stack) {
  PushTensors(call, kX, kTensors, stack);
  PushSettings(call.settings, stack);
  torch::jit::push(stack, call.save, ValueOf(call.packed));
}

void Parse(Arguments arguments, ComposedCall& call) {
  call.settings = SettingsOf(ParseTensors(call.kName, arguments, kX, kTensors, call));
}

void Parse(Arguments arguments, BackwardCall& call) {
  call.dy = TensorOf(arguments[0]);
  call.dh_n = TensorOf(arguments[1]);
  call.dc_n = TensorOf(arguments[2]);
  call.y = arguments[3].toTensor();
  call.saved = arguments[4].toTensor();
  arguments = ParseTensors(call.kName, arguments.slice(5), kX, kTensors, call);
  call.settings = SettingsOf(arguments);
  const c10::List<bool> mask = arguments.back().toBoolList();
  TORCH_CHECK_VALUE(mask.size() == kDifferentiables, "[rnn_backward] mask must have ",
                    kDifferentiables, " values, got ", mask.size());
  size_t value = 0;
  ForArguments(0, kDifferentiables, [&](size_t field) { call.mask[field] = mask[value++]; });
}

void Push(const BackwardCall& call, Stack& stack) {
  torch::jit::push(stack, ValueOf(call.dy), ValueOf(call.dh_n), ValueOf(call.dc_n), call.y,
                   call.saved);
  PushTensors(call, kX, kTensors, stack);
  PushSettings(call.settings, stack);
  c10::List<bool> mask;
  ForArguments(0, kDifferentiables, [&](size_t field) { mask.push_back(call.mask[field]); });
  torch::jit::push(stack, std::move(mask));
}

void Parse(Arguments arguments, StepCall& call) {
  arguments = ParseTensors(call.kName, arguments, kX, kStepTensors, call);
  call.settings.eps = arguments[0].toDouble();
  call.packed = PackedOf(arguments[1]);
}

void Push(const StepCall& call, Stack& stack) {
  PushTensors(call, kX, kStepTensors, stack);
  torch::jit::push(stack, call.settings.eps, ValueOf(call.packed));
}

void Parse(Arguments arguments, PackCall& call) {
  arguments = ParseTensors(call.kName, arguments, kFirstParam, kH0, call);
  call.weight_type = WeightTypeOf(call.kName, arguments[0].toStringRef());
}

void Push(const PackCall& call, Stack& stack) {
  PushTensors(call, kFirstParam, kH0, stack);
  stack.emplace_back(weight_type_name(call.weight_type));
}

void Push(const ForwardResults& results, Stack& stack) {
  torch::jit::push(stack, results.y, results.h_n, results.c_n, results.saved);
}
void Push(const RnnOutputs& outputs, Stack& stack) {
  torch::jit::push(stack, outputs.y, outputs.h_n, outputs.c_n);
}
void Push(const Gradients& gradients, Stack& stack) {
  ForArguments(0, kDifferentiables, [&](size_t field) { stack.emplace_back(gradients[field]); });
}
void Push(const StepResults& results, Stack& stack) {
  torch::jit::push(stack, results.h1, results.c1);
}
void Push(const RnnPacked& packed, Stack& stack) { stack.push_back(ValueOf(packed)); }

/// Wraps a kernel that takes a struct as a boxed kernel.
template <class CallType, auto kKernel>
void Boxed(const c10::OperatorHandle& op, Stack* stack) {
  CallType call;
  const size_t arguments = op.schema().arguments().size();
  Parse(torch::jit::last(*stack, arguments), call);
  const auto results = WithCoreErrors([&] { return kKernel(call); });
  torch::jit::drop(*stack, arguments);
  Push(results, *stack);
}

template <class CallType, auto kKernel>
torch::CppFunction Kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&Boxed<CallType, kKernel>>();
}

/// Calls an operator through the dispatcher. The call reaches the layers below the caller's own
/// (autograd, functional transforms, backends).
template <class CallType>
Stack Dispatch(const CallType& call) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      (std::string("planish::") + CallType::kName).c_str(), "");
  Stack stack;
  Push(call, stack);
  op.callBoxed(stack);
  return stack;
}

// Call an operator, by its kernel if RouteOf knows it, otherwise through the dispatcher.
ForwardResults CallForward(const ForwardCall& call);
variable_list CallBackward(const BackwardCall& call);
StepResults CallStep(const StepCall& call);
RnnPacked CallPack(const PackCall& call);

// ---- Checks

/// Returns the elements of `saved`: the larger of the CPU's and a GPU's size.
c10::SymInt SavedSize(const Call& call, const Sizes& sizes) {
  const Cell cell = call.cell;
  c10::SymInt size;
  ByType(call.tensors.x.scalar_type(), [&]<class T>() {
    if (call.settings.checkpoint) {  // only on the CPU
      size = RnnSavedSize<T>(cell, sizes.ints(), true) + kSavedSlack;
      return;
    }
    // The size is T * (B * slope + rest). T and B can be a compiler's symbols.
    RnnShape shape = Sizes{1, 1, sizes.inputs, sizes.hidden, sizes.hidden}.ints();
    const int64_t one = RnnSavedSize<T>(cell, shape);
    shape.batch = 2;
    const int64_t slope = RnnSavedSize<T>(cell, shape) - one;
    shape.batch = 16;  // sizes for 16 sequences are not rounded up
    const bool on_gpu = call.recipe().has_cuda_kernels();
    const int64_t gpu_slope = on_gpu ? cuda::RnnSavedSize<T>(cell, shape) / shape.batch : 0;
    size = sizes.time * (sizes.batch * std::max(slope, gpu_slope) + (one - slope)) + kSavedSlack;
  });
  return size;
}

/// Returns the index of a field's value in the operator's mask.
size_t MaskIndex(size_t field) {
  size_t index = 0;
  ForArguments(0, kDifferentiables, [&](size_t other) {
    const bool before = field == kWeightHr ? other != field : other < field && other != kWeightHr;
    index += before ? 1 : 0;
  });
  return index;
}

Sizes CheckBackward(const BackwardCall& call) {
  const Sizes sizes = CheckCall(call.kName, call);
  const SymSizes outputs = {sizes.time, sizes.batch, sizes.outputs};
  const auto check = [&](const char* name, const Tensor& t, const SymSizes& expected) {
    if (!t.defined()) return;
    CheckSizes(call.kName, name, t, expected);
    CheckLike(call.kName, name, t, call);
  };
  check("dy", call.dy, outputs);
  check("dh_n", call.dh_n, SizesOf(kH0, call.recipe(), sizes));
  TORCH_CHECK_VALUE(call.recipe().is_lstm() || !call.dc_n.defined(),
                    "[rnn_backward] dc_n must be left out for ", cell_name(call.cell), ", got ",
                    call.dc_n.sym_sizes());
  check("dc_n", call.dc_n, SizesOf(kC0, call.recipe(), sizes));
  check("y", call.y, outputs);
  CheckSizes(call.kName, "saved", call.saved, {SavedSize(call, sizes)});
  const at::ScalarType type = ComputeType(call.tensors.x.scalar_type());
  TORCH_CHECK_VALUE(
      call.saved.scalar_type() == type && call.saved.device() == call.tensors.x.device(),
      "[rnn_backward] saved must have ", type, " on ", call.tensors.x.device(), ", got ",
      call.saved.scalar_type(), " on ", call.saved.device());
  TORCH_CHECK_VALUE(!call.mask[kWeightHr] || call.tensors.weight_hr.defined(),
                    "[rnn_backward] mask[", MaskIndex(kWeightHr),
                    "] must be false without weight_hr, got true");
  for (size_t field = 0; field < kDifferentiables; ++field) {
    TORCH_CHECK_VALUE(!call.mask[field] || Takes(field, call.recipe()), "[rnn_backward] mask[",
                      MaskIndex(field), "] must be false for ", cell_name(call.cell), ", got true");
  }
  return sizes;
}

// ---- Kernels

// Returns results of `type`: x's, or the type of the arithmetic, which `saved` has.

ForwardResults EmptyResults(const ForwardCall& call, const Sizes& sizes, at::ScalarType type) {
  const SymSizes saved_size = {call.save ? SavedSize(call, sizes) : c10::SymInt(0)};
  const auto empty = [&](c10::SymIntArrayRef shape) {
    return EmptyOn(call.tensors.x, shape, type);
  };
  return {empty({sizes.time, sizes.batch, sizes.outputs}),
          empty(SizesOf(kH0, call.recipe(), sizes)),
          call.recipe().is_lstm() ? empty(SizesOf(kC0, call.recipe(), sizes)) : empty({0}),
          EmptyOn(call.tensors.x, saved_size, ComputeType(type))};
}

Gradients EmptyGradients(const BackwardCall& call, const Sizes& sizes, at::ScalarType type) {
  Gradients gradients;
  for (size_t field = 0; field < kDifferentiables; ++field) {
    if (!call.mask[field]) continue;
    gradients[field] = EmptyOn(call.tensors.x, SizesOf(field, call.recipe(), sizes), type);
  }
  return gradients;
}

StepResults EmptyStep(const Call& layer, at::ScalarType type) {
  const Tensor& x = layer.tensors.x;
  Sizes sizes = WeightSizes(layer.recipe(), layer.tensors);
  sizes.batch = x.sym_size(1);
  const auto empty = [&](c10::SymIntArrayRef shape) { return EmptyOn(x, shape, type); };
  return {empty(SizesOf(kH0, layer.recipe(), sizes)),
          layer.recipe().is_lstm() ? empty(SizesOf(kC0, layer.recipe(), sizes)) : empty({0})};
}

at::ScalarType TypeOf(const Call& call) { return call.tensors.x.scalar_type(); }

ForwardResults ForwardMeta(const ForwardCall& call) {
  const Sizes sizes = CheckCall(call.kName, call);
  return EmptyResults(call, sizes, TypeOf(call));
}

Gradients BackwardMeta(const BackwardCall& call) {
  const Sizes sizes = CheckBackward(call);
  return EmptyGradients(call, sizes, TypeOf(call));
}

StepResults StepMeta(const StepCall& call) {
  const Call layer = CheckStep(call.kName, call);
  return EmptyStep(layer, TypeOf(layer));
}

/// Converts results from the type of the arithmetic to x's type.
void ToTypeOfX(const Call& call, std::initializer_list<Tensor*> results) {
  const at::ScalarType type = TypeOf(call);
  if (type == ComputeType(type)) return;
  for (Tensor* result : results) {
    if (result->defined()) *result = result->to(type);
  }
}

/// Returns the core's options with the packed weights.
template <class CallType, class T>
RnnOptions<T> CoreOptions(const CallType& call) {
  RnnOptions<T> options = CoreOptions<T>(call.settings);
  if (!call.packed) return options;
  options.packed = static_cast<PackedParams&>(*call.packed).weights.template of<T>();
  TORCH_CHECK_VALUE(options.packed, "[", call.kName, "] packed must have x's type, ",
                    call.tensors.x.scalar_type(), ", got another type");
  return options;
}

/// Returns the memory of c, or null for a cell without one.
template <class T>
T* CarriedC(const Call& call, const Tensor& c) {
  return call.recipe().is_lstm() ? MutableData<T>(c) : nullptr;
}

/// Checks that options supported only on the CPU are not set.
template <class CallType>
void CheckOnGpu(const CallType& call) {
  const Tensor& x = call.tensors.x;
  TORCH_CHECK_VALUE(!call.settings.checkpoint, "[", call.kName,
                    "] checkpoint must be false unless x is on the CPU, got x on ", x.device());
  if constexpr (requires { call.packed; }) {
    TORCH_CHECK_VALUE(!call.packed, "[", call.kName,
                      "] packed must be left out unless x is on the CPU, got x on ", x.device());
  }
}

/// Computes c = op(a) op(b) with PyTorch, on the current stream. `narrow` says that a and b are
/// exact in 16 bits. Their products are then exact in float, and tensor cores compute c.
template <class T>
void MatmulBy(const RnnTensors& given, bool narrow, const cuda::MatmulArgs<T>& args) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Tensor& like = given.x;
  const auto matrix = [&](const T* data, int64_t rows, int64_t cols) {
    return at::for_blob(const_cast<T*>(data), {rows, cols})
        .options(like.options().dtype(c10::CppTypeToScalarType<T>::value))
        .target_device(like.device())
        .make_tensor();
  };
  Tensor c = matrix(args.c, args.rows, args.cols);
  if (narrow) {
    at::mm_out(c, given.x.reshape({args.rows, args.inner}), given.weight_ih.t(), c.scalar_type());
    return;
  }
  const Tensor a = args.a_transposed ? matrix(args.a, args.inner, args.rows).t()
                                     : matrix(args.a, args.rows, args.inner);
  const Tensor b = args.b_transposed ? matrix(args.b, args.cols, args.inner).t()
                                     : matrix(args.b, args.inner, args.cols);
  if (args.accumulate) {
    at::addmm_out(c, c, a, b);
  } else {
    at::mm_out(c, a, b);
  }
}

/// Returns the core's options. The core uses the persistent kernel if the layer fits; otherwise
/// each step is two operators in each direction. `computed` are the call's tensors, converted for
/// the core.
template <class T>
cuda::RnnOptions<T> GpuOptions(const Call& call, const RnnTensors& computed) {
  cuda::RnnOptions<T> options;
  options.eps = call.settings.eps;
  options.matmul = [&call, &computed](const cuda::MatmulArgs<T>& args) {
    const RnnTensors& given = call.tensors;
    const bool is_input_product =
        args.a == Data<T>(computed.x) && args.b == Data<T>(computed.weight_ih) && args.b_transposed;
    MatmulBy(given,
             is_input_product && given.x.element_size() == 2 && given.weight_ih.element_size() == 2,
             args);
  };
  options.persistent = true;
  return options;
}

/// Runs a core function for GPUs with its options and workspace.
template <class T, class CallType, class Args>
void RunOnGpu(const CallType& call, const RnnTensors& computed, const Args& args,
              void (*run)(Cell, const Args&, const cuda::RnnOptions<T>&)) {
  CheckOnGpu(call);
  const OnDeviceOf device(computed.x);  // the workspace depends on it
  const cuda::RnnOptions<T> options = GpuOptions<T>(call, computed);
  const GpuCall gpu(computed.x, cuda::WorkspaceBytes(call.cell, args, options));
  run(call.cell, args, gpu.With(options));
}

/// Sets the part of `saved` past the core's `size` elements to zero, so that no uninitialized
/// memory is returned.
void ClearBeyond(const Tensor& saved, int64_t size) {
  saved.narrow(0, size, saved.numel() - size).zero_();
}

ForwardResults ForwardKernel(const ForwardCall& call) {
  const Sizes sizes = CheckCall(call.kName, call);
  const RnnTensors tensors = Computed(call.tensors, /*params=*/!call.packed);
  ForwardResults results = EmptyResults(call, sizes, ComputeType(TypeOf(call)));
  ByType(tensors.x.scalar_type(), [&]<class T>() {
    const RnnShape shape = sizes.ints();
    const RnnForwardArgs<T> args = {.inputs = CoreInputs<T>(call, tensors, shape),
                                    .y = MutableData<T>(results.y),
                                    .h_n = MutableData<T>(results.h_n),
                                    .c_n = CarriedC<T>(call, results.c_n),
                                    .saved = call.save ? MutableData<T>(results.saved) : nullptr};
    if (tensors.x.is_cpu()) {
      if (call.save)
        std::fill_n(args.saved + results.saved.numel() - kSavedSlack, kSavedSlack, T());
      return RnnForward<T>(call.cell, args, CoreOptions<ForwardCall, T>(call));
    }
    RunOnGpu<T>(call, tensors, args, cuda::RnnForward<T>);
    if (call.save) ClearBeyond(results.saved, cuda::RnnSavedSize<T>(call.cell, shape));
  });
  ToTypeOfX(call, {&results.y, &results.h_n, &results.c_n});
  return results;
}

Gradients BackwardKernel(const BackwardCall& call) {
  const Sizes sizes = CheckBackward(call);
  const RnnTensors tensors = Computed(call.tensors);
  const Tensor y = Wide(call.y).contiguous(), saved = call.saved.contiguous();
  const Tensor dy = Contiguous(Wide(call.dy)), dh_n = Contiguous(Wide(call.dh_n)),
               dc_n = Contiguous(Wide(call.dc_n));
  Gradients gradients = EmptyGradients(call, sizes, ComputeType(TypeOf(call)));
  ByType(tensors.x.scalar_type(), [&]<class T>() {
    RnnParams<T> dparams;
    const auto table = internal::ParamsOf<T>(call.recipe(), {});
    for (size_t i = 0; i < table.size(); ++i) {
      dparams.*table[i].member = MutableData<T>(gradients[kFirstParam + i]);
    }
    const RnnShape shape = sizes.ints();
    const RnnBackwardArgs<T> args = {.inputs = CoreInputs<T>(call, tensors, shape),
                                     .y = Data<T>(y),
                                     .saved = Data<T>(saved),
                                     .dy = Data<T>(dy),
                                     .dh_n = Data<T>(dh_n),
                                     .dc_n = Data<T>(dc_n),
                                     .dx = MutableData<T>(gradients[kX]),
                                     .dparams = dparams,
                                     .dh0 = MutableData<T>(gradients[kH0]),
                                     .dc0 = MutableData<T>(gradients[kC0]),
                                     .dh_reset = MutableData<T>(gradients[kHReset]),
                                     .dc_reset = MutableData<T>(gradients[kCReset])};
    if (tensors.x.is_cpu()) return RnnBackward<T>(call.cell, args, CoreOptions<T>(call.settings));
    RunOnGpu<T>(call, tensors, args, cuda::RnnBackward<T>);
  });
  for (Tensor& gradient : gradients) ToTypeOfX(call, {&gradient});
  return gradients;
}

StepResults StepKernel(const StepCall& call) {
  const Call layer = CheckStep(call.kName, call);
  const RnnTensors tensors = Computed(layer.tensors, /*params=*/!call.packed);
  StepResults results = EmptyStep(layer, ComputeType(TypeOf(layer)));
  ByType(tensors.x.scalar_type(), [&]<class T>() {
    const RnnShape shape = WeightSizes(call.recipe(), call.tensors).ints();
    const RnnStepArgs<T> args = {.batch = tensors.x.size(1),
                                 .inputs = shape.inputs,
                                 .hidden = shape.hidden,
                                 .x = Data<T>(tensors.x),
                                 .params = CoreParams<T>(call.recipe(), tensors),
                                 .h = Data<T>(tensors.h0),
                                 .c = Data<T>(tensors.c0),
                                 .h_next = MutableData<T>(results.h1),
                                 .c_next = CarriedC<T>(call, results.c1),
                                 .projected = shape.projected,
                                 .heads = shape.heads};
    if (tensors.x.is_cpu()) return RnnStep<T>(call.cell, args, CoreOptions<StepCall, T>(call));
    RunOnGpu<T>(call, tensors, args, cuda::RnnStep<T>);
  });
  ToTypeOfX(call, {&results.h1, &results.c1});
  return results;
}

RnnPacked PackKernel(const PackCall& call) {
  const Sizes sizes = CheckParams(call.kName, call);
  const Tensor& weight_ih = call.tensors.weight_ih;
  TORCH_CHECK_VALUE(weight_ih.is_cpu(), "[rnn_pack] weight_ih must be on the CPU, got a tensor on ",
                    weight_ih.device());
  return c10::make_intrusive<PackedParams>(Pack(call, sizes, /*backward=*/false, call.weight_type));
}

// ---- Autograd

/// The tensors of a call, saved in a node.
struct SavedCall {
  Cell cell{};
  RnnSettings settings;
  std::array<SavedVariable, kTensors> tensors;

  void Save(const Call& call) {
    cell = call.cell;
    settings = call.settings;
    for (size_t i = 0; i < kTensors; ++i) tensors[i] = SavedVariable(call.tensor(i), false);
  }
  void Unpack(Call& call) const {
    call.cell = cell;
    call.settings = settings;
    for (size_t i = 0; i < kTensors; ++i) {
      call.tensors.*kFields[i].member = tensors[i].unpack();
    }
  }
  void Release() {
    for (SavedVariable& tensor : tensors) tensor.reset_data();
  }
};

struct RnnBackwardNode final : torch::autograd::Node {
  SavedCall saved_call;
  SavedVariable y, saved;

  std::string name() const override { return "PlanishRnnBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    saved_call.Release();
    y.reset_data();
    saved.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    BackwardCall call;
    call.dy = gradients[0];
    call.dh_n = gradients[1];
    if (gradients.size() > 2) call.dc_n = gradients[2];
    if (!call.dy.defined() && !call.dh_n.defined() && !call.dc_n.defined()) {
      return variable_list(kDifferentiables);
    }
    saved_call.Unpack(call);
    call.y = y.unpack(getptr());
    call.saved = saved.unpack();
    for (size_t i = 0; i < kDifferentiables; ++i) call.mask[i] = task_should_compute_output(i);
    return CallBackward(call);
  }
};

/// The node of rnn_backward. Computes second derivatives with the layer composed of PyTorch's
/// operators.
struct RnnDoubleBackwardNode final : torch::autograd::Node {
  SavedCall saved_call;
  std::array<SavedVariable, kOutputs> output_gradients;

  std::string name() const override { return "PlanishRnnDoubleBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    saved_call.Release();
    for (SavedVariable& gradient : output_gradients) gradient.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    Call call;
    saved_call.Unpack(call);
    OutputGradients unpacked;
    for (size_t i = 0; i < kOutputs; ++i) unpacked[i] = output_gradients[i].unpack();
    Gradients seconds;
    std::copy(gradients.begin(), gradients.end(), seconds.begin());
    SecondMask needed;
    for (size_t i = 0; i < kBackwardInputs; ++i) needed[i] = task_should_compute_output(i);
    const SecondGradients results =
        ComposedDoubleBackward(call.cell, call.tensors, call.settings, unpacked, seconds, needed,
                               /*create_graph=*/at::GradMode::is_enabled());
    return variable_list(results.begin(), results.end());
  }
};

/// Returns the needed derivatives. Checks that there are none with packed weights.
template <class CallType>
Wanted WantedOf(const CallType& call) {
  const Wanted wanted(call.differentiables());
  TORCH_CHECK_VALUE(!wanted.any() || !call.packed, "[", call.kName,
                    "] packed must be left out if gradients are needed, got packed weights");
  return wanted;
}

ForwardResults ForwardAutograd(const ForwardCall& call) {
  const Wanted wanted = WantedOf(call);
  NodePtr<RnnBackwardNode> node;
  ForwardCall below = call;
  if (wanted.gradients && !wanted.tangents) {
    node = MakeNode<RnnBackwardNode>();
    node->set_next_edges(
        torch::autograd::collect_next_edges(at::TensorList(call.differentiables())));
    below.save = true;
  }
  ForwardResults results = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return CallForward(below);
  }();
  if (wanted.tangents) {
    // The kernel has checked the values, and computed `saved`, which a backward at a higher level
    // of torch.func checks.
    const RnnOutputs outputs = ComposedForward(call.cell, call.tensors, call.settings);
    return {outputs.y, outputs.h_n, outputs.c_n, results.saved};
  }
  if (node) {
    variable_list outputs = {results.y, results.h_n};
    if (call.recipe().is_lstm()) outputs.push_back(results.c_n);
    torch::autograd::set_history(outputs, node);
    node->saved_call.Save(call);
    node->y = SavedVariable(results.y, /*is_output=*/true);
    node->saved = SavedVariable(results.saved, /*is_output=*/false);
  }
  return results;
}

/// Checks that the mask names only given tensors; the composed layer has no others.
void CheckMaskHasTensors(const BackwardCall& call) {
  for (size_t i = 0; i < kDifferentiables; ++i) {
    TORCH_CHECK_VALUE(!call.mask[i] || call.tensor(i).defined(), "[rnn_backward] mask[",
                      MaskIndex(i), "] must be false without ", kFields[i].name,
                      " if second derivatives are needed, got true");
  }
}

Gradients BackwardAutograd(const BackwardCall& call) {
  auto inputs = call.differentiables();
  inputs.append({call.dy, call.dh_n, call.dc_n});
  const Wanted wanted{at::TensorList(inputs)};
  if (wanted.any()) CheckMaskHasTensors(call);
  if (wanted.tangents) {
    CheckBackward(call);
    return ComposedBackward(call.cell, call.tensors, call.settings, {call.dy, call.dh_n, call.dc_n},
                            call.mask, /*create_graph=*/wanted.gradients);
  }
  NodePtr<RnnDoubleBackwardNode> node;
  if (wanted.gradients) {
    node = MakeNode<RnnDoubleBackwardNode>();
    node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(inputs)));
  }
  Gradients gradients;
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const variable_list below = CallBackward(call);
    std::copy(below.begin(), below.end(), gradients.begin());
  }
  if (node) {
    torch::autograd::set_history(variable_list(gradients.begin(), gradients.end()), node);
    node->saved_call.Save(call);
    for (size_t i = 0; i < kOutputs; ++i) {
      node->output_gradients[i] = SavedVariable(inputs[kDifferentiables + i], false);
    }
  }
  return gradients;
}

// A step with derivatives is a layer with T = 1, because steps have no backward operator.
StepResults StepAutograd(const StepCall& call) {
  if (!WantedOf(call).any()) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return CallStep(call);
  }
  const Call layer = CheckStep(call.kName, call);
  ForwardCall forward;
  forward.cell = layer.cell;
  forward.tensors = layer.tensors;
  forward.settings = layer.settings;
  const ForwardResults results = CallForward(forward);
  return {results.h_n, results.c_n};
}

// ---- Autocast

/// Returns the call with 16-bit tensors converted to float, whose range and precision the norms and
/// states need; double stays. (nn.LSTM instead computes in 16 bits and returns y in 16 bits.)
template <class CallType>
CallType InFloat(const CallType& call) {
  CallType in_float = call;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    Tensor& t = in_float.tensors.*kFields[i].member;
    if (t.defined()) t = at::autocast::cached_cast(at::kFloat, t, t.device().type());
  }
  return in_float;
}

/// Returns the result in x's type, so that a 16-bit model stays in its type. A 16-bit state that is
/// passed to the next call has lost precision; pass x in float to keep it.
Tensor InTypeOfX(const Call& call, const Tensor& result) {
  return result.to(call.tensors.x.scalar_type());
}

using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

ForwardResults ForwardAutocast(const ForwardCall& call) {
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  const ForwardResults results = CallForward(InFloat(call));
  return {InTypeOfX(call, results.y), InTypeOfX(call, results.h_n), InTypeOfX(call, results.c_n),
          results.saved};
}

StepResults StepAutocast(const StepCall& call) {
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  const StepResults results = CallStep(InFloat(call));
  return {InTypeOfX(call, results.h1), InTypeOfX(call, results.c1)};
}

RnnPacked PackAutocast(const PackCall& call) {
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  return CallPack(InFloat(call));
}

void RegisterAutocast(torch::Library& m) {
  m.impl("rnn_forward", Kernel<ForwardCall, ForwardAutocast>());
  m.impl("rnn_step", Kernel<StepCall, StepAutocast>());
  m.impl("rnn_pack", Kernel<PackCall, PackAutocast>());
}

// ---- Calls of the operators

/// Calls the kernel of an operator that the dispatcher would call. `others` are the tensors beside
/// those of the layer. Returns none for Route::kDispatcher.
template <auto kKernel, auto kAutograd, class CallType>
auto CallKernel(const CallType& call, at::TensorList others = {})
    -> std::optional<decltype(kKernel(call))> {
  c10::DispatchKeySet keys;
  for (size_t i = 0; i < kTensors; ++i) keys = keys | KeysOf(call.tensor(i));
  for (const Tensor& t : others) keys = keys | KeysOf(t);
  const Route route = RouteOf(keys);
  if (route == Route::kDispatcher) return std::nullopt;
  return WithCoreErrors([&] { return route == Route::kCpu ? kKernel(call) : kAutograd(call); });
}

ForwardResults CallForward(const ForwardCall& call) {
  if (auto results = CallKernel<ForwardKernel, ForwardAutograd>(call)) return *std::move(results);
  const Stack results = Dispatch(call);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensor()};
}

variable_list CallBackward(const BackwardCall& call) {
  const Tensor others[] = {call.dy, call.dh_n, call.dc_n, call.y, call.saved};
  if (auto results = CallKernel<BackwardKernel, BackwardAutograd>(call, others)) {
    return {std::make_move_iterator(results->begin()), std::make_move_iterator(results->end())};
  }
  const Stack results = Dispatch(call);
  variable_list gradients(kDifferentiables);
  size_t result = 0;
  ForArguments(0, kDifferentiables,
               [&](size_t field) { gradients[field] = TensorOf(results[result++]); });
  return gradients;
}

StepResults CallStep(const StepCall& call) {
  if (auto results = CallKernel<StepKernel, StepAutograd>(call)) return *std::move(results);
  const Stack results = Dispatch(call);
  return {results[0].toTensor(), results[1].toTensor()};
}

RnnPacked CallPack(const PackCall& call) {
  if (auto packed = CallKernel<PackKernel, PackKernel>(call)) return *std::move(packed);
  return PackedOf(Dispatch(call)[0]);
}

// ---- Functions that users call

/// Checks the call and computes it with PyTorch's operators.
RnnOutputs Composed(const ForwardCall& call) {
  const Sizes sizes = CheckCall(call.kName, call);
  TORCH_CHECK_VALUE(!call.packed,
                    "[rnn_forward] packed must be left out with composed, got "
                    "packed weights");
  const Tensor lengths =
      call.tensors.lengths.defined() ? call.tensors.lengths.cpu().contiguous() : Tensor();
  for (int64_t b = 0; lengths.defined() && b < lengths.numel(); ++b) {
    const int64_t length = lengths.const_data_ptr<int64_t>()[b];
    TORCH_CHECK_VALUE(length >= 1 && length <= sizes.time, "[rnn_forward] lengths[", b,
                      "] must be at least 1 and at most time, ", sizes.time, ", got ", length);
  }
  return ComposedForward(call.cell, call.tensors, call.settings);
}

RnnOutputs ComposedKernel(const ComposedCall& call) {
  CheckCall(call.kName, call);
  return ComposedForward(call.cell, call.tensors, call.settings);
}

}  // namespace

inline namespace PLANISH_API {

RnnOutputs rnn_forward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings,
                       const RnnPacked& packed) {
  CheckGiven("rnn_forward", tensors, kX);
  ForwardCall call;
  call.cell = cell;
  call.tensors = tensors;
  call.settings = settings;
  call.packed = packed;
  if (settings.composed) return Composed(call);
  const ForwardResults results = CallForward(call);
  return {results.y, results.h_n, results.c_n};
}

std::tuple<Tensor, Tensor> rnn_step(Cell cell, const RnnTensors& tensors, double eps,
                                    const RnnPacked& packed) {
  CheckGiven("rnn_step", tensors, kX);
  StepCall call;
  call.cell = cell;
  call.tensors = tensors;
  call.settings.eps = eps;
  call.packed = packed;
  for (size_t field = kStepTensors; field < kTensors; ++field) {
    TORCH_CHECK_VALUE(!call.tensor(field).defined(), "[rnn_step] ", kFields[field].name,
                      " must be left out, got ", call.tensor(field).sizes());
  }
  const StepResults results = CallStep(call);
  return {results.h1, results.c1};
}

RnnPacked rnn_pack(Cell cell, const RnnTensors& params, WeightType weight_type) {
  CheckGiven("rnn_pack", params, kFirstParam);
  PackCall call;
  call.cell = cell;
  call.tensors = params;
  call.tensors.x = Tensor();
  call.weight_type = weight_type;
  return CallPack(call);
}

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.class_<PackedParams>("RnnPackedParams");  // must precede the schemas that name it
  m.def(ForwardSchema().c_str());
  m.def(ComposedSchema().c_str());
  m.def(BackwardSchema().c_str());
  m.def(StepSchema().c_str());
  m.def(PackSchema().c_str());
  RegisterLayer(m);
}

void RegisterRnn(torch::Library& m) {
  m.impl("rnn_forward", Kernel<ForwardCall, ForwardKernel>());
  m.impl("rnn_backward", Kernel<BackwardCall, BackwardKernel>());
  m.impl("rnn_step", Kernel<StepCall, StepKernel>());
  m.impl("rnn_pack", Kernel<PackCall, PackKernel>());
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterRnn(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterRnn(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("rnn_forward", Kernel<ForwardCall, ForwardMeta>());
  m.impl("rnn_backward", Kernel<BackwardCall, BackwardMeta>());
  m.impl("rnn_step", Kernel<StepCall, StepMeta>());
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("rnn_forward", Kernel<ForwardCall, ForwardAutograd>());
  m.impl("rnn_step", Kernel<StepCall, StepAutograd>());
  m.impl("rnn_pack", torch::CppFunction::makeFallthrough());
  m.impl("rnn_backward", Kernel<BackwardCall, BackwardAutograd>());
}

void RegisterComposite(torch::Library& m) {
  m.impl("rnn_composed", Kernel<ComposedCall, ComposedKernel>());
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { RegisterComposite(m); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { RegisterComposite(m); }

TORCH_LIBRARY_IMPL(planish, AutocastCPU, m) { RegisterAutocast(m); }
TORCH_LIBRARY_IMPL(planish, AutocastCUDA, m) { RegisterAutocast(m); }

}  // namespace planish
