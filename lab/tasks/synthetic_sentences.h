#ifndef PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_
#define PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_

#include <cstdint>

#include "lab/data/sentences.h"

namespace planish::lab {

/// How many sentences to make.
struct SyntheticSentences {
  int64_t classes = 2;  ///< 2 or 5
  int64_t train = 2000, valid = 400, test = 400;
  uint64_t seed = 1;
};

/// Opinions of films that a small random grammar makes, with the class that its rules give: from -2
/// (very bad) to 2, where "not" turns an adjective around and takes its force, "very" and
/// "slightly" strengthen and weaken it, of two clauses joined by "but" the second counts and of
/// others the sum, and some say nothing. Of 5 classes, class c is opinion c - 2; of 2, class 1 is
/// above 0, and no sentence has 0. The same bytes on every machine.
SentenceSets MakeSentences(const SyntheticSentences& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SYNTHETIC_SENTENCES_H_
