#ifndef PLANISH_SRC_BASE_PAGES_H_
#define PLANISH_SRC_BASE_PAGES_H_

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

// What large arrays ask of the system. Where it has no answer, nothing is asked.
namespace planish::internal {

/// Arrays from here on are large: a system call is nothing beside what is done with them.
inline constexpr size_t kLargeBytes = 1 << 22;

#ifdef __linux__
inline uintptr_t PageBytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
#endif

/// Whether a large array's memory is as the system has just mapped it, so that its first use will
/// be met by the kernel's zeros. A page in the middle is asked.
inline bool IsNewMemory(const void* array, size_t bytes) {
#ifdef __linux__
  if (!array || bytes < kLargeBytes) return false;
  const auto middle = reinterpret_cast<uintptr_t>(array) + bytes / 2;
  unsigned char resident = 1;
  return mincore(reinterpret_cast<void*>(middle / PageBytes() * PageBytes()), 1, &resident) == 0 &&
         (resident & 1) == 0;
#else
  return false;
#endif
}

/// Asks the system for huge pages where a large array's memory is new. It is about to be written,
/// and the faults of small pages take several times as long as a norm; reading it has fewer
/// addresses to look up, too.
inline void AdviseHugePages(void* array, size_t bytes) {
#ifdef __linux__
  if (!IsNewMemory(array, bytes)) return;
  const auto begin = reinterpret_cast<uintptr_t>(array);
  const uintptr_t first = (begin + PageBytes() - 1) / PageBytes() * PageBytes();
  const uintptr_t last = (begin + bytes) / PageBytes() * PageBytes();
  // Where it fails, pages are small.
  (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_PAGES_H_
