// Rows too narrow for the loops of rows-inl.h, where what is done once a row outweighs what is done
// once a column: eight rows at a time, their sums finished together in vectors. For numbers that
// are computed with in float, on targets with vectors of at least eight floats. Compiled once for
// each target, in the namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_NARROW_INL_H_
#undef PLANISH_SRC_NORM_NARROW_INL_H_
#else
#define PLANISH_SRC_NORM_NARROW_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/norm/moments-inl.h"
#include "src/norm/rows-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR

/// Below this many columns rows go eight at a time: those whose results pass through the caches,
/// and those whose results do not, of which only the narrowest gain by it. The results are the
/// same.
inline constexpr int64_t kNarrowColumns = 640;
inline constexpr int64_t kNarrowStreamedColumns = 80;

/// Rows that are worked on at a time.
inline constexpr int64_t kGroup = 8;

/// A number of each of the rows.
using Eight = hn::CappedTag<float, 8>;

/// Of eight vectors the sums of their lanes, each added in the order of AddLanes.
HWY_INLINE Vec<Eight> SumsOfEight(const Vec<Eight> (&v)[8]) {
  const Eight d;
  const hn::Repartition<double, Eight> pairs;
  const auto halves = [&](size_t i) HWY_ATTR {
    return hn::Add(hn::ConcatLowerLower(d, v[i + 4], v[i]),
                   hn::ConcatUpperUpper(d, v[i + 4], v[i]));
  };
  const auto two = [&](Vec<Eight> a, Vec<Eight> b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto a = hn::BitCast(pairs, two(halves(0), halves(1)));
  const auto b = hn::BitCast(pairs, two(halves(2), halves(3)));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
}

/// Exchanges rows and columns of an 8 x 8 matrix.
HWY_INLINE void Transpose(Vec<Eight> (&v)[8]) {
  const Eight d;
  const hn::Repartition<double, Eight> pairs;
  Vec<Eight> u[8];
  for (size_t i = 0; i < 8; i += 4) {
    const auto t0 = hn::BitCast(pairs, hn::InterleaveLower(d, v[i], v[i + 1]));
    const auto t1 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[i], v[i + 1]));
    const auto t2 = hn::BitCast(pairs, hn::InterleaveLower(d, v[i + 2], v[i + 3]));
    const auto t3 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[i + 2], v[i + 3]));
    u[i] = hn::BitCast(d, hn::InterleaveLower(pairs, t0, t2));
    u[i + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, t0, t2));
    u[i + 2] = hn::BitCast(d, hn::InterleaveLower(pairs, t1, t3));
    u[i + 3] = hn::BitCast(d, hn::InterleaveUpper(pairs, t1, t3));
  }
  for (size_t i = 0; i < 4; ++i) {
    v[i] = hn::ConcatLowerLower(d, u[i + 4], u[i]);
    v[i + 4] = hn::ConcatUpperUpper(d, u[i + 4], u[i]);
  }
}

/// The lanes of a vector added to eight.
template <class D>
HWY_INLINE Vec<Eight> FoldToEight(D, Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return v;
  } else {
    const Eight d;
    return hn::Add(hn::LowerHalf(d, v), hn::UpperHalf(d, v));
  }
}

/// Results in the order of their addresses, gathered until whole aligned vectors can be stored past
/// the caches, or in the caches where kStream is false.
template <bool kStream, class T>
class Gathered {
 public:
  /// What is gathered goes to `out` and on.
  explicit Gathered(T* out) : out_(out) {
    if constexpr (kStream) {
      skip_ = static_cast<int64_t>((reinterpret_cast<uintptr_t>(out) & (kBytes - 1)) / sizeof(T));
    }
    out_ -= skip_;
    fill_ = skip_;
  }

  /// Where the next results go, up to kMost, and 8 more that do not count.
  HWY_INLINE T* next() { return buffer_ + fill_; }

  /// There are `n` more.
  HWY_INLINE void Add(int64_t n) {
    fill_ += n;
    if (fill_ >= kEnough) Flush(false);
  }

  HWY_INLINE void Finish() { Flush(true); }

  static constexpr int64_t kMost = kGroup * kNarrowStreamedColumns;

 private:
  static constexpr int64_t kBytes = 64, kLine = kBytes / static_cast<int64_t>(sizeof(T));
  // Enough not to read what has just been written.
  static constexpr int64_t kEnough = 1024;

