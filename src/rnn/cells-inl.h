// What a step computes beside its products: see cells.h. Compiled once for each target, in the
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CELLS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CELLS_INL_H_
#undef PLANISH_SRC_RNN_CELLS_INL_H_
#else
#define PLANISH_SRC_RNN_CELLS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/base/math-inl.h"
#include "src/base/simd.h"
#include "src/rnn/cells.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// V<T> is a vector of the target's length, which is kLanes<T>.
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
/// p[i..] += v
template <class T>
HWY_INLINE void AddTo(T* p, V<T> v) {
  Put<T>(hn::Add(Get(p), v), p);
}

/// Vectors that hold n units.
template <class T>
HWY_INLINE int64_t VectorsOf(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T>;
}

// --- Norms of one row ---

/// The numbers of a norm in a row: `gates` of each unit, interleaved, the last vectors with
/// padding.
struct Stretch {
  int64_t gates, hidden;

  template <class T>
  HWY_INLINE int64_t vectors() const {
    return VectorsOf<T>(hidden) * gates;
  }
  /// Vectors without padding.
  template <class T>
  HWY_INLINE int64_t whole() const {
    return hidden / kLanes<T> * gates;
  }
  /// The lanes of the others that are no padding.
  template <class T>
  HWY_INLINE auto mask() const {
    return hn::FirstN(Tag<T>(), static_cast<size_t>(hidden % kLanes<T>));
  }
  template <class T>
  HWY_INLINE T count() const {
    return static_cast<T>(gates * hidden);
  }
};

/// Variances of numbers whose squares are well within T.
template <class T>
inline constexpr T kLeastSquare = std::is_same_v<T, float> ? T(1e-25) : T(1e-250);
template <class T>
inline constexpr T kMostSquare = std::is_same_v<T, float> ? T(1e30) : T(1e250);

template <class T>
HWY_INLINE void WriteMap(double mean, double rest, double variance, double eps, T* map) {
  const double rstd = 1 / std::sqrt(std::max(0.0, variance) + eps);
  map[0] = static_cast<T>(mean);
  map[1] = static_cast<T>(rstd);
  map[2] = static_cast<T>(-rest * rstd);
}

/// The map of floats whose squares would not do: sums in double.
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

/// The same of numbers whose mean is far from 0 beside their deviation, or which are of a size
/// whose squares are no numbers: sums about the mean, and what rounding left of that.
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
    if (!(mean_square > kLeastSquare<T> && mean_square < kMostSquare<T>)) {
      return MapInDouble(z, s, eps, map);
    }
  }
  WriteMap<T>(static_cast<double>(mean), static_cast<double>(rest),
              static_cast<double>(mean_square - rest * rest), static_cast<double>(eps), map);
}

/// The map by the sums of numbers and of their squares, where these serve: with a mean within the
/// deviation, the variance is right to a few units in the last place.
template <class T>
HWY_INLINE void FinishMap(V<T> sum, V<T> square, const T* z, const Stretch& s, T eps, T* map) {
  const T scale = 1 / s.count<T>();
  const T mean = Total<T>(sum) * scale, mean_square = Total<T>(square) * scale;
  const T variance = mean_square - mean * mean;
  if (!(mean * mean <= variance && variance > kLeastSquare<T> && variance < kMostSquare<T>))
      [[unlikely]] {
    return MapAboutMean(z, s, mean, eps, map);
  }
  map[0] = mean;
  map[1] = 1 / std::sqrt(variance + eps);
  map[2] = 0;
}

/// The maps of two stretches alike, or of one, if `second` is null. Padding is 0.
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

/// The map that leaves a number as it is: of xhat.
template <class T>
inline constexpr T kNoMap[kMap] = {0, 1, 0};

/// a = gain * xhat, of as many vectors.
template <class T>
HWY_NOINLINE void Scale(const T* z, const T* map, const T* gain, int64_t vectors, T* a) {
  const MapVectors<T> norm(map);
  for (int64_t i = 0; i < vectors * kLanes<T>; i += kLanes<T>) {
    Put<T>(hn::Mul(Get(gain + i), norm.Xhat(Get(z + i))), a + i);
  }
}

