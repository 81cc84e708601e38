#include "lab/downstream/logistic.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "lab/error.h"

namespace planish::lab {

namespace {

// Pairs of L-BFGS (Nocedal & Wright 2006, algorithm 7.4).
constexpr size_t kHistory = 10;
// Strong Wolfe conditions (their 3.7).
constexpr double kDecrease = 1e-4, kCurvature = 0.9;
constexpr int kTrials = 60;
// Relative rounding error of the loss.
constexpr double kRounding = 1e-14;

// Mean loss of each problem [P] and its derivatives [N, P, K] at the sums z [N, P, K].
using Loss = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor& z)>;

struct Pair {
  at::Tensor s, y;  // [D + 1, P, K]
  at::Tensor rho;   // [P]: 1 / (s y), or 0 for an unusable pair
};

// Problems being solved. A value of each problem is [P]; the unknowns are [D + 1, P, K].
class Solver {
 public:
  Solver(const at::Tensor& x, Loss loss, const at::Tensor& lambda, at::Tensor w)
      : x_(at::cat({x, at::ones({x.size(0), 1}, x.options())}, 1)),
        transposed_(x_.t().contiguous()),
        loss_(std::move(loss)),
        lambda_(lambda),
        penalised_(at::ones({w.size(0), 1, 1}, w.options())),
        w_(std::move(w)) {
    penalised_[-1].zero_();
    z_ = Sums(w_);
    auto [mean, dz] = loss_(z_);
    f_ = mean + lambda_ / 2 * Dot(w_ * penalised_, w_);
    g_ = Gradient(dz);
  }

  at::Tensor Solve(const FitOptions& options) {
    for (int64_t i = 0; i < options.iterations; ++i) {
      options.poll();
      const at::Tensor active = (g_.abs().amax({0, 2}) > options.tolerance).to(g_.scalar_type());
      if (active.sum().item<double>() == 0) return w_;
      Step(active);
    }
    throw RunError(fmt::format("the logistic regression did not converge in {} iterations",
                               options.iterations));
  }

 private:
  at::Tensor Sums(const at::Tensor& w) const {
    return x_.mm(w.flatten(1)).view({x_.size(0), w.size(1), w.size(2)});
  }

  at::Tensor Gradient(const at::Tensor& dz) const {
    return transposed_.mm(dz.flatten(1)).view(w_.sizes()) + Times(w_ * penalised_, lambda_);
  }

  static at::Tensor Dot(const at::Tensor& a, const at::Tensor& b) {
    return (a * b).sum(at::IntArrayRef({0, 2}));
  }
  static at::Tensor Times(const at::Tensor& a, const at::Tensor& of_problem) {
    return a * of_problem.view({1, -1, 1});
  }

  at::Tensor Direction() const {
    at::Tensor q = g_.clone();
    std::vector<at::Tensor> alphas(history_.size());
    for (size_t i = history_.size(); i-- > 0;) {
      alphas[i] = history_[i].rho * Dot(history_[i].s, q);
      q -= Times(history_[i].y, alphas[i]);
    }
    if (!history_.empty()) {
      const Pair& last = history_.back();
      const at::Tensor scale = 1 / (last.rho * Dot(last.y, last.y));
      q = Times(q, at::where(last.rho > 0, scale, at::ones_like(scale)));
    }
    for (size_t i = 0; i < history_.size(); ++i) {
      q += Times(history_[i].s, alphas[i] - history_[i].rho * Dot(history_[i].y, q));
    }
    return -q;
  }

