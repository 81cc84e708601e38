#include "src/base/cuda_emulation.h"

#include <setjmp.h>  // NOLINT(modernize-deprecated-headers): _setjmp
#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace planish::internal::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = size_t{1} << 16;

// Threads that wait for each other.
struct Barrier {
  unsigned members = 0;  // those that have not returned
  unsigned waiting = 0;
  uint64_t opened = 0;  // how often all of them had come

  void OpenIfAllAreThere() {
    if (waiting < members || waiting == 0) return;
    waiting = 0;
    ++opened;
  }
};

struct Warp {
  Barrier barrier;
  Lane lanes[kWarp] = {};
};

struct Block {
  Barrier barrier;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::max_align_t> shared;
};

struct Thread {
  ucontext_t context;  // where it begins
  jmp_buf jump;        // where it goes on, once it has begun
  bool begun = false;
  std::unique_ptr<char[]> stack;
  Place place;
  Block* block = nullptr;
  Warp* warp = nullptr;
  int lane = 0, parity = 0;
  const Barrier* waits_for = nullptr;
  uint64_t waits_until = 0;  // `opened` of that
  bool returned = false;
  std::exception_ptr error;
};

struct Machine {
  jmp_buf scheduler;
  Thread* running = nullptr;
  Barrier grid;
  const std::function<void()>* body = nullptr;
};

Order order = Order::kForward;
Machine* machine = nullptr;

Thread& Running() {
  if (machine == nullptr || machine->running == nullptr) {
    throw std::logic_error("no thread of an emulated kernel runs");
  }
  return *machine->running;
}

// To the scheduler and back. swapcontext would ask the system for the signal mask each time, which
// takes longer than all else.
[[gnu::noinline]] void Suspend(Thread& thread) {
  if (_setjmp(thread.jump) == 0) _longjmp(machine->scheduler, 1);
}
[[gnu::noinline]] void Resume(Thread& thread) {
  if (_setjmp(machine->scheduler) != 0) return;
  if (thread.begun) _longjmp(thread.jump, 1);
  thread.begun = true;
  setcontext(&thread.context);
}

// Where a thread begins.
void Enter() {
  Thread& thread = *machine->running;
  try {
    (*machine->body)();
  } catch (...) {
    thread.error = std::current_exception();
  }
  thread.returned = true;
  for (Barrier* barrier : {&thread.warp->barrier, &thread.block->barrier, &machine->grid}) {
    --barrier->members;
    barrier->OpenIfAllAreThere();
  }
  Suspend(thread);
}

// Puts the thread's beginning into its context.
void Prepare(Thread& thread) {
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack.get();
  thread.context.uc_stack.ss_size = kStackBytes;
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, Enter, 0);
}

bool MayRun(const Thread& thread) {
  return !thread.returned &&
         (thread.waits_for == nullptr || thread.waits_for->opened >= thread.waits_until);
}

// Runs the threads until all have returned.
void RunThreads(std::vector<std::unique_ptr<Thread>>& threads) {
  std::vector<Thread*> turns;
  for (const auto& thread : threads) turns.push_back(thread.get());
  if (order == Order::kBackward) std::ranges::reverse(turns);
  if (order == Order::kRandom) {
    std::mt19937 random(static_cast<unsigned>(turns.size()));
    std::ranges::shuffle(turns, random);
  }
  while (!turns.empty()) {
    bool any = false;
    for (Thread* thread : turns) {
      if (!MayRun(*thread)) continue;
      any = true;
      thread->waits_for = nullptr;
      machine->running = thread;
      Resume(*thread);
      machine->running = nullptr;
      if (thread->error) std::rethrow_exception(thread->error);
    }
    if (!any) throw std::logic_error("the threads of an emulated kernel wait for each other");
    std::erase_if(turns, [](const Thread* thread) { return thread->returned; });
  }
}

}  // namespace

const Place& Here() { return Running().place; }
Lane* Lanes() { return Running().warp->lanes; }
int LaneNumber() { return Running().lane; }
int& LaneParity() { return Running().parity; }
void* SharedMemory() { return Running().block->shared.data(); }

void Wait(Scope scope) {
  Thread& thread = Running();
  Barrier& barrier = scope == Scope::kWarp    ? thread.warp->barrier
                     : scope == Scope::kBlock ? thread.block->barrier
                                              : machine->grid;
  thread.waits_for = &barrier;
  thread.waits_until = barrier.opened + 1;
  ++barrier.waiting;
  barrier.OpenIfAllAreThere();
  Suspend(thread);
}

void Yield() { Suspend(Running()); }

void SetOrder(Order next) { order = next; }

void RunGrid(Index3 grid, unsigned block, size_t shared_bytes, bool cooperative,
             const std::function<void()>& thread) {
  if (machine != nullptr) throw std::logic_error("a kernel runs already");
  Machine here;
  here.body = &thread;
  struct Reset {
    ~Reset() { machine = nullptr; }
  } reset;
  machine = &here;

  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t at_once = cooperative ? blocks : 1;
  std::vector<std::unique_ptr<Thread>> threads;
  for (uint64_t i = 0; i < at_once * block; ++i) {
    threads.push_back(std::make_unique<Thread>());
    threads.back()->stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  }
  for (uint64_t first = 0; first < blocks; first += at_once) {
    std::vector<Block> running(at_once);
    here.grid = {static_cast<unsigned>(at_once * block), 0, 0};
    for (uint64_t b = 0; b < at_once; ++b) {
      running[b].barrier.members = block;
      running[b].shared.resize((shared_bytes + sizeof(std::max_align_t) - 1) /
                               sizeof(std::max_align_t));
      std::memset(running[b].shared.data(), 0xff,
                  running[b].shared.size() * sizeof(std::max_align_t));
      const uint64_t at = first + b;
      for (unsigned t = 0; t < block; ++t) {
        if (t % kWarp == 0) running[b].warps.push_back(std::make_unique<Warp>());
        Thread& it = *threads[b * block + t];
        it.place.thread = {t, 0, 0};
        it.place.block = {static_cast<unsigned>(at % grid.x),
                          static_cast<unsigned>(at / grid.x % grid.y),
                          static_cast<unsigned>(at / grid.x / grid.y)};
        it.place.block_dim = {block, 1, 1};
        it.place.grid_dim = grid;
        it.block = &running[b];
        it.warp = running[b].warps.back().get();
        it.lane = static_cast<int>(t % kWarp);
        it.parity = 0;
        it.waits_for = nullptr;
        it.begun = false;
        it.returned = false;
        it.error = nullptr;
        ++it.warp->barrier.members;
        Prepare(it);
      }
    }
    RunThreads(threads);
  }
}

}  // namespace planish::internal::emulation
