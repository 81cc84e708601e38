#ifndef PLANISH_SRC_NORM_SETS_TESTING_H_
#define PLANISH_SRC_NORM_SETS_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "src/norm/testing.h"

// A test of calls with several parameter sets, for CPU and GPU.
namespace planish::tests {

/// Checks that the rows of each parameter set have the bits of a separate call. `apply(problem)`
/// runs forward and backward.
template <class T, class P, class Apply>
void ExpectSetsAreSeparateCalls(const Apply& apply) {
  for (const Norm norm : kNorms) {
    // Rows, columns, sets, and consecutive rows of a set.
    for (const auto& [rows, cols, sets, set_rows] :
         std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{{12, 5, 3, 1},
                                                                     {12, 5, 3, 4},
                                                                     {12, 5, 3, 0},
                                                                     {4, 64, 4, 1},
                                                                     {600, 33, 2, 1},
                                                                     {70, 16, 7, 10},
                                                                     {6, 2100, 2, 1},
                                                                     {0, 3, 4, 1}}) {
      SCOPED_TRACE(::testing::Message() << NameOf(norm) << ", " << rows << " x " << cols << ", "
                                        << sets << " sets of " << set_rows);
      Problem<T, P> all(norm, rows, cols);
      all.SetSets(sets, set_rows);
      const auto out = apply(all);
      const int64_t n = rows / sets;
      for (int64_t set = 0; set < sets; ++set) {
        Problem<T, P> one(norm, n, cols);
        const auto row_of = [&](int64_t r) { return set_rows == 1 ? r * sets + set : set * n + r; };
        const auto gather = [&](const std::vector<T>& from) {
          std::vector<T> rows_of_set;
          for (int64_t r = 0; r < n; ++r) {
            const auto row = from.begin() + row_of(r) * cols;
            rows_of_set.insert(rows_of_set.end(), row, row + cols);
          }
          return rows_of_set;
        };
        const auto part = [set](const auto& from, int64_t size) {
          using Values = std::decay_t<decltype(from)>;
          return from.empty() ? Values()
                              : Values(from.begin() + set * size, from.begin() + (set + 1) * size);
        };
        one.x = gather(all.x);
        one.dy = gather(all.dy);
        one.gain = part(all.gain, cols);
        one.bias = part(all.bias, cols);
        const auto expected = apply(one);
        Result<T, P> found(one);
        found.y = gather(out.y);
        found.dx = gather(out.dx);
        found.mean = part(out.mean, n);
        found.mean_lo = part(out.mean_lo, n);
        found.rstd = part(out.rstd, n);
        found.dgain = part(out.dgain, cols);
        found.dbias = part(out.dbias, cols);
        EXPECT_EQ(found.DiffersIn(expected), "") << "set " << set;
      }
    }
  }
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_SETS_TESTING_H_
