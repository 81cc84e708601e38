#include "lab/data/file_content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/base/lower_case.h"
#include "lab/data/inflation.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

using namespace std::string_view_literals;

// Bytes at the start of the content that are compared with signatures: tar's is at byte 257.
constexpr size_t kHead = 512;

// File format that is recognized only to be refused.
struct Format {
  std::string_view name;
  std::string_view advice;
};

constexpr Format kGzip{"a gzip file", "unpack it once"};
constexpr Format kZip{"a zip archive", "unpack it first (unzip)"};
constexpr Format kBzip2{"a bzip2 file", "unpack it first (bunzip2)"};
constexpr Format kXz{"an xz file", "unpack it first (unxz)"};
constexpr Format kZstd{"a zstd file", "unpack it first (unzstd)"};
constexpr Format k7Zip{"a 7-Zip archive", "unpack it first (7z x)"};
constexpr Format kLz4{"an lz4 file", "unpack it first (unlz4)"};
constexpr Format kRar{"a RAR archive", "unpack it first (unrar x)"};
constexpr Format kTar{"a tar archive", "unpack it first (tar xf)"};
constexpr Format kCompress{"a file of compress", "unpack it first (uncompress)"};
constexpr Format kLzma{"an lzma file", "unpack it first (unlzma)"};
constexpr Format kLzip{"an lzip file", "unpack it first (lzip -d)"};
constexpr Format kPdf{"a PDF document", "extract its text first (pdftotext)"};
constexpr Format kParquet{"a Parquet table", "convert it to text first"};

// Bytes at `offset` in files of a format.
struct Signature {
  const Format& format;
  size_t offset;
  std::string_view bytes;
};

constexpr Signature kSignatures[] = {
    {kZip, 0, "PK\3\4"sv},
    {kZip, 0, "PK\5\6"sv},                      // empty
    {kZip, 0, "PK\7\10"sv},                     // in several parts
    {kBzip2, 4, "\x31\x41\x59\x26\x53\x59"sv},  // after BZh and a digit
    {kBzip2, 4, "\x17\x72\x45\x38\x50\x90"sv},  // the same, empty
    {kXz, 0, "\xfd\x37zXZ\0"sv},
    {kZstd, 0, "\x28\xb5\x2f\xfd"sv},
    {k7Zip, 0, "7z\xbc\xaf\x27\x1c"sv},
    {kLz4, 0, "\x04\x22\x4d\x18"sv},
    {kLz4, 0, "\x02\x21\x4c\x18"sv},  // of old versions
    {kRar, 0, "Rar!\x1a\x07"sv},
    {kTar, 257, "ustar\0"sv},
    {kTar, 257, "ustar  \0"sv},  // GNU's
    {kCompress, 0, "\x1f\x9d\x90"sv},
    {kLzma, 0, "\x5d\0\0"sv},
    {kLzip, 0, "LZIP\1"sv},
    {kPdf, 0, "%PDF-1."sv},
    {kPdf, 0, "%PDF-2."sv},
    {kParquet, 0, "PAR1\x15"sv},
};

// File name extensions, in lower case.
struct Ending {
  std::string_view text;
  const Format& format;
};

constexpr Ending kEndings[] = {
    {".gz", kGzip},    {".tgz", kGzip},   {".zip", kZip},   {".bz2", kBzip2},
    {".tbz2", kBzip2}, {".xz", kXz},      {".txz", kXz},    {".zst", kZstd},
    {".zstd", kZstd},  {".7z", k7Zip},    {".lz4", kLz4},   {".rar", kRar},
    {".tar", kTar},    {".z", kCompress}, {".lzma", kLzma}, {".lz", kLzip},
};

// Returns the format of the extension of `file`, or null.
const Format* FormatByName(const fs::path& file) {
  const std::string ending = LowerCase(file.extension().string());
  const auto* const found = std::ranges::find(kEndings, ending, &Ending::text);
  return found == std::end(kEndings) ? nullptr : &found->format;
}

bool IsGzip(std::string_view head) { return head.starts_with("\x1f\x8b"); }

}  // namespace

