#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_SKIP_THOUGHTS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_SKIP_THOUGHTS_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of skip-thought vectors (Ba et al. 2016, 6.3, Table 3 and Figure 3; Kiros et al.
/// 2015): two decoders predict the sentences before and after from a sentence's vector. GRU or
/// LN-GRU.
std::unique_ptr<Task> MakeSkipThoughts();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_SKIP_THOUGHTS_H_
