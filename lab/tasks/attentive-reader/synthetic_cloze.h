#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_SYNTHETIC_CLOZE_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_SYNTHETIC_CLOZE_H_

#include <cstdint>

#include "lab/tasks/attentive-reader/cloze.h"

namespace planish::lab {

/// Number and seed of the questions.
struct SyntheticCloze {
  int64_t train = 8'000;
  int64_t held_out = 500;  ///< of validation and of test each
  int64_t entities = 30;   ///< upper limit of entity numbers, at least 4
  int64_t seed = 1;
};

/// Generates questions from a small random grammar, the same bytes on every machine. A passage has
/// four sentences in which three or four people give, take or put away things, each about another
/// thing. The question says one of them in other words and leaves out a person. Only the thing and
/// the roles in a sentence determine the answer.
ClozeSets MakeCloze(const SyntheticCloze& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_SYNTHETIC_CLOZE_H_
