#ifndef PLANISH_SRC_NORM_CHECK_H_
#define PLANISH_SRC_NORM_CHECK_H_

#include <cstdint>
#include <string>

#include "planish/types.h"
#include "src/base/check.h"
#include "src/norm/arguments.h"
#include "src/norm/recipe.h"

// Argument checks of the norms, for CPU and GPU.
namespace planish::internal {

/// Checks that rows and cols are at least 0. Checks that [rows, cols] arrays of T and [rows] arrays
/// of statistics are addressable.
template <class T>
void CheckShape(const char* function, int64_t rows, int64_t cols) {
  if (rows < 0) Fail(function, "rows", "be at least 0", std::to_string(rows));
  if (cols < 0) Fail(function, "cols", "be at least 0", std::to_string(cols));
  const int64_t max_elements = INT64_MAX / static_cast<int64_t>(sizeof(T));
  if (cols > max_elements / (rows > 0 ? rows : 1)) {
    Fail(function, "rows * cols", "be at most " + std::to_string(max_elements),
         std::to_string(rows) + " * " + std::to_string(cols));
  }
  const int64_t max_rows = INT64_MAX / static_cast<int64_t>(sizeof(Compute<T>));
  if (rows > max_rows) {
    Fail(function, "rows", "be at most " + std::to_string(max_rows), std::to_string(rows));
  }
}

/// Checks that sizes are at least 0. Checks that arrays of T and of statistics are addressable if
/// their size is the product of two or three of the sizes. Returns the product of all three.
template <class T>
int64_t CheckChannels(const char* function, int64_t batch, int64_t channels, int64_t spatial) {
  const auto check = [&](const char* name, int64_t size) {
    if (size < 0) Fail(function, name, "be at least 0", std::to_string(size));
  };
  check("batch", batch);
  check("channels", channels);
  check("spatial", spatial);
  const auto at_least_one = [](int64_t size) { return size > 0 ? size : 1; };
  const int64_t max_elements = INT64_MAX / static_cast<int64_t>(sizeof(Compute<T>));
  if (at_least_one(channels) > max_elements / at_least_one(batch) ||
      spatial > max_elements / (at_least_one(channels) * at_least_one(batch))) {
    Fail(
        function, "batch * channels * spatial", "be at most " + std::to_string(max_elements),
        std::to_string(batch) + " * " + std::to_string(channels) + " * " + std::to_string(spatial));
  }
  return batch * channels * spatial;
}

/// Checks the options of a norm of rows or channels. `count` groups of `length` elements are
/// normalized, and `length_name` is the argument that sets the length.
template <class Options>
void CheckOptions(const char* function, const Recipe& recipe, const Options& options,
                  const char* length_name, int64_t length, int64_t count) {
  CheckEps(function, options.eps);
  CheckFinite(function, "scale", options.scale);
  CheckFinite(function, "slope", options.slope);
  if (recipe.deviation == Deviation::kUnbiasedPlusEps && length == 1 && count > 0) {
    Fail(function, length_name, "be at least 2 for a norm with the unbiased deviation", "1");
  }
}

/// Checks the sizes of a call of NormForward or NormBackward.
template <template <class, class> class Args, class T, class P>
void CheckRowSizes(const char* function, const Args<T, P>& args) {
  CheckShape<T>(function, args.rows, args.cols);
  if (args.sets < 1) Fail(function, "sets", "be at least 1", std::to_string(args.sets));
  if (args.rows % args.sets != 0) {
    Fail(function, "rows", "be a multiple of sets (" + std::to_string(args.sets) + ")",
         std::to_string(args.rows));
  }
  const int64_t max = INT64_MAX / static_cast<int64_t>(sizeof(Compute<T>));
  if (args.cols > max / args.sets) {
    Fail(function, "sets * cols", "be at most " + std::to_string(max),
         std::to_string(args.sets) + " * " + std::to_string(args.cols));
  }
  const int64_t rows = args.rows / args.sets;
  if (args.set_rows != 0 && args.set_rows != 1 && args.set_rows != rows) {
    Fail(function, "set_rows", "be 0, 1 or rows / sets (" + std::to_string(rows) + ")",
         std::to_string(args.set_rows));
  }
}

/// Checks a call of NormForward or NormBackward. Returns its arguments with all strides set.
template <template <class, class> class Args, class T, class P, class Options>
Args<T, P> CheckRowNorm(const char* function, const Recipe& recipe, Args<T, P> args,
                        const Options& options) {
  CheckRowSizes(function, args);
  CheckOptions(function, recipe, options, "cols", args.cols, args.rows);
  SetStrides(function, args, recipe);
  CheckArrays(function, args, recipe);
  return args;
}

/// Checks a call of ChannelNormForward or ChannelNormBackward. Returns the number of elements.
template <template <class, class> class Args, class T, class P, class Options>
int64_t CheckChannelNorm(const char* function, const Recipe& recipe, const Args<T, P>& args,
                         const Options& options) {
  const int64_t total = CheckChannels<T>(function, args.batch, args.channels, args.spatial);
  CheckOptions(function, recipe, options, "channels", args.channels, args.batch * args.spatial);
  CheckArrays(function, args, recipe);
  return total;
}

/// Checks and returns the weight of a batch in the running estimates.
template <class Options>
double CheckedMomentum(const char* function, const Options& options) {
  if (options.batches < 0) {
    Fail(function, "batches", "be at least 0", std::to_string(options.batches));
  }
  if (!options.momentum) return 1 / (static_cast<double>(options.batches) + 1);
  if (!(*options.momentum >= 0 && *options.momentum <= 1)) {
    Fail(function, "momentum", "be in [0, 1]", Text(*options.momentum));
  }
  return *options.momentum;
}

/// Checks that there are enough elements in a channel for an unbiased variance if `needed`.
template <class Args>
void CheckUnbiased(const char* function, const Args& args, bool needed) {
  if (needed && args.channels > 0 && args.batch * args.spatial == 1) {
    Fail(function, "batch * spatial", "be at least 2 for an unbiased variance", "1");
  }
}

/// Check calls of the BatchNorm functions. Return the number of elements.
template <class T, class P, class Options>
int64_t CheckBatchNorm(const char* function, const BatchNormForwardArgs<T, P>& args,
                       const Options& options) {
  const int64_t total = CheckChannels<T>(function, args.batch, args.channels, args.spatial);
  CheckEps(function, options.eps);
  CheckedMomentum(function, options);
  CheckUnbiased(function, args, options.unbiased || args.running_var != nullptr);
  CheckArrays(function, args);
  return total;
}
template <class T, class P, class Options>
int64_t CheckBatchNorm(const char* function, const BatchNormBackwardArgs<T, P>& args,
                       const Options& options) {
  const int64_t total = CheckChannels<T>(function, args.batch, args.channels, args.spatial);
  CheckUnbiased(function, args, options.unbiased);
  CheckArrays(function, args);
  return total;
}
template <template <class, class> class Args, class T, class P, class Options>
int64_t CheckBatchEvaluate(const char* function, const Args<T, P>& args, const Options& options) {
  const int64_t total = CheckChannels<T>(function, args.batch, args.channels, args.spatial);
  CheckEps(function, options.eps);
  CheckArrays(function, args);
  return total;
}

/// Checks the sizes of a call of GroupNormForward or GroupNormBackward. Returns the number of
/// elements.
template <class T, class Args>
int64_t CheckGroupSizes(const char* function, const Args& args) {
  const int64_t total = CheckChannels<T>(function, args.batch, args.channels, args.spatial);
  if (args.groups < 1) Fail(function, "groups", "be at least 1", std::to_string(args.groups));
  if (args.channels % args.groups != 0) {
    Fail(function, "groups", "divide channels (" + std::to_string(args.channels) + ")",
         std::to_string(args.groups));
  }
  const int64_t max = INT64_MAX / static_cast<int64_t>(sizeof(Compute<T>));
  if (args.batch > max / args.groups) {  // samples without channels have statistics
    Fail(function, "batch * groups", "be at most " + std::to_string(max),
         std::to_string(args.batch) + " * " + std::to_string(args.groups));
  }
  return total;
}

/// Checks a call of GroupNormForward or GroupNormBackward. Returns the number of elements.
template <template <class, class> class Args, class T, class P, class Options>
int64_t CheckGroupNorm(const char* function, const Args<T, P>& args, const Options& options) {
  const int64_t total = CheckGroupSizes<T>(function, args);
  CheckEps(function, options.eps);
  CheckArrays(function, args);
  return total;
}

/// Checks a call of WeightNormForward or WeightNormBackward.
template <template <class, class> class Args, class T, class P>
void CheckWeightNorm(const char* function, const Args<T, P>& args) {
  CheckShape<T>(function, args.rows, args.cols);
  CheckArrays(function, args);
}

/// Checks a call of PointwiseNormForward or PointwiseNormBackward.
template <template <class, class> class Args, class T, class P>
void CheckPointwise(const char* function, Pointwise f, const Args<T, P>& args) {
  if (f != Pointwise::kTanh && f != Pointwise::kErf) {
    Fail(function, "function", "be a value of planish::Pointwise",
         std::to_string(static_cast<int>(f)));
  }
  CheckShape<T>(function, args.rows, args.cols);
  CheckArrays(function, args);
}

inline void CheckAlpha(const char* function, const std::string& name, double alpha) {
  if (!(alpha >= 0 && alpha <= 1)) Fail(function, name, "be in [0, 1]", Text(alpha));
}

/// Checks the number of elements of a case of online normalization.
inline void CheckCases(const char* function, int64_t cols) {
  if (cols < 2) {
    Fail(function, "cols", "be at least 2 for the unbiased deviation", std::to_string(cols));
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHECK_H_
