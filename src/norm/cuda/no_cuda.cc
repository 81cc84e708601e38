#include "src/base/cuda/no_cuda.h"

#include "src/norm/cuda/columns.h"
#include "src/norm/cuda/positions.h"
#include "src/norm/cuda/rows.h"
#include "src/norm/element_types.h"

// Kernels of a build without CUDA.
namespace planish::internal::cuda {
template <class T>
void RunForward(const char* function, const Forward<T>&, const RowsPlan&, void*, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunBackward(const char* function, const Backward<T>&, const RowsPlan&, void*, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunPositions(const char* function, const PositionsForward<T>&, const PositionsPlan&, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunPositions(const char* function, const PositionsBackward<T>&, const PositionsPlan&, void*) {
  FailWithoutCuda(function);
}

template <template <class> class Call, class T>
void RunColumns(const Call<T>&, const ColumnsRun& run) {
  FailWithoutCuda(run.function);
}

#define PLANISH_COLUMNS(Call) template void RunColumns(const Call&, const ColumnsRun&);
#define PLANISH_INSTANTIATE(T)                                                               \
  template void RunForward(const char*, const Forward<T>&, const RowsPlan&, void*, void*);   \
  template void RunBackward(const char*, const Backward<T>&, const RowsPlan&, void*, void*); \
  template void RunPositions(const char*, const PositionsForward<T>&, const PositionsPlan&,  \
                             void*);                                                         \
  template void RunPositions(const char*, const PositionsBackward<T>&, const PositionsPlan&, \
                             void*);                                                         \
  PLANISH_COLUMNS_CALLS(PLANISH_COLUMNS, T)
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE
#undef PLANISH_COLUMNS

}  // namespace planish::internal::cuda
