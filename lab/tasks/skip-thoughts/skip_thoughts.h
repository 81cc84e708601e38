#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_SKIP_THOUGHTS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_SKIP_THOUGHTS_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Skip-thought vectors (Ba et al. 2016, 6.3, Table 3 and Figure 3; Kiros et al. 2015): a
/// sentence's vector is what two decoders tell the sentences before and after it from. GRU or
/// LN-GRU.
std::unique_ptr<Task> MakeSkipThoughts();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_SKIP_THOUGHTS_H_
