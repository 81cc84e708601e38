#include "lab/run/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "lab/error.h"
#include "lab/run/atomic_file.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

RunError CannotWrite(const char* function, const fs::path& path, int error) {
  return RunError(fmt::format("[{}] {} must be writable but has: {}", function, path.string(),
                              SystemReason(error)));
}

// The library writes NaN and infinity as null, which would read back as a malformed file.
void CheckFinite(const Json& json, const std::string& where) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    throw RunError(
        fmt::format("[RunWriter] {} must be finite but has {}", where, json.get<double>()));
  }
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items())
      CheckFinite(value, fmt::format("{}.{}", where, key));
  }
}

// The text of `value` as JSON: doubles as the shortest decimal that reads back to the same bits.
template <class T>
std::string ToText(const T& value, const char* name, int indent) {
  const Json json(value);
  CheckFinite(json, name);
  try {
    return json.dump(indent) + "\n";
  } catch (const Json::exception& e) {
    throw RunError(fmt::format("[RunWriter] {} must be UTF-8 but has: {}", name, e.what()));
  }
}

}  // namespace

RunWriter::RunWriter(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw CannotWrite("RunWriter", folder_, error.value());
  const fs::path path = folder_ / ".lock";
  lock_ = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock_) throw CannotWrite("RunWriter", path, errno);
  if (!LockFile(lock_.get(), /*wait=*/false)) {
    std::array<char, 32> text{};
    const ssize_t count = pread(lock_.get(), text.data(), text.size() - 1, 0);
    const std::string pid(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
    throw RunError(
        fmt::format("[RunWriter] {} must be free but has another process{} using the run",
                    folder_.string(), pid.empty() ? "" : " (" + pid + ")"));
  }
  // For the message above alone, so a failure does not matter.
  if (ftruncate(lock_.get(), 0) == 0) WriteAll(lock_.get(), AsBytes(std::to_string(getpid())));
}

void RunWriter::WriteConfig(const RunConfig& config) {
  WriteFileAtomically(folder_ / "config.json", ToText(config, "config", 2));
}

// Opens metrics.jsonl for appending, without the half line that a killed process may have left: the
// next line would be glued to it.
void RunWriter::OpenMetrics() {
  const fs::path path = folder_ / "metrics.jsonl";
  FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd) throw CannotWrite("RunWriter::Append", path, errno);
  off_t end = lseek(fd.get(), 0, SEEK_END);
  char last = '\n';
  while (end > 0 && pread(fd.get(), &last, 1, end - 1) == 1 && last != '\n') --end;
  if (end < 0 || ftruncate(fd.get(), end) != 0 || !SyncFolder(folder_)) {
    throw CannotWrite("RunWriter::Append", path, errno);
  }
  metrics_ = std::move(fd);
}

void RunWriter::Append(const Evaluation& evaluation) {
  const std::string line = ToText(evaluation, "evaluation", -1);
  if (!metrics_) OpenMetrics();
  const off_t end = lseek(metrics_.get(), 0, SEEK_END);
  if (end < 0 || !WriteAll(metrics_.get(), AsBytes(line))) {
    const int error = errno;
    // What was written of the line goes; if that fails too, the next opening mends it.
    if (end < 0 || ftruncate(metrics_.get(), end) != 0) metrics_ = FileDescriptor();
    throw CannotWrite("RunWriter::Append", folder_ / "metrics.jsonl", error);
  }
}

void RunWriter::Sync() {
  if (metrics_ && !SyncToDisk(metrics_.get())) {
    throw CannotWrite("RunWriter::Sync", folder_ / "metrics.jsonl", errno);
  }
}

void RunWriter::TruncateAfter(int64_t step) {
  const fs::path result = folder_ / "result.json";
  if (unlink(result.c_str()) != 0 && errno != ENOENT) {
    throw CannotWrite("RunWriter::TruncateAfter", result, errno);
  }
  std::string kept;
  for (const EvaluationLine& line : ReadEvaluationLines(folder_ / "metrics.jsonl")) {
    if (line.evaluation.step <= step) kept += line.text + "\n";
  }
  metrics_ = FileDescriptor();  // the file that it stands for is about to be replaced
  WriteFileAtomically(folder_ / "metrics.jsonl", kept);
}

void RunWriter::Finish(const RunResult& result) {
  Sync();
  WriteFileAtomically(folder_ / "result.json", ToText(result, "result", 2));
}

std::vector<std::string> ConfigDifferences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& name, const Json* in_a, const Json* in_b) {
    // In the sorted kind of JSON, so that the order of keys inside a value does not count.
    if (in_a && in_b && nlohmann::json(*in_a) == nlohmann::json(*in_b)) return;
    lines.push_back(fmt::format("{}: {} instead of {}", name, in_b ? in_b->dump() : "nothing",
                                in_a ? in_a->dump() : "nothing"));
  };
  const auto compare_values = [&](const std::string& name, const Json& in_a, const Json& in_b) {
    compare(name, &in_a, &in_b);
  };
  compare_values("task", a.task, b.task);
  compare_values("preset", a.preset, b.preset);
  const auto find = [](const Json& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? nullptr : &*found;
  };
  for (const auto& [key, value] : a.settings.items()) compare(key, &value, find(b.settings, key));
  for (const auto& [key, value] : b.settings.items()) {
    if (!a.settings.contains(key)) compare(key, nullptr, &value);
  }
  compare_values("seed", a.seed, b.seed);
  compare_values("data", a.data.name, b.data.name);
  compare_values("data sha256", a.data.sha256, b.data.sha256);
  return lines;
}

}  // namespace planish::lab
