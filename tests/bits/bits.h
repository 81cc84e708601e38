#ifndef PLANISH_TESTS_BITS_BITS_H_
#define PLANISH_TESTS_BITS_BITS_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "planish/rnn.h"
#include "planish/types.h"
#include "src/rnn/cell.h"

// Common parts of planish_bits and planish_torch_bits: inputs, hashes, and the comparison with a
// file.
namespace planish::bits {

/// Random values by splitmix64, the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

  /// Returns a value in [-1, 1).
  double Uniform() { return static_cast<double>(static_cast<int64_t>(Next()) >> 11) * 0x1p-52; }

 private:
  uint64_t state_;
};

template <class T>
T From(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) return ToBfloat16(static_cast<float>(value));
  if constexpr (std::is_same_v<T, float16>) return ToFloat16(static_cast<float>(value));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
}

/// Returns the bits of a value. Every NaN has the same: an instruction with two NaN operands
/// returns the first one, and compilers choose which is first.
inline uint64_t Bits(float value) {
  return value != value ? ~0ULL : std::bit_cast<uint32_t>(value);
}
inline uint64_t Bits(double value) {
  return value != value ? ~0ULL : std::bit_cast<uint64_t>(value);
}
inline uint64_t Bits(bfloat16 v) { return (v.bits & 0x7fff) > 0x7f80 ? ~0ULL : v.bits; }
inline uint64_t Bits(float16 v) { return (v.bits & 0x7fff) > 0x7c00 ? ~0ULL : v.bits; }
inline uint64_t Bits(int64_t value) { return static_cast<uint64_t>(value); }

/// FNV-1a over elements instead of bytes, in four lanes, which a processor computes together. The
/// shift makes high bits change low ones.
class Hash {
 public:
  template <class T>
  void Add(const T* values, size_t count) {
    uint64_t lanes[4] = {value_, value_ + 1, value_ + 2, value_ + 3};
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) Mix(lanes[lane], Bits(values[i + lane]));
    }
    for (; i < count; ++i) Mix(lanes[0], Bits(values[i]));
    for (const uint64_t lane : lanes) Mix(value_, lane);
  }
  uint64_t value() const { return value_; }

 private:
  static void Mix(uint64_t& value, uint64_t bits) {
    value = (value ^ bits) * 0x100000001b3;
    value ^= value >> 32;
  }

  uint64_t value_ = 0xcbf29ce484222325;
};

/// Allocates memory aligned to a cache line, as some paths depend on alignment.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  LineAllocator() = default;
  template <class U>
  explicit LineAllocator(const LineAllocator<U>& /*other*/) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* memory, size_t /*n*/) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};

/// An array that starts `offset` elements after a cache line. Its elements, and some after them,
/// start with a fixed value, so that a hash also shows stray and missing writes.
template <class T>
class Array {
 public:
  explicit Array(int64_t count, int64_t offset = 0)
      : memory_(static_cast<size_t>(offset + count + 8), From<T>(-0.171875)),
        offset_(offset),
        count_(count) {}

  T* data() { return memory_.data() + offset_; }
  const T* data() const { return memory_.data() + offset_; }
  int64_t size() const { return count_; }
  void AddTo(Hash& hash) const { hash.Add(memory_.data(), memory_.size()); }

 private:
  std::vector<T, LineAllocator<T>> memory_;
  int64_t offset_, count_;
};

/// Arrays with one hash.
template <class T>
class Arrays {
 public:
  T* Unset(int64_t count) { return arrays_.emplace_back(count).data(); }
  T* Uniform(Random& random, int64_t count, double scale = 1, double mean = 0) {
    T* values = Unset(count);
    for (int64_t i = 0; i < count; ++i) values[i] = From<T>(mean + scale * random.Uniform());
    return values;
  }
  void AddTo(Hash& hash) const {
    for (const Array<T>& array : arrays_) array.AddTo(hash);
  }

 private:
  std::deque<Array<T>> arrays_;
};

/// A cell of the core's table.
struct CellInfo {
  explicit CellInfo(const internal::NamedCell& named)
      : name(named.name), cell(named.cell), recipe(internal::RecipeOf(cell)) {}

  bool lstm() const { return recipe.is_lstm(); }
  bool over_batch() const { return recipe.over == internal::Over::kBatch; }

  const char* name;
  Cell cell;
  internal::CellRecipe recipe;
};

