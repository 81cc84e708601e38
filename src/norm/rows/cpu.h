#ifndef PLANISH_SRC_NORM_ROWS_CPU_H_
#define PLANISH_SRC_NORM_ROWS_CPU_H_

#include "planish/parallel.h"
#include "src/norm/rows/rows.h"

// The kernels over whole matrices: how rows, or the columns of long rows, are split over threads,
// and when results go past the caches. For arguments that norm.cc has checked; rows and cols > 0.
namespace planish::internal {

template <class T>
void ForwardMatrix(RowsForward<T> args, const ParallelFor& parallel_for);

/// dgain and dbias: [cols], written; both null or none.
template <class T>
void BackwardMatrix(RowsBackward<T> args, Compute<T>* dgain, Compute<T>* dbias,
                    const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_CPU_H_