/// The sum of two of them.
template <class T>
HWY_NOINLINE void ScaleBoth(const T* zx, const T* map_ih, const T* gain_ih, const T* zh,
                            const T* map_hh, const T* gain_hh, int64_t vectors, T* a) {
  const MapVectors<T> ih(map_ih), hh(map_hh);
  for (int64_t i = 0; i < vectors * kLanes<T>; i += kLanes<T>) {
    const auto of_x = hn::Mul(Get(gain_ih + i), ih.Xhat(Get(zx + i)));
    Put<T>(hn::MulAdd(Get(gain_hh + i), hh.Xhat(Get(zh + i)), of_x), a + i);
  }
}

/// A norm taken back: with the gradient d of gain * xhat, dgain += d * xhat and
/// dz = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = d * gain. dz may be d.
template <class T>
HWY_NOINLINE void NormBackward(const T* d, const T* z, const T* map, const T* gain, const Stretch s,
                               T* dgain, T* dz) {
  const Tag<T> tag;
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  const MapVectors<T> norm(map);
  auto sum0 = hn::Zero(tag), sum1 = hn::Zero(tag), dot0 = hn::Zero(tag), dot1 = hn::Zero(tag);
  // Gains of padding are 0, so that it adds nothing.
  int64_t i = 0;
  for (; i + 2 * n <= end; i += 2 * n) {
    const auto d0 = Get(d + i), d1 = Get(d + i + n);
    const auto xhat0 = norm.Xhat(Get(z + i)), xhat1 = norm.Xhat(Get(z + i + n));
    const auto g0 = hn::Mul(d0, Get(gain + i)), g1 = hn::Mul(d1, Get(gain + i + n));
    Put<T>(hn::MulAdd(d0, xhat0, Get(dgain + i)), dgain + i);
    Put<T>(hn::MulAdd(d1, xhat1, Get(dgain + i + n)), dgain + i + n);
    sum0 = hn::Add(sum0, g0);
    sum1 = hn::Add(sum1, g1);
    dot0 = hn::MulAdd(g0, xhat0, dot0);
    dot1 = hn::MulAdd(g1, xhat1, dot1);
  }
  for (; i < end; i += n) {
    const auto d0 = Get(d + i), xhat0 = norm.Xhat(Get(z + i));
    const auto g0 = hn::Mul(d0, Get(gain + i));
    Put<T>(hn::MulAdd(d0, xhat0, Get(dgain + i)), dgain + i);
    sum0 = hn::Add(sum0, g0);
    dot0 = hn::MulAdd(g0, xhat0, dot0);
  }
  const auto mean_g = All<T>(Total<T>(hn::Add(sum0, sum1)) / s.count<T>());
  const auto mean_gx = All<T>(Total<T>(hn::Add(dot0, dot1)) / s.count<T>());
  for (i = 0; i < end; i += n) {
    // In two roundings, as the mean's: of one number the difference is 0.
    const auto g = hn::Sub(hn::Mul(Get(d + i), Get(gain + i)), mean_g);
    Put<T>(hn::Mul(norm.rstd, hn::NegMulAdd(norm.Xhat(Get(z + i)), mean_gx, g)), dz + i);
  }
}

