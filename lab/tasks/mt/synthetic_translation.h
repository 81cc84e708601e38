#ifndef PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_
#define PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// A sentence in two languages.
struct SentencePair {
  std::string source;
  std::string target;
};

/// `count` English sentences (source), all different, and their German (target), of a small random
/// grammar in which each English sentence has one translation. German must be reordered (the verb
/// stands second, or last in a clause with a conjunction, participles and infinitives stand last)
/// and agrees: articles and adjectives with gender, number and case of a noun that may follow words
/// later, verbs with their subject across a clause. The same seed gives the same bytes on every
/// machine, and fewer sentences are the first ones of more. `count` must be at most 100,000.
std::vector<SentencePair> MakeTranslations(int64_t count, int64_t seed = 1);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_SYNTHETIC_TRANSLATION_H_
