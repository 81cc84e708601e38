// Compares the packed GEMM with at::mm, which gets unpacked weights, and with the machine's limits:
// multiply-adds in registers and, for single rows, a read of the weights. Checks results first.
//   usage: gemm_bench [THREADS [BLOCKS [SECONDS]]]
//            threads (both 1 and 2); blocks of calls of each contestant, of which the fastest
//            counts (20); seconds of a block (0.01)

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/base/number.h"
#include "bench/gemm/limits.h"
#include "lab/bench/alternate.h"
#include "lab/bench/threads.h"
#include "src/base/simd/gemm.h"

namespace planish::bench {
namespace {

struct Effort {
  int blocks = 20;
  double seconds = 0.01;
};

struct Shape {
  int64_t m, n, k;
};

constexpr int64_t kBatches[] = {1, 8, 32, 64, 128, 3200};
constexpr Shape kWeights[] = {{0, 1024, 256}, {0, 1600, 400}, {0, 2048, 512}, {0, 1024, 1024}};

// Throws if c differs from a * b, [rows, depth] by [depth, cols], by more than `depth` roundings.
void Check(const char* name, const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor magnitude = at::mm(a.abs().to(at::kDouble), b.abs().to(at::kDouble));
  const double roundings = static_cast<double>(a.size(1)) + 1;
  const double worst =
      ((c.to(at::kDouble) - exact).abs() / (magnitude * roundings * 0x1p-24)).max().item<double>();
  if (!(worst <= 1.01)) {
    throw std::runtime_error(
        fmt::format("the result of {} is off by {} of its bound", name, worst));
  }
}

struct Contest {
  double operations;
  std::function<void()> planish, aten;
  const float* weights;
  int64_t weights_read;
};

void Time(const std::string& title, int threads, const Contest& contest, const Effort& effort) {
  const ParallelFor parallel_for = TorchThreads();
  volatile float sink = 0;
  std::vector<std::function<void()>> calls = {contest.planish, contest.aten, [&] {
                                                parallel_for(0, threads, 1,
                                                             [&](int64_t begin, int64_t end) {
                                                               for (int64_t i = begin; i < end; ++i)
                                                                 sink = Multiplications();
                                                             });
                                              }};
  if (contest.weights != nullptr) {
    calls.emplace_back([&] {
      const int64_t n = contest.weights_read;
      parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
        sink = Read(contest.weights + n * begin / threads, n * end / threads - n * begin / threads);
      });
    });
  }
  const std::vector<double> seconds = Alternate(calls, effort.blocks, effort.seconds);
  const double planish = contest.operations / seconds[0], aten = contest.operations / seconds[1];
  const double peak = static_cast<double>(threads * OperationsOfMultiplications()) / seconds[2];
  fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.2f} | {:.2f} |", threads, title, planish * 1e-9,
             aten * 1e-9, planish / aten, planish / peak);
  if (contest.weights != nullptr) {
    const double bytes = 4 * static_cast<double>(contest.weights_read);
    fmt::print(" {:.1f} | {:.2f} |\n", bytes / seconds[0] * 1e-9, seconds[3] / seconds[0]);
  } else {
    fmt::print(" | |\n");
  }
  std::fflush(stdout);
}

void TimeProduct(const Shape& shape, int threads, const Effort& effort) {
  const auto [m, n, k] = shape;
  const at::Tensor a = at::randn({m, k}), w = at::randn({n, k});
  at::Tensor c = at::zeros({m, n}), aten_c = at::zeros({m, n});
  const ParallelFor parallel_for = TorchThreads();
  internal::PackedMatrix<float> packed;
  packed.Pack({.data = w.const_data_ptr<float>(), .n = n, .k = k, .stride = k}, parallel_for);
  const internal::GemmArgs<float> args{.rows = m,
                                       .a = a.const_data_ptr<float>(),
                                       .a_stride = k,
                                       .c = c.data_ptr<float>(),
                                       .c_stride = n};
  const at::Tensor w_transposed = w.t();
  const Contest contest{
      .operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
      .planish = [&] { internal::MultiplyAll(args, packed, parallel_for); },
      .aten = [&] { at::mm_out(aten_c, a, w_transposed); },
      .weights = m == 1 ? static_cast<const float*>(packed.data()) : nullptr,
      .weights_read = n * k};
  contest.planish();
  Check("planish", c, a, w_transposed);
  contest.aten();
  Check("at::mm", aten_c, a, w_transposed);
  Time(fmt::format("{} x {} x {}", m, n, k), threads, contest, effort);
}

void TimeGradient(const Shape& shape, int threads, const Effort& effort) {
  const auto [m, n, k] = shape;
  const at::Tensor a = at::randn({m, n}), b = at::randn({m, k});
  at::Tensor c = at::zeros({n, k}), aten_c = at::zeros({n, k});
  const ParallelFor parallel_for = TorchThreads();
  internal::PackedMatrix<float> scratch;
  const internal::GemmTransposedArgs<float> args{.m = m,
                                                 .n = n,
                                                 .k = k,
                                                 .a = a.const_data_ptr<float>(),
                                                 .a_stride = n,
                                                 .b = b.const_data_ptr<float>(),
                                                 .b_stride = k,
                                                 .c = c.data_ptr<float>(),
                                                 .c_stride = k};
  const at::Tensor a_transposed = a.t();
  const Contest contest{
      .operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
      .planish = [&] { internal::MultiplyTransposed(args, scratch, parallel_for); },
      .aten = [&] { at::mm_out(aten_c, a_transposed, b); },
      .weights = nullptr,
      .weights_read = 0};
  contest.planish();
  Check("planish", c, a_transposed, b);
  contest.aten();
  Check("at::mm", aten_c, a_transposed, b);
  Time(fmt::format("gradient, {} x {} x {}", m, n, k), threads, contest, effort);
}

void Run(const std::vector<int>& all_threads, const Effort& effort) {
  const c10::InferenceMode inference;  // no version counters
  fmt::print(
      "| threads | M x N x K | planish GF/s | at::mm GF/s | planish / at::mm | of the peak | GB/s "
      "| of a read |\n|---|---|---|---|---|---|---|---|\n");
  for (const int threads : all_threads) {
    at::set_num_threads(threads);
    for (const Shape& w : kWeights) {
      for (const int64_t m : kBatches) TimeProduct({m, w.n, w.k}, threads, effort);
    }
    TimeProduct({2048, 2048, 2048}, threads, effort);
    for (const Shape& w : kWeights) TimeGradient({3200, w.n, w.k}, threads, effort);
  }
}

}  // namespace
}  // namespace planish::bench

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<int> threads = {1, 2};
  planish::bench::Effort effort;
  if (!arguments.empty()) threads.resize(1);
  if (arguments.size() > 3 ||
      (!arguments.empty() && !planish::bench::ParsePositive(arguments[0], threads[0])) ||
      (arguments.size() > 1 && !planish::bench::ParsePositive(arguments[1], effort.blocks)) ||
      (arguments.size() > 2 && !planish::bench::ParsePositive(arguments[2], effort.seconds))) {
    fmt::print(stderr, "usage: gemm_bench [THREADS [BLOCKS [SECONDS]]]\n");
    return 2;
  }
  planish::bench::Run(threads, effort);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "gemm_bench: %s\n", e.what());
  return 1;
}
