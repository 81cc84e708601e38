#include "src/rnn/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/aligned.h"
#include "src/base/loop.h"

// Sequences are independent but for their parameters, so they are handed out to the threads; sums
// over sequences, the gradients of parameters, go through groups of sequences that the shape alone
// fixes. Time goes in segments: the products of inputs and of weights' gradients are taken of a
// whole segment, which is also what a checkpoint stands for.
namespace planish::internal {
namespace {

/// Most groups of sequences: enough for as many threads; each costs sums for every gain and bias.
constexpr int64_t kMostGroups = 16;

/// Rows that a product should have. The weights' gradients are read and written once a segment,
/// which with so many costs little beside the product. Segments decide the order of sums, so this
/// number is a part of the result.
constexpr int64_t kProductRows = 1024;

/// S of RnnOptions.
int64_t SegmentSteps(const RnnShape& shape) {
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(shape.time)));
  while (root * root < shape.time) ++root;
  const int64_t batch = std::max<int64_t>(1, shape.batch);
  return std::max({int64_t{1}, root, (kProductRows + batch - 1) / batch});
}

int64_t SegmentsOf(const RnnShape& shape) {
  const int64_t steps = SegmentSteps(shape);
  return shape.time / steps + (shape.time % steps != 0);
}

// --- What forward keeps for backward ---

enum Slot : uint8_t {
  kXhatIh,      ///< the normalised zx, or zx + zh
  kXhatHh,      ///< the normalised zh
  kGates,       ///< the gates after their functions
  kCandidate,   ///< a GRU's ah_n
  kCellBefore,  ///< the carried c that the step starts from
  kXhatC,       ///< the normalised c
  kRstdIh,
  kRstdHh,
  kRstdC,
  kSlots,
};

/// The numbers of each slot in one step of the whole batch.
std::array<int64_t, kSlots> SlotSizes(const CellRecipe& recipe, const RnnShape& shape) {
  const int64_t states = shape.batch * shape.hidden, sums = recipe.gates() * states;
  const bool any = recipe.sums != Sums::kPlain, apart = recipe.sums == Sums::kApart;
  const bool over_rows = recipe.over == Over::kRow, cell = recipe.cell != CellNorm::kNone;
  const int64_t rstd = over_rows ? shape.batch * recipe.norms() : recipe.gates() * shape.hidden;
  const int64_t rstd_c = over_rows ? shape.batch : shape.hidden;
  std::array<int64_t, kSlots> sizes{};
  sizes[kXhatIh] = any ? sums : 0;
  sizes[kXhatHh] = apart ? sums : 0;
  sizes[kGates] = recipe.is_lstm() || recipe.is_gru() ? sums : 0;
  sizes[kCandidate] = recipe.is_gru() ? states : 0;
  sizes[kCellBefore] = recipe.is_lstm() ? states : 0;
  sizes[kXhatC] = cell ? states : 0;
  sizes[kRstdIh] = any ? rstd : 0;
  sizes[kRstdHh] = apart ? rstd : 0;
  sizes[kRstdC] = cell ? rstd_c : 0;
  return sizes;
}

int64_t NumbersOf(const std::array<int64_t, kSlots>& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  return sum;
}

/// The slots of some steps, in an array of T or const T. Steps are named by their time.
template <class E>
class Kept {
 public:
  Kept() = default;
  /// Of the times [first, first + steps).
  Kept(E* data, const std::array<int64_t, kSlots>& sizes, int64_t first, int64_t steps)
      : sizes_(sizes), first_(first) {
    for (size_t s = 0; s < kSlots; ++s) {
      slots_[s] = data;
      data += sizes[s] * steps;
    }
  }
  /// One step's slots, which every step overwrites.
  static Kept Overwritten(E* data, const std::array<int64_t, kSlots>& sizes) {
    Kept kept(data, sizes, 0, 1);
    kept.sizes_ = {};
    return kept;
  }
  E* At(Slot slot, int64_t t) const { return slots_[slot] + sizes_[slot] * (t - first_); }

 private:
  std::array<E*, kSlots> slots_{};
  std::array<int64_t, kSlots> sizes_{};
  int64_t first_ = 0;
};

// --- Products ---

/// Each number is summed in the order of k, whatever the number of rows and threads.
template <class T>
void MultiplyRows(const RnnProduct<T>& p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    T* c = p.c + i * p.n;
    if (!p.accumulate) std::fill_n(c, p.n, T{0});
    if (p.transpose_b) {
      for (int64_t j = 0; j < p.n; ++j) {
        const T* b = p.b + j * p.k;
        T sum = c[j];
        for (int64_t k = 0; k < p.k; ++k)
          sum += p.a[p.transpose_a ? k * p.m + i : i * p.k + k] * b[k];
        c[j] = sum;
      }
      continue;
    }
    for (int64_t k = 0; k < p.k; ++k) {
      const T a = p.a[p.transpose_a ? k * p.m + i : i * p.k + k];
      const T* b = p.b + k * p.n;
      for (int64_t j = 0; j < p.n; ++j) c[j] += a * b[j];
    }
  }
}

