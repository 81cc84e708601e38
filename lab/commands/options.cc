#include "lab/commands/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>

#include "lab/error.h"

namespace planish::lab {

namespace {

template <typename T>
std::optional<T> Parse(const std::string& text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void Refuse(const std::string& command, const std::string& flag,
                         const std::string& must, const std::string& text) {
  throw UsageError(fmt::format("[{}] {} must be {}, got \"{}\"", command, flag, must, text));
}

}  // namespace

CLI::Validator WholeNumber(const std::string& command, const std::string& flag, int64_t min,
                           int64_t max) {
  const auto check = [=](const std::string& text) {
    const auto value = Parse<int64_t>(text);
    if (!value || *value < min || *value > max) {
      Refuse(command, flag, fmt::format("a whole number from {} to {}", min, max), text);
    }
    return std::string();
  };
  return CLI::Validator(check, "");
}

CLI::Validator NotEmpty(const std::string& command, const std::string& flag) {
  const auto check = [=](const std::string& text) {
    if (text.empty()) throw UsageError(fmt::format("[{}] {} is empty", command, flag));
    return std::string();
  };
  return CLI::Validator(check, "");
}

CLI::Option* AddDataOption(CLI::App& command, std::string& value, const std::string& help) {
  return command.add_option("--data", value, help)
      ->type_name("PATH")
      ->check(NotEmpty(command.get_name(), "--data"));
}

void AddThreadsOption(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads (default: all cores)")
      ->type_name("N")
      ->check(WholeNumber(command.get_name(), "--threads", 1, 1024));
}

void AddJobsOption(CLI::App& command, std::optional<int>& jobs, const std::string& help) {
  command.add_option("--jobs", jobs, help)
      ->type_name("N")
      ->check(WholeNumber(command.get_name(), "--jobs", 1, 1024));
}

int CoresForEach(int parts) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, parts));
}

void RefuseSeveralProcesses(const std::string& command) {
  if (const char* size = std::getenv("WORLD_SIZE"); size != nullptr && *size != '\0') {
    throw UsageError(fmt::format(
        "[{}] WORLD_SIZE must not be set, because each run is trained by one process: several "
        "processes train a run with planish train",
        command));
  }
}

void AddSeedOption(CLI::App& command, int64_t& seed) {
  command.add_option("--seed", seed, "Random seed (default: 1)")
      ->type_name("SEED")
      ->check(WholeNumber(command.get_name(), "--seed", 0, int64_t{1} << 53));
}

CLI::Validator Number(const std::string& command, const std::string& flag, const std::string& must,
                      bool (*fits)(double)) {
  const auto check = [=](const std::string& text) {
    const auto value = Parse<double>(text);
    if (!value || !std::isfinite(*value) || !fits(*value)) Refuse(command, flag, must, text);
    return std::string();
  };
  return CLI::Validator(check, "");
}

}  // namespace planish::lab
