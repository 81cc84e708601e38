#include "lab/queue/sweep_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "lab/base/escape.h"
#include "lab/data/lines.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxSeeds = 1000;

// Lines of a key and of its values.
struct KeyLines {
  int64_t key = 0;
  std::vector<int64_t> values;
};

// One [[sweep]] of a file, with its line.
struct FileSweep {
  int64_t line = 0;
  const Task* task = nullptr;
  SweepRequest request;
  std::map<std::string, KeyLines> lines{};  // of "preset" and the settings

  // Returns the line of what is wrong in the request.
  int64_t LineOf(const RequestError& error) const {
    const auto found = lines.find(error.name());
    if (found == lines.end()) return line;
    return error.value() ? found->second.values.at(*error.value()) : found->second.key;
  }
};

// Returns a message about an argument, "[Function] argument must ...", without the function.
std::string WithoutFunction(std::string_view message) {
  const size_t end = message.find("] ");
  if (message.starts_with('[') && end != std::string_view::npos) message.remove_prefix(end + 2);
  return std::string(message);
}

// Reader of a parsed sweep file.
class Reader {
 public:
  Reader(const fs::path& file, const fs::path& out,
         const std::function<const Task&(std::string_view)>& find)
      : file_(file), out_(out), find_(find) {}

  std::vector<FileSweep> Read(const toml::table& root) const {
    std::vector<FileSweep> sweeps;
    const toml::node* list = nullptr;
    FileSweep defaults;
    defaults.request.seeds = {1};
    defaults.request.out = out_;
    for (const auto& [key, node] : root) {
      if (key == "sweep") {
        list = &node;
      } else if (!ReadCommon(key, node, defaults)) {
        Fail(LineOf(key), fmt::format("the keys before the first [[sweep]] must be of preset, "
                                      "seeds, got \"{}\"",
                                      key.str()));
      }
    }
    if (list == nullptr) Fail(1, "there must be at least one [[sweep]], got none");
    if (!list->is_array_of_tables()) {
      Fail(LineOf(*list), "sweep must be a list of tables: [[sweep]]");
    }
    for (const toml::node& node : *list->as_array()) {
      sweeps.push_back(ReadSweep(*node.as_table(), defaults));
    }
    return sweeps;
  }

  [[noreturn]] void Fail(int64_t line, const std::string& reason) const {
    throw UsageError(fmt::format("[sweep] {}, line {}: {}", file_.string(), line, reason));
  }

 private:
  // `part` is a node or a key.
  static int64_t LineOf(const auto& part) { return static_cast<int64_t>(part.source().begin.line); }

  // Reads a key that all sweeps of a file can share. Returns false if it is another one.
  bool ReadCommon(const toml::key& key, const toml::node& node, FileSweep& sweep) const {
    if (key == "preset") {
      sweep.request.preset = TextOf(key, node);
      sweep.lines["preset"] = {LineOf(key), {}};
    } else if (key == "seeds") {
      sweep.request.seeds = SeedsOf(node);
    } else {
      return false;
    }
    return true;
  }

  FileSweep ReadSweep(const toml::table& table, const FileSweep& defaults) const {
    FileSweep sweep = defaults;
    sweep.line = LineOf(table);
    // In the order of the file: the first setting varies slowest.
    std::vector<std::pair<const toml::key*, const toml::node*>> keys;
    for (const auto& [key, node] : table) keys.emplace_back(&key, &node);
    std::ranges::sort(keys, {}, [](const auto& pair) {
      const toml::source_position at = pair.first->source().begin;
      return std::pair(at.line, at.column);
    });
    for (const auto& [key, node] : keys) {
      if (key->str() == "task") {
        sweep.task = &TaskOf(*node);
      } else if (!ReadCommon(*key, *node, sweep)) {
        std::string name(key->str());
        sweep.request.values.emplace_back(name, ValuesOf(name, *node));
        sweep.lines[std::move(name)] = {LineOf(*key), LinesOf(*node)};
      }
    }
    if (sweep.task == nullptr) Fail(sweep.line, "task must be given, got none");
    if (sweep.request.preset.empty()) sweep.request.preset = sweep.task->presets.front().name;
    AddComparedValues(*sweep.task, sweep.request);
    return sweep;
  }

  const Task& TaskOf(const toml::node& node) const {
    const std::string name = TextOf("task", node);
    try {
      return find_(name);
    } catch (const UsageError& error) {
      Fail(LineOf(node), WithoutFunction(error.what()));
    }
  }

  std::string TextOf(std::string_view key, const toml::node& node) const {
    const auto text = node.value_exact<std::string>();
    if (!text || text->empty()) {
      Fail(LineOf(node), fmt::format("{} must be a text that is not empty", key));
    }
    return *text;
  }