template <class T>
void Multiply(const RnnProduct<T>& p, const RnnOptions<T>& options) {
  if (options.product) return options.product(p);
  RunParallel(options.parallel_for, p.m, GrainFor(p.n * p.k),
              [&](int64_t begin, int64_t end) { MultiplyRows(p, begin, end); });
}

// --- Norms ---

/// 1 over the deviation of n numbers about their mean, and the mean, in double; the mean in two
/// parts, of which the second is what rounding left of the first.
struct Moments {
  double mean, rest, rstd;
};

/// Of the numbers that `at(0)`, ... give, n of them.
template <class F>
Moments MomentsOf(int64_t n, double eps, const F& at) {
  double sum = 0, first = 0, second = 0;
  for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(at(j));
  const auto count = static_cast<double>(n);
  const double mean = sum / count;
  for (int64_t j = 0; j < n; ++j) {
    const double d = static_cast<double>(at(j)) - mean;
    first += d;
    second += d * d;
  }
  const double rest = first / count;
  return {mean, rest, 1 / std::sqrt(std::max(0.0, second / count - rest * rest) + eps)};
}

template <class T>
T XhatOf(T z, const Moments& moments) {
  return static_cast<T>((static_cast<double>(z) - moments.mean - moments.rest) * moments.rstd);
}

/// The means that the gradient of a norm takes off g.
struct GradientMeans {
  double g = 0, g_xhat = 0, count = 0;

  void Add(double g_j, double xhat_j) {
    g += g_j;
    g_xhat += g_j * xhat_j;
    ++count;
  }
  /// Makes means of the sums.
  void Finish() {
    g /= count;
    g_xhat /= count;
  }
};

template <class T>
T Logistic(T a) {
  return 1 / (1 + std::exp(-a));
}

template <class T>
T Or(const T* array, int64_t j, T otherwise) {
  return array ? array[j] : otherwise;
}

// --- A layer ---

/// What both directions know of a layer. Methods that take [begin, end) work on those sequences.
template <class T>
class Layer {
 public:
  Layer(const CellRecipe& recipe, const RnnInputs<T>& inputs, const RnnOptions<T>& options)
      : recipe_(recipe),
        in_(inputs),
        params_(inputs.params),
        options_(options),
        time_(inputs.shape.time),
        batch_(inputs.shape.batch),
        inputs_(inputs.shape.inputs),
        hidden_(inputs.shape.hidden),
        columns_(recipe.gates() * hidden_),
        segment_steps_(SegmentSteps(inputs.shape)),
        groups_(recipe.over == Over::kBatch ? std::min<int64_t>(batch_, 1)
                                            : std::min(batch_, kMostGroups)) {}

  /// The state of all sequences, and room for a step: zx of a segment, zh of a step.
  struct Work {
    explicit Work(const Layer& layer)
        : h(MakeAligned<T>(layer.batch_ * layer.hidden_)),
          c(MakeAligned<T>(layer.batch_ * layer.hidden_)),
          zx(MakeAligned<T>(std::min(layer.segment_steps_, layer.time_) * layer.batch_ *
                            layer.columns_)),
          zh(MakeAligned<T>(layer.batch_ * layer.columns_)) {}
    AlignedArray<T> h, c, zx, zh;
  };

  /// The gradients of the state of all sequences, and of a segment: of zx and zh, and what the
  /// weights' gradients are made of beside them.
  struct BackwardWork {
    BackwardWork(const Layer& layer, int64_t rows)
        : dh(MakeAligned<T>(layer.batch_ * layer.hidden_)),
          dc(MakeAligned<T>(layer.batch_ * layer.hidden_)),
          dcell(MakeAligned<T>(layer.batch_ * layer.hidden_)),
          dzx(MakeAligned<T>(rows * layer.columns_)),
          dzh(MakeAligned<T>(rows * layer.columns_)),
          h_before(MakeAligned<T>(rows * layer.hidden_)),
          x(MakeAligned<T>(layer.in_.lengths ? rows * layer.inputs_ : 0)) {}
    AlignedArray<T> dh, dc, dcell, dzx, dzh, h_before, x;
  };

  /// A group's sums for the gradients that are asked for; null for the others, and for weights.
  struct GroupSums {
    RnnParams<T> params;
    T *h_reset = nullptr, *c_reset = nullptr;
  };

  int64_t groups() const { return groups_; }
  int64_t columns() const { return columns_; }
  int64_t segment_rows() const { return std::min(segment_steps_, time_) * batch_; }
  int64_t segments() const { return SegmentsOf(in_.shape); }

  struct Times {
    int64_t begin, end;  ///< of x and y, whatever the direction
  };
  /// The times of a segment; segments are counted in the order of steps.
  Times TimesOf(int64_t segment) const {
    const int64_t first = segment * segment_steps_;
    const int64_t last = std::min(time_, first + segment_steps_);
    return in_.reverse ? Times{time_ - last, time_ - first} : Times{first, last};
  }

