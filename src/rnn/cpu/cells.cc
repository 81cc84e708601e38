#include "src/rnn/cpu/cells.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rnn/cpu/cells.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the defines above and precede the other includes.
#include <hwy/foreach_target.h>
// Must precede the files that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/simd.h"
#include "src/rnn/cpu/batch_norms-inl.h"
#include "src/rnn/cpu/gates-inl.h"
#include "src/rnn/cpu/gates_backward-inl.h"
#include "src/rnn/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

template <class T>
CellKernels<T> KernelsOf() {
  return {kLanes<T>,         &Gates<T>,     &Output<T>,           &OutputBackward<T>,
          &GatesBackward<T>, &BatchNorm<T>, &BatchNormBackward<T>};
}

CellKernels<float> FloatCells() { return KernelsOf<float>(); }
CellKernels<double> DoubleCells() { return KernelsOf<double>(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(FloatCells);
HWY_EXPORT(DoubleCells);

template <>
CellKernels<float> Cells() {
  return PLANISH_DISPATCH(FloatCells)();
}
template <>
CellKernels<double> Cells() {
  return PLANISH_DISPATCH(DoubleCells)();
}

}  // namespace planish::internal
#endif  // HWY_ONCE
