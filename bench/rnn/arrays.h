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

/// Arrays of a case, for every cell. Parameters have the size of the largest cell; a cell uses the
/// first elements.
struct Arrays {
  const float* x = nullptr;   ///< [T, B, I]
  const float* dy = nullptr;  ///< [T, B, H] Mode::kTraining
  const float* h = nullptr;   ///< [B, H] Mode::kStep: the state before the step; else zeros
  const float* c = nullptr;  ///< [B, H] Mode::kStep: the cell state of the LSTMs; [B, 2H] for slstm
  RnnParams<const float> all;  ///< ParamsFor returns those of a cell
  float* y = nullptr;          ///< [T, B, H]
  float* dx = nullptr;         ///< [T, B, I] Mode::kTraining
  RnnParams<float> dall;       ///< Mode::kTraining
  float* saved = nullptr;      ///< Mode::kTraining: saved by forward, of any cell
};

/// Returns the parameters in `all` that the cell uses.
RnnParams<const float> ParamsFor(Cell cell, const RnnShape& shape, const Arrays& arrays);
RnnParams<float> GradientsFor(Cell cell, const RnnShape& shape, const Arrays& arrays);

/// Arrays of successive cases, which share their memory.
class Arena {
 public:
  /// Returns arrays for `c`, valid until the next call. Throws planish::Error for a shape that is
  /// too large, and std::bad_alloc.
  ///
  /// Values are random. Gains on h are in [0.1, 0.3], because an LN-LSTM with gains of 1 is
  /// chaotic: rounding makes two right results differ.
  Arrays For(const Case& c);

 private:
  Pages pages_;
};

/// Results of a cell in a case, computed by Planish in double.
class Reference {
 public:
  /// Computes the results of weights that are rounded to `type`.
  Reference(Cell cell, const Case& c, const Arrays& arrays, WeightType type = WeightType::kFull);

  /// Fills the elements to compare with NaN, so that unwritten ones fail.
  void Poison() const;

  /// Returns an empty text if the results in the arrays are right, else an error: "dx is off by
  /// 0.5; the largest value is 2, the tolerance 1e-05 of that". The tolerance, relative to the
  /// largest value of an array, is 2^-24 * Slack(), with int8 weights 2^-16 * Slack(), because they
  /// multiply inputs and states that are rounded to int16.
  std::string Compare() const;
  /// Returns 8 * sqrt(n), where n is I + H forward, plus T * B in training. A sum of n products has
  /// an error of about sqrt(n) units in the last place. Later steps multiply the error of a step by
  /// less than 1. Right results use up to a quarter of the tolerance.
  static double Slack(const Case& c);

 private:
  struct Output {
    const char* name;
    float* given;
    std::vector<double> right;
  };
  Case case_;
  WeightType type_;
  std::vector<Output> outputs_;
};

/// Calls the contestant once and returns Reference::Compare's text.
std::string CheckContestant(const Contestant& contestant, const Reference& reference);

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_ARRAYS_H_
