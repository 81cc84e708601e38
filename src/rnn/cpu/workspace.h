#ifndef PLANISH_SRC_RNN_CPU_WORKSPACE_H_
#define PLANISH_SRC_RNN_CPU_WORKSPACE_H_

#include <cstdint>
#include <memory>

#include "src/base/aligned.h"
#include "src/rnn/cpu/packed.h"
#include "src/rnn/cpu/sums.h"

namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Workspace bytes that a recurrent layer's call keeps for the next call of its thread. Saves the
/// page faults of newly mapped memory.
inline constexpr int64_t kKeptBytes = int64_t{1} << 26;

// --- End of tuning constants ---

/// The workspace of a call, reused by later calls.
template <class T>
struct RnnMemory {
  PackedLayer<T> packed;
  // For both directions.
  Buffer<T> state, zx, step;
  Buffer<int64_t> active;
  // Only for backward.
  Buffer<T> gradients, reset_sums, anew;
  ParamSums<T> sums;

  int64_t bytes() const;
};

/// The calling thread's workspace during the object's lifetime. The destructor frees it if it is
/// larger than kKeptBytes.
template <class T>
class ThreadMemory {
 public:
  ThreadMemory();
  ~ThreadMemory();
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;
  RnnMemory<T>& operator*() const { return *memory_; }

 private:
  std::unique_ptr<RnnMemory<T>> memory_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_WORKSPACE_H_
