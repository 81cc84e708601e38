#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/error.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/parallel.h"
#include "planish/rnn.h"
#include "planish/target.h"
#include "planish/weight_norm.h"

namespace planish {
namespace {

/// Runs `task` on another thread, where an exception would end the program.
void RunOnThread(int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
  std::thread([&] { task(begin, end); }).join();
}

void Normalize() {
  constexpr int64_t kRows = 4, kCols = int64_t{1} << 15;  // enough to be split
  std::vector<float> x(kRows * kCols, 1.f), y(x.size());
  for (size_t i = 1; i < x.size(); i += 2) x[i] = 3;
  NormForward<float>(Norm::kLayer, {.rows = kRows, .cols = kCols, .x = x.data(), .y = y.data()},
                     {.eps = 0, .parallel_for = RunOnThread});
  std::printf("%s %d %g\n", Target().c_str(), Threads(), static_cast<double>(y[1]));
}

/// Prints for each function whether it throws and whether it has written its output then.
void CallEach() {
  const float x[] = {1, 3}, ones[] = {1, 1};
  float y[2] = {}, dgain[2] = {}, state[1] = {};
  OnlineState online;
  const RnnShape shape = {.time = 2, .batch = 1, .inputs = 1, .hidden = 1};
  const RnnParams<const float> params = {.weight_ih = ones, .weight_hh = ones};
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"NormForward",
       [&] { NormForward<float>(Norm::kRms, {.rows = 1, .cols = 2, .x = x, .y = y}); }},
      {"NormBackward",
       [&] {
         NormBackward<float>(
             Norm::kRms,
             {.rows = 1, .cols = 2, .dy = x, .x = x, .rstd = ones, .dx = y, .dgain = dgain});
       }},
      {"ChannelNormForward",
       [&] {
         ChannelNormForward<float>(Norm::kLayer, {.batch = 1, .channels = 2, .x = x, .y = y});
       }},
      {"ChannelNormBackward",
       [&] {
         ChannelNormBackward<float>(
             Norm::kRms, {.batch = 1, .channels = 2, .dy = x, .x = x, .rstd = ones, .dx = y});
       }},
      {"BatchNormForward",
       [&] { BatchNormForward<float>({.batch = 2, .channels = 1, .x = x, .y = y}); }},
      {"BatchNormBackward",
       [&] {
         BatchNormBackward<float>({.batch = 2,
                                   .channels = 1,
                                   .dy = x,
                                   .x = x,
                                   .mean = ones,
                                   .mean_lo = state,
                                   .rstd = ones,
                                   .dx = y});
       }},
      {"BatchNormEvaluate",
       [&] {
         BatchNormEvaluate<float>({.batch = 2,
                                   .channels = 1,
                                   .x = x,
                                   .running_mean = ones,
                                   .running_var = ones,
                                   .y = y});
       }},
      {"BatchNormEvaluateBackward",
       [&] {
         BatchNormEvaluateBackward<float>(
             {.batch = 2, .channels = 1, .dy = x, .running_var = ones, .dx = y});
       }},
      {"OnlineNormForward",
       [&] { OnlineNormForward<float>({.rows = 1, .cols = 2, .x = x, .y = y}, online); }},
      {"OnlineNormBackward",
       [&] {
         OnlineNormBackward<float>({.rows = 1,
                                    .cols = 2,
                                    .dy = x,
                                    .x = x,
                                    .mean = ones,
                                    .mean_lo = state,
                                    .rstd = ones,
                                    .offset = ones,
                                    .deviation = ones,
                                    .dx = y});
       }},
      {"WeightNormForward",
       [&] { WeightNormForward<float>({.rows = 1, .cols = 2, .v = x, .g = ones, .w = y}); }},
      {"WeightNormBackward",
       [&] {
         WeightNormBackward<float>(
             {.rows = 1, .cols = 2, .dw = x, .v = x, .g = ones, .norm = ones, .dv = y});
       }},
      {"RnnForward",
       [&] {
         RnnForward<float>(Cell::kRnn,
                           {.inputs = {.shape = shape, .x = x, .params = params}, .y = y});
       }},
      {"RnnBackward",
       [&] {
         RnnBackward<float>(
             Cell::kRnn,
             {.inputs = {.shape = shape, .x = x, .params = params}, .y = ones, .dy = x, .dx = y});
       }},
      {"RnnStep",
       [&] {
         RnnStep<float>(
             Cell::kRnn,
             {.batch = 1, .inputs = 1, .hidden = 1, .x = x, .params = params, .h_next = y});
       }},
  };
  for (const auto& [name, call] : calls) {
    y[0] = y[1] = -99;
    const char* thrown = "returns";
    try {
      call();
    } catch (const ArgumentError&) {
      thrown = "throws";
    }
    std::printf("%s %s%s\n", name, thrown, y[0] == -99 ? "" : ", writes");
  }
}

