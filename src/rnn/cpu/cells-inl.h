// The elementwise work and norms of a step; see cells.h. Compiled once for each SIMD target, in the
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CPU_CELLS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CPU_CELLS_INL_H_
#undef PLANISH_SRC_RNN_CPU_CELLS_INL_H_
#else
#define PLANISH_SRC_RNN_CPU_CELLS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/base/simd/math-inl.h"
#include "src/base/simd/simd.h"
#include "src/rnn/cpu/cells.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// V<T> is a vector of the target's length, kLanes<T> elements.
template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using V = hn::Vec<Tag<T>>;
template <class T>
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

template <class T>
HWY_INLINE V<T> Get(const T* p) {
  return hn::LoadU(Tag<T>(), p);
}
template <class T>
HWY_INLINE void Put(V<T> v, T* p) {
  hn::StoreU(v, Tag<T>(), p);
}
template <class T>
HWY_INLINE V<T> All(T value) {
  return hn::Set(Tag<T>(), value);
}
template <class T>
HWY_INLINE T Total(V<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}
/// Writes a vector that is saved for backward.
template <Keep kKeep, class T>
HWY_INLINE void PutKept(V<T> v, T* p) {
  if constexpr (kKeep == Keep::kPastCaches) {
    hn::Stream(v, Tag<T>(), p);
  } else if constexpr (kKeep == Keep::kInCaches) {
    Put<T>(v, p);
  }
}
/// Calls f(std::integral_constant<Keep, keep>()).
template <class F>
HWY_INLINE void WithKeep(Keep keep, const F& f) {
  switch (keep) {
    case Keep::kNothing:
      return f(std::integral_constant<Keep, Keep::kNothing>());
    case Keep::kInCaches:
      return f(std::integral_constant<Keep, Keep::kInCaches>());
    case Keep::kPastCaches:
      return f(std::integral_constant<Keep, Keep::kPastCaches>());
  }
}
/// Adds v to the elements at p.
template <class T>
HWY_INLINE void AddTo(T* p, V<T> v) {
  Put<T>(hn::Add(Get(p), v), p);
}

/// Returns the number of vectors for n units.
template <class T>
HWY_INLINE int64_t VectorsOf(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T>;
}

// --- Norms of one row ---

/// The layout of a norm's elements in a row: `gates` interleaved gates of each unit. The last
/// vectors contain padding.
struct Stretch {
  int64_t gates, hidden;

  template <class T>
  HWY_INLINE int64_t vectors() const {
    return VectorsOf<T>(hidden) * gates;
  }
  /// Returns the number of vectors without padding.
  template <class T>
  HWY_INLINE int64_t whole() const {
    return hidden / kLanes<T> * gates;
  }
  /// Returns the lanes of the last vectors that are not padding.
  template <class T>
  HWY_INLINE auto mask() const {
    return hn::FirstN(Tag<T>(), static_cast<size_t>(hidden % kLanes<T>));
  }
  template <class T>
  HWY_INLINE T count() const {
    return static_cast<T>(gates * hidden);
  }
};

/// The range of variances for which squares neither underflow nor overflow.
template <class T>
inline constexpr T kMinSquare = std::is_same_v<T, float> ? T(1e-25) : T(1e-250);
template <class T>
inline constexpr T kMaxSquare = std::is_same_v<T, float> ? T(1e30) : T(1e250);

template <class T>
HWY_INLINE void WriteMap(double mean, double rest, double variance, double eps, T* map) {
  const double rstd = 1 / std::sqrt(std::max(0.0, variance) + eps);
  map[0] = static_cast<T>(mean);
  map[1] = static_cast<T>(rstd);
  map[2] = static_cast<T>(-rest * rstd);
}

/// Computes coefficients in double, for floats whose squares underflow or overflow.
HWY_NOINLINE inline void MapInDouble(const float* z, const Stretch& s, float eps, float* map) {
  const int64_t vectors = s.vectors<float>(), lanes = kLanes<float>;
  const auto units_of = [&](int64_t v) { return std::min(lanes, s.hidden - v / s.gates * lanes); };
  const auto n = static_cast<double>(s.gates * s.hidden);
  double sum = 0, squares = 0;
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < units_of(v); ++i) sum += static_cast<double>(z[v * lanes + i]);
  }
  const double mean = sum / n;
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < units_of(v); ++i) {
      const double d = static_cast<double>(z[v * lanes + i]) - mean;
      squares += d * d;
    }
  }
  const auto rounded = static_cast<double>(static_cast<float>(mean));
  WriteMap(rounded, mean - rounded, squares / n, static_cast<double>(eps), map);
}

