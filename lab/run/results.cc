#include "lab/run/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lab/error.h"
#include "lab/run/former_settings.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"
#include "lab/run/run_path.h"

namespace planish::lab {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Like NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE, which supports only json, for ordered_json. `linkage` is
// static for types that results.h does not declare conversions of.
// clang-format off
#define PLANISH_JSON(linkage, Type, ...)                                       \
  linkage void to_json(Json& nlohmann_json_j, const Type& nlohmann_json_t) {   \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))   \
  }                                                                            \
  linkage void from_json(const Json& nlohmann_json_j, Type& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_FROM, __VA_ARGS__)) \
  }
// clang-format on

PLANISH_JSON(static, MetricSpec, name, label, unit, lower_is_better)
PLANISH_JSON(static, TargetSpec, metric, values)
PLANISH_JSON(, NormGradients, norm, rows, sigma, mean_before, variance_before, mean_detached,
             variance_detached, mean_after, variance_after)

static void to_json(Json& j, const ReportSpec& r) {
  j = Json{{"title", r.title},       {"source", r.source},  {"compare", r.compare},
           {"baseline", r.baseline}, {"panel", r.panel},    {"curves", r.curves},
           {"headline", r.headline}, {"targets", r.targets}};
  if (!r.notes.empty()) j["notes"] = r.notes;
}

static void from_json(const Json& j, ReportSpec& r) {
  j.at("title").get_to(r.title);
  j.at("source").get_to(r.source);
  j.at("compare").get_to(r.compare);
  j.at("baseline").get_to(r.baseline);
  j.at("panel").get_to(r.panel);
  j.at("curves").get_to(r.curves);
  j.at("headline").get_to(r.headline);
  j.at("targets").get_to(r.targets);
  r.notes = j.value("notes", std::vector<std::string>());  // absent in older runs
}

static void to_json(Json& j, const RunConfig::Data& d) {
  j = Json{{"name", d.name},
           {"source", d.source},
           {"description", d.description},
           {"sha256", d.sha256},
           {"sizes", d.sizes}};
}

static void from_json(const Json& j, RunConfig::Data& d) {
  j.at("name").get_to(d.name);
  j.at("source").get_to(d.source);
  j.at("description").get_to(d.description);
  j.at("sha256").get_to(d.sha256);
  d.sizes.clear();
  const Json& sizes = j.at("sizes");
  if (!sizes.is_object()) throw std::invalid_argument("data.sizes must be an object");
  for (const auto& [split, size] : sizes.items()) {
    d.sizes[split] = ToInteger(size);
  }
}

static void to_json(Json& j, const RunResult::Best& b) {
  j = Json{{"by", b.by}, {"step", b.step}, {"values", b.values}};
}

static void from_json(const Json& j, RunResult::Best& b) {
  j.at("by").get_to(b.by);
  b.step = ToInteger(j.at("step"));
  j.at("values").get_to(b.values);
}

static void to_json(Json& j, const RunResult::Sample& s) {
  // A model of bytes can write invalid UTF-8, which JSON cannot store. The round trip replaces it.
  const auto mend = Json::error_handler_t::replace;
  j = Json{{"title", s.title}, {"text", Json::parse(Json(s.text).dump(-1, ' ', false, mend))}};
  if (!s.svg.empty()) j["svg"] = s.svg;
}

static void from_json(const Json& j, RunResult::Sample& s) {
  j.at("title").get_to(s.title);
  j.at("text").get_to(s.text);
  s.svg = j.value("svg", std::string());
  if (!s.svg.empty() && !(s.svg.starts_with(kSvgBegin) && s.svg.ends_with("</svg>"))) {
    throw std::invalid_argument("a sample's svg must begin with " + std::string(kSvgBegin) +
                                "and end with </svg>");
  }
}

void to_json(Json& j, const RunConfig& c) {
  j = Json{{"format", c.format}, {"task", c.task},
           {"preset", c.preset}, {"settings", c.settings.is_null() ? Json::object() : c.settings},
           {"seed", c.seed},     {"data", c.data},
           {"stamps", c.stamps}, {"metrics", c.metrics},
           {"report", c.report}};
}

void from_json(const Json& j, RunConfig& c) {
  j.at("format").get_to(c.format);
  if (c.format != "planish-run/1") {
    throw std::invalid_argument("format must be \"planish-run/1\", got " + BriefText(c.format));
  }
  j.at("task").get_to(c.task);
  j.at("preset").get_to(c.preset);
  c.settings = j.at("settings");
  if (!c.settings.is_object()) {
    throw std::invalid_argument("settings must be an object");
  }
  UpdateSettings(c.task, c.settings);
  c.seed = ToInteger(j.at("seed"));
  j.at("data").get_to(c.data);
  j.at("stamps").get_to(c.stamps);
  j.at("metrics").get_to(c.metrics);
  for (MetricSpec& metric : c.metrics) {
    metric.unit = PresentUnit(c.task, c.settings, std::move(metric.unit));
  }
  j.at("report").get_to(c.report);
  c.report.panel = PresentSetting(c.report.panel);
}

