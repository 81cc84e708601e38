#ifndef PLANISH_LAB_TASKS_SENTENCES_SENTENCES_H_
#define PLANISH_LAB_TASKS_SENTENCES_SENTENCES_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of sentences in the classes of a table (labelled_tables.h), with the model of rt
/// and sst5 (Xu et al. 2019, 2.2). docs/tasks/sentences.md describes the tables.
std::unique_ptr<Task> MakeSentencesTask();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SENTENCES_SENTENCES_H_
