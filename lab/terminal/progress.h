#ifndef PLANISH_LAB_TERMINAL_PROGRESS_H_
#define PLANISH_LAB_TERMINAL_PROGRESS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// Display of progress.
enum class ProgressMode {
  kQuiet,   ///< only warnings
  kLines,   ///< for a file or pipe: at most one line in 30 seconds besides notes and summaries
  kLive,    ///< one line of a terminal, redrawn at most ten times a second
  kReport,  ///< for the process that started this one: ProgressReports and warnings
};

/// Environment variable that makes a process report its progress (kReport) if it has any value.
inline constexpr char kReportVariable[] = "PLANISH_PROGRESS_REPORT";

/// Returns kLive for a terminal that can redraw: `term` (TERM) is set and not "dumb", and NO_COLOR
/// and CI are unset or empty. The pointers are results of getenv.
ProgressMode ChooseProgressMode(bool quiet, bool is_terminal, const char* term,
                                const char* no_color, const char* ci);

/// Returns kReport with kReportVariable, else ChooseProgressMode for this process and its stderr.
ProgressMode StderrProgressMode(bool quiet);

/// Progress of a run. Absent values are not shown, nor rates or times that are negative or
/// infinite.
struct RunProgress {
  struct Metric {
    std::string label;  ///< "test error"
    double value = 0;
    std::string unit;  ///< "%" shows the value times 100, as MetricSpec::unit
  };
  double epoch = 0;   ///< passes over the training set so far
  double epochs = 0;  ///< passes in total
  std::optional<double> loss = std::nullopt;
  std::optional<Metric> metric = std::nullopt;
  std::optional<double> cases_per_second = std::nullopt;
  std::optional<double> seconds_left = std::nullopt;
};

/// Returns texts like "epoch 2.4/5", "loss 0.123", "test error 2.31%" and "41,200 cases/s".
std::vector<std::string> ProgressFields(const RunProgress& progress);

/// Progress of a run that another process trains.
struct ProgressReport {
  double fraction = 0;                 ///< of the run, 0 to 1
  std::optional<double> seconds_left;  ///< of training
  std::string phase;                   ///< such as "testing"; empty while weights are updated
};

/// First byte of a report's line. No other line of a program begins with it.
inline constexpr char kReportMark = '\x1e';

/// Returns a report as a line.
std::string FormatReport(const ProgressReport& report);

/// Parses a report's line without its line end. Returns nullopt if it is malformed.
std::optional<ProgressReport> ParseReport(std::string_view line);

/// Returns text like "0:07", "1:05" or "27:46:40": rounded minutes and seconds, or with hours.
/// `seconds` must be at least 0.
std::string FormatDuration(double seconds);

/// Returns the first `columns` characters of UTF-8 text, each counted as one column wide, with '?'
/// for control characters and malformed bytes.
std::string FitToColumns(std::string_view text, int columns);

/// Returns the fields that fit into `columns`, in their order and two spaces apart. Leaves out
/// whole fields; if the first one does not fit, leaves out words at its end.
std::string FitFields(const std::vector<std::string>& fields, int columns);

/// Times of the run that is being trained, in seconds.
struct RunTime {
  double elapsed = 0;
  std::optional<double> left = std::nullopt;  ///< of training; absent if unknown
};

/// Environment of Progress.
struct ProgressOutput {
  std::function<double()> seconds;              ///< a monotonic clock
  std::function<void(std::string_view)> write;  ///< writes bytes unchanged
  std::function<int()> columns;                 ///< the terminal's width

  /// Returns stderr and the current width of its terminal, or 80 if it is none.
  static ProgressOutput Stderr();
};

/// Display of the progress of a command's runs. For one thread only.
class Progress {
 public:
  Progress(int total_runs, ProgressMode mode, ProgressOutput output = ProgressOutput::Stderr());

  /// Clears the live line, so that later output, such as an error, has its own line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Sets the function that returns the seconds until all runs are done, from the times of the
  /// current one. By default only the current run counts. An empty function restores this.
  void SetTimeLeft(std::function<std::optional<double>(const RunTime&)> time_left);

  /// Starts run `index`, from 1 to total_runs.
  void StartRun(int index, std::string name);

  /// Shows `progress` if a redraw is due. Can be called at any rate.
  void Update(const RunProgress& progress);

  /// Shows what the run does until the next Update, such as "testing", if a redraw is due.
  void Phase(std::string phase);

  /// Shows the time left again if a redraw is due. Called during a long phase.
  void Tick();

  /// Shows `fields` (FitFields) if a redraw is due, for progress that is not of a single run.
  void ShowFields(std::vector<std::string> fields);

  /// Shows a permanent line; the live line continues below it.
  void Note(std::string_view text);

  /// Shows a permanent line, also in kQuiet mode.
  void Warn(std::string_view text);

  /// Ends the run with a permanent line: "run 3/12 layer-b4-s1  " and `summary`.
  void EndRun(std::string_view summary);

  /// Ends the run without a line.
  void LeaveRun();

 private:
  RunTime Time() const;
  std::vector<std::string> RunFields() const;
  bool IsDue() const;
  void Show();
  void Print(std::string_view text);

  int total_runs_;
  ProgressMode mode_;
  ProgressOutput output_;
  std::function<std::optional<double>(const RunTime&)> time_left_;
  std::string place_, name_;          // "run 3/12", "layer-b4-s1"; empty between runs
  std::string phase_;                 // what the run does unless it updates weights
  RunProgress progress_;              // of the last Update
  double started_ = 0, updated_ = 0;  // times of StartRun and of the last Update
  std::vector<std::string> fields_;   // the latest live line
  bool drawn_ = false;                // set if the terminal shows the live line
  std::optional<double> last_shown_;  // time of the last live or plain line
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_PROGRESS_H_
