#ifndef PLANISH_LAB_QUEUE_CHILDREN_H_
#define PLANISH_LAB_QUEUE_CHILDREN_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lab/run/posix_file.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

/// Child processes of one program. Each has its own process group, so a terminal's Ctrl-C does not
/// reach it in addition to Terminate. Discards their stdout and keeps their stderr. They report
/// their progress (ProgressMode::kReport).
class Children {
 public:
  /// Child that has ended.
  struct Ended {
    size_t id = 0;
    int status = 0;     ///< exit status, or 128 plus the signal that ended it
    std::string error;  ///< its last line on stderr
  };

  explicit Children(std::string program = "/proc/self/exe") : program_(std::move(program)) {}
  /// Terminates running children and waits for them.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Starts the program with `arguments`; `id` is the caller's name for it. Throws RunError with
  /// the system's reason.
  void Start(size_t id, const std::vector<std::string>& arguments);

  /// Waits until a child ends, a signal arrives or `milliseconds` pass. Returns the children that
  /// have ended; returns immediately if none is running.
  std::vector<Ended> Wait(int milliseconds);

  /// Requests all to save and exit (SIGTERM).
  void Terminate();

  size_t running() const { return children_.size(); }

  /// Returns the last report that Wait has read of the running child `id`, if there is one.
  std::optional<ProgressReport> Report(size_t id) const;

 private:
  struct Child {
    size_t id = 0;
    pid_t pid = 0;
    FileDescriptor errors;  // closed once the child has closed its end
    std::string text;
    std::optional<ProgressReport> report;
  };

  static void ReadErrors(Child& child);
  static void TakeReports(Child& child);

  std::string program_;
  std::vector<Child> children_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_QUEUE_CHILDREN_H_
