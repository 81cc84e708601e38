#ifndef PLANISH_LAB_TASKS_PARSER_PARSER_H_
#define PLANISH_LAB_TASKS_PARSER_PARSER_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Dependency parsing (Xu et al. 2019, section 2.2, "PTB"): a multi-layer perceptron that chooses
/// the transitions of an arc-standard parser from the 48 features of Chen & Manning (2014), norms
/// before the activation of every linear layer but the output.
///
/// Printed: hidden width 512, batches of 1,024 transitions, dropout .2, Adam 1e-3, "3 layers"
/// (Table 1), unlabelled attachment score. Ours, because nothing is known: that the three layers
/// are two hidden ones and the output; ReLU (re-implementations in PyTorch have it; Chen &
/// Manning's cube and tanh are settings); dropout after each activation; embeddings that start at
/// random; 20 epochs. As in Chen & Manning: embeddings of 50, the softmax among feasible
/// transitions alone, in training too.
///
/// Training takes projective sentences, the only ones that have an oracle; scores are over all
/// sentences and all words but punctuation, from greedy decoding.
std::unique_ptr<Task> MakeParser();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_PARSER_H_
