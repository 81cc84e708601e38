#include "src/base/cuda/no_cuda.h"

#include "src/norm/cuda/columns.h"
#include "src/norm/cuda/gate.h"
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
void RunGateInput(const char* function, const Forward<T>&, Compute<T>*, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunGateOutput(const char* function, const Forward<T>&, Compute<T>*, bool, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunQuantize(const char* function, const Forward<T>&, const Compute<T>*, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunGateGradientInput(const char* function, const Backward<T>&, Compute<T>*, Compute<T>*,
                          void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunGateGradientOutput(const char* function, const Backward<T>&, const Compute<T>*, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunWiden(const char* function, const T*, int64_t, Compute<T>*, void*) {
  FailWithoutCuda(function);
}
template <class T>
void RunRound(const char* function, const Compute<T>*, int64_t, T*, void*) {
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
#define PLANISH_INSTANTIATE(T)                                                                    \
  template void RunForward(const char*, const Forward<T>&, const RowsPlan&, void*, void*);        \
  template void RunBackward(const char*, const Backward<T>&, const RowsPlan&, void*, void*);      \
  template void RunGateInput(const char*, const Forward<T>&, Compute<T>*, void*);                 \
  template void RunGateOutput(const char*, const Forward<T>&, Compute<T>*, bool, void*);          \
  template void RunQuantize(const char*, const Forward<T>&, const Compute<T>*, void*);            \
  template void RunGateGradientInput(const char*, const Backward<T>&, Compute<T>*, Compute<T>*,   \
                                     void*);                                                      \
  template void RunGateGradientOutput(const char*, const Backward<T>&, const Compute<T>*, void*); \
  template void RunWiden(const char*, const T*, int64_t, Compute<T>*, void*);                     \
  template void RunRound(const char*, const Compute<T>*, int64_t, T*, void*);                     \
  template void RunPositions(const char*, const PositionsForward<T>&, const PositionsPlan&,       \
                             void*);                                                              \
  template void RunPositions(const char*, const PositionsBackward<T>&, const PositionsPlan&,      \
                             void*);                                                              \
  PLANISH_COLUMNS_CALLS(PLANISH_COLUMNS, T)
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE
#undef PLANISH_COLUMNS

}  // namespace planish::internal::cuda
