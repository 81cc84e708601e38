#include "lab/data/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ZipTest : public ::testing::Test {
 protected:
  // Reads the member `name` in pieces of `piece` bytes.
  std::string Read(const std::string& archive, const std::string& name = "a", size_t piece = 1000) {
    WriteFile(folder / "x.npz", archive);
    const ZipArchive zip(folder / "x.npz");
    const auto stream = zip.Open(name);
    EXPECT_EQ(stream->path(), folder / "x.npz" / name);
    std::string content;
    std::vector<uint8_t> bytes(piece);
    for (;;) {
      const int64_t got = stream->Read(bytes);
      content.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(got));
      if (got < std::ssize(bytes)) return content;
    }
  }
  std::string ErrorOf(const std::string& archive, const std::string& name = "a") {
    try {
      Read(archive, name);
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), StartsWith("cannot read " + (folder / "x.npz").string()));
      return e.what();
    }
    return "no error";
  }
  TestFolder folder;
};

std::string Long() {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i * i % 251);
  return text;
}

TEST_F(ZipTest, ReadsStoredAndDeflatedMembers) {
  for (const bool zip64 : {false, true}) {
    for (const bool deflate : {false, true}) {
      const std::string archive = Zip({{.name = "a", .content = Long(), .deflate = deflate},
                                       {.name = "b", .content = "bb"},
                                       {.name = "empty", .content = "", .deflate = deflate}},
                                      zip64);
      EXPECT_EQ(Read(archive), Long());
      EXPECT_EQ(Read(archive, "a", 1 << 20), Long());
      EXPECT_EQ(Read(archive, "a", 300'000), Long());
      EXPECT_EQ(Read(archive, "b", 1), "bb");
      EXPECT_EQ(Read(archive, "empty"), "");
      WriteFile(folder / "x.npz", archive);
      const ZipArchive zip(folder / "x.npz");
      EXPECT_THAT(zip.members(), SizeIs(3));
      EXPECT_EQ(zip.Open("a")->is_packed(), deflate);
      EXPECT_EQ(zip.Open("a")->UpperBound(), 300'000);
      // A comment, also one that contains the record's signature, follows the end.
      std::string comment = archive.substr(0, archive.size() - 2) + Little(30, 2);
      comment += "PK\5\6" + std::string(26, '\0');
      EXPECT_EQ(Read(comment, "b"), "bb");
    }
  }
}

TEST_F(ZipTest, RefusesDamagedArchives) {
  const std::string good = Zip({{.name = "a", .content = Long(), .deflate = true}});
  EXPECT_THAT(
      ErrorOf(good.substr(0, good.size() - 1)),
      HasSubstr("x.npz: it does not end with the directory of a zip archive: it is truncated"));
  EXPECT_THAT(ErrorOf("text"), HasSubstr("it is damaged, or another file"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("it is damaged, or another file"));
  EXPECT_THAT(ErrorOf("before" + good), HasSubstr("x.npz: its directory has 47 bytes from byte "));
  EXPECT_THAT(ErrorOf(Zip({{.name = "a"}, {.name = "a"}})), HasSubstr("x.npz: it has \"a\" twice"));
  const size_t directory = good.find("PK\1\2");
  std::string bytes = good;
  bytes[directory] = 'Q';
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("its directory is damaged at member 1 of 1"));
  bytes = good;
  bytes[directory + 28] = 2;  // the size of the name
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("its directory is damaged at member 1 of 1"));
  bytes = good;
  bytes[good.size() - 12] = 0;  // the number of members
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("its directory has more than the 0 members"));
  bytes = good;
  bytes[good.size() - 18] = 1;  // the number of the disk
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("it is a zip archive in several parts"));
  const std::string big = Zip({{.name = "a", .content = "x"}}, true);
  bytes = big;
  bytes[big.find("PK\6\7")] = 'Q';
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("it lacks the end of zip64"));
  bytes = big;
  bytes[big.find("PK\6\6")] = 'Q';
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("its end of zip64 is damaged"));
  bytes = big;
  bytes[big.find("PK\6\7") + 8 + 7] = 0x7f;
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("its end of zip64 is not in the file"));
  bytes = big;
  bytes[big.find("PK\1\2") + 46 + 1 + 5] = 3;  // the type of the extra field
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("the directory entry of \"a\" lacks the sizes of zip64"));
}

TEST_F(ZipTest, RefusesDamagedMembers) {
  ZipPart part{.name = "a", .content = Long(), .deflate = true};
  const auto error = [&](const ZipPart& changed, bool zip64 = false) {
    const std::string text = ErrorOf(Zip({changed}, zip64));
    EXPECT_THAT(text, HasSubstr("x.npz/a: "));
    return text;
  };
  ZipPart other = part;
  other.flags = 1;
  EXPECT_THAT(error(other), HasSubstr("it is encrypted"));
  other = part;
  other.method = 14;
  EXPECT_THAT(error(other), HasSubstr("it is compressed by method 14 of zip; only deflate (8)"));
  other = part;
  other.crc = 0x1234;
  EXPECT_THAT(error(other), HasSubstr("but the archive's directory has 00001234: it is damaged"));
  other = part;
  other.size = 299'999;
  EXPECT_THAT(error(other), HasSubstr("it unpacks to more than the 299,999 bytes that the"));
  other.size = 300'001;
  EXPECT_THAT(error(other), HasSubstr("it unpacks to 300,000 bytes; the archive's directory states "
                                      "300,001"));
  // Sizes that no memory has: refused before any is allocated.
  for (const uint64_t size : {uint64_t{1} << 62, ~uint64_t{0}}) {
    other = part;
    other.size = size;
    EXPECT_THAT(error(other, true), HasSubstr("bytes, more than 200 times its size"));
    other = part;
    other.packed_size = size;
    EXPECT_THAT(error(other, true), HasSubstr("are not before the directory of the archive"));
  }
  other = part;
  other.packed_size = 1000;
  EXPECT_THAT(error(other), HasSubstr("its deflate stream is truncated"));
  other = part;
  other.offset = 1;
  EXPECT_THAT(error(other), HasSubstr("it has no header at byte 1"));
  other.offset = 0xfffffff0;
  EXPECT_THAT(error(other), HasSubstr("it has no header at byte 4,294,967,280"));
  other = part;
  other.local_name = "b";
  EXPECT_THAT(error(other), HasSubstr("its header has another name"));
  part.deflate = false;
  other = part;
  other.size = 5;
  EXPECT_THAT(error(other), HasSubstr("it is stored, but has 300,000 bytes in the archive and 5"));
  other = part;
  other.method = 8;
  EXPECT_THAT(error(other), HasSubstr("its deflate stream is damaged ("));
  std::string bytes = Zip({part});
  bytes[100] ^= 1;
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("it is damaged"));
}

// Two members of the same bytes, as bombs have them, are two members.
TEST_F(ZipTest, RefusesOtherBytesAfterADeflateStream) {
  const ZipPart part{.name = "a", .content = "aaa", .deflate = true};
  std::string archive = Zip({part, {.name = "b", .content = "bb"}});
  const size_t size = archive.find("PK\1\2") + 20;
  ++archive[size];
  EXPECT_THAT(ErrorOf(archive), HasSubstr("x.npz/a: other bytes follow its deflate stream"));
}

TEST_F(ZipTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(ZipArchive(folder / "none.npz"), DataError);
  EXPECT_THROW(ZipArchive{folder.path()}, DataError);
}

}  // namespace
}  // namespace planish::lab
