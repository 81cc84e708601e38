#include "lab/model/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <mutex>

namespace planish::lab {

namespace {

// Elements that the generator fills from one start. Determines the masks of a seed, and the
// smallest unit of work of a thread.
constexpr int64_t kBlock = 4096;
// Parallel generators, vectorized on any SIMD target. Each step gives each four 16-bit values.
constexpr int64_t kLanes = 8;
constexpr int64_t kStep = kLanes * 4;

uint64_t SplitMix(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Fills the noise of one block: 0 if 16 random bits are below `threshold`, else `kept`.
void FillBlock(uint64_t seed, int32_t threshold, float kept, float* noise, int64_t count) {
  // xorshift128+ (Vigna 2017): shifts, exclusive ors and additions, which all SIMD targets have.
  std::array<uint64_t, kLanes> a, b;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    a[lane] = SplitMix(&seed);
    b[lane] = SplitMix(&seed);
  }
  for (int64_t begin = 0; begin < count; begin += kStep) {
    std::array<uint64_t, kLanes> sums;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      uint64_t x = a[lane];
      const uint64_t y = b[lane];
      a[lane] = y;
      x ^= x << 23;
      b[lane] = x ^ y ^ (x >> 18) ^ (y >> 5);
      sums[lane] = b[lane] + y;
    }
    const auto bits = std::bit_cast<std::array<int16_t, kStep>>(sums);
    const int64_t n = std::min(kStep, count - begin);
    if (n == kStep) {
      for (int64_t i = 0; i < kStep; ++i) noise[begin + i] = bits[i] < threshold ? 0 : kept;
    } else {
      for (int64_t i = 0; i < n; ++i) noise[begin + i] = bits[i] < threshold ? 0 : kept;
    }
  }
}

// Returns the factors of dropout: 0 with probability `rate`, else 1 / (1 - rate).
at::Tensor Noise(const at::Tensor& x, double rate) {
  const auto dropped = static_cast<int32_t>(std::lround(rate * 65536));
  if (dropped == 65536) return at::zeros_like(x);
  const float kept = static_cast<float>(65536.0 / (65536 - dropped));
  const int32_t threshold = dropped - 32768;  // of signed values

  uint64_t seed = 0;
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    seed = generator.get<at::CPUGeneratorImpl>()->random64();
  }
  const bool on_cpu = x.is_cpu();
  at::Tensor noise = at::empty(x.sizes(), at::TensorOptions(at::kFloat).pinned_memory(!on_cpu));
  float* out = noise.data_ptr<float>();
  const int64_t count = noise.numel();
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, /*grain_size=*/8, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      uint64_t state = seed ^ static_cast<uint64_t>(block);
      const uint64_t start = SplitMix(&state);
      const int64_t begin = block * kBlock;
      FillBlock(start, threshold, kept, out + begin, std::min(kBlock, count - begin));
    }
  });
  return noise.to(x.options(), /*non_blocking=*/!on_cpu);
}

}  // namespace

at::Tensor Dropout(const at::Tensor& x, double rate, bool training) {
  return training && rate > 0 ? at::mul(x, Noise(x, rate)) : x;
}

at::Tensor AddDropout(const at::Tensor& residual, const at::Tensor& x, double rate, bool training) {
  return training && rate > 0 ? at::addcmul(residual, x, Noise(x, rate)) : at::add(residual, x);
}

}  // namespace planish::lab