void to_json(Json& j, const Evaluation& e) {
  j = Json{{"step", e.step},
           {"epoch", e.epoch},
           {"cases", e.cases},
           {"seconds", e.seconds},
           {"values", e.values}};
  if (!e.gradients.empty()) j["gradients"] = e.gradients;
}

void from_json(const Json& j, Evaluation& e) {
  e.step = ToInteger(j.at("step"));
  j.at("epoch").get_to(e.epoch);
  e.cases = ToInteger(j.at("cases"));
  j.at("seconds").get_to(e.seconds);
  j.at("values").get_to(e.values);
  e.gradients.clear();
  if (j.contains("gradients")) j.at("gradients").get_to(e.gradients);
}

void to_json(Json& j, const RunResult& r) {
  j = Json{{"status", r.status},
           {"message", r.message},
           {"steps", r.steps},
           {"epochs", r.epochs},
           {"seconds", r.seconds},
           {"input_seconds", r.input_seconds},
           {"evaluation_seconds", r.evaluation_seconds},
           {"parameters", r.parameters},
           {"final", r.final_values}};
  if (r.cpu_seconds) j["cpu_seconds"] = *r.cpu_seconds;
  if (r.best) j["best"] = *r.best;
  if (!r.samples.empty()) j["samples"] = r.samples;
}

void from_json(const Json& j, RunResult& r) {
  j.at("status").get_to(r.status);
  j.at("message").get_to(r.message);
  r.steps = ToInteger(j.at("steps"));
  j.at("epochs").get_to(r.epochs);
  j.at("seconds").get_to(r.seconds);
  r.input_seconds = j.value("input_seconds", 0.0);  // absent in older runs
  r.cpu_seconds.reset();
  if (j.contains("cpu_seconds")) r.cpu_seconds = j.at("cpu_seconds").get<double>();
  j.at("evaluation_seconds").get_to(r.evaluation_seconds);
  r.parameters = ToInteger(j.at("parameters"));
  j.at("final").get_to(r.final_values);
  r.best.reset();
  if (j.contains("best")) {
    RunResult::Best best;
    j.at("best").get_to(best);
    r.best = std::move(best);
  }
  r.samples.clear();
  if (j.contains("samples")) j.at("samples").get_to(r.samples);
}

namespace {

// Converts `j` to T. Throws CannotRead naming `where`, a file or a line of one.
template <class T>
T Convert(const Json& j, const std::string& where) {
  try {
    return j.get<T>();
  } catch (const std::exception& e) {
    throw CannotRead(where, JsonReason(e));
  }
}

Json ParseJsonOf(std::string_view text, const std::string& where) {
  try {
    return ParseJson(text);
  } catch (const std::invalid_argument& e) {
    throw CannotRead(where, e.what());
  }
}

// Parses the content of a JSON file.
template <class T>
T ParseFile(std::string_view text, const fs::path& file) {
  return Convert<T>(ParseJsonOf(text, file.string()), file.string());
}

// Returns true if a file of any kind exists.
bool Exists(const fs::path& file) {
  std::error_code error;
  return fs::symlink_status(file, error).type() != fs::file_type::not_found;
}

// Parses a metrics.jsonl. `where` is its path for messages.
std::vector<EvaluationLine> ParseEvaluationLines(std::string_view text, const fs::path& where) {
  std::vector<EvaluationLine> lines;
  size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string place = where.string() + " line " + std::to_string(number);
    std::string line(text.substr(begin, end - begin));
    auto evaluation = Convert<Evaluation>(ParseJsonOf(line, place), place);
    lines.push_back({std::move(line), std::move(evaluation)});
    begin = end + 1;
  }
  return lines;
}

// Reads a metrics.jsonl, or returns "" if it does not exist.
std::string ReadMetrics(const fs::path& file) {
  return Exists(file) ? ReadRegularFile(file, kMaxMetricsBytes) : "";
}

// Parses the files of the run `folder`. `where` is the path of their folder for messages.
Run ParseRun(const RunFiles& files, const fs::path& folder, const fs::path& where) {
  Run run;
  run.folder = folder;
  run.config = ParseFile<RunConfig>(files.config, where / "config.json");
  for (EvaluationLine& line : ParseEvaluationLines(files.metrics, where / "metrics.jsonl")) {
    run.evaluations.push_back(std::move(line.evaluation));
  }
  if (files.result) run.result = ParseFile<RunResult>(*files.result, where / "result.json");
  const bool is_finished = run.result && run.result->status == "finished";
  if (is_finished && run.evaluations.empty()) {
    throw CannotRead(where / "metrics.jsonl", "it has no evaluation, and the run is finished");
  }
  if (is_finished && files.predictions) {
    try {
      run.predictions = std::make_shared<Predictions>(UnpackPredictions(*files.predictions));
    } catch (const std::invalid_argument& e) {
      run.predictions_fault = e.what();
    }
  }
  return run;
}

// Adds a run to those that were found. `where` is the path of its folder for messages.
void AddRun(Run run, const fs::path& where, FoundRuns& found) {
  if (!run.predictions_fault.empty()) {
    found.faults.push_back(CannotRead(where / kPredictionsFile, run.predictions_fault).what());
  }
  found.runs.push_back(std::move(run));
}

}  // namespace

