#ifndef PLANISH_SRC_BASE_CUDA_EMULATION_H_
#define PLANISH_SRC_BASE_CUDA_EMULATION_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

// Emulation of CUDA on the host, for tests without a GPU. src/*/*.cu is compiled as C++ with this
// header in place of CUDA's (see kernel.h). The threads of a block run one at a time, each until it
// waits for others. A concurrent block runs until it waits for another block. Shared memory is
// initialized with NaNs. A deadlock is an error.
namespace planish::internal::emulation {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

/// Indices and dimensions of the running thread.
struct Place {
  Index3 thread{0, 0, 0}, block{0, 0, 0}, block_dim, grid_dim;
};
const Place& Here();

/// Scope of a barrier: the threads of a warp, block, cluster or grid that have not returned.
enum class Scope : uint8_t { kWarp, kBlock, kCluster, kGrid };
void Wait(Scope scope);

/// Lets other threads run. For a thread that polls memory that another thread writes.
void Yield();

/// Returns the block's dynamic shared memory.
void* SharedMemory();

/// Return the block's rank in its cluster, and the number of blocks there.
int ClusterRank();
int ClusterBlocks();

/// Maps an address in the block's shared memory to block `rank` of the cluster. Throws
/// std::logic_error if no thread of that block has started, or all have returned.
void* OfBlock(void* shared, int rank);

/// Copies memory; the running thread sees the result after its next WaitForCopies.
void CopyLater(const void* from, void* to, size_t bytes);
void WaitForCopies();

/// Exchange slots of a lane. Successive exchanges of a warp alternate between the two slots.
struct Lane {
  uint64_t values[2];
};
Lane* Lanes();      ///< of the running warp
int LaneNumber();   ///< of the running thread in its warp
int& LaneParity();  ///< of the running thread

enum class Order : uint8_t { kForward, kBackward, kRandom };
/// Sets the order in which runnable threads run, from the next RunGrid on. Different orders expose
/// results that depend on a missing barrier. In random order threads of concurrent blocks
/// alternate.
void SetOrder(Order order);

/// Runs `thread` once for every thread of the grid. With `cooperative`, which kGrid requires, all
/// blocks run concurrently; otherwise one cluster of `cluster` blocks runs after another. Rethrows
/// exceptions of `thread`. Throws std::logic_error after a deadlock, or a write to the shared
/// memory of a block that has returned.
void RunGrid(Index3 grid, unsigned block, size_t shared_bytes, bool cooperative,
             const std::function<void()>& thread, unsigned cluster = 1);

/// Returns the value that lane `lane` of the caller's warp passes.
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
