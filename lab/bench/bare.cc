#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lab/bench/contestants.h"
#include "lab/bench/threads.h"
#include "planish/types.h"
#include "src/base/aligned.h"
#include "src/base/tuning.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lab/bench/bare.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above.
#include <hwy/foreach_target.h>  // compiles the rest of this file once for each SIMD target
// Must follow the line above.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "src/norm/vector-inl.h"

#ifndef PLANISH_BENCH_NORM_BARE_CC_
#define PLANISH_BENCH_NORM_BARE_CC_
namespace planish::bench {
namespace {

// Operands of the loops: contiguous rows, parameters in float.
template <class T>
struct RowOperands {
  int64_t cols;
  const T* x;
  const T* dy;
  const float* gain;
  const float* bias;
  const float* mean;
  const float* rstd;
  T* out;
  bool use_nt_stores = false;
};

}  // namespace
}  // namespace planish::bench
#endif  // PLANISH_BENCH_NORM_BARE_CC_

HWY_BEFORE_NAMESPACE();
namespace planish::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using internal::HWY_NAMESPACE::Put;
using internal::HWY_NAMESPACE::Read;

// Prefetches two vectors of input into the L2 and L1 cache if outputs use non-temporal stores, like
// Planish.
template <bool kUseNtStores, class T>
HWY_INLINE void PrefetchInput(const T* p) {
  if constexpr (!kUseNtStores) return;
  const auto* at = reinterpret_cast<const char*>(p);
  for (size_t line = 0; line < 2 * hn::MaxLanes(D()) * sizeof(T); line += 64) {
    __builtin_prefetch(at + 16384 + line, 0, 2);
    __builtin_prefetch(at + 2048 + line, 0, 3);
  }
}

float Total(V a, V b) { return hn::GetLane(hn::SumOfLanes(D(), hn::Add(a, b))); }

int64_t LanesOfRows() { return static_cast<int64_t>(hn::Lanes(D())); }

// Writes y of row `row` with the mean and rstd in `statistics`, and sums row `next` in the same
// pass. Then stores mean and rstd of `next` in `statistics`. Either row can be null. With kRagged,
// rows can end with a partial vector.
template <bool kUseNtStores, bool kRagged, bool kWrite, bool kSum, class T>
HWY_NOINLINE void ForwardRow(const RowOperands<T>& b, const T* row, const T* next, T* y,
                             float (&statistics)[2]) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V rstd = hn::Set(d, statistics[1]), offset = hn::Set(d, -statistics[0] * statistics[1]);
  V first[2] = {hn::Zero(d), hn::Zero(d)}, second[2] = {hn::Zero(d), hn::Zero(d)};
  const auto step = [&](int64_t c, int64_t i) HWY_ATTR {
    if constexpr (kSum) {
      const V v = Read(d, next + c);
      first[i] = hn::Add(first[i], v);
      second[i] = hn::MulAdd(v, v, second[i]);
    }
    if constexpr (kWrite) {
      const V xhat = hn::MulAdd(Read(d, row + c), rstd, offset);
      Put<kUseNtStores>(d, hn::MulAdd(xhat, hn::Load(d, b.gain + c), hn::Load(d, b.bias + c)),
                        y + c);
    }
  };
  int64_t c = 0;
  for (; c + 2 * lanes <= b.cols; c += 2 * lanes) {
    if constexpr (kSum) PrefetchInput<kUseNtStores>(next + c);
    step(c, 0);
    step(c + lanes, 1);
  }
  if (c + lanes <= b.cols) {
    step(c, 0);
    c += lanes;
  }
  if constexpr (kRagged) {
    // The partial vector at the end of the row.
    if (c < b.cols) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(b.cols - c));
      if constexpr (kSum) {
        const V v = hn::MaskedLoad(mask, d, next + c);
        first[1] = hn::Add(first[1], v);
        second[1] = hn::MulAdd(v, v, second[1]);
      }
      if constexpr (kWrite) {
        const V xhat = hn::MulAdd(hn::MaskedLoad(mask, d, row + c), rstd, offset);
        const V gain = hn::MaskedLoad(mask, d, b.gain + c),
                bias = hn::MaskedLoad(mask, d, b.bias + c);
        hn::BlendedStore(hn::MulAdd(xhat, gain, bias), mask, d, y + c);
      }
    }
  }
  if constexpr (kSum) {
    const float n = static_cast<float>(b.cols), mean = Total(first[0], first[1]) / n;
    const float variance = Total(second[0], second[1]) / n - mean * mean;
    statistics[0] = mean;
    statistics[1] = 1 / std::sqrt(variance + static_cast<float>(kEps));
  }
}

