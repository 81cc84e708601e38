#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "torch/base/compat.h"
#include "torch/base/core.h"
#include "torch/rnn/call.h"
#include "torch/rnn/fields.h"
#include "torch/rnn/packed.h"

// Steps whose parameters' gradients are computed together. In the graph, the parameters are inputs
// of one node, ParamsNode, whose only output is an empty tensor that is an input of every step.
// Autograd therefore runs ParamsNode after the steps of a pass. The steps collect their gradients
// in RnnGradientSums, which ParamsNode writes.
namespace planish {

namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr char kName[] = "RnnSteps";

/// The sums of the backward passes in progress. Each pass has its own, because passes can run on
/// several threads, or nested. Sums of a pass that threw are never freed, nor reused: graph task
/// ids are unique.
template <class T>
class SumsOfPasses {
 public:
  explicit SumsOfPasses(RnnPackedParams<T> packed) : packed_(std::move(packed)) {}

  const RnnPackedParams<T>& packed() const { return packed_; }

  /// Returns the sums of the calling thread's pass.
  RnnGradientSums<T>& ForThisPass() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sums_.try_emplace(torch::autograd::get_current_graph_task_id(), packed_).first->second;
  }

  /// Removes and returns the sums of the calling thread's pass, if any.
  std::optional<RnnGradientSums<T>> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = sums_.find(torch::autograd::get_current_graph_task_id());
    if (now == sums_.end()) return std::nullopt;
    std::optional<RnnGradientSums<T>> taken(std::move(now->second));
    sums_.erase(now);
    return taken;
  }

 private:
  const RnnPackedParams<T> packed_;
  std::mutex mutex_;
  std::map<int, RnnGradientSums<T>> sums_;
};

template <class T>
struct ParamsNode final : torch::autograd::Node {
  std::shared_ptr<SumsOfPasses<T>> sums;
  internal::CellRecipe recipe{};
  Sizes sizes;
  at::TensorOptions options;

  std::string name() const override { return "PlanishRnnStepsParamsBackward"; }

  variable_list apply(variable_list&& /*gradients*/) override {
    variable_list gradients(internal::kParams);
    std::optional<RnnGradientSums<T>> taken = sums->Take();
    if (!taken) return gradients;
    RnnParams<T> dparams;
    const auto table = internal::ParamsOf<T>(recipe, {});
    for (size_t i = 0; i < table.size(); ++i) {
      if (!task_should_compute_output(i)) continue;
      gradients[i] = at::empty_symint(SizesOf(kFirstParam + i, recipe, sizes), options);
      dparams.*table[i].member = MutableData<T>(gradients[i]);
    }
    taken->Write(dparams, TorchParallelFor);
    return gradients;
  }
};

/// Returns a gradient for the core, which bypasses the dispatcher and so needs a plain tensor.
Tensor PlainGradient(const Tensor& gradient) {
  if (!gradient.defined()) return gradient;
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isTensorSubclassLike(gradient), "[", kName,
                              "] gradients must be plain tensors, got a wrapper of vmap or another "
                              "transform: use rnn_step");
  if (gradient._is_zerotensor()) return at::zeros(gradient.sizes(), gradient.options());
  return gradient.resolve_neg().contiguous();
}

/// The node of a step. Inputs: x, h, c and ParamsNode's output. Outputs: the next h and c.
template <class T>
struct StepNode final : torch::autograd::Node {
  static constexpr size_t kX = 0, kH = 1, kC = 2, kParams = 3, kInputs = 4;

  Cell cell{};
  double eps = 0;
  RnnShape shape;
  std::shared_ptr<SumsOfPasses<T>> sums;
  SavedVariable x, h, h_next, saved;

