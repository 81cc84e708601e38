#ifndef PLANISH_BENCH_NORM_PEERS_H_
#define PLANISH_BENCH_NORM_PEERS_H_

#include <string>

#include "lab/bench/case.h"
#include "lab/bench/contestant.h"

// Declarations that only the comparison needs, beside contestants.h.
namespace planish::bench {

/// oneDNN (onednn.cc): only layer normalization, in a primitive made beforehand.
Contestant MakeOneDnn(const std::string& method, const Case& c, const Arrays& arrays);

/// Returns "oneDNN 3.2.0", or why it is absent.
std::string OneDnnVersion();

/// Returns a contestant by its full name, a limit ("copy"), or library and norm ("planish:layer",
/// "aten:layer", "onednn:layer"), after comparing its result with the double reference: `wrong` is
/// empty or describes the error. Throws std::invalid_argument for an unknown name.
Contestant MakeContestant(const std::string& name, const Case& c, const Arrays& arrays,
                          std::string& wrong);

}  // namespace planish::bench

#endif  // PLANISH_BENCH_NORM_PEERS_H_
