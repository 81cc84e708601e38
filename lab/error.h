#ifndef PLANISH_LAB_ERROR_H_
#define PLANISH_LAB_ERROR_H_

#include <stdexcept>

// Errors of a command. main.cc prints each as one line on stderr and maps it to an exit status; all
// other exceptions give status 1. Texts on arguments have the core's form,
// `[Function] argument must ..., got VALUE`. Other texts are sentences that name the file first.
namespace planish::lab {

/// Error of the command line, such as an unknown name or a value out of range. Exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Error of a data file: missing, truncated or malformed. Exit status 3.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Error of a run folder, checkpoint or output that cannot be read or written. Exit status 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ERROR_H_
