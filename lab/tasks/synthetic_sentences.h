#ifndef PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_
#define PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_

#include <cstdint>

#include "lab/data/sentences.h"

namespace planish::lab {

/// Number and classes of the sentences.
struct SyntheticSentences {
  int64_t classes = 2;  ///< 2 or 5
  int64_t train = 2000, valid = 400, test = 400;
  uint64_t seed = 1;
};

/// Generates opinions of films from a small random grammar, with the class of its rules, from -2
/// (very bad) to 2. "not" inverts an adjective and makes it simple, "very" and "slightly"
/// strengthen and weaken it. Of two clauses joined by "but" the second counts, of others the sum;
/// some express nothing.
/// With 5 classes, class c is opinion c - 2; with 2, class 1 is above 0, and no sentence has 0. The
/// same bytes on every machine.
SentenceSets MakeSentences(const SyntheticSentences& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_
