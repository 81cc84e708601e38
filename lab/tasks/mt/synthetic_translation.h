#ifndef PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_
#define PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// Sentence in two languages.
struct SentencePair {
  std::string source;
  std::string target;
};

/// Returns `count` distinct English sentences (source) with their German translation (target), from
/// a small random grammar in which each English sentence has one translation. `count` must be at
/// most 100,000. A seed determines the bytes on every machine; fewer sentences are a prefix of
/// more.
///
/// German requires
/// - reordering: the verb is second, or last in a clause with a conjunction; participles and
///   infinitives are last.
/// - agreement: articles and adjectives with gender, number and case of a later noun, verbs with
///   their subject across a clause.
std::vector<SentencePair> MakeTranslations(int64_t count, int64_t seed = 1);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_
