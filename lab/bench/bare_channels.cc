// Lower bound for norms over channels: each element is read twice, first for sums and then for the
// result, with minimal arithmetic. See MakeBareChannels.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"
#include "lab/bench/reference.h"
#include "lab/bench/threads.h"
#include "src/base/aligned.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lab/bench/bare_channels.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above.
#include <hwy/foreach_target.h>  // compiles the rest of this file once for each SIMD target
// Must follow the line above.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "src/norm/vector-inl.h"

#ifndef PLANISH_BENCH_NORM_BARE_CHANNELS_CC_
#define PLANISH_BENCH_NORM_BARE_CHANNELS_CC_
namespace planish::bench {
namespace {

// Arrays of [samples, channels, spatial]. Backward has mean and rstd for each channel (batch norm)
// or each position.
struct ChannelOperands {
  int64_t samples, channels, spatial;
  const float* x;
  const float* dy;
  const float* gain;
  const float* bias;
  const float* mean;
  const float* rstd;
  float* out;
  float* dgain;
  float* dbias;
  bool backward;
};

// Coefficients of a channel's results in batch norm: result = dy * `dy` + x * `x` + `constant`.
struct Coefficients {
  float dy, x, constant;
};

// Returns the coefficients of channel c from its sums of x and x^2 (forward) or of dy and dy * x
// (backward). Backward also writes dgain and dbias of the channel.
Coefficients CoefficientsOf(const ChannelOperands& b, int64_t c, float first, float second) {
  const float terms = static_cast<float>(b.samples * b.spatial);
  if (!b.backward) {
    const float mean = first / terms, variance = second / terms - mean * mean;
    const float scale = b.gain[c] / std::sqrt(variance + static_cast<float>(kEps));
    return {0, scale, b.bias[c] - mean * scale};
  }
  const float rstd = b.rstd[c], mean = b.mean[c], scale = b.gain[c] * rstd;
  const float dgain = rstd * (second - mean * first);
  b.dgain[c] = dgain;
  b.dbias[c] = first;
  return {scale, -scale * rstd * dgain / terms, scale * (mean * rstd * dgain - first) / terms};
}

// Parameters of a call. MakeBareChannels takes the fastest ones of a trial.
struct ChannelTuning {
  int64_t tile;        // positions or channels processed at a time
  bool use_nt_stores;  // for outputs
  bool prefetch;       // of inputs, 4 KB ahead
};

}  // namespace
}  // namespace planish::bench
#endif  // PLANISH_BENCH_NORM_BARE_CHANNELS_CC_

HWY_BEFORE_NAMESPACE();
namespace planish::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using internal::HWY_NAMESPACE::Put;

HWY_INLINE void AddTo(V v, float* to) { hn::Store(hn::Add(hn::Load(D(), to), v), D(), to); }

// Two sums with four accumulators each.
struct Sums {
  V first[4], second[4];
  HWY_INLINE Sums() {
    for (int i = 0; i < 4; ++i) first[i] = second[i] = hn::Zero(D());
  }
  HWY_INLINE void Total(float (&sums)[2]) const {
    const D d;
    const auto total = [&](const V(&v)[4]) HWY_ATTR {
      return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]))));
    };
    sums[0] += total(first);
    sums[1] += total(second);
  }
};

// Loads the vector at `at`.
template <bool kPrefetch>
HWY_INLINE V Get(const float* at) {
  if constexpr (kPrefetch) __builtin_prefetch(reinterpret_cast<const char*>(at) + 4096, 0, 2);
  return hn::Load(D(), at);
}

// Calls f(i, chain) for each vector of n elements.
template <class F>
HWY_INLINE void ForVectors(int64_t n, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t i = 0, chain = 0; i < n; i += lanes, ++chain) f(i, chain & 3);
}

// --- Batch norm of rows: channels are contiguous ---

