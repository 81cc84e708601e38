#include "lab/run/archive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/gzip.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBlock = 512;

// Header of a file in a POSIX tar archive. Numbers are octal digits.
struct TarHeader {
  char name[100];
  char mode[8], user_id[8], group_id[8];
  char size[12], time[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6], version[2];
  char user[32], group[32];
  char device[16];
  char prefix[155];  // the folder, if the path is longer than `name`
  char padding[12];
};
static_assert(sizeof(TarHeader) == kBlock);

constexpr std::string_view kMagic("ustar\0", 6);
constexpr char kRegularFile = '0';

// Files of a run in the order of an archive.
constexpr std::string_view kFiles[] = {"config.json", "metrics.jsonl", "result.json",
                                       "predictions.csv.gz"};

[[noreturn]] void FailToRead(const fs::path& path, const std::string& reason) {
  throw DataError(fmt::format("cannot read {}: {}", Escaped(path.string()), reason));
}

// Returns the characters of a field before the first NUL.
template <size_t kSize>
std::string_view TextOf(const char (&field)[kSize]) {
  return {field, static_cast<size_t>(std::find(field, field + kSize, '\0') - field)};
}

// Returns the value of an octal field, which ends with a NUL or a space, or nullopt.
template <size_t kSize>
std::optional<int64_t> NumberOf(const char (&field)[kSize]) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(field, field + kSize, value, 8);
  const bool ends = end == field + kSize || *end == '\0' || *end == ' ';
  if (error != std::errc() || !ends || value < 0) return std::nullopt;
  return value;
}

// Returns the sum of a header's bytes, with spaces for its checksum.
int64_t ChecksumOf(TarHeader header) {
  std::ranges::fill(header.checksum, ' ');
  int64_t sum = 0;
  for (const std::byte byte : std::as_bytes(std::span(&header, 1))) {
    sum += std::to_integer<int64_t>(byte);
  }
  return sum;
}

// Returns the header and the padded content of a file of a run.
std::string TarEntry(const std::string& run, std::string_view file, std::string_view content) {
  TarHeader header = {};
  std::string name = fmt::format("{}/{}", run, file);
  if (name.size() > sizeof(header.name)) {
    run.copy(header.prefix, sizeof(header.prefix));
    name = file;
  }
  name.copy(header.name, sizeof(header.name));
  fmt::format_to(header.mode, "0000644");
  fmt::format_to(header.user_id, "0000000");
  fmt::format_to(header.group_id, "0000000");
  fmt::format_to(header.size, "{:011o}", content.size());
  fmt::format_to(header.time, "00000000000");
  header.type = kRegularFile;
  kMagic.copy(header.magic, sizeof(header.magic));
  std::ranges::fill(header.version, '0');
  fmt::format_to(header.checksum, "{:06o}", ChecksumOf(header));
  header.checksum[7] = ' ';
  std::string entry(reinterpret_cast<const char*>(&header), sizeof(header));
  entry += content;
  entry.append((kBlock - content.size() % kBlock) % kBlock, '\0');
  return entry;
}

// Parser of a tar archive with the files of runs.
class TarReader {
 public:
  TarReader(std::string_view text, const fs::path& path) : text_(text), path_(path) {}

  ArchivedRuns Read() {
    ArchivedRuns runs;
    std::set<std::string> with_config;
    while (const std::optional<TarHeader> header = NextHeader()) {
      const auto [run, file] = NameOf(*header);
      const std::string name = fmt::format("{}/{}", run, file);
      if (!names_.insert(name).second) Refuse(name, "is in it twice");
      std::string content = NextContent(*header);
      RunFiles& files = runs[run];
      if (file == "config.json") {
        files.config = std::move(content);
        with_config.insert(run);
      } else if (file == "metrics.jsonl") {
        files.metrics = std::move(content);
      } else if (file == "result.json") {
        files.result = std::move(content);
      } else {
        files.predictions = std::move(content);
      }
    }
    for (const auto& [run, files] : runs) {
      if (!with_config.contains(run)) Refuse(run, "has no config.json");
    }
    if (runs.empty()) FailToRead(path_, "it contains no run");
    return runs;
  }

 private:
  [[noreturn]] void Refuse(const std::string& name, std::string_view reason) const {
    FailToRead(path_, fmt::format("{} {}", Escaped(name), reason));
  }

  // Returns the next file's header, or nullopt at the end.
  std::optional<TarHeader> NextHeader() {
    if (text_.size() < at_ + kBlock) FailToRead(path_, "it is truncated");
    // The end of an archive is at least one block of zeros, and further ones up to its own end.
    if (text_.substr(at_, kBlock).find_first_not_of('\0') == std::string_view::npos) {
      if (text_.find_first_not_of('\0', at_) != std::string_view::npos) {
        FailToRead(path_, "other bytes follow its end");
      }
      return std::nullopt;
    }
    TarHeader header;
    std::memcpy(&header, text_.data() + at_, kBlock);
    if (std::string_view(header.magic, sizeof(header.magic)) != kMagic ||
        NumberOf(header.checksum) != ChecksumOf(header)) {
      FailToRead(path_, fmt::format("the tar header at byte {} is malformed", at_));
    }
    at_ += kBlock;
    return header;
  }

