#ifndef PLANISH_SRC_NORM_CPU_H_
#define PLANISH_SRC_NORM_CPU_H_

#include "planish/parallel.h"
#include "src/norm/rows.h"

// The kernels over whole matrices: how rows, or the columns of long rows, are split over threads,
// and when results go past the caches. For arguments that norm.cc has checked; rows and cols > 0.
namespace planish::internal {

template <class T>
void ForwardMatrix(RowsForward<T> args, const ParallelFor& parallel_for);

/// The moments alone.
template <class T>
void MomentMatrix(const RowsForward<T>& args, const ParallelFor& parallel_for);

/// The results alone, by the moments that are given. args.stream: past the caches, whatever the
/// size.
template <class T>
void MapMatrix(const RowsForward<T>& args, const ParallelFor& parallel_for);

/// dgain and dbias: [cols], written; both null or none.
template <class T>
void BackwardMatrix(RowsBackward<T> args, Compute<T>* dgain, Compute<T>* dbias,
                    const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CPU_H_