// Writes each row while it sums the row after the next. `statistics_of` has the mean and rstd of
// two rows.
template <bool kUseNtStores, bool kRagged, class T>
void ForwardRows(const RowOperands<T>& b, int64_t begin, int64_t end) {
  float statistics_of[2][2] = {};
  for (int64_t r = begin; r < end + 2; ++r) {
    float(&statistics)[2] = statistics_of[r % 2];
    const T* row = b.x + (r - 2) * b.cols;
    const T* next = b.x + r * b.cols;
    T* y = b.out + (r - 2) * b.cols;
    if (r < begin + 2) {
      if (r < end)
        ForwardRow<kUseNtStores, kRagged, false, true, T>(b, nullptr, next, nullptr, statistics);
    } else if (r < end) {
      ForwardRow<kUseNtStores, kRagged, true, true, T>(b, row, next, y, statistics);
    } else {
      ForwardRow<kUseNtStores, kRagged, true, false, T>(b, row, nullptr, y, statistics);
    }
  }
  if constexpr (kUseNtStores) hwy::FlushStream();
}

template <class T>
void ForwardOf(const RowOperands<T>& b, int64_t begin, int64_t end) {
  b.use_nt_stores ? ForwardRows<true, false>(b, begin, end)
                  : ForwardRows<false, false>(b, begin, end);
}
void Forward(const RowOperands<float>& b, int64_t begin, int64_t end) {
  if (b.cols % LanesOfRows() == 0) {
    ForwardOf(b, begin, end);
  } else {
    ForwardRows<false, true>(b, begin, end);
  }
}
void ForwardBFloat16(const RowOperands<bfloat16>& b, int64_t begin, int64_t end) {
  ForwardOf(b, begin, end);
}

// Writes dx of row `row` with the means of g and g * xhat in `means`. Sums row `next` in the same
// pass: adds its terms to dgain and dbias, and stores its means in `means`. Either row can be -1
// for none.
template <bool kUseNtStores, bool kWrite, bool kSum, class T>
HWY_NOINLINE void BackwardRow(const RowOperands<T>& b, int64_t row, int64_t next, float (&means)[2],
                              float* dgain, float* dbias) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [&](const float* array, int64_t r) HWY_ATTR { return r < 0 ? 0.f : array[r]; };
  const V rstd = hn::Set(d, at(b.rstd, row)), next_rstd = hn::Set(d, at(b.rstd, next));
  const V offset = hn::Set(d, -at(b.mean, row) * at(b.rstd, row));
  const V next_offset = hn::Set(d, -at(b.mean, next) * at(b.rstd, next));
  const V mean_g = hn::Set(d, means[0]), mean_g_xhat = hn::Set(d, means[1]);
  const T* dy = b.dy + std::max<int64_t>(row, 0) * b.cols;
  const T* x = b.x + std::max<int64_t>(row, 0) * b.cols;
  T* dx = b.out + std::max<int64_t>(row, 0) * b.cols;
  const T* next_dy = b.dy + std::max<int64_t>(next, 0) * b.cols;
  const T* next_x = b.x + std::max<int64_t>(next, 0) * b.cols;
  V first[2] = {hn::Zero(d), hn::Zero(d)}, second[2] = {hn::Zero(d), hn::Zero(d)};
  const auto step = [&](int64_t c, int64_t i) HWY_ATTR {
    const V gain = hn::Load(d, b.gain + c);
    if constexpr (kSum) {
      const V v = Read(d, next_dy + c);
      const V xhat = hn::MulAdd(Read(d, next_x + c), next_rstd, next_offset);
      hn::Store(hn::MulAdd(v, xhat, hn::Load(d, dgain + c)), d, dgain + c);
      hn::Store(hn::Add(v, hn::Load(d, dbias + c)), d, dbias + c);
      const V g = hn::Mul(v, gain);
      first[i] = hn::Add(first[i], g);
      second[i] = hn::MulAdd(g, xhat, second[i]);
    }
    if constexpr (kWrite) {
      const V xhat = hn::MulAdd(Read(d, x + c), rstd, offset);
      const V g = hn::MulSub(Read(d, dy + c), gain, mean_g);
      Put<kUseNtStores>(d, hn::Mul(hn::NegMulAdd(xhat, mean_g_xhat, g), rstd), dx + c);
    }
  };
  int64_t c = 0;
  for (; c + 2 * lanes <= b.cols; c += 2 * lanes) {
    if constexpr (kSum)
      PrefetchInput<kUseNtStores>(next_dy + c), PrefetchInput<kUseNtStores>(next_x + c);
    step(c, 0);
    step(c + lanes, 1);
  }
  if (c < b.cols) step(c, 0);
  if constexpr (kSum) {
    means[0] = Total(first[0], first[1]) / static_cast<float>(b.cols);
    means[1] = Total(second[0], second[1]) / static_cast<float>(b.cols);
  }
}