constexpr Cell kCell = Cell::kLstm;
constexpr RnnShape kShape = {.time = 20, .batch = 16, .inputs = 64, .hidden = 256};
constexpr int64_t kRows = 2000, kCols = 300;

/// Inputs and outputs of a norm and of a recurrent layer.
struct Calls {
  Calls() {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1009) / 1009 - 0.5f;
  }

  void Compute() {
    NormForward<float>(Norm::kLayer, {.rows = kRows,
                                      .cols = kCols,
                                      .x = x.data(),
                                      .y = y.data(),
                                      .mean = mean.data(),
                                      .mean_lo = mean_lo.data(),
                                      .rstd = rstd.data()});
    NormBackward<float>(Norm::kLayer, {.rows = kRows,
                                       .cols = kCols,
                                       .dy = x.data(),
                                       .x = x.data(),
                                       .mean = mean.data(),
                                       .mean_lo = mean_lo.data(),
                                       .rstd = rstd.data(),
                                       .dx = dx.data(),
                                       .dgain = dgain.data()});
    const RnnParams<const float> params = {.weight_ih = x.data(), .weight_hh = x.data() + 100'000};
    RnnForward<float>(
        kCell, {.inputs = {.shape = kShape, .x = x.data(), .params = params}, .y = states.data()});
  }

  /// Returns the outputs, in the order of their calls.
  std::vector<const std::vector<float>*> Outputs() const {
    return {&y, &mean, &mean_lo, &rstd, &dx, &dgain, &states};
  }

  std::vector<float> x = std::vector<float>(kRows * kCols), y = x, dx = x;
  std::vector<float> mean = std::vector<float>(kRows), mean_lo = mean, rstd = mean;
  std::vector<float> dgain = std::vector<float>(kCols);
  std::vector<float> states = std::vector<float>(20 * 16 * 256);
};

/// Touches as much of the stack as the calls need, because Linux ends a process whose stack cannot
/// grow.
[[gnu::noinline]] void GrowStack() {
  volatile char stack[1 << 18];
  for (size_t i = 0; i < sizeof stack; i += 1024) stack[i] = 0;
}

/// Limits the processes of the user, or the memory that this process can still map, in KiB.
bool Limit(const std::string& what, rlim_t value) {
  if (what == "processes") {
    const rlimit limit = {value, value};
    // The limit does not hold for root.
    return setrlimit(RLIMIT_NPROC, &limit) == 0 && (getuid() != 0 || setuid(65534) == 0);
  }
  long pages = 0;
  FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) return false;
  std::fclose(file);
  const rlim_t bytes = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const rlimit limit = {bytes + 1024 * value, bytes + 1024 * value};
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

/// Prints the number of threads and whether a limited process gets the bits of one thread, or
/// std::bad_alloc. Each output is then as before or has the right bits.
void CallWithLimit(const std::string& what, rlim_t value) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4096);  // freed memory goes back to the system
  mallopt(M_ARENA_MAX, 1);          // threads reserve none
#endif
  const int threads = Threads();
  SetThreads(1);
  Calls expected, limited;
  const Calls before = limited;
  std::thread([&] { expected.Compute(); }).join();  // keeps no workspace
  SetThreads(threads);
  GrowStack();
  if (!Limit(what, value)) {
    std::puts("cannot be limited");
    return;
  }
  const char* end = "same";
  try {
    limited.Compute();
  } catch (const std::bad_alloc&) {
    end = "bad_alloc";
  }
  bool is_right = true;
  for (size_t i = 0; i < before.Outputs().size(); ++i) {
    const std::vector<float>& out = *limited.Outputs()[i];
    is_right &= out == *expected.Outputs()[i] ||
                (end == std::string("bad_alloc") && out == *before.Outputs()[i]);
  }
  std::printf("%d %s\n", Threads(), is_right ? end : "different");
}

/// Calls f and prints the error that it throws.
void Try(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    std::puts(error.what());
  }
}

}  // namespace
}  // namespace planish

/// Program that environment_test runs. Prints the effect of the PLANISH_ variables, or the error of
/// its first call, then the result of its second call.
int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "targets") {
    planish::Try([] {
      for (const std::string& target : planish::Targets()) std::puts(target.c_str());
    });
  } else if (what == "functions") {
    planish::CallEach();
  } else if (argc == 4 && what == "limit") {
    planish::CallWithLimit(argv[2], std::strtoull(argv[3], nullptr, 10));
  } else {
    for (int call = 0; call < 2; ++call) planish::Try(planish::Normalize);
  }
  return 0;
}
