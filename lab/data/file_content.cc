#include "lab/data/file_content.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

// zlib's gzread would do, but it takes whatever follows a gzip stream for padding and ignores it.
class FileContent::Stream {
 public:
  Stream(fs::path file, std::string_view function) : file_(std::move(file)), function_(function) {
    std::error_code error;
    const fs::file_status status = fs::status(file_, error);
    if (error) Fail("be readable", error.message());
    if (fs::is_directory(status)) Fail("be a file", "the type of a folder");
    if (!fs::is_regular_file(status)) Fail("be a file", "the type of a device or pipe");
    in_.open(file_, std::ios::binary);
    if (!in_) Fail("be readable", std::generic_category().message(errno));
    size_ = static_cast<int64_t>(fs::file_size(file_, error));
    if (error) Fail("be readable", error.message());
    Refill();
    gzip_ = zlib_.avail_in >= 2 && input_[0] == 0x1f && input_[1] == 0x8b;
    if (gzip_ && inflateInit2(&zlib_, MAX_WBITS + 16) != Z_OK) {
      throw std::runtime_error(fmt::format("[{}] zlib must start but has failed", function_));
    }
  }
  ~Stream() {
    if (gzip_) inflateEnd(&zlib_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool is_gzip() const { return gzip_; }

  // Deflate shrinks at most 1032 times (zlib's technical details).
  int64_t UpperBound() const { return gzip_ ? size_ * 1032 : size_; }

  // At least one byte, or none at the end of the content.
  int64_t ReadSome(std::span<uint8_t> out) {
    const auto room = static_cast<uInt>(std::min(out.size(), size_t{1} << 30));
    if (!gzip_) {
      if (zlib_.avail_in == 0) Refill();
      const uInt got = std::min(room, zlib_.avail_in);
      std::memcpy(out.data(), zlib_.next_in, got);
      zlib_.next_in += got;
      zlib_.avail_in -= got;
      return got;
    }
    zlib_.next_out = out.data();
    zlib_.avail_out = room;
    while (zlib_.avail_out == room) {
      if (zlib_.avail_in == 0) Refill();
      if (member_ended_) {
        if (zlib_.avail_in == 0) break;
        // Several gzip streams in a row are one file; anything else after a stream is not.
        if (*zlib_.next_in != 0x1f) Fail("end with its gzip stream", "more bytes after it");
        inflateReset(&zlib_);
        zlib_.next_out = out.data();
        zlib_.avail_out = room;
        member_ended_ = false;
      }
      if (zlib_.avail_in == 0) Fail("be a whole gzip stream", "no end: it is truncated");
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        member_ended_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        Fail("be a sound gzip stream",
             fmt::format("an error: {}", zlib_.msg ? zlib_.msg : "unknown"));
      }
    }
    return room - zlib_.avail_out;
  }

 private:
  [[noreturn]] void Fail(const std::string& must, const std::string& has) const {
    throw DataError(
        fmt::format("[{}] {} must {} but has {}", function_, file_.string(), must, has));
  }

  void Refill() {
    in_.read(reinterpret_cast<char*>(input_.data()), static_cast<std::streamsize>(input_.size()));
    if (in_.bad()) Fail("be readable", "an error while being read");
    zlib_.next_in = input_.data();
    zlib_.avail_in = static_cast<uInt>(in_.gcount());
  }

  fs::path file_;
  std::string function_;
  std::ifstream in_;
  int64_t size_ = 0;
  std::array<uint8_t, 1 << 16> input_;
  z_stream zlib_ = {};
  bool gzip_ = false;
  bool member_ended_ = false;
};

FileContent::FileContent(fs::path file, std::string_view function)
    : stream_(std::make_unique<Stream>(std::move(file), function)) {}

FileContent::~FileContent() = default;

bool FileContent::is_gzip() const { return stream_->is_gzip(); }

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

std::string FileContent::Rest(int64_t most) {
  constexpr int64_t kPiece = 1 << 20;
  std::string content;
  while (std::ssize(content) < most) {
    const size_t old = content.size();
    const int64_t want = std::min(kPiece, most - std::ssize(content));
    content.resize(old + static_cast<size_t>(want));
    const int64_t got =
        Read({reinterpret_cast<uint8_t*>(content.data()) + old, static_cast<size_t>(want)});
    content.resize(old + static_cast<size_t>(got));
    if (got < want) break;
  }
  return content;
}

std::optional<fs::path> FindFile(const fs::path& folder, const std::string& name) {
  for (const std::string& candidate : {name, name + ".gz"}) {
    if (fs::is_regular_file(folder / candidate)) return folder / candidate;
  }
  return std::nullopt;
}

}  // namespace planish::lab
