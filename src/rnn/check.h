#ifndef PLANISH_SRC_RNN_CHECK_H_
#define PLANISH_SRC_RNN_CHECK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "planish/rnn.h"
#include "src/base/check.h"
#include "src/rnn/cell.h"

// Argument checks of RnnForward, RnnBackward and RnnStep for CPU and GPU.
namespace planish::internal {

/// Throws unless each size is at least its minimum.
inline void CheckRnnSizes(const char* function, const RnnShape& shape) {
  const auto at_least = [&](const char* name, int64_t size, int64_t minimum) {
    if (size < minimum) {
      Fail(function, name, "be at least " + std::to_string(minimum), std::to_string(size));
    }
  };
  at_least("time", shape.time, 0);
  at_least("batch", shape.batch, 0);
  at_least("inputs", shape.inputs, 1);
  at_least("hidden", shape.hidden, 1);
}

/// Collects the arrays of a call and checks them against each other.
class Arrays {
 public:
  explicit Arrays(const char* function) : function_(function) {}

  template <class T>
  void Input(const char* name, const T* data, int64_t size) {
    inputs_.Add(VectorArray(name, data, size));
  }
  template <class T>
  void NeededInput(const char* name, const T* data, int64_t size) {
    CheckNotNull(function_, {VectorArray(name, data, size)});
    Input(name, data, size);
  }
  template <class T>
  void Output(const char* name, const T* data, int64_t size, const T* may_be = nullptr) {
    Array array = VectorArray(name, data, size);
    array.may_be = may_be;
    outputs_.Add(array);
  }
  template <class T>
  void NeededOutput(const char* name, const T* data, int64_t size, const T* may_be = nullptr) {
    CheckNotNull(function_, {VectorArray(name, data, size)});
    Output(name, data, size, may_be);
  }
  void MustBeNull(const char* name, const void* data, const char* reason) const {
    if (data == nullptr) return;
    Fail(function_, name, std::string("be null ") + reason, "an address");
  }

  void CheckAlignedAndDisjoint() const {
    for (const Array& input : inputs_) CheckAligned(function_, {input});
    for (const Array* output = outputs_.begin(); output != outputs_.end(); ++output) {
      CheckAligned(function_, {*output});
      for (const Array& input : inputs_) CheckDisjoint(function_, {*output}, {input});
      for (const Array* other = outputs_.begin(); other != output; ++other) {
        CheckDisjoint(function_, {*output}, {*other});
      }
    }
  }

 private:
  /// A list of the given arrays. It allocates no memory, because RnnStep must not.
  class List {
   public:
    void Add(const Array& array) {
      if (array.data != nullptr) arrays_.at(size_++) = array;
    }
    const Array* begin() const { return arrays_.data(); }
    const Array* end() const { return arrays_.data() + size_; }

   private:
    std::array<Array, 2 * kParams> arrays_{};
    size_t size_ = 0;
  };

  const char* function_;
  List inputs_, outputs_;
};

inline constexpr const char* kNoCell = "for a cell without c";
inline constexpr const char* kNotTaken = "for a cell without it";
inline constexpr const char* kNoResets = "without resets";

// Names of the parameters' gradients, in the order of ParamsOf.
inline constexpr const char* kGradientNames[kParams] = {
    "dweight_ih",    "dweight_hh",  "dbias",      "dbias_hn", "dln_ih_weight", "dln_ih_bias",
    "dln_hh_weight", "dln_hh_bias", "dln_weight", "dln_bias", "dln_c_weight",  "dln_c_bias"};

template <class T>
void AddParams(const CellRecipe& recipe, const RnnShape& shape, const RnnParams<const T>& params,
               Arrays& arrays) {
  for (const auto& param : ParamsOf<const T>(recipe, shape)) {
    const T* data = params.*param.member;
    if (!param.taken) arrays.MustBeNull(param.name, data, kNotTaken);
    arrays.Input(param.name, data, param.size);
  }
  arrays.NeededInput("weight_ih", params.weight_ih, recipe.gates() * shape.hidden * shape.inputs);
  arrays.NeededInput("weight_hh", params.weight_hh, recipe.gates() * shape.hidden * shape.hidden);
}

/// Adds all inputs except the parameters.
template <class T>
void AddInputs(const CellRecipe& recipe, const RnnInputs<T>& inputs, Arrays& arrays) {
  const RnnShape& shape = inputs.shape;
  const int64_t steps = shape.time * shape.batch, states = shape.batch * shape.hidden;
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("c0", inputs.c0, kNoCell);
    arrays.MustBeNull("c_reset", inputs.c_reset, kNoCell);
  }
  if (inputs.resets == nullptr && steps > 0) {
    arrays.MustBeNull("h_reset", inputs.h_reset, kNoResets);
    arrays.MustBeNull("c_reset", inputs.c_reset, kNoResets);
  }
  arrays.NeededInput("x", inputs.x, steps * shape.inputs);
  arrays.Input("h0", inputs.h0, states);
  arrays.Input("c0", inputs.c0, states);
  arrays.Input("lengths", inputs.lengths, shape.batch);
  arrays.Input("resets", inputs.resets, steps);
  arrays.Input("h_reset", inputs.h_reset, shape.hidden);
  arrays.Input("c_reset", inputs.c_reset, shape.hidden);
}

