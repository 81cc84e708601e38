#ifndef PLANISH_SRC_NORM_ROWS_CPU_H_
#define PLANISH_SRC_NORM_ROWS_CPU_H_

#include "planish/parallel.h"
#include "src/norm/rows/rows.h"

// Norms of whole matrices: splits rows, or the columns of long rows, over threads, and selects
// non-temporal stores. Arguments are checked by norm.cc; rows and cols are > 0.
namespace planish::internal {

template <class T>
void ForwardMatrix(RowsForward<T> args, const ParallelFor& parallel_for);

template <class T>
void BackwardMatrix(RowsBackward<T> args, const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_CPU_H_
