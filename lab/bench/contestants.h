#ifndef PLANISH_LAB_BENCH_CONTESTANTS_H_
#define PLANISH_LAB_BENCH_CONTESTANTS_H_

#include <string>
#include <vector>

#include "lab/bench/case.h"
#include "lab/bench/contestant.h"

namespace planish::bench {

/// The limits (limits.cc), with the SIMD width of the machine: what moves the same bytes with the
/// least arithmetic. Forward a copy of x; backward reads x and dy and writes one array. The best of
/// them is the limit: which that is depends on the size, the machine and the hour.
std::vector<std::string> LimitNames(Direction direction);
Contestant MakeLimit(const std::string& name, const Case& c, const Arrays& arrays);

/// The core (planish.cc), by the name of a norm: "layer", "rms".
std::vector<std::string> MethodNames();
Contestant MakePlanish(const std::string& method, const Case& c, const Arrays& arrays);

/// PyTorch (aten.cc): the kernel behind native_layer_norm, called with outputs given.
Contestant MakeAten(const std::string& method, const Case& c, const Arrays& arrays);

/// What layer norm can be done with at the least (bare.cc): the same single sweep over rows, but in
/// plain sums of x and x^2, with no care for means far from zero, for rows that are not whole
/// aligned vectors, for bits that depend on threads, and without strides, options or checks. What
/// it misses of a limit is what the arithmetic costs; what Planish takes beyond it is what the care
/// costs.
Contestant MakeBare(const std::string& method, const Case& c, const Arrays& arrays);

/// The same of batch norm and layer norm over channels (bare_channels.cc): each number is read
/// twice, first for sums and then for the result, as it has to be where no cache holds what is
/// normalised together. Plain sums, whole vectors; tiles and stores, through the caches or past
/// them, are those that are fastest in a trial when it is made. What it misses of a limit is what
/// the second reading costs, and how memory gives the first.
Contestant MakeBareChannels(const std::string& method, const Case& c, const Arrays& arrays);

/// Calls the contestant once and compares with the double reference (Reference::Compare has the
/// tolerances): empty when it is right, else what is wrong. `half_sums` as there.
std::string CheckContestant(const std::string& method, const Contestant& contestant, const Case& c,
                            const Arrays& arrays, bool half_sums);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_CONTESTANTS_H_
