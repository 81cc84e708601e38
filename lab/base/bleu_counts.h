#ifndef PLANISH_LAB_BASE_BLEU_COUNTS_H_
#define PLANISH_LAB_BASE_BLEU_COUNTS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace planish::lab {

/// Longest n-grams of BLEU.
inline constexpr size_t kBleuOrders = 4;

/// Counts of one sentence or the sums over several, from which BLEU is computed.
struct BleuCounts {
  int64_t reference_tokens = 0;
  std::array<int64_t, kBleuOrders> total = {};    ///< n-grams of the hypothesis, n = 1, 2, ...
  std::array<int64_t, kBleuOrders> correct = {};  ///< of these, in the reference (clipped)

  int64_t hypothesis_tokens() const { return total[0]; }
};

/// BLEU of a corpus with one reference a sentence (Papineni et al. 2002), with sacrebleu's defaults
/// (Post 2018): tokens of mteval-v13a, cased, n-grams up to 4, "exp" smoothing. Smoothing replaces
/// precisions of 0, in the order of n, by 1 / (2^k total) with k = 1, 2, ...
struct Bleu {
  double score = 0;  ///< 0 .. 100
  double brevity = 1;
  std::array<double, kBleuOrders> precisions = {};  ///< percent
};

/// Returns the BLEU of summed counts.
inline Bleu BleuOf(const BleuCounts& counts) {
  Bleu bleu;
  if (counts.hypothesis_tokens() < counts.reference_tokens) {
    bleu.brevity = counts.hypothesis_tokens() == 0
                       ? 0
                       : std::exp(1 - static_cast<double>(counts.reference_tokens) /
                                          static_cast<double>(counts.hypothesis_tokens()));
  }
  if (std::ranges::all_of(counts.correct, [](int64_t c) { return c == 0; })) return bleu;
  double smoothing = 1, logs = 0;
  for (size_t n = 0; n < kBleuOrders; ++n) {
    const auto total = static_cast<double>(counts.total[n]);
    if (total == 0) return bleu;  // no sentence is long enough: a precision of 0
    if (counts.correct[n] == 0) smoothing *= 2;
    bleu.precisions[n] =
        100 * (counts.correct[n] == 0 ? 1 / smoothing : static_cast<double>(counts.correct[n])) /
        total;
    logs += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity * std::exp(logs / kBleuOrders);
  return bleu;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_BLEU_COUNTS_H_
