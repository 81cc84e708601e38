#include "src/norm/fuzz.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/norm/testing.h"

#if defined(__SANITIZE_ADDRESS__)
#define PLANISH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLANISH_ASAN 1
#endif
#endif
#ifdef PLANISH_ASAN
// Declarations of sanitizer/asan_interface.h, which some installations lack.
extern "C" void __asan_poison_memory_region(const volatile void* address, size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* address, size_t size);
#endif

namespace planish::tests {
namespace {

void Require(bool right, const std::string& what) {
  if (!right) throw std::logic_error(what);
}

/// The fuzzer's bytes, followed by zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}

  /// Returns a value below `n`.
  uint32_t Below(uint32_t n) {
    uint32_t value = Next();
    if (n > 256) value = value << 8 | Next();
    if (n > 65536) value = value << 8 | Next();
    return value % n;
  }
  /// Returns true once in `n` times.
  bool OneIn(uint32_t n) { return Below(n) == n - 1; }

 private:
  uint8_t Next() { return data_ == end_ ? uint8_t{0} : *data_++; }

  const uint8_t* data_;
  const uint8_t* end_;
};

/// Array between two guard zones that must not be accessed.
class Guarded {
 public:
  Guarded(size_t bytes, size_t misaligned) : bytes_(bytes), start_(kGuard + misaligned) {
    memory_ = std::make_unique<unsigned char[]>(start_ + bytes + kGuard);
    std::memset(memory_.get(), kMark, start_ + bytes + kGuard);
  }
  ~Guarded() { Poison(false); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  unsigned char* data() { return memory_.get() + start_; }
  size_t bytes() const { return bytes_; }

  /// Keep() records the contents; Changed() compares with them.
  void Keep() { kept_.assign(data(), data() + bytes_); }
  bool Changed() { return !std::equal(kept_.begin(), kept_.end(), data()); }

  /// Makes reads of the guard zones an error under the address sanitizer.
  void Poison([[maybe_unused]] bool on) {
#ifdef PLANISH_ASAN
    if (on) {
      __asan_poison_memory_region(memory_.get(), start_);
      __asan_poison_memory_region(data() + bytes_, kGuard);
    } else {
      __asan_unpoison_memory_region(memory_.get(), start_ + bytes_ + kGuard);
    }
#endif
  }
  bool Intact() const {
    const auto marked = [](unsigned char byte) { return byte == kMark; };
    return std::all_of(memory_.get(), memory_.get() + start_, marked) &&
           std::all_of(memory_.get() + start_ + bytes_, memory_.get() + start_ + bytes_ + kGuard,
                       marked);
  }

 private:
  static constexpr size_t kGuard = 128;  // keeps the array aligned to 64 bytes or less
  static constexpr unsigned char kMark = 0xa5;

  size_t bytes_, start_;
  std::unique_ptr<unsigned char[]> memory_;
  std::vector<unsigned char> kept_;
};

/// Initial value of outputs: a NaN that arithmetic does not produce.
template <class E>
E Unwritten() {
  E value;
  std::memset(&value, 0xff, sizeof value);
  reinterpret_cast<unsigned char&>(value) = 0xa7;
  return value;
}
template <class E>
bool IsUnwritten(const E& value) {
  const E unwritten = Unwritten<E>();
  return std::memcmp(&value, &unwritten, sizeof value) == 0;
}

/// Runs three ranges, the last one first.
void InThree(int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
  const int64_t n = end - begin;
  for (int64_t i = 2; i >= 0; --i) task(begin + i * n / 3, begin + (i + 1) * n / 3);
}

template <class T, class P>
class Fuzz {
 public:
  using C = Compute<T>;

  explicit Fuzz(Bytes bytes) : bytes_(bytes) {}

  void Run() {
    norm_ = static_cast<Norm>(bytes_.OneIn(40) ? 8 + bytes_.Below(248) : bytes_.Below(8));
    affine_ = norm_ == Norm::kLayer || norm_ == Norm::kRms;
    Shape();
    options_.eps = Pick({1e-5, 1e-5, 0, 1e-12, 1, 1e30, -1, NAN, INFINITY}, 24);
    options_.scale = Pick({1, 1, 0, -2, 1e10, NAN, INFINITY}, 24);
    options_.slope = Pick({0.1, 0.1, 0, -3, 1e10, NAN, -INFINITY}, 24);
    if (bytes_.OneIn(2)) options_.parallel_for = InThree;
    Forward();
    Backward();
  }

