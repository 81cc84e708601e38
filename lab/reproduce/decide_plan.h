#ifndef PLANISH_LAB_REPRODUCE_DECIDE_PLAN_H_
#define PLANISH_LAB_REPRODUCE_DECIDE_PLAN_H_

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lab/analysis/power.h"
#include "lab/analysis/sequential.h"
#include "lab/reproduce/plan.h"
#include "lab/run/results.h"

// Plan of more seeds for a paper's open claims: `planish reproduce PAPER --until-decided`.
namespace planish::lab {

/// Most seeds that are planned for a claim.
inline constexpr int kMaxPlannedSeeds = 1000;

/// Looks at a difference after its first one, at equal numbers of further seeds.
inline constexpr int kMoreLooks = 4;

/// Seeds are not added if all planned ones would decide with less than this probability, both for
/// the printed effect and for the measured one.
inline constexpr double kHopelessPower = 0.1;

/// Returns the look at a contrast of `metric`, or at the claim that it is no worse if it has a
/// margin. The look decides below `level`.
Look TakeLook(const MetricSpec& metric, const ContrastResult& contrast, double level);

/// Claim in a column, and what follows from its looks.
struct DecideRow {
  enum class Status {
    kDecided,
    kClaimDecided,  ///< by other columns
    kNotAsked,      ///< the request leaves out the column or a norm
    kHopeless,      ///< below kHopelessPower, or more than kMaxPlannedSeeds seeds
    kAllSeeds,      ///< undecided with all planned seeds
    kTooLong,       ///< does not fit into the time
    kGoesOn,
  };
  ClaimPower power;
  Status status = Status::kGoesOn;
  SequentialTest test{};            ///< without looks if none is needed
  std::optional<double> minutes{};  ///< of training until all planned seeds are run, on one core
};

struct DecidePlan {
  std::vector<DecideRow> rows;         ///< of PowerOf
  SequentialTests tests;               ///< those of before, with the looks that are due
  std::vector<std::string> new_looks;  ///< a sentence for each
  RunQueue stage;  ///< until the next look at each row that goes on; its groups are columns
  RunQueue all;    ///< until all planned seeds are run
};

/// Looks at the open claims of `paper` in `runs`, of which the folder `request.out` has all, and
/// plans the next seeds. `before` has the looks so far. Claims go on in the order of the time that
/// they need, as far as all of it fits into `minutes` on one core. Throws like MakePlan.
DecidePlan MakeDecidePlan(const Paper& paper, const ReproduceRequest& request,
                          const TaskFinder& find, const std::vector<Run>& runs,
                          const SequentialTests& before,
                          double minutes = std::numeric_limits<double>::infinity());

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPRODUCE_DECIDE_PLAN_H_
