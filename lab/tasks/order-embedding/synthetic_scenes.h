#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_SYNTHETIC_SCENES_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_SYNTHETIC_SCENES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// Scenes that nobody has drawn, told in two languages: five lines each for every scene.
struct SyntheticScenes {
  std::vector<std::string> english, german;
};

inline constexpr int64_t kMaxSyntheticScenes = 50'000;

/// Scenes that differ: somebody of some colour does something with a thing of some colour at some
/// place. Every line tells a part of it, at random: always who, the rest more often than not, with
/// other words for the same in English. The first scenes are the same for any number of them and
/// on every machine. `count` must be at most kMaxSyntheticScenes.
SyntheticScenes MakeScenes(int64_t count);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_SYNTHETIC_SCENES_H_