/// A parameter of a layer, and how its random values are drawn.
struct Param {
  size_t index;     ///< in internal::ParamsOf
  int64_t size;     ///< in elements
  int64_t columns;  ///< of a weight matrix; 0 for a vector
  double mean;      ///< 1 for the gain of a norm
};

/// Returns the parameters of a cell, in the order of the core's table.
inline std::vector<Param> ParamsOf(const CellInfo& info, const RnnShape& shape) {
  std::vector<Param> params;
  const auto table = internal::ParamsOf<const float>(info.recipe, shape);
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string name = table[i].name;
    const int64_t columns = name == "weight_ih"   ? shape.inputs
                            : name == "weight_hh" ? shape.hidden
                                                  : 0;
    const bool is_gain = columns == 0 && name.ends_with("_weight");
    if (table[i].taken) params.push_back({i, table[i].size, columns, is_gain ? 1.0 : 0.0});
  }
  return params;
}

/// The cases of a program. Hashes each for all targets and numbers of threads, and prints or
/// compares the hashes.
class Report {
 public:
  struct Machine {
    std::vector<std::string> targets;
    std::function<void(const std::string&)> set_target;
    std::function<void(int)> set_threads;
    std::function<void(size_t)> set_tuning = {};  ///< sets one of several cache sizes, or is empty
  };

  explicit Report(Machine machine) : machine_(std::move(machine)) {}

  /// Calls f(hash), which must compute a case without changing its inputs. Calls it on 1, 2 and 3
  /// threads, in an order that rotates with the cases, or twice on one thread unless `on_threads`.
  /// Each call has another tuning.
  template <class F>
  void Case(const std::string& name, F&& f, bool on_threads = true) {
    for (const std::string& target : machine_.targets) {
      const std::string full = target.empty() ? name : name + " " + target;
      machine_.set_target(target);
      uint64_t expected = 0;
      for (int i = 0; i < (on_threads ? 3 : 2); ++i) {
        const int turn = static_cast<int>(hashes_.size() % 3) + i;
        machine_.set_threads(on_threads ? 1 + turn % 3 : 1);
        if (machine_.set_tuning) machine_.set_tuning(hashes_.size() / 3 + static_cast<size_t>(i));
        Hash hash;
        f(hash);
        if (i == 0) expected = hash.value();
        if (hash.value() != expected) Differ(full, "has other results when it is repeated");
      }
      if (!hashes_.emplace(full, expected).second) Differ(full, "is the name of two cases");
    }
  }

  /// Prints all hashes, or compares them with a file. Returns the exit status.
  int Finish(int argc, char** argv) {
    if (argc == 3 && std::string(argv[1]) == "--compare") {
      Compare(argv[2]);
    } else {
      for (const auto& [name, hash] : hashes_) {
        std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(hash));
      }
    }
    if (hashes_.empty()) Differ("planish_bits", "has no cases");
    return std::fflush(stdout) == 0 && differences_ == 0 ? 0 : 1;
  }

  static bool Understands(int argc, char** argv) {
    if (argc == 1 || (argc == 3 && std::string(argv[1]) == "--compare")) return true;
    std::fprintf(stderr, "usage: %s > FILE | %s --compare FILE\n", argv[0], argv[0]);
    return false;
  }

 private:
  void Differ(const std::string& name, const char* how) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), how);
    ++differences_;
  }

  void Compare(const char* path) {
    std::ifstream file(path);
    int64_t compared = 0;
    std::map<std::string, uint64_t> rest = hashes_;
    for (std::string line; std::getline(file, line);) {
      const size_t space = line.rfind(' ');
      const auto found = rest.find(line.substr(0, space));
      if (space == std::string::npos || found == rest.end()) {
        Differ(line, "is only in the file");
        continue;
      }
      char hash[17];
      std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(found->second));
      if (line.substr(space + 1) != hash) Differ(found->first, "differs");
      rest.erase(found);
      ++compared;
    }
    if (compared == 0) return Differ(path, "has none of the cases");
    for (const auto& [name, hash] : rest) Differ(name, "is not in the file");
    std::printf("%lld cases compared, %lld differences\n", static_cast<long long>(compared),
                static_cast<long long>(differences_));
  }

  Machine machine_;
  std::map<std::string, uint64_t> hashes_;
  int64_t differences_ = 0;
};

}  // namespace planish::bits

#endif  // PLANISH_TESTS_BITS_BITS_H_
