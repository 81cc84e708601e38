#ifndef PLANISH_LAB_BENCH_REFERENCE_H_
#define PLANISH_LAB_BENCH_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/bench/case.h"
#include "lab/bench/methods.h"

namespace planish::bench {

/// Mean and rstd of what is normalised together (kRow: of every row, as LayerNorm has them), in
/// double, rounded to ParameterType(c.type).
void FillMoments(Over over, const Case& c, const void* x, void* mean, void* rstd);

/// What a norm's results must be, in double: of some rows or channels of y or dx, of the whole of
/// dgain and dbias.
class Reference {
 public:
  Reference(const std::string& method, const Case& c, const Arrays& arrays);

  /// Overwrites with NaN what will be compared, so that nothing passes that was not written.
  void Poison() const;

  /// Empty when the results are right, else what is wrong, as "dgain is off by 70, numbers are up
  /// to 200 and 0.01 of that allowed". Allowed are, relative to the largest number, or the largest
  /// of the terms that it is the sum or difference of:
  /// - y, dx: 16 units in the last place of float or double (sums of many terms, taken in several
  ///   parts, and some products); for the half types, which round once, 1 unit.
  /// - dgain, dbias: 16 * sqrt(terms) units of the parameters' type, how the rounding of a running
  ///   sum of random terms grows. `half_sums` is for a contestant that keeps the sums in the half
  ///   type itself: terms / 2 units of that, and never more than the maximum itself.
  std::string Compare(bool half_sums) const;

 private:
  Case case_;
  Arrays arrays_;
  std::vector<int64_t> at_;            // the elements of y or dx compared
  std::vector<double> out_;            // what they must be
  int64_t terms_ = 0;                  // of each dgain and dbias
  std::vector<double> dgain_, dbias_;  // [cols], or empty where the norm has none
  double out_scale_ = 0, dgain_scale_ = 0, dbias_scale_ = 0;
};

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_REFERENCE_H_
