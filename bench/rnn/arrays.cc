#include "bench/rnn/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "lab/bench/threads.h"
#include "lab/bench/uniform.h"
#include "planish/types.h"
#include "src/base/aligned.h"
#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

using internal::kParams;
using internal::RecipeOf;

// Centre and radius of a parameter's values.
struct Spread {
  double centre, radius;
};

Spread SpreadOf(std::string_view parameter, const RnnShape& shape) {
  if (parameter.starts_with("weight_")) {
    return {0, 1 / std::sqrt(static_cast<double>(shape.hidden))};
  }
  if (parameter == "ln_hh_weight" || parameter == "ln_weight") return {0.2, 0.1};
  if (parameter.ends_with("_weight")) return {1, 0.5};
  return {0, 0.5};
}

// Returns the number of elements of each parameter, of the largest cell.
std::array<int64_t, kParams> SizesOf(const RnnShape& shape) {
  std::array<int64_t, kParams> sizes{};
  for (const Cell cell : internal::kCells) {
    const auto params = internal::ParamsOf<float>(RecipeOf(cell), shape);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (params[i].taken) sizes[i] = std::max(sizes[i], params[i].size);
    }
  }
  return sizes;
}

int64_t LargestSaved(const RnnShape& shape) {
  int64_t largest = 0;
  for (const Cell cell : internal::kCells) {
    if (shape.projected > 0 && !RecipeOf(cell).is_lstm()) continue;
    largest = std::max(largest, RnnSavedSize<float>(cell, shape));
  }
  return largest;
}

void Fill(float* data, int64_t n, uint64_t seed, Spread spread) {
  TorchThreads()(0, n, int64_t{1} << 16, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double u = Uniform((seed << 48) + static_cast<uint64_t>(i));
      data[i] = static_cast<float>(spread.centre + spread.radius * u);
    }
  });
}

template <class E>
RnnParams<E> Taken(Cell cell, const RnnShape& shape, const RnnParams<E>& all) {
  RnnParams<E> taken;
  for (const auto& param : internal::ParamsOf<E>(RecipeOf(cell), shape)) {
    if (param.taken) taken.*param.member = all.*param.member;
  }
  return taken;
}

std::vector<double> ToDouble(const float* data, int64_t n) { return {data, data + n}; }

