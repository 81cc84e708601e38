#ifndef PLANISH_LAB_TASKS_PARSER_TRANSITIONS_H_
#define PLANISH_LAB_TASKS_PARSER_TRANSITIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

// The arc-standard system (Nivre 2004): a stack that starts with ROOT, and a buffer of words.
// - SHIFT moves the next word to the stack.
// - LEFT(l) removes the stack's second, which depends on its first with relation l.
// - RIGHT(l) removes the stack's first, which depends on its second with relation l.
// A sentence of n words takes n shifts and n arcs, whatever its tree.
namespace planish::lab {

/// Tree as indices. Position 0 is ROOT, whose own entries are unused.
struct Tree {
  std::vector<int32_t> heads;   ///< [n + 1]
  std::vector<int32_t> labels;  ///< [n + 1] relations, numbered from 0

  int32_t words() const { return static_cast<int32_t>(heads.size()) - 1; }
};

/// Returns true if no two arcs cross when drawn above the words, with ROOT to the left. The system
/// can build exactly these trees.
bool IsProjective(const Tree& tree);

struct Transition {
  enum Kind : int8_t { kShift, kLeft, kRight };
  Kind kind = kShift;
  int32_t label = 0;  ///< of an arc

  bool operator==(const Transition&) const = default;
};

/// Returns a transition's index among the 1 + 2 * labels outputs of a model: SHIFT, LEFT of every
/// label, RIGHT of every label.
int64_t NumberOf(const Transition& transition, int64_t labels);
Transition TransitionOf(int64_t number, int64_t labels);

/// Legal next transitions.
struct Legal {
  bool shift = false;     ///< the buffer has words
  bool arcs = false;      ///< the stack has two words
  bool root_arc = false;  ///< the stack is ROOT and one word, the buffer empty

  /// Upper limit of code(), a dense index of the combination.
  static constexpr int64_t kCount = 8;
  int64_t code() const { return shift + 2 * arcs + 4 * root_arc; }
};

/// State of a sentence's parse. Words are numbered from 1, ROOT is 0, and kNone is no word.
class ParserState {
 public:
  static constexpr int32_t kNone = -1;

  explicit ParserState(int32_t words);

  bool done() const { return next_ > words_ && stack_.size() == 1; }
  Legal legal() const;

  /// The transition must be legal.
  void Apply(const Transition& transition);

  /// Returns the word at `depth` of the stack, from 0.
  int32_t stack(size_t depth) const {
    return depth < stack_.size() ? stack_[stack_.size() - 1 - depth] : kNone;
  }
  /// Returns the word at `place` of the buffer, from 0.
  int32_t buffer(int32_t place) const { return next_ + place <= words_ ? next_ + place : kNone; }
  /// Return dependents of `word` so far: the outermost and the second on its left, and the same on
  /// its right. kNone has none.
  int32_t left(int32_t word) const { return At(left_, word); }
  int32_t second_left(int32_t word) const { return At(second_left_, word); }
  int32_t right(int32_t word) const { return At(right_, word); }
  int32_t second_right(int32_t word) const { return At(second_right_, word); }

  /// Returns heads and labels so far: kNone for a word without a head.
  const Tree& tree() const { return tree_; }

 private:
  static int32_t At(const std::vector<int32_t>& of, int32_t word) {
    return word == kNone ? kNone : of[static_cast<size_t>(word)];
  }

  int32_t words_;
  int32_t next_ = 1;
  std::vector<int32_t> stack_ = {0};
  Tree tree_;
  std::vector<int32_t> left_, second_left_, right_, second_right_;
};

/// Returns the static oracle's transitions that build `tree`, or nullopt if it is not projective.
/// Each arc is built as early as possible, a LEFT before a RIGHT.
std::optional<std::vector<Transition>> Oracle(const Tree& tree);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_TRANSITIONS_H_
