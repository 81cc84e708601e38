#ifndef PLANISH_LAB_RUN_RESULTS_H_
#define PLANISH_LAB_RUN_RESULTS_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/run/archive.h"
#include "lab/run/predictions.h"

// Files of a run folder, the only input of the report (docs/files.md): config.json is a RunConfig,
// a line of metrics.jsonl an Evaluation, and result.json a RunResult, written when the run ends.
// predictions.csv.gz has Predictions, which only some tasks make.
// An archive (lab/run/archive.h) contains the same files of many runs.
namespace planish::lab {

/// Quantity that a task measures.
struct MetricSpec {
  std::string name;             ///< key in Evaluation::values, such as "test_error"
  std::string label;            ///< displayed name, such as "test error"
  std::string unit;             ///< "nats", "%", or empty; "%" shows a stored fraction times 100
  bool lower_is_better = true;  ///< direction of improvement
};

/// Values of a metric; the report shows steps and seconds to reach them.
struct TargetSpec {
  std::string metric;
  std::vector<double> values;
};

/// Content of the report for a task. The claims of papers are not part of it (ClaimsOf).
struct ReportSpec {
  std::string title;                ///< heading of the task's section
  std::string source;               ///< paper and section
  std::string compare;              ///< the setting whose values are compared
  std::string baseline;             ///< the value of `compare` that the others are compared with
  std::string panel;                ///< a setting; each of its values has its own charts
  std::vector<std::string> curves;  ///< metrics drawn against steps and against seconds
  std::string headline;             ///< metric of the findings
  std::vector<TargetSpec> targets;  ///< thresholds whose steps and seconds are shown
  std::vector<std::string> notes = {};  ///< differences from the paper and own choices
};

/// Content of config.json. `task`, `preset`, `settings`, `seed` and `data.sha256` determine the
/// run; the rest describes it.
struct RunConfig {
  struct Data {
    std::string name;                      ///< "mnist" or "drawn digits"
    std::string source;                    ///< "files" or "embedded"
    std::string description;               ///< one sentence
    std::string sha256;                    ///< of the data as read or generated
    std::map<std::string, int64_t> sizes;  ///< split -> cases
  };
  std::string format = "planish-run/1";
  std::string task;
  std::string preset;
  nlohmann::ordered_json settings;  ///< name -> value, in the task's order
  int64_t seed = 0;
  Data data;
  std::vector<MetricSpec> metrics;
  ReportSpec report;
  std::map<std::string, std::string>
      stamps;  ///< version, commit, compiler, torch, cpu, threads, started
};

/// Gradients around a norm in one update, averaged over its rows without padding. A row of batch
/// norm is a channel of the batch. docs/files.md#metricsjsonl defines the gradients g and dx and
/// states Theorem 1 of Xu et al. (2019) in terms of these members.
struct NormGradients {
  std::string norm;  ///< the module's name in the model
  int64_t rows = 0;
  double sigma = 0;
  double mean_before = 0;        ///< |mean(g)|
  double variance_before = 0;    ///< var(g)
  double mean_detached = 0;      ///< |mean(g)| / sigma
  double variance_detached = 0;  ///< var(g) / sigma^2
  double mean_after = 0;         ///< |mean(dx)|
  double variance_after = 0;     ///< var(dx)
};

/// One line of metrics.jsonl.
struct Evaluation {
  int64_t step = 0;                      ///< updates so far
  double epoch = 0;                      ///< passes over the training set so far
  int64_t cases = 0;                     ///< training cases seen so far
  double seconds = 0;                    ///< training time so far, without evaluation and pauses
  std::map<std::string, double> values;  ///< metric -> value; never NaN or infinite
  std::vector<NormGradients> gradients;  ///< of the preceding update, in the model's order
};

/// Start of a sample's picture; it ends with "</svg>". Browsers need the namespace to draw it.
inline constexpr std::string_view kSvgBegin = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";

/// Content of result.json.
struct RunResult {
  struct Best {
    std::string by;  ///< validation metric that chose it
    int64_t step = 0;
    std::map<std::string, double> values;  ///< of that evaluation, and of the test set
  };
  /// Output of the trained model: a text, a picture or both.
  struct Sample {
    std::string title;     ///< how it was generated
    std::string text;      ///< result.json has U+FFFD for invalid UTF-8
    std::string svg = {};  ///< an SVG document that begins with kSvgBegin, or empty
  };
  std::string status;   ///< "finished" or "diverged"
  std::string message;  ///< the reason, if diverged
  int64_t steps = 0;
  double epochs = 0;
  double seconds = 0;             ///< training time
  double input_seconds = 0;       ///< part of `seconds` spent gathering batches
  double evaluation_seconds = 0;  ///< evaluation time
  int64_t parameters = 0;         ///< trained elements of the model
  std::map<std::string, double> final_values;
  std::optional<Best> best;
  std::vector<Sample> samples;  ///< shown in the report
  /// CPU time of the process during `seconds`, summed over its threads. Absent for runs on other
  /// devices, of several processes, and of versions that did not measure it.
  std::optional<double> cpu_seconds = std::nullopt;
};

/// The from_json functions throw nlohmann's exceptions or std::invalid_argument. ReadRun turns both
/// into a RunError naming the file.
void to_json(nlohmann::ordered_json&, const RunConfig&);
void from_json(const nlohmann::ordered_json&, RunConfig&);
void to_json(nlohmann::ordered_json&, const NormGradients&);
void from_json(const nlohmann::ordered_json&, NormGradients&);
void to_json(nlohmann::ordered_json&, const Evaluation&);
void from_json(const nlohmann::ordered_json&, Evaluation&);
void to_json(nlohmann::ordered_json&, const RunResult&);
void from_json(const nlohmann::ordered_json&, RunResult&);

/// Contents of a run folder.
struct Run {
  std::filesystem::path folder;  ///< of an archived run: the archive's folder / the run's name
  RunConfig config;
  std::vector<Evaluation> evaluations;
  std::optional<RunResult> result;  ///< absent while the run is unfinished
  bool is_rate_tuned = false;       ///< its learning rate was chosen by tuning (MarkTunedRuns)
  /// Of a finished run; null if it has none that can be read.
  std::shared_ptr<const Predictions> predictions = nullptr;
  std::string predictions_fault =
      {};  ///< why they cannot be read; empty if they can or are missing
};

/// Line of metrics.jsonl without its line end, and its content.
struct EvaluationLine {
  std::string text;
  Evaluation evaluation;
};

/// Maximum size of a metrics.jsonl in bytes.
inline constexpr int64_t kMaxMetricsBytes = int64_t{1} << 30;

/// Reads a metrics.jsonl; a missing file has no lines. Ignores a last line without its line end,
/// because the process died while writing it.
/// Throws RunError naming the file if it is not a regular file or larger than kMaxMetricsBytes, and
/// naming the line if one is malformed.
std::vector<EvaluationLine> ReadEvaluationLines(const std::filesystem::path& file);

/// Reads one run folder. Throws RunError naming the file and the line if a file is missing,
/// malformed or not regular, and for a finished run without an evaluation. Predictions that cannot
/// be read do not count: Run::predictions_fault says why.
Run ReadRun(const std::filesystem::path& folder);

/// Returns `text` with the file name of each absolute path in place of the path.
std::string WithoutPaths(const std::string& text);

/// Replaces absolute paths in the texts of a config like WithoutPaths.
void RemovePaths(RunConfig& config);

/// Runs found in folders and archives.
struct FoundRuns {
  std::vector<Run> runs;  ///< readable runs, sorted by folder; archived ones first
  /// A sentence for each unreadable file, naming it. A run whose predictions cannot be read is also
  /// in `runs`.
  std::vector<std::string> faults;
};

/// Reads every run of an archive. Throws like ReadArchive.
FoundRuns ReadArchivedRuns(const std::filesystem::path& archive);

/// Calls visit with the path of everything below a folder. Does not follow links to folders. Throws
/// RunError naming a folder that cannot be read.
void VisitEntries(const std::filesystem::path& folder,
                  const std::function<void(const std::filesystem::path&)>& visit);

/// Reads every run folder (one with a config.json) and archive at or below each of `roots`, each
/// once. A root is a folder or an archive. Does not follow links to folders below a root.
/// Throws DataError if a root is neither or contains no run, and if no run can be read. Throws
/// RunError if a folder cannot be read.
FoundRuns FindRuns(const std::vector<std::filesystem::path>& roots);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_RESULTS_H_
