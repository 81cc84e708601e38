#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTIVE_READER_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTIVE_READER_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of Ba et al. 2016, 6.2 and Figure 2: the attentive reader on cloze questions,
/// with layer norm, batch norm or nothing in its LSTMs; Adam on the cross-entropy of the missing
/// entity, entities permuted in every batch.
std::unique_ptr<Task> MakeAttentiveReader();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_ATTENTIVE_READER_H_
