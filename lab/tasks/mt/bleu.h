#ifndef PLANISH_LAB_TASKS_MT_BLEU_H_
#define PLANISH_LAB_TASKS_MT_BLEU_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/base/bleu_counts.h"

namespace planish::lab {

/// Returns the counts of one sentence.
BleuCounts CountsOf(std::string_view hypothesis, std::string_view reference);

/// Returns the counts of each sentence. Throws std::invalid_argument if the numbers of hypotheses
/// and references differ.
std::vector<BleuCounts> CountsOf(std::span<const std::string> hypotheses,
                                 std::span<const std::string> references);

/// Returns the sums over sentences.
BleuCounts SumOf(std::span<const BleuCounts> sentences);

/// Returns the BLEU of a corpus. Throws like CountsOf.
Bleu CorpusBleu(std::span<const std::string> hypotheses, std::span<const std::string> references);

/// Splits a line into the tokens of mteval-v13a: punctuation separated from words, full stops and
/// commas kept within numbers, dashes after digits separated.
std::vector<std::string> Tokenize13a(std::string_view line);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_BLEU_H_
