#include "planish/norm.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "src/base/check.h"
#include "src/norm/cpu.h"
#include "src/norm/recipe.h"

namespace planish {
namespace {

/// Throws unless `arrays`, which belong to an affine output, are null or the norm has one.
void CheckAffine(const char* function, Norm norm, std::initializer_list<internal::Array> arrays) {
  const bool affine = internal::Visit(
      norm, []<internal::Recipe kRecipe>() { return kRecipe.output == internal::Output::kAffine; });
  if (affine) return;
  for (const internal::Array& array : arrays) {
    if (array.data != nullptr) {
      internal::Fail(function, array.name, "be null for a norm without gain and bias",
                     "an address");
    }
  }
}

}  // namespace

template <class T>
void NormForward(Norm norm, const NormForwardArgs<T>& args, const NormOptions& options) {
  constexpr const char* kFunction = "NormForward";
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  internal::CheckEps(kFunction, options.eps);
  const int64_t size = sizeof(T);
  const internal::Array x{"x", args.x, rows * cols * size};
  const internal::Array gain{"gain", args.gain, cols * size};
  const internal::Array bias{"bias", args.bias, cols * size};
  const internal::Array y{"y", args.y, rows * cols * size, args.x};
  CheckAffine(kFunction, norm, {gain, bias});
  internal::CheckNotNull(kFunction, {x, y});
  internal::CheckApart(kFunction,
                       {y,
                        {"mean", args.mean, rows * size},
                        {"mean_lo", args.mean_lo, rows * size},
                        {"rstd", args.rstd, rows * size}},
                       {x, gain, bias});

  if (cols == 0) {
    for (T* moment : {args.mean, args.mean_lo, args.rstd}) {
      if (moment) std::fill_n(moment, rows, std::numeric_limits<T>::quiet_NaN());
    }
    return;
  }
  internal::NormForwardCpu(norm, args, options);
}

template <class T>
void NormBackward(Norm norm, const NormBackwardArgs<T>& args, const NormOptions& options) {
  constexpr const char* kFunction = "NormBackward";
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  const int64_t size = sizeof(T);
  const internal::Array dy{"dy", args.dy, rows * cols * size};
  const internal::Array x{"x", args.x, rows * cols * size};
  const internal::Array gain{"gain", args.gain, cols * size};
  const internal::Array mean{"mean", args.mean, rows * size};
  const internal::Array mean_lo{"mean_lo", args.mean_lo, rows * size};
  const internal::Array rstd{"rstd", args.rstd, rows * size};
  const internal::Array dgain{"dgain", args.dgain, cols * size};
  const internal::Array dbias{"dbias", args.dbias, cols * size};
  CheckAffine(kFunction, norm, {gain, dgain, dbias});
  internal::CheckNotNull(kFunction, {dy, x, mean, mean_lo, rstd});
  internal::CheckApart(kFunction, {{"dx", args.dx, rows * cols * size, args.dy}, dgain, dbias},
                       {dy, x, gain, mean, mean_lo, rstd});

  if (cols == 0) return;
  internal::NormBackwardCpu(norm, args, options);
}

template void NormForward(Norm, const NormForwardArgs<float>&, const NormOptions&);
template void NormForward(Norm, const NormForwardArgs<double>&, const NormOptions&);
template void NormBackward(Norm, const NormBackwardArgs<float>&, const NormOptions&);
template void NormBackward(Norm, const NormBackwardArgs<double>&, const NormOptions&);

}  // namespace planish
