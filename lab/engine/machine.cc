#include "lab/engine/machine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/native/DispatchStub.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <chrono>
#include <fstream>

#include "lab/engine/commit.h"
#include "planish/version.h"
#include "planish/version_info.h"

namespace planish::lab {

namespace {

std::string CpuModel() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string Compiler() {
  for (const auto& [name, value] : VersionInfo()) {
    if (name == "compiler") return value;
  }
  return "unknown";
}

}  // namespace

std::map<std::string, std::string> MachineStamps() {
  return {
      {"version", PLANISH_VERSION},
      {"commit", kCommit},
      {"compiler", Compiler()},
      {"torch", TORCH_VERSION},
      {"cpu", CpuModel()},
      {"cpu features", at::get_cpu_capability()},
      {"threads", std::to_string(at::get_num_threads())},
      {"started",
       fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(
                                                std::chrono::system_clock::now())))},
  };
}

std::string VersionText() {
  std::string text = fmt::format("planish {} ({})\n", PLANISH_VERSION, kCommit);
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{:<9} {}\n", name, value);
  };
  for (const auto& [name, value] : VersionInfo()) {
    if (name != "version") add(name, value);
  }
  add("torch", TORCH_VERSION);
  add("cpu", CpuModel());
  add("features", at::get_cpu_capability());
  add("threads", std::to_string(at::get_num_threads()));
  return text;
}

}  // namespace planish::lab
