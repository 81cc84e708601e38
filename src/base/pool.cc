#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "planish/parallel.h"
#include "src/base/await.h"
#include "src/base/check.h"

namespace planish {
namespace {

using internal::AwaitChange;

// Workers wait for `round_` to change, then each does its part of the job if it has one, and says
// so in either case: none is still looking at a job when the next one is written down. The parts
// are cut beforehand: who does what is the same from call to call, and so is whose cache holds it.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) {
      workers_.emplace_back([this, i] { Work(i); });
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
  }

 private:
  void Publish() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void Part(int64_t i) {
    const int64_t n = end_ - begin_;
    const int64_t each = n / parts_, more = n % parts_;  // the first `more` have one more
    const int64_t first = begin_ + i * each + std::min(i, more);
    (*task_)(first, first + each + (i < more ? 1 : 0));
  }

  void Work(int i) {
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
};

// The pool, and who may use it. In a forked child the threads are gone.
struct State {
  std::mutex mutex;
  std::unique_ptr<Pool> pool;
  std::atomic<int> threads{0};
  std::atomic<bool> forked{false};
};

State& TheState() {
  // Never destroyed: other threads may compute while the process ends.
  static State* const state = [] {
    auto* s = new State;
    pthread_atfork(nullptr, nullptr, [] { TheState().forked = true; });
    return s;
  }();
  return *state;
}

int InitialThreads() {
  // The environment is read once, by whichever thread comes first.
  if (const char* text = std::getenv("PLANISH_THREADS")) {  // NOLINT(concurrency-mt-unsafe)
    int threads = 0;
    const char* end = text + std::strlen(text);
    const auto [stopped, error] = std::from_chars(text, end, threads);
    if (error != std::errc() || stopped != end || threads < 1) {
      internal::Fail("PLANISH_THREADS", "threads", "be a number of at least 1",
                     "\"" + std::string(text) + "\"");
    }
    return threads;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
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
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.threads = threads;
  if (!state.forked) state.pool.reset();
}

void DefaultParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  const int64_t n = end - begin;
  const int64_t most = (n + grain - 1) / grain;
  const int parts = static_cast<int>(std::min<int64_t>(Threads(), most));
  State& state = TheState();
  thread_local bool inside = false;
  if (parts <= 1 || inside || state.forked) return task(begin, end);
  std::unique_lock lock(state.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return task(begin, end);
  if (!state.pool) state.pool = std::make_unique<Pool>(state.threads);
  inside = true;
  state.pool->Run(begin, end, parts, task);
  inside = false;
}

}  // namespace planish