  // Returns the folder and the file name of the path RUN/FILE. Since RUN is one component and FILE
  // one of four, no path leads out of a folder.
  std::pair<std::string, std::string> NameOf(const TarHeader& header) const {
    std::string name(TextOf(header.name));
    if (const std::string_view prefix = TextOf(header.prefix); !prefix.empty()) {
      name = fmt::format("{}/{}", prefix, name);
    }
    if (header.type != kRegularFile) Refuse(name, "is not a regular file");
    const size_t slash = name.find('/');
    const std::string run = name.substr(0, slash);
    const std::string file = slash == name.npos ? "" : name.substr(slash + 1);
    if (run.empty() || run == "." || run == ".." ||
        std::ranges::find(kFiles, file) == std::end(kFiles)) {
      Refuse(name, fmt::format("is not RUN/{}", fmt::join(kFiles, ", RUN/")));
    }
    return {run, file};
  }

  // Returns the content of the file whose header was read last.
  std::string NextContent(const TarHeader& header) {
    const std::optional<int64_t> size = NumberOf(header.size);
    if (!size) FailToRead(path_, fmt::format("the size before byte {} is malformed", at_));
    if (*size > std::ssize(text_) - static_cast<int64_t>(at_)) FailToRead(path_, "it is truncated");
    std::string content(text_.substr(at_, static_cast<size_t>(*size)));
    at_ += (content.size() + kBlock - 1) / kBlock * kBlock;
    return content;
  }

  std::string_view text_;
  const fs::path& path_;
  size_t at_ = 0;
  std::set<std::string> names_;
};

// Returns the bytes of an archive. Each run is a gzip member of its own, so that adding a run
// leaves the bytes of the others as they are.
std::string PackArchive(const ArchivedRuns& runs, const fs::path& path) {
  std::string packed;
  int64_t size = 2 * kBlock;
  for (const auto& [run, files] : runs) {
    if (run.size() > sizeof(TarHeader::prefix)) {
      throw CannotWrite(path, fmt::format("the name of the run {} has {} bytes, and {} are the "
                                          "limit in an archive",
                                          Escaped(run), run.size(), sizeof(TarHeader::prefix)));
    }
    std::string entries = TarEntry(run, "config.json", files.config);
    entries += TarEntry(run, "metrics.jsonl", files.metrics);
    if (files.result) entries += TarEntry(run, "result.json", *files.result);
    if (files.predictions) entries += TarEntry(run, "predictions.csv.gz", *files.predictions);
    size += std::ssize(entries);
    if (size > kMaxArchiveBytes) {
      throw CannotWrite(path,
                        fmt::format("its runs have more than {} bytes, the limit of an archive",
                                    kMaxArchiveBytes));
    }
    packed += PackGzip(entries);
  }
  return packed + PackGzip(std::string(2 * kBlock, '\0'));
}

}  // namespace

bool IsArchive(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code error;
  return name.size() > kArchiveEnding.size() && name.ends_with(kArchiveEnding) &&
         fs::exists(path, error) && !fs::is_directory(path, error);
}

ArchivedRuns ReadArchive(const fs::path& path) {
  const std::string packed = ReadRegularFile(path, kMaxArchiveBytes);
  std::string text;
  try {
    text = UnpackGzip(packed, kMaxArchiveBytes);
  } catch (const std::invalid_argument& e) {
    FailToRead(path, e.what());
  }
  return TarReader(text, path).Read();
}

std::vector<std::string> AddToArchive(const fs::path& path, const ArchivedRuns& runs) {
  const fs::path folder = FolderOf(path);
  CreateFolders(folder);
  const FileDescriptor lock = OpenFolder(folder);
  if (!lock) throw CannotWrite(folder, SystemReason(errno));
  LockFile(lock.get(), folder, /*wait=*/true);

  std::error_code error;
  const bool is_new = fs::symlink_status(path, error).type() == fs::file_type::not_found;
  const ArchivedRuns old = is_new ? ArchivedRuns() : ReadArchive(path);
  ArchivedRuns all = old;
  std::vector<std::string> kept;
  for (const auto& [name, files] : runs) {
    const auto found = old.find(name);
    if (found != old.end() && found->second.result && !files.result) {
      kept.push_back(name);
    } else {
      all[name] = files;
    }
  }
  if (all != old) WriteFileAtomically(path, PackArchive(all, path));
  return kept;
}

}  // namespace planish::lab
