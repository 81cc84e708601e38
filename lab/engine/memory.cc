#include "lab/engine/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

namespace planish::lab {

void KeepFreedMemory() {
  const char* keep = std::getenv("PLANISH_KEEP_MEMORY");
  if (keep != nullptr && std::strcmp(keep, "0") == 0) return;
#ifdef __GLIBC__
  // NOLINTBEGIN(concurrency-mt-unsafe): called before other threads start
  mallopt(M_MMAP_MAX, 0);         // large blocks come from the heap, not from their own mappings
  mallopt(M_TRIM_THRESHOLD, -1);  // the heap keeps its top when that is freed
  // NOLINTEND(concurrency-mt-unsafe)
#endif
}

void LimitMemory() {
#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer's shadow memory is larger than the limit
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  rlimit limit{};
  if (pages <= 0 || page <= 0 || getrlimit(RLIMIT_DATA, &limit) != 0) return;
  // A tenth is left to the system.
  const auto memory = static_cast<rlim_t>(pages) * static_cast<rlim_t>(page) / 10 * 9;
  limit.rlim_cur = std::min(limit.rlim_cur, memory);  // RLIM_INFINITY is the largest value
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

bool IsOutOfMemory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  // libtorch's allocator has no error type of its own.
  return std::string_view(error.what()).find("DefaultCPUAllocator: can't allocate") !=
         std::string_view::npos;
}

}  // namespace planish::lab
