#include "lab/run/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <vector>

#include "event.pb.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

template <class T>
T Take(std::string_view& text) {
  T value;
  if (text.size() < sizeof value) throw std::runtime_error("the file ends within a record");
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return value;
}

// Reads the records. tests/python verifies their checksums.
std::vector<tensorboard::Event> ReadEvents(const std::filesystem::path& path) {
  const std::string text = ReadFile(path);
  std::vector<tensorboard::Event> events;
  for (std::string_view rest = text; !rest.empty();) {
    const auto length = Take<uint64_t>(rest);
    Take<uint32_t>(rest);
    tensorboard::Event event;
    if (!event.ParseFromString(std::string(rest.substr(0, length)))) {
      throw std::runtime_error("a record is not an event");
    }
    rest.remove_prefix(length);
    Take<uint32_t>(rest);
    events.push_back(event);
  }
  return events;
}

// The check value of the CRC catalogue, and the vectors of RFC 3720, B.4.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(Crc32c({}), 0u);
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283u);
  std::string bytes(32, '\0');
  EXPECT_EQ(Crc32c(AsBytes(bytes)), 0x8A9136AAu);
  bytes.assign(32, '\xff');
  EXPECT_EQ(Crc32c(AsBytes(bytes)), 0x62A8AB43u);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  EXPECT_EQ(Crc32c(AsBytes(bytes)), 0x46DD794Eu);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(31 - i);
  EXPECT_EQ(Crc32c(AsBytes(bytes)), 0x113FDB5Cu);
}

TEST(FrameRecord, HasLengthPayloadAndMaskedChecksums) {
  const std::string record = FrameRecord("123456789");
  ASSERT_EQ(record.size(), 8u + 4 + 9 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 9), "123456789");
  // 0xE3069283 rotated right by 15 bits is 0x2507C60D; plus 0xA282EAD8.
  EXPECT_EQ(record.substr(21), "\xe5\xb0\x8a\xc7");
  EXPECT_EQ(FrameRecord("").size(), 16u);
}

TEST(EventWriter, WritesVersionStartAndScalars) {
  const TestFolder folder;
  double time = 1'700'000'000.5;
  EventWriter writer(folder.path(), 0, [&] { return time++; });
  writer.Scalars(7, {{"loss", 0.5}, {"error", -0.25}});
  writer.Scalars(int64_t{1} << 40, {});
  const std::vector<tensorboard::Event> events = ReadEvents(writer.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1'700'000'000.5);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[1].step(), 0);
  EXPECT_EQ(events[2].step(), 7);
  EXPECT_EQ(events[2].wall_time(), 1'700'000'001.5);
  ASSERT_EQ(events[2].summary().value_size(), 2);
  EXPECT_EQ(events[2].summary().value(0).tag(), "error");
  EXPECT_EQ(events[2].summary().value(0).simple_value(), -0.25f);
  EXPECT_EQ(events[3].step(), int64_t{1} << 40);
}

TEST(EventWriter, NamesFilesAsTensorBoardDoes) {
  const TestFolder folder;
  const auto now = [] { return 17.9; };
  const EventWriter first(folder.path(), 0, now), second(folder.path(), 5, now);
  const std::string name = first.path().filename().string();
  EXPECT_THAT(name, StartsWith("events.out.tfevents.0000000017."));
  EXPECT_TRUE(name.ends_with("." + std::to_string(getpid()))) << name;
  // Two files of one second; the second is read second.
  EXPECT_EQ(second.path().filename().string(), name + ".1");
  EXPECT_EQ(ReadEvents(second.path()).at(1).step(), 5);
}

TEST(EventWriter, MakesEachRecordReadableAtOnce) {
  const TestFolder folder;
  EventWriter writer(folder.path());
  for (int step = 0; step < 3; ++step) {
    writer.Scalars(step, {{"loss", step}});
    EXPECT_EQ(ReadEvents(writer.path()).size(), static_cast<size_t>(step) + 3);
  }
}

TEST(EventWriter, ConvertsValuesBeyondFloatToInfinity) {
  const TestFolder folder;
  EventWriter writer(folder.path());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  writer.Scalars(1, {{"a", 1e300}, {"b", -1e300}, {"c", 1e-300}, {"d", 0.1}});
  const tensorboard::Event event = ReadEvents(writer.path()).at(2);
  EXPECT_EQ(event.summary().value(0).simple_value(), kInfinity);
  EXPECT_EQ(event.summary().value(1).simple_value(), -kInfinity);
  EXPECT_EQ(event.summary().value(2).simple_value(), 0.0f);
  EXPECT_EQ(event.summary().value(3).simple_value(), 0.1f);
}

TEST(EventWriter, ReportsWhyItCannotWrite) {
  const TestFolder folder;
  EXPECT_THAT([&] { EventWriter(folder / "no"); },
              ThrowsMessage<RunError>(
                  AllOf(HasSubstr("cannot write"), HasSubstr("No such file or directory"))));
}

TEST(EventWriter, StopsIfItsFileWasMovedOrRemoved) {
  for (const bool moved : {false, true}) {
    const TestFolder folder;
    EventWriter writer(folder.path());
    writer.Scalars(1, {{"a", 1}});
    if (moved) {
      std::filesystem::rename(writer.path(), folder / "moved");
    } else {
      std::filesystem::remove(writer.path());
    }
    EXPECT_THAT([&] { writer.Scalars(2, {{"a", 2}}); },
                ThrowsMessage<RunError>(HasSubstr("removed, moved or replaced")));
  }
}

}  // namespace
}  // namespace planish::lab
