#include "lab/bench/arena.h"

#include <cmath>
#include <cstdint>

#include "lab/bench/reference.h"
#include "lab/bench/threads.h"
#include "lab/bench/types.h"
#include "lab/bench/uniform.h"

namespace planish::bench {

namespace {

// Fills with centre + radius * [-1, 1), different values for each `seed`.
void Fill(Type type, void* data, int64_t n, uint64_t seed, double centre, double radius) {
  VisitType(type, [&]<class T>() {
    T* values = static_cast<T*>(data);
    TorchThreads()(0, n, int64_t{1} << 16, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double u = Uniform((seed << 48) + static_cast<uint64_t>(i));
        values[i] = FromDouble<T>(centre + radius * u);
      }
    });
  });
}

}  // namespace

Arrays Arena::For(const Case& c) {
  const size_t bytes = static_cast<size_t>(c.elements()) * SizeOf(c.type);
  bool refill = c.type != type_ || c.elements() > filled_;
  refill |= Grow(x_, bytes);
  refill |= Grow(dy_, bytes);
  Grow(out_, bytes);
  const double radius = std::sqrt(3.0);
  if (refill) {
    Fill(c.type, x_.get(), c.elements(), 1, 0, radius);
    Fill(c.type, dy_.get(), c.elements(), 2, 0, radius);
    type_ = c.type;
    filled_ = c.elements();
    gate_filled_ = 0;
  }
  if (c.gated) {
    Grow(dgate_, bytes);
    if (Grow(gate_, bytes) || gate_filled_ < c.elements()) {
      Fill(c.type, gate_.get(), c.elements(), 5, 0, radius);
      gate_filled_ = c.elements();
    }
  }
  // The small arrays are consecutive with a gap, as an allocator of aligned memory places them.
  const Type parameter = ParameterType(c.type);
  const auto stride = [&](int64_t n) {
    return (static_cast<size_t>(n) * SizeOf(parameter) + 63) / 64 * 64 + 64;
  };
  const size_t row = stride(c.cols), column = stride(c.rows * c.spatial);
  const size_t pair = stride(2);
  Grow(parameters_, 4 * row + 2 * pair);
  Grow(statistics_, 2 * column);
  char* parameters = static_cast<char*>(parameters_.get());
  char* statistics = static_cast<char*>(statistics_.get());
  Fill(parameter, parameters, c.cols, 3, 1, 0.5);
  Fill(parameter, parameters + row, c.cols, 4, 0, 1);
  char* scalars = parameters + 4 * row;
  Fill(parameter, scalars, 1, 0, 0.5, 0);
  Fill(parameter, scalars + SizeOf(parameter), 1, 0, 0.25, 0);
  Arrays arrays = {.x = x_.get(),
                   .gain = parameters,
                   .bias = parameters + row,
                   .out = out_.get(),
                   .gate = c.gated ? gate_.get() : nullptr,
                   .scalars = scalars};
  if (c.direction == Direction::kBackward) {
    FillStatistics(Over::kRow, c, arrays.x, statistics, statistics + column);
    arrays.dy = dy_.get();
    arrays.mean = statistics;
    arrays.rstd = statistics + column;
    arrays.dgain = parameters + 2 * row;
    arrays.dbias = parameters + 3 * row;
    arrays.dscalars = scalars + pair;
    if (c.gated) arrays.dgate = dgate_.get();
  }
  return arrays;
}

}  // namespace planish::bench
