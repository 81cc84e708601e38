#ifndef PLANISH_SRC_RNN_ARGUMENTS_H_
#define PLANISH_SRC_RNN_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "planish/rnn.h"
#include "src/base/check.h"
#include "src/rnn/cell.h"

// Array arguments of RnnForward, RnnBackward and RnnStep: VisitArguments of src/base/check.h.
// Parameters and inputs are separate structs.
namespace planish::internal {

/// Returns whether cell states can be given.
constexpr Presence CellStatePresence(const CellRecipe& recipe) {
  return NullUnless(recipe.is_lstm(), "for a cell without c");
}

/// Names of the parameters' gradients, in the order of ParamsOf.
inline constexpr const char* kGradientNames[kParams] = {
    "dweight_ih",   "dweight_hh",    "dbias",       "dbias_hn",   "dln_ih_weight",
    "dln_ih_bias",  "dln_hh_weight", "dln_hh_bias", "dln_weight", "dln_bias",
    "dln_c_weight", "dln_c_bias",    "dweight_hr"};

/// Visits parameters, or their gradients if E is not const.
template <class E, class F>
constexpr void VisitArguments(const RnnParams<E>&, const CellRecipe& recipe, const RnnShape& shape,
                              F&& f) {
  using P = RnnParams<E>;
  constexpr bool kInputs = std::is_const_v<E>;
  const auto params = ParamsOf<E>(recipe, shape);
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& [name, member, taken, size] = params[i];
    const bool projection = member == &P::weight_hr;
    const bool weight = member == &P::weight_ih || member == &P::weight_hh || projection;
    const char* reason = projection ? "without projected" : "for a cell without it";
    f(Argument{kInputs ? name : kGradientNames[i],
               member,
               {1, size},
               {.required = kInputs && weight && taken, .null_reason = taken ? nullptr : reason}});
  }
}

template <class T, class F>
constexpr void VisitArguments(const RnnInputs<T>& inputs, const CellRecipe& recipe, F&& f) {
  using A = RnnInputs<T>;
  const RnnShape& shape = inputs.shape;
  const int64_t steps = shape.time * shape.batch;
  const int64_t outputs = shape.outputs();
  const Presence c = CellStatePresence(recipe);
  const Presence reset = NullUnless(inputs.resets || steps == 0, "without resets");
  f(Argument{"x", &A::x, {1, steps * shape.inputs}, kRequired});
  f(Argument{"h0", &A::h0, {1, shape.batch * outputs}});
  f(Argument{"c0", &A::c0, {1, shape.batch * shape.hidden * recipe.cell_parts()}, c});
  f(Argument{"lengths", &A::lengths, {1, shape.batch}});
  f(Argument{"resets", &A::resets, {1, steps}});
  f(Argument{"h_reset", &A::h_reset, {1, outputs}, reset});
  f(Argument{"c_reset",
             &A::c_reset,
             {1, shape.hidden * recipe.cell_parts()},
             recipe.is_lstm() ? reset : c});
}

/// Visits all arrays except the inputs. `saved` is the number of elements in args.saved.
template <class T, class F>
constexpr void VisitArguments(const RnnForwardArgs<T>& args, const CellRecipe& recipe,
                              int64_t saved, F&& f) {
  using A = RnnForwardArgs<T>;
  const RnnShape& shape = args.inputs.shape;
  const Extent h = {1, shape.batch * shape.outputs()};
  const Extent c = {1, shape.batch * shape.hidden * recipe.cell_parts()};
  f(Argument{"y", &A::y, {1, shape.time * h.cols}, kRequired});
  f(Argument{"h_n", &A::h_n, h});
  f(Argument{"c_n", &A::c_n, c, CellStatePresence(recipe)});
  f(Argument{"saved", &A::saved, {1, saved}});
}

/// Visits all arrays except the inputs and the parameters' gradients.
template <class T, class F>
constexpr void VisitArguments(const RnnBackwardArgs<T>& args, const CellRecipe& recipe,
                              int64_t saved, F&& f) {
  using A = RnnBackwardArgs<T>;
  const RnnShape& shape = args.inputs.shape;
  const Extent h = {1, shape.batch * shape.outputs()};
  const Extent cell = {1, shape.batch * shape.hidden * recipe.cell_parts()};
  const Extent outputs = {1, shape.time * h.cols};
  const Presence c = CellStatePresence(recipe);
  f(Argument{"y", &A::y, outputs, kRequired});
  f(Argument{"saved", &A::saved, {1, saved}, kRequired});
  f(Argument{"dy", &A::dy, outputs});
  f(Argument{"dh_n", &A::dh_n, h});
  f(Argument{"dc_n", &A::dc_n, cell, c});
  f(Argument{"dx", &A::dx, {1, shape.time * shape.batch * shape.inputs}});
  f(Argument{"dh0", &A::dh0, h});
  f(Argument{"dc0", &A::dc0, cell, c});
  f(Argument{"dh_reset", &A::dh_reset, {1, shape.outputs()}});
  f(Argument{"dc_reset", &A::dc_reset, {1, shape.hidden * recipe.cell_parts()}, c});
}

/// Returns the shape of a step, a layer with T = 1.
template <class T>
constexpr RnnShape ShapeOf(const RnnStepArgs<T>& args) {
  return {1, args.batch, args.inputs, args.hidden, args.projected, args.heads};
}

/// Visits all arrays except the parameters.
template <class T, class F>
constexpr void VisitArguments(const RnnStepArgs<T>& args, const CellRecipe& recipe, F&& f) {
  using A = RnnStepArgs<T>;
  const RnnShape shape = ShapeOf(args);
  const Extent h = {1, shape.batch * shape.outputs()};
  const Extent cell = {1, shape.batch * shape.hidden * recipe.cell_parts()};
  const Presence c = CellStatePresence(recipe);
  f(Argument{"x", &A::x, {1, args.batch * args.inputs}, kRequired});
  f(Argument{"h", &A::h, h});
  f(Argument{"c", &A::c, cell, c});
  f(Argument{"h_next", &A::h_next, h, kRequired}.InPlaceOf(args.h));
  f(Argument{"c_next", &A::c_next, cell, c}.InPlaceOf(args.c));
}

/// Returns a step as a layer with T = 1.
template <class T>
RnnForwardArgs<T> AsForward(const RnnStepArgs<T>& args) {
  RnnForwardArgs<T> forward;
  forward.inputs.shape = ShapeOf(args);
  forward.inputs.x = args.x;
  forward.inputs.params = args.params;
  forward.inputs.h0 = args.h;
  forward.inputs.c0 = args.c;
  forward.y = args.h_next;
  forward.c_n = args.c_next;
  return forward;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_ARGUMENTS_H_