// Adds x and x^2 (backward: dy and dy * x) of rows [begin, end) to `sums`, two arrays [channels].
template <bool kPrefetch>
void SumOverRowsWith(const ChannelOperands& b, int64_t begin, int64_t end, float* sums) {
  const D d;
  float* const more = sums + b.channels;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = b.x + r * b.channels;
    if (!b.backward) {
      ForVectors(b.channels, [&](int64_t c, int64_t) HWY_ATTR {
        const V v = Get<kPrefetch>(x + c);
        AddTo(v, sums + c);
        hn::Store(hn::MulAdd(v, v, hn::Load(d, more + c)), d, more + c);
      });
    } else {
      const float* dy = b.dy + r * b.channels;
      ForVectors(b.channels, [&](int64_t c, int64_t) HWY_ATTR {
        const V v = Get<kPrefetch>(dy + c);
        AddTo(v, sums + c);
        hn::Store(hn::MulAdd(v, Get<kPrefetch>(x + c), hn::Load(d, more + c)), d, more + c);
      });
    }
  }
}

// Writes rows [begin, end) with `coefficients`, three arrays [channels]: dy, x and constant.
template <bool kUseNtStores, bool kPrefetch>
void WriteRowsWith(const ChannelOperands& b, int64_t begin, int64_t end,
                   const float* coefficients) {
  const D d;
  const float *first = coefficients, *second = first + b.channels, *third = second + b.channels;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = b.x + r * b.channels;
    const float* dy = b.dy + (b.backward ? r * b.channels : 0);
    float* out = b.out + r * b.channels;
    ForVectors(b.channels, [&](int64_t c, int64_t) HWY_ATTR {
      const V last = hn::Load(d, third + c);
      const V v = hn::MulAdd(Get<kPrefetch>(x + c), hn::Load(d, second + c), last);
      Put<kUseNtStores>(
          d, b.backward ? hn::MulAdd(Get<kPrefetch>(dy + c), hn::Load(d, first + c), v) : v,
          out + c);
    });
  }
  if (kUseNtStores) hwy::FlushStream();
}

void SumOverRows(const ChannelOperands& b, const ChannelTuning& tuning, int64_t begin, int64_t end,
                 float* sums) {
  tuning.prefetch ? SumOverRowsWith<true>(b, begin, end, sums)
                  : SumOverRowsWith<false>(b, begin, end, sums);
}

// Calls f(use_nt_stores, prefetch) with the parameters of `tuning` as std::bool_constants.
template <class F>
HWY_INLINE void WithTuning(const ChannelTuning& tuning, const F& f) {
  const auto with = [&](auto use_nt_stores) HWY_ATTR {
    tuning.prefetch ? f(use_nt_stores, std::true_type()) : f(use_nt_stores, std::false_type());
  };
  tuning.use_nt_stores ? with(std::true_type()) : with(std::false_type());
}

void WriteRows(const ChannelOperands& b, const ChannelTuning& tuning, int64_t begin, int64_t end,
               const float* coefficients) {
  WithTuning(tuning, [&](auto use_nt_stores, auto prefetch) HWY_ATTR {
    WriteRowsWith<use_nt_stores(), prefetch()>(b, begin, end, coefficients);
  });
}

// --- Batch norm of contiguous positions ---

// Maximum number of channels that NormalizeChannelsWith processes together.
constexpr int64_t kMaxChannels = 16;

// Normalizes channels [begin, end), at most kMaxChannels.
template <bool kUseNtStores, bool kPrefetch>
void NormalizeChannelsWith(const ChannelOperands& b, int64_t begin, int64_t end) {
  const D d;
  const int64_t n = b.spatial;
  float sums[kMaxChannels][2] = {};
  const auto at = [&](int64_t s, int64_t c) { return (s * b.channels + c) * n; };
  for (int64_t s = 0; s < b.samples; ++s) {
    for (int64_t c = begin; c < end; ++c) {
      const float* x = b.x + at(s, c);
      Sums run;
      if (!b.backward) {
        ForVectors(n, [&](int64_t i, int64_t chain) HWY_ATTR {
          const V v = Get<kPrefetch>(x + i);
          run.first[chain] = hn::Add(run.first[chain], v);
          run.second[chain] = hn::MulAdd(v, v, run.second[chain]);
        });
      } else {
        const float* dy = b.dy + at(s, c);
        ForVectors(n, [&](int64_t i, int64_t chain) HWY_ATTR {
          const V v = Get<kPrefetch>(dy + i);
          run.first[chain] = hn::Add(run.first[chain], v);
          run.second[chain] = hn::MulAdd(v, Get<kPrefetch>(x + i), run.second[chain]);
        });
      }
      run.Total(sums[c - begin]);
    }
  }
  V coefficients[kMaxChannels][3];
  for (int64_t c = begin; c < end; ++c) {
    V(&coefficient)[3] = coefficients[c - begin];
    const Coefficients of = CoefficientsOf(b, c, sums[c - begin][0], sums[c - begin][1]);
    coefficient[0] = hn::Set(d, of.dy);
    coefficient[1] = hn::Set(d, of.x);
    coefficient[2] = hn::Set(d, of.constant);
  }
  for (int64_t s = 0; s < b.samples; ++s) {
    for (int64_t c = begin; c < end; ++c) {
      const V(&coefficient)[3] = coefficients[c - begin];
      const float* x = b.x + at(s, c);
      const float* dy = b.backward ? b.dy + at(s, c) : nullptr;
      float* out = b.out + at(s, c);
      ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
        const V v = hn::MulAdd(Get<kPrefetch>(x + i), coefficient[1], coefficient[2]);
        Put<kUseNtStores>(d, b.backward ? hn::MulAdd(Get<kPrefetch>(dy + i), coefficient[0], v) : v,
                          out + i);
      });
    }
  }
  if (kUseNtStores) hwy::FlushStream();
}

