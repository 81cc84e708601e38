#ifndef PLANISH_BENCH_RNN_ARRAYS_H_
#define PLANISH_BENCH_RNN_ARRAYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/rnn/case.h"
#include "lab/bench/contestant.h"
#include "lab/bench/pages.h"
#include "planish/rnn.h"

namespace planish::bench::rnn {

/// The arrays of a case, for every cell: parameters are as large as the largest cell's, of which a
/// cell takes the first numbers.
struct Arrays {
  const float* x = nullptr;    ///< [T, B, I]
  const float* dy = nullptr;   ///< [T, B, H] Mode::kTraining
  const float* h = nullptr;    ///< [B, H] Mode::kStep: the state before the step; else it is zeros
  const float* c = nullptr;    ///< [B, H] likewise, of the LSTMs
  RnnParams<const float> all;  ///< ParamsFor has those of a cell
  float* y = nullptr;          ///< [T, B, H]
  float* dx = nullptr;         ///< [T, B, I] Mode::kTraining
  RnnParams<float> dall;       ///< Mode::kTraining
  float* saved = nullptr;      ///< Mode::kTraining: what any cell saves
};

/// Those of `all` that the cell takes.
RnnParams<const float> ParamsFor(Cell cell, const RnnShape& shape, const Arrays& arrays);
RnnParams<float> GradientsFor(Cell cell, const RnnShape& shape, const Arrays& arrays);

/// The arrays of one case after the other, which share their memory.
class Arena {
 public:
  /// Arrays for `c`, valid until the next call. Throws planish::Error for a shape that is too
  /// large, std::bad_alloc where there is no memory for it. x, dy, h and c are uniform with
  /// variance 1 (h and c: in [-1, 1]). Weights are uniform within 1 / sqrt(H), as PyTorch's are at
  /// first, biases within 0.5, gains in [0.5, 1.5] but those that h goes through, which are in
  /// [0.1, 0.3]: an LN-LSTM with gains of 1 is chaotic, and rounding alone makes two right results
  /// differ.
  Arrays For(const Case& c);

 private:
  Pages pages_;
};

/// A cell's results in a case, computed by Planish in double.
class Reference {
 public:
  Reference(Cell cell, const Case& c, const Arrays& arrays);

  /// Overwrites with NaN what will be compared, so that nothing passes that was not written.
  void Poison() const;

  /// Empty when the results in the arrays are right, else what is wrong, as "dx is off by 0.5,
  /// numbers are up to 2 and 1e-05 of that allowed".
  ///
  /// Allowed is, relative to the largest number of an array, 2^-24 times Slack(): 8 * sqrt(n). A
  /// sum of n products is off by about sqrt(n) units in the last place of its largest terms, n
  /// being I + H forward, and beside that T * B in training; what a step gets wrong the next ones
  /// multiply by less than 1 each, which adds up to some such errors. Right results take up to a
  /// quarter of it.
  std::string Compare() const;
  static double Slack(const Case& c);

 private:
  struct Output {
    const char* name;
    float* given;
    std::vector<double> right;
  };
  Case case_;
  std::vector<Output> outputs_;
};

/// Calls the contestant once and compares: Reference::Compare's text.
std::string CheckContestant(const Contestant& contestant, const Reference& reference);

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_ARRAYS_H_
