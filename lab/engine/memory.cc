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
  mallopt(M_MMAP_MAX, 0);         // large blocks come from the heap, not from mappings of their own
  mallopt(M_TRIM_THRESHOLD, -1);  // and the heap's top stays when it is freed
#endif
}

void LimitMemory() {
#ifndef __SANITIZE_ADDRESS__  // whose shadow memory alone is larger
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  rlimit limit{};
  if (pages <= 0 || page <= 0 || getrlimit(RLIMIT_DATA, &limit) != 0) return;
  // A part is for the system, without which nothing here goes on either.
  const auto memory = static_cast<rlim_t>(pages) * static_cast<rlim_t>(page) / 10 * 9;
  limit.rlim_cur = std::min(limit.rlim_cur, memory);  // RLIM_INFINITY is the largest
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