  bool Active(int64_t t, int64_t b) const { return !in_.lengths || t < in_.lengths[b]; }
  bool Reset(int64_t t, int64_t b) const { return in_.resets && in_.resets[t * batch_ + b] != 0; }

  /// Calls f(b) for the sequences that have the time t.
  template <class F>
  void ForActive(int64_t t, int64_t begin, int64_t end, const F& f) const {
    for (int64_t b = begin; b < end; ++b) {
      if (Active(t, b)) f(b);
    }
  }

  /// Calls f(group, begin, end) for every group of sequences.
  template <class F>
  void ForGroups(int64_t steps, const F& f) const {
    const int64_t work = steps * columns_ * hidden_ * (batch_ / std::max<int64_t>(1, groups_) + 1);
    RunParallel(options_.parallel_for, groups_, GrainFor(work), [&](int64_t first, int64_t last) {
      for (int64_t g = first; g < last; ++g) {
        f(g, g * batch_ / groups_, (g + 1) * batch_ / groups_);
      }
    });
  }

  /// Puts the initial state, or zeros, into `state`.
  void Start(const T* initial, T* state) const {
    if (initial) {
      std::copy_n(initial, batch_ * hidden_, state);
    } else {
      std::fill_n(state, batch_ * hidden_, T{0});
    }
  }

  void InputProduct(Times times, T* zx) const {
    const int64_t rows = (times.end - times.begin) * batch_;
    if (rows == 0) return;
    Multiply<T>({.m = rows,
                 .n = columns_,
                 .k = inputs_,
                 .a = in_.x + times.begin * batch_ * inputs_,
                 .b = params_.weight_ih,
                 .c = zx,
                 .transpose_b = true},
                options_);
  }

  /// The steps of a segment, from the state in `work`. y is null when they are taken again.
  void ForwardSteps(Times times, int64_t begin, int64_t end, Work& work, const Kept<T>& kept,
                    T* y) const {
    for (int64_t i = 0; i < times.end - times.begin; ++i) {
      const int64_t t = in_.reverse ? times.end - 1 - i : times.begin + i;
      T* zx = work.zx.get() + (t - times.begin) * batch_ * columns_;
      ForwardStep(t, begin, end, work, zx, kept);
      for (int64_t b = begin; y && b < end; ++b) {
        T* out = y + (t * batch_ + b) * hidden_;
        if (Active(t, b)) {
          std::copy_n(work.h.get() + b * hidden_, hidden_, out);
        } else {
          std::fill_n(out, hidden_, T{0});
        }
      }
    }
  }

  /// The steps of a segment, last first.
  void BackwardSteps(Times times, int64_t begin, int64_t end, const RnnBackwardArgs<T>& args,
                     const Kept<const T>& kept, BackwardWork& work, const GroupSums& sums) const {
    for (int64_t i = 0; i < times.end - times.begin; ++i) {
      const int64_t t = in_.reverse ? times.begin + i : times.end - 1 - i;
      BackwardStep(t, begin, end, args.y, args.dy, kept, work, (t - times.begin) * batch_, sums);
    }
  }

  /// The products of a segment's gradients.
  void GradientProducts(Times times, const RnnBackwardArgs<T>& args, BackwardWork& work) const {
    const int64_t rows = (times.end - times.begin) * batch_;
    if (rows == 0) return;
    const auto add_weight = [&](const T* dz, const T* v, int64_t n, T* dweight) {
      Multiply<T>({.m = columns_,
                   .n = n,
                   .k = rows,
                   .a = dz,
                   .b = v,
                   .c = dweight,
                   .transpose_a = true,
                   .accumulate = true},
                  options_);
    };
    if (args.dparams.weight_ih) {
      const T* x = in_.x + times.begin * batch_ * inputs_;
      if (in_.lengths) x = WithoutPadding(times, x, work.x.get());
      add_weight(work.dzx.get(), x, inputs_, args.dparams.weight_ih);
    }
    if (args.dparams.weight_hh) {
      add_weight(work.dzh.get(), work.h_before.get(), hidden_, args.dparams.weight_hh);
    }
    if (args.dx) {
      Multiply<T>({.m = rows,
                   .n = inputs_,
                   .k = columns_,
                   .a = work.dzx.get(),
                   .b = params_.weight_ih,
                   .c = args.dx + times.begin * batch_ * inputs_},
                  options_);
    }
  }

  /// The state before a segment, for taking its steps again; `c` as the checkpoint has it.
  void RestoreState(Times times, const T* y, const T* c, Work& work) const {
    const int64_t t = in_.reverse ? times.end - 1 : times.begin;
    const bool first = in_.reverse ? times.end == time_ : times.begin == 0;
    Start(in_.h0, work.h.get());
    for (int64_t b = 0; !first && b < batch_; ++b) {
      const int64_t before = in_.reverse ? t + 1 : t - 1;
      if (Active(before, b)) {
        std::copy_n(y + (before * batch_ + b) * hidden_, hidden_, work.h.get() + b * hidden_);
      }
    }
    if (recipe_.is_lstm()) std::copy_n(c, batch_ * hidden_, work.c.get());
  }

