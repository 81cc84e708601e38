#include "bench/gemm/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/gemm/limits.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above.
#include <hwy/foreach_target.h>  // compiles the rest of this file once for each SIMD target
// Must follow the line above.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace planish::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

constexpr int64_t kRounds = 20000;
constexpr int64_t kChains = 12;  // more than twice the latency of a multiply-add at two a cycle

int64_t Operations() { return 2 * kRounds * kChains * static_cast<int64_t>(hn::Lanes(D())); }

float Multiply() {
  const D d;
  const auto half = hn::Set(d, 0.5f);
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  auto b0 = half, b1 = half, b2 = half, b3 = half, b4 = half, b5 = half;
  for (int64_t i = 0; i < kRounds; ++i) {
    a0 = hn::MulAdd(a0, half, half);
    a1 = hn::MulAdd(a1, half, half);
    a2 = hn::MulAdd(a2, half, half);
    a3 = hn::MulAdd(a3, half, half);
    a4 = hn::MulAdd(a4, half, half);
    a5 = hn::MulAdd(a5, half, half);
    b0 = hn::MulAdd(b0, half, half);
    b1 = hn::MulAdd(b1, half, half);
    b2 = hn::MulAdd(b2, half, half);
    b3 = hn::MulAdd(b3, half, half);
    b4 = hn::MulAdd(b4, half, half);
    b5 = hn::MulAdd(b5, half, half);
#if defined(__GNUC__) && HWY_ARCH_X86
    // Hides from the compiler that the chains are equal.
    asm volatile("" : "+v"(a0.raw), "+v"(a1.raw), "+v"(a2.raw), "+v"(a3.raw), "+v"(a4.raw));
    asm volatile("" : "+v"(a5.raw), "+v"(b0.raw), "+v"(b1.raw), "+v"(b2.raw), "+v"(b3.raw));
    asm volatile("" : "+v"(b4.raw), "+v"(b5.raw));
#endif
  }
  const auto a = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto b = hn::Add(hn::Add(hn::Add(b0, b1), hn::Add(b2, b3)), hn::Add(b4, b5));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

float Sum(const float* data, int64_t n) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t quarter = n / 4 / lanes * lanes;
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (int64_t i = 0; i < quarter; i += lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, data + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, data + quarter + i));
    sum2 = hn::Add(sum2, hn::LoadU(d, data + 2 * quarter + i));
    sum3 = hn::Add(sum3, hn::LoadU(d, data + 3 * quarter + i));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::bench {
namespace {

HWY_EXPORT(Operations);
HWY_EXPORT(Multiply);
HWY_EXPORT(Sum);

}  // namespace

int64_t OperationsOfMultiplications() { return HWY_DYNAMIC_DISPATCH(Operations)(); }
float Multiplications() { return HWY_DYNAMIC_DISPATCH(Multiply)(); }
float Read(const float* data, int64_t n) { return HWY_DYNAMIC_DISPATCH(Sum)(data, n); }

}  // namespace planish::bench
#endif  // HWY_ONCE