/// Adds the outputs of RnnForward except `saved`.
template <class T>
void AddForwardOutputs(const CellRecipe& recipe, const RnnForwardArgs<T>& args, Arrays& arrays) {
  const RnnShape& shape = args.inputs.shape;
  const int64_t states = shape.batch * shape.hidden;
  arrays.NeededOutput("y", args.y, shape.time * states);
  if (!recipe.is_lstm()) arrays.MustBeNull("c_n", args.c_n, kNoCell);
  arrays.Output("h_n", args.h_n, states);
  arrays.Output("c_n", args.c_n, states);
}

/// Adds the parameters' gradients that are given.
template <class T>
void AddGradients(const CellRecipe& recipe, const RnnShape& shape, const RnnParams<T>& dparams,
                  Arrays& arrays) {
  const auto params = ParamsOf<T>(recipe, shape);
  for (size_t i = 0; i < params.size(); ++i) {
    const T* data = dparams.*params[i].member;
    if (!params[i].taken) arrays.MustBeNull(kGradientNames[i], data, kNotTaken);
    arrays.Output(kGradientNames[i], data, params[i].size);
  }
}

/// Adds the arrays of RnnBackward except the parameters, y and `saved`.
template <class T>
void AddBackward(const CellRecipe& recipe, const RnnBackwardArgs<T>& args, Arrays& arrays) {
  const RnnShape& shape = args.inputs.shape;
  const int64_t states = shape.batch * shape.hidden;
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("dc_n", args.dc_n, kNoCell);
    arrays.MustBeNull("dc0", args.dc0, kNoCell);
    arrays.MustBeNull("dc_reset", args.dc_reset, kNoCell);
  }
  arrays.Input("dy", args.dy, shape.time * states);
  arrays.Input("dh_n", args.dh_n, states);
  arrays.Input("dc_n", args.dc_n, states);
  arrays.Output("dx", args.dx, shape.time * shape.batch * shape.inputs);
  AddGradients(recipe, shape, args.dparams, arrays);
  arrays.Output("dh0", args.dh0, states);
  arrays.Output("dc0", args.dc0, states);
  arrays.Output("dh_reset", args.dh_reset, shape.hidden);
  arrays.Output("dc_reset", args.dc_reset, shape.hidden);
}

/// Adds the input of RnnStep; AddStepStates adds its states.
template <class T>
void AddStepInput(const CellRecipe& recipe, const RnnStepArgs<T>& args, Arrays& arrays) {
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("c", args.c, kNoCell);
    arrays.MustBeNull("c_next", args.c_next, kNoCell);
  }
  arrays.NeededInput("x", args.x, args.batch * args.inputs);
}
template <class T>
void AddStepStates(const RnnStepArgs<T>& args, Arrays& arrays) {
  const int64_t states = args.batch * args.hidden;
  arrays.Input("h", args.h, states);
  arrays.Input("c", args.c, states);
  arrays.NeededOutput("h_next", args.h_next, states, args.h);
  arrays.Output("c_next", args.c_next, states, args.c);
}

/// Returns a step as a layer with T = 1.
template <class T>
RnnForwardArgs<T> AsForward(const RnnStepArgs<T>& args) {
  RnnForwardArgs<T> forward;
  forward.inputs.shape = {1, args.batch, args.inputs, args.hidden};
  forward.inputs.x = args.x;
  forward.inputs.params = args.params;
  forward.inputs.h0 = args.h;
  forward.inputs.c0 = args.c;
  forward.y = args.h_next;
  forward.c_n = args.c_next;
  return forward;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CHECK_H_
