// planish-bench, the program that `planish bench` runs.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lab/bench/alternate.h"
#include "lab/bench/arena.h"
#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"
#include "lab/commands/commands.h"
#include "lab/engine/machine.h"
#include "lab/error.h"
#include "lab/terminal/progress.h"
#include "planish/target.h"

namespace planish::lab {

namespace {

using bench::Case;
using bench::Direction;

constexpr int kBlocks = 10;
constexpr double kBlockSeconds = 0.004;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr int kMaxThreads = 1024;

struct BenchFlags {
  std::string methods = "layer,layer-simple,detach,ada,rms,batch";
  std::string shapes = "128x1024,2048x1024,32768x1024,16384x768,127100x33";
  std::string type = "float";
  std::optional<int> threads;
  bool json = false, quiet = false;
};

// Splits a list. Throws UsageError for an empty or repeated part.
std::vector<std::string> Parts(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts;
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (parts.back().empty() || !seen.insert(parts.back()).second) {
      throw UsageError(fmt::format(
          "[bench] {} must be a list without empty parts or repetitions, got \"{}\"", flag, text));
    }
    begin = end + 1;
  }
  return parts;
}

// Returns the names with commas, in lines for the help text.
std::string Wrapped(const std::vector<std::string>& names) {
  constexpr size_t kWidth = 90;
  std::string text;
  size_t width = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string word = names[i] + (i + 1 < names.size() ? "," : "");
    if (i > 0) text += width + word.size() < kWidth ? " " : "\n  ";
    width = i > 0 && width + word.size() < kWidth ? width + 1 + word.size() : word.size();
    text += word;
  }
  return text;
}

std::vector<std::string> Methods(const BenchFlags& flags) {
  const std::vector<std::string> known = bench::MethodNames();
  std::vector<std::string> methods = Parts("--methods", flags.methods);
  for (const std::string& method : methods) {
    if (std::ranges::find(known, method) == known.end()) {
      throw UsageError(fmt::format("[bench] --methods must be of {}, got \"{}\"",
                                   fmt::join(known, ", "), method));
    }
  }
  return methods;
}

bench::Type ParseType(const std::string& name) {
  for (const bench::Type type :
       {bench::Type::kFloat, bench::Type::kDouble, bench::Type::kBFloat16, bench::Type::kFloat16}) {
    if (name == bench::Name(type)) return type;
  }
  throw UsageError(
      fmt::format("[bench] --type must be float, double, bfloat16 or float16, got \"{}\"", name));
}

std::vector<Case> Cases(const BenchFlags& flags, const std::vector<std::string>& methods) {
  std::vector<Case> cases;
  const bench::Type type = ParseType(flags.type);
  for (const std::string& shape : Parts("--shapes", flags.shapes)) {
    Case c{.type = type};
    try {
      bench::ParseShape(shape, c);
    } catch (const std::invalid_argument&) {
      throw UsageError(fmt::format(
          "[bench] --shapes must be of ROWSxCOLS, as 4096x1024, or of SAMPLESxCHANNELSxSPATIAL, "
          "got \"{}\"",
          shape));
    }
    if (c.rows > kMaxElements / c.cols / c.spatial) {
      throw UsageError(fmt::format("[bench] --shapes must have at most {} elements, got {}",
                                   kMaxElements, shape));
    }
    for (const std::string& method : methods) {
      if (c.spatial != 1 && bench::IsOfRows(bench::FindMethod(method))) {
        throw UsageError(
            fmt::format("[bench] --shapes must be of ROWSxCOLS for {}, got {}", method, shape));
      }
    }
    c.gated = std::ranges::any_of(methods, [](const std::string& method) {
      return bench::FindMethod(method).gate != bench::Gate::kNone;
    });
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      cases.push_back(c);
      cases.back().direction = direction;
    }
  }
  return cases;
}

// Measurement of one case with one norm.
struct Result {
  Case c;
  std::string method;
  double seconds = 0;
  double limit_seconds = 0;               // fastest time to move the same bytes
  std::optional<double> pytorch_seconds;  // absent if PyTorch has no kernel or is wrong