  std::string name() const override { return "PlanishRnnStepBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable* variable : {&x, &h, &h_next, &saved}) variable->reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(kInputs);
    const bool any_c = gradients.size() > 1 && gradients[1].defined();
    if (!gradients[0].defined() && !any_c) return results;
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(), "[", kName,
        "] create_graph must be false, got true: use rnn_step for second derivatives");
    const Tensor dh_next = PlainGradient(gradients[0]);
    const Tensor dc_next = any_c ? PlainGradient(gradients[1]) : Tensor();
    const Tensor x_then = x.unpack(), h_then = h.unpack(), h_next_then = h_next.unpack(getptr()),
                 saved_then = saved.unpack();
    const auto wanted = [&](size_t input, int64_t columns) {
      if (!task_should_compute_output(input)) return Tensor();
      return results[input] = at::empty({shape.batch, columns}, h_next_then.options());
    };
    RnnBackwardArgs<T> args;
    args.inputs.shape = shape;
    args.inputs.x = Data<T>(x_then);
    args.inputs.h0 = Data<T>(h_then);
    args.y = Data<T>(h_next_then);
    args.saved = Data<T>(saved_then);
    args.dh_n = Data<T>(dh_next);
    args.dc_n = Data<T>(dc_next);
    args.dx = MutableData<T>(wanted(kX, shape.inputs));
    args.dh0 = MutableData<T>(wanted(kH, shape.outputs()));
    args.dc0 = MutableData<T>(wanted(kC, shape.hidden * internal::RecipeOf(cell).cell_parts()));
    if (task_should_compute_output(kParams)) args.sums = &sums->ForThisPass();
    RnnOptions<T> options = CoreOptions<T>({.eps = eps});
    options.packed = sums->packed();
    RnnBackward<T>(cell, args, options);
    return results;
  }
};

/// Returns whether the core can read the tensors without the dispatcher, unobserved.
bool ArePlain(at::ArrayRef<Tensor> tensors) {
  if (at::areAnyTensorSubclassLike(tensors) || at::autocast::is_autocast_enabled(at::kCPU) ||
      AreCallsObserved()) {
    return false;
  }
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) {
    return !t.defined() || (IsPlain(t) && IsFloatOrDouble(t));
  });
}

std::array<Tensor, internal::kParams> ParamsOf(const RnnTensors& tensors) {
  std::array<Tensor, internal::kParams> params;
  for (size_t i = 0; i < params.size(); ++i) {
    params[i] = tensors.*kFields[kFirstParam + i].member;
  }
  return params;
}

}  // namespace

struct RnnSteps::Layer {
  Watched watched;  ///< must not change between steps
  Frozen frozen;
  Cell cell{};
  double eps = 0;
  RnnTensors given;        ///< the parameters
  bool constant = false;   ///< constructed without gradients enabled
  RnnPacked packed;        ///< null if they cannot be packed
  RnnTensors params;       ///< if packed: the parameters in the type of the arithmetic
  bool must_pack = false;  ///< `params` is incomplete
  Tensor start;            ///< the output of ParamsNode; undefined unless gradients are enabled
  std::tuple<std::shared_ptr<SumsOfPasses<float>>, std::shared_ptr<SumsOfPasses<double>>> sums;

  explicit Layer(Watched watched_) : watched(std::move(watched_)) {}

  void CheckUnchanged() const {
    const bool is_frozen = frozen && *frozen;
    const std::string* const changed =
        watched.Changed(is_frozen ? Check::kVersions : Check::kBytes);
    TORCH_CHECK_VALUE(!changed, "[", kName, "] ", *changed,
                      " has changed since the steps began: create new steps");
  }

  /// Returns the parameters with their present elements, without a history if they are constant.
  RnnTensors Given() const {
    RnnTensors params_now = given;
    for (size_t i = kFirstParam; constant && i < kH0; ++i) {
      Tensor& param = params_now.*kFields[i].member;
      if (param.defined()) param = param.detach();
    }
    return params_now;
  }

