#include "torch/rnn/layer.h"

#include <ATen/core/Dict.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "src/rnn/cell.h"
#include "torch/base/core.h"
#include "torch/rnn/fields.h"

namespace planish {

using at::Tensor;
using internal::CellRecipe;

std::vector<ModuleParam> ModuleParams(Cell cell, bool bias) {
  const CellRecipe recipe = internal::RecipeOf(cell);
  std::vector<ModuleParam> params;
  for (size_t field = kFirstParam; field < kH0; ++field) {
    const std::string_view name = kFields[field].name;
    if (!Takes(field, recipe) || name == "bias_hn") continue;  // bias_hn is part of bias_hh
    if (name != "bias") {
      params.push_back({kFields[field].name, field});
    } else if (bias) {
      params.push_back({"bias_ih", field});
      const bool plain = recipe.sums == internal::Sums::kPlain && !recipe.is_slstm();
      if (plain || recipe.has_bias_hn()) {
        params.push_back({"bias_hh", field});
      }
    }
  }
  return params;
}

std::vector<int64_t> SizesOf(const ModuleParam& param, Cell cell, const RnnShape& shape) {
  std::vector<int64_t> sizes;
  for (const c10::SymInt& size : SizesOf(param.field, internal::RecipeOf(cell),
                                         Sizes{shape.time, shape.batch, shape.inputs, shape.hidden,
                                               shape.outputs(), shape.heads})) {
    sizes.push_back(size.expect_int());
  }
  return sizes;
}

namespace internal {

RnnLayer::RnnLayer(Cell cell, bool bias, std::string suffix, std::string module)
    : cell_(cell),
      bias_(bias),
      suffix_(std::move(suffix)),
      module_(std::move(module)),
      params_(ModuleParams(cell, bias)) {}

RnnLayer::RnnLayer(const RnnLayer& other)
    : RnnLayer(other.cell_, other.bias_, other.suffix_, other.module_) {
  state_.weight_type = other.weight_type();
}

RnnLayer::State RnnLayer::Now() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

std::vector<ModuleParam> RnnLayer::params(bool projects) const {
  std::vector<ModuleParam> of_layer = params_;
  if (!projects && of_layer.back().field == kWeightHr) of_layer.pop_back();
  return of_layer;
}

void RnnLayer::CheckCount(const Params& given) const {
  const size_t with = params_.size(), without = params(/*projects=*/false).size();
  TORCH_CHECK_VALUE(given.size() == with || given.size() == without, "[", module_,
                    "] params must have ", without, " tensors, got ", given.size());
}

NamedTensors RnnLayer::Named(const Params& params) const {
  NamedTensors named;
  named.reserve(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    named.emplace_back(params_[i].name + suffix_, params[i]);
  }
  return named;
}

RnnTensors RnnLayer::Folded(const Params& params) const {
  RnnTensors tensors;
  Tensor bias_hh;
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor& own = tensors.*kFields[params_[i].field].member;
    (own.defined() ? bias_hh : own) = params[i];  // bias_hh follows bias_ih
  }
  FoldBiases(cell_, bias_hh, tensors);
  return tensors;
}

c10::intrusive_ptr<PackedParams> RnnLayer::Packed(const Params& params, Mode mode,
                                                  const RnnTensors& inputs) {
  // In training, parameters change between calls. Derivatives need the parameters. Transforms,
  // modes and tracers that see the calls must get them, too.
  if (mode.training || at::GradMode::is_enabled() || AreCallsObserved()) return {};
  const Tensor states[] = {inputs.x, inputs.h0, inputs.c0, inputs.h_reset, inputs.c_reset};
  if (torch::autograd::isFwGradDefinedTensorList(at::TensorList(states)) ||
      torch::autograd::isFwGradDefinedTensorList(at::TensorList(params))) {
    return {};
  }
  // Computed parameters are new tensors at each call. The elements of tensors that are not plain
  // cannot be read from memory.
  const bool can_pack = !mode.computed && std::all_of(params.begin(), params.end(), IsPlain);
  const State now = Now();
  const bool frozen = now.freezing != nullptr;
  if (now.packed) {
    const bool same = now.packed->watched->AreTensors(params);
    TORCH_CHECK(same || !frozen, "[", module_,
                "] a parameter has been replaced while the module is ",
                "frozen: call unfreeze() before replacing it");
    if (same && can_pack) {
      const std::string* const changed =
          now.packed->watched->Changed(frozen ? Check::kVersions : Check::kBytes);
      if (!changed) return now.packed;
      TORCH_CHECK(!frozen, "[", module_, "] ", *changed,
                  " has changed while the module is frozen: call unfreeze() before changing it");
    }
  }
  if (!can_pack) return {};
  auto packed = Pack(params, now.weight_type);
  const std::lock_guard<std::mutex> lock(mutex_);
  // Another thread can have frozen or unfrozen the layer, or changed its type, meanwhile.
  if (state_.freezing == now.freezing && state_.weight_type == now.weight_type) {
    state_.packed = packed;
    ++state_.packings;
  }
  return packed;
}

c10::intrusive_ptr<PackedParams> RnnLayer::Pack(const Params& params,
                                                WeightType weight_type) const {
  const at::AutoDispatchBelowADInplaceOrView guard;
  NamedTensors named;
  Watched watched = Watched::WithCopies(Named(params), named);
  Params copies;
  for (const auto& [name, copy] : named) copies.push_back(copy);
  const Call call{cell_, Folded(copies), {}};
  CheckGiven("rnn_pack", call.tensors, kFirstParam);
  auto packed = c10::make_intrusive<PackedParams>(
      planish::Pack(call, CheckParams("rnn_pack", call), /*backward=*/false, weight_type));
  packed->watched = std::move(watched);
  return packed;
}

RnnTensors RnnLayer::Prepare(const Params& params, Mode mode, const RnnTensors& inputs,
                             RnnPacked& packed) {
  CheckCount(params);
  packed = Packed(params, mode, inputs);
  RnnTensors tensors;
  if (packed) {
    tensors.weight_ih = params[0];
    tensors.weight_hh = params[1];
    const size_t last = params.size() - 1;
    if (params_[last].field == kWeightHr) tensors.weight_hr = params[last];
  } else {
    tensors = Folded(params);
  }
  for (size_t i = 0; i < kTensors; ++i) {
    if (i >= kFirstParam && i < kH0) continue;
    tensors.*kFields[i].member = inputs.*kFields[i].member;
  }
  return tensors;
}

RnnOutputs RnnLayer::Forward(const Params& params, Mode mode, const RnnTensors& inputs,
                             const RnnSettings& settings) {
  mode.training |= settings.composed;  // the composed layer reads the parameters
  RnnPacked packed;
  const RnnTensors tensors = Prepare(params, mode, inputs, packed);
  return rnn_forward(cell_, tensors, settings, packed);
}

std::tuple<Tensor, Tensor> RnnLayer::Step(const Params& params, Mode mode, const RnnTensors& inputs,
                                          const RnnSettings& settings) {
  if (settings.composed) {
    RnnTensors sequence = inputs;
    sequence.x = inputs.x.unsqueeze(0);
    const RnnOutputs outputs = Forward(params, mode, sequence, settings);
    return {outputs.h_n, outputs.c_n};
  }
  RnnPacked packed;
  const RnnTensors tensors = Prepare(params, mode, inputs, packed);
  return rnn_step(cell_, tensors, settings.eps, packed);
}

RnnSteps RnnLayer::Steps(const Params& params, Mode mode, double eps, const NamedTensors& sources) {
  // Before packing: if another thread unfreezes the layer meanwhile, the steps compare bytes.
  const RnnSteps::Frozen frozen = Now().freezing;
  CheckCount(params);
  if (mode.computed) return RnnSteps(cell_, Folded(params), eps, {}, sources, frozen);
  return RnnSteps(cell_, {}, eps, Packed(params, mode, {}), Named(params), frozen);
}

void RnnLayer::Drop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.packed.reset();
  state_.packings = 0;
}

