#ifndef PLANISH_LAB_TASKS_HANDWRITING_CORPUS_H_
#define PLANISH_LAB_TASKS_HANDWRITING_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lab/engine/task.h"
#include "lab/tasks/handwriting/alphabet.h"
#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Offsets of pens are numbers of mean 0 and deviation 1 for the model.
struct OffsetScale {
  std::array<float, 2> mean = {0, 0};       ///< of x and y, over the training lines
  std::array<float, 2> deviation = {1, 1};  ///< likewise
};

/// Lines as tensors. N lines, P points of all, U characters of the longest text.
struct LineSet {
  /// [P, 3], one line after the other: offsets from the point before, scaled, and the lift, 1 or 0.
  /// The first offset of a line is 0.
  at::Tensor points;
  at::Tensor begins;   ///< [N] int64, the first point of each line
  at::Tensor steps;    ///< [N] int64, points that follow another, up to the length that counts
  at::Tensor counts;   ///< [N] int64, all points
  at::Tensor symbols;  ///< [N, U] int64, -1 beyond the end of a text
  std::vector<std::string> texts;

  int64_t size() const { return begins.size(0); }

  /// Points [count, 3] of one line, all of them.
  at::Tensor Line(int64_t line) const;

  /// What the model reads and predicts of some lines: inputs [T, B, 3], lengths [B], symbols [B,
  /// U], positions [S] among the T * B that are within their line, and the points [S, 3] that
  /// follow there.
  Tensors Batch(const at::Tensor& lines) const;
};

/// Symbols of one text as a batch: [1, U].
at::Tensor SymbolsOf(const std::vector<int64_t>& symbols);

/// Written lines for training, validation and test.
struct HandwritingCorpus final : Dataset {
  /// Of a line at most `length` steps count.
  HandwritingCorpus(const Handwriting& data, const Alphabet& alphabet, int64_t length);

  /// The points of `normalised` [N, 3] where the pen went, from (0, 0) on.
  std::vector<PenPoint> Trace(const at::Tensor& normalised) const;

  Alphabet alphabet;
  OffsetScale scale;
  LineSet train, valid, test;
  std::vector<bool> known;  ///< of each symbol, whether a training text has it
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_CORPUS_H_
