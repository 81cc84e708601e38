#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "lab/bench/contestants.h"
#include "lab/bench/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lab/bench/limits.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above.
#include <hwy/foreach_target.h>  // compiles the rest of this file once for each SIMD target
// Must follow the line above.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace planish::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors a step: enough for as many loads in flight as the memory can serve.
constexpr size_t kUnroll = 4;
// Prefetch distance in bytes: covers the latency of memory and stays within the next page.
constexpr size_t kPrefetchBytes = 4096;

// Writes `n` bytes of `a`, or of `a` xor `b` if `b` is given, to `to`. Xor needs both inputs and
// costs nothing. Addresses are aligned to a vector, because the parts begin on pages.
template <bool kTwoInputs, bool kUseNtStores>
HWY_INLINE void Move(const uint8_t* HWY_RESTRICT a, const uint8_t* HWY_RESTRICT b,
                     uint8_t* HWY_RESTRICT to, size_t n) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d), step = kUnroll * lanes;
  const auto load = [&](size_t i) HWY_ATTR {
    const auto v = hn::Load(d, a + i);
    if constexpr (kTwoInputs) {
      return hn::Xor(v, hn::Load(d, b + i));
    } else {
      return v;
    }
  };
  const auto store = [&](auto v, size_t i) HWY_ATTR {
    if constexpr (kUseNtStores) {
      hn::Stream(v, d, to + i);
    } else {
      hn::Store(v, d, to + i);
    }
  };
  size_t i = 0;
  for (; i + step <= n; i += step) {
    for (size_t line = 0; kUseNtStores && line < step; line += 64) {
      hwy::Prefetch(a + i + kPrefetchBytes + line);
      if constexpr (kTwoInputs) hwy::Prefetch(b + i + kPrefetchBytes + line);
    }
    const auto v0 = load(i), v1 = load(i + lanes), v2 = load(i + 2 * lanes),
               v3 = load(i + 3 * lanes);
    store(v0, i);
    store(v1, i + lanes);
    store(v2, i + 2 * lanes);
    store(v3, i + 3 * lanes);
  }
  for (; i < n; ++i) to[i] = static_cast<uint8_t>(kTwoInputs ? a[i] ^ b[i] : a[i]);
  if (kUseNtStores) hwy::FlushStream();
}

void Copy(const uint8_t* a, const uint8_t*, uint8_t* to, size_t n) {
  Move<false, false>(a, nullptr, to, n);
}
void CopyWithNtStores(const uint8_t* a, const uint8_t*, uint8_t* to, size_t n) {
  Move<false, true>(a, nullptr, to, n);
}
void Xor(const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n) {
  Move<true, false>(a, b, to, n);
}
void XorWithNtStores(const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n) {
  Move<true, true>(a, b, to, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::bench {
namespace {

HWY_EXPORT(Copy);
HWY_EXPORT(CopyWithNtStores);
HWY_EXPORT(Xor);
HWY_EXPORT(XorWithNtStores);

using Mover = void (*)(const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n);

// Copies with the C library, whose strategy can be better.
void Memcpy(const uint8_t* a, const uint8_t*, uint8_t* to, size_t n) { std::memcpy(to, a, n); }

struct Limit {
  const char* name;
  Direction direction;
  Mover mover;
};

const std::vector<Limit>& Limits() {
  static const std::vector<Limit> limits = {
      {"copy", Direction::kForward,
       [](const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n) {
         HWY_DYNAMIC_DISPATCH(Copy)(a, b, to, n);
       }},
      {"copy-non-temporal", Direction::kForward,
       [](const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n) {
         HWY_DYNAMIC_DISPATCH(CopyWithNtStores)(a, b, to, n);
       }},
      {"memcpy", Direction::kForward, Memcpy},
      {"three-streams", Direction::kBackward,
       [](const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n) {
         HWY_DYNAMIC_DISPATCH(Xor)(a, b, to, n);
       }},
      {"three-streams-non-temporal", Direction::kBackward,
       [](const uint8_t* a, const uint8_t* b, uint8_t* to, size_t n) {
         HWY_DYNAMIC_DISPATCH(XorWithNtStores)(a, b, to, n);
       }},
  };
  return limits;
}

constexpr int64_t kPage = 4096;
constexpr int64_t kGrainPages = 8;

}  // namespace

std::vector<std::string> LimitNames(Direction direction) {
  std::vector<std::string> names;
  for (const Limit& limit : Limits()) {
    if (limit.direction == direction) names.emplace_back(limit.name);
  }
  return names;
}

Contestant MakeLimit(const std::string& name, const Case& c, const Arrays& arrays) {
  const auto limit = std::ranges::find(Limits(), name, &Limit::name);
  if (limit == Limits().end() || limit->direction != c.direction) {
    throw std::invalid_argument("[MakeLimit] name must be a limit of the " +
                                std::string(Name(c.direction)) + " direction, got \"" + name +
                                "\"");
  }
  const int64_t bytes = c.elements() * static_cast<int64_t>(SizeOf(c.type));
  const auto* a = static_cast<const uint8_t*>(arrays.x);
  const auto* b = static_cast<const uint8_t*>(arrays.dy);
  auto* to = static_cast<uint8_t*>(arrays.out);
  return {.call = [=, mover = limit->mover, parallel_for = TorchThreads()] {
    parallel_for(0, (bytes + kPage - 1) / kPage, kGrainPages, [=](int64_t begin, int64_t end) {
      const int64_t first = begin * kPage, last = std::min(end * kPage, bytes);
      mover(a + first, b == nullptr ? nullptr : b + first, to + first,
            static_cast<size_t>(last - first));
    });
  }};
}

}  // namespace planish::bench
#endif  // HWY_ONCE