void RnnLayer::Freeze() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_.freezing) return;
  state_ = {.freezing = std::make_shared<std::atomic<bool>>(true),
            .weight_type = state_.weight_type};
}

void RnnLayer::Unfreeze() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!state_.freezing) return;
  *state_.freezing = false;
  state_ = {.weight_type = state_.weight_type};
}

bool RnnLayer::is_frozen() const { return Now().freezing != nullptr; }

void RnnLayer::SetWeightType(WeightType type) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.packed.reset();
  state_.packings = 0;
  state_.weight_type = type;
}

WeightType RnnLayer::weight_type() const { return Now().weight_type; }

int64_t RnnLayer::packings() const { return Now().packings; }

}  // namespace internal

// ---- Python

namespace {

using internal::RnnLayer;
using Self = c10::intrusive_ptr<RnnLayer>;
using OptionalTensor = std::optional<Tensor>;

/// RnnSteps as a class of Python.
struct PythonSteps final : torch::CustomClassHolder {
  explicit PythonSteps(RnnSteps steps_) : steps(std::move(steps_)) {}

  std::tuple<Tensor, Tensor> Step(const Tensor& x, const OptionalTensor& h,
                                  const OptionalTensor& c) const {
    return steps.step(x, OrUndefined(h), OrUndefined(c));
  }

