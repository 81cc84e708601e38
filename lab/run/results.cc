#include "lab/run/results.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "lab/error.h"

namespace planish::lab {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE for ordered_json (the library's own macro knows only json).
#define PLANISH_JSON(Type, ...)                                                \
  static void to_json(Json& nlohmann_json_j, const Type& nlohmann_json_t) {    \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))   \
  }                                                                            \
  static void from_json(const Json& nlohmann_json_j, Type& nlohmann_json_t) {  \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_FROM, __VA_ARGS__)) \
  }

PLANISH_JSON(MetricSpec, name, label, unit, lower_is_better)
PLANISH_JSON(TargetSpec, metric, values)
PLANISH_JSON(ClaimSpec, text, source, metric, measure, better, worse, where, data)
PLANISH_JSON(ReportSpec, title, source, compare, baseline, panel, curves, headline, targets, claims)
PLANISH_JSON(RunConfig::Data, name, source, description, sha256, sizes)
PLANISH_JSON(RunResult::Best, by, step, values)

void to_json(Json& j, const RunConfig& c) {
  j = Json{{"format", c.format},     {"task", c.task},       {"preset", c.preset},
           {"settings", c.settings}, {"seed", c.seed},       {"data", c.data},
           {"stamps", c.stamps},     {"metrics", c.metrics}, {"report", c.report}};
}

void from_json(const Json& j, RunConfig& c) {
  j.at("format").get_to(c.format);
  if (c.format != "planish-run/1") {
    throw RunError("[ReadRun] format must be \"planish-run/1\" but has \"" + c.format + "\"");
  }
  j.at("task").get_to(c.task);
  j.at("preset").get_to(c.preset);
  c.settings = j.at("settings");
  if (!c.settings.is_object())
    throw RunError("[ReadRun] settings must be an object but has another type");
  j.at("seed").get_to(c.seed);
  j.at("data").get_to(c.data);
  j.at("stamps").get_to(c.stamps);
  j.at("metrics").get_to(c.metrics);
  j.at("report").get_to(c.report);
}

void to_json(Json& j, const Evaluation& e) {
  j = Json{{"step", e.step},
           {"epoch", e.epoch},
           {"cases", e.cases},
           {"seconds", e.seconds},
           {"values", e.values}};
}

void from_json(const Json& j, Evaluation& e) {
  j.at("step").get_to(e.step);
  j.at("epoch").get_to(e.epoch);
  j.at("cases").get_to(e.cases);
  j.at("seconds").get_to(e.seconds);
  j.at("values").get_to(e.values);
}

void to_json(Json& j, const RunResult& r) {
  j = Json{{"status", r.status},         {"message", r.message},
           {"steps", r.steps},           {"epochs", r.epochs},
           {"seconds", r.seconds},       {"evaluation_seconds", r.evaluation_seconds},
           {"parameters", r.parameters}, {"final", r.final_values}};
  if (r.best) j["best"] = *r.best;
}

void from_json(const Json& j, RunResult& r) {
  j.at("status").get_to(r.status);
  j.at("message").get_to(r.message);
  j.at("steps").get_to(r.steps);
  j.at("epochs").get_to(r.epochs);
  j.at("seconds").get_to(r.seconds);
  j.at("evaluation_seconds").get_to(r.evaluation_seconds);
  j.at("parameters").get_to(r.parameters);
  j.at("final").get_to(r.final_values);
  if (j.contains("best")) r.best = j.at("best").get<RunResult::Best>();
}

Json ReadJson(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw RunError("[ReadRun] " + file.string() + " must be readable but cannot be opened");
  try {
    return Json::parse(in);
  } catch (const Json::exception& e) {
    throw RunError("[ReadRun] " + file.string() + " must be JSON but has: " + e.what());
  }
}

namespace {

// Parses one piece of `file`; whatever is wrong with it becomes a RunError that says where.
template <class T>
T Convert(const Json& j, const std::string& where) {
  try {
    return j.get<T>();
  } catch (const Json::exception& e) {
    throw RunError("[ReadRun] " + where + " must be complete but has: " + e.what());
  }
}

std::vector<Evaluation> ReadEvaluations(const fs::path& file) {
  std::vector<Evaluation> evaluations;
  std::ifstream in(file, std::ios::binary);
  if (!in) return evaluations;
  const std::string text(std::istreambuf_iterator<char>(in), {});
  size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string where = file.string() + " line " + std::to_string(line);
    const Json j = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                               text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (j.is_discarded()) throw RunError("[ReadRun] " + where + " must be JSON but is not");
    evaluations.push_back(Convert<Evaluation>(j, where));
    begin = end + 1;
  }
  return evaluations;
}

}  // namespace

Run ReadRun(const fs::path& folder) {
  Run run;
  run.folder = folder;
  const fs::path config = folder / "config.json";
  run.config = Convert<RunConfig>(ReadJson(config), config.string());
  run.evaluations = ReadEvaluations(folder / "metrics.jsonl");
  const fs::path result = folder / "result.json";
  if (fs::exists(result)) run.result = Convert<RunResult>(ReadJson(result), result.string());
  return run;
}

std::vector<Run> FindRuns(const std::vector<fs::path>& roots) {
  std::set<fs::path> folders;
  for (const fs::path& root : roots) {
    if (!fs::is_directory(root)) {
      throw RunError("[FindRuns] " + root.string() +
                     " must be a folder of runs but does not exist");
    }
    const size_t before = folders.size();
    if (fs::exists(root / "config.json")) folders.insert(fs::canonical(root));
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().filename() == "config.json") {
        folders.insert(fs::canonical(entry.path().parent_path()));
      }
    }
    if (folders.size() == before && roots.size() == 1) {
      throw RunError("[FindRuns] " + root.string() +
                     " must hold runs but has no config.json below it");
    }
  }
  std::vector<Run> runs;
  for (const fs::path& folder : folders) runs.push_back(ReadRun(folder));
  return runs;
}

}  // namespace planish::lab
