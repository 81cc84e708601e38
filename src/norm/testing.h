#ifndef PLANISH_SRC_NORM_TESTING_H_
#define PLANISH_SRC_NORM_TESTING_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/target.h"
#include "src/base/tuning.h"
#include "src/norm/recipe.h"

// Problems with random values, and results and names of calls, for tests, the fuzzer and the
// accuracy tool. Also ways to run a call: on each SIMD target, with split work, with non-temporal
// stores.
namespace planish::tests {

template <class T>
struct Name;
template <>
struct Name<float> {
  static constexpr const char* kText = "float";
};
template <>
struct Name<double> {
  static constexpr const char* kText = "double";
};
template <>
struct Name<bfloat16> {
  static constexpr const char* kText = "bfloat16";
};
template <>
struct Name<float16> {
  static constexpr const char* kText = "float16";
};

inline constexpr auto kNorms = [] {
  std::array<Norm, std::size(internal::kNormNames)> norms{};
  for (size_t i = 0; i < norms.size(); ++i) norms[i] = internal::kNormNames[i].norm;
  return norms;
}();
using internal::NameOf;

inline bool IsAffine(Norm norm) {
  return internal::RecipeOf(norm).output == internal::Output::kAffine;
}

/// Return the value in a type that holds every element type.
inline double ToDouble(double value) { return value; }
inline double ToDouble(float value) { return value; }
inline double ToDouble(int8_t value) { return value; }
inline double ToDouble(bfloat16 value) { return ToFloat(value); }
inline double ToDouble(float16 value) { return ToFloat(value); }

/// Rounds to the nearest T; 16-bit types are rounded twice, through float.
template <class T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return ToBfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, float16>) {
    return ToFloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

/// Returns half the distance from 1 to the next value: the largest relative rounding error.
template <class T>
constexpr double UnitRoundoff() {
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, float16>) return 0x1p-11;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  return 0x1p-53;
}

/// Returns half the smallest positive value: the largest error of rounding to a subnormal.
template <class T>
constexpr double HalfOfLeast() {
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-134;
  if constexpr (std::is_same_v<T, float16>) return 0x1p-25;
  if constexpr (std::is_same_v<T, float>) return 0x1p-150;
  return 0;  // 2^-1075 underflows
}

/// Returns the initial value of outputs, which exposes unwritten elements.
template <class T>
T Unset() {
  return FromDouble<T>(std::numeric_limits<double>::quiet_NaN());
}

template <class T>
bool IsNan(T value) {
  return std::isnan(ToDouble(value));
}

/// Returns whether the arrays have the same bits, NaNs and signs of zero included.
template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(&a[0], &b[0], a.size() * sizeof(T)) == 0);
}

/// Returns normally distributed values, rounded to T. Independent of the standard library, whose
/// distributions differ.
template <class T>
std::vector<T> Normal(int64_t n, std::mt19937& random, double mean = 0, double deviation = 1) {
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) {
    const double u = (static_cast<double>(random()) + 0.5) * 0x1p-32;
    const double v = static_cast<double>(random()) * 0x1p-32;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    value = FromDouble<T>(mean + deviation * normal);
  }
  return values;
}

/// Returns null for an empty array.
template <class T>
const T* OrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

/// Outputs of both directions of a norm.
template <class T, class P = T>
struct Outputs {
  using C = Compute<T>;

  /// Outputs of `n` elements, with `statistics` statistics and `params` parameters.
  Outputs(int64_t n, int64_t statistics, int64_t params)
      : y(static_cast<size_t>(n), Unset<T>()),
        dx(y),
        mean(static_cast<size_t>(statistics), Unset<C>()),
        mean_lo(mean),
        rstd(mean),
        dgain(static_cast<size_t>(params), Unset<P>()),
        dbias(dgain) {}

  /// Returns the name of an output whose bits differ, or "".
  std::string DiffersIn(const Outputs& other) const {
    if (!SameBits(y, other.y)) return "y";
    if (!SameBits(dx, other.dx)) return "dx";
    if (!SameBits(mean, other.mean)) return "mean";
    if (!SameBits(mean_lo, other.mean_lo)) return "mean_lo";
    if (!SameBits(rstd, other.rstd)) return "rstd";
    if (!SameBits(dgain, other.dgain)) return "dgain";
    if (!SameBits(dbias, other.dbias)) return "dbias";
    return "";
  }

  std::vector<T> y, dx;
  std::vector<C> mean, mean_lo, rstd;
  std::vector<P> dgain, dbias;
};

/// Inputs of both directions of a norm of rows. Empty `gain` and `bias` mean null.
template <class T, class P = T>
struct Problem {
  Problem(Norm n, int64_t r, int64_t c, double mean = 0, double deviation = 1, uint32_t seed = 1)
      : norm(n), rows(r), cols(c) {
    std::mt19937 random(static_cast<uint32_t>(seed + 1000 * rows + cols));
    x = Normal<T>(rows * cols, random, mean, deviation);
    dy = Normal<T>(rows * cols, random);
    if (!IsAffine(norm)) return;
    gain = Normal<P>(cols, random);
    bias = Normal<P>(cols, random);
  }

  NormOptions Options(const ParallelFor& parallel_for = {}) const {
    return {.eps = eps, .scale = scale, .slope = slope, .parallel_for = parallel_for};
  }

  /// Replaces gain and bias by `s` parameter sets.
  void SetSets(int64_t s, int64_t consecutive_rows) {
    sets = s;
    set_rows = consecutive_rows;
    if (!IsAffine(norm)) return;
    std::mt19937 random(static_cast<uint32_t>(rows + cols + s));
    gain = Normal<P>(sets * cols, random);
    bias = Normal<P>(sets * cols, random);
  }

