#include "lab/tasks/parser/decoding.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace planish::lab {

namespace {

// Copies a vector's elements into a new tensor.
template <class T>
at::Tensor Copy(std::vector<T>& values, at::IntArrayRef sizes) {
  return at::from_blob(values.data(), sizes, c10::CppTypeToScalarType<T>::value).clone();
}

std::span<int32_t, kFeatures> Row(int32_t* features, size_t row) {
  return std::span<int32_t, kFeatures>(features + row * kFeatures, kFeatures);
}

}  // namespace

Examples MakeExamples(std::span<const EncodedSentence> sentences,
                      const ParserVocabulary& vocabulary) {
  const at::Tensor feasible = FeasibleTransitions(vocabulary);
  const float* table = feasible.const_data_ptr<float>();
  const int64_t outputs = feasible.size(1);
  Examples examples;
  std::vector<int32_t> features, legal;
  std::vector<int64_t> transitions;
  for (const EncodedSentence& sentence : sentences) {
    if (!IsProjective(sentence.tree)) continue;
    ++examples.sentences;
    ParserState state(sentence.tree.words());
    const std::optional<std::vector<Transition>> oracle = Oracle(sentence.tree);
    for (const Transition& transition : oracle.value()) {
      const bool known = transition.kind == Transition::kShift || transition.label >= 0;
      const int64_t code = state.legal().code();
      const int64_t number = known ? NumberOf(transition, vocabulary.labels()) : 0;
      if (known && table[code * outputs + number] == 0) {
        features.resize(features.size() + kFeatures);
        ExtractFeatures(state, sentence, vocabulary, Row(features.data(), transitions.size()));
        legal.push_back(static_cast<int32_t>(code));
        transitions.push_back(number);
      }
      state.Apply(transition);
    }
  }
  const int64_t count = std::ssize(transitions);
  examples.features = Copy(features, {count, kFeatures});
  examples.legal = Copy(legal, {count});
  examples.transitions = Copy(transitions, {count});
  return examples;
}

at::Tensor FeasibleTransitions(const ParserVocabulary& vocabulary) {
  const int64_t labels = vocabulary.labels();
  at::Tensor table = at::full({Legal::kCount, 1 + 2 * labels},
                              -std::numeric_limits<float>::infinity(), at::kFloat);
  auto at = table.accessor<float, 2>();
  for (const bool shift : {false, true}) {
    for (const bool arcs : {false, true}) {
      for (const bool root_arc : {false, true}) {
        const int64_t code = Legal{shift, arcs, root_arc}.code();
        if (shift) at[code][0] = 0;
        for (int32_t label = 0; label < labels; ++label) {
          const auto& seen = vocabulary.label_list()[static_cast<size_t>(label)];
          if (arcs && seen.elsewhere) {
            at[code][NumberOf({Transition::kLeft, label}, labels)] = 0;
          }
          if ((arcs && seen.elsewhere) || (root_arc && seen.at_root)) {
            at[code][NumberOf({Transition::kRight, label}, labels)] = 0;
          }
        }
      }
    }
  }
  return table;
}

std::vector<Tree> Decode(std::span<const EncodedSentence> sentences,
                         const ParserVocabulary& vocabulary, const Scorer& scorer) {
  const at::Tensor feasible = FeasibleTransitions(vocabulary);
  std::vector<ParserState> states;
  for (const EncodedSentence& sentence : sentences) states.emplace_back(sentence.tree.words());
  std::vector<size_t> unfinished(states.size());
  std::iota(unfinished.begin(), unfinished.end(), size_t{0});
  std::vector<int32_t> features, legal;
  for (;;) {
    std::erase_if(unfinished, [&](size_t i) { return states[i].done(); });
    if (unfinished.empty()) break;
    features.resize(unfinished.size() * kFeatures);
    legal.clear();
    for (size_t row = 0; row < unfinished.size(); ++row) {
      const size_t i = unfinished[row];
      ExtractFeatures(states[i], sentences[i], vocabulary, Row(features.data(), row));
      legal.push_back(static_cast<int32_t>(states[i].legal().code()));
    }
    const int64_t count = std::ssize(legal);
    const at::Tensor logits =
        scorer(Copy(features, {count, kFeatures})) + feasible.index_select(0, Copy(legal, {count}));
    const at::Tensor best = logits.argmax(1);
    const int64_t* number = best.const_data_ptr<int64_t>();
    for (size_t row = 0; row < unfinished.size(); ++row) {
      states[unfinished[row]].Apply(TransitionOf(number[row], vocabulary.labels()));
    }
  }
  std::vector<Tree> trees;
  for (const ParserState& state : states) trees.push_back(state.tree());
  return trees;
}

AttachmentCounts CountAttachments(std::span<const Tree> trees,
                                  std::span<const EncodedSentence> sentences) {
  AttachmentCounts counts;
  for (size_t i = 0; i < trees.size(); ++i) {
    const Tree &got = trees[i], &gold = sentences[i].tree;
    int64_t words = 0, heads = 0, both = 0;
    for (size_t word = 1; word < gold.heads.size(); ++word) {
      if (!sentences[i].scored[word]) continue;
      const bool head = got.heads[word] == gold.heads[word];
      ++words;
      heads += head;
      both += head && got.labels[word] == gold.labels[word];
    }
    counts.words.push_back(words);
    counts.heads.push_back(heads);
    counts.labelled_heads.push_back(both);
  }
  return counts;
}

Attachment Score(const AttachmentCounts& counts) {
  const auto sum = [](const std::vector<int64_t>& of) {
    return std::accumulate(of.begin(), of.end(), int64_t{0});
  };
  const auto words = static_cast<double>(std::max<int64_t>(sum(counts.words), 1));
  return {static_cast<double>(sum(counts.heads)) / words,
          static_cast<double>(sum(counts.labelled_heads)) / words};
}

Attachment Score(std::span<const Tree> trees, std::span<const EncodedSentence> sentences) {
  return Score(CountAttachments(trees, sentences));
}

}  // namespace planish::lab
