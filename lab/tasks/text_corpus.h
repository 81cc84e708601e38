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

// Shared parts of the tasks that predict the next character or byte of a text.
namespace planish::lab {

/// The last 1 / kHeldOutShare of a text is for testing, and as much before it for validation.
inline constexpr int64_t kHeldOutShare = 20;

/// Text in three parts, as indices of the vocabulary of all three.
struct TextCorpus final : Dataset {
  Vocabulary vocabulary{""};
  at::Tensor train, valid, test;  ///< [N] uint8, or int32 if there are more than 256 units
};

/// Splits `text` in order. Throws DataError naming `text` and `task` if it has fewer than
/// kHeldOutShare * `fewest_held_out` units (characters or bytes), or only one distinct unit.
std::unique_ptr<TextCorpus> SplitText(const Text& text, std::string_view task,
                                      int64_t fewest_held_out);

/// Task::Pack and Task::Unpack of a TextCorpus: the vocabulary.
PackedData PackText(const Dataset& corpus);
std::unique_ptr<TextCorpus> UnpackText(const PackedData& packed);

/// Returns `length` characters that follow `prompt`. An empty prompt means the end of a line, or
/// the vocabulary's first character if it has none. `logits` maps the next input characters to the
/// logits [V] of the following one. Its inputs are indices [n] int64: those of the prompt, then
/// each written one. Throws UsageError for a prompt with characters outside the vocabulary.
std::string WriteText(const Vocabulary& vocabulary, const std::string& prompt, int64_t length,
                      double temperature, at::Generator& generator,
                      const std::function<at::Tensor(const at::Tensor&)>& logits);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_TEXT_CORPUS_H_
