#ifndef PLANISH_SRC_NORM_CUDA_NUMBERS_H_
#define PLANISH_SRC_NORM_CUDA_NUMBERS_H_

#include <cstdint>
#include <type_traits>

#include "src/base/cuda.h"
#include "src/norm/cuda_rows.h"

// What the kernels of norms have in common: numbers read and written, and sums over the threads of
// a team.
namespace planish::internal::cuda {

template <class C>
PLANISH_DEVICE C Fused(C a, C b, C c) {
  if constexpr (std::is_same_v<C, float>) {
    return fmaf(a, b, c);
  } else {
    return fma(a, b, c);
  }
}

/// Numbers that a thread reads at once, where all arrays let it.
template <class T>
inline constexpr int kWholePack = 16 / static_cast<int>(sizeof(T));

/// Reads N numbers: one, or as many as 16 bytes hold.
template <int N, class T, class C>
PLANISH_DEVICE void ReadPack(const T* from, C* to) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
  PLANISH_UNROLL
  for (int i = 0; i < N; ++i) to[i] = ToCompute(pack.values[i]);
}

/// Writes them.
template <int N, class T, class C>
PLANISH_DEVICE void WritePack(const C* from, T* to) {
  if constexpr (N == 1) {
    *to = FromCompute<T>(*from);
  } else if constexpr (sizeof(T) == 2) {
    uint32_t words[4];
    PLANISH_UNROLL
    for (int i = 0; i < 4; ++i) {
      words[i] = FromCompute<T>(from[2 * i]).bits |
                 static_cast<uint32_t>(FromCompute<T>(from[2 * i + 1]).bits) << 16;
    }
    StoreWords(to, words);
  } else {
    Pack<T, N> pack;
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) pack.values[i] = from[i];
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

/// Number i of gains or biases; `none` where there are none.
template <class T, class C = Compute<T>>
PLANISH_DEVICE C ParamAt(const Params& params, int64_t i, C none) {
  if (params.data == nullptr) return none;
  return params.is_float ? static_cast<C>(static_cast<const float*>(params.data)[i])
                         : static_cast<C>(ToCompute(static_cast<const T*>(params.data)[i]));
}

/// Gradients of gains or biases, of type T or float; null: not asked for.
struct ParamGradients {
  void* data = nullptr;
  bool is_float = false;
};

template <class T>
PLANISH_DEVICE void SetParam(const ParamGradients& params, int64_t i, Compute<T> value) {
  if (params.data == nullptr) return;
  if (params.is_float) {
    static_cast<float*>(params.data)[i] = static_cast<float>(value);
  } else {
    static_cast<T*>(params.data)[i] = FromCompute<T>(value);
  }
}

PLANISH_DEVICE double NanOfDouble() { return static_cast<double>(FloatOfBits(0x7fc00000)); }
PLANISH_DEVICE bool IsFinite(double value) { return value - value == 0; }

/// Bytes of shared memory that SumOverTeam needs where a team is a block of `threads`.
constexpr int64_t TeamBytes(int team, int threads) {
  return team <= kWarpThreads ? 0 : 2 * (threads / kWarpThreads) * int64_t{sizeof(double)};
}

/// Both become their sums over the caller's team, a power of two of threads up to a warp's or all
/// of the block: the same bits in every thread. The block must meet in it.
PLANISH_DEVICE void SumOverTeam(int team, double& a, double& b) {
  const int width = team < kWarpThreads ? team : kWarpThreads;
  for (int mask = width / 2; mask > 0; mask /= 2) {
    a += XorLane(a, mask);
    b += XorLane(b, mask);
  }
  if (team <= kWarpThreads) return;
  double* slots = SharedMemory<double>();
  const int warp = ThreadIndex() / kWarpThreads, lane = ThreadIndex() % kWarpThreads;
  SyncBlock();  // others may still read what is there
  if (lane == 0) slots[2 * warp] = a, slots[2 * warp + 1] = b;
  SyncBlock();
  const bool has = lane < team / kWarpThreads;
  a = has ? slots[2 * lane] : 0;
  b = has ? slots[2 * lane + 1] : 0;
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    a += XorLane(a, mask);
    b += XorLane(b, mask);
  }
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_NUMBERS_H_
