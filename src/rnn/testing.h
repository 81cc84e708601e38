#ifndef PLANISH_SRC_RNN_TESTING_H_
#define PLANISH_SRC_RNN_TESTING_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "src/norm/testing.h"
#include "src/rnn/cell.h"
#include "src/rnn/kinds_testing.h"
#include "src/rnn/reference.h"

// Tools for tests of recurrent layers: layers with random elements, the outputs of both directions
// in one struct, and the calls that compute them.
namespace planish::tests {

using internal::NameOf;

/// The differentiable arrays, by their index in internal::kReferenceArrays.
inline constexpr size_t kArrays = internal::kReferenceArrays<double>.size();
inline constexpr size_t kX = 0, kH0 = 1, kC0 = 2, kHReset = 3, kCReset = 4, kFirstParam = 5;

inline const char* ArrayName(size_t array) {
  return internal::kReferenceArrays<double>[array].name;
}

/// The optional inputs of a layer that a problem has.
struct Given {
  bool states = true;
  bool lengths = false;
  bool resets = false;
  bool reverse = false;
};

/// A layer with random elements, and the weights of a loss.
template <class T>
struct RnnProblem {
  RnnProblem(Cell cell, RnnShape shape, Given given = {}, double hidden_gain = 1,
             uint32_t seed = 1) {
    std::mt19937 random(seed);
    layer.cell = cell;
    layer.shape = shape;
    layer.reverse = given.reverse;
    const internal::CellRecipe recipe = internal::RecipeOf(cell);
    const int64_t states = shape.batch * shape.outputs(),
                  cells = shape.batch * shape.hidden * recipe.cell_parts();
    layer.x = Normal<T>(shape.time * shape.batch * shape.inputs, random);
    if (given.states) layer.h0 = Normal<T>(states, random);
    if (given.states && recipe.is_lstm()) layer.c0 = Normal<T>(cells, random);
    for (int64_t b = 0; given.lengths && b < shape.batch; ++b) {
      layer.lengths.push_back(b == 1 ? shape.time : 1 + random() % shape.time);
    }
    if (given.resets) {
      for (int64_t i = 0; i < shape.time * shape.batch; ++i) {
        layer.resets.push_back(random() % 3 == 0 ? 255 : 0);
      }
      layer.h_reset = Normal<T>(shape.outputs(), random);
      if (recipe.is_lstm()) layer.c_reset = Normal<T>(shape.hidden * recipe.cell_parts(), random);
    }
    const auto params = internal::ParamsOf<T>(recipe, shape);
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i].taken) continue;
      const std::string name = params[i].name;
      double mean = 0, deviation = 0.3;
      if (name == "weight_ih") deviation = 1 / std::sqrt(static_cast<double>(shape.inputs));
      if (name == "weight_hh") {
        const int64_t terms = shape.outputs() / shape.heads;
        deviation = hidden_gain / std::sqrt(static_cast<double>(terms));
      }
      if (name == "weight_hr") deviation = 1 / std::sqrt(static_cast<double>(shape.hidden));
      if (name.ends_with("_weight")) mean = 1;
      if (name == "ln_hh_weight") mean = hidden_gain, deviation *= hidden_gain;
      layer.*internal::kReferenceArrays<T>[kFirstParam + i].member =
          Normal<T>(params[i].size, random, mean, deviation);
    }
    loss.y = Normal<T>(shape.time * states, random);
    loss.h = Normal<T>(states, random);
    if (recipe.is_lstm()) loss.c = Normal<T>(cells, random);
  }

  RnnInputs<T> Inputs() const {
    RnnInputs<T> in;
    in.shape = layer.shape;
    in.x = OrNull(layer.x);
    in.h0 = OrNull(layer.h0);
    in.c0 = OrNull(layer.c0);
    in.h_reset = OrNull(layer.h_reset);
    in.c_reset = OrNull(layer.c_reset);
    in.lengths = OrNull(layer.lengths);
    in.resets = OrNull(layer.resets);
    in.reverse = layer.reverse;
    const auto params = internal::ParamsOf<const T>(internal::RecipeOf(layer.cell), layer.shape);
    for (size_t i = 0; i < params.size(); ++i) {
      in.params.*params[i].member =
          OrNull(layer.*internal::kReferenceArrays<T>[kFirstParam + i].member);
    }
    return in;
  }

  RnnOptions<T> Options(const ParallelFor& parallel_for = {}) const {
    RnnOptions<T> options;
    options.eps = layer.eps;
    options.parallel_for = parallel_for;
    return options;
  }

  /// Return the layer and its loss in the type of the reference.
  template <class Real = double>
  internal::ReferenceRnn<Real> Reference() const {
    internal::ReferenceRnn<Real> to;
    to.cell = layer.cell;
    to.shape = layer.shape;
    to.eps = layer.eps;
    to.reverse = layer.reverse;
    to.lengths = layer.lengths;
    to.resets = layer.resets;
    for (size_t a = 0; a < kArrays; ++a) {
      const std::vector<T>& from = layer.*internal::kReferenceArrays<T>[a].member;
      (to.*internal::kReferenceArrays<Real>[a].member).assign(from.begin(), from.end());
    }
    return to;
  }
  template <class Real = double>
  internal::ReferenceRnnOutputs<Real> Loss() const {
    return {{loss.y.begin(), loss.y.end()},
            {loss.h.begin(), loss.h.end()},
            {loss.c.begin(), loss.c.end()}};
  }

  /// Returns the size of an array, given or not; 0 if the cell does not have it.
  int64_t SizeOf(size_t array) const {
    const internal::CellRecipe recipe = internal::RecipeOf(layer.cell);
    const RnnShape& s = layer.shape;
    const int64_t lstm = recipe.cell_parts(), reset = layer.h_reset.empty() ? 0 : 1;
    switch (array) {
      case kX:
        return s.time * s.batch * s.inputs;
      case kH0:
        return s.batch * s.outputs();
      case kC0:
        return lstm * s.batch * s.hidden;
      case kHReset:
        return reset * s.outputs();
      case kCReset:
        return lstm * reset * s.hidden;
      default: {
        const auto param = internal::ParamsOf<T>(recipe, s)[array - kFirstParam];
        return param.taken ? param.size : 0;
      }
    }
  }

  internal::ReferenceRnn<T> layer;
  internal::ReferenceRnnOutputs<T> loss;
};

