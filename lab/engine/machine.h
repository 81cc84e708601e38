#ifndef PLANISH_LAB_ENGINE_MACHINE_H_
#define PLANISH_LAB_ENGINE_MACHINE_H_

#include <map>
#include <string>

namespace planish::lab {

/// Where and with what a run is made: version, commit, compiler, torch, cpu, cpu features, threads,
/// started (UTC).
std::map<std::string, std::string> MachineStamps();

/// What `planish --version` prints.
std::string VersionText();

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_MACHINE_H_
