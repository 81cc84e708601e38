#include "lab/analysis/two_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <span>
#include <unordered_map>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"
#include "lab/base/random.h"

namespace planish::lab {
namespace {

// Quantile of the normal distribution for a central 95%.
constexpr double kNormal = 1.959963984540054;

// Numbers of times that each of `counts` was drawn, in `draws` draws with replacement.
void Draw(std::mt19937_64& random, size_t draws, std::vector<double>& counts) {
  std::ranges::fill(counts, 0.0);
  const uint64_t n = counts.size();
  for (size_t i = 0; i < draws; i += 2) {  // two draws from each number
    const uint64_t bits = random();
    counts[((bits >> 32) * n) >> 32] += 1;
    if (i + 1 < draws) counts[((bits & 0xffffffffu) * n) >> 32] += 1;
  }
}

// Values of a part at items, without repetitions: many runs have the same, such as the words of
// each sentence.
struct UniquePart {
  std::vector<size_t> places;  // of the values in the union of items; empty if they are 0, 1, ...
  std::vector<double> values;

  bool operator==(const UniquePart&) const = default;
};

// Returns the sum of count * value. Sums of integers are exact up to 2^53.
double SumOf(const UniquePart& part, const std::vector<double>& counts) {
  std::array<double, 4> sums = {};
  const size_t size = part.values.size();
  const double* const values = part.values.data();
  if (part.places.empty()) {
    size_t i = 0;
    for (; i + 4 <= size; i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) sums[lane] += counts[i + lane] * values[i + lane];
    }
    for (; i < size; ++i) sums[0] += counts[i] * values[i];
  } else {
    for (size_t i = 0; i < size; ++i) sums[0] += counts[part.places[i]] * values[i];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Weighted sum of metrics of the items that were drawn, at each seed.
class ItemSums {
 public:
  ItemSums(const std::vector<std::vector<ItemResults>>& runs, const std::vector<double>& weights,
           double (*metric)(std::span<const int64_t>))
      : weights_(weights), metric_(metric) {
    std::set<int64_t> all;
    for (const ItemResults& run : runs.front()) all.insert(run.items.begin(), run.items.end());
    const std::vector<int64_t> items(all.begin(), all.end());
    size_ = items.size();
    for (const std::vector<ItemResults>& group : runs) {
      uses_.emplace_back();
      for (const ItemResults& run : group) {
        uses_.back().push_back({});
        std::vector<size_t> places;
        if (run.items != items) {
          for (const int64_t item : run.items) {
            places.push_back(
                static_cast<size_t>(std::ranges::lower_bound(items, item) - items.begin()));
          }
        }
        for (const std::vector<int64_t>& part : run.parts) {
          uses_.back().back().push_back(Add({places, {part.begin(), part.end()}}));
        }
      }
    }
  }

  size_t items() const { return size_; }
  size_t seeds() const { return uses_.front().size(); }

  // Returns the weighted sum at each seed for items with these counts.
  std::vector<double> At(const std::vector<double>& counts) const {
    std::vector<int64_t> sums;
    for (const UniquePart& part : parts_) sums.push_back(std::llround(SumOf(part, counts)));
    std::vector<double> values(seeds());
    std::vector<int64_t> of_run;
    for (size_t k = 0; k < uses_.size(); ++k) {
      for (size_t s = 0; s < values.size(); ++s) {
        of_run.clear();
        for (const size_t part : uses_[k][s]) of_run.push_back(sums[part]);
        values[s] += weights_[k] * metric_(of_run);
      }
    }
    return values;
  }

 private:
  // Returns the index of `part` in parts_.
  size_t Add(UniquePart part) {
    const auto found = std::ranges::find(parts_, part);
    const auto index = static_cast<size_t>(found - parts_.begin());
    if (found == parts_.end()) parts_.push_back(std::move(part));
    return index;
  }

  const std::vector<double>& weights_;
  double (*metric_)(std::span<const int64_t>);
  size_t size_ = 0;
  std::vector<UniquePart> parts_;
  std::vector<std::vector<std::vector<size_t>>> uses_;  // of a group's run: its parts
};

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns the quantile of sorted values, between the two next to it.
double QuantileOf(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

using RunsBySeed = std::map<int64_t, const Run*>;

RunsBySeed FinishedRuns(const Group& group, const std::string& metric,
                        Measure measure = Measure::kBest) {
  RunsBySeed runs;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) != Status::kFinished || !run->result->best) continue;
    const RunResult& result = *run->result;
    const auto& values = measure == Measure::kFinal ? result.final_values : result.best->values;
    if (values.contains(metric)) runs[run->config.seed] = run;
  }
  return runs;
}

// Returns true if predictions are of the evaluation at which the measure reads a metric.
bool IsMeasuredThere(const Run& run, Measure measure) {
  return measure == Measure::kBest || run.result->best->step == run.result->steps;
}

// Use of a run's predictions for a metric.
enum class Use { kGood, kMissing, kUnreadable, kContradictory };

struct Check {
  Use use = Use::kGood;
  std::string fault;  // unless good or missing
};

Check CheckOf(const Run& run, const MetricSpec& spec, const ItemMetric& metric) {
  if (!run.predictions_fault.empty()) {
    return {Use::kUnreadable,
            fmt::format("its predictions cannot be read ({})", run.predictions_fault)};
  }
  if (!run.predictions) return {Use::kMissing, ""};
  double value = 0;
  try {
    value = ValueOf(metric, *run.predictions);
  } catch (const std::invalid_argument& e) {
    return {Use::kUnreadable, fmt::format("its predictions cannot be used ({})", e.what())};
  }
  const double result = run.result->best->values.at(spec.name);
  // The same formula computed both. Rounding errors of a logarithm differ between processors.
  if (std::abs(value - result) <= 1e-9 * std::max(1.0, std::abs(result))) return {};
  return {Use::kContradictory,
          fmt::format("its predictions give a {} of {}, but its result {}", spec.label,
                      FormatValue(spec, value), FormatValue(spec, result))};
}

// Returns true if what the data decide is equal in all runs: the items of a seed, and the values of
// an item.
bool HaveEqualItems(const std::vector<std::vector<const Run*>>& runs, const ItemMetric& metric) {
  std::vector<std::unordered_map<int64_t, int64_t>> known(metric.given);
  for (const std::vector<const Run*>& group : runs) {
    for (size_t s = 0; s < group.size(); ++s) {
      const Predictions& predictions = *group[s]->predictions;
      if (predictions.items != runs.front()[s]->predictions->items) return false;
      for (size_t g = 0; g < metric.given; ++g) {
        const std::vector<int64_t>& values = *predictions.Find(metric.columns[g]);
        for (size_t row = 0; row < values.size(); ++row) {
          if (known[g].emplace(predictions.items[row], values[row]).first->second != values[row]) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

}  // namespace

std::optional<TwoWayInterval> TwoWayBootstrap(const std::vector<std::vector<ItemResults>>& runs,
                                              const std::vector<double>& weights,
                                              double (*metric)(std::span<const int64_t> sums),
                                              const TwoWayOptions& options) {
  const ItemSums sums(runs, weights, metric);
  const size_t items = sums.items(), seeds = sums.seeds();
  if (seeds < 2 || items < 2) return std::nullopt;
  const std::vector<double> at_seeds = sums.At(std::vector(items, 1.0));
  const double mean = MeanOf(at_seeds);
  if (!std::isfinite(mean)) return std::nullopt;
  const auto count = static_cast<double>(seeds);
  const double widening =
      StudentT(static_cast<int>(seeds) - 1) / kNormal * std::sqrt(count / (count - 1));
  std::mt19937_64 random(options.seed);
  std::vector<double> values, item_counts(items), seed_counts(seeds);
  for (int i = 0; i < options.resamples; ++i) {
    Draw(random, items, item_counts);
    Draw(random, seeds, seed_counts);
    double of_seeds = 0;
    for (size_t s = 0; s < seeds; ++s) of_seeds += (seed_counts[s] - 1) * at_seeds[s] / count;
    const double value = MeanOf(sums.At(item_counts)) + widening * of_seeds;
    if (std::isfinite(value)) values.push_back(value);
  }
  if (2 * std::ssize(values) < options.resamples) return std::nullopt;
  std::ranges::sort(values);
  return TwoWayInterval{QuantileOf(values, 0.025), QuantileOf(values, 0.975),
                        static_cast<int>(seeds), static_cast<int64_t>(items)};
}

TwoWayResult TwoWayOf(const std::vector<const Group*>& groups, const std::vector<double>& weights,
                      const MetricSpec& spec, Measure measure) {
  if (measure != Measure::kBest && measure != Measure::kFinal) return {};
  const ItemMetric* metric = FindItemMetric(spec.name);
  if (!metric) return {std::nullopt, "no predictions are saved for this metric"};
  std::vector<RunsBySeed> by_seed;
  for (const Group* group : groups) by_seed.push_back(FinishedRuns(*group, spec.name, measure));
  std::vector<std::vector<const Run*>> runs(groups.size());
  for (const auto& [seed, first] : by_seed.front()) {
    const bool is_complete =
        std::ranges::all_of(by_seed, [&](const RunsBySeed& of) { return of.contains(seed); });
    for (size_t k = 0; is_complete && k < runs.size(); ++k) runs[k].push_back(by_seed[k].at(seed));
  }
  if (runs.front().size() < 2) return {};
  int64_t all = 0, unusable = 0, elsewhere = 0;
  for (const std::vector<const Run*>& group : runs) {
    for (const Run* run : group) {
      ++all;
      unusable += CheckOf(*run, spec, *metric).use != Use::kGood;
      elsewhere += !IsMeasuredThere(*run, measure);
    }
  }
  if (unusable > 0) {
    return {std::nullopt,
            fmt::format("{} of {} have no usable predictions", unusable, Count(all, "run"))};
  }
  if (elsewhere > 0) {
    return {std::nullopt,
            fmt::format("the predictions of {} of {} are those of the evaluation that validation "
                        "chose, not of the last one",
                        elsewhere, Count(all, "run"))};
  }
  if (!HaveEqualItems(runs, *metric)) {
    return {std::nullopt, "the runs' predictions are of different test items"};
  }
  std::vector<std::vector<ItemResults>> results;
  for (const std::vector<const Run*>& group : runs) {
    results.emplace_back();
    for (const Run* run : group) {
      results.back().push_back({run->predictions->items, PartsOf(*metric, *run->predictions)});
    }
  }
  return {TwoWayBootstrap(results, weights, metric->value), ""};
}

TwoWayResult TwoWayDifference(const Group& a, const Group& b, const MetricSpec& metric,
                              Measure measure) {
  return TwoWayOf({&a, &b}, {1, -1}, metric, measure);
}

LeftOutRuns& LeftOutRuns::operator+=(const LeftOutRuns& more) {
  all += more.all;
  missing += more.missing;
  faults.insert(faults.end(), more.faults.begin(), more.faults.end());
  return *this;
}

std::vector<std::string> LeftOutRuns::Text() const {
  std::vector<std::string> lines;
  if (missing > 0) {
    lines.push_back(fmt::format(
        "{} without predictions for the test items{}: intervals over seeds and test items are left "
        "out where they take part.",
        Count(missing, "run"), missing == all ? "" : fmt::format(", of {}", FormatInteger(all))));
  }
  lines.insert(lines.end(), faults.begin(), faults.end());
  return lines;
}

LeftOutRuns LeftOutOf(const std::vector<const Group*>& groups, const MetricSpec& spec) {
  LeftOutRuns left_out;
  const ItemMetric* metric = FindItemMetric(spec.name);
  if (!metric) return left_out;
  for (const Group* group : groups) {
    for (const auto& [seed, run] : FinishedRuns(*group, spec.name)) {
      ++left_out.all;
      const Check check = CheckOf(*run, spec, *metric);
      left_out.missing += check.use == Use::kMissing;
      if (!check.fault.empty()) {
        left_out.faults.push_back(
            fmt::format("{}: {}.", run->folder.filename().string(), check.fault));
      }
    }
  }
  return left_out;
}

std::vector<const Group*> GroupsOf(const Panel& panel) {
  std::vector<const Group*> groups;
  for (const Group& group : panel.groups) groups.push_back(&group);
  return groups;
}

}  // namespace planish::lab
