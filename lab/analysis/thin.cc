#include "lab/analysis/thin.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lab/analysis/claims.h"
#include "lab/error.h"
#include "lab/papers/paper.h"
#include "lab/run/archive.h"
#include "lab/run/atomic_file.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// A thinned run keeps kEvaluations evenly spaced evaluations if there are more than kKeptWhole.
// Thinning a thinned run changes nothing.
constexpr size_t kEvaluations = 60;
constexpr size_t kKeptWhole = 80;

// Returns the metrics that some part of the report draws or compares.
std::set<std::string> NeededMetrics(const Run& run) {
  const ReportSpec& report = run.config.report;
  std::set<std::string> needed(report.curves.begin(), report.curves.end());
  needed.insert(report.headline);
  for (const TargetSpec& target : report.targets) needed.insert(target.metric);
  for (const ClaimSpec& claim : ClaimsOf(run.config.task)) needed.insert(claim.metric);
  if (run.result && run.result->best) needed.insert(run.result->best->by);
  for (const Paper& paper : Papers()) {
    for (const PaperColumn& column : paper.columns) {
      if (column.task != run.config.task) continue;
      needed.insert({column.metric, column.train_curve, column.valid_curve});
      for (const std::string& curve : column.Curves()) needed.insert(curve);
    }
  }
  return needed;
}