/// Computes coefficients from sums about the mean, corrected for its rounding. For a mean that is
/// large against the deviation, and for very small or large elements.
template <class T>
HWY_NOINLINE void MapAboutMean(const T* z, const Stretch s, T mean, T eps, T* map) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const int64_t whole = s.whole<T>(), vectors = s.vectors<T>();
  const T count = s.count<T>();
  const auto shift = All<T>(mean);
  auto sum = hn::Zero(d), square = hn::Zero(d);
  for (int64_t v = 0; v < vectors; ++v) {
    auto distance = hn::Sub(Get(z + v * n), shift);
    if (v >= whole) distance = hn::IfThenElseZero(s.mask<T>(), distance);
    sum = hn::Add(sum, distance);
    square = hn::MulAdd(distance, distance, square);
  }
  const T rest = Total<T>(sum) / count, mean_square = Total<T>(square) / count;
  if constexpr (std::is_same_v<T, float>) {
    if (!(mean_square > kMinSquare<T> && mean_square < kMaxSquare<T>)) {
      return MapInDouble(z, s, eps, map);
    }
  }
  WriteMap<T>(static_cast<double>(mean), static_cast<double>(rest),
              static_cast<double>(mean_square - rest * rest), static_cast<double>(eps), map);
}

/// Computes coefficients from the sums of elements and of their squares. If the mean is at most the
/// deviation, the variance is accurate to a few units in the last place; otherwise calls
/// MapAboutMean.
template <class T>
HWY_INLINE void FinishMap(V<T> sum, V<T> square, const T* z, const Stretch& s, T eps, T* map) {
  const T scale = 1 / s.count<T>();
  const T mean = Total<T>(sum) * scale, mean_square = Total<T>(square) * scale;
  const T variance = mean_square - mean * mean;
  if (!(mean * mean <= variance && variance > kMinSquare<T> && variance < kMaxSquare<T>))
      [[unlikely]] {
    return MapAboutMean(z, s, mean, eps, map);
  }
  map[0] = mean;
  map[1] = 1 / std::sqrt(variance + eps);
  map[2] = 0;
}

/// Computes the coefficients of two rows of the same layout, or of one if `second` is null. Padding
/// must be 0.
template <class T>
HWY_NOINLINE void TakeMaps(const T* first, const T* second, const Stretch s, T eps, T* map_first,
                           T* map_second) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), square0 = hn::Zero(d), square1 = hn::Zero(d);
  if (!second) {
    int64_t i = 0;
    for (; i + 2 * n <= end; i += 2 * n) {
      const auto z0 = Get(first + i), z1 = Get(first + i + n);
      sum0 = hn::Add(sum0, z0);
      sum1 = hn::Add(sum1, z1);
      square0 = hn::MulAdd(z0, z0, square0);
      square1 = hn::MulAdd(z1, z1, square1);
    }
    for (; i < end; i += n) {
      const auto z0 = Get(first + i);
      sum0 = hn::Add(sum0, z0);
      square0 = hn::MulAdd(z0, z0, square0);
    }
    return FinishMap(hn::Add(sum0, sum1), hn::Add(square0, square1), first, s, eps, map_first);
  }
  auto sum2 = hn::Zero(d), sum3 = hn::Zero(d), square2 = hn::Zero(d), square3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * n <= end; i += 2 * n) {
    const auto z0 = Get(first + i), z1 = Get(first + i + n);
    const auto z2 = Get(second + i), z3 = Get(second + i + n);
    sum0 = hn::Add(sum0, z0);
    sum1 = hn::Add(sum1, z1);
    sum2 = hn::Add(sum2, z2);
    sum3 = hn::Add(sum3, z3);
    square0 = hn::MulAdd(z0, z0, square0);
    square1 = hn::MulAdd(z1, z1, square1);
    square2 = hn::MulAdd(z2, z2, square2);
    square3 = hn::MulAdd(z3, z3, square3);
  }
  for (; i < end; i += n) {
    const auto z0 = Get(first + i), z2 = Get(second + i);
    sum0 = hn::Add(sum0, z0);
    sum2 = hn::Add(sum2, z2);
    square0 = hn::MulAdd(z0, z0, square0);
    square2 = hn::MulAdd(z2, z2, square2);
  }
  FinishMap(hn::Add(sum0, sum1), hn::Add(square0, square1), first, s, eps, map_first);
  FinishMap(hn::Add(sum2, sum3), hn::Add(square2, square3), second, s, eps, map_second);
}

template <class T>
struct MapVectors {
  V<T> mean, rstd, offset;

  HWY_INLINE explicit MapVectors(const T* map)
      : mean(All<T>(map[0])), rstd(All<T>(map[1])), offset(All<T>(map[2])) {}
  HWY_INLINE V<T> Xhat(V<T> z) const { return hn::MulAdd(hn::Sub(z, mean), rstd, offset); }
};

/// The coefficients of the identity, for elements that are already xhat.
template <class T>
inline constexpr T kNoMap[kMap] = {0, 1, 0};

/// Computes a = gain * xhat.
template <class T, Keep kKeep>
HWY_NOINLINE void Scale(const T* z, const T* map, const T* gain, int64_t vectors, T* kept, T* a) {
  const MapVectors<T> norm(map);
  for (int64_t i = 0; i < vectors * kLanes<T>; i += kLanes<T>) {
    const auto xhat = norm.Xhat(Get(z + i));
    PutKept<kKeep, T>(xhat, kept + i);
    Put<T>(hn::Mul(Get(gain + i), xhat), a + i);
  }
}

