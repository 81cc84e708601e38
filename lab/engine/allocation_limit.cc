#include "lab/engine/allocation_limit.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <limits>

namespace planish::lab {

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Bytes that this thread can still allocate.
thread_local int64_t bytes_left = kUnlimited;

// libtorch's allocator with the limit. Tensors refer to their allocator, so it is never replaced.
class LimitedAllocator final : public c10::Allocator {
 public:
  explicit LimitedAllocator(c10::Allocator& allocator) : allocator_(allocator) {}

  c10::DataPtr allocate(size_t size) override {
    if (bytes_left != kUnlimited) {
      if (size > static_cast<size_t>(bytes_left)) {
        throw AllocationLimitExceeded("a tensor exceeds the limit of allocations");
      }
      bytes_left -= static_cast<int64_t>(size);
    }
    return allocator_.allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return allocator_.raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override {
    return allocator_.is_simple_data_ptr(pointer);
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    allocator_.copy_data(to, from, size);
  }

 private:
  c10::Allocator& allocator_;
};

void InstallLimitedAllocator() {
  // Never destroyed: tensors of static duration can outlive it.
  static auto* const installed = [] {
    auto* allocator = new LimitedAllocator(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(allocator);
    return allocator;
  }();
  static_cast<void>(installed);
}

}  // namespace

AllocationLimit::AllocationLimit(int64_t bytes) : bytes_(bytes) {
  InstallLimitedAllocator();
  bytes_left = bytes;
}

AllocationLimit::~AllocationLimit() { bytes_left = kUnlimited; }

int64_t AllocationLimit::used() const { return bytes_ - bytes_left; }

}  // namespace planish::lab
