#ifndef PLANISH_LAB_ERROR_H_
#define PLANISH_LAB_ERROR_H_

#include <stdexcept>

// Errors of a command. main.cc prints each as one line on stderr and maps it to an exit status; all
// other exceptions give status 1. Texts on arguments have the core's form:
// `[Function] argument must ..., got VALUE`.
namespace planish::lab {

/// The command line asks for something that does not exist or does not fit. Exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A data file is missing, truncated or not what it says it is. Exit status 3.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A run folder, checkpoint or output cannot be read or written. Exit status 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ERROR_H_
