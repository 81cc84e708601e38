#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "planish/online_norm.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/online/alpha_rule.h"
#include "src/norm/online/cpu.h"
#include "src/norm/params.h"

namespace planish {
inline namespace PLANISH_API {
namespace {

void CheckOnline(const char* function, const OnlineNormOptions& options, int64_t rows,
                 int64_t cols) {
  internal::CheckCases(function, cols);
  if (options.alphas == nullptr) return internal::CheckAlpha(function, "alpha", options.alpha);
  for (int64_t r = 0; r < rows; ++r) {
    internal::CheckAlpha(function, "alphas[" + std::to_string(r) + "]", options.alphas[r]);
  }
}

/// Returns alpha_t of case t.
double AlphaOf(const AlphaSchedule& schedule, int64_t t) {
  if (schedule.rule == AlphaRule::kConstant) return schedule.alpha;
  const double inverse = 1 / static_cast<double>(t);
  return schedule.rule == AlphaRule::kInverse ? inverse : std::max(schedule.alpha, inverse);
}

}  // namespace

void FillAlphas(const AlphaSchedule& schedule, int64_t first, int64_t count, double* alphas) {
  constexpr const char* kFunction = "FillAlphas";
  const auto is_rule = [&](const auto& row) { return row.rule == schedule.rule; };
  if (!std::ranges::any_of(internal::kAlphaRules, is_rule)) {
    internal::Fail(kFunction, "schedule.rule", "be a value of planish::AlphaRule",
                   std::to_string(static_cast<int>(schedule.rule)));
  }
  internal::CheckAlpha(kFunction, "schedule.alpha", schedule.alpha);
  if (count < 0) internal::Fail(kFunction, "count", "be at least 0", std::to_string(count));
  if (const int64_t max = std::numeric_limits<int64_t>::max() - count; first < 1 || first > max) {
    internal::Fail(kFunction, "first", "be in [1, " + std::to_string(max) + "]",
                   std::to_string(first));
  }
  if (count > 0 && alphas == nullptr) {
    internal::Fail(kFunction, "alphas", "point to " + std::to_string(count) + " doubles", "null");
  }
  for (int64_t i = 0; i < count; ++i) alphas[i] = AlphaOf(schedule, first + i);
}

template <class T, class P>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState& state,
                       const OnlineNormOptions& options) {
  constexpr const char* kFunction = "OnlineNormForward";
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  CheckOnline(kFunction, options, rows, cols);
  internal::CheckFinite(kFunction, "state.mean", state.mean);
  if (!std::isfinite(state.deviation) || state.deviation < 0) {
    internal::Fail(kFunction, "state.deviation", "be finite and at least 0",
                   internal::Text(state.deviation));
  }
  internal::CheckArrays(kFunction, args);
  if (rows == 0) return;
  internal::ForwardOnline(args, state, options);
}

template <class T, class P>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options) {
  constexpr const char* kFunction = "OnlineNormBackward";
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  CheckOnline(kFunction, options, rows, cols);
  internal::CheckArrays(kFunction, args);
  if (rows == 0) {
    internal::FillEach({args.dgain, args.dbias}, cols, P{});
    return;
  }
  internal::BackwardOnline(args, options);
}

#define PLANISH_INSTANTIATE(T, P)                                                   \
  template void OnlineNormForward(const OnlineNormForwardArgs<T, P>&, OnlineState&, \
                                  const OnlineNormOptions&);                        \
  template void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>&, const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