  /// Packs the parameters of the call; if gradients are enabled, also for backward.
  void Pack(const Call& call, const Sizes& sizes) {
    const bool backward = at::GradMode::is_enabled();
    params = call.tensors;
    PackedWeights weights = planish::Pack(call, sizes, backward);
    packed = c10::make_intrusive<PackedParams>(weights);
    if (!backward) return;
    start = at::empty({0}, params.weight_ih.options().requires_grad(false));
    ByType(params.weight_ih.scalar_type(), [&]<class T>() {
      auto& own_sums = std::get<std::shared_ptr<SumsOfPasses<T>>>(sums);
      own_sums = std::make_shared<SumsOfPasses<T>>(weights.of<T>());
      const auto list = ParamsOf(params);
      if (!torch::autograd::compute_requires_grad(at::TensorList(list))) return;
      const auto node = MakeNode<ParamsNode<T>>();
      node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(list)));
      node->sums = own_sums;
      node->recipe = call.recipe();
      node->sizes = sizes;
      node->options = start.options();
      torch::autograd::set_history(variable_list{start}, node);
    });
  }

  /// Computes a step whose tensors have the type of the arithmetic, or whose weights are packed.
  std::tuple<Tensor, Tensor> Take(const Call& call) const;

  /// Computes a step with a history.
  template <class T>
  std::tuple<Tensor, Tensor> Step(const Call& call) const {
    const bool lstm = call.recipe().is_lstm();
    const auto& own_sums = std::get<std::shared_ptr<SumsOfPasses<T>>>(sums);
    const auto node = MakeNode<StepNode<T>>();
    const Tensor inputs[] = {call.tensors.x, call.tensors.h0, call.tensors.c0, start};
    node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(inputs)));
    const auto [x, h, c] = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return std::tuple(inputs[0].contiguous(), Contiguous(inputs[1]), Contiguous(inputs[2]));
    }();
    RnnShape shape = WeightSizes(call.recipe(), call.tensors).ints();
    shape.time = 1;
    shape.batch = x.size(0);
    const auto options = x.options().requires_grad(false);
    const auto empty = [&](at::IntArrayRef sizes) { return at::empty(sizes, options); };
    const Tensor h_next = empty({shape.batch, shape.outputs()});
    const Tensor c_next =
        lstm ? empty({shape.batch, shape.hidden * call.recipe().cell_parts()}) : empty({0});
    const Tensor saved = empty({RnnSavedSize<T>(cell, shape)});
    RnnOptions<T> core_options = CoreOptions<T>({.eps = eps});
    core_options.packed = own_sums->packed();
    RnnForward<T>(cell,
                  {.inputs = {.shape = shape, .x = Data<T>(x), .h0 = Data<T>(h), .c0 = Data<T>(c)},
                   .y = MutableData<T>(h_next),
                   .c_n = lstm ? MutableData<T>(c_next) : nullptr,
                   .saved = MutableData<T>(saved)},
                  core_options);
    variable_list outputs = {h_next};
    if (lstm) outputs.push_back(c_next);
    torch::autograd::set_history(outputs, node);
    node->cell = cell;
    node->eps = eps;
    node->shape = shape;
    node->sums = own_sums;
    node->x = SavedVariable(x, /*is_output=*/false);
    node->h = SavedVariable(h, /*is_output=*/false);
    node->h_next = SavedVariable(h_next, /*is_output=*/true);
    node->saved = SavedVariable(saved, /*is_output=*/false);
    return {h_next, c_next};
  }
};

