#ifndef PLANISH_ERROR_H_
#define PLANISH_ERROR_H_

#include <stdexcept>
#include <string>

#include "planish/version.h"

// Exceptions of the core. core.h says when they are thrown and what has been written by then.
//
// Example:
//   try {
//     planish::NormForward<float>(planish::Norm::kLayer, {.rows = -1, .cols = 3});
//   } catch (const planish::Error& error) {
//     std::puts(error.what());
//   }
//   // prints [NormForward] rows must be at least 0, got -1
namespace planish {
inline namespace PLANISH_API {

/// Base class of the exceptions that the core throws. Thrown itself for a call that is not allowed
/// where it is made (SetThreads from within a task).
///
/// std::bad_alloc, and exceptions of a caller's ParallelFor or of its tasks, reach the caller
/// unchanged.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument is wrong: `[function] argument must ..., got VALUE`. Thrown before any output is
/// written.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// The GPU or its driver refused a call, or Planish was built without CUDA: `[function] ...`, with
/// the text of the CUDA runtime if there is one. Outputs are then undefined.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& message, int error_code) : Error(message), code_(error_code) {}

  /// Returns the cudaError_t, or 0 if Planish was built without CUDA.
  int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_ERROR_H_
