#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/target.h"

namespace {

/// Runs `task` on another thread, where an exception would end the program.
void RunOnThread(int64_t begin, int64_t end, int64_t /*grain*/, planish::RangeTask task) {
  std::thread([&] { task(begin, end); }).join();
}

}  // namespace

/// Program that environment_test runs. Prints the effect of PLANISH_TARGET and PLANISH_THREADS, or
/// the error of its first call, then the result of its second call.
int main(int argc, char** argv) {
  const bool targets = argc > 1 && std::string(argv[1]) == "targets";
  for (int call = 0; call < (targets ? 1 : 2); ++call) {
    try {
      if (targets) {
        for (const std::string& target : planish::Targets()) std::puts(target.c_str());
        continue;
      }
      constexpr int64_t kRows = 4, kCols = int64_t{1} << 15;  // enough to be split
      std::vector<float> x(kRows * kCols, 1.f), y(x.size());
      for (size_t i = 1; i < x.size(); i += 2) x[i] = 3;
      planish::NormForward<float>(planish::Norm::kLayer,
                                  {.rows = kRows, .cols = kCols, .x = x.data(), .y = y.data()},
                                  {.eps = 0, .parallel_for = RunOnThread});
      std::printf("%s %d %g\n", planish::Target().c_str(), planish::Threads(),
                  static_cast<double>(y[1]));
    } catch (const planish::Error& error) {
      std::puts(error.what());
    }
  }
  return 0;
}