RnnSteps::RnnSteps(Cell cell, const RnnTensors& params, double eps, const RnnPacked& packed,
                   const Sources& sources, const Frozen& frozen) {
  Sources watched = sources;
  Call call{cell, {}, {.eps = eps}};
  if (params.weight_ih.defined()) {
    for (size_t i = kFirstParam; i < kH0; ++i) {
      const Tensor& param = params.*kFields[i].member;
      call.tensors.*kFields[i].member = param;
      if (sources.empty() && param.defined()) watched.emplace_back(kFields[i].name, param);
    }
  } else {
    call.tensors = FoldedParams(cell, sources);
  }
  CheckGiven(kName, call.tensors, kFirstParam);
  CheckHasSteps(kName, call);
  const Sizes sizes = CheckParams(kName, call);
  CheckEps(kName, eps);
  const auto begin = [&](Watched state) {
    const auto layer = std::make_shared<Layer>(std::move(state));
    layer->frozen = frozen;
    layer->cell = cell;
    layer->eps = eps;
    layer->given = call.tensors;
    layer->constant = !at::GradMode::is_enabled();
    layer_ = layer;
    return layer;
  };
  if (packed) {
    WithCoreErrors([&] {
      const auto& own = static_cast<const PackedParams&>(*packed);
      const auto layer = begin(own.watched ? *own.watched : Watched(watched));
      layer->params = layer->Given();
      layer->must_pack = true;
      layer->packed = packed;
    });
    return;
  }
  // Packs copies of the parameters, and compares the parameters with them from then on.
  const bool are_computed = params.weight_ih.defined() && !sources.empty();
  const bool can_copy =
      !are_computed && !AreCallsObserved() &&
      std::all_of(watched.begin(), watched.end(), [](auto& t) { return IsPlain(t.second); });
  Sources copies;
  const auto layer = begin(can_copy ? Watched::WithCopies(watched, copies) : Watched(watched));
  call.tensors = can_copy ? FoldedParams(cell, copies) : layer->Given();
  call.tensors = WideTensors(call.tensors);  // once for all steps
  const auto list = ParamsOf(call.tensors);
  if (ArePlain(list) && !torch::autograd::isFwGradDefinedTensorList(at::TensorList(list))) {
    WithCoreErrors([&] { layer->Pack(call, sizes); });
  }
}

std::tuple<Tensor, Tensor> RnnSteps::Layer::Take(const Call& call) const {
  const Tensor inputs[] = {call.tensors.x, call.tensors.h0, call.tensors.c0, start};
  const Wanted wanted{at::TensorList(inputs)};
  const bool direct = !wanted.tangents && ArePlain(inputs);
  if (must_pack || (direct && !wanted.gradients)) return rnn_step(cell, call.tensors, eps, packed);
  if (!direct || !start.defined()) return rnn_step(cell, call.tensors, eps);
  CheckStep(kName, call);
  std::tuple<Tensor, Tensor> results;
  WithCoreErrors(
      [&] { ByType(call.tensors.x.scalar_type(), [&]<class T>() { results = Step<T>(call); }); });
  return results;
}

std::tuple<Tensor, Tensor> RnnSteps::step(const Tensor& x, const Tensor& h, const Tensor& c) const {
  TORCH_CHECK_VALUE(layer_, "[", kName,
                    "] step() needs a layer, but the object was default-constructed");
  TORCH_CHECK_VALUE(x.defined(), "[", kName, "] x must be a tensor, got none");
  const Layer& layer = *layer_;
  layer.CheckUnchanged();
  const auto with = [&](const RnnTensors& params, const Tensor& x_, const Tensor& h_,
                        const Tensor& c_) {
    Call call{layer.cell, params, {.eps = layer.eps}};
    call.tensors.x = x_;
    call.tensors.h0 = h_;
    call.tensors.c0 = c_;
    return call;
  };
  // Parameters that are not packed are read again by each step.
  if (!layer.packed) return rnn_step(layer.cell, with(layer.Given(), x, h, c).tensors, layer.eps);
  const at::ScalarType type = x.scalar_type(), given = layer.given.weight_ih.scalar_type();
  const bool wide = given == ComputeType(given);
  if (!wide) CheckStep("rnn_step", with(layer.given, x, h, c));
  if (wide || layer.must_pack) return layer.Take(with(layer.params, x, h, c));
  const auto [h1, c1] = layer.Take(with(layer.params, Wide(x), Wide(h), Wide(c)));
  return {h1.to(type), c1.to(type)};
}

}  // namespace planish
