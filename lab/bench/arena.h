#ifndef PLANISH_LAB_BENCH_ARENA_H_
#define PLANISH_LAB_BENCH_ARENA_H_

#include <cstdint>

#include "lab/bench/case.h"
#include "lab/bench/pages.h"

namespace planish::bench {

/// Arrays of successive cases, which share their memory: no case has page faults.
class Arena {
 public:
  /// Returns arrays for `c`, valid until the next call. x and dy are uniform with mean 0 and
  /// variance 1, because non-temporal stores of zeros are faster than of random values. gain is
  /// uniform in [0.5, 1.5], bias in [-1, 1], gate like x. scalars are 0.5 and 0.25. mean and rstd
  /// are those of LayerNorm. Outputs keep their contents.
  Arrays For(const Case& c);

 private:
  Pages x_, dy_, out_, gate_, dgate_, parameters_, statistics_;
  Type type_ = Type::kFloat;
  int64_t filled_ = 0;       // elements of x and dy with values of type_
  int64_t gate_filled_ = 0;  // of gate
};

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_ARENA_H_
