#ifndef PLANISH_BENCH_NORM_PEERS_H_
#define PLANISH_BENCH_NORM_PEERS_H_

#include <string>

#include "lab/bench/case.h"
#include "lab/bench/contestant.h"

// What only the comparison needs, beside contestants.h.
namespace planish::bench {

/// oneDNN (onednn.cc): layer normalisation alone, in a primitive made beforehand.
Contestant MakeOneDnn(const std::string& method, const Case& c, const Arrays& arrays);

/// "oneDNN 3.2.0", or why it is absent.
std::string OneDnnVersion();

/// A contestant by its full name, a limit ("copy"), or who and which norm ("planish:layer",
/// "aten:layer", "onednn:layer"), once its result has been compared with the double reference:
/// `wrong` then is empty, or says how the result is wrong. Throws std::invalid_argument for a name
/// that is none.
Contestant MakeContestant(const std::string& name, const Case& c, const Arrays& arrays,
                          std::string& wrong);

}  // namespace planish::bench

#endif  // PLANISH_BENCH_NORM_PEERS_H_
