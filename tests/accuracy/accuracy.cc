// Measures the errors of the kernels' results.
//   planish_accuracy                                  the largest errors by norm, type, width
//   planish_accuracy targets                          prints the SIMD targets that can run here
//   planish_accuracy apply IN OUT ROWS COLS TARGET    applies layer norm to the rows of a file
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "planish/norm.h"
#include "planish/target.h"
#include "src/norm/bounds.h"
#include "src/norm/testing.h"
#include "tests/accuracy/rows_file.h"

namespace planish::tests {
namespace {

int Apply(char** argv) {
  Rows rows(std::atoll(argv[4]), std::atoll(argv[5]));
  if (!rows.Read(argv[2])) {
    std::fprintf(stderr, "%s does not hold two matrices of %s x %s floats\n", argv[2], argv[4],
                 argv[5]);
    return 1;
  }
  SetTarget(argv[6]);
  std::vector<float> mean(static_cast<size_t>(rows.rows)), mean_lo(mean), rstd(mean);
  const std::vector<float> gain(static_cast<size_t>(rows.cols), 1);
  NormForward<float>(Norm::kLayer, {.rows = rows.rows,
                                    .cols = rows.cols,
                                    .x = rows.x.data(),
                                    .gain = gain.data(),
                                    .y = rows.y.data(),
                                    .mean = mean.data(),
                                    .mean_lo = mean_lo.data(),
                                    .rstd = rstd.data()});
  NormBackward<float>(Norm::kLayer, {.rows = rows.rows,
                                     .cols = rows.cols,
                                     .dy = rows.dy.data(),
                                     .x = rows.x.data(),
                                     .gain = gain.data(),
                                     .mean = mean.data(),
                                     .mean_lo = mean_lo.data(),
                                     .rstd = rstd.data(),
                                     .dx = rows.dx.data(),
                                     .dgain = rows.dgain.data(),
                                     .dbias = rows.dbias.data()});
  if (rows.Write(argv[3])) return 0;
  std::fprintf(stderr, "cannot write %s\n", argv[3]);
  return 1;
}

/// Returns the largest errors of a norm and type by SIMD target, over all widths.
template <class T>
std::map<std::string, Errors> WorstErrors(Norm norm) {
  std::map<std::string, Errors> worst;
  for (const int64_t cols : Widths()) {
    if (cols == 1 && norm == Norm::kAdaAsCoded) continue;
    const Problem<T> p(norm, cols <= 67 ? 21 : cols <= 5000 ? 3 : 1, cols);
    ForEachTargetsErrors(p, GrowthOf<T>(), [&](const std::string& target, const Errors& errors) {
      worst[target] += errors;
    });
  }
  return worst;
}

template <class T>
void PrintTable() {
  std::printf("\n**%s**\n\n| norm |", Name<T>::kText);
  for (const std::string& target : Targets()) std::printf(" %s |", target.c_str());
  std::printf("\n|---|");
  for (size_t i = 0; i < Targets().size(); ++i) std::printf("---|");
  std::printf("\n");
  for (const Norm norm : kNorms) {
    auto worst = WorstErrors<T>(norm);
    std::printf("| %s |", NameOf(norm));
    for (const std::string& target : Targets()) {
      const Errors& e = worst[target];
      std::printf(" %.2g, %.2g", e.y.ulps, e.dx.ulps);
      if (IsAffine(norm)) std::printf(", %.2g", e.dgain.ulps);
      std::printf(" (%.2f) |", std::max({e.mean.of_bound, e.rstd.of_bound, e.y.of_bound,
                                         e.dx.of_bound, e.dgain.of_bound, e.dbias.of_bound}));
    }
    std::printf("\n");
  }
}

int Main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (argc == 1) {
    PrintTable<float>();
    PrintTable<double>();
    PrintTable<bfloat16>();
    PrintTable<float16>();
  } else if (argc == 2 && command == "targets") {
    for (const std::string& target : Targets()) std::printf("%s\n", target.c_str());
  } else if (argc == 7 && command == "apply") {
    return Apply(argv);
  } else {
    std::fprintf(stderr, "usage: planish_accuracy [targets | apply IN OUT ROWS COLS TARGET]\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace planish::tests

int main(int argc, char** argv) {
  try {
    return planish::tests::Main(argc, argv);
  } catch (const planish::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
