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
#include <hwy/foreach_target.h>  // compiles the rest of this file once for each SIMD target
// foreach_target must be first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "src/norm/vector-inl.h"

#ifndef PLANISH_BENCH_NORM_BARE_CHANNELS_CC_
#define PLANISH_BENCH_NORM_BARE_CHANNELS_CC_
namespace planish::bench {

// Arrays of [samples, channels, spatial]. Backward has mean and rstd for each channel (batch norm)
// or each position.
struct BareChannels {
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

// Coefficients of a channel's results in batch norm: dy * (dy's coefficient) + x * (x's) + the
// rest.
struct ChannelNumbers {
  float dy, x, rest;
};

// Returns the coefficients from a channel's sums: forward of x and x^2, backward of dy and dy * x,
// which also give its dgain and dbias.
inline ChannelNumbers NumbersOf(const BareChannels& b, int64_t c, float first, float second) {
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

// Parameters of a call. The fastest ones depend on the machine and are found by trial.
struct BareWay {
  int64_t tile;  // positions or channels processed at a time
  bool stream;   // uses non-temporal stores
  bool ask;      // prefetches inputs 4 KB ahead
};

}  // namespace planish::bench
#endif  // PLANISH_BENCH_NORM_BARE_CHANNELS_CC_

HWY_BEFORE_NAMESPACE();
namespace planish::bench {
namespace HWY_NAMESPACE {

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
    const auto of = [&](const V(&v)[4]) HWY_ATTR {
      return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]))));
    };
    sums[0] += of(first);
    sums[1] += of(second);
  }
};

// Returns the vector at `at`.
template <bool kAsk>
HWY_INLINE V Get(const float* at) {
  if constexpr (kAsk) __builtin_prefetch(reinterpret_cast<const char*>(at) + 4096, 0, 2);
  return hn::Load(D(), at);
}

// Calls f(i, chain) for each vector of n elements.
template <class F>
HWY_INLINE void ForVectors(int64_t n, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t i = 0, chain = 0; i < n; i += lanes, ++chain) f(i, chain & 3);
}

// --- Batch norm of rows: channels are contiguous ---

// Adds the terms of rows [begin, end) to two sums[channels].
template <bool kAsk>
void SumDownOf(const BareChannels& b, int64_t begin, int64_t end, float* sums) {
  const D d;
  float* const more = sums + b.channels;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = b.x + r * b.channels;
    if (!b.backward) {
      ForVectors(b.channels, [&](int64_t c, int64_t) HWY_ATTR {
        const V v = Get<kAsk>(x + c);
        AddTo(v, sums + c);
        hn::Store(hn::MulAdd(v, v, hn::Load(d, more + c)), d, more + c);
      });
    } else {
      const float* dy = b.dy + r * b.channels;
      ForVectors(b.channels, [&](int64_t c, int64_t) HWY_ATTR {
        const V v = Get<kAsk>(dy + c);
        AddTo(v, sums + c);
        hn::Store(hn::MulAdd(v, Get<kAsk>(x + c), hn::Load(d, more + c)), d, more + c);
      });
    }
  }
}

// Computes rows [begin, end): forward x * a + c, backward dy * a + x * b + c, by channel.
template <bool kStream, bool kAsk>
void MapDownOf(const BareChannels& b, int64_t begin, int64_t end, const float* numbers) {
  const D d;
  const float *first = numbers, *second = first + b.channels, *third = second + b.channels;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = b.x + r * b.channels;
    const float* dy = b.dy + (b.backward ? r * b.channels : 0);
    float* out = b.out + r * b.channels;
    ForVectors(b.channels, [&](int64_t c, int64_t) HWY_ATTR {
      const V last = hn::Load(d, third + c);
      const V v = hn::MulAdd(Get<kAsk>(x + c), hn::Load(d, second + c), last);
      Put<kStream>(d, b.backward ? hn::MulAdd(Get<kAsk>(dy + c), hn::Load(d, first + c), v) : v,
                   out + c);
    });
  }
  if (kStream) hwy::FlushStream();
}

void SumDown(const BareChannels& b, const BareWay& way, int64_t begin, int64_t end, float* sums) {
  way.ask ? SumDownOf<true>(b, begin, end, sums) : SumDownOf<false>(b, begin, end, sums);
}

// Calls f(stream, ask) with the parameters of `way`.
template <class F>
HWY_INLINE void Visit(const BareWay& way, const F& f) {
  const auto with = [&](auto stream) HWY_ATTR {
    way.ask ? f(stream, std::true_type()) : f(stream, std::false_type());
  };
  way.stream ? with(std::true_type()) : with(std::false_type());
}

void MapDown(const BareChannels& b, const BareWay& way, int64_t begin, int64_t end,
             const float* numbers) {
  Visit(way, [&](auto stream, auto ask)
                 HWY_ATTR { MapDownOf<stream(), ask()>(b, begin, end, numbers); });
}

// --- Batch norm of contiguous positions ---

// Maximum number of channels that RunsOf processes together.
constexpr int64_t kMaxChannels = 16;

