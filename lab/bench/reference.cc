#include "lab/bench/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"
#include "lab/bench/threads.h"
#include "lab/bench/types.h"
#include "planish/online_norm.h"
#include "src/norm/recipe.h"

namespace planish::bench {

namespace {

// Number of compared elements of y or dx.
constexpr int64_t kCompared = int64_t{1} << 18;
// Number of blocks of rows with their own partial sums of dgain and dbias.
constexpr int64_t kBlocks = 64;

template <class T>
double Load(const void* data, int64_t i) {
  return ToDouble(static_cast<const T*>(data)[i]);
}

struct Statistics {
  double mean = 0, rstd = 0;
  double curvature = 1;  // coefficient of xhat * mean(g * xhat) in dx
  double weight = 1;     // weight of the group's own mean in `mean`
  double shift = 0;      // weighted distance of the group's own mean from `mean`, times rstd
};

// Groups of elements that a norm normalizes together.
struct Groups {
  Groups(Over over_, const Case& c)
      : over(over_),
        spatial(c.spatial),
        channels(c.cols),
        count(over == Over::kChannel ? c.cols : c.rows * c.spatial),
        size(over == Over::kChannel ? c.rows * c.spatial : c.cols) {}

  /// Returns the offset of element i of a group.
  int64_t At(int64_t group, int64_t i) const {
    if (over == Over::kChannel) return (i / spatial * channels + group) * spatial + i % spatial;
    return (group / spatial * channels + i) * spatial + group % spatial;
  }
  /// Returns the index of its gain and bias.
  int64_t Parameter(int64_t group, int64_t i) const { return over == Over::kChannel ? group : i; }

  Over over;
  int64_t spatial, channels, count, size;
  std::vector<Statistics> known;  // of every group if they depend on earlier groups; else empty
};

// Returns the statistics of Over::kRows by the equations of planish/online_norm.h.
template <class T>
std::vector<Statistics> OnlineStatistics(const Groups& groups, const void* x) {
  const double alpha = OnlineNormOptions().alpha;
  const auto n = static_cast<double>(groups.size);
  OnlineState state;
  std::vector<Statistics> statistics;
  for (int64_t group = 0; group < groups.count; ++group) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < groups.size; ++i) sum += Load<T>(x, groups.At(group, i));
    state.mean = alpha * sum / n + (1 - alpha) * state.mean;
    for (int64_t i = 0; i < groups.size; ++i) {
      const double distance = Load<T>(x, groups.At(group, i)) - state.mean;
      squares += distance * distance;
    }
    const double deviation = std::sqrt(squares / (n - 1));
    state.deviation = alpha * deviation + (1 - alpha) * state.deviation;
    statistics.push_back({.mean = state.mean,
                          .rstd = 1 / state.deviation,
                          .curvature = alpha * n * state.deviation / ((n - 1) * deviation),
                          .weight = alpha,
                          .shift = alpha * (sum / n - state.mean) / state.deviation});
  }
  return statistics;
}

template <class T>
Statistics StatisticsOf(const internal::Recipe& recipe, const Groups& groups, const void* x,
                        int64_t group) {
  if (!groups.known.empty()) return groups.known[static_cast<size_t>(group)];
  const auto n = static_cast<double>(groups.size);
  double sum = 0, squares = 0;
  for (int64_t i = 0; recipe.centre && i < groups.size; ++i) sum += Load<T>(x, groups.At(group, i));
  const double mean = sum / n;
  for (int64_t i = 0; i < groups.size; ++i) {
    const double distance = Load<T>(x, groups.At(group, i)) - mean;
    squares += distance * distance;
  }
  if (recipe.deviation == internal::Deviation::kBiased) {
    return {mean, 1 / std::sqrt(squares / n + kEps)};
  }
  const double deviation = std::sqrt(squares / (n - 1)), rstd = 1 / (deviation + kEps);
  return {mean, rstd, n / (n - 1) / (deviation * rstd)};
}