/// Computes a = gain_ih * xhat_ih + gain_hh * xhat_hh.
template <class T, Keep kKeep>
HWY_NOINLINE void ScaleBoth(const T* zx, const T* map_ih, const T* gain_ih, T* kept_ih, const T* zh,
                            const T* map_hh, const T* gain_hh, T* kept_hh, int64_t vectors, T* a) {
  const MapVectors<T> ih(map_ih), hh(map_hh);
  for (int64_t i = 0; i < vectors * kLanes<T>; i += kLanes<T>) {
    const auto xhat_ih = ih.Xhat(Get(zx + i)), xhat_hh = hh.Xhat(Get(zh + i));
    PutKept<kKeep, T>(xhat_ih, kept_ih + i);
    PutKept<kKeep, T>(xhat_hh, kept_hh + i);
    const auto of_x = hn::Mul(Get(gain_ih + i), xhat_ih);
    Put<T>(hn::MulAdd(Get(gain_hh + i), xhat_hh, of_x), a + i);
  }
}

/// A row of a norm's backward. With d the gradient of gain * xhat and g = d * gain, dz = rstd * (g
/// - mean(g) - xhat * mean(g * xhat)). dz may be d.
template <class T>
struct NormRow {
  const T* xhat;
  T rstd;
  T* dz;
};

/// The sums of g and of g * xhat.
template <class T>
struct NormSums {
  V<T> sum, dot;

  HWY_INLINE NormSums() : sum(hn::Zero(Tag<T>())), dot(hn::Zero(Tag<T>())) {}
  /// Adds one vector; dgain += d * xhat.
  HWY_INLINE void Add(V<T> d, const T* xhat, const T* gain, T* dgain) {
    const auto x = Get(xhat), g = hn::Mul(d, Get(gain));
    Put<T>(hn::MulAdd(d, x, Get(dgain)), dgain);
    sum = hn::Add(sum, g);
    dot = hn::MulAdd(g, x, dot);
  }
};

/// The means of g and g * xhat; Write computes dz from them.
template <class T>
struct NormMeans {
  V<T> mean, product, rstd;

  HWY_INLINE NormMeans(const NormSums<T>& sums, T scale, T deviation)
      : mean(All<T>(Total<T>(sums.sum) * scale)),
        product(All<T>(Total<T>(sums.dot) * scale)),
        rstd(All<T>(deviation)) {}
  HWY_INLINE void Write(V<T> d, const T* xhat, const T* gain, T* dz) const {
    // Rounded after the multiplication, like the mean, so that the difference is 0 for one element.
    const auto g = hn::Sub(hn::Mul(d, Get(gain)), mean);
    Put<T>(hn::Mul(rstd, hn::NegMulAdd(Get(xhat), product, g)), dz);
  }
};

/// Computes the backward of a norm of one row, and adds d * xhat to dgain. Padding has gains of 0,
/// so it contributes nothing.
template <class T>
HWY_NOINLINE void NormBackward(const T* d, const NormRow<T> row, const T* gain, const Stretch s,
                               T* dgain) {
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  NormSums<T> even, odd;
  int64_t i = 0;
  for (; i + 2 * n <= end; i += 2 * n) {
    even.Add(Get(d + i), row.xhat + i, gain + i, dgain + i);
    odd.Add(Get(d + i + n), row.xhat + i + n, gain + i + n, dgain + i + n);
  }
  for (; i < end; i += n) even.Add(Get(d + i), row.xhat + i, gain + i, dgain + i);
  even.sum = hn::Add(even.sum, odd.sum);
  even.dot = hn::Add(even.dot, odd.dot);
  const NormMeans<T> means(even, 1 / s.count<T>(), row.rstd);
  for (i = 0; i < end; i += n) means.Write(Get(d + i), row.xhat + i, gain + i, row.dz + i);
}

/// Computes NormBackward of zx and zh together, from the same d.
template <class T>
HWY_NOINLINE void NormsBackward(const T* d, const NormRow<T> ih, const T* gain_ih,
                                const NormRow<T> hh, const T* gain_hh, const Stretch s, T* dgain_ih,
                                T* dgain_hh) {
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  NormSums<T> of_ih, of_hh;
  for (int64_t i = 0; i < end; i += n) {
    const auto d_i = Get(d + i);
    of_ih.Add(d_i, ih.xhat + i, gain_ih + i, dgain_ih + i);
    of_hh.Add(d_i, hh.xhat + i, gain_hh + i, dgain_hh + i);
  }
  const T scale = 1 / s.count<T>();
  const NormMeans<T> means_ih(of_ih, scale, ih.rstd), means_hh(of_hh, scale, hh.rstd);
  for (int64_t i = 0; i < end; i += n) {
    const auto d_i = Get(d + i);
    means_ih.Write(d_i, ih.xhat + i, gain_ih + i, ih.dz + i);
    means_hh.Write(d_i, hh.xhat + i, gain_hh + i, hh.dz + i);
  }
}