  void Flush(bool all) {
    using D = hn::CappedTag<uint32_t, 8>;
    const D d;
    constexpr int64_t kStep = 8 * 4 / static_cast<int64_t>(sizeof(T));
    int64_t c = 0;
    if (skip_ > 0) {  // the first line begins before what is ours
      c = std::min(kLine, fill_);
      std::memcpy(out_ + skip_, buffer_ + skip_, static_cast<size_t>(c - skip_) * sizeof(T));
      skip_ = c == kLine ? 0 : c;
    }
    for (; c + kLine <= fill_; c += kLine) {
      for (int64_t part = 0; part < kLine; part += kStep) {
        const auto v = hn::LoadU(d, reinterpret_cast<const uint32_t*>(buffer_ + c + part));
        auto* to = reinterpret_cast<uint32_t*>(out_ + c + part);
        if constexpr (kStream) {
          hn::Stream(v, d, to);
        } else {
          hn::StoreU(v, d, to);
        }
      }
    }
    if (all) {
      std::memcpy(out_ + c, buffer_ + c, static_cast<size_t>(fill_ - c) * sizeof(T));
      return;
    }
    std::memmove(buffer_, buffer_ + c, static_cast<size_t>(fill_ - c) * sizeof(T));
    out_ += c;
    fill_ -= c;
  }

  alignas(64) T buffer_[kEnough + kMost + 64];
  T* out_;
  int64_t skip_ = 0, fill_ = 0;
};

/// Asks for as many numbers, further on, as the group that begins at `x` has.
template <class T>
HWY_INLINE void PrefetchRows(const T* x, int64_t n) {
  const auto* ahead = reinterpret_cast<const char*>(x) + kPrefetchBytes;
  for (int64_t byte = 0; byte < n * static_cast<int64_t>(sizeof(T)); byte += 64) {
    hwy::Prefetch(ahead + byte);
  }
}

/// The maps of eight rows.
struct EightMaps {
  HWY_ALIGN float mean[8];
  HWY_ALIGN float rstd[8];
  HWY_ALIGN float offset[8];

  HWY_INLINE void Set(int64_t i, const RowMap<float>& map) {
    mean[i] = map.mean;
    rstd[i] = map.rstd;
    offset[i] = map.offset;
  }
};

/// Saves the moments of `n` rows from `r` on.
template <class T>
HWY_INLINE void SaveEight(const RowsForward<T>& args, int64_t r, int64_t n, Vec<Eight> mean,
                          Vec<Eight> mean_lo, Vec<Eight> rstd, EightMaps& maps) {
  const Eight d;
  hn::Store(mean, d, maps.mean);
  hn::Store(rstd, d, maps.rstd);
  hn::Store(hn::Neg(hn::Mul(mean_lo, rstd)), d, maps.offset);
  const auto save = [&](Vec<Eight> v, float* to) HWY_ATTR {
    if (to == nullptr) return;
    if (n == kGroup) {
      hn::StoreU(v, d, to + r);
    } else {
      HWY_ALIGN float lanes[8];
      hn::Store(v, d, lanes);
      std::copy_n(lanes, n, to + r);
    }
  };
  save(mean, args.mean);
  save(mean_lo, args.mean_lo);
  save(rstd, args.rstd);
}