// Computes y or dx of one group by the equations of planish/norm.h. Returns the largest y, or the
// largest of the terms whose difference is dx.
template <class T>
double ReferenceGroup(const internal::Recipe& recipe, const Groups& groups, bool bias,
                      const Case& c, const Arrays& arrays, int64_t group, double* out) {
  using P = Compute<T>;
  const Statistics m = StatisticsOf<T>(recipe, groups, arrays.x, group);
  const NormOptions options;  // of AdaNorm
  const auto n = static_cast<double>(groups.size);
  const auto xhat = [&](int64_t i) {
    return (Load<T>(arrays.x, groups.At(group, i)) - m.mean) * m.rstd;
  };
  // y is factor * xhat plus a bias; backward treats the factor as constant.
  const auto factor = [&](int64_t i) -> double {
    switch (recipe.output) {
      case internal::Output::kAffine:
        return Load<P>(arrays.gain, groups.Parameter(group, i));
      case internal::Output::kAdaptive:
        return options.scale * (1 - options.slope * xhat(i));
      default:
        return 1;
    }
  };
  double scale = 0;
  if (c.direction == Direction::kForward) {
    for (int64_t i = 0; i < groups.size; ++i) {
      out[i] = factor(i) * xhat(i);
      if (bias) out[i] += Load<P>(arrays.bias, groups.Parameter(group, i));
      scale = std::max(scale, std::abs(out[i]));
    }
    return scale;
  }
  double mean_g = 0, mean_gx = 0;
  for (int64_t i = 0; i < groups.size; ++i) {
    out[i] = factor(i) * Load<T>(arrays.dy, groups.At(group, i));
    scale = std::max(scale, std::abs(out[i] * m.rstd));
    mean_g += out[i] / n;
    mean_gx += out[i] * xhat(i) / n;
  }
  for (int64_t i = 0; i < groups.size; ++i) {
    if (recipe.via_mean) out[i] -= m.weight * mean_g;
    if (recipe.via_scale) out[i] -= (xhat(i) - m.shift) * m.curvature * mean_gx;
    out[i] *= m.rstd;
  }
  return scale;
}

struct Sums {
  std::vector<double> dgain, dbias;         // [cols]
  double dgain_scale = 0, dbias_scale = 0;  // the largest sum or term
};

// Computes dgain and dbias in blocks of groups that the threads share.
template <class T>
Sums ReferenceSums(const internal::Recipe& recipe, const Groups& groups, const Case& c,
                   const Arrays& arrays) {
  const int64_t blocks = std::min(kBlocks, groups.count);
  const auto part = static_cast<size_t>(2 * c.cols);
  std::vector<double> sums(static_cast<size_t>(blocks) * part);
  std::vector<double> scales(static_cast<size_t>(2 * blocks));
  TorchThreads()(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      double* dgain = sums.data() + static_cast<size_t>(block) * part;
      double* dbias = dgain + c.cols;
      double dgain_scale = 0, dbias_scale = 0;
      const int64_t last = (block + 1) * groups.count / blocks;
      for (int64_t group = block * groups.count / blocks; group < last; ++group) {
        const Statistics m = StatisticsOf<T>(recipe, groups, arrays.x, group);
        for (int64_t i = 0; i < groups.size; ++i) {
          const int64_t at = groups.At(group, i), col = groups.Parameter(group, i);
          const double dy = Load<T>(arrays.dy, at);
          const double term = dy * (Load<T>(arrays.x, at) - m.mean) * m.rstd;
          dgain[col] += term;
          dbias[col] += dy;
          dgain_scale = std::max(dgain_scale, std::abs(term));
          dbias_scale = std::max(dbias_scale, std::abs(dy));
        }
      }
      scales[static_cast<size_t>(2 * block)] = dgain_scale;
      scales[static_cast<size_t>(2 * block + 1)] = dbias_scale;
    }
  });
  Sums total;
  const auto add = [&](size_t first, size_t scale, std::vector<double>& to, double& largest) {
    to.assign(static_cast<size_t>(c.cols), 0);
    for (size_t block = 0; block < static_cast<size_t>(blocks); ++block) {
      largest = std::max(largest, scales[2 * block + scale]);
      for (size_t col = 0; col < to.size(); ++col) to[col] += sums[block * part + first + col];
    }
    for (const double sum : to) largest = std::max(largest, std::abs(sum));
  };
  add(0, 0, total.dgain, total.dgain_scale);
  add(part / 2, 1, total.dbias, total.dbias_scale);
  return total;
}

double UnitInLastPlace(Type type) {
  switch (type) {
    case Type::kDouble:
      return 0x1p-53;
    case Type::kFloat:
      return 0x1p-24;
    case Type::kBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}

}  // namespace

void FillStatistics(Over over, const Case& c, const void* x, void* mean, void* rstd) {
  const internal::Recipe recipe = internal::RecipeOf(Norm::kLayer);
  const Groups groups(over, c);
  VisitType(c.type, [&]<class T>() {
    using P = Compute<T>;
    TorchThreads()(0, groups.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const Statistics m = StatisticsOf<T>(recipe, groups, x, group);
        static_cast<P*>(mean)[group] = static_cast<P>(m.mean);
        static_cast<P*>(rstd)[group] = static_cast<P>(m.rstd);
      }
    });
  });
}

