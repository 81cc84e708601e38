#include "lab/tasks/parser/transitions.h"

#include <algorithm>

namespace planish::lab {

namespace {

size_t Index(int32_t word) { return static_cast<size_t>(word); }

}  // namespace

bool IsProjective(const Tree& tree) {
  // All inner words of an arc must have heads within it; otherwise arcs cross.
  for (int32_t word = 1; word <= tree.words(); ++word) {
    const auto [low, high] = std::minmax({word, tree.heads[Index(word)]});
    for (int32_t inner = low + 1; inner < high; ++inner) {
      const int32_t head = tree.heads[Index(inner)];
      if (head < low || head > high) return false;
    }
  }
  return true;
}

int64_t NumberOf(const Transition& transition, int64_t labels) {
  switch (transition.kind) {
    case Transition::kShift:
      return 0;
    case Transition::kLeft:
      return 1 + transition.label;
    default:
      return 1 + labels + transition.label;
  }
}

Transition TransitionOf(int64_t number, int64_t labels) {
  if (number == 0) return {};
  const bool left = number <= labels;
  return {left ? Transition::kLeft : Transition::kRight,
          static_cast<int32_t>(number - 1 - (left ? 0 : labels))};
}

ParserState::ParserState(int32_t words) : words_(words) {
  const size_t size = Index(words) + 1;
  tree_.heads.assign(size, kNone);
  tree_.labels.assign(size, kNone);
  left_.assign(size, kNone);
  second_left_ = right_ = second_right_ = left_;
}

Legal ParserState::legal() const {
  const bool shift = next_ <= words_;
  return {.shift = shift, .arcs = stack_.size() > 2, .root_arc = stack_.size() == 2 && !shift};
}

void ParserState::Apply(const Transition& transition) {
  if (transition.kind == Transition::kShift) {
    stack_.push_back(next_++);
    return;
  }
  const int32_t first = stack_.back(), second = stack_[stack_.size() - 2];
  const bool is_left = transition.kind == Transition::kLeft;
  const int32_t head = is_left ? first : second, dependent = is_left ? second : first;
  tree_.heads[Index(dependent)] = head;
  tree_.labels[Index(dependent)] = transition.label;
  // A head gets its dependents of one side from the inside out: the latest is the outermost.
  std::vector<int32_t>& outer = is_left ? left_ : right_;
  (is_left ? second_left_ : second_right_)[Index(head)] = outer[Index(head)];
  outer[Index(head)] = dependent;
  stack_.pop_back();
  stack_.back() = head;
}

std::optional<std::vector<Transition>> Oracle(const Tree& tree) {
  const int32_t words = tree.words();
  // Number of dependents that a word still lacks.
  std::vector<int32_t> lacks(Index(words) + 1, 0);
  for (int32_t word = 1; word <= words; ++word) ++lacks[Index(tree.heads[Index(word)])];

  std::vector<Transition> transitions;
  transitions.reserve(2 * Index(words));
  ParserState state(words);
  while (!state.done()) {
    const int32_t first = state.stack(0), second = state.stack(1);
    Transition next;
    if (second > 0 && tree.heads[Index(second)] == first && lacks[Index(second)] == 0) {
      next = {Transition::kLeft, tree.labels[Index(second)]};
      --lacks[Index(first)];
    } else if (second >= 0 && tree.heads[Index(first)] == second && lacks[Index(first)] == 0) {
      next = {Transition::kRight, tree.labels[Index(first)]};
      --lacks[Index(second)];
    } else if (state.buffer(0) == ParserState::kNone) {
      return std::nullopt;
    }
    state.Apply(next);
    transitions.push_back(next);
  }
  return transitions;
}

}  // namespace planish::lab
