#ifndef PLANISH_SRC_NORM_PARAMS_H_
#define PLANISH_SRC_NORM_PARAMS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "planish/types.h"
#include "src/base/aligned.h"
#include "src/norm/recipe.h"
#include "src/norm/rows/rows.h"

// Conversion of gain and bias to the type of the arithmetic, and of their gradients back.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Elements of the shared arrays of zeros and ones, enough for most rows. Sharing keeps them in
/// every thread's cache from call to call.
inline constexpr int64_t kConstants = 8192;

/// Rows from which, and columns up to which, unaligned parameters are copied. A copy avoids vectors
/// that cross cache lines in the L1 cache. For more columns it costs more than it saves, especially
/// if the system maps and unmaps it at every call.
inline constexpr int64_t kRowsForCopy = 256, kMaxCopied = 1024;

// --- End of tuning constants ---

template <class C, class P>
C ToCompute(P value) {
  if constexpr (std::is_same_v<P, bfloat16> || std::is_same_v<P, float16>) {
    return ToFloat(value);
  } else {
    return static_cast<C>(value);
  }
}

template <class P, class C>
P FromCompute(C value) {
  if constexpr (std::is_same_v<P, bfloat16>) {
    return ToBfloat16(value);
  } else if constexpr (std::is_same_v<P, float16>) {
    return ToFloat16(value);
  } else {
    return static_cast<P>(value);
  }
}

/// Returns `value`, or a plain NaN, which conversion to 16 bits requires (see PlainNan).
template <class C>
C Plain(C value) {
  return value == value ? value : std::numeric_limits<C>::quiet_NaN();
}

/// Writes `value` to the n elements of every array that is not null: the result of a reduction over
/// nothing.
template <class N>
void FillEach(std::initializer_list<N*> arrays, int64_t n, N value) {
  for (N* array : arrays) {
    if (array) std::fill_n(array, n, value);
  }
}

/// Returns a shared array of kConstants ones or zeros.
template <class C>
const C* Constants(bool one) {
  struct Filled {
    explicit Filled(C value) { std::fill_n(values, kConstants, value); }
    alignas(kAlignment) C values[kConstants];
  };
  static const Filled zeros(C{0}), ones(C{1});
  return one ? ones.values : zeros.values;
}

/// Array of `cols` parameters of type P, converted to Compute<T>. Copied to an aligned array if
/// that pays. With null `params` all elements are `missing`, 0 or 1.
template <class T, class P>
class Params {
 public:
  using C = Compute<T>;

  /// Without `needed`, data() is null.
  Params(const P* params, int64_t rows, int64_t cols, C missing, bool needed) {
    if (!needed) return;
    if (params == nullptr && cols <= kConstants) {
      data_ = Constants<C>(missing != 0);
      return;
    }
    if constexpr (std::is_same_v<P, C>) {
      // Conversion to 16 bits requires plain NaNs (see PlainNan). An array without other NaNs is
      // used in place: a copy would have to move to the other threads' caches.
      const bool usable = std::is_same_v<T, C> || params == nullptr || !AnyNan<T>(params, cols);
      const bool copied = rows >= kRowsForCopy && cols <= kMaxCopied && !IsAligned(params);
      if (usable && !copied) data_ = params;
    }
    if (data_ != nullptr) return;
    copy_ = MakeAligned<C>(cols);
    data_ = copy_.get();
    if (params == nullptr) {
      std::fill_n(copy_.get(), cols, missing);
    } else if constexpr (std::is_same_v<Compute<P>, C>) {
      WidenParameters(params, cols, copy_.get());
    } else {
      for (int64_t c = 0; c < cols; ++c) copy_[c] = static_cast<C>(params[c]);
    }
  }

  const C* data() const { return data_; }

 private:
  AlignedArray<C> copy_;
  const C* data_ = nullptr;
};

/// Destination of the sums of `cols` gradients before they are converted to P. `params` can be
/// null.
template <class T, class P>
class ParamGradients {
 public:
  using C = Compute<T>;

  /// Without `needed`, data() is null.
  ParamGradients(P* params, int64_t cols, bool needed) : params_(params), cols_(cols) {
    if (!needed) return;
    if constexpr (std::is_same_v<P, C>) data_ = params;
    if (data_ != nullptr) return;
    copy_ = MakeAligned<C>(cols);
    data_ = copy_.get();
  }

  C* data() { return data_; }

  /// Converts the completed sums to P.
  void Finish() {
    if (!copy_ || params_ == nullptr) return;
    if constexpr (std::is_same_v<Compute<P>, C>) {
      RoundParameters(copy_.get(), cols_, params_);
    } else {
      for (int64_t c = 0; c < cols_; ++c) params_[c] = static_cast<P>(copy_[c]);
    }
  }

 private:
  P* params_;
  int64_t cols_;
  AlignedArray<C> copy_;
  C* data_ = nullptr;
};

/// Returns the arguments of a forward call with converted parameters.
template <template <class, class> class Args, class T, class P>
Args<T, Compute<T>> WithParams(const Args<T, P>& args, const Params<T, P>& gain,
                               const Params<T, P>& bias) {
  // Only the types of pointers differ.
  auto converted = std::bit_cast<Args<T, Compute<T>>>(args);
  converted.gain = gain.data();
  converted.bias = bias.data();
  return converted;
}

/// Returns the arguments of a backward call with converted parameters, without the statistics that
/// the norm does not have.
template <template <class, class> class Args, class T, class P>
Args<T, Compute<T>> WithParams(const Args<T, P>& args, const Recipe& recipe,
                               const Params<T, P>& gain, ParamGradients<T, P>& dgain,
                               ParamGradients<T, P>& dbias) {
  auto converted = std::bit_cast<Args<T, Compute<T>>>(args);
  converted.gain = gain.data();
  converted.dgain = dgain.data();
  converted.dbias = dbias.data();
  if (!recipe.centre) converted.mean = converted.mean_lo = nullptr;
  return converted;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_PARAMS_H_
