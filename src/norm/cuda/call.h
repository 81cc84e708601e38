#ifndef PLANISH_SRC_NORM_CUDA_CALL_H_
#define PLANISH_SRC_NORM_CUDA_CALL_H_

#include <bit>
#include <type_traits>

#include "src/norm/cuda/params.h"
#include "src/norm/recipe.h"

// Arguments of the kernels: a public call without the type of its parameters, and with its recipe.
namespace planish::internal::cuda {

/// Arguments of a public call, Args<T, P> with parameters of type T or float.
template <template <class, class> class Args, class T>
struct UntypedParams : Args<T, void> {
  bool params_are_float;

  PLANISH_DEVICE Params Gain() const { return {this->gain, params_are_float}; }
  PLANISH_DEVICE Params Bias() const { return {this->bias, params_are_float}; }
  PLANISH_DEVICE Params Lengths() const { return {this->g, params_are_float}; }
  PLANISH_DEVICE ParamGradients GainGradient() const { return {this->dgain, params_are_float}; }
  PLANISH_DEVICE ParamGradients BiasGradient() const { return {this->dbias, params_are_float}; }
  PLANISH_DEVICE Params Alpha() const { return {this->alpha, params_are_float}; }
  PLANISH_DEVICE Params Shift() const { return {this->shift, params_are_float}; }
  PLANISH_DEVICE ParamGradients AlphaGradient() const { return {this->dalpha, params_are_float}; }
  PLANISH_DEVICE ParamGradients ShiftGradient() const { return {this->dshift, params_are_float}; }
  PLANISH_DEVICE ParamGradients LengthGradients() const { return {this->dg, params_are_float}; }
};

template <template <class, class> class Args, class T, class P>
UntypedParams<Args, T> Untyped(const Args<T, P>& args) {
  // Only the types of pointers differ.
  return {std::bit_cast<Args<T, void>>(args), std::is_same_v<P, float>};
}

/// The recipe and options of a norm, for the kernels.
template <class C>
struct KernelSettings {
  double eps;
  C scale, slope;
  bool centre, via_mean, via_scale, adaptive, unbiased;
};

template <class C, class Options>
KernelSettings<C> KernelSettingsOf(const Recipe& recipe, const Options& options) {
  return {.eps = options.eps,
          .scale = static_cast<C>(options.scale),
          .slope = static_cast<C>(options.slope),
          .centre = recipe.centre,
          .via_mean = recipe.via_mean,
          .via_scale = recipe.via_scale,
          .adaptive = recipe.output == Output::kAdaptive,
          .unbiased = recipe.deviation == Deviation::kUnbiasedPlusEps};
}

/// Drops the arrays that a backward call does not read, which can be invalid.
template <class Call>
void DropUnread(const Recipe& recipe, Call& call) {
  const BackwardReads reads = ReadsOf(recipe);
  if (!reads.x) call.x = nullptr;
  if (!reads.mean) call.mean = call.mean_lo = nullptr;
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_CALL_H_
