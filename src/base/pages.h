#ifndef PLANISH_SRC_BASE_PAGES_H_
#define PLANISH_SRC_BASE_PAGES_H_

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

// Page hints for large arrays. On systems other than Linux they have no effect.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Arrays of at least this size are large: a system call costs nothing compared with processing
/// them.
inline constexpr size_t kLargeBytes = 1 << 22;

// --- End of tuning constants ---

#ifdef __linux__
inline uintptr_t PageBytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
#endif

/// Returns whether a large array's pages have never been touched, so that the kernel fills them
/// with zeros at first use. Tests one page in the middle.
inline bool IsNewMemory(const void* array, size_t bytes) {
#ifdef __linux__
  if (!array || bytes < kLargeBytes) return false;
  const char* page = static_cast<const char*>(array) + bytes / 2;
  page -= reinterpret_cast<uintptr_t>(page) % PageBytes();
  unsigned char resident = 1;
  return mincore(const_cast<char*>(page), 1, &resident) == 0 && (resident & 1) == 0;
#else
  return false;
#endif
}

/// Advises the system to use huge pages if a large array is new memory. Page faults of small pages
/// take several times as long as a norm.
inline void AdviseHugePages(void* array, size_t bytes) {
#ifdef __linux__
  if (!IsNewMemory(array, bytes)) return;
  const uintptr_t lead = -reinterpret_cast<uintptr_t>(array) % PageBytes();
  const uintptr_t pages = (bytes - lead) / PageBytes();
  // On failure pages stay small.
  (void)madvise(static_cast<char*>(array) + lead, pages * PageBytes(), MADV_HUGEPAGE);
#endif
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_PAGES_H_
