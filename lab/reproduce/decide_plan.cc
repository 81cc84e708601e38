#include "lab/reproduce/decide_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "lab/analysis/reproduction.h"
#include "lab/analysis/summary.h"
#include "lab/base/format_integer.h"

namespace planish::lab {
namespace {

using Status = DecideRow::Status;

// Returns the seeds of the looks, if the first is at `first`.
std::vector<int> LooksAt(int first, int planned) {
  std::vector<int> seeds = {first};
  for (int i = 1; i <= kMoreLooks; ++i) {
    const int at = first + static_cast<int>(std::ceil(1.0 * i * (planned - first) / kMoreLooks));
    if (at > seeds.back()) seeds.push_back(at);
  }
  return seeds;
}

// Returns how many seeds the looks need for the power that a single test has with `needed`.
int PlannedSeeds(int first, int needed, double error) {
  SequentialTest test{.column = {}, .contrast = {}, .planned = needed, .looks = {}};
  const std::vector<double> fractions = test.Fractions(LooksAt(first, needed));
  const double ratio = DriftFor(fractions, kPower, error) / DriftFor({1}, kPower, error);
  return std::max(needed, static_cast<int>(std::ceil(ratio * ratio * needed)));
}

// Returns the column that has the runs.
const PaperColumn& RunsOf(const Paper& paper, const PaperColumn& column) {
  return column.runs_of.empty() ? column : *paper.FindColumn(column.runs_of);
}

// Returns the runs of a row's norms with the seeds up to `seeds`.
PlannedColumn RunsOf(const Paper& paper, const DecideRow& row, int seeds) {
  PlannedColumn planned{&RunsOf(paper, *row.power.of), {}, seeds, row.power.preset};
  for (const auto& [norm, weight] : row.power.claim->contrast) planned.norms.push_back(norm);
  return planned;
}

bool IsDone(const RunQueue& queue) { return queue.Done() == queue.runs.size(); }

double MinutesLeft(const RunQueue& queue) {
  double minutes = 0;
  for (const QueuedRun& run : queue.runs) {
    if (!run.done) minutes += queue.estimates.Left(run).value_or(0);
  }
  return minutes;
}

bool IsAsked(const ReproduceRequest& request, const PaperColumn& column, const Contrast& contrast) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  return (request.tasks.empty() || has(request.tasks, column.name) ||
          has(request.tasks, column.task)) &&
         (request.norms.empty() || std::ranges::all_of(contrast, [&](const auto& term) {
            return has(request.norms, term.first);
          }));
}

// Returns the normal statistic of the last look: of the difference in the unit of the metric, or of
// the difference from the margin, above 0 if no worse.
double StatisticOf(const DecideRow& row) {
  const double p = std::max(row.test.looks.back().p, 1e-300);
  const ContrastResult& contrast = row.power.contrast;
  if (row.test.margin) {
    const bool is_no_worse = PValueOf(row.power.metric, contrast).value_or(1) < 0.5;
    return (is_no_worse ? 1 : -1) * NormalQuantile(1 - p);
  }
  return (contrast.comparison.difference.mean < 0 ? -1 : 1) * NormalQuantile(1 - p / 2);
}

// Returns true if all planned seeds would hardly decide, whether the effect is as planned or as
// measured.
bool IsHopeless(const DecideRow& row) {
  const SequentialTest& test = row.test;
  const std::vector<double> fractions = test.Fractions();
  const double z = StatisticOf(row);
  const double planned =
      row.power.effect / row.power.deviation * std::sqrt(static_cast<double>(test.planned));
  const double measured = z / std::sqrt(fractions.back());
  return std::max(ConditionalPower(fractions, z, planned, test.Error()),
                  ConditionalPower(fractions, z, measured, test.Error())) < kHopelessPower;
}

// Returns the finding of a look at a claim in words.
std::string FindingOf(const PaperClaim& claim, int sign) {
  if (sign == 0) return "not sure";
  if (claim.no_worse) return sign > 0 ? "surely no worse" : "surely worse";
  return sign > 0 ? "surely better" : "surely worse";
}

// A row that can go on.
struct Candidate {
  size_t row = 0;
  const ClaimPower* measured = nullptr;  // without regard to looks
  PlannedColumn all;                     // all planned seeds
};

class Decider {
 public:
  Decider(const Paper& paper, const ReproduceRequest& request, const TaskFinder& find)
      : paper_(paper), request_(request), find_(find) {}