// --- Gates ---

template <class T>
HWY_NOINLINE void RnnGates(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  const bool relu = call.recipe.arithmetic == Arithmetic::kRnnRelu;
  const int64_t end = VectorsOf<T>(call.order.hidden) * kLanes<T>, begin = call.order.gate[0].begin;
  const T *bias = call.params.bias + begin, *a = row.a + begin;
  for (int64_t i = 0; i < end; i += kLanes<T>) {
    const auto v = hn::Add(Get(a + i), Get(bias + i));
    // NaN stays NaN, because it is not <= 0.
    Put<T>(relu ? hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v) : Tanh(d, v), row.h + i);
  }
}

/// Computes o and c from zx + zh after any norms, and the coefficients of the norm of c, if any.
template <class T, Keep kKeep>
HWY_NOINLINE void LstmGates(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  const T* bias = call.params.bias;
  T *a = row.a, *state = row.c;
  auto sum = hn::Zero(d), square = hn::Zero(d);
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto i = Sigmoid(d, hn::Add(Get(a + at_i), Get(bias + at_i)));
    const auto f = Sigmoid(d, hn::Add(Get(a + at_f), Get(bias + at_f)));
    const auto g = Tanh(d, hn::Add(Get(a + at_g), Get(bias + at_g)));
    const auto o = Sigmoid(d, hn::Add(Get(a + at_o), Get(bias + at_o)));
    const auto c = Get(state + unit);
    PutKept<kKeep, T>(c, row.before + unit);
    const auto new_c = hn::MulAdd(f, c, hn::Mul(i, g));
    sum = hn::Add(sum, new_c);
    square = hn::MulAdd(new_c, new_c, square);
    Put<T>(new_c, state + unit);
    PutKept<kKeep, T>(i, row.gates + at_i);
    PutKept<kKeep, T>(f, row.gates + at_f);
    PutKept<kKeep, T>(g, row.gates + at_g);
    PutKept<kKeep, T>(o, row.gates + at_o);
    Put<T>(o, a + at_o);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
  if (call.recipe.cell != CellNorm::kNone && call.recipe.over == Over::kRow) {
    FinishMap(sum, square, state, Stretch{1, call.order.hidden}, call.eps, row.map_c);
  }
}

/// Computes a GRU's h from the normalized ax and ah, or, if `plain`, from zx and zh.
template <class T, Keep kKeep>
HWY_NOINLINE void GruGates(const CellCall<T>& call, bool plain, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const T *bias = call.params.bias, *bias_hn = call.params.bias_hn;
  // For r and z, row.a contains the whole sum unless `plain`. For n, ax and ah are always separate.
  const T *a = row.a, *candidates = row.ah_n;
  T* state = row.h;
  const auto one = All<T>(1);
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  for (int64_t unit = 0; unit < units; unit += n) {
    auto a_r = hn::Add(Get(a + at_r), Get(bias + at_r));
    auto a_z = hn::Add(Get(a + at_z), Get(bias + at_z));
    if (plain) {
      a_r = hn::Add(a_r, Get(row.zh + at_r));
      a_z = hn::Add(a_z, Get(row.zh + at_z));
    }
    const auto ax_n = hn::Add(Get(a + at_n), Get(bias + at_n));
    const auto ah_n = hn::Add(Get(candidates + unit), Get(bias_hn + unit));
    const auto r = Sigmoid(d, a_r), z = Sigmoid(d, a_z);
    const auto new_state = Tanh(d, hn::MulAdd(r, ah_n, ax_n));
    PutKept<kKeep, T>(r, row.gates + at_r);
    PutKept<kKeep, T>(z, row.gates + at_z);
    PutKept<kKeep, T>(new_state, row.gates + at_n);
    PutKept<kKeep, T>(ah_n, row.candidate + unit);
    const auto h = Get(state + unit);
    Put<T>(hn::MulAdd(hn::Sub(one, z), new_state, hn::Mul(z, h)), state + unit);
    at_r += step, at_z += step, at_n += n;
  }
}