/// The moments of `n` rows from `r` on, by their sums about `shift`, as FinishMoments.
template <class T>
HWY_INLINE void FinishEight(const RowsForward<T>& args, int64_t r, int64_t n, Vec<Eight> shift,
                            Vec<Eight> first, Vec<Eight> second, EightMaps& maps) {
  using D = hn::CappedTag<double, 8>;
  const D d;
  const hn::Rebind<float, D> singles;
  constexpr size_t kLanes = hn::MaxLanes(D());
  const double reciprocal = 1 / static_cast<double>(args.cols);
  HWY_ALIGN float in[3][8], out[3][8];
  const Eight eight;
  hn::Store(shift, eight, in[0]);
  hn::Store(first, eight, in[1]);
  hn::Store(second, eight, in[2]);
  // Small squares serve where eps outweighs them.
  const double least = args.eps >= 1e-20 ? 0 : 1e-30;
  bool all_serve = args.recipe.deviation == Deviation::kBiased;
  for (size_t i = 0; i < 8; i += kLanes) {
    const auto read = [&](int k)
                          HWY_ATTR { return hn::PromoteTo(d, hn::Load(singles, in[k] + i)); };
    const auto about = read(0), offset = hn::Mul(read(1), hn::Set(d, reciprocal));
    const auto square = hn::Mul(read(2), hn::Set(d, reciprocal));
    const auto var = hn::Sub(square, hn::Mul(offset, offset));
    const auto serve =
        hn::And(hn::Ge(var, hn::Mul(square, hn::Set(d, 0.25))),
                hn::And(hn::Le(square, hn::Set(d, 1e37)), hn::Ge(square, hn::Set(d, least))));
    all_serve = all_serve && hn::AllTrue(d, serve);
    const auto rstd = hn::Div(hn::Set(d, 1.0), hn::Sqrt(hn::Add(var, hn::Set(d, args.eps))));
    const auto mean = hn::DemoteTo(singles, hn::Add(about, offset));
    const auto lo = hn::Add(hn::Sub(about, hn::PromoteTo(d, mean)), offset);
    hn::Store(mean, singles, out[0] + i);
    hn::Store(hn::DemoteTo(singles, lo), singles, out[1] + i);
    hn::Store(hn::DemoteTo(singles, rstd), singles, out[2] + i);
  }
  SaveEight(args, r, n, hn::Load(eight, out[0]), hn::Load(eight, out[1]), hn::Load(eight, out[2]),
            maps);
  if (all_serve) [[likely]]
    return;
  for (int64_t i = 0; i < n; ++i) {
    const RowSums sums{in[1][i], in[2][i]};
    maps.Set(i, FinishMoments(args, r + i, static_cast<double>(in[0][i]), sums, reciprocal));
  }
}

/// ForwardRows for at least as many columns as lanes, and at most kChunk: the same bits as
/// ForwardRowsWide.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
HWY_NOINLINE void ForwardRowsNarrow(D d, const RowsForward<T>& args, int64_t begin, int64_t end) {
  // Rows whose results are computed side by side, as far as registers last.
  constexpr int64_t kTogether = hn::MaxLanes(hn::ScalableTag<float>()) >= 16 ? 4 : 2;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, last = cols - lanes, rest = cols % lanes;
  const OutputArgs<float> out{args.gain, args.bias, args.scale, -args.scale * args.slope};
  const auto mask = LastLanes(d, rest);
  const Eight eight;
  EightMaps maps;
  Gathered<kStream, T> gathered(args.y + begin * args.y_stride);  // only used to stream
  for (int64_t r = begin; r < end; r += kGroup) {
    const int64_t n = std::min(kGroup, end - r);
    // Rows that are not there are the last one again.
    const auto row = [&](int64_t i)
                         HWY_ATTR { return args.x + (r + std::min(i, n - 1)) * args.x_stride; };
    if constexpr (kStream) PrefetchRows(row(0), kGroup * cols);
    Vec<Eight> sums[8], squares[8];
    Vec<Eight> shift = hn::Zero(eight);
    HWY_ALIGN float shifts[8];
    if constexpr (kCentre) {
      for (int64_t i = 0; i < kGroup; ++i) {
        sums[i] = FoldToEight(d, hn::Add(Read(d, row(i)), Read(d, row(i) + last / 2)));
      }
      shift = hn::Mul(SumsOfEight(sums), hn::Set(eight, 0.5f / static_cast<float>(lanes)));
      hn::Store(shift, eight, shifts);
    }
    for (int64_t i = 0; i < kGroup; ++i) {
      const T* x = row(i);
      const Vec<D> about = kCentre ? hn::Set(d, shifts[i]) : hn::Zero(d);
      // As SumChunkLanes.
      Vec<D> first0 = hn::Zero(d), first1 = hn::Zero(d);
      Vec<D> second0 = hn::Zero(d), second1 = hn::Zero(d);
      int64_t c = 0;
      for (; c + 2 * lanes <= cols; c += 2 * lanes) {
        AddSums<kCentre>(d, x + c, about, first0, second0);
        AddSums<kCentre>(d, x + c + lanes, about, first1, second1);
      }
      if (c <= last) AddSums<kCentre>(d, x + c, about, first0, second0);
      if (rest > 0) {
        Vec<D> v = Read(d, x + last);
        if constexpr (kCentre) v = hn::Sub(v, about);
        v = hn::IfThenElseZero(mask, v);
        if constexpr (kCentre) first1 = hn::Add(first1, v);
        second1 = hn::MulAdd(v, v, second1);
      }
      sums[i] = FoldToEight(d, hn::Add(first0, first1));
      squares[i] = FoldToEight(d, hn::Add(second0, second1));
    }
    FinishEight(args, r, n, shift, SumsOfEight(sums), SumsOfEight(squares), maps);

    T* y = kStream ? gathered.next() : args.y + r * args.y_stride;
    const int64_t y_stride = kStream ? cols : args.y_stride;
    for (int64_t i = 0; i < n; i += kTogether) {
      // A row that is not there is the first of these again, and what is written is the same.
      const T* x[kTogether];
      T* to[kTogether];
      Vec<D> mean[kTogether], rstd[kTogether], offset[kTogether], tail[kTogether];
      for (int64_t j = 0; j < kTogether; ++j) {
        const int64_t k = i + j < n ? i + j : i;
        x[j] = args.x + (r + k) * args.x_stride;
        to[j] = y + k * y_stride;
        mean[j] = hn::Set(d, maps.mean[k]);
        rstd[j] = hn::Set(d, maps.rstd[k]);
        offset[j] = hn::Set(d, maps.offset[k]);
        tail[j] =
            Normalise<kOutput, kCentre>(d, x[j] + last, out.At(last), mean[j], rstd[j], offset[j]);
      }
      for (int64_t c = 0; c < last; c += lanes) {
        Vec<D> v[kTogether];
        for (int64_t j = 0; j < kTogether; ++j) {
          v[j] = Normalise<kOutput, kCentre>(d, x[j] + c, out.At(c), mean[j], rstd[j], offset[j]);
        }
        for (int64_t j = 0; j < kTogether; ++j) Write(d, v[j], to[j] + c);
      }
      for (int64_t j = 0; j < kTogether; ++j) Write(d, tail[j], to[j] + last);
    }
    if constexpr (kStream) gathered.Add(n * cols);
  }
  if constexpr (kStream) gathered.Finish();
  FinishStores<kStream>();
}