void NormalizeChannels(const ChannelOperands& b, const ChannelTuning& tuning, int64_t begin,
                       int64_t end) {
  WithTuning(tuning, [&](auto use_nt_stores, auto prefetch) HWY_ATTR {
    NormalizeChannelsWith<use_nt_stores(), prefetch()>(b, begin, end);
  });
}

// --- Layer norm over channels ---

// Normalizes positions [begin, end) of a sample. `sums` is workspace for two values a position.
// Backward adds the terms of dgain and dbias to `terms`, two vectors a channel.
template <bool kUseNtStores, bool kPrefetch>
void NormalizePositionsWith(const ChannelOperands& b, int64_t sample, int64_t begin, int64_t end,
                            float* sums, float* terms) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = end - begin, first = sample * b.channels * b.spatial + begin;
  float* const more = sums + n;
  const float* mean = b.mean + sample * b.spatial + begin;
  const float* rstd = b.rstd + sample * b.spatial + begin;
  std::fill_n(sums, 2 * n, 0.f);
  for (int64_t c = 0; c < b.channels; ++c) {
    const float* x = b.x + first + c * b.spatial;
    if (!b.backward) {
      ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
        const V v = Get<kPrefetch>(x + i);
        AddTo(v, sums + i);
        hn::Store(hn::MulAdd(v, v, hn::Load(d, more + i)), d, more + i);
      });
      continue;
    }
    const float* dy = b.dy + first + c * b.spatial;
    const V gain = hn::Set(d, b.gain[c]);
    V dgain = hn::Load(d, terms + 2 * c * lanes), dbias = hn::Load(d, terms + (2 * c + 1) * lanes);
    ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
      const V v = Get<kPrefetch>(dy + i);
      const V xhat =
          hn::Mul(hn::Sub(Get<kPrefetch>(x + i), hn::Load(d, mean + i)), hn::Load(d, rstd + i));
      const V g = hn::Mul(v, gain);
      dgain = hn::MulAdd(v, xhat, dgain);
      dbias = hn::Add(dbias, v);
      AddTo(g, sums + i);
      hn::Store(hn::MulAdd(g, xhat, hn::Load(d, more + i)), d, more + i);
    });
    hn::Store(dgain, d, terms + 2 * c * lanes);
    hn::Store(dbias, d, terms + (2 * c + 1) * lanes);
  }
  const V share = hn::Set(d, 1 / static_cast<float>(b.channels));
  ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
    V one = hn::Mul(hn::Load(d, sums + i), share), two = hn::Mul(hn::Load(d, more + i), share);
    if (!b.backward) {
      two = hn::NegMulAdd(one, one, two);
      two = hn::Div(hn::Set(d, 1.f), hn::Sqrt(hn::Add(two, hn::Set(d, static_cast<float>(kEps)))));
    }
    hn::Store(one, d, sums + i);
    hn::Store(two, d, more + i);
  });
  for (int64_t c = 0; c < b.channels; ++c) {
    const float* x = b.x + first + c * b.spatial;
    float* out = b.out + first + c * b.spatial;
    const V gain = hn::Set(d, b.gain[c]);
    if (!b.backward) {
      const V bias = hn::Set(d, b.bias[c]);
      ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
        const V xhat =
            hn::Mul(hn::Sub(Get<kPrefetch>(x + i), hn::Load(d, sums + i)), hn::Load(d, more + i));
        Put<kUseNtStores>(d, hn::MulAdd(xhat, gain, bias), out + i);
      });
      continue;
    }
    const float* dy = b.dy + first + c * b.spatial;
    ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
      const V scale = hn::Load(d, rstd + i);
      const V xhat = hn::Mul(hn::Sub(Get<kPrefetch>(x + i), hn::Load(d, mean + i)), scale);
      const V g = hn::MulSub(Get<kPrefetch>(dy + i), gain, hn::Load(d, sums + i));
      Put<kUseNtStores>(d, hn::Mul(hn::NegMulAdd(xhat, hn::Load(d, more + i), g), scale), out + i);
    });
  }
  if (kUseNtStores) hwy::FlushStream();
}