  RnnSteps steps;
};

c10::Dict<std::string, std::vector<int64_t>> ParameterSizes(const Self& self, int64_t inputs,
                                                            int64_t hidden, int64_t projected,
                                                            int64_t heads) {
  const RnnShape shape = {
      .inputs = inputs, .hidden = hidden, .projected = projected, .heads = heads};
  c10::Dict<std::string, std::vector<int64_t>> sizes;
  for (const ModuleParam& param : self->params(projected > 0)) {
    sizes.insert(param.name, SizesOf(param, self->cell(), shape));
  }
  return sizes;
}

std::tuple<Tensor, Tensor, Tensor> Forward(
    const Self& self, const std::vector<Tensor>& params, bool training, bool computed,
    const Tensor& x, const OptionalTensor& h0, const OptionalTensor& c0,
    const OptionalTensor& h_reset, const OptionalTensor& c_reset, const OptionalTensor& lengths,
    const OptionalTensor& resets, bool reverse, double eps, bool checkpoint) {
  RnnTensors inputs;
  inputs.x = x;
  inputs.h0 = OrUndefined(h0);
  inputs.c0 = OrUndefined(c0);
  inputs.h_reset = OrUndefined(h_reset);
  inputs.c_reset = OrUndefined(c_reset);
  inputs.lengths = OrUndefined(lengths);
  inputs.resets = OrUndefined(resets);
  const RnnOutputs outputs =
      self->Forward(params, {training, computed}, inputs,
                    {.reverse = reverse, .eps = eps, .checkpoint = checkpoint});
  return {outputs.y, outputs.h_n, outputs.c_n};
}

std::tuple<Tensor, Tensor> Step(const Self& self, const std::vector<Tensor>& params, bool training,
                                bool computed, const Tensor& x, const OptionalTensor& h0,
                                const OptionalTensor& c0, double eps) {
  RnnTensors inputs;
  inputs.x = x;
  inputs.h0 = OrUndefined(h0);
  inputs.c0 = OrUndefined(c0);
  return self->Step(params, {training, computed}, inputs, {.eps = eps});
}

c10::intrusive_ptr<PythonSteps> Steps(const Self& self, const std::vector<Tensor>& params,
                                      bool training, bool computed, double eps,
                                      const c10::Dict<std::string, Tensor>& sources) {
  NamedTensors named;
  for (const auto& entry : sources) named.emplace_back(entry.key(), entry.value());
  return c10::make_intrusive<PythonSteps>(self->Steps(params, {training, computed}, eps, named));
}

/// The arguments of RnnLayer's constructor. Python copies and pickles an RnnLayer as these.
using Config = std::tuple<std::string, bool, std::string, std::string>;

Self MakeLayer(const std::string& cell, bool bias, const std::string& suffix,
               const std::string& module) {
  return c10::make_intrusive<RnnLayer>(CellOf("RnnLayer", cell), bias, suffix, module);
}

/// Folds biases for compilers and tracers, which record operators but not calls of objects. Returns
/// bias, and for a GRU also bias_hn.
std::vector<Tensor> FoldBiasesForPython(std::string_view cell, const Tensor& bias_ih,
                                        const Tensor& bias_hh) {
  RnnTensors tensors;
  tensors.bias = bias_ih;
  FoldBiases(CellOf("rnn_fold_biases", cell), bias_hh, tensors);
  if (!tensors.bias_hn.defined()) return {tensors.bias};
  return {tensors.bias, tensors.bias_hn.clone()};  // an operator without aliases returns no view
}

}  // namespace

void RegisterLayer(torch::Library& library) {
  library.class_<PythonSteps>("RnnSteps")
      .def("step",
           [](const c10::intrusive_ptr<PythonSteps>& self, const Tensor& x, const OptionalTensor& h,
              const OptionalTensor& c) { return self->Step(x, h, c); });
  library.class_<RnnLayer>("RnnLayer")
      .def(torch::init(MakeLayer))
      .def("sizes", ParameterSizes)
      .def("forward", Forward)
      .def("step", Step)
      .def("steps", Steps)
      .def("drop", [](const Self& self) { self->Drop(); })
      .def("freeze", [](const Self& self) { self->Freeze(); })
      .def("unfreeze", [](const Self& self) { self->Unfreeze(); })
      .def("is_frozen", [](const Self& self) { return self->is_frozen(); })
      .def("set_weight_type",
           [](const Self& self, const std::string& name) {
             self->SetWeightType(WeightTypeOf(self->module().c_str(), name));
           })
      .def("weight_type",
           [](const Self& self) { return std::string(weight_type_name(self->weight_type())); })
      .def("packings", [](const Self& self) { return self->packings(); })
      .def_pickle(
          [](const Self& self) -> Config {
            return {cell_name(self->cell()), self->bias(), self->suffix(), self->module()};
          },
          [](const Config& config) { return std::apply(MakeLayer, config); });
  library.def("rnn_fold_biases(str cell, Tensor bias_ih, Tensor bias_hh) -> Tensor[]",
              FoldBiasesForPython);
}

}  // namespace planish
