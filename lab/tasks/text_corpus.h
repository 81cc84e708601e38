#ifndef PLANISH_LAB_TASKS_TEXT_CORPUS_H_
#define PLANISH_LAB_TASKS_TEXT_CORPUS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lab/data/text.h"
#include "lab/engine/task.h"

// What the tasks that predict the next character of a text share.
namespace planish::lab {

/// Of a text the last 1 / kHeldOutShare is for testing, and as much before it for validation.
inline constexpr int64_t kHeldOutShare = 20;

/// A text in three parts, as numbers of its vocabulary, which are the characters of all of them.
struct TextCorpus final : Dataset {
  Vocabulary vocabulary{""};
  at::Tensor train, valid, test;  ///< [N] uint8
};

/// Splits `text` in order. Throws DataError that begins with `task` when it has fewer than
/// kHeldOutShare * `fewest_held_out` characters, or all of them are the same.
std::unique_ptr<TextCorpus> SplitText(const Text& text, std::string_view task,
                                      int64_t fewest_held_out);

/// Writes `length` characters that follow `prompt`, or, where that is empty, the end of a line, or
/// the first character of the vocabulary where that has none. `logits` is given the numbers of the
/// characters that come next, [n] int64, first those of the prompt and then, one at a time, those
/// written, and gives the logits [V] of what follows them. Throws UsageError for a prompt with
/// characters that are not in the vocabulary.
std::string WriteText(const Vocabulary& vocabulary, const std::string& prompt, int64_t length,
                      double temperature, at::Generator& generator,
                      const std::function<at::Tensor(const at::Tensor&)>& logits);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_TEXT_CORPUS_H_
