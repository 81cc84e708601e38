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
/// a random grammar (docs/tasks/mt.md#data) in which each English sentence has one translation.
/// `count` must be at most 100,000. A seed determines the bytes on every machine; fewer sentences
/// are a prefix of more.
std::vector<SentencePair> MakeTranslations(int64_t count, int64_t seed = 1);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_
