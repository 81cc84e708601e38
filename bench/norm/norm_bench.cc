// Times norms against each other. Each line of stdin is a case, and gets a line of JSON (RunCase):
//   DIRECTION TYPE SHAPE THREADS CONTESTANT,CONTESTANT,...
//   forward float 4096x1024 2 copy,copy-non-temporal,memcpy,planish:layer,aten:layer,onednn:layer
//   usage: norm_bench [REPETITIONS [SECONDS]]   of each contestant (12); minimum of each (0.005)
//          norm_bench --about                   a line of JSON: versions, machine, methods

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/base/answer_lines.h"
#include "bench/base/number.h"
#include "bench/norm/peers.h"
#include "lab/bench/arena.h"
#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"
#include "lab/engine/machine.h"

namespace planish::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Effort {
  int repetitions = 12;
  double seconds = 0.005;
};

// Collects the seconds of a call and prints nothing.
class Collector final : public benchmark::BenchmarkReporter {
 public:
  explicit Collector(Json& seconds) : seconds_(seconds) {}
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      seconds_[run.run_name.function_name].push_back(run.real_accumulated_time /
                                                     static_cast<double>(run.iterations));
    }
  }

 private:
  Json& seconds_;
};

// Returns the case; the seconds of a call, by contestant and repetition; the absent contestants and
// the reasons; and the contestants with wrong results, which are not timed, and the errors.
Json RunCase(const std::string& line, const Effort& effort, Arena& arena) {
  std::istringstream fields(line);
  std::string direction, type, shape, names, rest;
  Case c;
  int threads = 0;
  if (!(fields >> direction >> type >> shape >> threads >> names) || fields >> rest ||
      threads < 1) {
    throw std::invalid_argument(
        "[norm_bench] a case must be DIRECTION TYPE SHAPE THREADS CONTESTANTS, got \"" + line +
        "\"");
  }
  c.direction = ParseDirection(direction);
  c.type = ParseType(type);
  ParseShape(shape, c);
  at::set_num_threads(threads);
  Json result = {{"direction", direction},
                 {"type", type},
                 {"rows", c.rows},
                 {"cols", c.cols},
                 {"spatial", c.spatial},
                 {"threads", threads},
                 {"seconds", Json::object()},
                 {"absent", Json::object()},
                 {"wrong", Json::object()}};
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) continue;
    c.gated |= FindMethod(name.substr(colon + 1)).gate != Gate::kNone;
  }
  const Arrays arrays = arena.For(c);
  list = std::istringstream(names);
  for (std::string name; std::getline(list, name, ',');) {
    std::string wrong;
    const Contestant contestant = MakeContestant(name, c, arrays, wrong);
    if (!contestant.call) {
      result["absent"][name] = contestant.absent;
      continue;
    }
    if (!wrong.empty()) {
      result["wrong"][name] = wrong;
      continue;
    }
    result["seconds"][name] = Json::array();  // in the order requested
#ifndef __clang_analyzer__  // it reports objects kept by Google Benchmark as a leak
    benchmark::RegisterBenchmark(name.c_str(),
                                 [call = contestant.call](benchmark::State& state) {
                                   for ([[maybe_unused]] auto _ : state) call();
                                 })
        ->UseRealTime()
        ->MinTime(effort.seconds)
        ->Repetitions(effort.repetitions);
#endif
  }
  Collector collector(result["seconds"]);
  benchmark::RunSpecifiedBenchmarks(&collector, std::string("."));
  benchmark::ClearRegisteredBenchmarks();
  return result;
}

Json About() {
  Json about = lab::MachineStamps();
  about["onednn"] = OneDnnVersion();
  about["methods"] = MethodNames(/*rows=*/true);
  about["column_methods"] = MethodNames(/*rows=*/false);
  for (const std::string& name : MethodNames()) {
    const Method& method = FindMethod(name);
    about["arrays"][name] = {{"forward", ArrayCount(method, Direction::kForward)},
                             {"backward", ArrayCount(method, Direction::kBackward)}};
    if (HasAten(name)) about["aten"].push_back(name);
  }
  return about;
}

void Run(const Effort& effort) {
  // Random order: slow changes of the machine affect all contestants alike.
  char program[] = "norm_bench", interleave[] = "--benchmark_enable_random_interleaving=true";
  char* arguments[] = {program, interleave, nullptr};
  int count = 2;
  benchmark::Initialize(&count, arguments);
  Arena arena;
  AnswerLines([&](const std::string& line) { return RunCase(line, effort, arena); });
}

}  // namespace
}  // namespace planish::bench

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--about"}) {
    fmt::print("{}\n", planish::bench::About().dump());
    return 0;
  }
  planish::bench::Effort effort;
  if (arguments.size() > 2 ||
      (!arguments.empty() && !planish::bench::ParsePositive(arguments[0], effort.repetitions)) ||
      (arguments.size() > 1 && !planish::bench::ParsePositive(arguments[1], effort.seconds))) {
    fmt::print(stderr, "usage: norm_bench [REPETITIONS [SECONDS]] <CASES, or norm_bench --about\n");
    return 2;
  }
  planish::bench::Run(effort);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "norm_bench: %s\n", e.what());
  return 1;
}