// Rounds to six significant digits.
double Rounded(double value) {
  if (!std::isfinite(value)) return value;
  const std::string text = fmt::format("{:.6g}", value);
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

void Round(NormGradients& norm) {
  for (double* value : {&norm.sigma, &norm.mean_before, &norm.variance_before, &norm.mean_detached,
                        &norm.variance_detached, &norm.mean_after, &norm.variance_after}) {
    *value = Rounded(*value);
  }
}

// Returns the index of the evaluation whose gradients the report shows.
std::optional<size_t> LastGradients(const Run& run) {
  for (size_t i = run.evaluations.size(); i-- > 0;) {
    if (!run.evaluations[i].gradients.empty()) return i;
  }
  return std::nullopt;
}

// Returns metric and value of thresholds whose first crossing the report shows.
std::vector<std::pair<std::string, double>> Thresholds(const RunConfig& config) {
  std::vector<std::pair<std::string, double>> thresholds;
  for (const TargetSpec& target : config.report.targets) {
    for (const double value : target.values) thresholds.emplace_back(target.metric, value);
  }
  for (const ClaimSpec& claim : ClaimsOf(config.task)) {
    const std::optional<ClaimMeasure> measure = MeasureNamed(claim.measure);
    if (measure && measure->measure == Measure::kStepsTo) {
      thresholds.emplace_back(claim.metric, measure->target);
    }
  }
  return thresholds;
}

// Adds each evaluation that is better than all before it, because a run first matches another's
// best at one of these. If they are too many, the evenly spaced ones suffice, with an error of a
// sixtieth of the run.
void KeepRecords(const Run& run, const std::string& metric, std::set<size_t>* kept) {
  const auto spec = std::ranges::find(run.config.metrics, metric, &MetricSpec::name);
  if (spec == run.config.metrics.end()) return;
  std::optional<double> best;
  std::set<size_t> records;
  for (size_t i = 0; i < run.evaluations.size(); ++i) {
    const auto found = run.evaluations[i].values.find(metric);
    if (found == run.evaluations[i].values.end()) continue;
    const double value = found->second;
    if (best && (spec->lower_is_better ? value >= *best : value <= *best)) continue;
    best = value;
    records.insert(i);
  }
  if (records.size() <= kEvaluations) kept->merge(records);
}

// Returns the indices of the evaluations to keep.
std::set<size_t> KeptEvaluations(const Run& run) {
  const size_t count = run.evaluations.size();
  std::set<size_t> kept;
  if (count == 0) return kept;
  const size_t wanted = count <= kKeptWhole ? count : kEvaluations;
  for (size_t i = 0; i < wanted; ++i) {
    kept.insert(wanted == 1 ? 0 : i * (count - 1) / (wanted - 1));
  }
  if (const std::optional<size_t> gradients = LastGradients(run)) kept.insert(*gradients);
  std::set<size_t> crossings;
  const auto keep_first = [&](const auto& matches) {
    const auto found = std::ranges::find_if(run.evaluations, matches);
    if (found != run.evaluations.end()) {
      crossings.insert(static_cast<size_t>(found - run.evaluations.begin()));
    }
  };
  if (run.result && run.result->best) {
    keep_first([&](const Evaluation& e) { return e.step == run.result->best->step; });
    // It bounds the time of the best model, like the evaluation before.
    if (!crossings.empty()) kept.insert(std::min(*crossings.begin() + 1, count - 1));
    KeepRecords(run, run.result->best->by, &crossings);
  }
  for (const auto& [name, value] : Thresholds(run.config)) {
    const auto spec = std::ranges::find(run.config.metrics, name, &MetricSpec::name);
    if (spec == run.config.metrics.end()) continue;
    keep_first([&](const Evaluation& e) {
      const auto found = e.values.find(name);
      return found != e.values.end() &&
             (spec->lower_is_better ? found->second <= value : found->second >= value);
    });
  }
  // The evaluation before a crossing bounds its time.
  for (const size_t crossing : crossings) {
    if (crossing > 0) kept.insert(crossing - 1);
  }
  kept.merge(crossings);
  return kept;
}

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunFiles FilesOf(const Run& run) {
  RunFiles files;
  files.config = TextOf(run.config);
  for (const Evaluation& evaluation : run.evaluations) {
    files.metrics += Json(evaluation).dump() + "\n";
  }
  if (run.result) files.result = TextOf(*run.result);
  if (run.predictions) files.predictions = PackPredictions(*run.predictions);
  return files;
}

// Returns the name that the runs of a table's column share. Folders are named
// PRESET-COMPARED-bBATCH[-KEY=VALUE...]-sSEED (see PlanSweep); this omits COMPARED and SEED. Any
// other name stays as it is.
std::string ColumnOf(const Run& run) {
  const RunConfig& config = run.config;
  std::string name = run.folder.filename().string();
  const std::string seed = fmt::format("-s{}", config.seed);
  const auto compared = config.settings.find(config.report.compare);
  if (!name.ends_with(seed) || compared == config.settings.end() || !compared->is_string()) {
    return name;
  }
  const std::string value = compared->get<std::string>();
  if (!name.starts_with(fmt::format("{}-{}-b", config.preset, value))) return name;
  name.resize(name.size() - seed.size());
  return name.erase(config.preset.size(), value.size() + 1);
}

bool IsWithin(const fs::path& path, const fs::path& folder) {
  const fs::path relative = fs::weakly_canonical(path).lexically_relative(fs::canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
}

// A run and the folder below `to` that corresponds to its own.
struct Place {
  Run run;
  fs::path folder;
};

// Returns the runs at or below `from`.
std::vector<Place> PlacesOf(const fs::path& from, const fs::path& to, ThinnedRuns* result) {
  FoundRuns found = FindRuns({from});
  if (IsWithin(to, from)) {
    throw RunError(fmt::format("{} is inside {}", to.string(), from.string()));
  }
  result->faults = std::move(found.faults);
  const fs::path root = fs::is_directory(from) ? from : fs::absolute(from).parent_path();
  std::vector<Place> places;
  for (Run& run : found.runs) {
    // A copy without them would look like a run that has none. Its fault is in `faults`.
    if (!run.predictions_fault.empty()) continue;
    // A run in `from` itself gets a folder of its own.
    const fs::path above = fs::relative(run.folder.parent_path(), root);
    const fs::path name = run.folder.filename();
    const fs::path folder = (above == ".." ? to / name : to / above / name).lexically_normal();
    // FindRuns returns an archived run before the run folder of its name, which replaces it.
    if (!places.empty() && places.back().folder == folder) places.pop_back();
    places.push_back({std::move(run), folder});
  }
  return places;
}

}  // namespace

Run Thinned(Run run) {
  const std::set<std::string> needed = NeededMetrics(run);
  const std::optional<size_t> gradients = LastGradients(run);
  std::vector<Evaluation> evaluations;
  for (const size_t i : KeptEvaluations(run)) {
    Evaluation evaluation = run.evaluations[i];
    std::erase_if(evaluation.values,
                  [&](const auto& value) { return !needed.contains(value.first); });
    for (auto& [name, value] : evaluation.values) value = Rounded(value);
    evaluation.epoch = Rounded(evaluation.epoch);
    evaluation.seconds = Rounded(evaluation.seconds);
    if (i != gradients) evaluation.gradients.clear();
    for (NormGradients& norm : evaluation.gradients) Round(norm);
    evaluations.push_back(std::move(evaluation));
  }
  run.evaluations = std::move(evaluations);
  RemovePaths(run.config);
  if (run.result) run.result->message = WithoutPaths(run.result->message);
  return run;
}

ThinnedRuns ThinRuns(const fs::path& from, const fs::path& to) {
  ThinnedRuns result;
  std::map<fs::path, ArchivedRuns> archives;
  for (const Place& place : PlacesOf(from, to, &result)) {
    const fs::path folder = place.folder.parent_path();
    const std::string archive = ColumnOf(place.run) + std::string(kArchiveEnding);
    archives[folder / archive][place.folder.filename().string()] = FilesOf(Thinned(place.run));
  }
  for (const auto& [archive, runs] : archives) {
    const std::vector<std::string> kept = AddToArchive(archive, runs);
    for (const std::string& name : kept) {
      result.kept.push_back(fmt::format("{} has no result: {} keeps the finished run of this name",
                                        name, archive.string()));
    }
    result.count += runs.size() - kept.size();
  }
  return result;
}

ThinnedRuns ThinRunsToFolders(const fs::path& from, const fs::path& to) {
  ThinnedRuns result;
  std::map<fs::path, RunFiles> missing;
  for (const Place& place : PlacesOf(from, to, &result)) {
    RunFiles files = FilesOf(Thinned(place.run));
    ++result.count;
    if (!fs::exists(place.folder / "config.json")) {
      missing[place.folder] = std::move(files);
    } else if (FilesOf(ReadRun(place.folder)) != files) {
      throw CannotWrite(place.folder, "it contains another run");
    }
  }
  for (const auto& [folder, files] : missing) {
    CreateFolders(folder);
    WriteFileAtomically(folder / "metrics.jsonl", files.metrics);
    if (files.result) WriteFileAtomically(folder / "result.json", *files.result);
    if (files.predictions) WriteFileAtomically(folder / kPredictionsFile, *files.predictions);
    // Written last: if the disk is full, a folder without it is not a run.
    WriteFileAtomically(folder / "config.json", files.config);
  }
  return result;
}

}  // namespace planish::lab
