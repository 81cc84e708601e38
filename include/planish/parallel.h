#ifndef PLANISH_PARALLEL_H_
#define PLANISH_PARALLEL_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "planish/version.h"

// Division of work over threads: by the library's own threads, or by a function of the caller. All
// functions can be called from several threads at once, except for calls of SetThreads from within
// a task.
//
// Example: a ParallelFor on OpenMP's threads, and a call of it. NormOptions, BatchNormOptions,
// RnnOptions and so on take it as `parallel_for`.
//   const planish::ParallelFor openmp = [](int64_t begin, int64_t end, int64_t grain,
//                                          planish::RangeTask task) {
//   #pragma omp parallel for schedule(static)
//     for (int64_t i = begin; i < end; i += grain) task(i, std::min(i + grain, end));
//   };
//   std::vector<int64_t> squares(1000);
//   openmp(0, 1000, 100, [&](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) squares[i] = i * i;
//   });
//   std::printf("%d", static_cast<int>(squares[999]));
//   // prints 998001
namespace planish {
inline namespace PLANISH_API {

/// Non-owning reference to a callable over a range of indices: `task(begin, end)` processes begin,
/// begin + 1, ..., end - 1. Copying it copies two pointers. It is valid until the call that
/// received the callable returns.
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

/// Function that runs work on several threads. `parallel_for(begin, end, grain, task)` calls `task`
/// with ranges that cover each index of [begin, end) exactly once, in any order and on any threads.
/// It returns when all of these calls have returned. A range of fewer than `grain` (>= 1) indices
/// is not worth a thread of its own.
///
/// Results have the same bits for any division into ranges. The tasks that the library passes do
/// not throw. If the function itself throws, it must do so after all calls of `task` have returned;
/// the library passes the exception to its caller. An empty ParallelFor means DefaultParallelFor.
using ParallelFor = std::function<void(int64_t begin, int64_t end, int64_t grain, RangeTask task)>;

/// Runs `task` on the library's own threads, which start at the first large call and sleep between
/// calls. If the system refuses to start some of them, the others do their work.
///
/// Runs everything on the calling thread when called from within a task or while a call of another
/// thread runs. Also does so in a process forked after the threads have started. Programs with
/// their own threads, such as OpenMP's, should pass a ParallelFor that uses them: two pools compete
/// for the processors.
///
/// If `task` throws, the other ranges still run to their end. Then the exception of the first range
/// (by index) that threw is rethrown here. Later calls use all threads again.
void DefaultParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task);

/// Returns the number of threads that DefaultParallelFor uses, including the calling one. Before
/// the first large call this is the requested number, afterwards the number that the system
/// granted. The initial value is the environment variable PLANISH_THREADS, or else the number of
/// processors available to the process. Throws ArgumentError if PLANISH_THREADS is not a number of
/// at least 1.
int Threads();

/// Sets the number of threads of DefaultParallelFor, at most 1,024; larger values count as 1,024.
/// Waits until a call on another thread has ended. In a forked process calls stay on the calling
/// thread. Throws ArgumentError if `threads` is less than 1, and Error if called from within a
/// task.
void SetThreads(int threads);

/// Runs `task` on the calling thread.
inline void SerialFor(int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
  task(begin, end);
}

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_PARALLEL_H_
