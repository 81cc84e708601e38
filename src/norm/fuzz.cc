#include "src/norm/fuzz.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/norm.h"
#include "src/norm/arguments.h"
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

constexpr unsigned char kUnwrittenByte = 0xa7;

/// Initial value of outputs: a NaN that arithmetic does not produce from inputs without its byte.
template <class E>
E Unwritten() {
  E value;
  std::memset(&value, 0xff, sizeof value);
  reinterpret_cast<unsigned char&>(value) = kUnwrittenByte;
  return value;
}
template <class E>
bool IsUnwritten(const E& value) {
  const E unwritten = Unwritten<E>();
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are compared
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
    const bool valid_norm = !bytes_.OneIn(40);
    norm_ = static_cast<Norm>(valid_norm ? bytes_.Below(8) : 8 + bytes_.Below(248));
    recipe_ = internal::RecipeOf(valid_norm ? norm_ : Norm::kLayer);
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
        if ((bits & 0xff) == kUnwrittenByte) bits ^= 1;  // NaNs keep the byte in results
        std::memcpy(&value, &bits, sizeof value);
        return value;
      }
    }
  }

  /// Sets the shape, the strides and the arrays of a call, some of them to invalid values.
  template <class Args>
  void SetArguments(Args& args) {
    args.rows = rows_;
    args.cols = cols_;
    if constexpr (requires { args.sets; }) SetSets(args);
    if constexpr (requires { args.gate_before_norm; }) args.gate_before_norm = bytes_.OneIn(2);
    if constexpr (requires { args.cast_before_gain; }) args.cast_before_gain = bytes_.OneIn(4);
    first_of_call_ = arrays_.size();
    outputs_.clear();
    bool decided[24] = {};
    for (const bool last_pass : {false, true}) {  // some arrays can be given only with others
      size_t next = 0;
      const auto set = [&]<class E>(const internal::Argument<Args, E>& argument) {
        bool& done = decided[next++];
        const bool must_be_null = argument.presence.null_reason != nullptr;
        if (done || (must_be_null && !last_pass)) return;
        done = true;
        int64_t wide = argument.extent.cols;
        if (argument.stride) args.*argument.stride = Stride(&wide);
        const bool given = must_be_null                 ? bytes_.OneIn(40)
                           : argument.presence.required ? !bytes_.OneIn(60)
                                                        : bytes_.OneIn(2);
        if (!given) return;
        auto* data = Allocate<std::remove_const_t<E>>(argument.name, argument.extent, wide,
                                                      /*output=*/!std::is_const_v<E>);
        args.*argument.member = data;
        if (!std::is_const_v<E>) outputs_.push_back(data);
      };
      internal::ForEachArgument(args, set, recipe_);
    }
  }

  /// Gives a call several parameter sets, sometimes a number that does not divide its rows.
  template <class Args>
  void SetSets(Args& args) {
    if (!valid_shape_ || !bytes_.OneIn(4)) return;
    args.sets = bytes_.OneIn(2) ? std::max<int64_t>(1, rows_) : 1 + bytes_.Below(4);
    args.set_rows = bytes_.OneIn(2) ? 1 : bytes_.OneIn(2) ? 0 : rows_ / args.sets;
  }

  /// Allocates an array of a call, occasionally in an invalid place. For an invalid shape an
  /// address is enough.
  template <class E>
  E* Allocate(const char* name, internal::Extent extent, int64_t stride, bool output) {
    const auto [rows, cols] = extent;
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
  bool Call(const char* function, F&& call) {
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
      const bool output = std::ranges::find(outputs_, array.data()) != outputs_.end();
      Require((output && !threw) || !array.Changed(), name + " was written");
    }
    return !threw;
  }

  /// Requires that a call wrote all outputs, except in place of inputs, and nothing between rows.
  template <class Args>
  void RequireWritten(const Args& args) {
    const auto require = [&]<class E>(const internal::Argument<Args, E>& argument) {
      const auto& [rows, cols] = argument.extent;
      const E* data = args.*argument.member;
      const bool in_place = argument.in_place[0] == data || argument.in_place[1] == data;
      if (std::is_const_v<E> || data == nullptr || in_place) return;
      const int64_t stride = StrideOf(args, argument);
      for (int64_t i = 0; rows > 0 && cols > 0 && i < (rows - 1) * stride + cols; ++i) {
        const bool inside = i % stride < cols;
        if (inside && sizeof(E) == 1) continue;  // any byte can be a result
        Require(IsUnwritten(data[i]) != inside,
                std::string(argument.name) +
                    (inside ? " was not written" : " was written between rows"));
      }
    };
    internal::ForEachArgument(args, require, recipe_);
  }

  template <class Args, class E>
  static int64_t StrideOf(const Args& args, const internal::Argument<Args, E>& argument) {
    const int64_t stride = argument.stride ? args.*argument.stride : 0;
    return stride == 0 ? argument.extent.cols : stride;
  }

  void Forward() {
    NormForwardArgs<T, P> args;
    SetArguments(args);
    const int64_t x_stride = args.x_stride == 0 ? cols_ : args.x_stride;
    std::vector<T> x;  // outputs can replace it
    if (valid_shape_ && args.x != nullptr && rows_ > 0 && cols_ > 0 && x_stride >= cols_) {
      x.assign(args.x, args.x + (rows_ - 1) * x_stride + cols_);
    }
    const bool done = Call("NormForward", [&] { NormForward<T, P>(norm_, args, options_); });
    if (!done || rows_ == 0) return;
    RequireWritten(args);
    if (args.residual != nullptr) return;
    if (args.quantized != nullptr) CheckQuantized(args, x, x_stride);
    if (args.y != nullptr) CheckRows(args, x, x_stride);
  }

  void CheckQuantized(const NormForwardArgs<T, P>& args, const std::vector<T>& x,
                      int64_t x_stride) {
    const int64_t stride = args.quantized_stride == 0 ? cols_ : args.quantized_stride;
    for (int64_t r = 0; r < rows_ && cols_ > 0; ++r) {
      bool finite = true;
      for (int64_t c = 0; c < cols_; ++c) {
        finite = finite && std::isfinite(ToDouble(x[static_cast<size_t>(r * x_stride + c)]));
      }
      const auto scale = args.row_scale[r];
      Require(finite || std::isnan(scale), "row_scale of a row that is not finite must be NaN");
      Require(std::isnan(scale) || (scale >= 0 && std::isfinite(scale)),
              "row_scale must be finite");
      int max = 0;
      for (int64_t c = 0; c < cols_; ++c)
        max = std::max(max, std::abs(args.quantized[r * stride + c]));
      Require(max == (scale > 0 ? 127 : 0),
              "the largest of a row must be 127, or 0 without a scale");
    }
  }

  void CheckRows(const NormForwardArgs<T, P>& args, const std::vector<T>& x, int64_t x_stride) {
    const int64_t y_stride = args.y_stride == 0 ? cols_ : args.y_stride;
    const bool plain = args.gain == nullptr && args.bias == nullptr && args.gate == nullptr &&
                       recipe_.output != internal::Output::kAdaptive;
    for (int64_t r = 0; r < rows_; ++r) {
      bool finite = true, tame = true;
      for (int64_t c = 0; c < cols_; ++c) {
        const double value = std::abs(ToDouble(x[static_cast<size_t>(r * x_stride + c)]));
        finite = finite && std::isfinite(value);
        tame = tame && value < 1e15;
      }
      const double max = std::sqrt(static_cast<double>(cols_)) * 1.01;
      for (int64_t c = 0; c < cols_; ++c) {
        const double y = ToDouble(args.y[r * y_stride + c]);
        Require(finite || std::isnan(y), "y of a row that is not finite must be NaN");
        // |xhat| is at most sqrt(cols); a tame row has a finite xhat.
        if (plain && tame && options_.eps > 0) {
          Require(std::abs(y) <= max, "xhat must be at most sqrt(cols)");
        }
      }
    }
  }

  void Backward() {
    NormBackwardArgs<T, P> args;
    SetArguments(args);
    if (Call("NormBackward", [&] { NormBackward<T, P>(norm_, args, options_); })) {
      RequireWritten(args);
    }
  }

  Bytes bytes_;
  Norm norm_ = Norm::kLayer;
  internal::Recipe recipe_ = {};
  bool valid_shape_ = true;
  int64_t rows_ = 0, cols_ = 0;
  NormOptions options_;
  std::vector<std::unique_ptr<Guarded>> arrays_;
  std::vector<std::string> names_;
  size_t first_of_call_ = 0;          // index of its first array
  std::vector<const void*> outputs_;  // of the call
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