  // Returns the bytes that the norm must move over those that the limit moves.
  double BytesOverLimit() const {
    const bench::Method &own = bench::FindMethod(method), &layer = bench::FindMethod("layer");
    return static_cast<double>(bench::ArrayCount(own, c.direction)) /
           static_cast<double>(bench::ArrayCount(layer, c.direction));
  }
  double GigabytesPerSecond() const {
    return static_cast<double>(bench::Bytes(c)) * BytesOverLimit() / seconds / 1e9;
  }
  double Share() const { return limit_seconds * BytesOverLimit() / seconds; }
};

std::string CaseName(const Case& c) {
  return fmt::format("{} {}", bench::Name(c.direction), bench::ShapeName(c));
}

// Measures all norms of a case, its limits and PyTorch's kernels in alternation.
std::vector<Result> Measure(const Case& c, const std::vector<std::string>& methods,
                            bench::Arena& arena) {
  const bench::Arrays arrays = arena.For(c);
  std::vector<std::function<void()>> calls;
  for (const std::string& limit : bench::LimitNames(c.direction)) {
    calls.push_back(bench::MakeLimit(limit, c, arrays).call);
  }
  const auto limits = static_cast<std::ptrdiff_t>(calls.size());
  std::vector<size_t> ours;                   // indices into `calls`, by method
  std::vector<std::optional<size_t>> theirs;  // of correct PyTorch kernels
  for (const std::string& method : methods) {
    const bench::Contestant planish = bench::MakePlanish(method, c, arrays);
    const std::string wrong =
        bench::CheckContestant(method, planish, c, arrays, /*half_sums=*/false);
    if (!wrong.empty()) {
      throw RunError(fmt::format("the result of {} {} is wrong: {}", method, CaseName(c), wrong));
    }
    ours.push_back(calls.size());
    calls.push_back(planish.call);
    const bench::Contestant pytorch = bench::MakeAten(method, c, arrays);
    theirs.emplace_back();
    if (pytorch.call &&
        bench::CheckContestant(method, pytorch, c, arrays, /*half_sums=*/true).empty()) {
      theirs.back() = calls.size();
      calls.push_back(pytorch.call);
    }
  }
  const std::vector<double> seconds = bench::Alternate(calls, kBlocks, kBlockSeconds);
  const double limit = *std::min_element(seconds.begin(), seconds.begin() + limits);
  std::vector<Result> results;
  for (size_t i = 0; i < methods.size(); ++i) {
    Result result{
        .c = c, .method = methods[i], .seconds = seconds[ours[i]], .limit_seconds = limit};
    if (theirs[i]) result.pytorch_seconds = seconds[*theirs[i]];
    results.push_back(result);
  }
  return results;
}

std::string JsonLine(const Result& result) {
  nlohmann::ordered_json line = {
      {"norm", result.method},
      {"direction", bench::Name(result.c.direction)},
      {"type", bench::Name(result.c.type)},
      {"rows", result.c.rows},
      {"cols", result.c.cols},
      {"spatial", result.c.spatial},
      {"threads", at::get_num_threads()},
      {"seconds", result.seconds},
      {"limit_seconds", result.limit_seconds},
      {"gigabytes_per_second", result.GigabytesPerSecond()},
      {"share_of_limit", result.Share()},
      {"pytorch_seconds", nullptr},
  };
  if (result.pytorch_seconds) line["pytorch_seconds"] = *result.pytorch_seconds;
  return line.dump() + "\n";
}

// Returns the columns of one direction: "  210.1  0.82   2.51".
std::string Columns(const Result& result) {
  const std::string pytorch = result.pytorch_seconds
                                  ? fmt::format("{:.2f}", *result.pytorch_seconds / result.seconds)
                                  : "-";
  return fmt::format("{:>7.1f}{:>7.2f}{:>8}", result.GigabytesPerSecond(), result.Share(), pytorch);
}