/// The same of zx and zh at once, which have one d.
template <class T>
HWY_NOINLINE void NormsBackward(const T* d, const T* zx, const T* map_ih, const T* gain_ih,
                                const T* zh, const T* map_hh, const T* gain_hh, const Stretch s,
                                T* dgain_ih, T* dgain_hh, T* dzx, T* dzh) {
  const Tag<T> tag;
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  const MapVectors<T> ih(map_ih), hh(map_hh);
  auto sum_ih = hn::Zero(tag), sum_hh = hn::Zero(tag), dot_ih = hn::Zero(tag);
  auto dot_hh = hn::Zero(tag);
  for (int64_t i = 0; i < end; i += n) {
    const auto d_i = Get(d + i);
    const auto xhat_ih = ih.Xhat(Get(zx + i)), xhat_hh = hh.Xhat(Get(zh + i));
    const auto g_ih = hn::Mul(d_i, Get(gain_ih + i)), g_hh = hn::Mul(d_i, Get(gain_hh + i));
    Put<T>(hn::MulAdd(d_i, xhat_ih, Get(dgain_ih + i)), dgain_ih + i);
    Put<T>(hn::MulAdd(d_i, xhat_hh, Get(dgain_hh + i)), dgain_hh + i);
    sum_ih = hn::Add(sum_ih, g_ih);
    sum_hh = hn::Add(sum_hh, g_hh);
    dot_ih = hn::MulAdd(g_ih, xhat_ih, dot_ih);
    dot_hh = hn::MulAdd(g_hh, xhat_hh, dot_hh);
  }
  const T scale = 1 / s.count<T>();
  const auto mean_ih = All<T>(Total<T>(sum_ih) * scale);
  const auto mean_hh = All<T>(Total<T>(sum_hh) * scale);
  const auto product_ih = All<T>(Total<T>(dot_ih) * scale);
  const auto product_hh = All<T>(Total<T>(dot_hh) * scale);
  for (int64_t i = 0; i < end; i += n) {
    const auto d_i = Get(d + i);
    // In two roundings, as the means': of one number the difference is 0.
    const auto g_ih = hn::Sub(hn::Mul(d_i, Get(gain_ih + i)), mean_ih);
    const auto g_hh = hn::Sub(hn::Mul(d_i, Get(gain_hh + i)), mean_hh);
    const auto xhat_ih = ih.Xhat(Get(zx + i)), xhat_hh = hh.Xhat(Get(zh + i));
    Put<T>(hn::Mul(ih.rstd, hn::NegMulAdd(xhat_ih, product_ih, g_ih)), dzx + i);
    Put<T>(hn::Mul(hh.rstd, hn::NegMulAdd(xhat_hh, product_hh, g_hh)), dzh + i);
  }
}

// --- Gates ---

template <class T>
HWY_NOINLINE void RnnGates(const CellCall<T>& call, const T* a, T* h) {
  const Tag<T> d;
  const bool relu = call.recipe.arithmetic == Arithmetic::kRnnRelu;
  const int64_t end = VectorsOf<T>(call.order.hidden) * kLanes<T>;
  const T* bias = call.params.bias;
  for (int64_t i = 0; i < end; i += kLanes<T>) {
    const auto v = hn::Add(Get(a + i), Get(bias + i));
    // NaN stays: it is not below 0.
    Put<T>(relu ? hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v) : Tanh(d, v), h + i);
  }
}

/// Of zx + zh with the norms done, or not normalised, into gates, c and what c was before, and the
/// moments of c where it has a norm.
template <class T>
HWY_NOINLINE void LstmGates(const CellCall<T>& call, const T* a, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  const T* bias = call.params.bias;
  T *gates = row.gates, *state = row.c, *before = row.before;
  auto sum = hn::Zero(d), square = hn::Zero(d);
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto i = Sigmoid(d, hn::Add(Get(a + at_i), Get(bias + at_i)));
    const auto f = Sigmoid(d, hn::Add(Get(a + at_f), Get(bias + at_f)));
    const auto g = Tanh(d, hn::Add(Get(a + at_g), Get(bias + at_g)));
    const auto o = Sigmoid(d, hn::Add(Get(a + at_o), Get(bias + at_o)));
    const auto c = Get(state + unit);
    Put<T>(c, before + unit);
    const auto new_c = hn::MulAdd(f, c, hn::Mul(i, g));
    sum = hn::Add(sum, new_c);
    square = hn::MulAdd(new_c, new_c, square);
    Put<T>(new_c, state + unit);
    Put<T>(i, gates + at_i);
    Put<T>(f, gates + at_f);
    Put<T>(g, gates + at_g);
    Put<T>(o, gates + at_o);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
  if (call.recipe.cell != CellNorm::kNone && call.recipe.over == Over::kRow) {
    FinishMap(sum, square, state, Stretch{1, call.order.hidden}, call.eps, row.map_c);
  }
}

