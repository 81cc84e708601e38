#ifndef PLANISH_LAB_TASKS_PARSER_SYNTHETIC_TREES_H_
#define PLANISH_LAB_TASKS_PARSER_SYNTHETIC_TREES_H_

#include <cstdint>
#include <string>

#include "lab/data/conllu.h"

namespace planish::lab {

inline constexpr int64_t kMaxSyntheticTrees = 100'000;

/// Returns `count` sentences of a small random grammar as CoNLL-U, with Universal Dependencies
/// relations. The object's noun determines if a place depends on verb or object, so words matter
/// beside their tags. About one sentence in eleven has a relative clause moved after the verb, so
/// it is not projective. A seed determines the bytes on every machine; fewer sentences are a prefix
/// of more. Throws UsageError if `count` is not from 1 to kMaxSyntheticTrees.
std::string MakeConllu(int64_t count, uint64_t seed);

/// Returns `train` sentences for training and `held_out` each for validation and test, of seeds 1,
/// 2 and 3.
TreebankSet MakeTreebanks(int64_t train, int64_t held_out);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_SYNTHETIC_TREES_H_
