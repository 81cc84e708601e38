#include <cstdio>
#include <string>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/target.h"

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
      const float x[] = {1, 3};
      float y[2] = {};
      planish::NormForward<float>(planish::Norm::kLayer, {.rows = 1, .cols = 2, .x = x, .y = y},
                                  {.eps = 0});
      std::printf("%s %d %g\n", planish::Target().c_str(), planish::Threads(),
                  static_cast<double>(y[1]));
    } catch (const planish::Error& error) {
      std::puts(error.what());
    }
  }
  return 0;
}
