#include "lab/data/zip.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/inflation.h"

// The format: APPNOTE.TXT of PKWARE, sections 4.3 to 4.5.
namespace planish::lab {

namespace fs = std::filesystem;

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMemberSignature = "PK\1\2"sv, kLocalSignature = "PK\3\4"sv,
                           kEndSignature = "PK\5\6"sv, kEnd64Signature = "PK\6\6"sv,
                           kLocator64Signature = "PK\6\7"sv;
constexpr int64_t kMemberSize = 46, kLocalSize = 30, kEndSize = 22, kEnd64Size = 56,
                  kLocator64Size = 20;
constexpr int64_t kMaxComment = 65535;
// Maximum size of a directory: a member needs about 60 bytes.
constexpr int64_t kMaxDirectory = int64_t{16} << 20;
// Sizes and counts that stand for those of zip64.
constexpr int64_t kSize64 = 0xffffffff, kCount64 = 0xffff;
constexpr uint16_t kZip64Extra = 1;
// Flags: encrypted, strongly encrypted, encrypted directory.
constexpr uint16_t kEncrypted = 1 | 1 << 6 | 1 << 13;
constexpr uint16_t kStored = 0, kDeflated = 8;

// Returns the little-endian integer of `size` bytes at `offset`. Values of 2^63 and above become
// the largest integer.
int64_t IntegerIn(std::string_view bytes, int64_t offset, int size) {
  uint64_t value = 0;
  for (int i = size; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(offset + i)]);
  }
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(value, kMax));
}