 private:
  double Pick(std::initializer_list<double> values, uint32_t rarely) {
    // Favors the first half of the values.
    const auto n = static_cast<uint32_t>(values.size());
    return values.begin()[bytes_.Below(bytes_.OneIn(rarely) ? n : (n + 1) / 2)];
  }

  void Shape() {
    constexpr uint32_t kLimits[] = {4, 20, 70, 300, 5000};
    const uint32_t limit = bytes_.OneIn(200) ? 100000 : kLimits[bytes_.Below(5)];
    cols_ = bytes_.Below(limit);
    const auto max = 2 * limit / std::max<uint32_t>(1, static_cast<uint32_t>(cols_));
    rows_ = bytes_.Below(std::min(limit, max) + 1);
    valid_shape_ = !bytes_.OneIn(40);
    if (valid_shape_) return;
    constexpr int64_t kBad[] = {-1, INT64_MIN, INT64_MAX, int64_t{1} << 62};
    (bytes_.OneIn(2) ? rows_ : cols_) = kBad[bytes_.Below(4)];
  }

  /// Returns a stride, and in `wide` the actual distance of rows.
  int64_t Stride(int64_t* wide) {
    *wide = cols_;
    if (!bytes_.OneIn(4)) return bytes_.OneIn(2) ? cols_ : 0;
    const int64_t near = valid_shape_ ? cols_ : 8;  // cols can be arbitrary in invalid shapes
    if (bytes_.OneIn(8)) return bytes_.OneIn(2) ? -1 : near - 1;
    return *wide = near + bytes_.Below(20);
  }

  template <class E>
  E Number(uint32_t kind, int64_t i) {
    const double noise =
        (bytes_.Below(65536) - 32768.0) / 10000 + static_cast<double>((i * 7919) % 1000) / 500 - 1;
    switch (kind) {
      case 0:
      case 1:
      case 2:
        return FromDouble<E>(noise);
      case 3:
        return FromDouble<E>(noise + 1000);
      case 4:
        return FromDouble<E>(42);
      case 5:
        return FromDouble<E>(noise * std::exp2(static_cast<double>(i % 250) - 125));
      case 6:
        return FromDouble<E>(i % 97 == 3 ? NAN : i % 89 == 5 ? INFINITY : noise);
      default: {  // arbitrary bits
        E value;
        uint64_t bits = bytes_.Below(1 << 24);
        bits = bits << 40 ^ bits << 17 ^ bits ^ static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
        std::memcpy(&value, &bits, sizeof value);
        return value;
      }
    }
  }

  /// Allocates an array of a call, occasionally null or in an invalid place. For an invalid shape
  /// an address is enough.
  template <class E>
  E* Allocate(const char* name, int64_t rows, int64_t cols, int64_t stride, bool output,
              bool needed) {
    if (needed ? bytes_.OneIn(60) : bytes_.OneIn(3)) return nullptr;
    const auto others = static_cast<uint32_t>(arrays_.size() - first_of_call_);
    if (output && others > 0 && bytes_.OneIn(12)) {
      // Overlaps another array of the call, or replaces it.
      Guarded& other = *arrays_[first_of_call_ + bytes_.Below(others)];
      if (other.bytes() > 0) {
        size_t offset = 0;
        if (!bytes_.OneIn(2)) offset = bytes_.Below(100000) % other.bytes() / sizeof(E) * sizeof(E);
        return reinterpret_cast<E*>(other.data() + offset);
      }
    }
    const int64_t n = valid_shape_ && rows > 0 && cols > 0 ? (rows - 1) * stride + cols : 0;
    const size_t misaligned = bytes_.OneIn(80) ? 1 + bytes_.Below(3) : bytes_.Below(16) * sizeof(E);
    arrays_.push_back(std::make_unique<Guarded>(static_cast<size_t>(n) * sizeof(E), misaligned));
    Guarded& array = *arrays_.back();
    names_.push_back(name);
    const uint32_t kind = bytes_.Below(8);
    for (int64_t i = 0; i < n; ++i) {
      const E value = output ? Unwritten<E>() : Number<E>(kind, i);
      std::memcpy(array.data() + static_cast<size_t>(i) * sizeof(E), &value, sizeof(E));
    }
    return reinterpret_cast<E*>(array.data());
  }