/// Computes gain * xhat of the sums of one group of gates, which share norms.
template <class T, Keep kKeep>
void NormaliseSums(const CellCall<T>& call, int g, const CellRow<T>& row) {
  const CellRecipe& recipe = call.recipe;
  const Order::Group& group = call.order.group[static_cast<size_t>(g)];
  const int64_t vectors = VectorsOf<T>(call.order.hidden) * group.gates, at = group.begin;
  const bool together = recipe.sums == Sums::kJoint;
  const T *zx = row.zx + at, *zh = together ? nullptr : row.zh + at;
  T *kept_ih = nullptr, *kept_hh = nullptr;
  T maps[2][kMap];
  const T *map_ih = kNoMap<T>, *map_hh = kNoMap<T>;
  if (recipe.over == Over::kRow) {
    TakeMaps<T>(zx, zh, Stretch{group.gates, call.order.hidden}, call.eps, maps[0], maps[1]);
    map_ih = maps[0], map_hh = maps[1];
    if constexpr (kKeep != Keep::kNothing) {
      kept_ih = row.xhat_ih + at;
      row.rstd_ih[g] = map_ih[1];
      if (!together) kept_hh = row.xhat_hh + at, row.rstd_hh[g] = map_hh[1];
    }
  }
  const T *gain_ih = call.params.gain_ih + at, *gain_hh = call.params.gain_hh + at;
  T* const a = row.a + at;
  if (together) {
    Scale<T, kKeep>(zx, map_ih, gain_ih, vectors, kept_ih, a);
  } else if (recipe.is_gru() && g == 1) {
    Scale<T, kKeep>(zx, map_ih, gain_ih, vectors, kept_ih, a);
    Scale<T, kKeep>(zh, map_hh, gain_hh, vectors, kept_hh, row.ah_n);
  } else {
    ScaleBoth<T, kKeep>(zx, map_ih, gain_ih, kept_ih, zh, map_hh, gain_hh, kept_hh, vectors, a);
  }
}

template <class T, Keep kKeep>
void KeepGates(const CellCall<T>& call, const CellRow<T>& row) {
  const CellRecipe& recipe = call.recipe;
  const bool plain = recipe.sums == Sums::kPlain;
  for (int g = 0; !plain && g < call.order.groups; ++g) {
    recipe.over == Over::kRow ? NormaliseSums<T, kKeep>(call, g, row)
                              : NormaliseSums<T, Keep::kNothing>(call, g, row);
  }
  if (recipe.is_lstm()) {
    LstmGates<T, kKeep>(call, row);
  } else if (recipe.is_gru()) {
    GruGates<T, kKeep>(call, plain, row);
  } else {
    RnnGates(call, row);
  }
}

template <class T>
void Gates(const CellCall<T>& call, const CellRow<T>& row) {
  WithKeep(call.keep, [&](auto keep) HWY_ATTR { KeepGates<T, decltype(keep)::value>(call, row); });
}

template <class T, Keep kKeep>
HWY_NOINLINE void KeepOutput(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const Order& order = call.order;
  const int64_t units = VectorsOf<T>(order.hidden) * n, step = order.gate[3].step;
  const T* o = row.a + order.gate[3].begin;
  if (call.recipe.cell == CellNorm::kNone) {
    for (int64_t unit = 0; unit < units; unit += n, o += step) {
      const auto tanh_c = Tanh(d, Get(row.c + unit));
      PutKept<kKeep, T>(tanh_c, row.tanh_c + unit);
      Put<T>(hn::Mul(Get(o), tanh_c), row.h + unit);
    }
    return;
  }
  const bool over_batch = call.recipe.over == Over::kBatch;
  const bool carried = call.recipe.cell == CellNorm::kCarried;
  const MapVectors<T> norm(over_batch ? kNoMap<T> : row.map_c);
  const T* c = over_batch ? row.xhat_c : row.c;
  const T *gain = call.params.gain_c, *bias = call.params.bias_c;
  for (int64_t unit = 0; unit < units; unit += n, o += step) {
    const auto seen = hn::MulAdd(Get(gain + unit), norm.Xhat(Get(c + unit)), Get(bias + unit));
    if (carried) Put<T>(seen, row.c + unit);
    const auto tanh_c = Tanh(d, seen);
    PutKept<kKeep, T>(tanh_c, row.tanh_c + unit);
    Put<T>(hn::Mul(Get(o), tanh_c), row.h + unit);
  }
}

template <class T>
void Output(const CellCall<T>& call, const CellRow<T>& row) {
  WithKeep(call.keep, [&](auto keep) HWY_ATTR { KeepOutput<T, decltype(keep)::value>(call, row); });
}

// --- Backward ---

/// Returns v * (1 - v), the derivative of the logistic function.
template <class T>
HWY_INLINE V<T> OfSigmoid(V<T> v) {
  return hn::NegMulAdd(v, v, v);
}
/// Returns 1 - v * v, the derivative of tanh.
template <class T>
HWY_INLINE V<T> OfTanh(V<T> v) {
  return hn::NegMulAdd(v, v, All<T>(1));
}