template <bool kStream, bool kAsk>
void RunsOf(const BareChannels& b, int64_t begin, int64_t end) {
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
          const V v = Get<kAsk>(x + i);
          run.first[chain] = hn::Add(run.first[chain], v);
          run.second[chain] = hn::MulAdd(v, v, run.second[chain]);
        });
      } else {
        const float* dy = b.dy + at(s, c);
        ForVectors(n, [&](int64_t i, int64_t chain) HWY_ATTR {
          const V v = Get<kAsk>(dy + i);
          run.first[chain] = hn::Add(run.first[chain], v);
          run.second[chain] = hn::MulAdd(v, Get<kAsk>(x + i), run.second[chain]);
        });
      }
      run.Total(sums[c - begin]);
    }
  }
  V numbers[kMaxChannels][3];
  for (int64_t c = begin; c < end; ++c) {
    V(&number)[3] = numbers[c - begin];
    const ChannelNumbers of = NumbersOf(b, c, sums[c - begin][0], sums[c - begin][1]);
    number[0] = hn::Set(d, of.dy);
    number[1] = hn::Set(d, of.x);
    number[2] = hn::Set(d, of.rest);
  }
  for (int64_t s = 0; s < b.samples; ++s) {
    for (int64_t c = begin; c < end; ++c) {
      const V(&number)[3] = numbers[c - begin];
      const float* x = b.x + at(s, c);
      const float* dy = b.backward ? b.dy + at(s, c) : nullptr;
      float* out = b.out + at(s, c);
      ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
        const V v = hn::MulAdd(Get<kAsk>(x + i), number[1], number[2]);
        Put<kStream>(d, b.backward ? hn::MulAdd(Get<kAsk>(dy + i), number[0], v) : v, out + i);
      });
    }
  }
  if (kStream) hwy::FlushStream();
}

void Runs(const BareChannels& b, const BareWay& way, int64_t begin, int64_t end) {
  Visit(way, [&](auto stream, auto ask) HWY_ATTR { RunsOf<stream(), ask()>(b, begin, end); });
}

// --- Layer norm over channels ---

// Computes positions [begin, end) of a sample. `sums` has two values for each of them, `terms` two
// vectors for each channel, to which dgain and dbias are added.
template <bool kStream, bool kAsk>
void PositionsOf(const BareChannels& b, int64_t sample, int64_t begin, int64_t end, float* sums,
                 float* terms) {
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
        const V v = Get<kAsk>(x + i);
        AddTo(v, sums + i);
        hn::Store(hn::MulAdd(v, v, hn::Load(d, more + i)), d, more + i);
      });
      continue;
    }
    const float* dy = b.dy + first + c * b.spatial;
    const V gain = hn::Set(d, b.gain[c]);
    V dgain = hn::Load(d, terms + 2 * c * lanes), dbias = hn::Load(d, terms + (2 * c + 1) * lanes);
    ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
      const V v = Get<kAsk>(dy + i);
      const V xhat =
          hn::Mul(hn::Sub(Get<kAsk>(x + i), hn::Load(d, mean + i)), hn::Load(d, rstd + i));
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
            hn::Mul(hn::Sub(Get<kAsk>(x + i), hn::Load(d, sums + i)), hn::Load(d, more + i));
        Put<kStream>(d, hn::MulAdd(xhat, gain, bias), out + i);
      });
      continue;
    }
    const float* dy = b.dy + first + c * b.spatial;
    ForVectors(n, [&](int64_t i, int64_t) HWY_ATTR {
      const V scale = hn::Load(d, rstd + i);
      const V xhat = hn::Mul(hn::Sub(Get<kAsk>(x + i), hn::Load(d, mean + i)), scale);
      const V g = hn::MulSub(Get<kAsk>(dy + i), gain, hn::Load(d, sums + i));
      Put<kStream>(d, hn::Mul(hn::NegMulAdd(xhat, hn::Load(d, more + i), g), scale), out + i);
    });
  }
  if (kStream) hwy::FlushStream();
}

void Positions(const BareChannels& b, const BareWay& way, int64_t sample, int64_t begin,
               int64_t end, float* sums, float* terms) {
  Visit(way, [&](auto stream, auto ask)
                 HWY_ATTR { PositionsOf<stream(), ask()>(b, sample, begin, end, sums, terms); });
}

