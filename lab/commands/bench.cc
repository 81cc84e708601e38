#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/error.h"

// `planish bench` runs the program planish-bench, which is in the same folder. It is separate
// because its code takes long to build and nothing else needs it.
namespace planish::lab {

namespace {

namespace fs = std::filesystem;

// Replaces this process by planish-bench. Throws RunError if there is none.
[[noreturn]] void RunBench(const std::vector<std::string>& arguments) {
  const std::string program = fs::read_symlink("/proc/self/exe").replace_filename("planish-bench");
  std::vector<std::string> words = {program, "bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  const int error = errno;
  throw RunError(fmt::format("cannot run {}: {}. CMake's target planish_bench builds it", program,
                             std::generic_category().message(error)));
}

}  // namespace

void AddBench(CLI::App& app, Action& action) {
  CLI::App* bench =
      app.add_subcommand("bench", "Benchmark the norms against memory bandwidth and PyTorch");
  bench->set_help_flag();  // planish-bench prints the help
  bench->prefix_command();
  bench->callback([&action, bench] {
    action = [arguments = bench->remaining()]() -> int { RunBench(arguments); };
  });
}

}  // namespace planish::lab
