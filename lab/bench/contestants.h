#ifndef PLANISH_LAB_BENCH_CONTESTANTS_H_
#define PLANISH_LAB_BENCH_CONTESTANTS_H_

#include <string>
#include <vector>

#include "lab/bench/case.h"
#include "lab/bench/contestant.h"

namespace planish::bench {

/// Limits (limits.cc): moves of the same bytes with minimal arithmetic, in vectors of the machine's
/// SIMD width. Forward copies x; backward reads x and dy and writes one array. The fastest of them
/// is the limit; which one that is depends on size, machine and load.
std::vector<std::string> LimitNames(Direction direction);
Contestant MakeLimit(const std::string& name, const Case& c, const Arrays& arrays);

/// The core (planish.cc), by the name of a norm: "layer", "rms".
std::vector<std::string> MethodNames();
Contestant MakePlanish(const std::string& method, const Case& c, const Arrays& arrays);

/// PyTorch (aten.cc): the kernels behind native_layer_norm and native_group_norm, called with
/// outputs. For other norms over rows the operators that compute them, and the backward of their
/// graph, which allocate their outputs.
bool HasAten(const std::string& method);
Contestant MakeAten(const std::string& method, const Case& c, const Arrays& arrays);

/// Lower bound of layer norm (bare.cc): the same single pass over rows, but with plain sums of x
/// and x^2. It is inaccurate for means far from zero, restricted to whole aligned vectors, not
/// reproducible across thread counts, and has no strides, options or checks.
/// Its distance from a limit is the cost of the arithmetic; Planish's distance from it is the cost
/// of accuracy and generality.
Contestant MakeBare(const std::string& method, const Case& c, const Arrays& arrays);

/// Like MakeBare for batch norm and layer norm over channels (bare_channels.cc). Reads each element
/// twice, for the sums and for the result, because no cache holds all elements normalized together.
/// Plain sums, whole vectors. Tile size, kind of stores and prefetching are the fastest of a trial
/// at construction. Its distance from a limit is the cost of the second read.
Contestant MakeBareChannels(const std::string& method, const Case& c, const Arrays& arrays);

/// Calls the contestant once and compares with the double reference, with the tolerances of
/// Reference::Compare, also for `half_sums`. Returns an empty text if it is right, else the error.
std::string CheckContestant(const std::string& method, const Contestant& contestant, const Case& c,
                            const Arrays& arrays, bool half_sums);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_CONTESTANTS_H_
