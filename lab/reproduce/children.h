#ifndef PLANISH_LAB_REPRODUCE_CHILDREN_H_
#define PLANISH_LAB_REPRODUCE_CHILDREN_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "lab/run/posix_file.h"

namespace planish::lab {

/// Child processes of one program. Each has a process group of its own, so that a terminal's Ctrl-C
/// does not reach it beside what Terminate sends. Their stdout goes nowhere, their stderr is kept.
class Children {
 public:
  /// A child that has ended.
  struct Ended {
    size_t id = 0;
    int status = 0;     ///< of exit, or 128 and the signal that ended it
    std::string error;  ///< its last line on stderr
  };

  explicit Children(std::string program = "/proc/self/exe") : program_(std::move(program)) {}
  /// Terminates those still running and waits for them.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Starts the program with `arguments`; `id` is the caller's name for it. Throws RunError with the
  /// system's reason.
  void Start(size_t id, const std::vector<std::string>& arguments);

  /// Those that have ended, at the latest after `milliseconds`; at once when there are none to wait
  /// for. A signal ends the wait.
  std::vector<Ended> Wait(int milliseconds);

  /// Asks all to save and end (SIGTERM).
  void Terminate();

  size_t running() const { return children_.size(); }
  std::vector<pid_t> Pids() const;

 private:
  struct Child {
    size_t id = 0;
    pid_t pid = 0;
    FileDescriptor errors;  // closed once the child has closed its end
    std::string text;
  };

  void ReadErrors(Child& child);

  std::string program_;
  std::vector<Child> children_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPRODUCE_CHILDREN_H_
