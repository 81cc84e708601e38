#include "lab/engine/memory.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>

namespace planish::lab {

void KeepFreedMemory() {
  const char* keep = std::getenv("PLANISH_KEEP_MEMORY");
  if (keep != nullptr && std::strcmp(keep, "0") == 0) return;
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);         // large blocks come from the heap, not from mappings of their own
  mallopt(M_TRIM_THRESHOLD, -1);  // and the heap's top stays when it is freed
#endif
}

}  // namespace planish::lab
