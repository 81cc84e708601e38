#ifndef PLANISH_PARALLEL_H_
#define PLANISH_PARALLEL_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace planish {

/// A reference to work over a range of indices: `task(begin, end)` does the work of
/// begin, begin + 1, ..., end - 1. It does not own what it refers to, and copying it costs two
/// words; it is valid while the call that handed it out runs.
class RangeTask {
 public:
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, RangeTask> &&
             std::invocable<const F&, int64_t, int64_t>)
  RangeTask(const F& f)  // NOLINT(google-explicit-constructor): a lambda is passed as it is
      : object_(std::addressof(f)), call_([](const void* object, int64_t begin, int64_t end) {
          (*static_cast<const F*>(object))(begin, end);
        }) {}

  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void* object, int64_t begin, int64_t end);
};

/// How the library runs work on several threads: `parallel_for(begin, end, grain, task)` calls
/// `task` with ranges that cover [begin, end), each index once, in any order and on any threads,
/// and returns when all of them have returned. `grain` is the number of indices (at least 1) below
/// which a range is not worth a thread of its own. Results do not depend on the ranges, to the bit.
/// The library's own tasks do not throw. An empty ParallelFor stands for DefaultParallelFor.
using ParallelFor = std::function<void(int64_t begin, int64_t end, int64_t grain, RangeTask task)>;

/// Runs `task` on threads that start when work is first large enough and that sleep between calls.
/// If the system refuses to start some of them, the others do the work. A call from within a task,
/// beside another thread's call, or in a process forked from the one that started the threads runs
/// on the calling thread. Programs with threads of their own, such as OpenMP's, pass a ParallelFor
/// that uses those: two pools compete for the processors.
///
/// If the task throws, the other ranges still run to their ends; then the exception is rethrown
/// here, that of the first range (by index) if several threw. Later calls use all threads again.
void DefaultParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task);

/// Returns the number of threads that DefaultParallelFor uses, including the calling one: before
/// the first large call the number asked for, then the number that the system has granted. It
/// begins as the environment's PLANISH_THREADS, else as the number of processors that the process
/// can run on.
int Threads();

/// Sets the number of threads of DefaultParallelFor; more than 1,024 count as 1,024. Waits for a
/// call on another thread to end. In a forked process calls stay on the calling thread. Throws
/// Error if `threads` is less than 1, or if called from within a task.
void SetThreads(int threads);

/// Runs everything on the calling thread.
inline void SerialFor(int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
  task(begin, end);
}

}  // namespace planish

#endif  // PLANISH_PARALLEL_H_