template <bool kUseNtStores, class T>
void BackwardRows(const RowOperands<T>& b, int64_t begin, int64_t end, float* dgain, float* dbias) {
  float means[2][2] = {};
  for (int64_t r = begin; r < end + 2; ++r) {
    if (r < begin + 2) {
      if (r < end) BackwardRow<kUseNtStores, false, true>(b, -1, r, means[r % 2], dgain, dbias);
    } else if (r < end) {
      BackwardRow<kUseNtStores, true, true>(b, r - 2, r, means[r % 2], dgain, dbias);
    } else {
      BackwardRow<kUseNtStores, true, false>(b, r - 2, -1, means[r % 2], dgain, dbias);
    }
  }
  if constexpr (kUseNtStores) hwy::FlushStream();
}

template <class T>
void BackwardOf(const RowOperands<T>& b, int64_t begin, int64_t end, float* dgain, float* dbias) {
  b.use_nt_stores ? BackwardRows<true>(b, begin, end, dgain, dbias)
                  : BackwardRows<false>(b, begin, end, dgain, dbias);
}
void Backward(const RowOperands<float>& b, int64_t begin, int64_t end, float* dgain, float* dbias) {
  BackwardOf(b, begin, end, dgain, dbias);
}
void BackwardBFloat16(const RowOperands<bfloat16>& b, int64_t begin, int64_t end, float* dgain,
                      float* dbias) {
  BackwardOf(b, begin, end, dgain, dbias);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::bench {
namespace {

HWY_EXPORT(LanesOfRows);
HWY_EXPORT(Forward);
HWY_EXPORT(ForwardBFloat16);
HWY_EXPORT(Backward);
HWY_EXPORT(BackwardBFloat16);

constexpr int64_t kGrainElements = int64_t{1} << 15;
constexpr int64_t kMaxBlocks = 16;

void Run(const RowOperands<float>& b, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Forward)(b, begin, end);
}
void Run(const RowOperands<bfloat16>& b, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(ForwardBFloat16)(b, begin, end);
}
void Run(const RowOperands<float>& b, int64_t begin, int64_t end, float* dgain, float* dbias) {
  HWY_DYNAMIC_DISPATCH(Backward)(b, begin, end, dgain, dbias);
}
void Run(const RowOperands<bfloat16>& b, int64_t begin, int64_t end, float* dgain, float* dbias) {
  HWY_DYNAMIC_DISPATCH(BackwardBFloat16)(b, begin, end, dgain, dbias);
}

// Each block of rows has its own partial sums.
template <class T>
void BackwardBlocks(const RowOperands<T>& b, int64_t rows, float* dgain, float* dbias,
                    float* partials, const ParallelFor& parallel_for) {
  const int64_t bytes = 3 * rows * b.cols * static_cast<int64_t>(sizeof(T));
  const int64_t blocks = std::clamp<int64_t>(rows / 8, 1, kMaxBlocks), size = 2 * b.cols;
  parallel_for(0, blocks, std::max<int64_t>(1, kGrainElements * blocks / (rows * b.cols)),
               [&](int64_t begin, int64_t end) {
                 RowOperands<T> range = b;
                 range.use_nt_stores = internal::UsesNtStores(bytes, end - begin, blocks);
                 for (int64_t block = begin; block < end; ++block) {
                   float* sums = partials + block * size;
                   std::fill_n(sums, size, 0.f);
                   Run(range, block * rows / blocks, (block + 1) * rows / blocks, sums,
                       sums + b.cols);
                 }
               });
  parallel_for(0, b.cols, std::max<int64_t>(1, kGrainElements / blocks),
               [&](int64_t begin, int64_t end) {
                 std::fill(dgain + begin, dgain + end, 0.f);
                 std::fill(dbias + begin, dbias + end, 0.f);
                 for (int64_t block = 0; block < blocks; ++block) {
                   const float* sums = partials + block * size;
                   for (int64_t c = begin; c < end; ++c) dgain[c] += sums[c];
                   for (int64_t c = begin; c < end; ++c) dbias[c] += sums[b.cols + c];
                 }
               });
}

template <class T>
Contestant MakeBareOf(const Case& c, const Arrays& arrays) {
  const RowOperands<T> b{.cols = c.cols,
                         .x = static_cast<const T*>(arrays.x),
                         .dy = static_cast<const T*>(arrays.dy),
                         .gain = static_cast<const float*>(arrays.gain),
                         .bias = static_cast<const float*>(arrays.bias),
                         .mean = static_cast<const float*>(arrays.mean),
                         .rstd = static_cast<const float*>(arrays.rstd),
                         .out = static_cast<T*>(arrays.out)};
  const ParallelFor parallel_for = TorchThreads();
  if (c.direction == Direction::kForward) {
    return {.call = [=, rows = c.rows, bytes = Bytes(c)] {
      parallel_for(0, rows, std::max<int64_t>(1, kGrainElements / b.cols),
                   [&](int64_t begin, int64_t end) {
                     RowOperands<T> range = b;
                     range.use_nt_stores = internal::UsesNtStores(bytes, end - begin, rows);
                     Run(range, begin, end);
                   });
    }};
  }
  const std::shared_ptr<float[]> partials = internal::MakeAligned<float>(2 * c.cols * kMaxBlocks);
  return {.call = [=, rows = c.rows, dgain = static_cast<float*>(arrays.dgain),
                   dbias = static_cast<float*>(arrays.dbias)] {
    BackwardBlocks(b, rows, dgain, dbias, partials.get(), parallel_for);
  }};
}

}  // namespace

Contestant MakeBare(const std::string& method, const Case& c, const Arrays& arrays) {
  if (method != "layer") return {.absent = "has only layer norm"};
  if (c.spatial != 1) return {.absent = "takes only rows"};
  // With few elements, the sum of squares minus the square of the mean is too inaccurate for the
  // check.
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(LanesOfRows)();
  if (c.cols < lanes) return {.absent = "takes only rows of at least a vector"};
  if (c.cols % lanes != 0 && (c.direction != Direction::kForward || c.type != Type::kFloat ||
                              internal::UsesNtStores(Bytes(c), 1, 1))) {
    return {.absent =
                "takes only rows of whole vectors, and others only forward, in float and with "
                "ordinary stores"};
  }
  if (!internal::IsAligned(arrays.gain) || !internal::IsAligned(arrays.bias)) {
    return {.absent = "takes only aligned gain and bias"};
  }
  if (c.type == Type::kFloat) return MakeBareOf<float>(c, arrays);
  if (c.type == Type::kBFloat16) return MakeBareOf<bfloat16>(c, arrays);
  return {.absent = "takes only float and bfloat16"};
}

}  // namespace planish::bench
#endif  // HWY_ONCE
