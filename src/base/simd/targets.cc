#include <cstdlib>

#include "planish/target.h"
#include "src/base/check.h"
#include "src/base/facts.h"
#include "src/base/loop.h"
#include "src/base/simd/simd.h"

namespace planish {
inline namespace PLANISH_API {
namespace {

// Returns the compiled targets that the processor supports, as a set of Highway's bits. The lowest
// bit is the best target.
int64_t Supported() { return hwy::SupportedTargets() & HWY_TARGETS; }

// Returns the names of a set of targets, best first.
std::vector<std::string> NamesOf(int64_t targets) {
  std::vector<std::string> names;
  for (; targets != 0; targets &= targets - 1) {
    names.emplace_back(hwy::TargetName(targets & -targets));
  }
  return names;
}

struct Choice {
  hwy::ChosenTarget chosen;
  int64_t target = 0;

  Choice() {
    const int64_t supported = Supported();
    Use(supported & -supported);
    // The environment is read once, by the thread that comes first.
    if (const char* name = std::getenv("PLANISH_TARGET")) {  // NOLINT(concurrency-mt-unsafe)
      Use(TargetOf("PLANISH_TARGET", name));
    }
  }

  void Use(int64_t bit) {
    target = bit;
    chosen.Update(bit);
  }

  static int64_t TargetOf(const char* function, const std::string& name) {
    std::string names;
    for (int64_t rest = Supported(); rest != 0; rest &= rest - 1) {
      const int64_t bit = rest & -rest;
      if (name == hwy::TargetName(bit)) return bit;
      names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(bit));
    }
    internal::Fail(function, "target", "be one of " + names, "\"" + name + "\"");
  }
};

Choice& TheChoice() {
  static Choice choice;
  return choice;
}

}  // namespace

std::vector<std::string> Targets() { return NamesOf(Supported()); }

std::string Target() { return hwy::TargetName(TheChoice().target); }

void SetTarget(const std::string& name) { TheChoice().Use(Choice::TargetOf("SetTarget", name)); }

}  // namespace PLANISH_API

const hwy::ChosenTarget& internal::Chosen() { return TheChoice().chosen; }

std::vector<std::string> internal::CompiledTargets() { return NamesOf(HWY_TARGETS); }

void internal::CheckTarget() { TheChoice(); }

}  // namespace planish