  /// Makes the call and compares all arrays before and after. Returns whether it did not throw.
  template <class F>
  bool Call(const char* function, const std::vector<const void*>& outputs, F&& call) {
    for (auto& array : arrays_) array->Keep(), array->Poison(true);
    bool threw = false;
    try {
      call();
    } catch (const Error& error) {
      threw = true;
      const std::string text = error.what();
      Require(text.find(" must ") != std::string::npos &&
                  text.find(", got ") != std::string::npos && text[0] == '[',
              "unexpected form of error: " + text);
    }
    for (size_t i = 0; i < arrays_.size(); ++i) {
      Guarded& array = *arrays_[i];
      array.Poison(false);
      const std::string name = std::string(function) + ": " + names_[i];
      Require(array.Intact(), name + " was written outside its bounds");
      const bool output = std::ranges::find(outputs, array.data()) != outputs.end();
      Require((output && !threw) || !array.Changed(), name + " was written");
    }
    return !threw;
  }

  template <class E>
  void RequireWritten(const char* name, const E* data, int64_t rows, int64_t cols, int64_t stride) {
    if (data == nullptr || cols == 0) return;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        if (r == rows - 1 && c >= cols) break;
        Require(IsUnwritten(data[r * stride + c]) == (c >= cols),
                std::string(name) + (c < cols ? " was not written" : " was written between rows"));
      }
    }
  }

  void Forward() {
    int64_t x_wide, y_wide, residual_wide, sum_wide;
    NormForwardArgs<T, P>& a = forward_;
    a.rows = rows_;
    a.cols = cols_;
    a.x_stride = Stride(&x_wide);
    a.y_stride = Stride(&y_wide);
    a.residual_stride = Stride(&residual_wide);
    a.sum_stride = Stride(&sum_wide);
    a.x = Allocate<T>("x", rows_, cols_, x_wide, false, true);
    const bool params = affine_ || bytes_.OneIn(40);
    if (params) a.gain = Allocate<P>("gain", 1, cols_, cols_, false, false);
    if (params) a.bias = Allocate<P>("bias", 1, cols_, cols_, false, false);
    const bool residual = bytes_.OneIn(4);
    if (residual) a.residual = Allocate<T>("residual", rows_, cols_, residual_wide, false, true);
    a.y = Allocate<T>("y", rows_, cols_, y_wide, true, true);
    if (residual || bytes_.OneIn(60)) {
      a.sum = Allocate<T>("sum", rows_, cols_, sum_wide, true, true);
    }
    a.mean = Allocate<C>("mean", 1, rows_, rows_, true, false);
    a.mean_lo = Allocate<C>("mean_lo", 1, rows_, rows_, true, false);
    a.rstd = Allocate<C>("rstd", 1, rows_, rows_, true, false);
    // In place: x is overwritten.
    const bool in_place = a.x != nullptr && (a.y == a.x || a.sum == a.x || a.sum == a.residual);
    std::vector<T> x;
    if (valid_shape_ && a.x != nullptr && rows_ > 0 && cols_ > 0) {
      x.assign(a.x, a.x + (rows_ - 1) * x_wide + cols_);
    }
    const bool done = Call("NormForward", {a.y, a.sum, a.mean, a.mean_lo, a.rstd},
                           [&] { NormForward<T, P>(norm_, a, options_); });
    if (!done || rows_ == 0) return;
    if (!in_place) RequireWritten("y", a.y, rows_, cols_, y_wide);
    RequireWritten("mean", a.mean, 1, rows_, rows_);
    RequireWritten("mean_lo", a.mean_lo, 1, rows_, rows_);
    RequireWritten("rstd", a.rstd, 1, rows_, rows_);
    if (a.residual == nullptr) CheckRows(x, x_wide, y_wide);
  }

