#include "src/rnn/cpu/workspace.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "planish/rnn.h"
#include "src/rnn/element_types.h"

namespace planish::internal {

template <class T>
int64_t RnnMemory<T>::bytes() const {
  int64_t sum = packed.bytes() + active.bytes() + sums.bytes();
  for (const Buffer<T>* buffer : {&state, &zx, &step, &gradients, &reset_sums, &anew}) {
    sum += buffer->bytes();
  }
  return sum;
}

namespace {
/// Returns the thread's workspace; null while a call uses it.
template <class T>
std::unique_ptr<RnnMemory<T>>& KeptMemory() {
  thread_local std::unique_ptr<RnnMemory<T>> kept;
  return kept;
}
}  // namespace

// A nested call, from the outer call's parallel_for, has its own workspace.
template <class T>
ThreadMemory<T>::ThreadMemory() : memory_(std::move(KeptMemory<T>())) {
  if (!memory_) memory_ = std::make_unique<RnnMemory<T>>();
}
template <class T>
ThreadMemory<T>::~ThreadMemory() {
  if (memory_->bytes() <= kKeptBytes) KeptMemory<T>() = std::move(memory_);
}

#define PLANISH_INSTANTIATE(T)  \
  template struct RnnMemory<T>; \
  template class ThreadMemory<T>;
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
