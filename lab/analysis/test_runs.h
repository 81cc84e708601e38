#ifndef PLANISH_LAB_ANALYSIS_TEST_RUNS_H_
#define PLANISH_LAB_ANALYSIS_TEST_RUNS_H_

#include <string>
#include <vector>

#include "lab/papers/paper.h"
#include "lab/run/results.h"

// Runs with known results.
namespace planish::lab {

/// Run inside a TEST, where Run is testing::Test::Run.
using Runs = std::vector<Run>;

/// Returns a run of the task "digits" that compares norms, without evaluations or result. Metrics:
/// "loss" (nats), "valid_error" and "test_error" (%), and "accuracy" (higher is better).
Run StartedRun(const std::string& norm, int batch_size, int64_t seed);

/// Returns StartedRun, finished, with one evaluation of test_error every 100 steps and 2 seconds.
/// Loss is ten times the error, accuracy its complement; validation chose the evaluation with the
/// lowest error.
Run FinishedRun(const std::string& norm, int batch_size, int64_t seed,
                const std::vector<double>& errors);

/// Returns three seeds of each norm. The paired difference layer - batch excludes 0, layer - none
/// does not: [-0.0141, -0.0065] and [-0.0032, 0.0025] by scipy.stats.ttest_rel.
Runs ThreeNorms();

/// Returns runs in which batch is best at steps 300, 200 and 300; layer matches it at 200, 200 and,
/// in seed 3, never.
Runs CatchUpRuns();

/// Returns a finished run of that column of Xu et al. 2019 on data named `data`, with its checksum
/// if known. `value` is the column's metric at the best evaluation. The training and validation
/// curves of the column fall from 1 to `train` and `valid`.
Run ColumnRun(const std::string& column, const std::string& norm, int64_t seed, double value,
              const std::string& data, double train = 0.5, double valid = 0.6);

/// Returns `run` as diverged.
Run Diverged(Run run);

/// Returns the claim that `better` has a lower final test error than `worse`, on "mnist".
ClaimSpec LowerErrorClaim(const std::string& better, const std::string& worse);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_TEST_RUNS_H_
