#ifndef PLANISH_BENCH_RNN_CASE_H_
#define PLANISH_BENCH_RNN_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planish/rnn.h"

// What is measured: one mode of recurrent layers over one shape, in float, by several contestants
// that get the same arrays. docs/performance.md says how, and what came out.
namespace planish::bench::rnn {

enum class Mode : uint8_t {
  kForward,   ///< a sequence, nothing saved
  kTraining,  ///< a sequence forward and backward: the gradients of x and of all parameters
  kStep,      ///< one step from a given state, weights packed beforehand where that is offered
};

struct Case {
  Mode mode = Mode::kForward;
  RnnShape shape;  ///< with Mode::kStep of time 1
};

inline constexpr double kEps = 1e-5;

/// "forward", "training", "step", and back. The latter throws std::invalid_argument.
const char* Name(Mode mode);
Mode ParseMode(const std::string& name);

/// "100x32x256x256", time x batch x inputs x hidden, and back; throws std::invalid_argument for
/// another text.
std::string ShapeName(const RnnShape& shape);
RnnShape ParseShape(const std::string& shape);

/// "ln-lstm", "gru" and so on, of all cells, and back; throws std::invalid_argument.
std::vector<std::string> CellNames();
Cell ParseCell(const std::string& name);

/// Multiply-adds of the products of a call, forward, and backward twice as many.
double MultiplyAdds(Cell cell, const Case& c);

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_CASE_H_