  std::vector<int64_t> SeedsOf(const toml::node& node) const {
    std::vector<int64_t> seeds;
    std::set<int64_t> seen;
    if (const auto count = node.value_exact<int64_t>()) {
      if (*count < 1 || *count > kMaxSeeds) {
        Fail(LineOf(node), fmt::format("seeds must be from 1 to {}, got {}", kMaxSeeds, *count));
      }
      for (int64_t seed = 1; seed <= *count; ++seed) seeds.push_back(seed);
      return seeds;
    }
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& element : *list) {
        const auto seed = element.value_exact<int64_t>();
        if (!seed || *seed < 0 || *seed > int64_t{1} << 53) {
          Fail(LineOf(element), "seeds must be integers from 0 to 2^53");
        }
        if (!seen.insert(*seed).second) {
          Fail(LineOf(element), fmt::format("seeds must list each seed once, got {} twice", *seed));
        }
        seeds.push_back(*seed);
      }
    }
    if (seeds.empty()) Fail(LineOf(node), "seeds must be a number of seeds or a list of them");
    return seeds;
  }

  // Returns the values of a setting in the syntax of --set.
  std::vector<std::string> ValuesOf(std::string_view key, const toml::node& node) const {
    std::vector<std::string> values;
    const auto add = [&](const toml::node& value) {
      if (const auto text = value.value_exact<std::string>()) {
        values.push_back(*text);
      } else if (const auto integer = value.value_exact<int64_t>()) {
        values.push_back(std::to_string(*integer));
      } else if (const auto real = value.value_exact<double>()) {
        values.push_back(fmt::format("{}", *real));
      } else if (const auto flag = value.value_exact<bool>()) {
        values.emplace_back(*flag ? "true" : "false");
      } else {
        Fail(LineOf(value),
             fmt::format("{} must be a text, number or boolean, or a list of them", key));
      }
    };
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& value : *list) add(value);
      if (values.empty()) Fail(LineOf(node), fmt::format("{} must have a value, got []", key));
    } else {
      add(node);
    }
    return values;
  }

  // Returns the line of each value of a setting.
  static std::vector<int64_t> LinesOf(const toml::node& node) {
    const toml::array* list = node.as_array();
    if (list == nullptr) return {LineOf(node)};
    std::vector<int64_t> lines;
    for (const toml::node& value : *list) lines.push_back(LineOf(value));
    return lines;
  }

  const fs::path& file_;
  const fs::path& out_;
  const std::function<const Task&(std::string_view)>& find_;
};

// Returns a group's cells, such as {"pi-mnist", "small", "3 norm, lr=0.1", "5"}: the number of a
// setting's values, or its only value.
std::vector<std::string> Cells(const FileSweep& sweep) {
  std::vector<std::string> settings;
  for (const auto& [name, values] : sweep.request.values) {
    settings.push_back(values.size() == 1 ? fmt::format("{}={}", name, values.front())
                                          : fmt::format("{} {}", values.size(), name));
  }
  return {sweep.task->name, sweep.request.preset,
          settings.empty() ? "-" : fmt::format("{}", fmt::join(settings, ", ")),
          std::to_string(sweep.request.seeds.size())};
}

// Limits of a sweep file. The parser recurses over the parts of a key.
constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxDots = 100;

// Throws DataError for a file that is too long, or has a key of too many parts.
void CheckSize(const fs::path& file, std::string_view text) {
  if (text.size() > kMaxBytes) {
    FailToRead(file, fmt::format("a sweep file must have at most {} bytes, got {}", kMaxBytes,
                                 text.size()));
  }
  int64_t line = 1;
  int dots = 0;
  for (const char c : text) {
    if (c == '.' && ++dots > kMaxDots) {
      FailAtLine(file, line,
                 fmt::format("there must be at most {} dots in a row of keys", kMaxDots));
    }
    line += c == '\n';
    if (std::string_view(",=[]{}\n").find(c) != std::string_view::npos) dots = 0;
  }
}

toml::table Parse(const fs::path& file) {
  const std::string text = ReadTextFile(file);
  CheckSize(file, text);
  try {
    return toml::parse(text, file.string());
  } catch (const toml::parse_error& error) {
    FailAtLine(file, static_cast<int64_t>(error.source().begin.line),
               Escaped(error.description()));  // it can quote a line end
  }
}

}  // namespace

SweepPlan PlanSweepFile(const fs::path& file, const fs::path& out,
                        const std::function<const Task&(std::string_view)>& find) {
  const Reader reader(file, out, find);
  SweepPlan plan;
  std::vector<std::pair<size_t, QueuedRun>> runs;  // with the position of the seed
  std::map<fs::path, int64_t> lines;               // folder -> line of its sweep
  for (const FileSweep& sweep : reader.Read(Parse(file))) {
    std::vector<QueuedRun> planned;
    try {
      planned = QueueSweep(*sweep.task, sweep.request, plan.queue.groups.size());
    } catch (const RequestError& error) {
      reader.Fail(sweep.LineOf(error), WithoutFunction(error.what()));
    }
    std::map<int64_t, size_t> places;  // seed -> its position
    for (const int64_t seed : sweep.request.seeds) places.emplace(seed, places.size());
    for (QueuedRun& run : planned) {
      const auto [earlier, is_new] = lines.emplace(run.plan.folder, sweep.line);
      if (!is_new) {
        reader.Fail(sweep.line, fmt::format("the sweep of line {} has the run {} too",
                                            earlier->second, run.Name()));
      }
      const size_t place = places.at(run.plan.seed);
      runs.emplace_back(place, std::move(run));
    }
    plan.queue.groups.push_back(sweep.task->name);
    plan.cells.push_back(Cells(sweep));
  }
  std::ranges::stable_sort(runs, {}, &std::pair<size_t, QueuedRun>::first);
  for (auto& [place, run] : runs) plan.queue.runs.push_back(std::move(run));
  plan.queue.estimates = Estimates(std::vector<std::optional<double>>(plan.queue.groups.size()));
  plan.queue.FindResults();
  return plan;
}

std::string RenderSweep(const SweepPlan& plan) {
  return RenderQueue(plan.queue, {"task", "preset", "settings", "seeds"}, plan.cells);
}

std::string ShellLine(const std::vector<std::string>& arguments) {
  constexpr std::string_view kPlain =
      "%+,-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
      "abcdefghijklmnopqrstuvwxyz";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char c : argument) {
      if (c == '\'') {
        line += "'\\''";
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  return line;
}

}  // namespace planish::lab
