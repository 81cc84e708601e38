#ifndef PLANISH_LAB_TERMINAL_PROGRESS_H_
#define PLANISH_LAB_TERMINAL_PROGRESS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace planish::lab {

/// Display of progress.
enum class ProgressMode {
  kQuiet,  ///< only warnings
  kLines,  ///< for a file or pipe: at most one line in 30 seconds besides notes and summaries
  kLive,   ///< one line of a terminal, redrawn at most ten times a second
};

/// Returns kLive for a terminal that can redraw: `term` (TERM) is set and not "dumb", and NO_COLOR
/// and CI are unset or empty. The pointers are results of getenv.
ProgressMode ChooseProgressMode(bool quiet, bool is_terminal, const char* term,
                                const char* no_color, const char* ci);

/// Returns ChooseProgressMode for this process and its stderr.
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

/// Returns text like "epoch 2.4/5  1:05 left  loss 0.123  test error 2.31%  41,200 cases/s".
std::string FormatProgress(const RunProgress& progress);

/// Returns text like "0:07", "1:05" or "27:46:40": rounded minutes and seconds, or with hours.
/// `seconds` must be at least 0.
std::string FormatDuration(double seconds);

/// Returns the first `columns` characters of UTF-8 text, each counted as one column wide, with '?'
/// for control characters and malformed bytes.
std::string FitToColumns(std::string_view text, int columns);

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

  /// Starts run `index`, from 1 to total_runs.
  void StartRun(int index, std::string name);

  /// Shows `progress` if a redraw is due. Can be called at any rate.
  void Update(const RunProgress& progress);

  /// Shows `text` if a redraw is due, for progress that is not of a single run.
  void Update(const std::string& text);

  /// Shows a permanent line; the live line continues below it.
  void Note(std::string_view text);

  /// Shows a permanent line, also in kQuiet mode.
  void Warn(std::string_view text);

  /// Ends the run with a permanent line: "run 3/12 layer-b4-s1  " and `summary`.
  void EndRun(std::string_view summary);

 private:
  void Show(const std::string& line);
  void Print(std::string_view text);

  int total_runs_;
  ProgressMode mode_;
  ProgressOutput output_;
  std::string run_;                   // "run 3/12 layer-b4-s1"
  std::string line_;                  // the latest live line
  bool drawn_ = false;                // set if the terminal shows the live line
  std::optional<double> last_shown_;  // time of the last live or plain line
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_PROGRESS_H_