template <class T>
void OutputBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                    const CellSums<T>& sums) {
  constexpr int64_t n = kLanes<T>;
  const Order& order = call.order;
  const auto& gate = order.gate;
  const bool norm = call.recipe.cell != CellNorm::kNone;
  // Over the batch, batch_norm_backward computes the norm's backward.
  const bool of_row = norm && call.recipe.over == Over::kRow;
  const MapVectors<T> map_c(of_row ? row.map_c : kNoMap<T>);
  // The gradients of c from the next step and from h are added before the norm's backward if the
  // normalized c is the cell state, otherwise after it.
  const bool meet_before = call.recipe.cell == CellNorm::kCarried;
  const int64_t units = VectorsOf<T>(order.hidden) * n, step = gate[0].step;
  int64_t at = 0;  // relative to the begin of each gate
  for (int64_t unit = 0; unit < units; unit += n, at += step) {
    const auto dh = Get(row.dh + unit), tanh_c = Get(row.tanh_c + unit);
    const auto o = Get(row.gates + gate[3].begin + at);
    Put<T>(hn::Mul(hn::Mul(dh, tanh_c), OfSigmoid<T>(o)), row.dzh + gate[3].begin + at);
    auto d = hn::Mul(hn::Mul(dh, o), OfTanh<T>(tanh_c));
    if (meet_before) d = hn::Add(d, Get(row.dc + unit));
    Put<T>(d, row.dcell + unit);
    if (norm) AddTo<T>(sums.bias_c + unit, d);
    if (of_row) {
      const auto i = Get(row.gates + gate[0].begin + at), f = Get(row.gates + gate[1].begin + at);
      const auto g = Get(row.gates + gate[2].begin + at);
      const auto c = hn::MulAdd(f, Get(row.before + unit), hn::Mul(i, g));
      Put<T>(map_c.Xhat(c), row.room + unit);
    }
  }
  if (of_row) {
    NormBackward<T>(row.dcell, {row.room, row.map_c[1], row.dcell}, call.params.gain_c,
                    Stretch{1, order.hidden}, sums.gain_c);
  }
}

/// Writes the gradients of all gates except o, which is there already, to dzh.
template <class T>
HWY_NOINLINE void LstmGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                    T* dbias) {
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  const bool met = call.recipe.cell == CellNorm::kCarried;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t units = VectorsOf<T>(call.order.hidden) * n, step = gate[0].step;
  const T* gates = row.gates;
  T* da = row.dzh;
  for (int64_t unit = 0; unit < units; unit += n) {
    auto d = Get(row.dcell + unit);
    if (!met) d = hn::Add(d, Get(row.dc + unit));
    const auto i = Get(gates + at_i), f = Get(gates + at_f), g = Get(gates + at_g);
    Put<T>(hn::Mul(d, f), row.dc + unit);
    const auto da_i = hn::Mul(hn::Mul(d, g), OfSigmoid<T>(i));
    const auto da_f = hn::Mul(hn::Mul(d, Get(row.before + unit)), OfSigmoid<T>(f));
    const auto da_g = hn::Mul(hn::Mul(d, i), OfTanh<T>(g));
    AddTo<T>(dbias + at_i, da_i);
    AddTo<T>(dbias + at_f, da_f);
    AddTo<T>(dbias + at_g, da_g);
    AddTo<T>(dbias + at_o, Get(da + at_o));
    Put<T>(da_i, da + at_i);
    Put<T>(da_f, da + at_f);
    Put<T>(da_g, da + at_g);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
}

/// Writes dzx and dzh. Norms of rows read r and z only from dzh.
template <class T>
HWY_NOINLINE void GruGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                   const CellSums<T>& sums) {
  constexpr int64_t n = kLanes<T>;
  const bool plain = call.recipe.sums == Sums::kPlain || call.recipe.over == Over::kBatch;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const int64_t units = VectorsOf<T>(call.order.hidden) * n, step = gate[0].step;
  const auto one = All<T>(1);
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto r = Get(row.gates + at_r), z = Get(row.gates + at_z);
    const auto new_state = Get(row.gates + at_n), d = Get(row.dh + unit);
    const auto dax_n = hn::Mul(hn::Mul(d, hn::Sub(one, z)), OfTanh<T>(new_state));
    const auto da_r = hn::Mul(hn::Mul(dax_n, Get(row.candidate + unit)), OfSigmoid<T>(r));
    const auto change = hn::Sub(Get(row.h_before + unit), new_state);
    const auto da_z = hn::Mul(hn::Mul(d, change), OfSigmoid<T>(z));
    const auto dah_n = hn::Mul(dax_n, r);
    AddTo<T>(sums.bias + at_r, da_r);
    AddTo<T>(sums.bias + at_z, da_z);
    AddTo<T>(sums.bias + at_n, dax_n);
    AddTo<T>(sums.bias_hn + unit, dah_n);
    if (plain) {
      Put<T>(da_r, row.dzx + at_r);
      Put<T>(da_z, row.dzx + at_z);
    }
    Put<T>(dax_n, row.dzx + at_n);
    Put<T>(da_r, row.dzh + at_r);
    Put<T>(da_z, row.dzh + at_z);
    Put<T>(dah_n, row.dzh + at_n);
    Put<T>(hn::Mul(d, z), row.dh + unit);
    at_r += step, at_z += step, at_n += n;
  }
}

/// Writes the gradient of the sums to dzh.
template <class T>
HWY_NOINLINE void RnnGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                   T* dbias) {
  const Tag<T> tag;
  const bool relu = call.recipe.arithmetic == Arithmetic::kRnnRelu;
  const int64_t end = VectorsOf<T>(call.order.hidden) * kLanes<T>, begin = call.order.gate[0].begin;
  T* dz = row.dzh + begin;
  dbias += begin;
  for (int64_t i = 0; i < end; i += kLanes<T>) {
    const auto d = Get(row.dh + i), h = Get(row.h_after + i);
    const auto da =
        relu ? hn::IfThenZeroElse(hn::Le(h, hn::Zero(tag)), d) : hn::Mul(d, OfTanh<T>(h));
    AddTo<T>(dbias + i, da);
    Put<T>(da, dz + i);
  }
}