// Allocates cache-line aligned parts of one block of memory; without memory it only counts.
class Parts {
 public:
  explicit Parts(float* memory) : memory_(memory) {}
  float* Next(int64_t n) {
    float* part = memory_ == nullptr ? nullptr : memory_ + used_;
    // One line between them, as an allocator of aligned memory places arrays.
    constexpr int64_t kLine = internal::kAlignment / static_cast<int64_t>(sizeof(float));
    used_ += (n + kLine - 1) / kLine * kLine + kLine;
    return part;
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// The most vectors of H elements in a cell state.
constexpr int64_t kCellParts = 2;

Arrays Place(const Case& c, Parts& parts) {
  const RnnShape& s = c.shape;
  const int64_t steps = s.time * s.batch;
  Arrays arrays{.x = parts.Next(steps * s.inputs), .y = parts.Next(steps * s.outputs())};
  if (c.mode == Mode::kStep) {
    arrays.h = parts.Next(steps * s.outputs());
    arrays.c = parts.Next(kCellParts * steps * s.hidden);
  }
  const auto sizes = SizesOf(s);
  const auto params = internal::ParamsOf<const float>(RecipeOf(Cell::kLnLstm), s);
  for (size_t i = 0; i < sizes.size(); ++i) arrays.all.*params[i].member = parts.Next(sizes[i]);
  if (c.mode == Mode::kTraining) {
    arrays.dy = parts.Next(steps * s.outputs());
    arrays.dx = parts.Next(steps * s.inputs);
    const auto gradients = internal::ParamsOf<float>(RecipeOf(Cell::kLnLstm), s);
    for (size_t i = 0; i < sizes.size(); ++i) {
      arrays.dall.*gradients[i].member = parts.Next(sizes[i]);
    }
    arrays.saved = parts.Next(LargestSaved(s));
  }
  return arrays;
}

}  // namespace

RnnParams<const float> ParamsFor(Cell cell, const RnnShape& shape, const Arrays& arrays) {
  return Taken(cell, shape, arrays.all);
}

RnnParams<float> GradientsFor(Cell cell, const RnnShape& shape, const Arrays& arrays) {
  return Taken(cell, shape, arrays.dall);
}

Arrays Arena::For(const Case& c) {
  LargestSaved(c.shape);  // throws if sizes overflow
  Parts count(nullptr);
  Place(c, count);
  Grow(pages_, static_cast<size_t>(count.used()) * sizeof(float));
  Parts parts(static_cast<float*>(pages_.get()));
  const Arrays arrays = Place(c, parts);
  const RnnShape& s = c.shape;
  const int64_t steps = s.time * s.batch;
  const Spread unit{0, std::sqrt(3.0)};
  uint64_t seed = 0;
  const auto fill = [&](const float* data, int64_t n, Spread spread) {
    ++seed;
    if (data != nullptr) Fill(const_cast<float*>(data), n, seed, spread);  // our own pages
  };
  fill(arrays.x, steps * s.inputs, unit);
  fill(arrays.dy, steps * s.outputs(), unit);
  fill(arrays.h, steps * s.outputs(), {0, 1});
  fill(arrays.c, kCellParts * steps * s.hidden, {0, 1});
  const auto sizes = SizesOf(s);
  const auto params = internal::ParamsOf<const float>(RecipeOf(Cell::kLnLstm), s);
  for (size_t i = 0; i < sizes.size(); ++i) {
    fill(arrays.all.*params[i].member, sizes[i], SpreadOf(params[i].name, s));
  }
  return arrays;
}

namespace {

/// Rounds a weight matrix with rows of `columns` elements as RnnPackedParams does.
void Round(int64_t columns, WeightType type, std::vector<double>& weight) {
  for (size_t row = 0; row < weight.size(); row += static_cast<size_t>(columns)) {
    const std::span<double> values(weight.data() + row, static_cast<size_t>(columns));
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    const double scale = largest / 127;
    for (double& value : values) {
      if (type == WeightType::kBfloat16) value = ToFloat(ToBfloat16(static_cast<float>(value)));
      if (type == WeightType::kInt8) value = std::nearbyint(value / scale) * scale;
    }
  }
}

}  // namespace

Reference::Reference(Cell cell, const Case& c, const Arrays& arrays, WeightType type)
    : case_(c), type_(type) {
  const RnnShape& s = c.shape;
  const int64_t steps = s.time * s.batch;
  const RnnOptions<double> options{.eps = kEps, .parallel_for = TorchThreads()};
  const auto recipe = RecipeOf(cell);
  std::array<std::vector<double>, kParams> params;
  RnnParams<const double> given;
  const auto members = internal::ParamsOf<const double>(recipe, s);
  const auto floats = internal::ParamsOf<const float>(recipe, s);
  for (size_t i = 0; i < params.size(); ++i) {
    if (!members[i].taken) continue;
    params[i] = ToDouble(arrays.all.*floats[i].member, members[i].size);
    const std::string_view name = members[i].name;
    if (name == "weight_ih") Round(s.inputs, type, params[i]);
    if (name == "weight_hh") Round(s.outputs() / s.heads, type, params[i]);
    if (name == "weight_hr") Round(s.hidden, type, params[i]);
    given.*members[i].member = params[i].data();
  }
  const std::vector<double> x = ToDouble(arrays.x, steps * s.inputs);
  outputs_.push_back({"y", arrays.y, std::vector<double>(steps * s.outputs())});
  if (c.mode == Mode::kStep) {
    const std::vector<double> h = ToDouble(arrays.h, steps * s.outputs());
    const std::vector<double> state = ToDouble(arrays.c, recipe.cell_parts() * steps * s.hidden);
    RnnStep<double>(cell,
                    {.batch = s.batch,
                     .inputs = s.inputs,
                     .hidden = s.hidden,
                     .x = x.data(),
                     .params = given,
                     .h = h.data(),
                     .c = recipe.is_lstm() ? state.data() : nullptr,
                     .h_next = outputs_[0].right.data(),
                     .projected = s.projected,
                     .heads = s.heads},
                    options);
    return;
  }
  const RnnInputs<double> inputs{.shape = s, .x = x.data(), .params = given};
  RnnForwardArgs<double> forward{.inputs = inputs, .y = outputs_[0].right.data()};
  std::vector<double> saved;
  if (c.mode == Mode::kTraining) {
    saved.resize(RnnSavedSize<double>(cell, s));
    forward.saved = saved.data();
  }
  RnnForward(cell, forward, options);
  if (c.mode == Mode::kForward) return;
  const std::vector<double> dy = ToDouble(arrays.dy, steps * s.outputs());
  std::vector<double> dx(steps * s.inputs);
  RnnBackwardArgs<double> backward{
      .inputs = inputs, .y = forward.y, .saved = saved.data(), .dy = dy.data(), .dx = dx.data()};
  std::array<std::vector<double>, kParams> gradients;
  const auto wanted = internal::ParamsOf<double>(recipe, s);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!wanted[i].taken) continue;
    gradients[i].resize(wanted[i].size);
    backward.dparams.*wanted[i].member = gradients[i].data();
  }
  RnnBackward(cell, backward, options);
  outputs_.push_back({"dx", arrays.dx, std::move(dx)});
  const auto outputs = internal::ParamsOf<float>(recipe, s);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!wanted[i].taken) continue;
    float* given_gradient = arrays.dall.*outputs[i].member;
    outputs_.push_back({outputs[i].name, given_gradient, std::move(gradients[i])});
  }
}

void Reference::Poison() const {
  for (const Output& output : outputs_) {
    std::fill_n(output.given, output.right.size(), std::numeric_limits<float>::quiet_NaN());
  }
}

double Reference::Slack(const Case& c) {
  const auto root = [](int64_t n) { return std::sqrt(static_cast<double>(n)); };
  const RnnShape& s = c.shape;
  const double forward = root(s.inputs + s.hidden);
  return 8 * (c.mode == Mode::kTraining ? forward + root(s.time * s.batch) : forward);
}

std::string Reference::Compare() const {
  const double allowed = (type_ == WeightType::kInt8 ? 0x1p-16 : 0x1p-24) * Slack(case_);
  for (const Output& output : outputs_) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < output.right.size(); ++i) {
      const double off = std::abs(output.given[i] - output.right[i]);
      if (!(off <= worst)) worst = off;  // also true for NaN
      if (std::isnan(worst)) break;
      largest = std::max(largest, std::abs(output.right[i]));
    }
    if (!(worst <= allowed * largest)) {
      const bool gradient = output.name[0] != 'y' && std::string_view(output.name) != "dx";
      return fmt::format(
          "{}{} is off by {:.2g}; the largest value is {:.2g}, the tolerance {:.2g} of that",
          gradient ? "the gradient of " : "", output.name, worst, largest, allowed);
    }
  }
  return "";
}

std::string CheckContestant(const Contestant& contestant, const Reference& reference) {
  reference.Poison();
  contestant.call();
  if (contestant.fetch) contestant.fetch();
  return reference.Compare();
}

}  // namespace planish::bench::rnn
