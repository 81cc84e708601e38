#include "planish/version.h"

#include <ATen/core/Dict.h>
#include <torch/library.h>

#include <string>

#include "planish/version_info.h"
#include "torch/base/core.h"

namespace planish {
namespace {

c10::Dict<std::string, std::string> VersionFacts() {
  c10::Dict<std::string, std::string> facts;
  for (auto& [name, value] : WithCoreErrors(VersionInfo)) facts.insert(name, value);
  return facts;
}

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def("version() -> str", [] { return std::string(PLANISH_VERSION); });
  m.def("version_info() -> Dict(str, str)", VersionFacts);
}

}  // namespace
}  // namespace planish
