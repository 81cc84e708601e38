#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_ORDER_EMBEDDING_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_ORDER_EMBEDDING_H_

#include <memory>

#include "lab/engine/task.h"

namespace planish::lab {

/// Makes the task of order-embeddings of images and captions (Ba, Kiros & Hinton 2016, section 6.1,
/// Table 2 and Figure 1; Vendrov et al. 2016), with a GRU or the LN-GRU. A case is an image with
/// one of its captions.
std::unique_ptr<Task> MakeOrderEmbedding();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_ORDER_EMBEDDING_H_
