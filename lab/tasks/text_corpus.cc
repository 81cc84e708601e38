#include "lab/tasks/text_corpus.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/error.h"
#include "lab/run/json.h"

namespace planish::lab {

namespace {

// Names in an exported model.
constexpr char kVocabulary[] = "vocabulary", kByte[] = "byte", kCharacter[] = "character";

// Throws UsageError naming the units of `prompt` that the vocabulary lacks.
void CheckPrompt(const Vocabulary& vocabulary, const std::string& prompt) {
  std::string unknown;
  std::set<std::string_view> seen;
  for (std::string_view rest = prompt; !rest.empty();) {
    const std::string_view symbol = FirstUnit(rest, vocabulary.unit());
    rest.remove_prefix(symbol.size());
    if (vocabulary.Contains(symbol) || !seen.insert(symbol).second) continue;
    const bool printable = symbol.size() > 1 || (symbol[0] > ' ' && symbol[0] <= '~');
    unknown += (unknown.empty() ? "" : ", ") +
               (printable ? Quoted(symbol)
                          : fmt::format("byte 0x{:02x}", static_cast<uint8_t>(symbol[0])));
  }
  if (!unknown.empty()) {
    throw UsageError(
        fmt::format("[sample] --prompt has what the training text does not have: {}", unknown));
  }
}

}  // namespace

std::unique_ptr<TextCorpus> SplitText(const Text& text, std::string_view task,
                                      int64_t fewest_held_out) {
  const int64_t size = CountUnits(text.characters, text.unit);
  const std::string unit = text.unit == TextUnit::kByte ? "byte" : "character";
  const int64_t fewest = kHeldOutShare * fewest_held_out;
  if (size < fewest) {
    throw DataError(fmt::format("{} has {}; {} needs at least {}", Escaped(text.name),
                                Count(size, unit), task, FormatInteger(fewest)));
  }
  auto corpus = std::make_unique<TextCorpus>();
  corpus->vocabulary = Vocabulary(text.characters, text.unit);
  if (corpus->vocabulary.size() < 2) {
    throw DataError(fmt::format("{0} repeats one {1}; {2} needs two different {1}s",
                                Escaped(text.name), unit, task));
  }
  const bool small = corpus->vocabulary.size() <= 256;
  const at::Tensor all = at::empty({size}, small ? at::kByte : at::kInt);
  std::string_view rest = text.characters;
  for (int64_t i = 0; i < size; ++i) {
    const int32_t symbol = corpus->vocabulary.Take(rest);
    if (small) {
      all.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(symbol);
    } else {
      all.data_ptr<int32_t>()[i] = symbol;
    }
  }
  const int64_t held_out = size / kHeldOutShare, train = size - 2 * held_out;
  corpus->train = all.slice(0, 0, train);
  corpus->valid = all.slice(0, train, train + held_out);
  corpus->test = all.slice(0, train + held_out);
  corpus->about = AboutSplits(
      text, fmt::format("{}; {} different {}s", text.description, corpus->vocabulary.size(), unit),
      train, held_out, held_out);
  return corpus;
}

PackedData PackText(const Dataset& corpus) {
  const Vocabulary& vocabulary = dynamic_cast<const TextCorpus&>(corpus).vocabulary;
  std::string units;
  for (int64_t i = 0; i < vocabulary.size(); ++i) units += vocabulary.Decode(i);
  PackedData packed;
  AddBytes(packed, kVocabulary, units);
  packed.values["unit"] = vocabulary.unit() == TextUnit::kByte ? kByte : kCharacter;
  return packed;
}

std::unique_ptr<TextCorpus> UnpackText(const PackedData& packed) {
  const auto unit = packed.values.at("unit").get<std::string>();
  if (unit != kByte && unit != kCharacter) {
    throw std::invalid_argument(
        fmt::format("unit must be {} or {}, got {}", kByte, kCharacter, BriefText(unit)));
  }
  auto corpus = std::make_unique<TextCorpus>();
  corpus->vocabulary = Vocabulary(BytesNamed(packed, kVocabulary),
                                  unit == kByte ? TextUnit::kByte : TextUnit::kCharacter);
  corpus->train = corpus->valid = corpus->test = at::empty({0}, at::kByte);
  return corpus;
}

std::string WriteText(const Vocabulary& vocabulary, const std::string& prompt, int64_t length,
                      double temperature, at::Generator& generator,
                      const std::function<at::Tensor(const at::Tensor&)>& logits) {
  CheckPrompt(vocabulary, prompt);
  const std::vector<int32_t> given = vocabulary.Encode(prompt);
  std::vector<int64_t> numbers(given.begin(), given.end());
  if (numbers.empty()) {
    numbers = {vocabulary.Contains("\n") ? vocabulary.Encode("\n")[0] : 0};
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