std::vector<EvaluationLine> ReadEvaluationLines(const fs::path& file) {
  return ParseEvaluationLines(ReadMetrics(file), file);
}

std::string WithoutPaths(const std::string& text) {
  constexpr std::string_view kEnds = " \t\n\"'(),;=:<>";
  std::string clean;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(kEnds, begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const bool path = word.size() > 1 && word[0] == '/';
    clean += path ? fs::path(word).filename().string() : word;
    if (end < text.size()) clean += text[end];
    begin = end + 1;
  }
  return clean;
}

namespace {

void CleanTexts(Json& json) {
  if (json.is_string()) {
    json = WithoutPaths(json.get<std::string>());
  } else if (json.is_structured()) {
    for (Json& part : json) CleanTexts(part);
  }
}

}  // namespace

void RemovePaths(RunConfig& config) {
  for (auto& [name, stamp] : config.stamps) stamp = WithoutPaths(stamp);
  CleanTexts(config.settings);
  config.data.description = WithoutPaths(config.data.description);
}

Run ReadRun(const fs::path& folder) {
  RunFiles files;
  files.config = ReadRegularFile(folder / "config.json", kMaxJsonBytes);
  files.metrics = ReadMetrics(folder / "metrics.jsonl");
  const fs::path result = folder / "result.json";
  if (Exists(result)) files.result = ReadRegularFile(result, kMaxJsonBytes);
  std::string fault;
  if (const fs::path predictions = folder / kPredictionsFile; Exists(predictions)) {
    try {
      files.predictions = ReadRegularFile(predictions, kMaxPredictionsBytes);
    } catch (const RunError& e) {
      fault = std::string(e.what()).substr(std::string(CannotRead(predictions, "").what()).size());
    }
  }
  Run run = ParseRun(files, folder, folder);
  if (!fault.empty()) run.predictions_fault = fault;
  return run;
}

FoundRuns ReadArchivedRuns(const fs::path& archive) {
  FoundRuns found;
  for (const auto& [name, files] : ReadArchive(archive)) {
    try {
      AddRun(ParseRun(files, archive.parent_path() / name, archive / name), archive / name, found);
    } catch (const RunError& e) {
      found.faults.push_back(e.what());
    }
  }
  return found;
}

void VisitEntries(const fs::path& folder, const std::function<void(const fs::path&)>& visit) try {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    visit(entry.path());
    if (!entry.is_symlink() && entry.is_directory()) VisitEntries(entry.path(), visit);
  }
} catch (const fs::filesystem_error& e) {
  throw CannotRead(e.path1().empty() ? folder : e.path1(), e.code().message());
}

FoundRuns FindRuns(const std::vector<fs::path>& roots) {
  std::set<fs::path> folders, archives;
  for (const fs::path& root : roots) {
    try {
      bool empty = true;
      const auto add_folder = [&](const fs::path& folder) {
        folders.insert(fs::canonical(folder));
        empty = false;
      };
      // Keeps the place of a link to an archive: its runs belong there.
      const auto add_archive = [&](const fs::path& archive) {
        archives.insert(fs::canonical(fs::absolute(archive).parent_path()) / archive.filename());
        empty = false;
      };
      if (IsArchive(root)) {
        add_archive(root);
        continue;
      }
      CheckRunPath(root);
      if (!fs::is_directory(root)) {
        throw DataError(fmt::format("{} is not a folder or an archive of runs (*{})", root.string(),
                                    kArchiveEnding));
      }
      if (fs::exists(root / "config.json")) add_folder(root);
      VisitEntries(root, [&](const fs::path& path) {
        if (path.filename() == "config.json") add_folder(path.parent_path());
        if (IsArchive(path)) add_archive(path);
      });
      if (empty) {
        throw DataError(
            fmt::format("there is no run in {}: no config.json and no archive (*{}) in or below it",
                        root.string(), kArchiveEnding));
      }
    } catch (const fs::filesystem_error& e) {
      throw CannotRead(e.path1().empty() ? root : e.path1(), e.code().message());
    }
  }
  FoundRuns found;
  for (const fs::path& archive : archives) {
    try {
      FoundRuns archived = ReadArchivedRuns(archive);
      std::ranges::move(archived.runs, std::back_inserter(found.runs));
      std::ranges::move(archived.faults, std::back_inserter(found.faults));
    } catch (const DataError& e) {
      found.faults.push_back(e.what());
    } catch (const RunError& e) {
      found.faults.push_back(e.what());
    }
  }
  for (const fs::path& folder : folders) {
    try {
      AddRun(ReadRun(folder), folder, found);
    } catch (const RunError& e) {
      found.faults.push_back(e.what());
    }
  }
  std::ranges::stable_sort(found.runs, {}, &Run::folder);
  if (found.runs.empty() && !found.faults.empty()) {
    throw DataError(fmt::format(
        "no run can be read: {}{}", found.faults[0],
        found.faults.size() == 1 ? "" : fmt::format(" (and {} more)", found.faults.size() - 1)));
  }
  return found;
}

}  // namespace planish::lab