  /// x of a segment with zeros where a sequence has ended: what lies there may be NaN, which
  /// times a gradient of 0 would be NaN.
  const T* WithoutPadding(Times times, const T* x, T* copy) const {
    for (int64_t t = times.begin; t < times.end; ++t) {
      for (int64_t b = 0; b < batch_; ++b) {
        const int64_t at = ((t - times.begin) * batch_ + b) * inputs_;
        if (Active(t, b)) {
          std::copy_n(x + at, inputs_, copy + at);
        } else {
          std::fill_n(copy + at, inputs_, T{0});
        }
      }
    }
    return copy;
  }

 private:
  void SetState(const T* reset, int64_t b, T* state) const {
    for (int64_t k = 0; k < hidden_; ++k) state[b * hidden_ + k] = Or(reset, k, T{0});
  }

  /// xhat and rstd of the rows of z [B, width] whose sequences have the time t. Over rows each
  /// group of columns is normalised for itself.
  void Normalise(int64_t t, int64_t begin, int64_t end, const T* z, int64_t width,
                 const Groups& groups, T* xhat, T* rstd) const {
    if (recipe_.over == Over::kBatch) {
      const int64_t n = CountActive(t, begin, end);
      for (int64_t j = 0; n > 0 && j < width; ++j) {
        int64_t b = begin - 1;
        const auto next = [&](int64_t i) {
          b = i == 0 ? begin : b + 1;
          while (!Active(t, b)) ++b;
          return z[b * width + j];
        };
        const Moments moments = MomentsOf(n, options_.eps, next);
        rstd[j] = static_cast<T>(moments.rstd);
        ForActive(t, begin, end, [&](int64_t row) {
          xhat[row * width + j] = XhatOf(z[row * width + j], moments);
        });
      }
      return;
    }
    ForActive(t, begin, end, [&](int64_t b) {
      int64_t first = b * width;
      T* group_rstd = rstd + b * NormsIn(groups);
      for (const int8_t gates : groups) {
        if (gates == 0) break;
        const int64_t n = gates * hidden_;
        const Moments moments = MomentsOf(n, options_.eps, [&](int64_t j) { return z[first + j]; });
        for (int64_t j = first; j < first + n; ++j) xhat[j] = XhatOf(z[j], moments);
        *group_rstd++ = static_cast<T>(moments.rstd);
        first += n;
      }
    });
  }