void NormalizePositions(const ChannelOperands& b, const ChannelTuning& tuning, int64_t sample,
                        int64_t begin, int64_t end, float* sums, float* terms) {
  WithTuning(tuning, [&](auto use_nt_stores, auto prefetch) HWY_ATTR {
    NormalizePositionsWith<use_nt_stores(), prefetch()>(b, sample, begin, end, sums, terms);
  });
}

int64_t LanesOfChannels() { return static_cast<int64_t>(hn::Lanes(D())); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::bench {
namespace {

HWY_EXPORT(SumOverRows);
HWY_EXPORT(WriteRows);
HWY_EXPORT(NormalizeChannels);
HWY_EXPORT(NormalizePositions);
HWY_EXPORT(LanesOfChannels);

// Number of blocks of rows or samples, each with its own partial sums.
constexpr int64_t kBlocks = 16;

// Memory that a contestant keeps between calls.
struct Memory {
  std::vector<float> mean, rstd;
  internal::AlignedArray<float> workspace;
};

void CallOnRows(const ChannelOperands& b, const ChannelTuning& tuning, float* workspace,
                const ParallelFor& parallel_for) {
  const int64_t n = b.channels, rows = b.samples;
  float* const coefficients = workspace + kBlocks * 2 * n;
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::fill_n(workspace + k * 2 * n, 2 * n, 0.f);
      HWY_DYNAMIC_DISPATCH(SumOverRows)
      (b, tuning, k * rows / kBlocks, (k + 1) * rows / kBlocks, workspace + k * 2 * n);
    }
  });
  for (int64_t c = 0; c < n; ++c) {
    float first = 0, second = 0;
    for (int64_t k = 0; k < kBlocks; ++k) {
      first += workspace[k * 2 * n + c];
      second += workspace[k * 2 * n + n + c];
    }
    const Coefficients channel = CoefficientsOf(b, c, first, second);
    coefficients[c] = channel.dy;
    coefficients[n + c] = channel.x;
    coefficients[2 * n + c] = channel.constant;
  }
  // Goes through the blocks in reverse, because the rows read last are still in a cache.
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = end - 1; k >= begin; --k) {
      HWY_DYNAMIC_DISPATCH(WriteRows)
      (b, tuning, k * rows / kBlocks, (k + 1) * rows / kBlocks, coefficients);
    }
  });
}

void CallOnChannels(const ChannelOperands& b, const ChannelTuning& tuning,
                    const ParallelFor& parallel_for) {
  const int64_t tiles = (b.channels + tuning.tile - 1) / tuning.tile;
  parallel_for(0, tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(NormalizeChannels)
      (b, tuning, t * tuning.tile, std::min(b.channels, (t + 1) * tuning.tile));
    }
  });
}

