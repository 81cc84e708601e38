#ifndef PLANISH_LAB_TASKS_PARSER_PARSER_H_
#define PLANISH_LAB_TASKS_PARSER_PARSER_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of dependency parsing (Xu et al. 2019, section 2.2, "PTB"). A multi-layer
/// perceptron chooses the transitions of an arc-standard parser from the 48 features of Chen &
/// Manning (2014).
/// - Norms are before the activation of every linear layer except the output.
/// - Training uses projective sentences, the only ones with an oracle.
/// - Scores are over all sentences and all words except punctuation, from greedy decoding.
///
/// docs/tasks/parser.md says which settings the paper has and which are chosen here.
std::unique_ptr<Task> MakeParser();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_PARSER_H_
