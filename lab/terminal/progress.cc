#include "lab/terminal/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/terminal/layout.h"

namespace planish::lab {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 30;
constexpr double kReportSeconds = 0.5;
constexpr int kUnlimited = std::numeric_limits<int>::max();
constexpr std::string_view kClearLine = "\r\x1b[K";

bool IsSet(const char* variable) { return variable && *variable != '\0'; }

bool IsShown(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value >= 0;
}

// Formats about four digits, with an exponent only for very large or small values, and with equal
// length from one redraw to the next.
std::string FormatNumber(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size >= 1e6 || (size > 0 && size < 1e-3)) {
    return fmt::format("{:.2e}", value);
  }
  return fmt::format("{:.{}f}", value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

std::string FormatThousands(double value) {
  if (value >= 1e15) return fmt::format("{:.2e}", value);
  if (value < 9.95) return fmt::format("{:.1f}", value);
  return FormatInteger(std::llround(value));
}

}  // namespace

ProgressMode ChooseProgressMode(bool quiet, bool is_terminal, const char* term,
                                const char* no_color, const char* ci) {
  if (quiet) return ProgressMode::kQuiet;
  const bool live = is_terminal && IsSet(term) && std::strcmp(term, "dumb") != 0 &&
                    !IsSet(no_color) && !IsSet(ci);
  return live ? ProgressMode::kLive : ProgressMode::kLines;
}

ProgressMode StderrProgressMode(bool quiet) {
  if (std::getenv(kReportVariable) != nullptr) return ProgressMode::kReport;
  return ChooseProgressMode(quiet, isatty(STDERR_FILENO) != 0, std::getenv("TERM"),
                            std::getenv("NO_COLOR"), std::getenv("CI"));
}

std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

std::vector<std::string> ProgressFields(const RunProgress& progress) {
  std::vector<std::string> fields = {fmt::format("epoch {:.1f}", progress.epoch)};
  if (IsShown(progress.epochs) && progress.epochs > 0) {
    fields.back() += fmt::format("/{:g}", progress.epochs);
  }
  if (progress.loss) fields.push_back("loss " + FormatNumber(*progress.loss));
  if (progress.metric) {
    const RunProgress::Metric& metric = *progress.metric;
    std::string text = metric.label + " ";
    if (metric.unit == "%") {
      text += fmt::format("{:.2f}%", 100 * metric.value);
    } else {
      text += FormatNumber(metric.value);
      if (!metric.unit.empty()) text += " " + metric.unit;
    }
    fields.push_back(std::move(text));
  }
  if (IsShown(progress.cases_per_second)) {
    fields.push_back(FormatThousands(*progress.cases_per_second) + " cases/s");
  }
  return fields;
}

std::string FormatReport(const ProgressReport& report) {
  return fmt::format("{}{:.4f} {:.1f} {}\n", kReportMark, report.fraction,
                     report.seconds_left.value_or(-1), FitToColumns(report.phase, kUnlimited));
}

std::optional<ProgressReport> ParseReport(std::string_view line) {
  if (!line.starts_with(kReportMark)) return std::nullopt;
  line.remove_prefix(1);
  std::array<double, 2> values{};
  for (double& value : values) {
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
    line.remove_prefix(static_cast<size_t>(end - line.data()));
    if (!line.starts_with(' ')) return std::nullopt;
    line.remove_prefix(1);
  }
  ProgressReport report{std::clamp(values[0], 0.0, 1.0), std::nullopt, std::string(line)};
  if (values[1] >= 0) report.seconds_left = values[1];
  return report;
}

std::string FitToColumns(std::string_view text, int columns) {
  std::string fitted;
  for (; columns > 0 && !text.empty(); --columns) {
    const size_t length = Utf8SequenceLength(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    fitted += length == 0 || IsControlCharacter(character) ? "?" : character;
    text.remove_prefix(character.size());
  }
  return fitted;
}

std::string FitFields(const std::vector<std::string>& fields, int columns) {
  constexpr std::string_view kGap = "  ";
  const auto limit = static_cast<size_t>(std::max(columns, 0));
  std::string line;
  size_t width = 0;
  const auto add = [&](const std::string& text, std::string_view gap) {
    const size_t more = (line.empty() ? 0 : gap.size()) + Width(text);
    if (width + more > limit) return false;
    line += (line.empty() ? "" : std::string(gap)) + text;
    width += more;
    return true;
  };
  for (const std::string& field : fields) {
    const std::string text = FitToColumns(field, kUnlimited);
    if (add(text, kGap) || &field != &fields.front()) continue;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size());
      if (!add(text.substr(begin, end - begin), " ")) return line;
      begin = end + 1;
    }
  }
  return line;
}

ProgressOutput ProgressOutput::Stderr() {
  return {.seconds =
              [] {
                return std::chrono::duration<double>(
                           std::chrono::steady_clock::now().time_since_epoch())
                    .count();
              },
          .write =
              [](std::string_view text) {
                // If stderr fails, there is nowhere to report it.
                while (!text.empty()) {
                  const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
                  if (count < 0 && errno == EINTR) continue;
                  if (count <= 0) return;
                  text.remove_prefix(static_cast<size_t>(count));
                }
              },
          .columns =
              [] {
                winsize size{};
                const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
                return known ? int{size.ws_col} : 80;
              }};
}