  // Plans by the looks in `plan`, and adds those that are due. Returns true if it added some.
  bool Pass(const std::vector<Section>& sections, double minutes, DecidePlan& plan) {
    const std::vector<SequentialTests> looks = {plan.tests};
    std::vector<SequentialTests> margins = looks;  // which the first looks fixed
    for (SequentialTest& test : margins[0].tests) test.looks.clear();
    const std::vector<ClaimPower> measured = PowerIn(FindReproductions(sections, margins));
    const std::vector<ClaimPower> judged = PowerIn(FindReproductions(sections, looks));
    plan.rows.clear();
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < judged.size(); ++i) {
      DecideRow row{.power = judged[i]};
      SetStatus(looks[0], row);
      if (row.status == Status::kGoesOn) {
        candidates.push_back({i, &measured[i], RunsOf(paper_, row, row.test.planned)});
        row.minutes = MinutesLeft(Queue({candidates.back().all}));
      }
      plan.rows.push_back(std::move(row));
    }
    std::ranges::stable_sort(candidates, {},
                             [&](const Candidate& one) { return *plan.rows[one.row].minutes; });
    std::vector<PlannedColumn> next, all;
    const size_t before = plan.new_looks.size();
    for (const Candidate& candidate : candidates) {
      DecideRow& row = plan.rows[candidate.row];
      std::vector<PlannedColumn> with_row = all;
      with_row.push_back(candidate.all);
      if (MinutesLeft(Queue(with_row)) > minutes) {
        row.status = Status::kTooLong;
        continue;
      }
      all = std::move(with_row);
      next.push_back(RunsOf(paper_, row, LookAt(row, *candidate.measured, plan)));
    }
    plan.stage = Queue(next);
    if (IsDone(plan.stage)) plan.stage = {};
    plan.all = Queue(all);
    return plan.new_looks.size() > before;
  }

 private:
  RunQueue Queue(const std::vector<PlannedColumn>& columns) {
    return QueueColumns(paper_, columns, request_.out, find_, results_);
  }

  std::vector<ClaimPower> PowerIn(const std::vector<Reproduction>& all) const {
    const auto found = std::ranges::find(all, &paper_, &Reproduction::paper);
    return found == all.end() ? std::vector<ClaimPower>() : PowerOf(*found);
  }

  // Sets status and test of a row.
  void SetStatus(const SequentialTests& looks, DecideRow& row) const {
    const ClaimPower& power = row.power;
    const Contrast& contrast = power.claim->contrast;
    const SequentialTest* const test = power.claim->no_worse
                                           ? looks.FindNoWorse(power.of->name, contrast)
                                           : looks.Find(power.of->name, contrast);
    if (test) row.test = *test;
    const bool is_asked = IsAsked(request_, RunsOf(paper_, *power.of), contrast);
    // A first look can be less sure than the 95% interval that had no looks, so that the error of
    // all looks is 5%.
    const bool is_final =
        test ? test->SignOf(contrast) != 0
             : !power.needed || *power.needed <= power.seeds || power.contrast.by_divergence;
    if (power.is_decided && (is_final || !is_asked || power.verdict != Verdict::kOpen)) {
      row.status = Status::kDecided;
    } else if (power.verdict != Verdict::kOpen) {
      row.status = Status::kClaimDecided;
    } else if (!is_asked) {
      row.status = Status::kNotAsked;
    } else if (test) {
      if (IsHopeless(row)) row.status = Status::kHopeless;
      if (!NextLook(row.test)) row.status = Status::kAllSeeds;
    } else if (!power.needed || *power.needed > kMaxPlannedSeeds) {
      row.status = Status::kHopeless;
    } else if (*power.needed <= power.seeds) {
      row.status = Status::kAllSeeds;
    } else {
      row.test = {.column = power.of->name,
                  .contrast = contrast,
                  .looks = {},
                  .margin = power.contrast.margin};
      row.test.planned = PlannedSeeds(power.seeds, *power.needed, row.test.Error());
    }
  }