RegularFile OpenRegularFile(const fs::path& file) {
  // A FIFO without a writer would block.
  RegularFile opened{
      FileDescriptor(open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC))};
  struct stat status;
  if (!opened.fd || fstat(opened.fd.get(), &status) != 0) FailToRead(file, SystemReason(errno));
  if (S_ISDIR(status.st_mode)) FailToRead(file, "it is a folder, not a file");
  if (!S_ISREG(status.st_mode)) FailToRead(file, "it is a device or pipe, not a regular file");
  opened.size = status.st_size;
  return opened;
}

void FailToRead(const fs::path& file, const std::string& reason) {
  throw DataError(fmt::format("cannot read {}: {}", Escaped(file.string()), reason));
}

void FailAtLine(const fs::path& file, int64_t line, const std::string& reason) {
  throw DataError(fmt::format("{}, line {}: {}", Escaped(file.string()), line, reason));
}

// Stream of the content's bytes. zlib's gzread is not used, because it ignores whatever follows a
// gzip stream.
class FileContent::Stream {
 public:
  explicit Stream(fs::path file) : file_(std::move(file)) {
    RegularFile opened = OpenRegularFile(file_);
    fd_ = std::move(opened.fd);
    size_ = opened.size;
    Refill();
    const std::string_view raw = Buffered();
    gzip_ = IsGzip(raw);
    CheckFormat(raw, "");
    if (gzip_) {
      if (inflateInit2(&zlib_, MAX_WBITS + 16) != Z_OK) FailToRead(file_, "zlib cannot start");
      std::array<uint8_t, kHead> head;
      while (head_.size() < kHead) {
        const int64_t got = Inflate(std::span(head).first(kHead - head_.size()));
        if (got == 0) break;
        head_.append(reinterpret_cast<const char*>(head.data()), static_cast<size_t>(got));
      }
      if (IsGzip(head_)) Refuse(kGzip, " within a gzip file");
      CheckFormat(head_, " within a gzip file");
    } else if (const Format* claimed = FormatByName(file_); claimed && !raw.empty()) {
      FailToRead(file_, fmt::format("its name is that of {}, but its first bytes are not: it is "
                                    "damaged, or must be renamed",
                                    claimed->name));
    }
  }
  ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const fs::path& file() const { return file_; }
  bool is_gzip() const { return gzip_; }

  int64_t UpperBound() const { return gzip_ ? size_ * kMaxDeflateRatio : size_; }

  // Writes at least one byte, or none at the end of the content. Returns the number written.
  int64_t ReadSome(std::span<uint8_t> out) {
    if (gzip_ && head_read_ < head_.size()) {
      const size_t got = std::min(out.size(), head_.size() - head_read_);
      std::memcpy(out.data(), head_.data() + head_read_, got);
      head_read_ += got;
      return static_cast<int64_t>(got);
    }
    if (gzip_) return Inflate(out);
    if (zlib_.avail_in == 0) Refill();
    const size_t got = std::min<size_t>(out.size(), zlib_.avail_in);
    std::memcpy(out.data(), zlib_.next_in, got);
    zlib_.next_in += got;
    zlib_.avail_in -= static_cast<uInt>(got);
    return static_cast<int64_t>(got);
  }

 private:
  [[noreturn]] void Refuse(const Format& format, std::string_view where) const {
    FailToRead(file_, fmt::format("it is {}{}, and only gzip is read: {}", format.name, where,
                                  format.advice));
  }

  // Throws DataError for content that starts with `head` if it is of a known format.
  void CheckFormat(std::string_view head, std::string_view where) const {
    for (const Signature& signature : kSignatures) {
      if (head.size() > signature.offset &&
          head.substr(signature.offset).starts_with(signature.bytes) &&
          (&signature.format != &kBzip2 || head.starts_with("BZh"))) {
        Refuse(signature.format, where);
      }
    }
  }

