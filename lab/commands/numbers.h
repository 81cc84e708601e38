#ifndef PLANISH_LAB_COMMANDS_NUMBERS_H_
#define PLANISH_LAB_COMMANDS_NUMBERS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

// CLI11's own validators have errors in another form than the program's.
namespace planish::lab {

/// Refuses the text of `flag` of `command`, with UsageError, unless it is a whole number from
/// `least` to `most`.
CLI::Validator WholeNumber(const std::string& command, const std::string& flag, int64_t least,
                           int64_t most);

/// Likewise unless it is a number that `fits`; `must` says which do, such as "a number above 0".
CLI::Validator Number(const std::string& command, const std::string& flag, const std::string& must,
                      bool (*fits)(double));

/// Refuses an empty value of `flag` of `command`, with UsageError: that of an unset shell variable.
CLI::Validator NotEmpty(const std::string& command, const std::string& flag);

/// Adds the option --data to `command`, which must not be empty where it is given.
CLI::Option* AddDataOption(CLI::App& command, std::string& value, const std::string& help);

}  // namespace planish::lab

#endif  // PLANISH_LAB_COMMANDS_NUMBERS_H_
