#include <string>

#include "planish/error.h"
#include "src/norm/cuda/columns.h"
#include "src/norm/cuda/positions.h"
#include "src/norm/cuda/rows.h"
#include "src/norm/element_types.h"

// Kernels of a build without CUDA.
namespace planish::internal::cuda {
namespace {

[[noreturn]] void Fail(const char* function) {
  throw DeviceError("[" + std::string(function) + "] Planish was built without CUDA", 0);
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
template <class T>
void RunPositions(const char* function, const PositionsForward<T>&, const PositionsPlan&, void*) {
  Fail(function);
}
template <class T>
void RunPositions(const char* function, const PositionsBackward<T>&, const PositionsPlan&, void*) {
  Fail(function);
}

#define PLANISH_DEFINE(Call)                                                                    \
  template <class T>                                                                            \
  void RunColumns(const char* function, const Call<T>&, const ColumnsPlan&, const ColumnsPlan&, \
                  const ColumnsSpace&, void*) {                                                 \
    Fail(function);                                                                             \
  }                                                                                             \
  template void RunColumns(const char*, const Call<float>&, const ColumnsPlan&,                 \
                           const ColumnsPlan&, const ColumnsSpace&, void*);                     \
  template void RunColumns(const char*, const Call<double>&, const ColumnsPlan&,                \
                           const ColumnsPlan&, const ColumnsSpace&, void*);                     \
  template void RunColumns(const char*, const Call<bfloat16>&, const ColumnsPlan&,              \
                           const ColumnsPlan&, const ColumnsSpace&, void*);                     \
  template void RunColumns(const char*, const Call<float16>&, const ColumnsPlan&,               \
                           const ColumnsPlan&, const ColumnsSpace&, void*);
PLANISH_COLUMNS_CALLS(PLANISH_DEFINE)
#undef PLANISH_DEFINE

#define PLANISH_INSTANTIATE(T)                                                               \
  template void RunForward(const char*, const Forward<T>&, const RowsPlan&, void*, void*);   \
  template void RunBackward(const char*, const Backward<T>&, const RowsPlan&, void*, void*); \
  template void RunPositions(const char*, const PositionsForward<T>&, const PositionsPlan&,  \
                             void*);                                                         \
  template void RunPositions(const char*, const PositionsBackward<T>&, const PositionsPlan&, void*);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal::cuda
