#include "planish/version_info.h"

#include "planish/target.h"
#include "src/base/cuda/device.h"
#include "src/base/facts.h"

namespace planish {
inline namespace PLANISH_API {
namespace {

std::string Compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> VersionInfo() {
  return {
      {"version", PLANISH_VERSION},
      {"compiler", Compiler()},
      {"targets", Joined(internal::CompiledTargets())},
      {"target", Target()},
      {"cuda", internal::cuda::Version()},
      {"tuning", internal::OverridesOf(internal::CurrentTuning())},
  };
}

}  // namespace PLANISH_API
}  // namespace planish
