#include "lab/run/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr char kMetrics[] = "metrics.jsonl";
constexpr char kLock[] = ".lock";

// Throws RunError for NaN and infinity, which the library would write as null: a malformed file.
void CheckFinite(const fs::path& file, const Json& json, const std::string& where) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    throw CannotWrite(file,
                      fmt::format("{} is {}, which JSON cannot store", where, json.get<double>()));
  }
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items())
      CheckFinite(file, value, fmt::format("{}.{}", where, key));
  }
}

// Returns `value` as JSON, with doubles as the shortest decimal that reads back to the same bits.
// `file` and `name` name its file and `value` in errors.
template <class T>
std::string ToText(const fs::path& file, const T& value, const char* name, int indent) {
  const Json json(value);
  CheckFinite(file, json, name);
  try {
    return json.dump(indent) + "\n";
  } catch (const Json::exception& e) {
    throw CannotWrite(file, fmt::format("the {} is not UTF-8: {}", name, JsonReason(e)));
  }
}

// Takes the lock of a run. Returns false if another process has it. Tries again for 50 ms, because
// IsInUse has it for microseconds.
bool LockRun(int fd, const fs::path& path) {
  for (int tries = 0; tries < 10; ++tries) {
    if (LockFile(fd, path, /*wait=*/false)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace

RunWriter::RunWriter(fs::path folder) : folder_(std::move(folder)) {
  CreateFolders(folder_);
  const fs::path path = folder_ / kLock;
  lock_ = OpenForWriting(path, O_RDWR | O_CREAT);
  if (!LockRun(lock_.get(), path)) {
    std::array<char, 32> text{};
    const ssize_t count = pread(lock_.get(), text.data(), text.size() - 1, 0);
    std::string pid(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
    if (pid.find_first_not_of("0123456789") != pid.npos) pid.clear();
    const std::string by = pid.empty() ? "" : " (" + pid + ")";
    const std::string reason = fmt::format("another process{} is using the run", by);
    throw RunInUse(CannotWrite(folder_, reason).what());
  }
  if (!Truncate(lock_.get(), 0) || !WriteAll(lock_.get(), AsBytes(std::to_string(getpid())))) {
    throw CannotWrite(path, SystemReason(errno));
  }
}

void RunWriter::CheckFolder() const {
  const fs::path lock = folder_ / kLock;
  if (!IsAt(lock, lock_.get())) throw CannotWrite(lock, kNoLongerThere);
}

void RunWriter::WriteConfig(const RunConfig& config) {
  CheckFolder();
  const fs::path file = folder_ / "config.json";
  WriteFileAtomically(file, ToText(file, config, "config", 2));
}

// Opens metrics.jsonl for appending. Removes a partial line of a killed process, which the next
// line would be appended to.
void RunWriter::OpenMetrics() {
  const fs::path path = folder_ / kMetrics;
  FileDescriptor fd = OpenForWriting(path, O_RDWR | O_CREAT | O_APPEND);
  off_t end = lseek(fd.get(), 0, SEEK_END);
  for (char last = 0; end > 0; --end) {
    errno = 0;  // stays if the file has become shorter
    if (RetryInterrupted([&] { return pread(fd.get(), &last, 1, end - 1); }) != 1) {
      throw CannotRead(path,
                       errno == 0 ? "it became shorter while it was read" : SystemReason(errno));
    }
    if (last == '\n') break;
  }
  if (end < 0 || !Truncate(fd.get(), end) || !SyncFolder(folder_)) {
    throw CannotWrite(path, SystemReason(errno));
  }
  metrics_ = std::move(fd);
}

void RunWriter::CheckMetrics() const {
  const fs::path path = folder_ / kMetrics;
  if (metrics_ && !IsAt(path, metrics_.get())) throw CannotWrite(path, kNoLongerThere);
}

void RunWriter::Append(const Evaluation& evaluation) {
  const std::string line = ToText(folder_ / kMetrics, evaluation, "evaluation", -1);
  CheckFolder();
  CheckMetrics();
  if (!metrics_) OpenMetrics();
  const off_t end = lseek(metrics_.get(), 0, SEEK_END);
  if (end < 0 || !WriteAll(metrics_.get(), AsBytes(line))) {
    const int error = errno;
    // Removes the written part of the line; if that fails too, the next OpenMetrics does.
    if (end < 0 || !Truncate(metrics_.get(), end)) metrics_ = FileDescriptor();
    throw CannotWrite(folder_ / kMetrics, SystemReason(error));
  }
}

void RunWriter::Sync() {
  CheckFolder();
  CheckMetrics();
  if (metrics_ && !SyncToDisk(metrics_.get())) {
    throw CannotWrite(folder_ / kMetrics, SystemReason(errno));
  }
}

void RunWriter::TruncateAfter(int64_t step) {
  CheckFolder();
  for (const char* name : {"result.json", kPredictionsFile}) {
    const fs::path file = folder_ / name;
    if (unlink(file.c_str()) != 0 && errno != ENOENT) {
      throw CannotWrite(file, SystemReason(errno));
    }
  }
  std::string kept;
  for (const EvaluationLine& line : ReadEvaluationLines(folder_ / kMetrics)) {
    if (line.evaluation.step <= step) kept += line.text + "\n";
  }
  metrics_ = FileDescriptor();  // its file is about to be replaced
  WriteFileAtomically(folder_ / kMetrics, kept);
}

void RunWriter::Finish(const RunResult& result, const std::optional<Predictions>& predictions) {
  Sync();
  if (predictions) WriteFileAtomically(folder_ / kPredictionsFile, PackPredictions(*predictions));
  const fs::path file = folder_ / "result.json";
  WriteFileAtomically(file, ToText(file, result, "result", 2));
}

bool IsInUse(const fs::path& folder) { return IsLocked(folder / kLock); }

std::vector<std::string> ConfigDifferences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& name, const Json* in_a, const Json* in_b) {
    // As unordered JSON: the order of keys inside a value does not count.
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
