#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_SYNTHETIC_SCENES_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_SYNTHETIC_SCENES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// Descriptions of imaginary scenes in two languages: five lines each for every scene.
struct SyntheticScenes {
  std::vector<std::string> english, german;
};

inline constexpr int64_t kMaxSyntheticScenes = 50'000;

/// Generates distinct scenes: somebody of some colour does something with a thing of some colour at
/// some place. Every line tells a random part: always who, the rest more often than not, with
/// synonyms in English.
/// The first scenes are equal for any count and on every machine. `count` must be at most
/// kMaxSyntheticScenes.
SyntheticScenes MakeScenes(int64_t count);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_SYNTHETIC_SCENES_H_
