#ifndef PLANISH_LAB_BENCH_REFERENCE_H_
#define PLANISH_LAB_BENCH_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/bench/case.h"
#include "lab/bench/methods.h"

namespace planish::bench {

/// Computes mean and rstd of elements normalized together (kRow: of every row, like LayerNorm) in
/// double, rounded to ParameterType(c.type).
void FillStatistics(Over over, const Case& c, const void* x, void* mean, void* rstd);

/// Reference results of a norm in double: some rows or channels of y, dx and dgate, and all of
/// dgain, dbias and dscalars.
class Reference {
 public:
  Reference(const std::string& method, const Case& c, const Arrays& arrays);

  /// Fills the elements to compare with NaN, so that unwritten ones fail.
  void Poison() const;

  /// Returns an empty text if the results are right, else an error: "dgain is off by 70; the
  /// largest value is 200, the tolerance 0.01 of that". docs/performance/norm.md has the
  /// tolerances. `half_sums` is for contestants that accumulate dgain and dbias in the 16-bit type.
  /// They round values to it `roundings` times.
  std::string Compare(bool half_sums, int roundings = 1) const;

 private:
  Case case_;
  Arrays arrays_;
  std::vector<int64_t> at_;            // the compared elements of y, dx and dgate
  std::vector<double> out_, dgate_;    // their expected values; dgate_ is empty without a gate
  int64_t terms_ = 0;                  // of each dgain and dbias
  int roundings_ = 1;                  // of y to 16-bit types
  std::vector<double> dgain_, dbias_;  // [cols], or empty if the norm has none
  std::vector<double> dscalars_;       // [2], or empty
  double out_scale_ = 0, dgate_scale_ = 0, dgain_scale_ = 0, dbias_scale_ = 0, dscalars_scale_ = 0;
};

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_REFERENCE_H_
