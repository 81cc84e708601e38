#ifndef PLANISH_LAB_ENGINE_STREAMS_H_
#define PLANISH_LAB_ENGINE_STREAMS_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string_view>

#include "lab/engine/batches.h"

namespace planish::lab {

/// The batches of a pass over a text in `streams` pieces that are read side by side, `window`
/// characters a batch. Case i is the prediction of character i + 1, and a batch has the cases
/// [window, streams] in that order: stream s of batch t has what follows its cases of batch t - 1,
/// so that a recurrent state, or a memory, can be carried from batch to batch.
///
/// The first stream begins at a character below `window` that `generator` draws: windows are cut
/// elsewhere in every pass. What does not fill a batch at the text's end is left out. Throws what
/// CheckStreams throws.
EpochPlan StreamedBatches(int64_t characters, int64_t streams, int64_t window,
                          at::Generator& generator);

/// Throws UsageError when a text is too short for one batch: it must have window * (streams + 1)
/// characters, so that there is one wherever the first stream begins. `window_name` is the setting
/// that the message calls it by.
void CheckStreams(int64_t characters, int64_t streams, int64_t window,
                  std::string_view window_name = "window");

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_STREAMS_H_
