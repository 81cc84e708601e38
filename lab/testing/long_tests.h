#ifndef PLANISH_LAB_TESTING_LONG_TESTS_H_
#define PLANISH_LAB_TESTING_LONG_TESTS_H_

#include <cstdlib>
#include <string>
#include <vector>

namespace planish::lab {

/// Returns true in the long tests (PLANISH_LONG_TESTS, set by `make test-long`).
inline bool RunsLongTests() { return std::getenv("PLANISH_LONG_TESTS") != nullptr; }

/// Returns all of `norms` in the long tests. In the others the first of them, which is the task's
/// default, and layer.
inline std::vector<std::string> NormsToTrain(std::vector<std::string> norms) {
  if (RunsLongTests()) return norms;
  const std::string first = norms.at(0);
  std::erase_if(norms, [&](const std::string& norm) { return norm != first && norm != "layer"; });
  return norms;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_TESTING_LONG_TESTS_H_