/// A GRU's gates, ah_n and h, from the normalised ax and ah, or, where `plain`, from zx and zh.
template <class T>
HWY_NOINLINE void GruGates(const CellCall<T>& call, bool plain, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const T *bias = call.params.bias, *bias_hn = call.params.bias_hn;
  // A sum of r or z is in one place, or in two; those of n are always in two.
  const T* a = plain ? row.zx : row.gates;
  const T* candidates = plain ? row.zh + at_n : row.candidate;
  T *gates = row.gates, *state = row.h, *candidate = row.candidate;
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
    Put<T>(r, gates + at_r);
    Put<T>(z, gates + at_z);
    Put<T>(new_state, gates + at_n);
    Put<T>(ah_n, candidate + unit);
    const auto h = Get(state + unit);
    Put<T>(hn::MulAdd(hn::Sub(one, z), new_state, hn::Mul(z, h)), state + unit);
    at_r += step, at_z += step, at_n += n;
  }
}

template <class T>
void Gates(const CellCall<T>& call, const CellRow<T>& row) {
  const CellRecipe& recipe = call.recipe;
  const Order& order = call.order;
  const CellParams<T>& params = call.params;
  const bool plain = recipe.sums == Sums::kPlain, over_batch = recipe.over == Over::kBatch;
  const bool together = recipe.sums == Sums::kTogether;
  for (int g = 0; !plain && g < order.groups; ++g) {
    const Order::Group& group = order.group[static_cast<size_t>(g)];
    const int64_t vectors = VectorsOf<T>(order.hidden) * group.gates, at = group.begin;
    T *map_ih = row.map_ih + g * kMap, *map_hh = together ? nullptr : row.map_hh + g * kMap;
    if (!over_batch) {
      TakeMaps<T>(row.zx + at, together ? nullptr : row.zh + at, Stretch{group.gates, order.hidden},
                  call.eps, map_ih, map_hh);
    }
    const T* ih = over_batch ? kNoMap<T> : map_ih;
    const T* hh = over_batch ? kNoMap<T> : map_hh;
    const T *gain_ih = params.gain_ih + at, *gain_hh = params.gain_hh + at;
    if (together) {
      Scale(row.zx + at, ih, gain_ih, vectors, row.gates + at);
    } else if (recipe.is_gru() && g == 1) {
      Scale(row.zx + at, ih, gain_ih, vectors, row.gates + at);
      Scale(row.zh + at, hh, gain_hh, vectors, row.candidate);
    } else {
      ScaleBoth(row.zx + at, ih, gain_ih, row.zh + at, hh, gain_hh, vectors, row.gates + at);
    }
  }
  if (recipe.is_lstm()) {
    LstmGates(call, plain ? row.zx : row.gates, row);
  } else if (recipe.is_gru()) {
    GruGates(call, plain, row);
  } else {
    RnnGates(call, plain ? row.zx : row.gates, row.h);
  }
}

