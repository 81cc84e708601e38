#include "lab/bench/alternate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

namespace planish::bench {

double SecondsOf(const std::function<void()>& call, int64_t count) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

namespace {

constexpr int kMinBlocks = 3;

// Calls of a block, and the seconds that they take.
struct Block {
  int64_t calls;
  double seconds;
};

// Returns a block of about `seconds`. Finding its size also warms up.
Block BlockOf(const std::function<void()>& call, double seconds) {
  for (int64_t count = 1;;) {
    const double taken = SecondsOf(call, count);
    if (taken >= seconds / 2) {
      const double once = taken / static_cast<double>(count);
      const int64_t calls = std::max<int64_t>(1, std::llround(seconds / once));
      return {calls, static_cast<double>(calls) * once};
    }
    count *= 4;
  }
}

}  // namespace

std::vector<double> Alternate(const std::vector<std::function<void()>>& calls, int blocks,
                              double seconds, double max_seconds) {
  std::vector<int64_t> counts;
  std::vector<size_t> order;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Block block = BlockOf(calls[i], seconds);
    counts.push_back(block.calls);
    const double affordable = std::max<double>(kMinBlocks, max_seconds / block.seconds);
    order.insert(order.end(), static_cast<size_t>(std::min<double>(blocks, affordable)), i);
  }
  std::shuffle(order.begin(), order.end(), std::mt19937(0));
  std::vector<double> best(calls.size(), INFINITY);
  for (const size_t i : order) {
    best[i] = std::min(best[i], SecondsOf(calls[i], counts[i]) / static_cast<double>(counts[i]));
  }
  return best;
}

}  // namespace planish::bench
