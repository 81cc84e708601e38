#ifndef PLANISH_LAB_TERMINAL_PROGRESS_H_
#define PLANISH_LAB_TERMINAL_PROGRESS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace planish::lab {

/// How progress is shown.
enum class ProgressMode {
  kQuiet,  ///< not at all, but for warnings
  kLines,  ///< lines for a file or a pipe, at most one in 30 seconds besides notes and summaries
  kLive,   ///< one line of a terminal, redrawn at most ten times a second
};

/// kLive for a terminal that can redraw: `term` (TERM) is set and not "dumb", and NO_COLOR and CI
/// are unset or empty. The pointers are what getenv gives.
ProgressMode ChooseProgressMode(bool quiet, bool is_terminal, const char* term,
                                const char* no_color, const char* ci);

/// The same for this process and its stderr.
ProgressMode StderrProgressMode(bool quiet);

/// Where a run is. What is absent is not shown, nor a rate or a time that is negative or infinite.
struct RunProgress {
  struct Metric {
    std::string label;  ///< "test error"
    double value = 0;
    std::string unit;  ///< "%" shows the value times 100, as MetricSpec::unit
  };
  double epoch = 0;   ///< passes over the training set so far
  double epochs = 0;  ///< passes in all
  std::optional<double> loss = std::nullopt;
  std::optional<Metric> metric = std::nullopt;
  std::optional<double> cases_per_second = std::nullopt;
  std::optional<double> seconds_left = std::nullopt;
};

/// "epoch 2.4/5  1:05 left  loss 0.123  test error 2.31%  41,200 cases/s".
std::string FormatProgress(const RunProgress& progress);

/// "0:07", "1:05", "27:46:40": seconds >= 0, rounded, as minutes and seconds or with hours before.
std::string FormatDuration(double seconds);

/// The first `columns` characters of UTF-8 text, each taken to be one column wide, with '?' for
/// control characters and malformed bytes.
std::string FitToColumns(std::string_view text, int columns);

/// What Progress needs of the outside.
struct ProgressOutput {
  std::function<double()> seconds;              ///< a clock that never goes back
  std::function<void(std::string_view)> write;  ///< takes bytes as they are
  std::function<int()> columns;                 ///< the terminal's width

  /// stderr and its terminal's present width, 80 where it has none.
  static ProgressOutput Stderr();
};

/// Shows how a command's runs get on. Of one thread only.
class Progress {
 public:
  Progress(int total_runs, ProgressMode mode, ProgressOutput output = ProgressOutput::Stderr());

  /// Clears the live line, so that what follows, an error say, stands alone.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Begins run `index`, from 1 to total_runs.
  void StartRun(int index, std::string name);

  /// Shows `progress` if its turn has come; to be called as often as is convenient.
  void Update(const RunProgress& progress);

  /// Shows `text` if its turn has come: the progress of what is no single run.
  void Update(const std::string& text);

  /// Shows a line of text that stays; the live line goes on below it.
  void Note(std::string_view text);

  /// Shows a line that stays also where progress is not shown.
  void Warn(std::string_view text);

  /// Ends the run with a line that stays: "run 3/12 layer-b4-s1  " and `summary`.
  void EndRun(std::string_view summary);

 private:
  void Show(const std::string& line);
  void Print(std::string_view text);

  int total_runs_;
  ProgressMode mode_;
  ProgressOutput output_;
  std::string run_;                   // "run 3/12 layer-b4-s1"
  std::string line_;                  // the live line as last asked for
  bool drawn_ = false;                // whether the live line stands on the terminal
  std::optional<double> last_shown_;  // when a live line was drawn or any plain line printed
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_PROGRESS_H_
