#include "lab/bench/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

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
  Groups(const Method& method, const Case& c)
      : over(method.over),
        last(method.channels_last),
        spatial(c.spatial),
        channels(c.cols),
        parts(GroupsOf(method, c)),
        count(over == Over::kChannel ? c.cols
              : over == Over::kGroup ? c.rows * parts
                                     : c.rows * c.spatial * parts),
        size(c.rows * c.cols * c.spatial / count) {}

  /// Returns the offset of element i of a group.
  int64_t At(int64_t group, int64_t i) const {
    switch (over) {
      case Over::kChannel:
        return (i / spatial * channels + group) * spatial + i % spatial;
      case Over::kPosition:
        return (group / spatial * channels + i) * spatial + group % spatial;
      case Over::kGroup:
        if (!last) break;
        return (group / parts * spatial + i / Channels()) * channels + Parameter(group, i);
      default:
        break;
    }
    return group * size + i;
  }
  /// Returns the index of its gain and bias.
  int64_t Parameter(int64_t group, int64_t i) const {
    if (over == Over::kChannel) return group;
    if (over != Over::kGroup) return group % parts * size + i;
    return group % parts * Channels() + (last ? i % Channels() : i / spatial);
  }
  int64_t Channels() const { return channels / parts; }

  Over over;
  bool last;
  int64_t spatial, channels;
  int64_t parts;  // heads of a row, or groups of a sample
  int64_t count, size;
  std::vector<Statistics> known;  // of every group if they depend on earlier groups; else empty
};

// The input of a norm, in double.
template <class T>
struct Input {
  const Method& method;
  const Arrays& arrays;

  double Gate(int64_t at) const { return Load<T>(arrays.gate, at); }
  double Silu(int64_t at) const { return Gate(at) / (1 + std::exp(-Gate(at))); }
  double SiluSlope(int64_t at) const {
    const double sigmoid = 1 / (1 + std::exp(-Gate(at)));
    return sigmoid * (1 + Gate(at) * (1 - sigmoid));
  }
  /// Returns what is normalized, and the gradient of the norm's result.
  double X(int64_t at) const {
    return Load<T>(arrays.x, at) * (method.gate == Gate::kBefore ? Silu(at) : 1);
  }
  double Dy(int64_t at) const {
    return Load<T>(arrays.dy, at) * (method.gate == Gate::kAfter ? Silu(at) : 1);
  }

