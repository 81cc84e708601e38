#include "torch/rnn/call.h"

#include <ATen/ops/unsqueeze.h>

#include <string>

namespace planish {

using at::Tensor;
using internal::CellRecipe;

namespace {

/// Returns the core's table entry of a parameter for I = H = 1, whose size counts gates or units.
/// It has a projection if the cell can.
internal::Param<const float> ParamOf(size_t field, const CellRecipe& recipe) {
  constexpr RnnShape kOne = {.inputs = 1, .hidden = 1, .projected = 1};
  return internal::ParamsOf<const float>(recipe, kOne)[field - kFirstParam];
}

bool IsParam(size_t field) { return field >= kFirstParam && field < kH0; }

/// Returns the field whose type and device the others must have: x, or weight_ih if there is none.
size_t Model(const Call& call) { return call.tensors.x.defined() ? kX : kFirstParam; }

/// Checks one of the tensors, if it is given.
void CheckTensor(const char* function, size_t field, const Call& call, const Sizes& sizes) {
  const Tensor& t = call.tensor(field);
  if (!t.defined()) return;
  const char* name = kFields[field].name;
  TORCH_CHECK_VALUE(Takes(field, call.recipe()), "[", function, "] ", name,
                    " must be left out for ", cell_name(call.cell), ", got ", t.sym_sizes());
  CheckSizes(function, name, t, SizesOf(field, call.recipe(), sizes));
  if (field < kDifferentiables) CheckLike(function, name, t, call);
}

}  // namespace

inline namespace PLANISH_API {

const char* cell_name(Cell cell) { return internal::NameOf(cell); }

const char* weight_type_name(WeightType type) {
  const auto i = static_cast<size_t>(type);
  if (i >= internal::kWeightTypes.size()) {
    throw Error("weight_type must be a WeightType, got " + std::to_string(i));
  }
  return internal::kWeightTypes[i].name;
}

}  // namespace PLANISH_API

Cell CellOf(const char* function, std::string_view name) {
  return FindNamed(function, "cell", internal::kNamedCells, name).cell;
}

WeightType WeightTypeOf(const char* function, std::string_view name) {
  return FindNamed(function, "weight_type", internal::kWeightTypes, name).type;
}

bool Takes(size_t field, const CellRecipe& recipe) {
  if (IsParam(field)) return ParamOf(field, recipe).taken;
  return (field != kC0 && field != kCReset) || recipe.is_lstm();
}

SymSizes SizesOf(size_t field, const CellRecipe& recipe, const Sizes& sizes) {
  const auto& [time, batch, inputs, hidden, outputs, heads, projects] = sizes;
  if (field == kWeightHr) return {outputs, hidden};
  if (IsParam(field)) {
    SymSizes param = {hidden * ParamOf(field, recipe).size};
    if (kFields[field].member == &RnnTensors::weight_ih) param.push_back(inputs);
    if (kFields[field].member == &RnnTensors::weight_hh) param.push_back(outputs / heads);
    return param;
  }
  switch (field) {
    case kX:
      return {time, batch, inputs};
    case kH0:
      return {batch, outputs};
    case kC0:
      return {batch, hidden * recipe.cell_parts()};
    case kHReset:
      return {outputs};
    case kLengths:
      return {batch};
    case kResets:
      return {time, batch};
    default:
      return {hidden * recipe.cell_parts()};  // c after a reset
  }
}

void CheckSizes(const char* function, const char* name, const Tensor& t, const SymSizes& sizes) {
  TORCH_CHECK_VALUE(t.sym_sizes() == c10::SymIntArrayRef(sizes), "[", function, "] ", name,
                    " must have ", c10::SymIntArrayRef(sizes), ", got ", t.sym_sizes());
}

void CheckLike(const char* function, const char* name, const Tensor& t, const Call& call) {
  const Tensor& model = call.tensor(Model(call));
  TORCH_CHECK_VALUE(t.scalar_type() == model.scalar_type() && t.device() == model.device(), "[",
                    function, "] ", name, " must have ", kFields[Model(call)].name,
                    "'s type and device, ", model.scalar_type(), " on ", model.device(), ", got ",
                    t.scalar_type(), " on ", t.device());
}

Sizes WeightSizes(const CellRecipe& recipe, const RnnTensors& tensors) {
  const int64_t gates = recipe.gates();
  const c10::SymInt rows = tensors.weight_hh.sym_size(0), columns = tensors.weight_hh.sym_size(1);
  Sizes sizes = {.time = 0,
                 .batch = 0,
                 .inputs = tensors.weight_ih.sym_size(1),
                 .hidden = columns,
                 .outputs = columns};
  if (tensors.weight_hr.defined()) {
    sizes.hidden = tensors.weight_hr.sym_size(1);
    sizes.projects = true;
  } else if (rows != columns * gates && rows > 0 && rows % (columns * gates) == 0) {
    sizes.hidden = sizes.outputs = rows / gates;
    sizes.heads = (sizes.hidden / columns).guard_int(__FILE__, __LINE__);
  }
  return sizes;
}

Sizes CheckParams(const char* function, const Call& call) {
  const Tensor& model = call.tensor(Model(call));
  TORCH_CHECK_VALUE(IsNormType(model.scalar_type()), "[", function, "] ", kFields[Model(call)].name,
                    " must be float, double, bfloat16 or half, got ", model.scalar_type());
  for (const size_t field : {kFirstParam, kFirstParam + 1, kWeightHr}) {
    const Tensor& weight = call.tensor(field);
    if (field == kWeightHr && !weight.defined()) continue;
    TORCH_CHECK_VALUE(weight.dim() == 2 && weight.sym_size(1) >= 1, "[", function, "] ",
                      kFields[field].name, " must have 2 dimensions and at least one column, got ",
                      weight.sym_sizes());
  }
  const Sizes sizes = WeightSizes(call.recipe(), call.tensors);
  for (size_t field = kFirstParam; field < kH0; ++field) CheckTensor(function, field, call, sizes);
  TORCH_CHECK_VALUE(!sizes.projects || sizes.outputs < sizes.hidden, "[", function,
                    "] weight_hr must have fewer rows than columns, got ",
                    call.tensors.weight_hr.sym_sizes());
  return sizes;
}

Sizes CheckCall(const char* function, const Call& call) {
  const RnnTensors& tensors = call.tensors;
  const Tensor& x = tensors.x;
  TORCH_CHECK_VALUE(x.dim() == 3, "[", function, "] x must have 3 dimensions, [T, B, I], got ",
                    x.sym_sizes());
  Sizes sizes = CheckParams(function, call);
  sizes.time = x.sym_size(0);
  sizes.batch = x.sym_size(1);
  CheckTensor(function, kX, call, sizes);
  for (size_t field = kH0; field < kTensors; ++field) CheckTensor(function, field, call, sizes);
  const auto check = [&](const char* name, const Tensor& t, at::ScalarType type) {
    TORCH_CHECK_VALUE(!t.defined() || (t.scalar_type() == type && t.device() == x.device()), "[",
                      function, "] ", name, " must be ", type, " on ", x.device(), ", got ",
                      t.scalar_type(), " on ", t.device());
  };
  check("lengths", tensors.lengths, at::kLong);
  check("resets", tensors.resets, at::kBool);
  for (const size_t field : {kHReset, kCReset}) {
    TORCH_CHECK_VALUE(tensors.resets.defined() || !call.tensor(field).defined(), "[", function,
                      "] ", kFields[field].name, " must be left out without resets, got ",
                      call.tensor(field).sym_sizes());
  }
  CheckEps(function, call.settings.eps);
  return sizes;
}

void CheckHasSteps(const char* function, const Call& call) {
  TORCH_CHECK_VALUE(call.recipe().over == internal::Over::kRow, "[", function,
                    "] cell must be a cell without batch norm, got ", cell_name(call.cell));
}

Call CheckStep(const char* function, const Call& call) {
  const Tensor& x = call.tensors.x;
  CheckHasSteps(function, call);
  TORCH_CHECK_VALUE(x.dim() == 2, "[", function, "] x must have 2 dimensions, [B, I], got ",
                    x.sym_sizes());
  Call layer{call.cell, call.tensors, call.settings};
  layer.tensors.x = x.unsqueeze(0);
  CheckCall(function, layer);
  return layer;
}

void CheckGiven(const char* function, const RnnTensors& tensors, size_t first) {
  for (size_t field = first; field < kFirstParam + 2; ++field) {
    TORCH_CHECK_VALUE((tensors.*kFields[field].member).defined(), "[", function, "] ",
                      kFields[field].name, " must be a tensor, got none");
  }
}

RnnTensors Computed(const RnnTensors& tensors, bool params) {
  RnnTensors computed;
  for (size_t i = 0; i < kTensors; ++i) {
    if (!params && IsParam(i)) continue;
    const Tensor& t = tensors.*kFields[i].member;
    computed.*kFields[i].member = Contiguous(i < kDifferentiables ? Wide(t) : t);
  }
  return computed;
}

RnnTensors WideTensors(const RnnTensors& tensors) {
  RnnTensors wide = tensors;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    Tensor& t = wide.*kFields[i].member;
    t = Wide(t);
  }
  return wide;
}

}  // namespace planish
