#ifndef PLANISH_BENCH_RNN_CONTESTANTS_H_
#define PLANISH_BENCH_RNN_CONTESTANTS_H_

#include <string>

#include "bench/rnn/arrays.h"
#include "bench/rnn/case.h"
#include "lab/bench/contestant.h"
#include "planish/rnn.h"

namespace planish::bench::rnn {

/// The core (planish.cc), on PyTorch's threads, every cell. Weights are packed in every call, but
/// for a step beforehand.
Contestant MakePlanish(Cell cell, const Case& c, const Arrays& arrays);
/// With weights packed beforehand for a sequence, too, which is what oneDNN is given.
Contestant MakePlanishPacked(Cell cell, const Case& c, const Arrays& arrays);

/// The products of the cell alone, with the core's own product and weights packed beforehand
/// (products.cc): what no layer can be faster than that multiplies so. Its results are none.
Contestant MakeProducts(Cell cell, const Case& c, const Arrays& arrays);

/// torch::nn::LSTM, GRU and RNN (torch_nn.cc), the first of which runs on oneDNN.
Contestant MakeTorchNn(Cell cell, const Case& c, const Arrays& arrays);
/// torch::nn::LSTMCell, GRUCell and RNNCell, for a step.
Contestant MakeTorchCell(Cell cell, const Case& c, const Arrays& arrays);

/// LN-LSTM and LN-GRU put together from PyTorch's operators, called from C++ (composed.cc): the
/// product of the inputs, its norm and bias for all steps at once, then step by step.
Contestant MakeComposed(Cell cell, const Case& c, const Arrays& arrays);

/// oneDNN's LSTM and linear-before-reset GRU (onednn.cc), forward, in a primitive made and with
/// weights packed beforehand.
Contestant MakeOneDnn(Cell cell, const Case& c, const Arrays& arrays);

/// "oneDNN 3.2.0", or why it is absent.
std::string OneDnnVersion();

/// A contestant by its full name, who and which cell ("planish:ln-lstm",
/// "planish-packed:gru", "products:lstm", "torch:lstm", "torch-cell:lstm", "composed:ln-lstm",
/// "onednn:gru"). Throws
/// std::invalid_argument for a name that is none.
Contestant MakeContestant(const std::string& name, const Case& c, const Arrays& arrays);

/// The cell in such a name.
Cell CellOf(const std::string& name);

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_CONTESTANTS_H_
