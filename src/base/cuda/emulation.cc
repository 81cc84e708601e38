#include "src/base/cuda/emulation.h"

#include <setjmp.h>  // _setjmp, which csetjmp does not declare
#include <ucontext.h>

#include <algorithm>
#include <cstring>
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
constexpr unsigned char kUnset = 0xff;  // unwritten bytes of shared memory: NaNs

// Threads that wait for each other.
struct Barrier {
  unsigned members = 0;  // threads that have not returned
  unsigned waiting = 0;
  uint64_t opened = 0;  // number of times that all members arrived

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

struct Cluster;

struct Block {
  Barrier barrier;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::max_align_t> shared;
  Cluster* cluster = nullptr;
  int rank = 0;  // in the cluster
  bool begun = false;

  unsigned char* Shared() { return reinterpret_cast<unsigned char*>(shared.data()); }
  size_t SharedBytes() const { return shared.size() * sizeof(std::max_align_t); }
  void FillShared() { std::fill_n(Shared(), SharedBytes(), kUnset); }
  bool IsSharedUnset() {
    return std::all_of(Shared(), Shared() + SharedBytes(), [](int byte) { return byte == kUnset; });
  }
};

struct Cluster {
  Barrier barrier;
  Block* blocks = nullptr;
  int size = 0;
};

struct Copy {
  const void* from;
  void* to;
  size_t bytes;
};

struct Thread {
  ucontext_t context;  // start of the thread
  jmp_buf jump;        // where it resumes, once begun
  bool begun = false;
  std::unique_ptr<char[]> stack;
  Place place;
  Block* block = nullptr;
  Warp* warp = nullptr;
  int lane = 0, parity = 0;
  const Barrier* waits_for = nullptr;
  uint64_t waits_until = 0;  // value of `opened` that it waits for
  bool yields = false;       // lets others run without waiting
  bool returned = false;
  std::vector<Copy> copies;  // pending
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
    throw std::logic_error("no thread of an emulated kernel is running");
  }
  return *machine->running;
}

// Switch to the scheduler and back. swapcontext would also save the signal mask, a slow system
// call.
[[gnu::noinline]] void Suspend(Thread& thread) {
  if (_setjmp(thread.jump) == 0) _longjmp(machine->scheduler, 1);
}
[[gnu::noinline]] void Resume(Thread& thread) {
  if (_setjmp(machine->scheduler) != 0) return;
  if (thread.begun) _longjmp(thread.jump, 1);
  thread.begun = true;
  setcontext(&thread.context);
}

// Entry point of a thread.
void Enter() {
  Thread& thread = *machine->running;
  thread.block->begun = true;
  try {
    (*machine->body)();
  } catch (...) {
    thread.error = std::current_exception();
  }
  thread.returned = true;
  for (Barrier* barrier : {&thread.warp->barrier, &thread.block->barrier,
                           &thread.block->cluster->barrier, &machine->grid}) {
    --barrier->members;
    barrier->OpenIfAllAreThere();
  }
  if (thread.block->barrier.members == 0) thread.block->FillShared();
  Suspend(thread);
}

// Sets the thread's context to Enter.
void Prepare(Thread& thread) {
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack.get();
  thread.context.uc_stack.ss_size = kStackBytes;
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, Enter, 0);
}

bool CanRun(const Thread& thread) {
  return !thread.returned &&
         (thread.waits_for == nullptr || thread.waits_for->opened >= thread.waits_until);
}

// Runs the threads until all have returned. A concurrent block runs until it waits for another
// block; in random order the threads of all blocks alternate.
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
    for (auto first = turns.begin(); first != turns.end();) {
      const auto last = order == Order::kRandom
                            ? turns.end()
                            : std::find_if(first, turns.end(), [&](const Thread* thread) {
                                return thread->block != (*first)->block;
                              });
      for (bool run_again = true; run_again;) {
        run_again = false;
        for (Thread* thread : std::ranges::subrange(first, last)) {
          if (!CanRun(*thread)) continue;
          thread->waits_for = nullptr;
          thread->yields = false;
          machine->running = thread;
          Resume(*thread);
          machine->running = nullptr;
          if (thread->error) std::rethrow_exception(thread->error);
          any = true;
          run_again |= !thread->yields && order != Order::kRandom;
        }
      }
      first = last;
    }
    if (!any) throw std::logic_error("deadlock: every thread of an emulated kernel waits");
    std::erase_if(turns, [](const Thread* thread) { return thread->returned; });
  }
}

}  // namespace