/// All outputs of both directions.
template <class T>
struct RnnResult {
  std::vector<T> y, h, c, saved;
  std::array<std::vector<T>, kArrays> gradients;  ///< empty if the layer does not have the array

  /// Returns the name of an output whose bits differ, or "". Ignores `saved`.
  std::string DiffersIn(const RnnResult& other) const {
    if (!SameBits(y, other.y)) return "y";
    if (!SameBits(h, other.h)) return "h_n";
    if (!SameBits(c, other.c)) return "c_n";
    for (size_t a = 0; a < kArrays; ++a) {
      if (!SameBits(gradients[a], other.gradients[a])) return std::string("d") + ArrayName(a);
    }
    return "";
  }
};

/// Returns arrays for the results, filled with a value that shows if it is not overwritten.
template <class T>
RnnResult<T> Unwritten(const RnnProblem<T>& p, bool checkpoint = false) {
  const RnnShape& s = p.layer.shape;
  RnnResult<T> out;
  out.y.assign(static_cast<size_t>(s.time * s.batch * s.outputs()), Unset<T>());
  out.h.assign(static_cast<size_t>(s.batch * s.outputs()), Unset<T>());
  out.c.assign(p.loss.c.size(), Unset<T>());
  out.saved.assign(static_cast<size_t>(RnnSavedSize<T>(p.layer.cell, s, checkpoint)), Unset<T>());
  for (size_t a = 0; a < kArrays; ++a) {
    out.gradients[a].assign(static_cast<size_t>(p.SizeOf(a)), Unset<T>());
  }
  return out;
}

/// Returns the array, or null if it is empty.
template <class T>
T* OutOrNull(std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

template <class T>
RnnForwardArgs<T> ForwardArgs(const RnnProblem<T>& p, RnnResult<T>& out) {
  return {p.Inputs(), OutOrNull(out.y), OutOrNull(out.h), OutOrNull(out.c), OutOrNull(out.saved)};
}

template <class T>
RnnBackwardArgs<T> BackwardArgs(const RnnProblem<T>& p, RnnResult<T>& out) {
  RnnBackwardArgs<T> args;
  args.inputs = p.Inputs();
  args.y = OrNull(out.y);
  args.saved = OrNull(out.saved);
  args.dy = OrNull(p.loss.y);
  args.dh_n = OrNull(p.loss.h);
  args.dc_n = OrNull(p.loss.c);
  args.dx = OutOrNull(out.gradients[kX]);
  args.dh0 = OutOrNull(out.gradients[kH0]);
  args.dc0 = OutOrNull(out.gradients[kC0]);
  args.dh_reset = OutOrNull(out.gradients[kHReset]);
  args.dc_reset = OutOrNull(out.gradients[kCReset]);
  const auto params = internal::ParamsOf<T>(internal::RecipeOf(p.layer.cell), p.layer.shape);
  for (size_t i = 0; i < params.size(); ++i) {
    args.dparams.*params[i].member = OutOrNull(out.gradients[kFirstParam + i]);
  }
  return args;
}

/// Computes forward, then backward.
template <class T>
RnnResult<T> Apply(const RnnProblem<T>& p, const RnnOptions<T>& options) {
  RnnResult<T> out = Unwritten(p, options.checkpoint);
  RnnForward<T>(p.layer.cell, ForwardArgs(p, out), options);
  RnnBackward<T>(p.layer.cell, BackwardArgs(p, out), options);
  return out;
}

/// Returns the largest difference, relative to the largest element, or to `least` if that is
/// larger.
template <class T, class Real = double>
double Difference(const std::vector<T>& values, const std::vector<Real>& exact,
                  double least = 0.1) {
  if (values.size() != exact.size()) return std::numeric_limits<double>::infinity();
  Real difference = 0, largest = static_cast<Real>(least);
  for (size_t i = 0; i < values.size(); ++i) {
    const Real d = std::abs(static_cast<Real>(values[i]) - exact[i]);
    if (!(d <= difference)) difference = d;  // NaN stays
    largest = std::max(largest, std::abs(exact[i]));
  }
  return static_cast<double>(difference / largest);
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_RNN_TESTING_H_
