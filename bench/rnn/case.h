#ifndef PLANISH_BENCH_RNN_CASE_H_
#define PLANISH_BENCH_RNN_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planish/rnn.h"

// A case of a measurement: one mode of recurrent layers and one shape, in float. Several
// contestants run it on the same arrays. docs/performance.md has method and results.
namespace planish::bench::rnn {

enum class Mode : uint8_t {
  kForward,   ///< a sequence, nothing saved
  kTraining,  ///< a sequence forward and backward: the gradients of x and of all parameters
  kStep,      ///< one step from a given state, with packed weights if possible
};

struct Case {
  Mode mode = Mode::kForward;
  RnnShape shape;  ///< time 1 for Mode::kStep
};

inline constexpr double kEps = 1e-5;

/// Names of modes ("forward", "training", "step"), and their parser. The parser throws
/// std::invalid_argument.
const char* Name(Mode mode);
Mode ParseMode(const std::string& name);

/// Shape as text, "100x32x256x256" (time x batch x inputs x hidden), and its parser, which throws
/// std::invalid_argument.
std::string ShapeName(const RnnShape& shape);
RnnShape ParseShape(const std::string& shape);

/// Names of all cells ("ln-lstm", "gru"), and their parser, which throws std::invalid_argument.
std::vector<std::string> CellNames();
Cell ParseCell(const std::string& name);

/// Returns the multiply-adds of a call's GEMMs: forward, plus twice as many for backward.
double MultiplyAdds(Cell cell, const Case& c);

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_CASE_H_
