// Times recurrent layers. Each line of stdin is a case, and gets a line of JSON (RunCase):
//   MODE SHAPE THREADS CONTESTANT,CONTESTANT,...
//   training 100x32x256x256 2 planish:ln-lstm,planish:lstm,torch:lstm,products:lstm
//   usage: rnn_bench [BLOCKS [SECONDS [MAX_SECONDS]]]   (Effort)
//          rnn_bench --about                            a line of JSON: versions, machine, cells

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/answer_lines.h"
#include "bench/base/number.h"
#include "bench/rnn/arrays.h"
#include "bench/rnn/contestants.h"
#include "lab/bench/alternate.h"
#include "lab/engine/machine.h"
#include "lab/engine/memory.h"

namespace planish::bench::rnn {
namespace {

using Json = nlohmann::ordered_json;

struct Effort {
  int blocks = 8;          // of calls of each contestant
  double seconds = 0.03;   // of a block, which has at least one call
  double max_seconds = 1;  // of all blocks of a contestant, which has at least 3
};

// Returns the case and the multiply-adds of a call; the seconds of a call in the fastest block, by
// contestant; the absent contestants and the reasons; and the contestants with wrong results, which
// are not timed, and the errors.
Json RunCase(const std::string& line, const Effort& effort, Arena& arena) {
  std::istringstream fields(line);
  std::string mode, shape, names, rest;
  int threads = 0;
  if (!(fields >> mode >> shape >> threads >> names) || fields >> rest || threads < 1) {
    throw std::invalid_argument(
        "[rnn_bench] a case must be MODE SHAPE THREADS CONTESTANTS, got \"" + line + "\"");
  }
  const Case c{.mode = ParseMode(mode), .shape = ParseShape(shape)};
  if (c.mode == Mode::kStep && c.shape.time != 1) {
    throw std::invalid_argument("[rnn_bench] a step must have the time 1, got \"" + shape + "\"");
  }
  at::set_num_threads(threads);
  Json result = {{"mode", mode},
                 {"shape", shape},
                 {"threads", threads},
                 {"seconds", Json::object()},
                 {"multiply-adds", Json::object()},
                 {"absent", Json::object()},
                 {"wrong", Json::object()}};
  const Arrays arrays = arena.For(c);
  std::map<std::pair<Cell, WeightType>, Reference> references;
  std::vector<std::string> timed;
  std::vector<std::function<void()>> calls;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const Cell cell = CellOf(name);
    const Contestant contestant = MakeContestant(name, c, arrays);
    if (!contestant.call) {
      result["absent"][name] = contestant.absent;
      continue;
    }
    if (!name.starts_with("products:")) {
      const WeightType type = WeightTypeOf(name);
      const Reference& reference =
          references.try_emplace({cell, type}, cell, c, arrays, type).first->second;
      if (const std::string wrong = CheckContestant(contestant, reference); !wrong.empty()) {
        result["wrong"][name] = wrong;
        continue;
      }
    }
    result["multiply-adds"][name] = MultiplyAdds(cell, c);
    timed.push_back(name);
    calls.push_back(contestant.call);
  }
  references.clear();
  const std::vector<double> seconds =
      Alternate(calls, effort.blocks, effort.seconds, effort.max_seconds);
  for (size_t i = 0; i < timed.size(); ++i) result["seconds"][timed[i]] = seconds[i];
  return result;
}

Json About() {
  Json about = lab::MachineStamps();
  about["onednn"] = OneDnnVersion();
  about["cells"] = CellNames();
  return about;
}

void Run(const Effort& effort) {
  Arena arena;
  AnswerLines([&](const std::string& line) { return RunCase(line, effort, arena); });
}

}  // namespace
}  // namespace planish::bench::rnn

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--about"}) {
    fmt::print("{}\n", planish::bench::rnn::About().dump());
    return 0;
  }
  planish::bench::rnn::Effort effort;
  if (arguments.size() > 3 ||
      (!arguments.empty() && !planish::bench::ParsePositive(arguments[0], effort.blocks)) ||
      (arguments.size() > 1 && !planish::bench::ParsePositive(arguments[1], effort.seconds)) ||
      (arguments.size() > 2 && !planish::bench::ParsePositive(arguments[2], effort.max_seconds))) {
    fmt::print(stderr,
               "usage: rnn_bench [BLOCKS [SECONDS [MAX_SECONDS]]] <CASES, or rnn_bench --about\n");
    return 2;
  }
  // No contestant has page faults: Planish's outputs are preallocated, and PyTorch's would
  // otherwise be new pages in every call.
  planish::lab::KeepFreedMemory();
  planish::bench::rnn::Run(effort);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "rnn_bench: %s\n", e.what());
  return 1;
}
