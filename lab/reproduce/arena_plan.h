#ifndef PLANISH_LAB_REPRODUCE_ARENA_PLAN_H_
#define PLANISH_LAB_REPRODUCE_ARENA_PLAN_H_

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/queue/queue.h"
#include "lab/reproduce/plan.h"

// Plan of the arena: norms at equal tuning (lab/analysis/arena.h, docs/arena.md). A task has two
// stages: tuning runs of every entry at every rate, then runs of each entry at its chosen rate.
namespace planish::lab {

/// Title of the arena (kArenaName).
inline constexpr char kArenaTitle[] = "Norms and placements at equal tuning";

/// Entries of one task. All have the same rates and seeds.
struct ArenaColumn {
  std::string task;
  std::vector<std::map<std::string, std::string>> entries;  ///< settings: norm, placement, qk_norm
  int tuning_seeds = 0;
  int seeds = 0;
  double minutes = 0;  ///< time of a run with the preset small, measured on one core
};

/// Returns the columns, cheap ones first.
const std::vector<ArenaColumn>& ArenaColumns();

/// Factors of the preset's learning rate in the grid.
inline constexpr double kRateFactors[] = {0.1, 0.3, 1, 3, 10};

struct ArenaPlan {
  /// All runs of all tasks. Runs of an entry whose rate is not chosen yet have the preset's rate
  /// here; they only count.
  RunQueue all;
  std::string table;  ///< `all` for a terminal
  RunQueue stage;     ///< unfinished runs of the first stage that has some; empty: all are done
};

/// Plans the runs, and chooses rates from those in `request.out`. `request.seeds` is the number of
/// seeds after tuning. Throws UsageError for unknown tasks, norms or presets.
ArenaPlan MakeArenaPlan(const ReproduceRequest& request, const TaskFinder& find,
                        const std::vector<ArenaColumn>& columns = ArenaColumns());

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPRODUCE_ARENA_PLAN_H_
