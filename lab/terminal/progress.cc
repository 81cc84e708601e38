#include "lab/terminal/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"

namespace planish::lab {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 30;
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
  return ChooseProgressMode(quiet, isatty(STDERR_FILENO) != 0, std::getenv("TERM"),
                            std::getenv("NO_COLOR"), std::getenv("CI"));
}

std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

std::string FormatProgress(const RunProgress& progress) {
  std::string text = fmt::format("epoch {:.1f}", progress.epoch);
  if (IsShown(progress.epochs) && progress.epochs > 0)
    text += fmt::format("/{:g}", progress.epochs);
  // Early, so that a narrow terminal does not cut it off.
  if (IsShown(progress.seconds_left)) {
    text += "  " + FormatDuration(*progress.seconds_left) + " left";
  }
  if (progress.loss) text += "  loss " + FormatNumber(*progress.loss);
  if (progress.metric) {
    const RunProgress::Metric& metric = *progress.metric;
    text += "  " + metric.label + " ";
    if (metric.unit == "%") {
      text += fmt::format("{:.2f}%", 100 * metric.value);
    } else {
      text += FormatNumber(metric.value);
      if (!metric.unit.empty()) text += " " + metric.unit;
    }
  }
  if (IsShown(progress.cases_per_second)) {
    text += "  " + FormatThousands(*progress.cases_per_second) + " cases/s";
  }
  return text;
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

void Progress::StartRun(int index, std::string name) {
  run_ = FitToColumns(fmt::format("run {}/{} {}", index, total_runs_, name), kUnlimited);
  // Immediately, because the run's first update can take long.
  if (mode_ == ProgressMode::kLive) last_shown_.reset();
  Show(run_);
}

void Progress::Update(const RunProgress& progress) {
  if (mode_ != ProgressMode::kQuiet) Show(run_ + "  " + FormatProgress(progress));
}

void Progress::Update(const std::string& text) { Show(text); }

void Progress::Note(std::string_view text) {
  if (mode_ != ProgressMode::kQuiet) Print(text);
}

void Progress::Warn(std::string_view text) { Print(text); }

void Progress::EndRun(std::string_view summary) {
  line_.clear();
  Note(fmt::format("{}  {}", run_, summary));
}

// Shows a transient line, unless the last one is too recent.
void Progress::Show(const std::string& line) {
  if (mode_ == ProgressMode::kQuiet) return;
  line_ = line;
  const double now = output_.seconds();
  const double interval = mode_ == ProgressMode::kLive ? kRedrawSeconds : kLineSeconds;
  if (last_shown_ && now - *last_shown_ < interval) return;
  last_shown_ = now;
  if (mode_ == ProgressMode::kLines) {
    output_.write(FitToColumns(line, kUnlimited) + "\n");
    return;
  }
  // One column stays free: a full line wraps on some terminals.
  output_.write("\r" + FitToColumns(line, output_.columns() - 1) + "\x1b[K");
  drawn_ = true;
}

// Prints a permanent line, and redraws the live line below it if there is one.
void Progress::Print(std::string_view text) {
  std::string out;
  if (drawn_) out += kClearLine;
  out += Escaped(text, /*keep_lines=*/true);
  out += '\n';
  const bool redraw = drawn_ && !line_.empty();
  if (redraw) out += FitToColumns(line_, output_.columns() - 1) + "\x1b[K";
  drawn_ = redraw;
  output_.write(out);
  last_shown_ = output_.seconds();
}

}  // namespace planish::lab
