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

/// Generates opinions of films from a small random grammar (docs/tasks/rt.md), the same bytes on
/// every machine. The grammar's rules give an opinion from -2 (very bad) to 2. With 5 classes,
/// class c is opinion c - 2. With 2, class 1 is above 0, and no sentence has 0.
SentenceSets MakeSentences(const SyntheticSentences& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_
