#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "lab/base/escape.h"
#include "lab/commands/commands.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

namespace {

RunError CannotPrint() { return CannotWrite("stdout", SystemReason(errno)); }

}  // namespace

TableOptions StdoutTable() {
  TableOptions options;
  if (isatty(STDOUT_FILENO) == 0) return options;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.width = size.ws_col;
  options.colour = ChooseProgressMode(false, true, std::getenv("TERM"), std::getenv("NO_COLOR"),
                                      nullptr) == ProgressMode::kLive;
  return options;
}

void Print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) throw CannotPrint();
}

void Warn(std::string_view text) { Inform("warning: " + std::string(text)); }

void Inform(std::string_view text) { std::fputs((Escaped(text) + "\n").c_str(), stderr); }

void WarnOfLeftOutRun(std::string_view fault) { Warn("left out: " + std::string(fault)); }

std::vector<Run> FindReadableRuns(const std::vector<std::filesystem::path>& roots) {
  FoundRuns found = FindRuns(roots);
  for (const std::string& fault : found.faults) WarnOfLeftOutRun(fault);
  return std::move(found.runs);
}

std::vector<SequentialTests> FindReadableLooks(const std::vector<std::filesystem::path>& roots) {
  FoundLooks found = FindLooks(roots);
  for (const std::string& fault : found.faults) Warn(fault);
  return std::move(found.papers);
}

void PrintText(std::string_view text) {
  Print(isatty(STDOUT_FILENO) != 0 ? Escaped(text, /*keep_lines=*/true) : std::string(text));
}

void FlushStdout() {
  errno = 0;
  if (std::fflush(stdout) != 0) throw CannotPrint();
}

}  // namespace planish::lab