std::string RenderResults(const std::vector<std::vector<Result>>& by_case) {
  std::string text = fmt::format("{:<23} {:<12}{:>22}  {:>22}\n{:<23} {:<12}", "", "", "forward",
                                 "backward", "norm", "rows x cols");
  for (int direction = 0; direction < 2; ++direction) {
    text += fmt::format("{:>7}{:>7}{:>8}", "GB/s", "share", "PyTorch");
    text += direction == 0 ? "  " : "\n";
  }
  for (size_t i = 0; i + 1 < by_case.size(); i += 2) {  // forward and backward of a shape
    for (size_t j = 0; j < by_case[i].size(); ++j) {
      const Result& forward = by_case[i][j];
      text += fmt::format("{:<23} {:<12}{}  {}\n", forward.method, bench::ShapeName(forward.c),
                          Columns(forward), Columns(by_case[i + 1][j]));
    }
  }
  return text +
         "\n"
         "GB/s: bytes of x and y, or of x, dy and dx, and of a gate, divided by the time. share:\n"
         "fraction of the speed at which this machine copies x, or reads x and dy and writes dx;\n"
         "above 1 if a norm reads less (detach does not read x in backward). PyTorch: the time of\n"
         "its kernel or operators divided by Planish's; - if it has none.\n";
}

int RunBench(const BenchFlags& flags) {
  const std::vector<std::string> methods = Methods(flags);
  const std::vector<Case> cases = Cases(flags, methods);
  if (flags.threads && (*flags.threads < 1 || *flags.threads > kMaxThreads)) {
    throw UsageError(fmt::format("[bench] --threads must be a whole number from 1 to {}, got {}",
                                 kMaxThreads, *flags.threads));
  }
  if (flags.threads) at::set_num_threads(*flags.threads);
  Progress progress(static_cast<int>(cases.size()), StderrProgressMode(flags.quiet));
  bench::Arena arena;
  std::vector<std::vector<Result>> by_case;
  for (const Case& c : cases) {
    progress.StartRun(static_cast<int>(by_case.size()) + 1, CaseName(c));
    try {
      by_case.push_back(Measure(c, methods, arena));
    } catch (const std::bad_alloc&) {
      throw RunError(
          fmt::format("[bench] not enough memory for the shape {}", bench::ShapeName(c)));
    }
    if (!flags.json) continue;
    for (const Result& result : by_case.back()) Print(JsonLine(result));
    FlushStdout();
  }
  if (flags.json) return 0;
  const auto stamps = MachineStamps();
  Print(fmt::format("{}, {}, {} threads, {}; PyTorch {}\n\n{}", stamps.at("cpu"), Target(),
                    at::get_num_threads(), flags.type, stamps.at("torch"), RenderResults(by_case)));
  return 0;
}

}  // namespace

void AddCommands(CLI::App& app, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* bench =
      app.add_subcommand("bench", "Benchmark the norms against memory bandwidth and PyTorch");
  bench->footer(fmt::format(
      "Norms, copies of the same bytes and PyTorch's kernels alternate on the same arrays and "
      "threads.\n"
      "Each result is first compared with a reference in double. The table has the fastest of {} "
      "blocks.\n"
      "Do not use the machine meanwhile: a thread that waits for a core distorts the results.\n"
      "The parameters of norms in 16-bit types are float.\n\n"
      "Norms over rows:\n"
      "  {}\n"
      "Norms over channels:\n"
      "  {}\n"
      "Default shapes, ROWSxCOLS; norms over channels also take SAMPLESxCHANNELSxSPATIAL:\n"
      "  {}\n\n"
      "Example:\n"
      "  planish bench --type bfloat16 --methods layer,rms --shapes 4096x1024,64x65536",
      kBlocks, Wrapped(bench::MethodNames(/*rows=*/true)),
      Wrapped(bench::MethodNames(/*rows=*/false)), flags->shapes));
  bench->add_option("--methods", flags->methods, fmt::format("Norms (default: {})", flags->methods))
      ->type_name("A,B,...");
  bench
      ->add_option("--shapes", flags->shapes, "Shapes (default: from 1 to 256 MB, and narrow rows)")
      ->type_name("A,B,...");
  bench->add_option("--type", flags->type, "float (default), double, bfloat16 or float16")
      ->type_name("TYPE");
  bench->add_option("--threads", flags->threads, "Threads (default: all cores)")->type_name("N");
  bench->add_flag("--json", flags->json, "Print a line of JSON for each result instead of a table");
  bench->add_flag("--quiet", flags->quiet, "Print only errors, no progress");
  bench->callback([&action, flags] { action = [flags] { return RunBench(*flags); }; });
}

}  // namespace planish::lab