const Place& Here() { return Running().place; }
Lane* Lanes() { return Running().warp->lanes; }
int LaneNumber() { return Running().lane; }
int& LaneParity() { return Running().parity; }
void* SharedMemory() { return Running().block->shared.data(); }
int ClusterRank() { return Running().block->rank; }
int ClusterBlocks() { return Running().block->cluster->size; }

void* OfBlock(void* shared, int rank) {
  Block& own = *Running().block;
  if (rank < 0 || rank >= own.cluster->size) {
    throw std::logic_error("the emulated cluster has no block of this rank");
  }
  Block& other = own.cluster->blocks[rank];
  const auto at = static_cast<size_t>(static_cast<unsigned char*>(shared) - own.Shared());
  if (at >= own.SharedBytes())
    throw std::logic_error("the address is not in the block's shared memory");
  if (!other.begun || other.barrier.members == 0) {
    throw std::logic_error("the block of the emulated cluster has not started or has returned");
  }
  return other.Shared() + at;
}

void CopyLater(const void* from, void* to, size_t bytes) {
  Running().copies.push_back({from, to, bytes});
}
void WaitForCopies() {
  for (const Copy& copy : Running().copies) std::memcpy(copy.to, copy.from, copy.bytes);
  Running().copies.clear();
}

void Wait(Scope scope) {
  Thread& thread = Running();
  Barrier& barrier = scope == Scope::kWarp      ? thread.warp->barrier
                     : scope == Scope::kBlock   ? thread.block->barrier
                     : scope == Scope::kCluster ? thread.block->cluster->barrier
                                                : machine->grid;
  thread.waits_for = &barrier;
  thread.waits_until = barrier.opened + 1;
  ++barrier.waiting;
  barrier.OpenIfAllAreThere();
  Suspend(thread);
}

void Yield() {
  Running().yields = true;
  Suspend(Running());
}

void SetOrder(Order next) { order = next; }

void RunGrid(Index3 grid, unsigned block, size_t shared_bytes, bool cooperative,
             const std::function<void()>& thread, unsigned cluster) {
  if (grid.x % cluster != 0)
    throw std::logic_error("the grid is not a multiple of the emulated cluster");
  if (machine != nullptr) throw std::logic_error("another emulated kernel is running");
  Machine here;
  here.body = &thread;
  struct Reset {
    ~Reset() { machine = nullptr; }
  } reset;
  machine = &here;

  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t at_once = cooperative ? blocks : cluster;
  std::vector<std::unique_ptr<Thread>> threads;
  for (uint64_t i = 0; i < at_once * block; ++i) {
    threads.push_back(std::make_unique<Thread>());
    threads.back()->stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  }
  for (uint64_t first = 0; first < blocks; first += at_once) {
    std::vector<Block> running(at_once);
    std::vector<Cluster> clusters(at_once / cluster);
    for (uint64_t c = 0; c < clusters.size(); ++c) {
      clusters[c] = {{cluster * block, 0, 0}, &running[c * cluster], static_cast<int>(cluster)};
    }
    here.grid = {static_cast<unsigned>(at_once * block), 0, 0};
    for (uint64_t b = 0; b < at_once; ++b) {
      running[b].barrier.members = block;
      running[b].shared.resize((shared_bytes + sizeof(std::max_align_t) - 1) /
                               sizeof(std::max_align_t));
      running[b].FillShared();
      running[b].cluster = &clusters[b / cluster];
      running[b].rank = static_cast<int>(b % cluster);
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
        it.copies.clear();
        it.error = nullptr;
        ++it.warp->barrier.members;
        Prepare(it);
      }
    }
    RunThreads(threads);
    if (!std::ranges::all_of(running, &Block::IsSharedUnset)) {
      throw std::logic_error(
          "a thread wrote to the shared memory of an emulated block that had returned");
    }
  }
}

}  // namespace planish::internal::emulation
