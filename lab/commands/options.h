#ifndef PLANISH_LAB_COMMANDS_OPTIONS_H_
#define PLANISH_LAB_COMMANDS_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

// Options that several commands share, and validators of options. CLI11's own validators have other
// error messages.
namespace planish::lab {

/// Returns a validator for the option `flag` of `command`. It throws UsageError unless the text is
/// an integer from `min` to `max`.
CLI::Validator WholeNumber(const std::string& command, const std::string& flag, int64_t min,
                           int64_t max);

/// Like WholeNumber, for a real number that `fits`. `must` describes it: "a number above 0".
CLI::Validator Number(const std::string& command, const std::string& flag, const std::string& must,
                      bool (*fits)(double));

/// Returns a validator that throws UsageError for an empty value, such as an unset shell variable.
CLI::Validator NotEmpty(const std::string& command, const std::string& flag);

/// Adds the option --data to `command`. An empty value is an error.
CLI::Option* AddDataOption(CLI::App& command, std::string& value, const std::string& help);

/// Adds the option --threads, whose default, all cores, is the value 0.
void AddThreadsOption(CLI::App& command, int& threads);

/// Adds the option --jobs of a command with runs.
void AddJobsOption(CLI::App& command, std::optional<int>& jobs, const std::string& help);

/// Returns the cores for each of `parts` equal parts of this machine, at least 1.
int CoresForEach(int parts);

/// Throws UsageError, with `command` in brackets, in a process that trains its runs together with
/// others (WORLD_SIZE is set).
void RefuseSeveralProcesses(const std::string& command);

/// Adds the option --seed of a command that draws random values. Its default is 1.
void AddSeedOption(CLI::App& command, int64_t& seed);

}  // namespace planish::lab

#endif  // PLANISH_LAB_COMMANDS_OPTIONS_H_
