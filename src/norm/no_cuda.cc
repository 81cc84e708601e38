#include <string>

#include "planish/error.h"
#include "src/norm/cuda_rows.h"

// The kernels of a build without CUDA.
namespace planish::internal::cuda {
namespace {

[[noreturn]] void Fail(const char* function) {
  throw Error("[" + std::string(function) + "] Planish must be built with CUDA but is not");
}

}  // namespace

template <class T>
void RunForward(const char* function, const Forward<T>&, const RowsPlan&, void*, void*) {
  Fail(function);
}
template <class T>
void RunBackward(const char* function, const Backward<T>&, const RowsPlan&, void*, void*) {
  Fail(function);
}

#define PLANISH_INSTANTIATE(T)                                                             \
  template void RunForward(const char*, const Forward<T>&, const RowsPlan&, void*, void*); \
  template void RunBackward(const char*, const Backward<T>&, const RowsPlan&, void*, void*);
PLANISH_INSTANTIATE(float)
PLANISH_INSTANTIATE(double)
PLANISH_INSTANTIATE(bfloat16)
PLANISH_INSTANTIATE(float16)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal::cuda
