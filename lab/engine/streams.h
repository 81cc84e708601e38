#ifndef PLANISH_LAB_ENGINE_STREAMS_H_
#define PLANISH_LAB_ENGINE_STREAMS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "lab/engine/batches.h"

namespace planish::lab {

/// Returns the batches of a pass over a text that is cut into `streams` pieces. Case i predicts
/// character i + 1. A batch has the cases [window, streams], each stream continuing that of the
/// batch before, so recurrent states can be carried over. The first stream begins at a random
/// character below `window`. Cases at the end that do not fill a batch are left out. Throws
/// UsageError like CheckStreams.
EpochPlan StreamedBatches(int64_t characters, int64_t streams, int64_t window,
                          at::Generator& generator);

/// Returns the cases of a batch [window, streams] that the shard has: some of the streams.
at::Tensor ShardOfStreams(const at::Tensor& batch, int64_t streams, const Shard& shard);

/// Throws UsageError if a text is too short for one batch at any start of the first stream: shorter
/// than window * (streams + 1) characters. `window_name` is the name of the setting in the message.
void CheckStreams(int64_t characters, int64_t streams, int64_t window,
                  std::string_view window_name = "window");

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_STREAMS_H_