  /// Takes d [B, width], the gradient of a norm's output gain * xhat + bias, to that of its input,
  /// in place, and adds the terms of dgain and dbias where these are asked for.
  void NormaliseBackward(int64_t t, int64_t begin, int64_t end, T* d, int64_t width,
                         const Groups& groups, const T* xhat, const T* rstd, const T* gain,
                         T* dgain, T* dbias) const {
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t j = 0; j < width; ++j) {
        T& g = d[b * width + j];
        if (dgain) dgain[j] += g * xhat[b * width + j];
        if (dbias) dbias[j] += g;
        g *= Or(gain, j, T{1});
      }
    });
    const auto map = [&](int64_t at, T r, const GradientMeans& means) {
      d[at] = static_cast<T>(r * (d[at] - means.g - xhat[at] * means.g_xhat));
    };
    if (recipe_.over == Over::kBatch) {
      for (int64_t j = 0; j < width; ++j) {
        GradientMeans means;
        ForActive(t, begin, end,
                  [&](int64_t b) { means.Add(d[b * width + j], xhat[b * width + j]); });
        means.Finish();
        ForActive(t, begin, end, [&](int64_t b) { map(b * width + j, rstd[j], means); });
      }
      return;
    }
    ForActive(t, begin, end, [&](int64_t b) {
      int64_t first = b * width;
      const T* group_rstd = rstd + b * NormsIn(groups);
      for (const int8_t gates : groups) {
        if (gates == 0) break;
        const int64_t last = first + gates * hidden_;
        GradientMeans means;
        for (int64_t j = first; j < last; ++j) means.Add(d[j], xhat[j]);
        means.Finish();
        for (int64_t j = first; j < last; ++j) map(j, *group_rstd, means);
        ++group_rstd;
        first = last;
      }
    });
  }

  static int64_t NormsIn(const Groups& groups) {
    return std::count_if(groups.begin(), groups.end(), [](int8_t n) { return n > 0; });
  }

  int64_t CountActive(int64_t t, int64_t begin, int64_t end) const {
    int64_t n = 0;
    ForActive(t, begin, end, [&](int64_t) { ++n; });
    return n;
  }

  void ForwardStep(int64_t t, int64_t begin, int64_t end, Work& work, T* zx,
                   const Kept<T>& kept) const {
    T *h = work.h.get(), *c = work.c.get(), *zh = work.zh.get();
    const int64_t n = columns_;
    ForActive(t, begin, end, [&](int64_t b) {
      if (Reset(t, b)) {
        SetState(in_.h_reset, b, h);
        if (recipe_.is_lstm()) SetState(in_.c_reset, b, c);
      }
      MultiplyRows<T>({.m = 1,
                       .n = n,
                       .k = hidden_,
                       .a = h + b * hidden_,
                       .b = params_.weight_hh,
                       .c = zh + b * n,
                       .transpose_b = true},
                      0, 1);
    });
    AddSums(t, begin, end, zx, zh, kept);
    if (recipe_.is_lstm()) {
      LstmStep(t, begin, end, zx, zh, kept, h, c);
    } else if (recipe_.is_gru()) {
      ForActive(t, begin, end, [&](int64_t b) {
        GruStep(zx + b * n, zh + b * n, kept.At(kGates, t) + b * n,
                kept.At(kCandidate, t) + b * hidden_, h + b * hidden_);
      });
    } else {
      ForActive(t, begin, end, [&](int64_t b) {
        for (int64_t k = 0; k < hidden_; ++k) {
          const T a = zx[b * n + k] + zh[b * n + k];
          h[b * hidden_ + k] = recipe_.arithmetic == Arithmetic::kRnnRelu
                                   ? (a > 0 || a != a ? a : T{0})
                                   : std::tanh(a);
        }
      });
    }
  }

  /// Turns zx and zh into ax and ah, which go into the gates.
  void AddSums(int64_t t, int64_t begin, int64_t end, T* zx, T* zh, const Kept<T>& kept) const {
    const int64_t n = columns_;
    const auto affine = [&](const T* xhat, const T* gain, const T* bias, T* a) {
      for (int64_t j = 0; j < n; ++j) a[j] = Or(gain, j, T{1}) * xhat[j] + Or(bias, j, T{0});
    };
    if (recipe_.sums == Sums::kApart) {
      T *xhat_ih = kept.At(kXhatIh, t), *xhat_hh = kept.At(kXhatHh, t);
      Normalise(t, begin, end, zx, n, recipe_.groups, xhat_ih, kept.At(kRstdIh, t));
      Normalise(t, begin, end, zh, n, recipe_.groups, xhat_hh, kept.At(kRstdHh, t));
      ForActive(t, begin, end, [&](int64_t b) {
        affine(xhat_ih + b * n, params_.ln_ih_weight, params_.ln_ih_bias, zx + b * n);
        affine(xhat_hh + b * n, params_.ln_hh_weight, params_.ln_hh_bias, zh + b * n);
      });
    } else if (recipe_.sums == Sums::kTogether) {
      T* xhat = kept.At(kXhatIh, t);
      ForActive(t, begin, end, [&](int64_t b) {
        for (int64_t j = b * n; j < (b + 1) * n; ++j) zx[j] += zh[j];
      });
      Normalise(t, begin, end, zx, n, recipe_.groups, xhat, kept.At(kRstdIh, t));
      ForActive(t, begin, end, [&](int64_t b) {
        affine(xhat + b * n, params_.ln_weight, params_.ln_bias, zx + b * n);
        std::fill_n(zh + b * n, n, T{0});
      });
    }
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t j = 0; params_.bias && j < n; ++j) zx[b * n + j] += params_.bias[j];
      for (int64_t k = 0; params_.bias_hn && k < hidden_; ++k) {
        zh[b * n + 2 * hidden_ + k] += params_.bias_hn[k];
      }
    });
  }

  void GruStep(const T* ax, const T* ah, T* gates, T* candidate, T* h) const {
    for (int64_t k = 0; k < hidden_; ++k) {
      const int64_t i = hidden_ + k, j = 2 * hidden_ + k;
      const T r = Logistic(ax[k] + ah[k]), z = Logistic(ax[i] + ah[i]);
      const T n = std::tanh(ax[j] + r * ah[j]);
      gates[k] = r;
      gates[i] = z;
      gates[j] = n;
      candidate[k] = ah[j];
      h[k] = (1 - z) * n + z * h[k];
    }
  }

  void LstmStep(int64_t t, int64_t begin, int64_t end, const T* ax, const T* ah,
                const Kept<T>& kept, T* h, T* c) const {
    T *all_gates = kept.At(kGates, t), *before = kept.At(kCellBefore, t);
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t k = 0; k < hidden_; ++k) {
        const int64_t at = b * columns_ + k, state = b * hidden_ + k;
        const auto sum = [&](int64_t gate) {
          return ax[at + gate * hidden_] + ah[at + gate * hidden_];
        };
        T* gates = all_gates + at;
        gates[0] = Logistic(sum(0));
        gates[hidden_] = Logistic(sum(1));
        gates[2 * hidden_] = std::tanh(sum(2));
        gates[3 * hidden_] = Logistic(sum(3));
        before[state] = c[state];
        c[state] = CellOf(gates, c[state]);
      }
    });
    const T* xhat = nullptr;
    if (recipe_.cell != CellNorm::kNone) {
      xhat = kept.At(kXhatC, t);
      Normalise(t, begin, end, c, hidden_, {1}, kept.At(kXhatC, t), kept.At(kRstdC, t));
    }
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t k = 0; k < hidden_; ++k) {
        const int64_t state = b * hidden_ + k;
        const T seen = xhat ? NormalisedCell(xhat[state], k) : c[state];
        if (recipe_.cell == CellNorm::kCarried) c[state] = seen;
        h[state] = all_gates[b * columns_ + 3 * hidden_ + k] * std::tanh(seen);
      }
    });
  }

  /// The new c before its norm, of a unit's gates, which lie hidden_ apart, and the carried c.
  T CellOf(const T* gates, T before) const {
    return gates[hidden_] * before + gates[0] * gates[2 * hidden_];
  }
  T NormalisedCell(T xhat, int64_t k) const {
    return Or(params_.ln_c_weight, k, T{1}) * xhat + Or(params_.ln_c_bias, k, T{0});
  }

  // --- Backward ---

  /// The state that a step starts from.
  const T* StateBefore(int64_t t, int64_t b, const T* y) const {
    if (Reset(t, b)) return in_.h_reset;
    const int64_t length = in_.lengths ? in_.lengths[b] : time_;
    if (t == (in_.reverse ? length - 1 : 0)) return in_.h0 ? in_.h0 + b * hidden_ : nullptr;
    return y + ((in_.reverse ? t + 1 : t - 1) * batch_ + b) * hidden_;
  }

  void BackwardStep(int64_t t, int64_t begin, int64_t end, const T* y, const T* dy,
                    const Kept<const T>& kept, BackwardWork& work, int64_t row,
                    const GroupSums& sums) const {
    T *dh = work.dh.get(), *dc = work.dc.get();
    T *dzx = work.dzx.get() + row * columns_, *dzh = work.dzh.get() + row * columns_;
    T* h_before = work.h_before.get() + row * hidden_;
    for (int64_t b = begin; b < end; ++b) {
      const bool active = Active(t, b);
      const T* before = active ? StateBefore(t, b, y) : nullptr;
      for (int64_t k = 0; k < hidden_; ++k) h_before[b * hidden_ + k] = Or(before, k, T{0});
      if (!active) {
        std::fill_n(dzx + b * columns_, columns_, T{0});
        std::fill_n(dzh + b * columns_, columns_, T{0});
      } else if (dy) {
        for (int64_t k = 0; k < hidden_; ++k) {
          dh[b * hidden_ + k] += dy[(t * batch_ + b) * hidden_ + k];
        }
      }
    }
    if (recipe_.is_lstm()) {
      LstmBackward(t, begin, end, kept, dh, dc, work.dcell.get(), dzx, sums);
    } else if (recipe_.is_gru()) {
      ForActive(t, begin, end, [&](int64_t b) {
        GruBackward(kept.At(kGates, t) + b * columns_, kept.At(kCandidate, t) + b * hidden_,
                    h_before + b * hidden_, dh + b * hidden_, dzx + b * columns_,
                    dzh + b * columns_);
      });
    } else {
      ForActive(t, begin, end, [&](int64_t b) {
        for (int64_t k = 0; k < hidden_; ++k) {
          const T d = dh[b * hidden_ + k], h = y[(t * batch_ + b) * hidden_ + k];
          dzx[b * hidden_ + k] =
              recipe_.arithmetic == Arithmetic::kRnnRelu ? (h <= 0 ? T{0} : d) : d * (1 - h * h);
        }
      });
    }
    if (!recipe_.is_gru()) {
      ForActive(t, begin, end, [&](int64_t b) {
        std::copy_n(dzx + b * columns_, columns_, dzh + b * columns_);
        std::fill_n(dh + b * hidden_, hidden_, T{0});
      });
    }
    SumsBackward(t, begin, end, kept, dzx, dzh, sums);
    ForActive(t, begin, end, [&](int64_t b) {
      MultiplyRows<T>({.m = 1,
                       .n = hidden_,
                       .k = columns_,
                       .a = dzh + b * columns_,
                       .b = params_.weight_hh,
                       .c = dh + b * hidden_,
                       .accumulate = true},
                      0, 1);
      if (!Reset(t, b)) return;
      MoveTo(sums.h_reset, dh + b * hidden_);
      if (recipe_.is_lstm()) MoveTo(sums.c_reset, dc + b * hidden_);
    });
  }

  /// Adds a state's gradient to a sum, where that is asked for, and leaves 0.
  void MoveTo(T* sum, T* d) const {
    for (int64_t k = 0; k < hidden_; ++k) {
      if (sum) sum[k] += d[k];
      d[k] = 0;
    }
  }

  void GruBackward(const T* gates, const T* candidate, const T* before, T* dh, T* dax,
                   T* dah) const {
    for (int64_t k = 0; k < hidden_; ++k) {
      const T r = gates[k], z = gates[hidden_ + k], n = gates[2 * hidden_ + k];
      const T d = dh[k], dn = d * (1 - z) * (1 - n * n);
      dax[k] = dah[k] = dn * candidate[k] * r * (1 - r);
      dax[hidden_ + k] = dah[hidden_ + k] = d * (before[k] - n) * z * (1 - z);
      dax[2 * hidden_ + k] = dn;
      dah[2 * hidden_ + k] = dn * r;
      dh[k] = d * z;
    }
  }

  void LstmBackward(int64_t t, int64_t begin, int64_t end, const Kept<const T>& kept, const T* dh,
                    T* dc, T* dcell, T* da, const GroupSums& sums) const {
    const T *all_gates = kept.At(kGates, t), *before = kept.At(kCellBefore, t);
    const bool norm = recipe_.cell != CellNorm::kNone;
    const T* xhat = norm ? kept.At(kXhatC, t) : nullptr;
    // The carried c has one gradient of the next step and one of h, which meet before the norm's
    // backward where the normalised c is carried, and after it otherwise.
    const bool meet_before = recipe_.cell == CellNorm::kCarried;
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t k = 0; k < hidden_; ++k) {
        const int64_t state = b * hidden_ + k, at = b * columns_ + k;
        const T* gates = all_gates + at;
        const T seen = norm ? NormalisedCell(xhat[state], k) : CellOf(gates, before[state]);
        const T tanh_c = std::tanh(seen), o = gates[3 * hidden_];
        da[at + 3 * hidden_] = dh[state] * tanh_c * o * (1 - o);
        dcell[state] = dh[state] * o * (1 - tanh_c * tanh_c);
        if (meet_before) dcell[state] += dc[state];
      }
    });
    if (norm) {
      NormaliseBackward(t, begin, end, dcell, hidden_, {1}, xhat, kept.At(kRstdC, t),
                        params_.ln_c_weight, sums.params.ln_c_weight, sums.params.ln_c_bias);
    }
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t k = 0; k < hidden_; ++k) {
        const int64_t state = b * hidden_ + k, at = b * columns_ + k;
        const T* gates = all_gates + at;
        const T i = gates[0], f = gates[hidden_], g = gates[2 * hidden_];
        const T d = meet_before ? dcell[state] : dcell[state] + dc[state];
        da[at] = d * g * i * (1 - i);
        da[at + hidden_] = d * before[state] * f * (1 - f);
        da[at + 2 * hidden_] = d * i * (1 - g * g);
        dc[state] = d * f;
      }
    });
  }

  /// Takes the gradients of ax and ah to those of zx and zh.
  void SumsBackward(int64_t t, int64_t begin, int64_t end, const Kept<const T>& kept, T* dzx,
                    T* dzh, const GroupSums& sums) const {
    const int64_t n = columns_;
    const RnnParams<T>& to = sums.params;
    ForActive(t, begin, end, [&](int64_t b) {
      for (int64_t j = 0; to.bias && j < n; ++j) to.bias[j] += dzx[b * n + j];
      for (int64_t k = 0; to.bias_hn && k < hidden_; ++k) {
        to.bias_hn[k] += dzh[b * n + 2 * hidden_ + k];
      }
    });
    if (recipe_.sums == Sums::kApart) {
      NormaliseBackward(t, begin, end, dzx, n, recipe_.groups, kept.At(kXhatIh, t),
                        kept.At(kRstdIh, t), params_.ln_ih_weight, to.ln_ih_weight, to.ln_ih_bias);
      NormaliseBackward(t, begin, end, dzh, n, recipe_.groups, kept.At(kXhatHh, t),
                        kept.At(kRstdHh, t), params_.ln_hh_weight, to.ln_hh_weight, to.ln_hh_bias);
    } else if (recipe_.sums == Sums::kTogether) {
      NormaliseBackward(t, begin, end, dzx, n, recipe_.groups, kept.At(kXhatIh, t),
                        kept.At(kRstdIh, t), params_.ln_weight, to.ln_weight, to.ln_bias);
      ForActive(t, begin, end, [&](int64_t b) { std::copy_n(dzx + b * n, n, dzh + b * n); });
    }
  }

  const CellRecipe recipe_;
  const RnnInputs<T>& in_;
  const RnnParams<const T>& params_;
  const RnnOptions<T>& options_;
  const int64_t time_, batch_, inputs_, hidden_, columns_, segment_steps_, groups_;
};

}  // namespace