void CallOnPositions(const ChannelOperands& b, const ChannelTuning& tuning, float* workspace,
                     const ParallelFor& parallel_for) {
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(LanesOfChannels)();
  const int64_t size = 2 * b.channels * lanes, tiles = b.spatial / tuning.tile;
  float* const sums = workspace + kBlocks * size;
  // Each block of samples has its own partial sums of dgain and dbias, and space for those of a
  // tile.
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::fill_n(workspace + k * size, size, 0.f);
      for (int64_t s = k * b.samples / kBlocks; s < (k + 1) * b.samples / kBlocks; ++s) {
        for (int64_t t = 0; t < tiles; ++t) {
          HWY_DYNAMIC_DISPATCH(NormalizePositions)
          (b, tuning, s, t * tuning.tile, (t + 1) * tuning.tile, sums + k * 2 * b.spatial,
           workspace + k * size);
        }
      }
    }
  });
  for (int64_t c = 0; b.backward && c < b.channels; ++c) {
    b.dgain[c] = b.dbias[c] = 0;
    for (int64_t k = 0; k < kBlocks; ++k) {
      const float* partial = workspace + k * size + 2 * c * lanes;
      for (int64_t i = 0; i < lanes; ++i) {
        b.dgain[c] += partial[i];
        b.dbias[c] += partial[lanes + i];
      }
    }
  }
}

}  // namespace

Contestant MakeBareChannels(const std::string& method, const Case& c, const Arrays& arrays) {
  const bool batch = method == "batch", of_rows = batch && c.spatial == 1;
  if (!batch && method != "layer-channels") return {.absent = "has only norms over channels"};
  if (c.type != Type::kFloat) return {.absent = "takes only float"};
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(LanesOfChannels)();
  if ((of_rows ? c.cols : c.spatial) % lanes != 0) return {.absent = "takes only whole vectors"};
  ChannelOperands b{.samples = c.rows,
                    .channels = c.cols,
                    .spatial = c.spatial,
                    .x = static_cast<const float*>(arrays.x),
                    .dy = static_cast<const float*>(arrays.dy),
                    .gain = static_cast<const float*>(arrays.gain),
                    .bias = static_cast<const float*>(arrays.bias),
                    .mean = nullptr,
                    .rstd = nullptr,
                    .out = static_cast<float*>(arrays.out),
                    .dgain = static_cast<float*>(arrays.dgain),
                    .dbias = static_cast<float*>(arrays.dbias),
                    .backward = c.direction == Direction::kBackward};
  const auto memory = std::make_shared<Memory>();
  if (b.backward) {
    const int64_t groups = batch ? c.cols : c.rows * c.spatial;
    memory->mean.resize(groups);
    memory->rstd.resize(groups);
    FillStatistics(batch ? Over::kChannel : Over::kPosition, c, b.x, memory->mean.data(),
                   memory->rstd.data());
  }
  b.mean = memory->mean.data();
  b.rstd = memory->rstd.data();
  memory->workspace =
      internal::MakeAligned<float>(of_rows ? (2 * kBlocks + 3) * c.cols
                                   : batch ? 1
                                           : 2 * kBlocks * (c.cols * lanes + c.spatial));
  const auto call = [b, memory, batch, of_rows,
                     parallel_for = TorchThreads()](const ChannelTuning& tuning) {
    if (of_rows) {
      CallOnRows(b, tuning, memory->workspace.get(), parallel_for);
    } else if (batch) {
      CallOnChannels(b, tuning, parallel_for);
    } else {
      CallOnPositions(b, tuning, memory->workspace.get(), parallel_for);
    }
  };
  ChannelTuning fastest{};
  double fastest_seconds = std::numeric_limits<double>::infinity();
  const auto try_tuning = [&](const ChannelTuning& tuning) {
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      call(tuning);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (taken.count() >= fastest_seconds) continue;
      fastest_seconds = taken.count();
      fastest = tuning;
    }
  };
  std::vector<int64_t> tiles = {1};
  if (batch && !of_rows) tiles = {1, 2, 4, 16};
  if (!batch) {
    tiles = {c.spatial};
    for (const int64_t tile : {64, 256, 1024}) {
      if (tile % lanes == 0 && c.spatial % tile == 0) tiles.push_back(tile);
    }
  }
  for (const int64_t tile : tiles) {
    for (const bool use_nt_stores : {false, true}) {
      for (const bool prefetch : {false, true}) {
        try_tuning({.tile = tile, .use_nt_stores = use_nt_stores, .prefetch = prefetch});
      }
    }
  }
  return {.call = [call, fastest] { call(fastest); }};
}

}  // namespace planish::bench
#endif  // HWY_ONCE
