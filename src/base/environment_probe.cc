#include <cstdint>
#include <cstdio>
#include <functional>
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
  } else {
    for (int call = 0; call < 2; ++call) planish::Try(planish::Normalize);
  }
  return 0;
}
