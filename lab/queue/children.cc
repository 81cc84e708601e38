#include "lab/queue/children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lab/error.h"
#include "lab/terminal/interrupt.h"

extern char** environ;

namespace planish::lab {

namespace {

RunError CannotStart(const std::string& program, int error) {
  return RunError("cannot start " + program + ": " + SystemReason(error));
}

// Options of posix_spawn for a child: its streams and its process group.
class SpawnOptions {
 public:
  explicit SpawnOptions(int errors) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes_, 0);
  }
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

Children::~Children() {
  Terminate();
  for (const Child& child : children_) {
    while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Children::Start(size_t id, const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw CannotStart(program_, errno);
  Child child{id, 0, FileDescriptor(ends[0]), {}, {}};
  const FileDescriptor theirs(ends[1]);
  // The child's end blocks, so that a full pipe loses no line.
  fcntl(theirs.get(), F_SETFL, 0);
  const SpawnOptions options(theirs.get());
  std::vector<char*> argv = {const_cast<char*>("planish")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::string starter = fmt::format("{}={}", kStarterVariable, getpid());
  std::string report = fmt::format("{}=1", kReportVariable);
  std::vector<char*> environment = {starter.data(), report.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  const int error = posix_spawn(&child.pid, program_.c_str(), options.actions(),
                                options.attributes(), argv.data(), environment.data());
  if (error != 0) throw CannotStart(program_, error);
  children_.push_back(std::move(child));
}

// Reads available output without waiting. Keeps the end of a long text.
void Children::ReadErrors(Child& child) {
  constexpr size_t kKept = 64 * 1024;
  std::array<char, 4096> buffer;
  while (child.errors) {
    const ssize_t count = read(child.errors.get(), buffer.data(), buffer.size());
    if (count > 0) {
      child.text.append(buffer.data(), static_cast<size_t>(count));
      TakeReports(child);
      if (child.text.size() > 2 * kKept) child.text.erase(0, child.text.size() - kKept);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      child.errors = FileDescriptor();
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

// Removes complete reports from the text, and keeps the last one.
void Children::TakeReports(Child& child) {
  std::string& text = child.text;
  while (true) {
    const size_t begin = text.find(kReportMark);
    const size_t end = begin == std::string::npos ? begin : text.find('\n', begin);
    if (end == std::string::npos) return;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (std::optional<ProgressReport> report = ParseReport(line)) child.report = std::move(report);
    text.erase(begin, end - begin + 1);
  }
}

std::optional<ProgressReport> Children::Report(size_t id) const {
  const auto child = std::ranges::find(children_, id, &Child::id);
  return child == children_.end() ? std::nullopt : child->report;
}

std::vector<Children::Ended> Children::Wait(int milliseconds) {
  std::vector<pollfd> waiting;
  for (const Child& child : children_) {
    if (child.errors) waiting.push_back({child.errors.get(), POLLIN, 0});
  }
  // A child that ends closes its stderr, which ends the wait. A child that closed it earlier is
  // checked after the timeout.
  if (!children_.empty()) poll(waiting.data(), waiting.size(), milliseconds);
  std::vector<Ended> ended;
  for (Child& child : children_) {
    ReadErrors(child);
    int status = 0;
    const pid_t pid = waitpid(child.pid, &status, WNOHANG);
    if (pid != child.pid) continue;
    ReadErrors(child);
    ended.push_back({child.id, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
                     LastLine(child.text)});
    child.pid = 0;
  }
  std::erase_if(children_, [](const Child& child) { return child.pid == 0; });
  return ended;
}

void Children::Terminate() {
  for (const Child& child : children_) kill(child.pid, SIGTERM);
}

}  // namespace planish::lab