int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint) {
  if (!checkpoint) return shape.time * NumbersOf(SlotSizes(recipe, shape));
  return recipe.is_lstm() ? SegmentsOf(shape) * shape.batch * shape.hidden : 0;
}

template <class T>
void ForwardLayer(const CellRecipe& recipe, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options) {
  const RnnShape& shape = args.inputs.shape;
  const int64_t states = shape.batch * shape.hidden;
  const Layer<T> layer(recipe, args.inputs, options);
  typename Layer<T>::Work work(layer);
  const auto sizes = SlotSizes(recipe, shape);
  const bool all = args.saved && !options.checkpoint;
  const AlignedArray<T> step = MakeAligned<T>(all ? 0 : NumbersOf(sizes));
  const Kept<T> kept =
      all ? Kept<T>(args.saved, sizes, 0, shape.time) : Kept<T>::Overwritten(step.get(), sizes);
  layer.Start(args.inputs.h0, work.h.get());
  layer.Start(args.inputs.c0, work.c.get());
  for (int64_t segment = 0; segment < layer.segments(); ++segment) {
    if (args.saved && options.checkpoint && recipe.is_lstm()) {
      std::copy_n(work.c.get(), states, args.saved + segment * states);
    }
    const auto times = layer.TimesOf(segment);
    layer.InputProduct(times, work.zx.get());
    layer.ForGroups(times.end - times.begin, [&](int64_t, int64_t begin, int64_t end) {
      layer.ForwardSteps(times, begin, end, work, kept, args.y);
    });
  }
  if (args.h_n) std::copy_n(work.h.get(), states, args.h_n);
  if (args.c_n) std::copy_n(work.c.get(), states, args.c_n);
}

