#include "lab/run/events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "event.pb.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// The reflected polynomial 0x1EDC6F41, one byte at a time.
constexpr std::array<uint32_t, 256> MakeCrc32cTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrc32cTable = MakeCrc32cTable();

// Masks a checksum like TFRecord, because a checksum of data with checksums in it is weak.
uint32_t MaskedCrc32c(std::string_view text) {
  const uint32_t crc = Crc32c(AsBytes(text));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void AppendLittleEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::string HostName() {
  std::array<char, 256> name{};
  std::string host = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
  for (char& c : host) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '-';
  }
  return host.empty() ? "localhost" : host;
}

// Converts to float. A double outside float's range has no defined conversion, so it becomes
// infinite.
float ToFloat(double value) {
  if (std::abs(value) > std::numeric_limits<float>::max()) {
    const float infinity = std::numeric_limits<float>::infinity();
    return value > 0 ? infinity : -infinity;
  }
  return static_cast<float>(value);
}

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kCrc32cTable[(crc ^ std::to_integer<uint32_t>(byte)) & 0xff];
  }
  return ~crc;
}

std::string FrameRecord(std::string_view payload) {
  std::string record;
  AppendLittleEndian(record, payload.size(), 8);
  AppendLittleEndian(record, MaskedCrc32c(record), 4);
  record += payload;
  AppendLittleEndian(record, MaskedCrc32c(payload), 4);
  return record;
}

double EventWriter::WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventWriter::EventWriter(const fs::path& folder, int64_t first_step, std::function<double()> now)
    : now_(std::move(now)) {
  const double created = now_();
  // TensorBoard reads the files of a folder in the order of their names.
  const std::string name = fmt::format("events.out.tfevents.{:010}.{}.{}",
                                       static_cast<int64_t>(created), HostName(), getpid());
  for (int attempt = 0; !fd_; ++attempt) {
    path_ = folder / (attempt == 0 ? name : fmt::format("{}.{}", name, attempt));
    fd_ = FileDescriptor(RetryInterrupted([&] {
      return open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    }));
    if (!fd_ && errno != EEXIST) throw CannotWrite(path_, SystemReason(errno));
  }
  tensorboard::Event version;
  version.set_wall_time(created);
  version.set_file_version("brain.Event:2");
  // Every file records its first step. TensorBoard takes the first START of a run as its beginning,
  // and later ones as resumptions.
  tensorboard::Event start;
  start.set_wall_time(created);
  start.set_step(first_step);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  Write(FrameRecord(version.SerializeAsString()) + FrameRecord(start.SerializeAsString()));
}

void EventWriter::Scalars(int64_t step, const std::map<std::string, double>& values) {
  tensorboard::Event event;
  event.set_wall_time(now_());
  event.set_step(step);
  for (const auto& [tag, number] : values) {
    tensorboard::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(ToFloat(number));
  }
  Write(FrameRecord(event.SerializeAsString()));
}

void EventWriter::Write(std::string_view record) {
  if (!IsAt(path_, fd_.get())) throw CannotWrite(path_, kNoLongerThere);
  if (!WriteAll(fd_.get(), AsBytes(record))) throw CannotWrite(path_, SystemReason(errno));
}

}  // namespace planish::lab
