#ifndef PLANISH_SRC_NORM_PARAMS_H_
#define PLANISH_SRC_NORM_PARAMS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "planish/types.h"
#include "src/base/aligned.h"

// Gain and bias in the type that is computed with, and their gradients back from it.
namespace planish::internal {

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

/// Writes `value` to the n numbers of every array that is given: what no numbers are reduced to.
template <class N>
void FillEach(std::initializer_list<N*> arrays, int64_t n, N value) {
  for (N* array : arrays) {
    if (array) std::fill_n(array, n, value);
  }
}

/// `cols` numbers of type P as numbers that rows of T are computed with, aligned where `rows` are
/// enough to repay a copy. Null stands for `cols` times `missing`.
template <class T, class P>
class Params {
 public:
  using C = Compute<T>;

  /// Without `needed` there are none.
  Params(const P* params, int64_t rows, int64_t cols, C missing, bool needed) {
    if (!needed) return;
    if constexpr (std::is_same_v<P, C>) {
      // Rounding to 16 bits expects the NaN that arithmetic makes. A copy would have to cross from
      // this thread's cache to the others'.
      const bool serves = std::is_same_v<T, C> || params == nullptr || NoneIsNan(params, cols);
      if (serves && (rows < kRowsForCopy || IsAligned(params))) data_ = params;
    }
    if (data_ != nullptr) return;
    copy_ = MakeAligned<C>(cols);
    data_ = copy_.get();
    if (params == nullptr) {
      std::fill_n(copy_.get(), cols, missing);
      return;
    }
    C* const copy = copy_.get();  // else read anew after each store
    for (int64_t c = 0; c < cols; ++c) {
      const C value = ToCompute<C>(params[c]);
      copy[c] = value == value ? value : std::numeric_limits<C>::quiet_NaN();
    }
  }

  const C* data() const { return data_; }

 private:
  static constexpr int64_t kRowsForCopy = 16;

  static bool NoneIsNan(const P* params, int64_t cols) {
    int64_t count = 0;
    for (int64_t c = 0; c < cols; ++c) count += params[c] != params[c];
    return count == 0;
  }

  AlignedArray<C> copy_;
  const C* data_ = nullptr;
};

/// Where the sums of `cols` gradients go before they become numbers of type P at `params`, which
/// may be null.
template <class T, class P>
class ParamSums {
 public:
  using C = Compute<T>;

  /// Without `needed` there are none.
  ParamSums(P* params, int64_t cols, bool needed) : params_(params), cols_(cols) {
    if (!needed) return;
    if constexpr (std::is_same_v<P, C>) data_ = params;
    if (data_ != nullptr) return;
    copy_ = MakeAligned<C>(cols);
    data_ = copy_.get();
  }

  C* data() { return data_; }

  /// To be called when the sums are there.
  void Finish() {
    if (!copy_ || params_ == nullptr) return;
    for (int64_t c = 0; c < cols_; ++c) params_[c] = FromCompute<P>(copy_[c]);
  }

 private:
  P* params_;
  int64_t cols_;
  AlignedArray<C> copy_;
  C* data_ = nullptr;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_PARAMS_H_
