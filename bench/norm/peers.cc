#include "bench/norm/peers.h"

#include <stdexcept>
#include <string>

#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"

namespace planish::bench {

Contestant MakeContestant(const std::string& name, const Case& c, const Arrays& arrays,
                          std::string& wrong) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return MakeLimit(name, c, arrays);
  const std::string who = name.substr(0, colon), method = name.substr(colon + 1);
  Contestant contestant;
  if (who == "planish") {
    contestant = MakePlanish(method, c, arrays);
  } else if (who == "bare") {
    contestant = IsOfRows(FindMethod(method)) ? MakeBare(method, c, arrays)
                                              : MakeBareChannels(method, c, arrays);
  } else if (who == "aten") {
    contestant = MakeAten(method, c, arrays);
  } else if (who == "onednn") {
    contestant = MakeOneDnn(method, c, arrays);
  } else {
    throw std::invalid_argument(
        "[MakeContestant] name must begin with planish:, bare:, aten: or onednn:, got \"" + name +
        "\"");
  }
  // PyTorch accumulates dgain and dbias of 16-bit types in these types, even if the gain is float.
  if (contestant.call) wrong = CheckContestant(method, contestant, c, arrays, who == "aten");
  return contestant;
}

}  // namespace planish::bench
