#ifndef PLANISH_LAB_RUN_RESULTS_H_
#define PLANISH_LAB_RUN_RESULTS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// A run is a folder; these are its files, and everything that the report knows of it:
//   config.json    RunConfig: what decides the run, and stamps that say where it was made
//   metrics.jsonl  one Evaluation a line, appended and flushed
//   result.json    RunResult, once the run has ended
namespace planish::lab {

/// A quantity that a task measures.
struct MetricSpec {
  std::string name;             ///< key in Evaluation::values, such as "test_error"
  std::string label;            ///< for people, such as "test error"
  std::string unit;             ///< "nats", "%", or empty; "%" shows a stored fraction times 100
  bool lower_is_better = true;  ///< the direction of improvement
};

/// Values of a metric whose steps and seconds to reach the report shows.
struct TargetSpec {
  std::string metric;
  std::vector<double> values;
};

/// A published statement that the measurement can agree or disagree with: under the settings
/// `where`, `metric` (lower or higher as its direction says) is better for `better` than for
/// `worse` (values of ReportSpec::compare).
struct ClaimSpec {
  std::string text;     ///< the claim as a sentence
  std::string source;   ///< where it is printed
  std::string metric;   ///< a MetricSpec's name
  std::string measure;  ///< "final", "best", "steps to best", "steps to VALUE": to the first
                        ///< evaluation at or beyond that value of the metric; "steps to worse's
                        ///< best" or "seconds to worse's best": to the first one as good as that
                        ///< which validation chose of `worse`, against `worse`'s own way there
  std::string better;   ///< value of the compared setting
  std::string worse;    ///< value of the compared setting
  std::map<std::string, nlohmann::ordered_json>
      where;         ///< setting -> value, such as batch_size -> 4
  std::string data;  ///< PaperData::name of the data set that the claim was made on
};

/// What the report draws for a task.
struct ReportSpec {
  std::string title;                ///< heading of the task's section
  std::string source;               ///< paper and section
  std::string compare;              ///< the setting whose values are set against each other
  std::string baseline;             ///< the value of `compare` that the others are compared with
  std::string panel;                ///< a setting each of whose values has charts of its own
  std::vector<std::string> curves;  ///< metrics drawn against steps and against seconds
  std::string headline;             ///< the metric that the findings are about
  std::vector<TargetSpec> targets;  ///< thresholds whose steps and seconds are shown
  std::vector<ClaimSpec> claims;    ///< published statements, each given a verdict
  std::vector<std::string> notes = {};  ///< sentences on where the task departs from the paper, and
                                        ///< what it chose where nothing is printed
};

/// config.json. `task`, `preset`, `settings`, `seed` and `data.sha256` decide the run; the rest
/// describes it.
struct RunConfig {
  struct Data {
    std::string name;                      ///< "mnist" or "drawn digits"
    std::string source;                    ///< "files" or "embedded"
    std::string description;               ///< one sentence for people
    std::string sha256;                    ///< of the data as read or drawn
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

/// Gradients around a norm in one update: means over the rows that it normalises together (of batch
/// norm a channel of the batch), padding left out. Of a row, g is the gradient of the normalised
/// numbers (gain * dL/dy; AdaNorm: its factor in place of the gain), dx = dL/dx what the norm hands
/// on without what flows past it, sigma its deviation (1 without a norm). Xu et al. 2019, Theorem
/// 1: with both moments detached mean_after = mean_detached and variance_after = variance_detached;
/// the derivative of the mean makes mean_after 0, that of the deviation variance_after smaller.
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
  int64_t step = 0;    ///< updates of the weights so far
  double epoch = 0;    ///< passes over the training set so far
  int64_t cases = 0;   ///< training cases seen so far
  double seconds = 0;  ///< seconds spent training so far: evaluation and pauses do not count
  std::map<std::string, double> values;  ///< metric -> value; never NaN or infinite
  std::vector<NormGradients> gradients;  ///< in the update before, by the model's order
};

/// How the picture of a sample begins; it ends with "</svg>". Browsers draw no SVG without the
/// name of its language.
inline constexpr std::string_view kSvgBegin = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";

/// result.json.
struct RunResult {
  struct Best {
    std::string by;  ///< the validation metric that chose it
    int64_t step = 0;
    std::map<std::string, double> values;  ///< of that evaluation, and of the test set
  };
  /// What the trained model made: a text, a picture or both.
  struct Sample {
    std::string title;     ///< how it was drawn
    std::string text;      ///< result.json has U+FFFD where it is not UTF-8
    std::string svg = {};  ///< an SVG document that begins with kSvgBegin, or empty
  };
  std::string status;   ///< "finished" or "diverged"
  std::string message;  ///< why, when diverged
  int64_t steps = 0;
  double epochs = 0;
  double seconds = 0;             ///< training
  double input_seconds = 0;       ///< of these, gathering batches
  double evaluation_seconds = 0;  ///< evaluating
  int64_t parameters = 0;         ///< trained numbers in the model
  std::map<std::string, double> final_values;
  std::optional<Best> best;
  std::vector<Sample> samples;  ///< what the report shows of them
};

/// The from_json functions throw nlohmann's exceptions or std::invalid_argument. ReadRun turns both
/// into a RunError that names the file.
void to_json(nlohmann::ordered_json&, const RunConfig&);
void from_json(const nlohmann::ordered_json&, RunConfig&);
void to_json(nlohmann::ordered_json&, const NormGradients&);
void from_json(const nlohmann::ordered_json&, NormGradients&);
void to_json(nlohmann::ordered_json&, const Evaluation&);
void from_json(const nlohmann::ordered_json&, Evaluation&);
void to_json(nlohmann::ordered_json&, const RunResult&);
void from_json(const nlohmann::ordered_json&, RunResult&);

/// A run as its folder holds it.
struct Run {
  std::filesystem::path folder;
  RunConfig config;
  std::vector<Evaluation> evaluations;
  std::optional<RunResult> result;  ///< absent while the run is unfinished
};

/// A line of metrics.jsonl: as it is written, without its line end, and what it says.
struct EvaluationLine {
  std::string text;
  Evaluation evaluation;
};

/// Most bytes of a metrics.jsonl.
inline constexpr int64_t kMaxMetricsBytes = int64_t{1} << 30;

/// Reads a metrics.jsonl; a missing file has no lines. A last line without its line end (the
/// machine died while writing it) is left out. Throws RunError that names the file when it is not a
/// regular file or larger than kMaxMetricsBytes, and the line when one is malformed.
std::vector<EvaluationLine> ReadEvaluationLines(const std::filesystem::path& file);

/// Reads one run folder. Throws RunError that names the file, and the line, when it is missing,
/// malformed or not a regular file, and for a finished run without an evaluation.
Run ReadRun(const std::filesystem::path& folder);

/// The runs in some folders.
struct FoundRuns {
  std::vector<Run> runs;            ///< those that can be read, sorted by path
  std::vector<std::string> faults;  ///< of the others, a sentence each that names the file
};

/// Reads every run folder (one with a config.json) at or below each of `roots`, each once. Links to
/// folders are not followed below a root. Throws DataError when a root is not a folder or holds no
/// run, and when none of the runs can be read. Throws RunError when a folder cannot be read.
FoundRuns FindRuns(const std::vector<std::filesystem::path>& roots);

/// Reads and parses a JSON file of at most kMaxJsonBytes. Throws RunError naming it.
nlohmann::ordered_json ReadJson(const std::filesystem::path& file);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_RESULTS_H_