template <class T>
void Output(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const Order& order = call.order;
  const int64_t units = VectorsOf<T>(order.hidden) * n, step = order.gate[3].step;
  const T* o = row.gates + order.gate[3].begin;
  if (call.recipe.cell == CellNorm::kNone) {
    for (int64_t unit = 0; unit < units; unit += n, o += step) {
      const auto tanh_c = Tanh(d, Get(row.c + unit));
      Put<T>(tanh_c, row.tanh_c + unit);
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
    Put<T>(tanh_c, row.tanh_c + unit);
    Put<T>(hn::Mul(Get(o), tanh_c), row.h + unit);
  }
}

// --- Backward ---

/// v * (1 - v), the derivative of the logistic function.
template <class T>
HWY_INLINE V<T> OfSigmoid(V<T> v) {
  return hn::NegMulAdd(v, v, v);
}
/// 1 - v * v, that of tanh.
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
  // The carried c has one gradient of the next step and one of h, which meet before the norm's
  // backward where the normalised c is carried, and after it otherwise.
  const bool meet_before = call.recipe.cell == CellNorm::kCarried;
  const int64_t units = VectorsOf<T>(order.hidden) * n, step = gate[0].step;
  int64_t at = 0;  // beside where each gate begins
  for (int64_t unit = 0; unit < units; unit += n, at += step) {
    const auto dh = Get(row.dh + unit), tanh_c = Get(row.tanh_c + unit);
    const auto o = Get(row.gates + gate[3].begin + at);
    Put<T>(hn::Mul(hn::Mul(dh, tanh_c), OfSigmoid<T>(o)), row.dzh + gate[3].begin + at);
    auto d = hn::Mul(hn::Mul(dh, o), OfTanh<T>(tanh_c));
    if (meet_before) d = hn::Add(d, Get(row.dc + unit));
    Put<T>(d, row.dcell + unit);
    if (norm) {
      AddTo<T>(sums.bias_c + unit, d);
      const auto i = Get(row.gates + gate[0].begin + at), f = Get(row.gates + gate[1].begin + at);
      const auto g = Get(row.gates + gate[2].begin + at);
      Put<T>(hn::MulAdd(f, Get(row.before + unit), hn::Mul(i, g)), row.room + unit);
    }
  }
  if (norm && call.recipe.over == Over::kRow) {
    NormBackward(row.dcell, row.room, row.map_c, call.params.gain_c, Stretch{1, order.hidden},
                 sums.gain_c, row.dcell);
  }
}

/// Into dzh, but for the gate o, which is there.
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

/// Into dzx and dzh; norms of rows take the sums of r and z from dzh.
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

/// Into dzh.
template <class T>
HWY_NOINLINE void RnnGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                   T* dbias) {
  const Tag<T> tag;
  const bool relu = call.recipe.arithmetic == Arithmetic::kRnnRelu;
  const int64_t end = VectorsOf<T>(call.order.hidden) * kLanes<T>;
  for (int64_t i = 0; i < end; i += kLanes<T>) {
    const auto d = Get(row.dh + i), h = Get(row.h_after + i);
    const auto da =
        relu ? hn::IfThenZeroElse(hn::Le(h, hn::Zero(tag)), d) : hn::Mul(d, OfTanh<T>(h));
    AddTo<T>(dbias + i, da);
    Put<T>(da, row.dzh + i);
  }
}

template <class T>
void GatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                   const CellSums<T>& sums) {
  const CellRecipe& recipe = call.recipe;
  const Order& order = call.order;
  if (recipe.is_lstm()) {
    LstmGatesBackward(call, row, sums.bias);
  } else if (recipe.is_gru()) {
    GruGatesBackward(call, row, sums);
  } else {
    RnnGatesBackward(call, row, sums.bias);
  }
  if (recipe.sums == Sums::kPlain || recipe.over == Over::kBatch) return;
  for (int g = 0; g < order.groups; ++g) {
    const Order::Group& group = order.group[static_cast<size_t>(g)];
    const Stretch stretch{group.gates, order.hidden};
    const int64_t at = group.begin;
    const T *zx = row.zx + at, *map_ih = row.map_ih + g * kMap, *gain_ih = call.params.gain_ih + at;
    T *dzx = row.dzx + at, *dzh = row.dzh + at, *dgain_ih = sums.gain_ih + at;
    if (recipe.sums == Sums::kTogether) {
      NormBackward(dzh, zx, map_ih, gain_ih, stretch, dgain_ih, dzx);
      continue;
    }
    const T *zh = row.zh + at, *map_hh = row.map_hh + g * kMap, *gain_hh = call.params.gain_hh + at;
    T* dgain_hh = sums.gain_hh + at;
    // The gradients of ax are those of ah, but for a GRU's n.
    if (recipe.is_gru() && g == 1) {
      NormBackward(dzx, zx, map_ih, gain_ih, stretch, dgain_ih, dzx);
      NormBackward(dzh, zh, map_hh, gain_hh, stretch, dgain_hh, dzh);
    } else {
      NormsBackward(dzh, zx, map_ih, gain_ih, zh, map_hh, gain_hh, stretch, dgain_ih, dgain_hh, dzx,
                    dzh);
    }
  }
}

