#include "bench/rnn/contestants.h"

// In place of onednn.cc where CMake finds no oneDNN that fits.
namespace planish::bench::rnn {

Contestant MakeOneDnn(Cell, const Case&, const Arrays&) { return {.absent = OneDnnVersion()}; }

std::string OneDnnVersion() { return "no oneDNN 3 with OpenMP was found"; }

}  // namespace planish::bench::rnn
