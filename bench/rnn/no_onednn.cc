#include "bench/rnn/contestants.h"

// Replaces onednn.cc if CMake finds no suitable oneDNN.
namespace planish::bench::rnn {

Contestant MakeOneDnn(Cell, const Case&, const Arrays&) { return {.absent = OneDnnVersion()}; }

std::string OneDnnVersion() { return "no oneDNN 3 with OpenMP was found"; }

}  // namespace planish::bench::rnn