/// Computes the backward of the norms of one group of gates.
template <class T>
void SumsBackward(const CellCall<T>& call, int g, const CellRowBackward<T>& row,
                  const CellSums<T>& sums) {
  const CellRecipe& recipe = call.recipe;
  const Order::Group& group = call.order.group[static_cast<size_t>(g)];
  const Stretch stretch{group.gates, call.order.hidden};
  const int64_t at = group.begin;
  const T *gain_ih = call.params.gain_ih + at, *gain_hh = call.params.gain_hh + at;
  T *dgain_ih = sums.gain_ih + at, *dgain_hh = sums.gain_hh + at;
  const NormRow<T> ih{row.xhat_ih + at, row.rstd_ih[g], row.dzx + at};
  if (recipe.sums == Sums::kJoint) {
    return NormBackward<T>(row.dzh + at, ih, gain_ih, stretch, dgain_ih);
  }
  const NormRow<T> hh{row.xhat_hh + at, row.rstd_hh[g], row.dzh + at};
  // The gradients of ax and ah are equal, except for a GRU's n.
  if (recipe.is_gru() && g == 1) {
    NormBackward<T>(row.dzx + at, ih, gain_ih, stretch, dgain_ih);
    NormBackward<T>(row.dzh + at, hh, gain_hh, stretch, dgain_hh);
  } else {
    NormsBackward<T>(row.dzh + at, ih, gain_ih, hh, gain_hh, stretch, dgain_ih, dgain_hh);
  }
}

template <class T>
void GatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                   const CellSums<T>& sums) {
  const CellRecipe& recipe = call.recipe;
  if (recipe.is_lstm()) {
    LstmGatesBackward(call, row, sums.bias);
  } else if (recipe.is_gru()) {
    GruGatesBackward(call, row, sums);
  } else {
    RnnGatesBackward(call, row, sums.bias);
  }
  if (recipe.sums == Sums::kPlain || recipe.over == Over::kBatch) return;
  for (int g = 0; g < call.order.groups; ++g) SumsBackward(call, g, row, sums);
}

// --- Norms over the batch ---

/// Calls f(state, vector) for one or four vectors. The states are separate variables, because GCC
/// 12 would keep an array of them in memory.
template <int kVectors, class State, class F>
HWY_INLINE void ForVectors(State& a, State& b, State& c, State& d, const F& f) {
  static_assert(kVectors == 1 || kVectors == 4);
  f(a, 0);
  if constexpr (kVectors > 1) f(b, 1), f(c, 2), f(d, 3);
}

/// The largest number of rows that are copied when they are first read, and later read from the
/// copy. Rows may be a page apart, which conflicts in the cache's sets. More rows are read in
/// place.
inline constexpr int64_t kCopiedRows = 64;

/// The vectors of columns that are processed together. One vector alone would wait for memory and
/// for the latency of its sum.
inline constexpr int kColumnVectors = 4;

/// Calls f.Do<vectors, copied>(j) for all columns; j is the first column.
template <class T, class F>
HWY_INLINE void ForColumns(const BatchColumns<T>& columns, const F& f) {
  constexpr int64_t n = kLanes<T>;
  const bool copied = columns.count <= kCopiedRows;
  int64_t j = 0;
  for (; j + kColumnVectors * n <= columns.columns; j += kColumnVectors * n) {
    copied ? f.template Do<kColumnVectors, true>(j) : f.template Do<kColumnVectors, false>(j);
  }
  for (; j < columns.columns; j += n)
    copied ? f.template Do<1, true>(j) : f.template Do<1, false>(j);
}

/// Returns the vectors of row i of p [., columns.stride], in the copy or in place.
template <int kVectors, bool kCopied, class T>
HWY_INLINE const T* Again(const BatchColumns<T>& columns, const T* p, const T* copy, int64_t i) {
  return kCopied ? copy + i * kVectors * kLanes<T> : p + columns.rows[i] * columns.stride;
}

template <class T>
struct BatchNormColumns {
  const BatchColumns<T>& columns;
  const T* z;
  T eps;
  T *xhat, *rstd, *copy;

  struct Statistics {
    V<T> sum, square, mean, rest, rstd;
    HWY_INLINE Statistics()
        : sum(hn::Zero(Tag<T>())), square(sum), mean(sum), rest(sum), rstd(sum) {}
  };

