#ifndef PLANISH_LAB_PROGRAM_H_
#define PLANISH_LAB_PROGRAM_H_

namespace planish::lab {

/// The planish command, with the subcommands that AddCommands (lab/commands) declares. Prints
/// errors as one line on stderr. Ends the process with the exit status.
[[noreturn]] void RunProgram(int argc, char** argv);

}  // namespace planish::lab

#endif  // PLANISH_LAB_PROGRAM_H_
