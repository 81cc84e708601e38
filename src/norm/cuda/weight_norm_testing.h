#ifndef PLANISH_SRC_NORM_CUDA_WEIGHT_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_WEIGHT_NORM_TESTING_H_

#include <vector>

#include "planish/cuda.h"
#include "src/norm/channels/weight_norm_testing.h"
#include "src/norm/cuda/norm_testing.h"

// Results of a problem from a GPU.
namespace planish::tests::weight_norm {

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  Result<T, P> out(p);
  OnDevice<T> v(p.v, layout.offset), kept_v(p.v, layout.offset), dw(p.dw, layout.offset);
  OnDevice<T> w(out.w, layout.offset), dv(out.dv, layout.offset);
  OnDevice<P> g(p.g), dg(out.dg);
  OnDevice<Compute<T>> norm(out.norm);
  OnDevice<char> space(std::vector<char>(
      static_cast<size_t>(cuda::WeightNormWorkspaceBytes<T>(p.rows, p.cols)), -1));
  const cuda::WeightNormOptions options = {.workspace = space.data(),
                                           .workspace_bytes = space.bytes()};
  cuda::WeightNormForward<T, P>({.rows = p.rows,
                                 .cols = p.cols,
                                 .v = v.data(),
                                 .g = g.data(),
                                 .w = (layout.in_place ? v : w).data(),
                                 .norm = norm.data()},
                                options);
  cuda::WeightNormBackward<T, P>({.rows = p.rows,
                                  .cols = p.cols,
                                  .dw = dw.data(),
                                  .v = kept_v.data(),
                                  .g = g.data(),
                                  .norm = norm.data(),
                                  .dv = (layout.in_place ? dw : dv).data(),
                                  .dg = dg.data()},
                                 options);
  out.w = (layout.in_place ? v : w).Get();
  out.dv = (layout.in_place ? dw : dv).Get();
  out.norm = norm.Get();
  out.dg = dg.Get();
  return out;
}

}  // namespace planish::tests::weight_norm

#endif  // PLANISH_SRC_NORM_CUDA_WEIGHT_NORM_TESTING_H_