  void CheckRows(const std::vector<T>& x, int64_t x_wide, int64_t y_wide) {
    const NormForwardArgs<T, P>& a = forward_;
    const bool plain =
        a.gain == nullptr && a.bias == nullptr && norm_ != Norm::kAda && norm_ != Norm::kAdaAsCoded;
    for (int64_t r = 0; r < rows_; ++r) {
      bool finite = true, tame = true;
      for (int64_t c = 0; c < cols_; ++c) {
        const double value = std::abs(ToDouble(x[static_cast<size_t>(r * x_wide + c)]));
        finite = finite && std::isfinite(value);
        tame = tame && value < 1e15;
      }
      const double max = std::sqrt(static_cast<double>(cols_)) * 1.01;
      for (int64_t c = 0; c < cols_; ++c) {
        const double y = ToDouble(a.y[r * y_wide + c]);
        Require(finite || std::isnan(y), "y of a row that is not finite must be NaN");
        // xhat| is at most sqrt(cols); a tame row has a finite xhat.
        if (plain && tame && options_.eps > 0) {
          Require(std::abs(y) <= max, "xhat must be at most sqrt(cols)");
        }
      }
    }
  }

  void Backward() {
    first_of_call_ = arrays_.size();
    int64_t dy_wide, x_wide, dx_wide, dsum_wide;
    NormBackwardArgs<T, P> a;
    a.rows = rows_;
    a.cols = cols_;
    a.dy_stride = Stride(&dy_wide);
    a.x_stride = Stride(&x_wide);
    a.dx_stride = Stride(&dx_wide);
    a.dsum_stride = Stride(&dsum_wide);
    a.dy = Allocate<T>("dy", rows_, cols_, dy_wide, false, true);
    a.x = Allocate<T>("x of backward", rows_, cols_, x_wide, false, true);
    const bool params = affine_ || bytes_.OneIn(40);
    if (params) a.gain = Allocate<P>("gain of backward", 1, cols_, cols_, false, false);
    a.mean = Allocate<C>("mean of backward", 1, rows_, rows_, false, true);
    a.mean_lo = Allocate<C>("mean_lo of backward", 1, rows_, rows_, false, true);
    a.rstd = Allocate<C>("rstd of backward", 1, rows_, rows_, false, true);
    if (bytes_.OneIn(4)) a.dsum = Allocate<T>("dsum", rows_, cols_, dsum_wide, false, false);
    a.dx = Allocate<T>("dx", rows_, cols_, dx_wide, true, !bytes_.OneIn(4));
    if (params) a.dgain = Allocate<P>("dgain", 1, cols_, cols_, true, false);
    if (params) a.dbias = Allocate<P>("dbias", 1, cols_, cols_, true, false);
    const bool in_place = a.dx == a.dy;
    const bool done = Call("NormBackward", {a.dx, a.dgain, a.dbias},
                           [&] { NormBackward<T, P>(norm_, a, options_); });
    if (!done) return;
    if (!in_place) RequireWritten("dx", a.dx, rows_, cols_, dx_wide);
    RequireWritten("dgain", a.dgain, 1, cols_, cols_);
    RequireWritten("dbias", a.dbias, 1, cols_, cols_);
  }

  Bytes bytes_;
  Norm norm_ = Norm::kLayer;
  bool affine_ = true, valid_shape_ = true;
  int64_t rows_ = 0, cols_ = 0;
  NormOptions options_;
  NormForwardArgs<T, P> forward_;
  std::vector<std::unique_ptr<Guarded>> arrays_;
  std::vector<std::string> names_;
  size_t first_of_call_ = 0;
};

}  // namespace

void FuzzNorm(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  switch (bytes.Below(7)) {
    case 0:
      return Fuzz<float, float>(bytes).Run();
    case 1:
      return Fuzz<double, double>(bytes).Run();
    case 2:
      return Fuzz<double, float>(bytes).Run();
    case 3:
      return Fuzz<bfloat16, bfloat16>(bytes).Run();
    case 4:
      return Fuzz<bfloat16, float>(bytes).Run();
    case 5:
      return Fuzz<float16, float16>(bytes).Run();
    default:
      return Fuzz<float16, float>(bytes).Run();
  }
}

}  // namespace planish::tests
