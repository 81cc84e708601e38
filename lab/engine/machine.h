#ifndef PLANISH_LAB_ENGINE_MACHINE_H_
#define PLANISH_LAB_ENGINE_MACHINE_H_

#include <map>
#include <string>

namespace planish::lab {

/// Returns the stamps of a run: version, commit, compiler, torch, cpu, cpu features, threads,
/// started (UTC).
std::map<std::string, std::string> MachineStamps();

/// Returns the output of `planish --version`: VersionInfo(), and what the command adds. Throws
/// ArgumentError like VersionInfo.
std::string VersionText();

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_MACHINE_H_