  // Returns the seeds of the next look, or nullopt if all planned seeds were looked at.
  static std::optional<int> NextLook(const SequentialTest& test) {
    for (const int seeds : LooksAt(test.looks.front().seeds, test.planned)) {
      if (seeds > test.looks.back().seeds) return seeds;
    }
    return std::nullopt;
  }

  // Looks at the row's difference if a look is due. Returns the seeds until the next look. Without
  // one, the row has all its seeds.
  int LookAt(DecideRow& row, const ClaimPower& measured, DecidePlan& plan) {
    SequentialTest test = row.test;
    int target = test.looks.empty() ? measured.seeds : *NextLook(test);
    while (IsDone(Queue({RunsOf(paper_, row, target)}))) {
      // A seed whose run diverged has no pair, and then the look has fewer.
      if (test.looks.empty() || measured.seeds > test.looks.back().seeds) {
        AddLook(measured, test, plan);
      }
      const std::vector<int> at = LooksAt(test.looks.front().seeds, test.planned);
      const auto next = std::ranges::upper_bound(at, target);
      if (next == at.end()) {
        row.status = Status::kAllSeeds;
        break;
      }
      target = *next;
    }
    return target;
  }

  static void AddLook(const ClaimPower& measured, SequentialTest& test, DecidePlan& plan) {
    const double two_sided = LookLevels(test.Fractions({measured.seeds}), test.Error()).back();
    Look look =
        TakeLook(measured.metric, measured.contrast, test.margin ? two_sided / 2 : two_sided);
    const int sign = look.sign;
    look.sign *= Orientation(test.contrast, measured.claim->contrast);
    test.looks.push_back(look);
    const auto same = std::ranges::find_if(plan.tests.tests, [&](const SequentialTest& other) {
      return other.column == test.column && other.contrast == test.contrast &&
             other.margin == test.margin;
    });
    if (same == plan.tests.tests.end()) {
      plan.tests.tests.push_back(test);
    } else {
      *same = test;
    }
    plan.new_looks.push_back(
        fmt::format("{}, {}{}: {} of {} planned seeds, p = {:.2g}, sure below {:.2g}: {}",
                    measured.column, FormulaOf(measured.claim->contrast),
                    test.margin ? fmt::format(", margin {:.3g}", *test.margin) : "", look.seeds,
                    test.planned, look.p, look.level, FindingOf(*measured.claim, sign)));
  }

  const Paper& paper_;
  const ReproduceRequest& request_;
  const TaskFinder& find_;
  RunResults results_;
};

}  // namespace

Look TakeLook(const MetricSpec& metric, const ContrastResult& contrast, double level) {
  Look look{.seeds = contrast.value().count, .level = level};
  if (!contrast.margin) {
    look.p = PValue(contrast.value()).value_or(1);
    // A doubt is one about the interval.
    if (look.p < level && contrast.doubt.empty()) look.sign = contrast.comparison.better;
    return look;
  }
  const std::optional<double> no_worse = PValueOf(metric, contrast);
  if (!no_worse) return look;
  look.p = std::min(*no_worse, 1 - *no_worse);
  if (look.p >= level) return look;
  if (*no_worse > 0.5) {
    look.sign = -1;
  } else if (contrast.more_diverged <= 0) {
    look.sign = 1;
  }
  return look;
}

DecidePlan MakeDecidePlan(const Paper& paper, const ReproduceRequest& request,
                          const TaskFinder& find, const std::vector<Run>& runs,
                          const SequentialTests& before, double minutes) {
  DecidePlan plan;
  plan.tests = before;
  plan.tests.paper = paper.name;
  const std::vector<Section> sections = Summarize(runs);
  Decider decider(paper, request, find);
  // A look can decide a claim, which then needs no look at its other columns.
  while (decider.Pass(sections, minutes, plan)) {
  }
  return plan;
}

}  // namespace planish::lab
