#ifndef PLANISH_LAB_TASKS_MT_BLEU_H_
#define PLANISH_LAB_TASKS_MT_BLEU_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// BLEU of a corpus with one reference a sentence (Papineni et al. 2002), with sacrebleu's defaults
/// (Post 2018): tokens of mteval-v13a, cased, n-grams up to 4, "exp" smoothing. Smoothing replaces
/// precisions of 0, in the order of n, by 1 / (2^k total) with k = 1, 2, ...
struct Bleu {
  double score = 0;  ///< 0 .. 100
  double brevity = 1;
  std::array<double, 4> precisions = {};  ///< percent
  int64_t hypothesis_tokens = 0, reference_tokens = 0;
};

/// Returns the BLEU. Throws std::invalid_argument if the numbers of hypotheses and references
/// differ.
Bleu CorpusBleu(std::span<const std::string> hypotheses, std::span<const std::string> references);

/// Splits a line into the tokens of mteval-v13a: punctuation separated from words, full stops and
/// commas kept within numbers, dashes after digits separated.
std::vector<std::string> Tokenize13a(std::string_view line);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_BLEU_H_
