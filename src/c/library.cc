#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "planish/parallel.h"
#include "planish/target.h"
#include "planish/types.h"
#include "planish/version.h"
#include "planish/version_info.h"
#include "src/c/call.h"

// General functions of the C interface: version, SIMD targets, threads, element types.
using planish::internal::c::CheckGiven;
using planish::internal::c::Guarded;

namespace {

/// Returns Targets(), for as long as the program runs.
const std::vector<std::string>& Targets() {
  static const std::vector<std::string> targets = planish::Targets();
  return targets;
}

}  // namespace

const char* planish_version(void) { return PLANISH_VERSION; }

const char* planish_version_info(void) {
  thread_local std::string text;
  const char* lines = nullptr;
  Guarded(__func__, [&] {
    text.clear();
    for (const auto& [name, value] : planish::VersionInfo()) {
      text.append(name).append(": ").append(value).append("\n");
    }
    lines = text.c_str();
  });
  return lines;
}

const char* planish_targets(void) {
  const char* names = nullptr;
  Guarded(__func__, [&] {
    static const std::string text = [] {
      std::string joined;
      for (const std::string& target : Targets()) joined += (joined.empty() ? "" : " ") + target;
      return joined;
    }();
    names = text.c_str();
  });
  return names;
}

const char* planish_target(void) {
  const char* name = nullptr;
  Guarded(__func__, [&] {
    name = std::find(Targets().begin(), Targets().end(), planish::Target())->c_str();
  });
  return name;
}

planish_status planish_set_target(const char* name) {
  return Guarded("planish_set_target", [&] {
    CheckGiven("planish_set_target", "name", "name", name);
    planish::SetTarget(name);
  });
}

planish_status planish_threads(int32_t* threads) {
  return Guarded("planish_threads", [&] {
    CheckGiven("planish_threads", "threads", "number", threads);
    *threads = planish::Threads();
  });
}

planish_status planish_set_threads(int32_t threads) {
  return Guarded(__func__, [&] { planish::SetThreads(threads); });
}

int32_t planish_serial_for(void* /*context*/, int64_t begin, int64_t end, int64_t /*grain*/,
                           planish_run_range run, const void* task) {
  run(task, begin, end);
  return 0;
}

float planish_bfloat16_to_float(uint16_t bits) { return ToFloat(planish::bfloat16{bits}); }
float planish_float16_to_float(uint16_t bits) { return ToFloat(planish::float16{bits}); }
uint16_t planish_float_to_bfloat16(float value) { return planish::ToBfloat16(value).bits; }
uint16_t planish_float_to_float16(float value) { return planish::ToFloat16(value).bits; }
