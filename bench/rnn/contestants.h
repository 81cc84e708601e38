#ifndef PLANISH_BENCH_RNN_CONTESTANTS_H_
#define PLANISH_BENCH_RNN_CONTESTANTS_H_

#include <string>

#include "bench/rnn/arrays.h"
#include "bench/rnn/case.h"
#include "lab/bench/contestant.h"
#include "planish/rnn.h"

namespace planish::bench::rnn {

/// The core (planish.cc), on PyTorch's threads, with every cell. Packs weights in every call, or
/// for a step beforehand.
Contestant MakePlanish(Cell cell, const Case& c, const Arrays& arrays);
/// Like MakePlanish, but also packs weights beforehand for a sequence, as for oneDNN.
Contestant MakePlanishPacked(Cell cell, const Case& c, const Arrays& arrays);

/// Like MakePlanish, for a step with packed weights in bfloat16 or int8.
Contestant MakePlanishBfloat16(Cell cell, const Case& c, const Arrays& arrays);
Contestant MakePlanishInt8(Cell cell, const Case& c, const Arrays& arrays);

/// Only the GEMMs of the cell, by the core's own GEMM with packed weights (products.cc): the limit
/// of any layer with this GEMM. Has no results.
Contestant MakeProducts(Cell cell, const Case& c, const Arrays& arrays);

/// torch::nn::LSTM, GRU and RNN (torch_nn.cc). The LSTM runs on oneDNN.
Contestant MakeTorchNn(Cell cell, const Case& c, const Arrays& arrays);
/// torch::nn::LSTMCell, GRUCell and RNNCell, for a step.
Contestant MakeTorchCell(Cell cell, const Case& c, const Arrays& arrays);

/// LN-LSTM and LN-GRU composed of PyTorch's operators, called from C++ (composed.cc). The GEMM of
/// the inputs, its norm and bias are computed for all steps at once, the rest step by step.
Contestant MakeComposed(Cell cell, const Case& c, const Arrays& arrays);

/// oneDNN's LSTM and linear-before-reset GRU (onednn.cc), forward, with primitive and packed
/// weights made beforehand.
Contestant MakeOneDnn(Cell cell, const Case& c, const Arrays& arrays);

/// Returns "oneDNN 3.2.0", or the reason why oneDNN is absent.
std::string OneDnnVersion();

/// Returns a contestant by its full name, library and cell ("planish:ln-lstm",
/// "planish-packed:gru", "planish-int8:lstm", "products:lstm", "torch:lstm", "torch-cell:lstm",
/// "composed:ln-lstm", "onednn:gru"). Throws std::invalid_argument for an unknown name.
Contestant MakeContestant(const std::string& name, const Case& c, const Arrays& arrays);

/// Returns the cell in the name of a contestant.
Cell CellOf(const std::string& name);

/// Returns the type of the packed weights of the contestant with the name.
WeightType WeightTypeOf(const std::string& name);

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_CONTESTANTS_H_