/// Eight rows of at most eight columns, in vectors of a column each.
struct Columns {
  Vec<Eight> v[8];

  /// Rows `r` and on, `n` of them; of lanes and rows beyond, anything that is not read from memory
  /// that is not there.
  template <class T>
  HWY_INLINE void Read8(const T* x, int64_t stride, int64_t cols, int64_t n, bool more) {
    const Eight d;
    if (more) [[likely]] {
      for (int64_t i = 0; i < 8; ++i) v[i] = Read(d, x + i * stride);
    } else {
      HWY_ALIGN T padded[8][8] = {};
      for (int64_t i = 0; i < n; ++i) std::copy_n(x + i * stride, cols, padded[i]);
      for (int64_t i = 0; i < 8; ++i) v[i] = Read(d, padded[i]);
    }
    Transpose(v);
  }
};

/// Writes eight rows of `cols` columns, `n` of them there, and perhaps 8 elements after them.
template <class T>
HWY_INLINE void WriteRows(Vec<Eight> (&v)[8], int64_t cols, T* to) {
  const Eight d;
  Transpose(v);
  for (int64_t i = 0; i < 8; ++i) Write(d, v[i], to + i * cols);
}

/// Where rows of at most eight columns go: gathered, and then, if they do not lie one behind the
/// other, each to its place.
template <bool kStream, class T>
class TinyRows {
 public:
  TinyRows(T* out, int64_t stride, int64_t cols)
      : gathered_(out), out_(out), stride_(stride), cols_(cols) {}

  HWY_INLINE void Add(Vec<Eight> (&v)[8], int64_t n) {
    if (stride_ == cols_) [[likely]] {
      WriteRows(v, cols_, gathered_.next());
      gathered_.Add(n * cols_);
      return;
    }
    T rows[8 * 8 + 8];
    WriteRows(v, cols_, rows);
    for (int64_t i = 0; i < n; ++i) std::copy_n(rows + i * cols_, cols_, out_ + i * stride_);
    out_ += n * stride_;
  }

  HWY_INLINE void Finish() {
    if (stride_ == cols_) gathered_.Finish();
  }

 private:
  Gathered<kStream, T> gathered_;
  T* out_;
  int64_t stride_, cols_;
};

