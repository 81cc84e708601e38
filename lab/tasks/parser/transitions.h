#ifndef PLANISH_LAB_TASKS_PARSER_TRANSITIONS_H_
#define PLANISH_LAB_TASKS_PARSER_TRANSITIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

// The arc-standard system (Nivre 2004) as Chen & Manning (2014) use it: a stack that starts with
// ROOT, a buffer of the words to come, and three kinds of transitions:
//   SHIFT     the next word goes on the stack
//   LEFT(l)   the stack's second depends on its first with relation l, and leaves
//   RIGHT(l)  the stack's first depends on its second with relation l, and leaves
// A sentence of n words takes n shifts and n arcs, whatever its tree.
namespace planish::lab {

/// A tree in numbers. Place 0 is ROOT, whose own entries mean nothing.
struct Tree {
  std::vector<int32_t> heads;   ///< [n + 1]
  std::vector<int32_t> labels;  ///< [n + 1] relations, numbered from 0

  int32_t words() const { return static_cast<int32_t>(heads.size()) - 1; }
};

/// True where no two arcs cross when drawn above the words, ROOT to the left of them: those are the
/// trees that the system can build.
bool IsProjective(const Tree& tree);

struct Transition {
  enum Kind : int8_t { kShift, kLeft, kRight };
  Kind kind = kShift;
  int32_t label = 0;  ///< of an arc

  bool operator==(const Transition&) const = default;
};

/// A transition's place among the 1 + 2 * labels outputs of a model: SHIFT, LEFT of every label,
/// RIGHT of every label.
int64_t NumberOf(const Transition& transition, int64_t labels);
Transition TransitionOf(int64_t number, int64_t labels);

/// Which transitions may come next.
struct Legal {
  bool shift = false;     ///< the buffer has words
  bool arcs = false;      ///< the stack has two words
  bool root_arc = false;  ///< the stack is ROOT and one word, the buffer empty: it is the root

  /// A number below kCount for each combination that there is.
  static constexpr int64_t kCount = 8;
  int64_t code() const { return shift + 2 * arcs + 4 * root_arc; }
};

/// A sentence that is being parsed. Words are numbered from 1, ROOT is 0, and kNone is no word.
class ParserState {
 public:
  static constexpr int32_t kNone = -1;

  explicit ParserState(int32_t words);

  bool done() const { return next_ > words_ && stack_.size() == 1; }
  Legal legal() const;

  /// The transition must be legal.
  void Apply(const Transition& transition);

  /// The word at `depth` of the stack, 0 its first.
  int32_t stack(size_t depth) const {
    return depth < stack_.size() ? stack_[stack_.size() - 1 - depth] : kNone;
  }
  /// The word at `place` of the buffer, 0 its first.
  int32_t buffer(int32_t place) const { return next_ + place <= words_ ? next_ + place : kNone; }
  /// Of the dependents that `word` has so far: the outermost on its left, the one after that, and
  /// the same on its right. kNone for those of kNone.
  int32_t left(int32_t word) const { return At(left_, word); }
  int32_t second_left(int32_t word) const { return At(second_left_, word); }
  int32_t right(int32_t word) const { return At(right_, word); }
  int32_t second_right(int32_t word) const { return At(second_right_, word); }

  /// Heads and labels so far: kNone where a word has none yet.
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

/// The static oracle: the transitions that build `tree`, an arc as early as it can be made, a LEFT
/// before a RIGHT. Nothing where the tree is not projective.
std::optional<std::vector<Transition>> Oracle(const Tree& tree);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_TRANSITIONS_H_