Reference::Reference(const std::string& method, const Case& c, const Arrays& arrays)
    : case_(c), arrays_(arrays) {
  const Method& m = FindMethod(method);
  const internal::Recipe recipe = internal::RecipeOf(m.norm);
  Groups groups(m.over, c);
  if (m.over == Over::kRows) {
    VisitType(c.type, [&]<class T>() { groups.known = OnlineStatistics<T>(groups, arrays.x); });
  }
  const int64_t count = std::clamp<int64_t>(kCompared / groups.size, 1, groups.count);
  std::vector<int64_t> compared;
  for (int64_t i = 0; i < count; ++i) compared.push_back(i * groups.count / count);
  if (compared.back() != groups.count - 1) compared.push_back(groups.count - 1);
  const auto size = static_cast<size_t>(groups.size);
  out_.resize(compared.size() * size);
  for (const int64_t group : compared) {
    for (int64_t i = 0; i < groups.size; ++i) at_.push_back(groups.At(group, i));
  }
  VisitType(c.type, [&]<class T>() {
    for (size_t i = 0; i < compared.size(); ++i) {
      out_scale_ = std::max(out_scale_, ReferenceGroup<T>(recipe, groups, m.bias, c, arrays,
                                                          compared[i], out_.data() + i * size));
    }
    if (c.direction == Direction::kBackward && (m.gain || m.bias)) {
      const Sums sums = ReferenceSums<T>(recipe, groups, c, arrays);
      if (m.gain) dgain_ = sums.dgain;
      if (m.bias) dbias_ = sums.dbias;
      dgain_scale_ = sums.dgain_scale;
      dbias_scale_ = sums.dbias_scale;
    }
  });
  terms_ = c.elements() / c.cols;
}

void Reference::Poison() const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  VisitType(case_.type, [&]<class T>() {
    for (const int64_t at : at_) static_cast<T*>(arrays_.out)[at] = FromDouble<T>(kNan);
    using P = Compute<T>;
    for (void* sums : {arrays_.dgain, arrays_.dbias}) {
      if (sums != nullptr) std::fill_n(static_cast<P*>(sums), case_.cols, static_cast<P>(kNan));
    }
  });
}

std::string Reference::Compare(bool half_sums) const {
  const double unit = UnitInLastPlace(case_.type);
  const bool half = ParameterType(case_.type) != case_.type;
  const auto terms = static_cast<double>(terms_);
  const double out_allowed = half ? unit : 16 * unit;
  const double sums_allowed =
      half && half_sums ? std::min(1.0, terms / 2 * unit)
                        : 16 * std::sqrt(terms) * UnitInLastPlace(ParameterType(case_.type));
  return VisitType(case_.type, [&]<class T>() {
    using P = Compute<T>;
    std::string wrong;
    const auto compare = [&](const char* what, const std::vector<double>& expected, double scale,
                             double allowed, const auto& result) {
      double distance = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double d = std::abs(result(i) - expected[i]);
        if (!(d <= distance)) distance = d;  // also true for NaN
        if (std::isnan(distance)) break;
      }
      if (distance <= allowed * scale) return;
      wrong += fmt::format(
          "{}{} is off by {:.2g}; the largest value is {:.2g}, the tolerance {:.2g} of that",
          wrong.empty() ? "" : "; ", what, distance, scale, allowed);
    };
    compare(case_.direction == Direction::kForward ? "y" : "dx", out_, out_scale_, out_allowed,
            [&](size_t i) { return Load<T>(arrays_.out, at_[i]); });
    compare("dgain", dgain_, dgain_scale_, sums_allowed,
            [&](size_t i) { return Load<P>(arrays_.dgain, static_cast<int64_t>(i)); });
    compare("dbias", dbias_, dbias_scale_, sums_allowed,
            [&](size_t i) { return Load<P>(arrays_.dbias, static_cast<int64_t>(i)); });
    return wrong;
  });
}

std::string CheckContestant(const std::string& method, const Contestant& contestant, const Case& c,
                            const Arrays& arrays, bool half_sums) {
  const Reference reference(method, c, arrays);
  reference.Poison();
  contestant.call();
  return reference.Compare(half_sums);
}

}  // namespace planish::bench
