// planish::layer_norm against at::layer_norm as a model calls them, alternating in one process:
// microseconds of forward, and of forward with backward. The results are checked first.
//   usage: layer_norm_bench [THREADS]

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "planish/torch.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kEps = 1e-5;
constexpr int kRounds = 60;
constexpr double kBlockSeconds = 5e-3;

struct Case {
  Case(int64_t rows, int64_t cols, at::ScalarType type)
      : x(at::randn({rows, cols}, at::kDouble).to(type)),
        weight(at::rand({cols}, at::kDouble).add(0.5).to(type)),
        bias(at::randn({cols}, at::kDouble).to(type)),
        dy(at::randn({rows, cols}, at::kDouble).to(type)) {
    for (at::Tensor* t : {&x, &weight, &bias}) t->requires_grad_(true);
  }
  at::Tensor x, weight, bias, dy;
};

at::Tensor Forward(bool planish, const Case& c) {
  return planish ? planish::layer_norm(c.x, {c.x.size(1)}, c.weight, c.bias, kEps)
                 : at::layer_norm(c.x, {c.x.size(1)}, c.weight, c.bias, kEps);
}

std::vector<at::Tensor> ForwardBackward(bool planish, const Case& c) {
  const at::Tensor y = Forward(planish, c);
  std::vector<at::Tensor> results = torch::autograd::grad({y}, {c.x, c.weight, c.bias}, {c.dy});
  results.push_back(y);
  return results;
}

// Seconds of a call: the least over blocks that alternate.
template <class F>
std::pair<double, double> Alternate(const F& f) {
  double best[2] = {INFINITY, INFINITY};
  int64_t calls = 1;
  for (int round = -3; round < kRounds; ++round) {  // three to warm up and to find `calls`
    for (const bool planish : {true, false}) {
      const Clock::time_point start = Clock::now();
      for (int64_t i = 0; i < calls; ++i) f(planish);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (round >= 0) {
        best[planish] = std::min(best[planish], seconds / static_cast<double>(calls));
      } else if (planish) {
        calls = std::max<int64_t>(
            1, static_cast<int64_t>(kBlockSeconds / seconds * static_cast<double>(calls)));
      }
    }
  }
  return {best[true], best[false]};
}

void Check(const Case& c) {
  Case exact(1, 1, at::kDouble);
  exact.x = c.x.detach().to(at::kDouble).requires_grad_(true);
  exact.weight = c.weight.detach().to(at::kDouble).requires_grad_(true);
  exact.bias = c.bias.detach().to(at::kDouble).requires_grad_(true);
  exact.dy = c.dy.to(at::kDouble);
  const std::vector<at::Tensor> expected = ForwardBackward(false, exact);
  for (const bool planish : {true, false}) {
    const std::vector<at::Tensor> results = ForwardBackward(planish, c);
    for (size_t i = 0; i < results.size(); ++i) {
      // Each result is a few products and sums of numbers near 1, or, for the two gradients over
      // rows, a sum of `rows` such; 16 units in the last place of its largest number.
      const double scale = expected[i].abs().max().item<double>();
      const double error = (results[i].to(at::kDouble) - expected[i]).abs().max().item<double>();
      if (!(error <= 16 * 0x1p-24 * scale)) {
        throw std::runtime_error(fmt::format(
            "[Check] result {} of {} at {} x {} must be within {:.1e} but has {:.1e}", i,
            planish ? "planish" : "at", c.x.size(0), c.x.size(1), 16 * 0x1p-24 * scale, error));
      }
    }
  }
}

void Run() {
  fmt::print("{:>12}  {:>34}  {:>34}\n", "", "forward, us", "forward and backward, us");
  fmt::print("{0:>12}  {1:>11}{2:>13}{3:>10}  {1:>11}{2:>13}{3:>10}\n", "rows x cols", "Planish",
             "at", "at/Pl.");
  for (const auto& [rows, cols] : {std::pair(128, 1000), std::pair(4, 1000)}) {
    const Case c(rows, cols, at::kFloat);
    Check(c);
    // Gradients are on in both: forward saves what backward needs.
    const auto forward = Alternate([&](bool planish) { Forward(planish, c); });
    const auto both = Alternate([&](bool planish) { ForwardBackward(planish, c); });
    fmt::print("{:>12}", fmt::format("{} x {}", rows, cols));
    for (const auto& [ours, theirs] : {forward, both})
      fmt::print("  {:>11.1f}{:>13.1f}{:>10.2f}", 1e6 * ours, 1e6 * theirs, theirs / ours);
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const int threads = argc == 2 ? std::atoi(argv[1]) : 0;
  if (argc > 2 || (argc == 2 && threads < 1)) {
    fmt::print(stderr, "usage: layer_norm_bench [THREADS]\n");
    return 2;
  }
  if (threads > 0) at::set_num_threads(threads);
  Run();
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "layer_norm_bench: {}\n", e.what());
  return 1;
}
