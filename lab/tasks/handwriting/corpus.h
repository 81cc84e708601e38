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

/// Scaling of pen offsets to mean 0 and standard deviation 1.
struct OffsetScale {
  std::array<float, 2> mean = {0, 0};       ///< of x and y, over the training lines
  std::array<float, 2> deviation = {1, 1};  ///< of x and y, over the training lines
};

/// Lines as tensors: N lines, P points in total, U characters of the longest text.
struct LineSet {
  /// [P, 3], the lines' points in order: scaled offsets from the point before, and the lift, 1 or
  /// 0. The first offset of a line is 0.
  at::Tensor points;
  at::Tensor begins;   ///< [N] int64, the first point of each line
  at::Tensor steps;    ///< [N] int64, points after the first, at most the length limit
  at::Tensor counts;   ///< [N] int64, all points
  at::Tensor symbols;  ///< [N, U] int64, -1 after the end of a text
  std::vector<std::string> texts;

  int64_t size() const { return begins.size(0); }

  /// Returns all points [count, 3] of one line.
  at::Tensor Line(int64_t line) const;

  /// Returns inputs [T, B, 3], lengths [B], symbols [B, U], positions [S] and targets [S, 3] of
  /// some lines. The positions are those of the T * B that are within their line; the targets are
  /// the next points there.
  Tensors Batch(const at::Tensor& lines) const;
};

/// Returns the symbols of one text as a batch: [1, U].
at::Tensor SymbolsOf(const std::vector<int64_t>& symbols);

/// Written lines for training, validation and test.
struct HandwritingCorpus final : Dataset {
  /// Uses at most `length` steps of a line.
  HandwritingCorpus(const Handwriting& data, const Alphabet& alphabet, int64_t length);

  /// A corpus without lines, of a model that has learned the symbols `known`. Throws
  /// std::invalid_argument if `known` is not of the alphabet.
  HandwritingCorpus(const Alphabet& alphabet, const OffsetScale& scale, std::vector<bool> known);

  /// Returns the pen's points of offsets `normalized` [N, 3], from (0, 0) on.
  std::vector<PenPoint> Trace(const at::Tensor& normalized) const;

  Alphabet alphabet;
  OffsetScale scale;
  LineSet train, valid, test;
  std::vector<bool> known;  ///< set for each symbol that a training text has
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_CORPUS_H_
