#include "src/base/cuda/no_cuda.h"

#include <cstdint>

#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/persistent.h"
#include "src/rnn/element_types.h"

// Stubs for a build without CUDA, which throw.
namespace planish::internal::cuda {
// Not a specialization as the others: g++ would export it, because it has the visibility of its
// argument.
template <class T>
void RunMatmul(const char* function, const planish::cuda::MatmulArgs<T>&) {
  FailWithoutCuda(function);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define PLANISH_KERNELS(T)                                                                         \
  template <>                                                                                      \
  void RunPackParams(const char* function, const CellLayer<T>&, const RnnParams<const T>&,         \
                     void*) {                                                                      \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunBeginState(const char* function, const CellLayer<T>&, int64_t, const T*, const T*,       \
                     int64_t, T*, void*) {                                                         \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunStatistics(const char* function, const CellLayer<T>&, void*) {                           \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunForwardStep(const char* function, const CellLayer<T>&, const ForwardStepCall<T>&,        \
                      void*) {                                                                     \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunExpandHeads(const char* function, const CellLayer<T>&, int64_t, const T*, T*, void*) {   \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunTakeHeads(const char* function, const CellLayer<T>&, int64_t, const T*, T*, void*) {     \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunEndProjection(const char* function, const CellLayer<T>&, int64_t, int64_t, const T*,     \
                        const T*, T*, T*, void*) {                                                 \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunGradientOfProjected(const char* function, const CellLayer<T>&, int64_t, int64_t,         \
                              const T*, T*, T*, T*, void*) {                                       \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunUnproject(const char* function, const CellLayer<T>&, T*, void*) {                        \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunStatesBefore(const char* function, const CellLayer<T>&, bool, const T*, const T*, T*,    \
                       void*) {                                                                    \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunMaskInputs(const char* function, const CellLayer<T>&, int64_t, const T*, T*, void*) {    \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunBackwardStep(const char* function, const CellLayer<T>&, const BackwardStepCall<T>&,      \
                       void*) {                                                                    \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunEndState(const char* function, const CellLayer<T>&, int64_t, const T*, const T*, T*, T*, \
                   void*) {                                                                        \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunColumnSums(const char* function, const CellLayer<T>&, const T*, const T*, T*, T*,        \
                     void*) {                                                                      \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunFinishSums(const char* function, const T*, int64_t, int, int64_t, const SumsOutputs<T>&, \
                     void*) {                                                                      \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunInputNormBackward(const char* function, const CellLayer<T>&, T*, void*) {                \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  PersistentPlan PlanOnDevice<T>(const CellRecipe&, const RnnShape&) {                             \
    return {};                                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  PersistentBackwardPlan PlanBackwardOnDevice<T>(const CellRecipe&, const RnnShape&) {             \
    return {};                                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunBackwardPersistent(const char* function, const CellLayer<T>&,                            \
                             const PersistentBackwardCall<T>&, void*) {                            \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template <>                                                                                      \
  void RunPersistent(const char* function, const CellLayer<T>&, const PersistentCall<T>&, void*) { \
    FailWithoutCuda(function);                                                                     \
  }                                                                                                \
  template void RunMatmul(const char*, const planish::cuda::MatmulArgs<T>&);
// NOLINTEND(bugprone-macro-parentheses)
PLANISH_RNN_TYPES(PLANISH_KERNELS)
#undef PLANISH_KERNELS

}  // namespace planish::internal::cuda