  Norm norm;
  int64_t rows, cols, sets = 1, set_rows = 0;
  double eps = 1e-5, scale = 1.5, slope = 0.1;
  std::vector<T> x, dy;
  std::vector<P> gain, bias;
};

template <class T, class P = T>
struct Result : Outputs<T, P> {
  explicit Result(const Problem<T, P>& p)
      : Outputs<T, P>(p.rows * p.cols, p.rows, p.sets * p.cols) {}
};

/// Return the common arguments of a problem's calls, without sizes.
template <class Args, class Inputs, class Out>
Args ForwardArrays(const Inputs& p, Out& out) {
  Args args;
  args.x = p.x.data();
  args.gain = OrNull(p.gain);
  args.bias = OrNull(p.bias);
  args.y = out.y.data();
  args.mean = out.mean.data();
  args.mean_lo = out.mean_lo.data();
  args.rstd = out.rstd.data();
  return args;
}
template <class Args, class Inputs, class Out>
Args BackwardArrays(const Inputs& p, Out& out) {
  Args args;
  args.dy = p.dy.data();
  args.x = p.x.data();
  args.gain = OrNull(p.gain);
  args.mean = out.mean.data();
  args.mean_lo = out.mean_lo.data();
  args.rstd = out.rstd.data();
  args.dx = out.dx.data();
  args.dgain = out.dgain.data();
  args.dbias = out.dbias.data();
  return args;
}

template <class T, class P>
NormForwardArgs<T, P> ForwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  auto args = ForwardArrays<NormForwardArgs<T, P>>(p, out);
  args.rows = p.rows;
  args.cols = p.cols;
  args.sets = p.sets;
  args.set_rows = p.set_rows;
  return args;
}

template <class T, class P>
NormBackwardArgs<T, P> BackwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  auto args = BackwardArrays<NormBackwardArgs<T, P>>(p, out);
  args.rows = p.rows;
  args.cols = p.cols;
  args.sets = p.sets;
  args.set_rows = p.set_rows;
  if (!IsAffine(p.norm)) args.dgain = args.dbias = nullptr;
  return args;
}

/// Runs forward, then backward.
template <class T, class P>
Result<T, P> Apply(const Problem<T, P>& p, const ParallelFor& parallel_for = {}) {
  Result<T, P> out(p);
  NormForward<T, P>(p.norm, ForwardArgs(p, out), p.Options(parallel_for));
  NormBackward<T, P>(p.norm, BackwardArgs(p, out), p.Options(parallel_for));
  return out;
}

/// Calls f with each SIMD target of this machine in use; afterwards the best one is in use.
template <class F>
void ForEachTarget(F&& f) {
  const std::string before = Target();
  for (const std::string& target : Targets()) {
    SetTarget(target);
    f(target);
  }
  SetTarget(before);
}

/// Forces non-temporal stores during its lifetime.
class NtStores {
 public:
  NtStores()
      : tuning_(internal::TuningFor(internal::MachineCaches(),
                                    "nt_store_call_bytes=0,nt_store_saved_bytes=0")) {}

 private:
  internal::ScopedTuning tuning_;
};

/// Returns a ParallelFor that runs `parts` ranges one after another, starting in the middle; with
/// fewer indices some are empty. Counts its calls.
inline ParallelFor SplitIn(int64_t parts, int* calls) {
  return [parts, calls](int64_t begin, int64_t end, int64_t grain, RangeTask task) {
    ++*calls;
    if (grain < 1) throw std::logic_error("the grain is less than 1");
    const int64_t n = end - begin;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t part = (i * 2 + parts / 2) % parts;  // visits each part once if `parts` is odd
      const int64_t at = parts % 2 ? part : parts - 1 - i;
      task(begin + at * n / parts, begin + (at + 1) * n / parts);
    }
  };
}

/// Returns whether these are the long tests (PLANISH_LONG_TESTS, set by `make test-long`).
inline bool AreLongTests() { return std::getenv("PLANISH_LONG_TESTS") != nullptr; }

/// Returns the thread counts that tests of equal bits compare: 2 and 7; in the long tests 1 and 3
/// as well.
inline std::vector<int> ThreadCounts() {
  return AreLongTests() ? std::vector{1, 2, 3, 7} : std::vector{2, 7};
}

/// Returns a ParallelFor that runs `parts` ranges concurrently, each on its own thread.
inline ParallelFor OnThreads(int64_t parts) {
  return [parts](int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
    std::vector<std::thread> threads;
    const int64_t n = end - begin;
    for (int64_t i = 0; i < parts; ++i) {
      threads.emplace_back([=] { task(begin + i * n / parts, begin + (i + 1) * n / parts); });
    }
    for (std::thread& thread : threads) thread.join();
  };
}

/// Returns the text of the Error that `call` throws, or "".
template <class F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Returns the widths at which kernels are compared with the reference. They are all widths up to
/// four vectors of 16 lanes, and those around the limits of kernels.
inline std::vector<int64_t> Widths() {
  std::vector<int64_t> widths;
  for (int64_t c = 1; c <= 67; ++c) widths.push_back(c);
  for (const int64_t c :
       {127, 128, 129, 255, 256, 257, 768, 769, 1000, 1023, 1024, 1025, 4095, 4096, 4097, 65537}) {
    widths.push_back(c);
  }
  return widths;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_TESTING_H_
