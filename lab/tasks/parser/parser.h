#ifndef PLANISH_LAB_TASKS_PARSER_PARSER_H_
#define PLANISH_LAB_TASKS_PARSER_PARSER_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of dependency parsing (Xu et al. 2019, section 2.2, "PTB"): a multi-layer
/// perceptron chooses the transitions of an arc-standard parser from the 48 features of Chen &
/// Manning (2014). docs/tasks/parser.md describes norms, training and scores.
std::unique_ptr<Task> MakeParser();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_PARSER_H_