// Reads up to `out.size()` bytes at `offset`. Returns the number of bytes.
int64_t ReadAt(const fs::path& path, int fd, int64_t offset, std::span<uint8_t> out) {
  int64_t done = 0;
  while (done < std::ssize(out)) {
    const std::span<uint8_t> rest = out.subspan(static_cast<size_t>(done));
    const ssize_t got =
        RetryInterrupted([&] { return pread(fd, rest.data(), rest.size(), offset + done); });
    if (got < 0) FailToRead(path, SystemReason(errno));
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::string BytesAt(const fs::path& path, int fd, int64_t offset, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  const int64_t got =
      ReadAt(path, fd, offset, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

// Bytes of a member.
class MemberStream final : public ByteStream {
 public:
  // The packed bytes begin at `offset` of the file `fd`.
  MemberStream(fs::path path, int fd, int64_t offset, const ZipArchive::Member& member)
      : path_(std::move(path)), fd_(fd), offset_(offset), member_(member) {
    if (!is_packed()) return;
    if (inflateInit2(&zlib_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }

  const fs::path& path() const override { return path_; }
  bool is_packed() const override { return member_.method == kDeflated; }
  int64_t UpperBound() const override {
    return is_packed() ? std::min(member_.size, member_.packed_size * kMaxDeflateRatio)
                       : member_.size;
  }

  int64_t Read(std::span<uint8_t> out) override {
    int64_t done = 0;
    while (done < std::ssize(out) && !ended_) {
      const std::span<uint8_t> rest =
          out.subspan(static_cast<size_t>(done))
              .first(std::min(out.size() - static_cast<size_t>(done), size_t{1} << 30));
      const int64_t got = is_packed() ? Inflate(rest) : Copy(rest);
      crc_ = static_cast<uint32_t>(crc32(crc_, rest.data(), static_cast<uInt>(got)));
      done += got;
      read_ += got;
      if (read_ > member_.size) {
        FailToRead(path_, fmt::format("it unpacks to more than the {} bytes that the archive's "
                                      "directory states",
                                      FormatInteger(member_.size)));
      }
      if (ended_) CheckEnd();
    }
    return done;
  }

 private:
  void CheckEnd() const {
    if (read_ < member_.size) {
      FailToRead(path_, fmt::format("it unpacks to {} bytes; the archive's directory states {}",
                                    FormatInteger(read_), FormatInteger(member_.size)));
    }
    if (crc_ != member_.crc) {
      FailToRead(path_, fmt::format("its checksum is {:08x}, but the archive's directory has "
                                    "{:08x}: it is damaged",
                                    crc_, member_.crc));
    }
  }

  int64_t Copy(std::span<uint8_t> out) {
    const int64_t size = std::min(std::ssize(out), member_.size - taken_);
    const int64_t got = ReadAt(path_, fd_, offset_ + taken_, out.first(static_cast<size_t>(size)));
    taken_ += got;
    ended_ = got < size || taken_ == member_.size;
    return got;
  }

  int64_t Inflate(std::span<uint8_t> out) {
    zlib_.next_out = out.data();
    zlib_.avail_out = static_cast<uInt>(out.size());
    while (zlib_.avail_out > 0 && !ended_) {
      if (zlib_.avail_in == 0) Refill();
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      if (result == Z_STREAM_END) {
        ended_ = true;
        if (zlib_.avail_in > 0 || taken_ < member_.packed_size) {
          FailToRead(path_, "other bytes follow its deflate stream");
        }
      } else if (result == Z_BUF_ERROR && taken_ == member_.packed_size) {
        FailToRead(path_, "its deflate stream is truncated");
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        FailToRead(path_, fmt::format("its deflate stream is damaged ({})",
                                      zlib_.msg ? zlib_.msg : "unknown error"));
      }
    }
    return std::ssize(out) - zlib_.avail_out;
  }

  void Refill() {
    const int64_t size = std::min(std::ssize(input_), member_.packed_size - taken_);
    const int64_t got =
        ReadAt(path_, fd_, offset_ + taken_, std::span(input_).first(static_cast<size_t>(size)));
    if (got < size) FailToRead(path_, "the archive was shortened while it was read");
    taken_ += got;
    zlib_.next_in = input_.data();
    zlib_.avail_in = static_cast<uInt>(got);
  }

  fs::path path_;
  int fd_;
  int64_t offset_;
  ZipArchive::Member member_;
  std::array<uint8_t, 1 << 16> input_;
  Inflation zlib_;
  uint32_t crc_ = 0;
  int64_t taken_ = 0;  // packed bytes
  int64_t read_ = 0;   // unpacked bytes
  bool ended_ = false;
};

// Reads the zip64 sizes and offset of a member from its extra fields, in place of those that are
// kSize64.
void ReadExtra64(const fs::path& path, const std::string& name, std::string_view extra,
                 ZipArchive::Member& member) {
  std::string_view rest;
  for (; extra.size() >= 4; extra.remove_prefix(rest.size() + 4)) {
    const int64_t size = IntegerIn(extra, 2, 2);
    rest = extra.substr(4, static_cast<size_t>(size));
    if (std::ssize(rest) < size) break;
    if (IntegerIn(extra, 0, 2) != kZip64Extra) continue;
    std::string_view values = rest;
    for (int64_t* value : {&member.size, &member.packed_size, &member.header}) {
      if (*value != kSize64 || values.size() < 8) continue;
      *value = IntegerIn(values, 0, 8);
      values.remove_prefix(8);
    }
    return;
  }
  FailToRead(path, fmt::format("the directory entry of {} lacks the sizes of zip64", Quoted(name)));
}

}  // namespace

ZipArchive::ZipArchive(fs::path file) : path_(std::move(file)) { ReadDirectory(); }

void ZipArchive::ReadDirectory() {
  RegularFile file = OpenRegularFile(path_);
  fd_ = std::move(file.fd);
  const auto bytes_at = [&](int64_t offset, int64_t size) {
    std::string bytes = BytesAt(path_, fd_.get(), offset, size);
    if (std::ssize(bytes) < size) FailToRead(path_, "it was shortened while it was read");
    return bytes;
  };
  // The end record is followed by a comment, whose size it has.
  const int64_t tail_size = std::min(file.size, kEndSize + kMaxComment);
  const std::string tail = bytes_at(file.size - tail_size, tail_size);
  int64_t at = tail_size - kEndSize;
  const auto is_end = [&] {
    return std::string_view(tail).substr(static_cast<size_t>(at)).starts_with(kEndSignature) &&
           at + kEndSize + IntegerIn(tail, at + 20, 2) == tail_size;
  };
  while (at >= 0 && !is_end()) --at;
  if (at < 0) {
    FailToRead(path_,
               fmt::format("it does not end with the directory of a zip archive: it is {}",
                           BytesAt(path_, fd_.get(), 0, 2) == "PK" ? "truncated"
                                                                   : "damaged, or another file"));
  }
  int64_t end = file.size - tail_size + at;
  int64_t disk = IntegerIn(tail, at + 4, 2), count = IntegerIn(tail, at + 10, 2);
  int64_t size = IntegerIn(tail, at + 12, 4), offset = IntegerIn(tail, at + 16, 4);
  if (count == kCount64 || size == kSize64 || offset == kSize64) {
    const int64_t locator = end - kLocator64Size;
    const std::string bytes = locator < 0 ? "" : bytes_at(locator, kLocator64Size);
    if (!bytes.starts_with(kLocator64Signature)) FailToRead(path_, "it lacks the end of zip64");
    const int64_t end64 = IntegerIn(bytes, 8, 8);
    if (end64 > locator - kEnd64Size) FailToRead(path_, "its end of zip64 is not in the file");
    const std::string record = bytes_at(end64, kEnd64Size);
    if (!record.starts_with(kEnd64Signature)) FailToRead(path_, "its end of zip64 is damaged");
    disk = IntegerIn(record, 16, 4);
    count = IntegerIn(record, 32, 8);
    size = IntegerIn(record, 40, 8);
    offset = IntegerIn(record, 48, 8);
    end = end64;
  }
  if (disk != 0) FailToRead(path_, "it is a zip archive in several parts");
  if (size > end || offset != end - size) {
    FailToRead(path_, fmt::format("its directory has {} bytes from byte {}, but ends at byte {}",
                                  FormatInteger(size), FormatInteger(offset), FormatInteger(end)));
  }
  if (size > kMaxDirectory) {
    FailToRead(path_, fmt::format("its directory has {} bytes; at most {} are allowed",
                                  FormatInteger(size), FormatInteger(kMaxDirectory)));
  }
  directory_ = offset;
  const std::string directory = bytes_at(offset, size);
  std::string_view rest = directory;
  for (int64_t i = 0; i < count; ++i) {
    const auto fail = [&] {
      FailToRead(path_, fmt::format("its directory is damaged at member {} of {}", i + 1, count));
    };
    if (std::ssize(rest) < kMemberSize || !rest.starts_with(kMemberSignature)) fail();
    Member member{.header = IntegerIn(rest, 42, 4),
                  .packed_size = IntegerIn(rest, 20, 4),
                  .size = IntegerIn(rest, 24, 4),
                  .crc = static_cast<uint32_t>(IntegerIn(rest, 16, 4)),
                  .method = static_cast<uint16_t>(IntegerIn(rest, 10, 2)),
                  .flags = static_cast<uint16_t>(IntegerIn(rest, 8, 2))};
    const int64_t name_size = IntegerIn(rest, 28, 2), extra_size = IntegerIn(rest, 30, 2),
                  comment_size = IntegerIn(rest, 32, 2);
    const int64_t entry = kMemberSize + name_size + extra_size + comment_size;
    if (std::ssize(rest) < entry) fail();
    const std::string name(rest.substr(kMemberSize, static_cast<size_t>(name_size)));
    if (member.size == kSize64 || member.packed_size == kSize64 || member.header == kSize64) {
      ReadExtra64(path_, name,
                  rest.substr(static_cast<size_t>(kMemberSize + name_size),
                              static_cast<size_t>(extra_size)),
                  member);
    }
    if (!members_.emplace(name, member).second) {
      FailToRead(path_, fmt::format("it has {} twice", Quoted(name)));
    }
    rest.remove_prefix(static_cast<size_t>(entry));
  }
  if (!rest.empty()) {
    FailToRead(path_, fmt::format("its directory has more than the {} members that it states",
                                  FormatInteger(count)));
  }
}

std::unique_ptr<ByteStream> ZipArchive::Open(const std::string& name) const {
  const Member& member = members_.at(name);
  const fs::path path = path_.string() + "/" + name;
  if ((member.flags & kEncrypted) != 0) {
    FailToRead(path, "it is encrypted: save it without a password");
  }
  if (member.method != kStored && member.method != kDeflated) {
    FailToRead(path, fmt::format("it is compressed by method {} of zip; only deflate (8) is read",
                                 member.method));
  }
  if (member.method == kStored && member.packed_size != member.size) {
    FailToRead(path, fmt::format("it is stored, but has {} bytes in the archive and {} unpacked",
                                 FormatInteger(member.packed_size), FormatInteger(member.size)));
  }
  // The local header has the name and extra fields again; the directory's sizes count.
  const int64_t last = directory_ - kLocalSize;
  const std::string local =
      member.header > last ? "" : BytesAt(path, fd_.get(), member.header, kLocalSize);
  if (std::ssize(local) < kLocalSize || !local.starts_with(kLocalSignature)) {
    FailToRead(path, fmt::format("it has no header at byte {}", FormatInteger(member.header)));
  }
  const int64_t name_size = IntegerIn(local, 26, 2), extra_size = IntegerIn(local, 28, 2);
  if (BytesAt(path, fd_.get(), member.header + kLocalSize, name_size) != name) {
    FailToRead(path, "its header has another name");
  }
  if (member.packed_size > last - member.header - name_size - extra_size) {
    FailToRead(path, fmt::format("its {} bytes are not before the directory of the archive",
                                 FormatInteger(member.packed_size)));
  }
  if (member.method == kDeflated && member.size > MaxUnpacked(member.packed_size)) {
    FailToRead(path,
               fmt::format("it unpacks to {} bytes, more than {} times its size: save it with "
                           "numpy.savez if that is right",
                           FormatInteger(member.size), kMaxRatio));
  }
  return std::make_unique<MemberStream>(
      path, fd_.get(), member.header + kLocalSize + name_size + extra_size, member);
}

}  // namespace planish::lab
