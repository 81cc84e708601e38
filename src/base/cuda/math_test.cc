#include "src/base/cuda/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/target.h"
#include "src/base/simd/math_arrays.h"

// The functions of kernels, compiled for the host, have the bits of the CPU's, whose errors
// src/base/simd/math_test.cc bounds.
namespace planish::internal {
namespace {

template <class T>
struct Function {
  const char* name;
  T (*kernel)(T x);
  void (*array)(const T* x, int64_t n, T* y);
};

template <class T>
const Function<T> kFunctions[] = {
    {"sigmoid", [](T x) { return cuda::Sigmoid(x); }, SigmoidArray<T>},
    {"tanh", [](T x) { return cuda::Tanh(x); }, TanhArray<T>},
    {"softplus", [](T x) { return cuda::Softplus(x); }, SoftplusArray<T>},
};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

/// Returns random bit patterns, values with nontrivial results, and the limits.
template <class T>
std::vector<T> Samples() {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(1);
  std::vector<T> x = {0,
                      -T{0},
                      Limits::min(),
                      Limits::denorm_min(),
                      Limits::max(),
                      Limits::lowest(),
                      Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN()};
  for (int i = 0; i < 20000; ++i) x.push_back(std::bit_cast<T>(static_cast<BitsOf<T>>(random())));
  for (const T most : {T{1}, T{40}, T{800}}) {
    std::uniform_real_distribution<T> number(-most, most);
    for (int i = 0; i < 20000; ++i) x.push_back(number(random));
  }
  return x;
}

template <class T>
void ExpectBitsOfCpu() {
  const std::vector<T> x = Samples<T>();
  std::vector<T> expected(x.size());
  const std::string before = Target();
  for (const std::string& target : Targets()) {
    // These have no fused multiply-add, so their results can be rounded differently.
    if (target == "SSE4" || target == "SCALAR" || target == "EMU128") continue;
    SetTarget(target);
    for (const Function<T>& f : kFunctions<T>) {
      f.array(x.data(), static_cast<int64_t>(x.size()), expected.data());
      for (size_t i = 0; i < x.size(); ++i) {
        const T y = f.kernel(x[i]);
        const bool same = std::bit_cast<BitsOf<T>>(y) == std::bit_cast<BitsOf<T>>(expected[i]);
        ASSERT_TRUE(same || (std::isnan(y) && std::isnan(expected[i])))
            << f.name << " of " << x[i] << " is " << y << ", on " << target << ' ' << expected[i];
      }
    }
  }
  SetTarget(before);
}

TEST(CudaMathTest, FloatsHaveTheBitsOfTheCpu) { ExpectBitsOfCpu<float>(); }
TEST(CudaMathTest, DoublesHaveTheBitsOfTheCpu) { ExpectBitsOfCpu<double>(); }

}  // namespace
}  // namespace planish::internal
