#ifndef PLANISH_LAB_TASKS_ENWIK8_ENWIK8_H_
#define PLANISH_LAB_TASKS_ENWIK8_ENWIK8_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of a Transformer-XL on the bytes of a text (Xu et al. 2019, Enwiki8), with the
/// settings of its released code for enwik8. One difference: gains of layer norm start at 1,
/// because norms draw no random numbers. The released code draws them from N(1, .02).
std::unique_ptr<Task> MakeEnwik8();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ENWIK8_ENWIK8_H_