  // Runs one iteration of the `active` problems.
  void Step(const at::Tensor& active) {
    const at::Tensor d = Times(Direction(), active);
    const at::Tensor zd = Sums(d);
    const at::Tensor slope = Dot(g_, d), wd = Dot(w_ * penalised_, d), dd = Dot(d * penalised_, d);
    const at::Tensor ww = Dot(w_ * penalised_, w_);
    const int64_t problems = active.size(0);
    at::Tensor t = at::ones_like(active);
    std::vector<double> low(static_cast<size_t>(problems), 0), high(low.size(), INFINITY);
    at::Tensor z, dz, f;
    // Each trial covers all problems, the finished ones with the same step length again, so that
    // the last trial is the step of all.
    for (int trial = 0; trial < kTrials; ++trial) {
      z = z_ + Times(zd, t);
      std::tie(f, dz) = loss_(z);
      f = f + lambda_ / 2 * (ww + 2 * t * wd + t * t * dd);
      const at::Tensor now = Dot(dz, zd) + lambda_ * (wd + t * dd);
      auto length = t.accessor<double, 1>();
      const auto value = f.accessor<double, 1>(), before = f_.accessor<double, 1>();
      const auto first = slope.accessor<double, 1>(), after = now.accessor<double, 1>();
      bool done = true;
      for (int64_t p = 0; p < problems; ++p) {
        const auto i = static_cast<size_t>(p);
        const double allowed =
            before[p] + kDecrease * length[p] * first[p] + kRounding * (1 + std::abs(before[p]));
        const bool too_high = !(value[p] <= allowed);
        if (!too_high && std::abs(after[p]) <= kCurvature * std::abs(first[p])) continue;
        done = false;
        if (too_high || after[p] > 0) {
          high[i] = length[p];
        } else {
          low[i] = length[p];
        }
        length[p] = std::isinf(high[i]) ? 4 * low[i] : (low[i] + high[i]) / 2;
      }
      if (done) break;
    }
    const at::Tensor s = Times(d, t);
    w_ = w_ + s;
    const at::Tensor g = Gradient(dz), y = g - g_, sy = Dot(s, y);
    history_.push_back({s, y, at::where(sy > 0, 1 / sy, at::zeros_like(sy))});
    if (history_.size() > kHistory) history_.pop_front();
    z_ = z;
    f_ = f;
    g_ = g;
  }

  at::Tensor x_, transposed_;
  Loss loss_;
  at::Tensor lambda_, penalised_;
  at::Tensor w_, z_, f_, g_;
  std::deque<Pair> history_;
};

}  // namespace

at::Tensor FitLogistic(const at::Tensor& x, const at::Tensor& labels, const at::Tensor& mask,
                       const at::Tensor& c, const at::Tensor& start, const FitOptions& options) {
  const at::Tensor rows = mask.sum(0);
  const at::Tensor y = (2 * labels - 1).view({-1, 1, 1});
  const at::Tensor share = (mask / rows).unsqueeze(2);
  const Loss loss = [&](const at::Tensor& z) {
    const at::Tensor margin = y * z;
    return std::pair((share * at::softplus(-margin)).sum(at::IntArrayRef({0, 2})),
                     share * y * (at::sigmoid(margin) - 1));
  };
  const at::Tensor from =
      start.defined() ? start : at::zeros({x.size(1) + 1, mask.size(1)}, x.options());
  return Solver(x, loss, 1 / (c * rows), from.unsqueeze(2)).Solve(options).squeeze(2);
}

at::Tensor FitSoftmax(const at::Tensor& x, const at::Tensor& targets, const at::Tensor& c,
                      const FitOptions& options) {
  const auto rows = static_cast<double>(x.size(0));
  const at::Tensor wanted = targets.unsqueeze(1) / rows;
  const Loss loss = [&](const at::Tensor& z) {
    const at::Tensor log = z.log_softmax(2);
    return std::pair(-(wanted * log).sum(at::IntArrayRef({0, 2})), log.exp() / rows - wanted);
  };
  const at::Tensor from = at::zeros({x.size(1) + 1, c.size(0), targets.size(1)}, x.options());
  return Solver(x, loss, 1 / (c * rows), from).Solve(options);
}

at::Tensor Predict(const at::Tensor& x, const at::Tensor& coefficients) {
  std::vector<int64_t> sizes = coefficients.sizes().vec();
  sizes[0] = x.size(0);
  const at::Tensor w = coefficients.flatten(1);
  return at::addmm(w[-1], x, w.slice(0, 0, -1)).view(sizes);
}

}  // namespace planish::lab