/// ForwardRows for at most eight columns: each vector holds a column of eight rows. The moments are
/// taken in two turns over what is in registers.
template <Output kOutput, bool kCentre, bool kStream, class T>
HWY_NOINLINE void ForwardRowsTiny(const RowsForward<T>& args, int64_t begin, int64_t end) {
  const Eight d;
  const int64_t cols = args.cols;
  const Vec<Eight> reciprocal = hn::Set(d, 1 / static_cast<float>(cols));
  const Vec<Eight> eps = hn::Set(d, static_cast<float>(args.eps));
  const Vec<Eight> least = hn::Set(d, args.eps >= 1e-20 ? 0.f : 1e-30f);
  const Vec<Eight> scale = hn::Set(d, args.scale), neg_slope = hn::Set(d, -args.scale * args.slope);
  TinyRows<kStream, T> rows(args.y + begin * args.y_stride, args.y_stride, cols);
  EightMaps maps;
  for (int64_t r = begin; r < end; r += kGroup) {
    const int64_t n = std::min(kGroup, end - r);
    if constexpr (kStream) PrefetchRows(args.x + r * args.x_stride, kGroup * cols);
    Columns columns;
    columns.Read8(args.x + r * args.x_stride, args.x_stride, cols, n, end - r > 2 * kGroup);
    auto& v = columns.v;
    Vec<Eight> mean = hn::Zero(d), mean_lo = hn::Zero(d), square = hn::Zero(d);
    if constexpr (kCentre) {
      Vec<Eight> sum = hn::Zero(d);
      for (int64_t c = 1; c < cols; ++c) sum = hn::Add(sum, hn::Sub(v[c], v[0]));
      const Vec<Eight> near = hn::Mul(sum, reciprocal);
      sum = hn::Zero(d);
      for (int64_t c = 0; c < cols; ++c) {
        const Vec<Eight> e = hn::Sub(hn::Sub(v[c], v[0]), near);
        sum = hn::Add(sum, e);
        square = hn::MulAdd(e, e, square);
      }
      const Vec<Eight> rest = hn::Mul(sum, reciprocal);
      const Vec<Eight> offset = hn::Add(near, rest);
      mean = hn::Add(v[0], offset);
      mean_lo = hn::Add(hn::Sub(v[0], mean), offset);
      square = hn::NegMulAdd(rest, rest, hn::Mul(square, reciprocal));
    } else {
      for (int64_t c = 0; c < cols; ++c) square = hn::MulAdd(v[c], v[c], square);
      square = hn::Mul(square, reciprocal);
    }
    const auto serve = hn::And(hn::Ge(square, least), hn::Le(square, hn::Set(d, 1e37f)));
    const Vec<Eight> rstd = hn::Div(hn::Set(d, 1.f), hn::Sqrt(hn::Add(square, eps)));
    SaveEight(args, r, n, mean, mean_lo, rstd, maps);
    if (!hn::AllTrue(d, serve) || args.recipe.deviation != Deviation::kBiased) [[unlikely]] {
      HWY_ALIGN float served[8];
      hn::Store(hn::IfThenElseZero(serve, hn::Set(d, 1.f)), d, served);
      for (int64_t i = 0; i < n; ++i) {
        if (served[i] == 0 || args.recipe.deviation != Deviation::kBiased) {
          maps.Set(i, CarefulMap(args, r + i));
        }
      }
    }
    const Vec<Eight> m = hn::Load(d, maps.mean), s = hn::Load(d, maps.rstd);
    const Vec<Eight> o = hn::Load(d, maps.offset);
    for (int64_t c = 0; c < cols; ++c) {
      Vec<Eight> xhat = kCentre ? hn::MulAdd(hn::Sub(v[c], m), s, o) : hn::Mul(v[c], s);
      if constexpr (kOutput == Output::kAffine) {
        xhat = hn::MulAdd(xhat, hn::Set(d, args.gain[c]), hn::Set(d, args.bias[c]));
      } else if constexpr (kOutput == Output::kAdaptive) {
        xhat = hn::Mul(hn::MulAdd(xhat, neg_slope, scale), xhat);
      }
      v[c] = xhat;
    }
    rows.Add(v, n);
  }
  rows.Finish();
  FinishStores<kStream>();
}

