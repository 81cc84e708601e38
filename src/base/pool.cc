#include <pthread.h>

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "planish/error.h"
#include "planish/parallel.h"
#include "src/base/await.h"
#include "src/base/check.h"

namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::AwaitChange;

// --- Tuning constants (docs/tuning.md) ---

// Limit on threads: every thread adds to the cost of each call.
constexpr int kMaxThreads = 1024;

// --- End of tuning constants ---

// Set while this thread runs a part of a task.
thread_local bool inside = false;

// Threads that run the parts of one job at a time. Workers wait for `round_` to change, run their
// part if they have one, and then decrement `running_`. So no worker reads a job while the next is
// written. Parts are assigned by index, so that data stays in the cache of a core from call to
// call.
class Pool {
 public:
  // Starts `threads - 1` workers, or fewer if the system refuses some.
  explicit Pool(int threads) {
    workers_.reserve(static_cast<size_t>(threads - 1));  // can throw only before there are workers
    try {
      for (int i = 1; i < threads; ++i) {
        workers_.emplace_back([this, i] { Work(i); });
      }
    } catch (const std::exception&) {
      // Too many processes or too little memory: the threads that did start do the work.
    }
  }

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  ~Pool() {
    stop_ = true;
    Publish();
    for (std::thread& worker : workers_) worker.join();
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs `parts` parts, at most threads(). When all have ended, rethrows the exception of the first
  // part that failed.
  void Run(int64_t begin, int64_t end, int parts, RangeTask task) {
    begin_ = begin;
    end_ = end;
    parts_ = parts;
    task_ = &task;
    running_.store(workers_.size(), std::memory_order_relaxed);
    Publish();
    Part(0);
    for (uint64_t left = running_.load(std::memory_order_acquire); left != 0;) {
      left = AwaitChange(running_, left);
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void Publish() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void Part(int i) noexcept {
    const int64_t n = end_ - begin_;
    const int64_t each = n / parts_, more = n % parts_;  // the first `more` parts have one more
    const int64_t first = begin_ + i * each + std::min<int64_t>(i, more);
    try {
      (*task_)(first, first + each + (i < more ? 1 : 0));
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_ || i < error_part_) {
        error_ = std::current_exception();
        error_part_ = i;
      }
    }
  }

  void Work(int i) {
    inside = true;
    for (uint64_t seen = 0;;) {
      seen = AwaitChange(round_, seen);
      if (stop_) return;
      if (i < parts_) Part(i);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::atomic<uint64_t> round_{0}, running_{0};
  bool stop_ = false;
  int parts_ = 0;
  int64_t begin_ = 0, end_ = 0;
  const RangeTask* task_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  int error_part_ = 0;
};

// The pool and its owner. In a forked child the threads do not exist.
struct State {
  // Set while a thread uses the pool. Not a mutex: a child forked meanwhile could not unlock it.
  std::atomic<bool> busy{false};
  std::unique_ptr<Pool> pool;
  std::atomic<int> threads{0};
  std::atomic<bool> forked{false};
};

State& TheState() {
  // Never destroyed: other threads can still compute while the process ends.
  static State* const state = [] {
    auto* s = new State;
    pthread_atfork(nullptr, nullptr, [] {
      TheState().forked = true;
      TheState().busy = false;
    });
    return s;
  }();
  return *state;
}

// Exclusive use of the pool, released by the destructor.
class Turn {
 public:
  explicit Turn(State& state) : state_(state) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!taken_) return;
    state_.busy.store(false, std::memory_order_release);
    state_.busy.notify_one();
  }

  bool Try() { return taken_ = !state_.busy.exchange(true, std::memory_order_acquire); }
  void Wait() {
    while (!Try()) state_.busy.wait(true, std::memory_order_relaxed);
  }

 private:
  State& state_;
  bool taken_ = false;
};

// Sets a flag for the lifetime of the object.
class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;
  ~Flag() { flag_ = false; }

 private:
  bool& flag_;
};

// Returns the pool and starts it at the first call. Returns null if there is no memory for it.
// Afterwards Threads() is the number of threads that the system granted.
Pool* StartedPool(State& state) {
  if (!state.pool) {
    try {
      state.pool = std::make_unique<Pool>(state.threads);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    state.threads = state.pool->threads();
  }
  return state.pool.get();
}

// Returns the number of processors that this process can run on.
int Processors() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

int InitialThreads() {
  // The environment is read once, by the thread that comes first.
  if (const char* text = std::getenv("PLANISH_THREADS")) {  // NOLINT(concurrency-mt-unsafe)
    int threads = 0;
    const char* end = text + std::strlen(text);
    const auto [stopped, error] = std::from_chars(text, end, threads);
    if (error != std::errc() || stopped != end || threads < 1) {
      internal::Fail("PLANISH_THREADS", "threads", "be a number of at least 1",
                     "\"" + std::string(text) + "\"");
    }
    return std::min(threads, kMaxThreads);
  }
  return std::clamp(Processors(), 1, kMaxThreads);
}

}  // namespace

int Threads() {
  State& state = TheState();
  if (state.threads == 0) state.threads = InitialThreads();
  return state.threads;
}

void SetThreads(int threads) {
  if (threads < 1)
    internal::Fail("SetThreads", "threads", "be at least 1", std::to_string(threads));
  if (inside) throw Error("SetThreads must not be called from within a task");
  State& state = TheState();
  Turn turn(state);
  turn.Wait();
  state.threads = std::min(threads, kMaxThreads);
  if (!state.forked) state.pool.reset();
}

void DefaultParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  const int64_t n = end - begin;
  const int64_t max_parts = (n + grain - 1) / grain;
  State& state = TheState();
  if (std::min<int64_t>(Threads(), max_parts) <= 1 || inside || state.forked)
    return task(begin, end);
  Turn turn(state);
  if (!turn.Try()) return task(begin, end);
  Pool* const pool = StartedPool(state);
  const int parts = pool ? static_cast<int>(std::min<int64_t>(pool->threads(), max_parts)) : 1;
  if (parts <= 1) return task(begin, end);
  const Flag now_inside(inside);
  pool->Run(begin, end, parts, task);
}

}  // namespace PLANISH_API
}  // namespace planish
