#ifndef PLANISH_SRC_BASE_CUDA_EMULATION_H_
#define PLANISH_SRC_BASE_CUDA_EMULATION_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

// CUDA's execution on the host, for tests where there is no GPU: src/*/*.cu is compiled as C++ with
// this header in place of CUDA's (see kernel.h). The threads of a block run one at a time, each
// until it waits for others, and every thread that may go on does so in turn: in order, in reverse,
// or in an order of chance (SetOrder), which shows results that depend on a barrier that is
// missing. Of blocks that run at the same time one goes on until it waits for another, but in
// orders of chance. Shared memory holds NaNs at first. Threads that wait for each other for ever
// are an error.
namespace planish::internal::emulation {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

/// Where the thread that runs is.
struct Place {
  Index3 thread{0, 0, 0}, block{0, 0, 0}, block_dim, grid_dim;
};
const Place& Here();

/// Whom a thread waits for: the threads of its warp, block, cluster or grid that have not returned.
enum class Scope : uint8_t { kWarp, kBlock, kCluster, kGrid };
void Wait(Scope scope);

/// Lets others run: for a thread that reads again and again what another one is to write.
void Yield();

/// The block's dynamic shared memory.
void* SharedMemory();

/// The block's number in its cluster, and the blocks there.
int ClusterRank();
int ClusterBlocks();

/// What lies at `shared`, of the block's shared memory, in that of block `rank` of the cluster.
/// Throws std::logic_error where none of that block's threads has begun, or all have returned.
void* OfBlock(void* shared, int rank);

/// A copy that the thread which runs sees after its next WaitForCopies.
void CopyLater(const void* from, void* to, size_t bytes);
void WaitForCopies();

/// A place of the warp for a value of each lane. Of two that lanes meet at one after the other the
/// second is another one.
struct Lane {
  uint64_t values[2];
};
Lane* Lanes();      ///< of the warp that runs
int LaneNumber();   ///< of the thread that runs, in its warp
int& LaneParity();  ///< of the thread that runs

enum class Order : uint8_t { kForward, kBackward, kRandom };
/// The order in which threads that may go on do so, from the next RunGrid on.
void SetOrder(Order order);

/// Runs `thread` once for every thread of the grid; with `cooperative` all blocks at the same time,
/// which kGrid needs, else one cluster of `cluster` blocks after the other. Throws std::logic_error
/// when threads wait for each other for ever, when one has written into the shared memory of a
/// block whose threads had returned, and what `thread` throws.
void RunGrid(Index3 grid, unsigned block, size_t shared_bytes, bool cooperative,
             const std::function<void()>& thread, unsigned cluster = 1);

/// The value of the lane whose number is `lane` in the caller's warp.
template <class T>
T FromLane(const T& value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  const int parity = LaneParity() ^= 1;
  std::memcpy(&Lanes()[LaneNumber()].values[parity], &value, sizeof(T));
  Wait(Scope::kWarp);
  T other;
  std::memcpy(&other, &Lanes()[lane].values[parity], sizeof(T));
  return other;
}

}  // namespace planish::internal::emulation

#endif  // PLANISH_SRC_BASE_CUDA_EMULATION_H_