/// BackwardRows for at most eight columns, with dx.
template <Output kOutput, bool kReadX, bool kColumns, bool kStream, class T>
HWY_NOINLINE void BackwardRowsTiny(const RowsBackward<T>& args, int64_t begin, int64_t end,
                                   float* dgain, float* dbias) {
  const Eight d;
  const int64_t cols = args.cols;
  const double reciprocal = 1 / static_cast<double>(cols);
  const Vec<Eight> inverse = hn::Set(d, 1 / static_cast<float>(cols));
  const Vec<Eight> scale = hn::Set(d, args.scale), neg_slope = hn::Set(d, -args.scale * args.slope);
  const bool usual = args.recipe.deviation == Deviation::kBiased && args.factors == nullptr;
  TinyRows<kStream, T> rows(args.dx + begin * args.dx_stride, args.dx_stride, cols);
  Vec<Eight> gain_sums[8], bias_sums[8];
  for (int64_t c = 0; c < 8; ++c) gain_sums[c] = bias_sums[c] = hn::Zero(d);
  for (int64_t r = begin; r < end; r += kGroup) {
    const int64_t n = std::min(kGroup, end - r);
    const bool more = end - r > 2 * kGroup;
    if constexpr (kStream) {
      PrefetchRows(args.dy + r * args.dy_stride, kGroup * cols);
      if constexpr (kReadX) PrefetchRows(args.x + r * args.x_stride, kGroup * cols);
    }
    Columns dy, x;
    dy.Read8(args.dy + r * args.dy_stride, args.dy_stride, cols, n, more);
    EightMaps maps;
    for (int64_t i = 0; i < kGroup; ++i) {
      maps.Set(i, i < n ? SavedMoments(args, r + i) : RowMap<float>());
    }
    const Vec<Eight> rstd = hn::Load(d, maps.rstd);
    Vec<Eight> sum_g = hn::Zero(d), sum_g_xhat = hn::Zero(d);
    if constexpr (kReadX) {
      x.Read8(args.x + r * args.x_stride, args.x_stride, cols, n, more);
      const Vec<Eight> mean = hn::Load(d, maps.mean), offset = hn::Load(d, maps.offset);
      for (int64_t c = 0; c < cols; ++c) x.v[c] = hn::MulAdd(hn::Sub(x.v[c], mean), rstd, offset);
    }
    for (int64_t c = 0; c < cols; ++c) {
      Vec<Eight> g = dy.v[c];
      if constexpr (kColumns) {
        // Rows that are not there have dy = 0 and xhat = 0.
        gain_sums[c] = hn::MulAdd(g, x.v[c], gain_sums[c]);
        bias_sums[c] = hn::Add(g, bias_sums[c]);
      }
      if constexpr (kOutput == Output::kAffine) g = hn::Mul(g, hn::Set(d, args.gain[c]));
      if constexpr (kOutput == Output::kAdaptive) {
        g = hn::Mul(hn::MulAdd(x.v[c], neg_slope, scale), g);
      }
      dy.v[c] = g;
      sum_g = hn::Add(sum_g, g);
      if constexpr (kReadX) sum_g_xhat = hn::MulAdd(g, x.v[c], sum_g_xhat);
    }
    Vec<Eight> mean_g = args.recipe.via_mean ? hn::Mul(sum_g, inverse) : hn::Zero(d);
    Vec<Eight> mean_g_xhat = args.recipe.via_scale ? hn::Mul(sum_g_xhat, inverse) : hn::Zero(d);
    if (!usual) [[unlikely]] {
      HWY_ALIGN float sums[2][8];
      hn::Store(sum_g, d, sums[0]);
      hn::Store(sum_g_xhat, d, sums[1]);
      for (int64_t i = 0; i < n; ++i) {
        const RowMap<float> map{maps.mean[i], maps.rstd[i], maps.offset[i]};
        const auto full =
            FinishGradient(args, r + i, map, RowSums{sums[0][i], sums[1][i]}, reciprocal);
        sums[0][i] = full.mean_g;
        sums[1][i] = full.mean_g_xhat;
      }
      mean_g = hn::Load(d, sums[0]);
      mean_g_xhat = hn::Load(d, sums[1]);
    }
    for (int64_t c = 0; c < cols; ++c) {
      Vec<Eight> v = hn::Sub(dy.v[c], mean_g);
      if constexpr (kReadX) v = hn::NegMulAdd(x.v[c], mean_g_xhat, v);
      dy.v[c] = hn::Mul(v, rstd);
    }
    rows.Add(dy.v, n);
  }
  rows.Finish();
  if constexpr (kColumns) {
    for (int64_t c = 0; c < cols; ++c) {
      dgain[c] += Sum(d, gain_sums[c]);
      dbias[c] += Sum(d, bias_sums[c]);
    }
  }
  FinishStores<kStream>();
}

#endif  // HWY_MAX_BYTES >= 32

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_NARROW_INL_H_