  /// Return z, f(z) and f'(z) of a function in place of a norm.
  double Z(int64_t at) const {
    using P = Compute<T>;
    return Load<P>(arrays.scalars, 0) * X(at) + Load<P>(arrays.scalars, 1);
  }
  double F(int64_t at) const {
    return method.function == Pointwise::kTanh ? std::tanh(Z(at)) : std::erf(Z(at));
  }
  double Slope(int64_t at) const {
    if (method.function == Pointwise::kTanh) return 1 - F(at) * F(at);
    return 2 / std::sqrt(std::numbers::pi) * std::exp(-Z(at) * Z(at));
  }
  /// Returns the factor of the gain.
  double Xhat(const Statistics& m, int64_t at) const {
    return method.over == Over::kElement ? F(at) : (X(at) - m.mean) * m.rstd;
  }
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
Statistics StatisticsOf(const internal::Recipe& recipe, const Groups& groups, const Input<T>& input,
                        int64_t group) {
  if (groups.over == Over::kElement) return {};
  if (!groups.known.empty()) return groups.known[static_cast<size_t>(group)];
  const auto n = static_cast<double>(groups.size);
  double sum = 0, squares = 0;
  for (int64_t i = 0; recipe.centre && i < groups.size; ++i) sum += input.X(groups.At(group, i));
  const double mean = sum / n;
  for (int64_t i = 0; i < groups.size; ++i) {
    const double distance = input.X(groups.At(group, i)) - mean;
    squares += distance * distance;
  }
  if (recipe.deviation == internal::Deviation::kBiased) {
    return {mean, 1 / std::sqrt(squares / n + kEps)};
  }
  const double deviation = std::sqrt(squares / (n - 1)), rstd = 1 / (deviation + kEps);
  return {mean, rstd, n / (n - 1) / (deviation * rstd)};
}

// The largest value of y, or of the terms whose difference is dx, and of dgate.
struct Scales {
  double out = 0, dgate = 0;
};

// Computes y, or dx and dgate unless it is null, of one group by the equations of planish/norm.h
// and planish/pointwise_norm.h.
template <class T>
Scales ReferenceGroup(const internal::Recipe& recipe, const Groups& groups, const Input<T>& input,
                      const Case& c, int64_t group, double* out, double* dgate) {
  using P = Compute<T>;
  const Method& method = input.method;
  const Arrays& arrays = input.arrays;
  const Statistics m = StatisticsOf<T>(recipe, groups, input, group);
  const NormOptions options;  // of AdaNorm
  const auto n = static_cast<double>(groups.size);
  const auto xhat = [&](int64_t i) { return input.Xhat(m, groups.At(group, i)); };
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
  const auto normalized = [&](int64_t i) {
    const double bias = method.bias ? Load<P>(arrays.bias, groups.Parameter(group, i)) : 0;
    return factor(i) * xhat(i) + bias;
  };
  Scales scales;
  if (c.direction == Direction::kForward) {
    for (int64_t i = 0; i < groups.size; ++i) {
      out[i] = normalized(i);
      if (method.gate == Gate::kAfter) out[i] *= input.Silu(groups.At(group, i));
      scales.out = std::max(scales.out, std::abs(out[i]));
    }
    return scales;
  }
  if (method.over == Over::kElement) {
    for (int64_t i = 0; i < groups.size; ++i) {
      const int64_t at = groups.At(group, i);
      out[i] = factor(i) * input.Dy(at) * input.Slope(at) * Load<P>(arrays.scalars, 0);
      scales.out = std::max(scales.out, std::abs(out[i]));
    }
    return scales;
  }
  double mean_g = 0, mean_gx = 0;
  for (int64_t i = 0; i < groups.size; ++i) {
    out[i] = factor(i) * input.Dy(groups.At(group, i));
    scales.out = std::max(scales.out, std::abs(out[i] * m.rstd));
    mean_g += out[i] / n;
    mean_gx += out[i] * xhat(i) / n;
  }
  for (int64_t i = 0; i < groups.size; ++i) {
    if (recipe.via_mean) out[i] -= m.weight * mean_g;
    if (recipe.via_scale) out[i] -= (xhat(i) - m.shift) * m.curvature * mean_gx;
    out[i] *= m.rstd;
    if (dgate == nullptr) continue;
    const int64_t at = groups.At(group, i);
    if (method.gate == Gate::kAfter) {
      dgate[i] = Load<T>(arrays.dy, at) * normalized(i) * input.SiluSlope(at);
    } else {
      dgate[i] = out[i] * Load<T>(arrays.x, at) * input.SiluSlope(at);
      out[i] *= input.Silu(at);
    }
    scales.dgate = std::max(scales.dgate, std::abs(dgate[i]));
  }
  return scales;
}

struct Sums {
  std::vector<double> dgain, dbias;         // [cols]
  double dgain_scale = 0, dbias_scale = 0;  // the largest sum or term
};

// Adds g * x and g over all elements, with g = dx / alpha, to `sums`. Returns the largest term or
// sum.
template <class T>
double ReferenceScalars(const Groups& groups, const Input<T>& input, std::vector<double>& sums) {
  using P = Compute<T>;
  sums.assign(2, 0);
  double scale = 0;
  for (int64_t group = 0; group < groups.count; ++group) {
    for (int64_t i = 0; i < groups.size; ++i) {
      const int64_t at = groups.At(group, i);
      const double gain = Load<P>(input.arrays.gain, groups.Parameter(group, i));
      const double g = input.Dy(at) * gain * input.Slope(at);
      sums[0] += g * input.X(at);
      sums[1] += g;
      scale = std::max({scale, std::abs(g), std::abs(g * input.X(at))});
    }
  }
  return std::max({scale, std::abs(sums[0]), std::abs(sums[1])});
}

// Computes dgain and dbias in blocks of groups that the threads share.
template <class T>
Sums ReferenceSums(const internal::Recipe& recipe, const Groups& groups, const Input<T>& input,
                   const Case& c) {
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
        const Statistics m = StatisticsOf<T>(recipe, groups, input, group);
        for (int64_t i = 0; i < groups.size; ++i) {
          const int64_t at = groups.At(group, i), col = groups.Parameter(group, i);
          const double dy = input.Dy(at), term = dy * input.Xhat(m, at);
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
  const Method method = {
      .name = "", .over = over, .norm = Norm::kLayer, .gain = false, .bias = false};
  const internal::Recipe recipe = internal::RecipeOf(method.norm);
  const Arrays arrays = {.x = x};
  const Groups groups(method, c);
  VisitType(c.type, [&]<class T>() {
    using P = Compute<T>;
    const Input<T> input{method, arrays};
    TorchThreads()(0, groups.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const Statistics m = StatisticsOf<T>(recipe, groups, input, group);
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
  roundings_ = m.cast ? 2 : 1;
  Groups groups(m, c);
  if (m.over == Over::kRows) {
    VisitType(c.type, [&]<class T>() { groups.known = OnlineStatistics<T>(groups, arrays.x); });
  }
  const int64_t count = std::clamp<int64_t>(kCompared / groups.size, 1, groups.count);
  std::vector<int64_t> compared;
  for (int64_t i = 0; i < count; ++i) compared.push_back(i * groups.count / count);
  if (compared.back() != groups.count - 1) compared.push_back(groups.count - 1);
  const auto size = static_cast<size_t>(groups.size);
  out_.resize(compared.size() * size);
  if (arrays.dgate != nullptr && m.gate != Gate::kNone) dgate_.resize(out_.size());
  for (const int64_t group : compared) {
    for (int64_t i = 0; i < groups.size; ++i) at_.push_back(groups.At(group, i));
  }
  VisitType(c.type, [&]<class T>() {
    const Input<T> input{m, arrays};
    for (size_t i = 0; i < compared.size(); ++i) {
      const Scales scales =
          ReferenceGroup<T>(recipe, groups, input, c, compared[i], out_.data() + i * size,
                            dgate_.empty() ? nullptr : dgate_.data() + i * size);
      out_scale_ = std::max(out_scale_, scales.out);
      dgate_scale_ = std::max(dgate_scale_, scales.dgate);
    }
    if (c.direction == Direction::kBackward && m.over == Over::kElement) {
      dscalars_scale_ = ReferenceScalars<T>(groups, input, dscalars_);
    }
    if (c.direction == Direction::kBackward && (m.gain || m.bias)) {
      const Sums sums = ReferenceSums<T>(recipe, groups, input, c);
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
    for (const int64_t at : at_) {
      static_cast<T*>(arrays_.out)[at] = FromDouble<T>(kNan);
      if (!dgate_.empty()) static_cast<T*>(arrays_.dgate)[at] = FromDouble<T>(kNan);
    }
    using P = Compute<T>;
    for (void* sums : {arrays_.dgain, arrays_.dbias}) {
      if (sums != nullptr) std::fill_n(static_cast<P*>(sums), case_.cols, static_cast<P>(kNan));
    }
    if (!dscalars_.empty()) std::fill_n(static_cast<P*>(arrays_.dscalars), 2, static_cast<P>(kNan));
  });
}

std::string Reference::Compare(bool half_sums, int roundings) const {
  const double unit = UnitInLastPlace(case_.type);
  const bool half = ParameterType(case_.type) != case_.type;
  const auto terms = static_cast<double>(terms_);
  const double out_allowed = half ? std::max(roundings, roundings_) * unit : 16 * unit;
  const auto allowed_of = [&](double n) {
    return half && half_sums ? std::min(1.0, n / 2 * unit)
                             : 16 * std::sqrt(n) * UnitInLastPlace(ParameterType(case_.type));
  };
  const double sums_allowed = allowed_of(terms);
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
    compare("dgate", dgate_, dgate_scale_, out_allowed,
            [&](size_t i) { return Load<T>(arrays_.dgate, at_[i]); });
    compare("dscalars", dscalars_, dscalars_scale_,
            allowed_of(static_cast<double>(case_.elements())),
            [&](size_t i) { return Load<P>(arrays_.dscalars, static_cast<int64_t>(i)); });
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
  if (contestant.fetch) contestant.fetch();
  return reference.Compare(half_sums, contestant.roundings);
}

}  // namespace planish::bench