int64_t LanesOfChannels() { return static_cast<int64_t>(hn::Lanes(D())); }

}  // namespace HWY_NAMESPACE
}  // namespace planish::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::bench {
namespace {

HWY_EXPORT(SumDown);
HWY_EXPORT(MapDown);
HWY_EXPORT(Runs);
HWY_EXPORT(Positions);
HWY_EXPORT(LanesOfChannels);

constexpr int64_t kBlocks = 16;  // of rows, each with its own partial sums

// Memory that a contestant keeps between calls.
struct Kept {
  std::vector<float> mean, rstd;
  internal::AlignedArray<float> work;
};

void CallDown(const BareChannels& b, const BareWay& way, float* work,
              const ParallelFor& parallel_for) {
  const int64_t n = b.channels, rows = b.samples;
  float* const numbers = work + kBlocks * 2 * n;
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::fill_n(work + k * 2 * n, 2 * n, 0.f);
      HWY_DYNAMIC_DISPATCH(SumDown)
      (b, way, k * rows / kBlocks, (k + 1) * rows / kBlocks, work + k * 2 * n);
    }
  });
  for (int64_t c = 0; c < n; ++c) {
    float first = 0, second = 0;
    for (int64_t k = 0; k < kBlocks; ++k) {
      first += work[k * 2 * n + c];
      second += work[k * 2 * n + n + c];
    }
    const ChannelNumbers of = NumbersOf(b, c, first, second);
    numbers[c] = of.dy;
    numbers[n + c] = of.x;
    numbers[2 * n + c] = of.rest;
  }
  // Each block's rows in reverse, because the last rows read are still in a cache.
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = end - 1; k >= begin; --k) {
      HWY_DYNAMIC_DISPATCH(MapDown)
      (b, way, k * rows / kBlocks, (k + 1) * rows / kBlocks, numbers);
    }
  });
}

void CallRuns(const BareChannels& b, const BareWay& way, const ParallelFor& parallel_for) {
  const int64_t tiles = (b.channels + way.tile - 1) / way.tile;
  parallel_for(0, tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(Runs)
      (b, way, t * way.tile, std::min(b.channels, (t + 1) * way.tile));
    }
  });
}

void CallPositions(const BareChannels& b, const BareWay& way, float* work,
                   const ParallelFor& parallel_for) {
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(LanesOfChannels)();
  const int64_t size = 2 * b.channels * lanes, tiles = b.spatial / way.tile;
  float* const sums = work + kBlocks * size;
  // Each block of samples has its own partial sums of dgain and dbias, and space for those of a
  // tile.
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::fill_n(work + k * size, size, 0.f);
      for (int64_t s = k * b.samples / kBlocks; s < (k + 1) * b.samples / kBlocks; ++s) {
        for (int64_t t = 0; t < tiles; ++t) {
          HWY_DYNAMIC_DISPATCH(Positions)
          (b, way, s, t * way.tile, (t + 1) * way.tile, sums + k * 2 * b.spatial, work + k * size);
        }
      }
    }
  });
  for (int64_t c = 0; b.backward && c < b.channels; ++c) {
    b.dgain[c] = b.dbias[c] = 0;
    for (int64_t k = 0; k < kBlocks; ++k) {
      const float* of = work + k * size + 2 * c * lanes;
      for (int64_t i = 0; i < lanes; ++i) b.dgain[c] += of[i], b.dbias[c] += of[lanes + i];
    }
  }
}

}  // namespace

Contestant MakeBareChannels(const std::string& method, const Case& c, const Arrays& arrays) {
  const bool batch = method == "batch", down = batch && c.spatial == 1;
  if (!batch && method != "layer-channels") return {.absent = "it is not over channels"};
  if (c.type != Type::kFloat) return {.absent = "it takes float"};
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(LanesOfChannels)();
  if ((down ? c.cols : c.spatial) % lanes != 0) return {.absent = "it takes whole vectors"};
  BareChannels b{.samples = c.rows,
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
  const auto kept = std::make_shared<Kept>();
  if (b.backward) {
    const int64_t groups = batch ? c.cols : c.rows * c.spatial;
    kept->mean.resize(groups);
    kept->rstd.resize(groups);
    FillMoments(batch ? Over::kChannel : Over::kPosition, c, b.x, kept->mean.data(),
                kept->rstd.data());
  }
  b.mean = kept->mean.data();
  b.rstd = kept->rstd.data();
  kept->work = internal::MakeAligned<float>(down    ? (2 * kBlocks + 3) * c.cols
                                            : batch ? 1
                                                    : 2 * kBlocks * (c.cols * lanes + c.spatial));
  const auto call = [b, kept, batch, down, parallel_for = TorchThreads()](const BareWay& way) {
    if (down) {
      CallDown(b, way, kept->work.get(), parallel_for);
    } else if (batch) {
      CallRuns(b, way, parallel_for);
    } else {
      CallPositions(b, way, kept->work.get(), parallel_for);
    }
  };
  BareWay best{};
  double least = std::numeric_limits<double>::infinity();
  const auto try_out = [&](const BareWay& way) {
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      call(way);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (taken.count() >= least) continue;
      least = taken.count();
      best = way;
    }
  };
  std::vector<int64_t> tiles = {1};
  if (batch && !down) tiles = {1, 2, 4, 16};
  if (!batch) {
    tiles = {c.spatial};
    for (const int64_t tile : {64, 256, 1024}) {
      if (tile % lanes == 0 && c.spatial % tile == 0) tiles.push_back(tile);
    }
  }
  for (const int64_t tile : tiles) {
    for (const bool stream : {false, true}) {
      for (const bool ask : {false, true}) {
        try_out({.tile = tile, .stream = stream, .ask = ask});
      }
    }
  }
  return {.call = [call, best] { call(best); }};
}

}  // namespace planish::bench
#endif  // HWY_ONCE
