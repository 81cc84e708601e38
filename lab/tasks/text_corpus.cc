#include "lab/tasks/text_corpus.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <vector>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

// Throws UsageError naming the bytes of `prompt` that the vocabulary lacks.
void CheckPrompt(const Vocabulary& vocabulary, const std::string& prompt) {
  std::string unknown;
  std::string seen;
  for (const char c : prompt) {
    if (vocabulary.Contains(c) || seen.find(c) != std::string::npos) continue;
    seen += c;
    const bool printable = c > ' ' && c <= '~';
    unknown += (unknown.empty() ? "" : ", ") +
               (printable ? fmt::format("\"{}\"", c)
                          : fmt::format("byte 0x{:02x}", static_cast<uint8_t>(c)));
  }
  if (!unknown.empty()) {
    throw UsageError(
        fmt::format("[sample] --prompt has what the training text does not have: {}", unknown));
  }
}

}  // namespace

std::unique_ptr<TextCorpus> SplitText(const Text& text, std::string_view task,
                                      int64_t fewest_held_out) {
  const auto size = static_cast<int64_t>(text.characters.size());
  const int64_t fewest = kHeldOutShare * fewest_held_out;
  if (size < fewest) {
    throw DataError(fmt::format("{} has {}; {} needs at least {}", Escaped(text.name),
                                Count(size, "character"), task, FormatInteger(fewest)));
  }
  auto corpus = std::make_unique<TextCorpus>();
  corpus->vocabulary = Vocabulary(text.characters);
  if (corpus->vocabulary.size() < 2) {
    throw DataError(fmt::format("{} repeats one character; {} needs two different characters",
                                Escaped(text.name), task));
  }
  std::vector<uint8_t> numbers = corpus->vocabulary.Encode(text.characters);
  const at::Tensor all = at::from_blob(numbers.data(), {size}, at::kByte).clone();
  const int64_t held_out = size / kHeldOutShare, train = size - 2 * held_out;
  corpus->train = all.slice(0, 0, train);
  corpus->valid = all.slice(0, train, train + held_out);
  corpus->test = all.slice(0, train + held_out);
  corpus->about = AboutSplits(
      text, fmt::format("{}; {} different characters", text.description, corpus->vocabulary.size()),
      train, held_out, held_out);
  return corpus;
}

std::string WriteText(const Vocabulary& vocabulary, const std::string& prompt, int64_t length,
                      double temperature, at::Generator& generator,
                      const std::function<at::Tensor(const at::Tensor&)>& logits) {
  CheckPrompt(vocabulary, prompt);
  std::vector<int64_t> numbers;
  for (const uint8_t number : vocabulary.Encode(prompt)) numbers.push_back(number);
  if (numbers.empty()) {
    numbers = {vocabulary.Contains('\n') ? vocabulary.Encode("\n")[0] : 0};
  }
  at::Tensor next = at::tensor(numbers, at::kLong);
  std::string text;
  for (int64_t i = 0; i < length; ++i) {
    const at::Tensor chances = (logits(next).to(at::kDouble) / temperature).softmax(0);
    next = at::multinomial(chances, 1, /*replacement=*/false, generator);
    text += vocabulary.Decode(next.item<int64_t>());
  }
  return text;
}

}  // namespace planish::lab