template <class T>
void BackwardLayer(const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options) {
  using GroupSums = typename Layer<T>::GroupSums;
  const RnnShape& shape = args.inputs.shape;
  const int64_t states = shape.batch * shape.hidden;
  const Layer<T> layer(recipe, args.inputs, options);
  const auto sizes = SlotSizes(recipe, shape);

  // The gradients that are sums over steps, but for the weights', which are products.
  struct Sum {
    T* out;
    int64_t size;
    T* RnnParams<T>::* param;
    T* GroupSums::* state;
  };
  std::vector<Sum> asked;
  for (const auto& param : ParamsOf<T>(recipe, shape)) {
    T* out = args.dparams.*param.member;
    const bool product =
        param.member == &RnnParams<T>::weight_ih || param.member == &RnnParams<T>::weight_hh;
    if (out && !product) asked.push_back({out, param.size, param.member, nullptr});
  }
  if (args.dh_reset) asked.push_back({args.dh_reset, shape.hidden, nullptr, &GroupSums::h_reset});
  if (args.dc_reset) asked.push_back({args.dc_reset, shape.hidden, nullptr, &GroupSums::c_reset});
  int64_t numbers = 0;
  for (const Sum& sum : asked) numbers += sum.size;
  const AlignedArray<T> memory = MakeAligned<T>(layer.groups() * numbers);
  std::fill_n(memory.get(), layer.groups() * numbers, T{0});
  std::vector<GroupSums> sums(static_cast<size_t>(layer.groups()));
  T* next = memory.get();
  for (GroupSums& group : sums) {
    for (const Sum& sum : asked) {
      (sum.param ? group.params.*sum.param : group.*sum.state) = next;
      next += sum.size;
    }
  }

  typename Layer<T>::BackwardWork work(layer, layer.segment_rows());
  // With checkpoints a segment's steps are taken again, which fills the slots that are read.
  const int64_t segment_steps = shape.batch > 0 ? layer.segment_rows() / shape.batch : 0;
  const AlignedArray<T> slots =
      MakeAligned<T>(options.checkpoint ? segment_steps * NumbersOf(sizes) : 0);
  std::optional<typename Layer<T>::Work> again;
  if (options.checkpoint) again.emplace(layer);

  layer.Start(args.dh_n, work.dh.get());
  layer.Start(args.dc_n, work.dc.get());
  if (args.dparams.weight_ih) {
    std::fill_n(args.dparams.weight_ih, layer.columns() * shape.inputs, T{0});
  }
  if (args.dparams.weight_hh) {
    std::fill_n(args.dparams.weight_hh, layer.columns() * shape.hidden, T{0});
  }
  for (int64_t segment = layer.segments() - 1; segment >= 0; --segment) {
    const auto times = layer.TimesOf(segment);
    const int64_t steps = times.end - times.begin;
    Kept<T> anew;
    Kept<const T> kept;
    if (again) {
      anew = Kept<T>(slots.get(), sizes, times.begin, steps);
      kept = Kept<const T>(slots.get(), sizes, times.begin, steps);
      const T* c = recipe.is_lstm() ? args.saved + segment * states : nullptr;
      layer.RestoreState(times, args.y, c, *again);
      layer.InputProduct(times, again->zx.get());
    } else {
      kept = Kept<const T>(args.saved, sizes, 0, shape.time);
    }
    layer.ForGroups(steps, [&](int64_t group, int64_t begin, int64_t end) {
      if (again) layer.ForwardSteps(times, begin, end, *again, anew, nullptr);
      layer.BackwardSteps(times, begin, end, args, kept, work, sums[static_cast<size_t>(group)]);
    });
    layer.GradientProducts(times, args, work);
  }

  if (args.dh0) std::copy_n(work.dh.get(), states, args.dh0);
  if (args.dc0) std::copy_n(work.dc.get(), states, args.dc0);
  const T* from = memory.get();
  for (const Sum& sum : asked) std::fill_n(sum.out, sum.size, T{0});
  for (int64_t group = 0; group < layer.groups(); ++group) {
    for (const Sum& sum : asked) {
      for (int64_t j = 0; j < sum.size; ++j) sum.out[j] += from[j];
      from += sum.size;
    }
  }
}

#define PLANISH_INSTANTIATE(T)                                                                   \
  template void ForwardLayer(const CellRecipe&, const RnnForwardArgs<T>&, const RnnOptions<T>&); \
  template void BackwardLayer(const CellRecipe&, const RnnBackwardArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
