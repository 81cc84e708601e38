#ifndef PLANISH_ERROR_H_
#define PLANISH_ERROR_H_

#include <stdexcept>
#include <string>

#include "planish/version.h"

namespace planish {
inline namespace PLANISH_API {

/// Base class of the exceptions that the core throws. std::bad_alloc, and exceptions from tasks of
/// a ParallelFor, reach the caller unchanged.
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

/// The GPU or its driver refused a call, or Planish was built without CUDA. Outputs are then
/// undefined.
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
