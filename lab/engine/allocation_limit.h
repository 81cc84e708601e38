#ifndef PLANISH_LAB_ENGINE_ALLOCATION_LIMIT_H_
#define PLANISH_LAB_ENGINE_ALLOCATION_LIMIT_H_

#include <cstdint>
#include <stdexcept>

namespace planish::lab {

/// Error of a tensor beyond an AllocationLimit.
class AllocationLimitExceeded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Limits the bytes that this thread allocates for tensors on the CPU while the object exists.
/// Freed memory counts, too. An allocation beyond the limit throws AllocationLimitExceeded before
/// any memory is taken. Objects must not be nested.
class AllocationLimit {
 public:
  explicit AllocationLimit(int64_t bytes);
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

  /// Returns the bytes that were allocated.
  int64_t used() const;

 private:
  int64_t bytes_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_ALLOCATION_LIMIT_H_