// --- Norms over the batch ---

template <class T>
void BatchNorm(const BatchColumns<T>& columns, const T* z, T eps, T* xhat, T* rstd) {
  const Tag<T> d;
  const auto count = All<T>(static_cast<T>(columns.count));
  const auto at = [&](int64_t i, int64_t j) { return columns.rows[i] * columns.stride + j; };
  for (int64_t j = 0; j < columns.columns; j += kLanes<T>) {
    auto sum = hn::Zero(d), rest = hn::Zero(d), square = hn::Zero(d);
    for (int64_t i = 0; i < columns.count; ++i) sum = hn::Add(sum, Get(z + at(i, j)));
    const auto mean = hn::Div(sum, count);
    for (int64_t i = 0; i < columns.count; ++i) {
      const auto distance = hn::Sub(Get(z + at(i, j)), mean);
      rest = hn::Add(rest, distance);
      square = hn::MulAdd(distance, distance, square);
    }
    rest = hn::Div(rest, count);
    const auto variance = hn::NegMulAdd(rest, rest, hn::Div(square, count));
    const auto deviation = hn::Sqrt(hn::Add(hn::Max(variance, hn::Zero(d)), All<T>(eps)));
    // NaN stays, which Max may lose.
    const auto r = hn::IfThenElse(hn::IsNaN(variance), variance, hn::Div(All<T>(1), deviation));
    Put<T>(r, rstd + j);
    for (int64_t i = 0; i < columns.count; ++i) {
      const auto distance = hn::Sub(hn::Sub(Get(z + at(i, j)), mean), rest);
      Put<T>(hn::Mul(distance, r), xhat + at(i, j));
    }
  }
}

template <class T>
void BatchNormBackward(const BatchColumns<T>& columns, T* d, const T* xhat, const T* rstd,
                       const T* gain, T* dgain) {
  const Tag<T> tag;
  const auto count = All<T>(static_cast<T>(columns.count));
  const auto at = [&](int64_t i, int64_t j) { return columns.rows[i] * columns.stride + j; };
  for (int64_t j = 0; j < columns.columns; j += kLanes<T>) {
    auto sum = hn::Zero(tag), dot = hn::Zero(tag);
    for (int64_t i = 0; i < columns.count; ++i) {
      const auto d_i = Get(d + at(i, j));
      sum = hn::Add(sum, d_i);
      dot = hn::MulAdd(d_i, Get(xhat + at(i, j)), dot);
    }
    AddTo<T>(dgain + j, dot);
    const auto mean = hn::Div(sum, count), mean_dot = hn::Div(dot, count);
    const auto scale = hn::Mul(Get(gain + j), Get(rstd + j));
    for (int64_t i = 0; i < columns.count; ++i) {
      const auto rest = hn::Sub(Get(d + at(i, j)), mean);
      Put<T>(hn::Mul(scale, hn::NegMulAdd(Get(xhat + at(i, j)), mean_dot, rest)), d + at(i, j));
    }
  }
}

template <class T>
CellKernels<T> KernelsOf() {
  return {kLanes<T>,         &Gates<T>,     &Output<T>,           &OutputBackward<T>,
          &GatesBackward<T>, &BatchNorm<T>, &BatchNormBackward<T>};
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CELLS_INL_H_