Progress::Progress(int total_runs, ProgressMode mode, ProgressOutput output)
    : total_runs_(total_runs), mode_(mode), output_(std::move(output)) {}

Progress::~Progress() {
  if (drawn_) output_.write(kClearLine);
}

void Progress::SetTimeLeft(std::function<std::optional<double>(const RunTime&)> time_left) {
  time_left_ = std::move(time_left);
}

void Progress::StartRun(int index, std::string name) {
  place_ = fmt::format("run {}/{}", index, total_runs_);
  name_ = std::move(name);
  phase_.clear();
  progress_ = {};
  started_ = updated_ = output_.seconds();
  fields_ = RunFields();
  // Immediately, because the run's first update can take long.
  if (mode_ == ProgressMode::kLive) last_shown_.reset();
  Show();
}

void Progress::Update(const RunProgress& progress) {
  if (mode_ == ProgressMode::kQuiet) return;
  progress_ = progress;
  phase_.clear();
  updated_ = output_.seconds();
  Tick();
}

void Progress::Phase(std::string phase) {
  if (mode_ == ProgressMode::kQuiet) return;
  phase_ = std::move(phase);
  Tick();
}

void Progress::Tick() {
  // Before the first run, only a terminal shows what happens: a line of a file would stay.
  if (place_.empty() && (phase_.empty() || mode_ != ProgressMode::kLive)) return;
  if (!IsDue()) return;
  fields_ = RunFields();
  Show();
}

void Progress::ShowFields(std::vector<std::string> fields) {
  fields_ = std::move(fields);
  Show();
}

void Progress::Note(std::string_view text) {
  if (mode_ == ProgressMode::kLines || mode_ == ProgressMode::kLive) Print(text);
}

void Progress::Warn(std::string_view text) { Print(text); }

void Progress::EndRun(std::string_view summary) {
  const std::string run = FitToColumns(place_ + " " + name_, kUnlimited);
  LeaveRun();
  Note(fmt::format("{}  {}", run, summary));
}

void Progress::LeaveRun() {
  place_.clear();
  name_.clear();
  phase_.clear();
  fields_.clear();
}

// Returns the times of the current run. Its time left counts down between two updates; once the
// weights are final it is unknown, because tests have other speeds.
RunTime Progress::Time() const {
  const double now = output_.seconds();
  RunTime time{now - started_};
  if (IsShown(progress_.seconds_left) && *progress_.seconds_left > 0) {
    time.left = std::max(0.0, *progress_.seconds_left - (now - updated_));
  }
  return time;
}

// Returns the fields of the current run's line, the most important first: a narrow terminal leaves
// out the others.
std::vector<std::string> Progress::RunFields() const {
  if (place_.empty()) return {phase_};
  std::vector<std::string> fields = {place_};
  const RunTime time = Time();
  const std::optional<double> left = time_left_ ? time_left_(time) : time.left;
  if (IsShown(left)) fields.push_back(FormatDuration(*left) + " left");
  fields.push_back(name_);
  if (!phase_.empty()) {
    fields.push_back(phase_);
  } else if (progress_.epochs > 0 || progress_.epoch > 0) {
    std::ranges::move(ProgressFields(progress_), std::back_inserter(fields));
  }
  return fields;
}

// Returns true if the last line is old enough for another one.
bool Progress::IsDue() const {
  const double interval = mode_ == ProgressMode::kLive    ? kRedrawSeconds
                          : mode_ == ProgressMode::kLines ? kLineSeconds
                                                          : kReportSeconds;
  return mode_ != ProgressMode::kQuiet &&
         (!last_shown_ || output_.seconds() - *last_shown_ >= interval);
}

// Shows the live line if it is due.
void Progress::Show() {
  if (!IsDue()) return;
  last_shown_ = output_.seconds();
  if (mode_ == ProgressMode::kReport) {
    const double fraction = progress_.epochs > 0 ? progress_.epoch / progress_.epochs : 0;
    output_.write(FormatReport({fraction, Time().left, phase_}));
  } else if (mode_ == ProgressMode::kLines) {
    output_.write(FitFields(fields_, kUnlimited) + "\n");
  } else {
    // Leaves the last column free, because a full line wraps on some terminals.
    output_.write("\r" + FitFields(fields_, output_.columns() - 1) + "\x1b[K");
    drawn_ = true;
  }
}

// Prints a permanent line, and redraws the live line below it if there is one.
void Progress::Print(std::string_view text) {
  std::string out;
  if (drawn_) out += kClearLine;
  out += Escaped(text, /*keep_lines=*/true);
  out += '\n';
  if (!place_.empty()) fields_ = RunFields();
  const bool redraw = drawn_ && !fields_.empty();
  if (redraw) out += FitFields(fields_, output_.columns() - 1) + "\x1b[K";
  drawn_ = redraw;
  output_.write(out);
  last_shown_ = output_.seconds();
}

}  // namespace planish::lab
