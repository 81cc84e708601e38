#ifndef PLANISH_LAB_TASKS_PARSER_PARSER_H_
#define PLANISH_LAB_TASKS_PARSER_PARSER_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of dependency parsing (Xu et al. 2019, section 2.2, "PTB"): a multi-layer
/// perceptron that chooses the transitions of an arc-standard parser from the 48 features of Chen &
/// Manning (2014), with norms before the activation of every linear layer except the output.
///
/// Printed: hidden width 512, batches of 1,024 transitions, dropout .2, Adam 1e-3, "3 layers"
/// (Table 1), unlabelled attachment score. As in Chen & Manning: embeddings of 50, and a softmax
/// only over feasible transitions, also in training.
/// Chosen here, because nothing is known: the three layers are two hidden ones and the output;
/// ReLU, as in PyTorch re-implementations (Chen & Manning's cube and tanh are settings); dropout
/// after each activation; random initial embeddings; 20 epochs.
///
/// Training uses projective sentences, the only ones with an oracle. Scores are over all sentences
/// and all words except punctuation, from greedy decoding.
std::unique_ptr<Task> MakeParser();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_PARSER_H_