  template <int kVectors, bool kCopied>
  HWY_NOINLINE void Do(int64_t j) const {
    const Tag<T> d;
    constexpr int64_t n = kLanes<T>;
    const auto count = All<T>(static_cast<T>(columns.count));
    Statistics a, b, c, e;
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row = z + j + columns.rows[i] * columns.stride;
      T* to = copy + i * kVectors * n;
      ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
        const auto value = Get(row + v * n);
        if constexpr (kCopied) Put<T>(value, to + v * n);
        m.sum = hn::Add(m.sum, value);
      });
    }
    ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t) HWY_ATTR {
      m.mean = hn::Div(m.sum, count);
      m.sum = hn::Zero(d);
    });
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row = Again<kVectors, kCopied>(columns, z + j, copy, i);
      ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
        const auto distance = hn::Sub(Get(row + v * n), m.mean);
        m.sum = hn::Add(m.sum, distance);
        m.square = hn::MulAdd(distance, distance, m.square);
      });
    }
    ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
      m.rest = hn::Div(m.sum, count);
      const auto variance = hn::NegMulAdd(m.rest, m.rest, hn::Div(m.square, count));
      const auto deviation = hn::Sqrt(hn::Add(hn::Max(variance, hn::Zero(d)), All<T>(eps)));
      // Keeps NaN, which Max can lose.
      m.rstd = hn::IfThenElse(hn::IsNaN(variance), variance, hn::Div(All<T>(1), deviation));
      Put<T>(m.rstd, rstd + j + v * n);
    });
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row = Again<kVectors, kCopied>(columns, z + j, copy, i);
      T* to = xhat + j + columns.rows[i] * columns.stride;
      ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
        const auto distance = hn::Sub(hn::Sub(Get(row + v * n), m.mean), m.rest);
        Put<T>(hn::Mul(distance, m.rstd), to + v * n);
      });
    }
  }
};

template <class T>
void BatchNorm(const BatchColumns<T>& columns, const T* z, T eps, T* xhat, T* rstd) {
  HWY_ALIGN T copy[kCopiedRows * kColumnVectors * kLanes<T>];
  ForColumns(columns, BatchNormColumns<T>{columns, z, eps, xhat, rstd, copy});
}

template <class T>
struct BatchNormBackwardColumns {
  const BatchColumns<T>& columns;
  T* d;
  const T *xhat, *rstd, *gain;
  T *dgain, *copied_d, *copied_xhat;

  struct Sums {
    V<T> sum, dot, scale;
    HWY_INLINE Sums() : sum(hn::Zero(Tag<T>())), dot(sum), scale(sum) {}
  };

  template <int kVectors, bool kCopied>
  HWY_NOINLINE void Do(int64_t j) const {
    constexpr int64_t n = kLanes<T>;
    const auto count = All<T>(static_cast<T>(columns.count));
    Sums a, b, c, e;
    for (int64_t i = 0; i < columns.count; ++i) {
      const int64_t at = j + columns.rows[i] * columns.stride, to = i * kVectors * n;
      ForVectors<kVectors>(a, b, c, e, [&](Sums& s, int64_t v) HWY_ATTR {
        const auto d_i = Get(d + at + v * n), xhat_i = Get(xhat + at + v * n);
        if constexpr (kCopied) {
          Put<T>(d_i, copied_d + to + v * n);
          Put<T>(xhat_i, copied_xhat + to + v * n);
        }
        s.sum = hn::Add(s.sum, d_i);
        s.dot = hn::MulAdd(d_i, xhat_i, s.dot);
      });
    }
    ForVectors<kVectors>(a, b, c, e, [&](Sums& s, int64_t v) HWY_ATTR {
      AddTo<T>(dgain + j + v * n, s.dot);
      s.sum = hn::Div(s.sum, count);
      s.dot = hn::Div(s.dot, count);
      s.scale = hn::Mul(Get(gain + j + v * n), Get(rstd + j + v * n));
    });
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row_d = Again<kVectors, kCopied, T>(columns, d + j, copied_d, i);
      const T* row_xhat = Again<kVectors, kCopied, T>(columns, xhat + j, copied_xhat, i);
      T* to = d + j + columns.rows[i] * columns.stride;
      ForVectors<kVectors>(a, b, c, e, [&](Sums& s, int64_t v) HWY_ATTR {
        const auto rest = hn::Sub(Get(row_d + v * n), s.sum);
        Put<T>(hn::Mul(s.scale, hn::NegMulAdd(Get(row_xhat + v * n), s.dot, rest)), to + v * n);
      });
    }
  }
};

template <class T>
void BatchNormBackward(const BatchColumns<T>& columns, T* d, const T* xhat, const T* rstd,
                       const T* gain, T* dgain) {
  HWY_ALIGN T copied_d[kCopiedRows * kColumnVectors * kLanes<T>];
  HWY_ALIGN T copied_xhat[kCopiedRows * kColumnVectors * kLanes<T>];
  ForColumns(columns, BatchNormBackwardColumns<T>{columns, d, xhat, rstd, gain, dgain, copied_d,
                                                  copied_xhat});
}

template <class T>
CellKernels<T> KernelsOf() {
  return {kLanes<T>,         &Gates<T>,     &Output<T>,           &OutputBackward<T>,
          &GatesBackward<T>, &BatchNorm<T>, &BatchNormBackward<T>};
}

}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CPU_CELLS_INL_H_