  // Implements ReadSome for a gzip stream.
  int64_t Inflate(std::span<uint8_t> out) {
    const auto room = static_cast<uInt>(std::min(out.size(), size_t{1} << 30));
    zlib_.next_out = out.data();
    zlib_.avail_out = room;
    while (zlib_.avail_out == room) {
      if (zlib_.avail_in == 0) Refill();
      if (member_ended_) {
        SkipPadding();
        if (zlib_.avail_in == 0) break;
        if (*zlib_.next_in != 0x1f) FailToRead(file_, "other bytes follow its gzip stream");
        inflateReset(&zlib_);
        zlib_.next_out = out.data();
        zlib_.avail_out = room;
        member_ended_ = false;
      }
      if (zlib_.avail_in == 0) FailToRead(file_, "its gzip stream is truncated");
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        member_ended_ = true;
      } else if (result == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        FailToRead(file_, fmt::format("its gzip stream is damaged ({})",
                                      zlib_.msg ? zlib_.msg : "unknown error"));
      }
    }
    const int64_t got = room - zlib_.avail_out;
    unpacked_ += got;
    if (unpacked_ > MaxUnpacked(size_)) {
      FailToRead(file_, fmt::format("its gzip stream unpacks to more than {} times its size: "
                                    "unpack it first (gunzip) if that is right",
                                    kMaxRatio));
    }
    return got;
  }

  // Skips zero bytes with which tapes and some programs pad a gzip file to whole blocks.
  void SkipPadding() {
    while (zlib_.avail_in > 0) {
      const std::string_view left = Buffered();
      const size_t zeros = std::min(left.find_first_not_of('\0'), left.size());
      zlib_.next_in += zeros;
      zlib_.avail_in -= static_cast<uInt>(zeros);
      if (zlib_.avail_in > 0) return;
      Refill();
    }
  }

  std::string_view Buffered() const {
    return {reinterpret_cast<const char*>(zlib_.next_in), zlib_.avail_in};
  }

  void Refill() {
    ssize_t got = 0;
    do {
      got = read(fd_.get(), input_.data(), input_.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) FailToRead(file_, SystemReason(errno));
    zlib_.next_in = input_.data();
    zlib_.avail_in = static_cast<uInt>(got);
  }

  fs::path file_;
  FileDescriptor fd_;
  int64_t size_ = 0;
  int64_t unpacked_ = 0;  // bytes of the content of a gzip file so far
  std::array<uint8_t, 1 << 16> input_;
  Inflation zlib_;
  std::string head_;  // of the unpacked content, read to check its format
  size_t head_read_ = 0;
  bool gzip_ = false;
  bool member_ended_ = false;
};

FileContent::FileContent(fs::path file) : stream_(std::make_unique<Stream>(std::move(file))) {}

FileContent::~FileContent() = default;

const fs::path& FileContent::path() const { return stream_->file(); }

bool FileContent::is_packed() const { return stream_->is_gzip(); }

int64_t FileContent::UpperBound() const { return stream_->UpperBound(); }

int64_t FileContent::Read(std::span<uint8_t> out) {
  int64_t done = 0;
  while (done < std::ssize(out)) {
    const int64_t got = stream_->ReadSome(out.subspan(static_cast<size_t>(done)));
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::string FileContent::Rest(int64_t max_bytes) {
  constexpr int64_t kPiece = 1 << 20;
  return ReadInMemory(stream_->file(), [&] {
    // One extra byte, so that the first read meets the end of a small file.
    const int64_t bound = std::max<int64_t>(UpperBound(), 4096) + 1;
    std::string content;
    // Growing while reading would take twice the memory.
    if (!is_packed()) content.reserve(static_cast<size_t>(std::min(max_bytes, bound + kPiece)));
    while (std::ssize(content) < max_bytes) {
      const size_t old = content.size();
      const int64_t want = std::min({kPiece, bound, max_bytes - std::ssize(content)});
      content.resize(old + static_cast<size_t>(want));
      const int64_t got =
          Read({reinterpret_cast<uint8_t*>(content.data()) + old, static_cast<size_t>(want)});
      content.resize(old + static_cast<size_t>(got));
      if (got < want) break;
    }
    return content;
  });
}

std::optional<fs::path> FindFile(const fs::path& folder, const std::string& name) {
  for (const std::string& candidate : {name, name + ".gz"}) {
    std::error_code error;
    if (fs::exists(folder / candidate, error)) return folder / candidate;
  }
  return std::nullopt;
}

void FailWithoutFile(const fs::path& folder, const std::string& name) {
  throw DataError(fmt::format("{} has no file {} or {}.gz", Escaped(folder.string()), name, name));
}

fs::path NeedFile(const fs::path& folder, const std::string& name) {
  if (auto file = FindFile(folder, name)) return *std::move(file);
  FailWithoutFile(folder, name);
}

std::optional<std::string_view> PackedByName(const fs::path& file) {
  const Format* const format = FormatByName(file);
  if (!format || format == &kGzip) return std::nullopt;
  return format->name;
}

}  // namespace planish::lab
