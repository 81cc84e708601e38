#ifndef PLANISH_SRC_RNN_KINDS_TESTING_H_
#define PLANISH_SRC_RNN_KINDS_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "src/rnn/cell.h"

// The kinds of layers that tests of recurrent layers run on.
namespace planish::tests {

/// The form of weight_hh.
enum class Recurrence : uint8_t { kDense, kProjected, kHeads };

/// A cell, and the form of its recurrence.
struct Kind {
  Cell cell;
  Recurrence recurrence;
};

/// All cells, with every recurrence that they can have.
inline const std::vector<Kind> kKinds = [] {
  std::vector<Kind> kinds;
  for (const Recurrence recurrence :
       {Recurrence::kDense, Recurrence::kProjected, Recurrence::kHeads}) {
    for (const Cell cell : internal::kCells) {
      const bool lstm = internal::RecipeOf(cell).is_lstm();
      if (recurrence != Recurrence::kProjected || lstm) kinds.push_back({cell, recurrence});
    }
  }
  return kinds;
}();

/// All cells, and a few with each other recurrence: for what depends on the recurrence but not on
/// the cell, as the division of work among threads does.
inline const std::vector<Kind> kSomeKinds = [] {
  std::vector<Kind> kinds;
  for (const Cell cell : internal::kCells) kinds.push_back({cell, Recurrence::kDense});
  for (const Cell cell : {Cell::kLstm, Cell::kLnLstm, Cell::kLnLstmContrib}) {
    kinds.push_back({cell, Recurrence::kProjected});
  }
  for (const Cell cell : {Cell::kRnn, Cell::kLnLstm, Cell::kGru, Cell::kSlstm}) {
    kinds.push_back({cell, Recurrence::kHeads});
  }
  return kinds;
}();

/// Returns the name of a kind in tests: "ln_lstm", "ln_lstm_heads", ...
inline std::string NameOf(const Kind& kind) {
  const char* const ends[] = {"", "_projected", "_heads"};
  return std::string(internal::NameOf(kind.cell)) + ends[static_cast<size_t>(kind.recurrence)];
}

/// Returns the shape with a projection to about half of the units, or with the least number of
/// heads above one. For a prime number of units, each is a head.
inline RnnShape Shaped(RnnShape shape, Recurrence recurrence) {
  if (recurrence == Recurrence::kProjected) shape.projected = shape.hidden / 2;
  if (recurrence == Recurrence::kHeads && shape.hidden > 1) {
    shape.heads = 2;
    while (shape.hidden % shape.heads != 0) ++shape.heads;
  }
  return shape;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_RNN_KINDS_TESTING_H_
