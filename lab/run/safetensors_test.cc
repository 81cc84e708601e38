#include "lab/run/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "lab/error.h"
#include "lab/run/posix_file.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::ThrowsMessage;

StoredTensor Tensor(std::string name, std::string dtype, std::vector<int64_t> shape,
                    std::string_view data) {
  return {std::move(name), std::move(dtype), std::move(shape), AsBytes(data)};
}

std::string Text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Returns a file as another program could write it.
std::string File(std::string_view header, std::string_view data) {
  std::string length(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(length.data(), &size, 8);
  return length + std::string(header) + std::string(data);
}

std::string ReadFault(const std::string& text, Checksum checksum = Checksum::kIfPresent) {
  static const TestFolder folder;
  fs::remove(folder / "f");  // some file systems flush a file that is truncated and rewritten
  WriteFile(folder / "f", text);
  try {
    SafetensorsFile::Read(folder / "f", checksum);
  } catch (const RunError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot read " + (folder / "f").string() + ": "));
    return e.what();
  }
  return "none";
}

std::string HeaderFault(std::string_view header, std::string_view data) {
  return ReadFault(File(header, data));
}

// Returns the error for a file with one tensor "a".
std::string OneFault(std::string_view dtype, std::string_view shape, std::string_view offsets,
                     std::string_view data) {
  return HeaderFault(
      fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
      data);
}

TEST(Safetensors, RoundTripsEveryDtype) {
  const TestFolder folder;
  const std::string bytes = "0123456789abcdef";
  std::vector<StoredTensor> tensors;
  for (const char* dtype : {"BOOL", "U8", "I8", "I16", "BF16", "F16", "I32", "F32", "I64", "F64"}) {
    const int64_t count = 16 / DtypeWidth(dtype);
    tensors.push_back(Tensor(std::string("t.") + dtype, dtype, {count / 2, 2}, bytes));
  }
  const std::map<std::string, std::string> metadata{{"step", "12"}, {"\"quoted\"", "\n\u00e9"}};
  WriteSafetensors(folder / "f", tensors, metadata);
  const SafetensorsFile file = SafetensorsFile::Read(folder / "f", Checksum::kRequired);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const StoredTensor& tensor : tensors) {
    const StoredTensor* read = file.Find(tensor.name);
    ASSERT_TRUE(read) << tensor.name;
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_EQ(Text(read->data), bytes);
  }
  EXPECT_THAT(file.Find("t."), IsNull());
}

TEST(Safetensors, KeepsEveryBitOfFloats) {
  const TestFolder folder;
  const double values[] = {-0.0, 5e-324, 0.1, std::numeric_limits<double>::infinity(),
                           std::bit_cast<double>(uint64_t{0x7ff4000000000001})};
  WriteSafetensors(folder / "f",
                   std::vector<StoredTensor>{{"a", "F64", {5}, std::as_bytes(std::span(values))}});
  const SafetensorsFile file = SafetensorsFile::Read(folder / "f");
  EXPECT_EQ(std::memcmp(file.Find("a")->data.data(), values, sizeof values), 0);
}

TEST(Safetensors, RoundTripsScalarsAndEmptyTensors) {
  const TestFolder folder;
  WriteSafetensors(folder / "f",
                   std::vector{Tensor("scalar", "I16", {}, "ab"), Tensor("zero", "F32", {0}, ""),
                               Tensor("zeros", "F64", {3, 0, 2}, ""), Tensor("", "U8", {1}, "c")});
  const SafetensorsFile file = SafetensorsFile::Read(folder / "f", Checksum::kRequired);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_TRUE(file.Find("scalar")->shape.empty());
  EXPECT_EQ(Text(file.Find("scalar")->data), "ab");
  EXPECT_EQ(file.Find("zero")->data.size(), 0u);
  EXPECT_EQ(file.Find("zeros")->shape, (std::vector<int64_t>{3, 0, 2}));
  EXPECT_EQ(Text(file.Find("")->data), "c");
}

TEST(Safetensors, RoundTripsNoTensors) {
  const TestFolder folder;
  WriteSafetensors(folder / "f", {});
  const SafetensorsFile file = SafetensorsFile::Read(folder / "f", Checksum::kRequired);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(Safetensors, SortsByWidthThenNameAndAligns) {
  const TestFolder folder;
  WriteSafetensors(folder / "f",
                   std::vector{Tensor("u", "U8", {3}, "abc"), Tensor("h", "F16", {1}, "hh"),
                               Tensor("b", "F32", {1}, "bbbb"), Tensor("d", "F64", {1}, "dddddddd"),
                               Tensor("a", "I32", {1}, "aaaa")});
  const SafetensorsFile file = SafetensorsFile::Read(folder / "f");
  std::string names;
  for (const StoredTensor& tensor : file.tensors()) {
    names += tensor.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data.data()) % DtypeWidth(tensor.dtype), 0u);
  }
  EXPECT_EQ(names, "dabhu");
  uint64_t header = 0;
  std::memcpy(&header, ReadFile(folder / "f").data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(Safetensors, WritesTheSameBytesForAnyOrder) {
  const TestFolder folder;
  const StoredTensor a = Tensor("a", "U8", {1}, "a"), b = Tensor("b", "U8", {1}, "b");
  WriteSafetensors(folder / "ab", std::vector{a, b});
  WriteSafetensors(folder / "ba", std::vector{b, a});
  EXPECT_EQ(ReadFile(folder / "ab"), ReadFile(folder / "ba"));
}

TEST(Safetensors, ReadsFilesOfOthers) {
  const TestFolder folder;
  WriteFile(folder / "f",
            File(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}, "__metadata__":{},)"
                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )",
                 "xyz"));
  const SafetensorsFile file = SafetensorsFile::Read(folder / "f");
  EXPECT_EQ(Text(file.Find("a")->data), "x");
  EXPECT_EQ(Text(file.Find("b")->data), "yz");
  EXPECT_THAT([&] { SafetensorsFile::Read(folder / "f", Checksum::kRequired); },
              ThrowsMessage<RunError>(HasSubstr("it has no checksum")));
}

TEST(Safetensors, ReadsAnEmptyHeader) { EXPECT_EQ(HeaderFault("{}", ""), "none"); }

// Computed independently: Python's zlib.crc32 over these bytes with zeros for the digits.
TEST(Safetensors, WritesTheChecksumAsDescribed) {
  const TestFolder folder;
  WriteSafetensors(folder / "f", std::vector{Tensor("a", "U8", {3}, "xyz")});
  const std::string text = ReadFile(folder / "f");
  EXPECT_THAT(text, HasSubstr(R"("planish.crc32":"5f0ca5a6")"));
}

// A CRC detects every change of up to 32 neighbouring bits. The test shows that the checksum covers
// every byte, including its own digits.
TEST(Safetensors, NoticesEveryChangedByte) {
  const TestFolder folder;
  const std::vector tensors{Tensor("weight", "F32", {2}, "01234567"), Tensor("n", "I8", {1}, "8"),
                            Tensor("empty", "F32", {0}, "")};
  WriteSafetensors(folder / "f", tensors, {{"planish.step", "3"}});
  const std::string good = ReadFile(folder / "f");
  ASSERT_EQ(ReadFault(good, Checksum::kRequired), "none");
  for (size_t i = 0; i < good.size(); ++i) {
    // One bit, the case bit, the bit between a digit and a control character, all bits.
    for (const int flip : {0x01, 0x20, 0x10, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      EXPECT_NE(ReadFault(bad, Checksum::kRequired), "none") << "byte " << i << " flip " << flip;
    }
  }
}

TEST(Safetensors, NoticesEveryTruncation) {
  const TestFolder folder;
  WriteSafetensors(folder / "f", std::vector{Tensor("a", "U8", {3}, "xyz")});
  const std::string good = ReadFile(folder / "f");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(ReadFault(good.substr(0, size)), "none") << size;
  }
}

TEST(Safetensors, ChecksAChecksumThatIsNotRequired) {
  const TestFolder folder;
  WriteSafetensors(folder / "f", std::vector{Tensor("a", "U8", {3}, "xyz")});
  std::string bad = ReadFile(folder / "f");
  bad.back() = '!';
  EXPECT_THAT(ReadFault(bad), HasSubstr("it was damaged or altered"));
}

TEST(Safetensors, DoesNotMistakeAnotherKeyForTheChecksum) {
  const TestFolder folder;
  const std::map<std::string, std::string> metadata{{"a\"planish.crc32", "00000000"},
                                                    {"b", "\"planish.crc32\":\"00000000\""}};
  WriteSafetensors(folder / "f", {}, metadata);
  EXPECT_EQ(SafetensorsFile::Read(folder / "f", Checksum::kRequired).metadata(), metadata);
}

TEST(Safetensors, RefusesMalformedChecksums) {
  for (const char* value : {"", "0", "0123456789", "0000000G"}) {
    const std::string header = fmt::format(R"({{"__metadata__":{{"planish.crc32":"{}"}}}})", value);
    EXPECT_THAT(HeaderFault(header, ""), HasSubstr("checksum")) << value;
  }
  EXPECT_THAT(HeaderFault(R"({"__metadata__":{"planish\u002ecrc32":"00000000"}})", ""),
              HasSubstr("checksum"));
}

TEST(Safetensors, RefusesIrregularFiles) {
  const TestFolder folder;
  EXPECT_THAT([&] { SafetensorsFile::Read(folder / "no"); },
              ThrowsMessage<RunError>(HasSubstr("No such file or directory")));
  EXPECT_THAT([&] { SafetensorsFile::Read(folder.path()); },
              ThrowsMessage<RunError>(HasSubstr("it is not a regular file")));
}

TEST(Safetensors, RefusesAnEmptyFile) {
  EXPECT_THAT(ReadFault(""), HasSubstr("it ends at byte 0; at least 8 bytes were expected"));
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  EXPECT_THAT(ReadFault(std::string("\x09\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("give a header of 9 bytes, but only 2 follow"));
}

TEST(Safetensors, RefusesAHeaderOverTheCap) {
  std::string huge(8, '\xff');
  EXPECT_THAT(ReadFault(huge + "{}"), HasSubstr("bytes; at most 100000000 are allowed"));
  const uint64_t over = 100'000'001;
  std::memcpy(huge.data(), &over, 8);
  EXPECT_THAT(ReadFault(huge + "{}"), HasSubstr("bytes; at most 100000000 are allowed"));
}

TEST(Safetensors, RefusesAHeaderThatIsNotAnObject) {
  EXPECT_THAT(HeaderFault("", ""), HasSubstr("its header is not a JSON object"));
  EXPECT_THAT(HeaderFault("[]", ""), HasSubstr("its header is not a JSON object"));
  EXPECT_THAT(HeaderFault(" {}", ""), HasSubstr("its header is not a JSON object"));
}

TEST(Safetensors, RefusesMalformedJson) {
  EXPECT_THAT(HeaderFault("{", ""), HasSubstr("its header is not JSON: "));
  EXPECT_THAT(HeaderFault("{}x", ""), HasSubstr("its header is not JSON: "));
  EXPECT_THAT(HeaderFault("{\"\xff\":1}", ""), HasSubstr("its header is not JSON: "));
  EXPECT_THAT(HeaderFault(std::string("{}\0", 3), ""), HasSubstr("its header is not JSON: "));
  EXPECT_THAT(HeaderFault(R"({"a":1e999})", ""), HasSubstr("its header is not JSON: "));
}

TEST(Safetensors, RefusesDeepNesting) {
  EXPECT_THAT(HeaderFault("{\"a\":" + std::string(1'000'000, '['), ""), HasSubstr("nested arrays"));
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  EXPECT_THAT(HeaderFault(objects, ""), HasSubstr("nested objects"));
}

TEST(Safetensors, RefusesDuplicateNames) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(HeaderFault("{" + a + "," + a + "}", "x"), HasSubstr("\"a\" twice"));
  EXPECT_THAT(
      HeaderFault(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", "x"),
      HasSubstr("\"shape\" twice"));
  EXPECT_THAT(HeaderFault(R"({"__metadata__":{"k":"1","\u006b":"2"}})", ""),
              HasSubstr("\"k\" twice"));
}

TEST(Safetensors, RefusesMalformedMetadata) {
  EXPECT_THAT(HeaderFault(R"({"__metadata__":[]})", ""),
              HasSubstr("__metadata__ is not an object"));
  EXPECT_THAT(HeaderFault(R"({"__metadata__":{"k":1}})", ""),
              HasSubstr("\"k\" in __metadata__ is not a string"));
}

TEST(Safetensors, RefusesMissingAndMalformedKeys) {
  EXPECT_THAT(HeaderFault(R"({"a":1})", ""), HasSubstr("tensor \"a\" is not an object"));
  EXPECT_THAT(HeaderFault(R"({"a":{}})", ""), HasSubstr("tensor \"a\" has no dtype"));
  EXPECT_THAT(HeaderFault(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x"),
              HasSubstr("tensor \"a\" has no shape"));
  EXPECT_THAT(HeaderFault(R"({"a":{"dtype":"U8","shape":[1]}})", "x"),
              HasSubstr("tensor \"a\" has no data_offsets"));
  EXPECT_THAT(OneFault("8", "[1]", "[0,1]", "x"),
              HasSubstr("the dtype of tensor \"a\" is not a string"));
  EXPECT_THAT(OneFault("\"U8\"", "1", "[0,1]", "x"),
              HasSubstr("the shape of tensor \"a\" is not an array"));
  for (const char* offsets : {"0", "[]", "[0]", "[0,1,1]", "[-1,0]", "[0.0,1]", "[\"0\",1]",
                              "[0,18446744073709551616]"}) {
    EXPECT_THAT(OneFault("\"U8\"", "[1]", offsets, "x"),
                HasSubstr("two integers >= 0 were expected"))
        << offsets;
  }
}

// A tensor of each dtype that is not StoredTensor's, and of one that the format does not have.
TEST(Safetensors, SkipsOverOtherDtypes) {
  const TestFolder folder;
  const struct {
    const char* dtype;
    size_t bytes;  // of 4 elements
  } others[] = {{"U16", 8},     {"U32", 16},    {"U64", 32},    {"C64", 32},
                {"F8_E4M3", 4}, {"F8_E5M2", 4}, {"F8_E8M0", 4}, {"F6_E2M3", 3},
                {"F6_E3M2", 3}, {"F4", 2},      {"NEW", 5}};
  for (const auto& [dtype, bytes] : others) {
    const std::string header =
        fmt::format(R"({{"other":{{"dtype":"{0}","shape":[4],"data_offsets":[0,{1}]}},)"
                    R"("wanted":{{"dtype":"F32","shape":[1],"data_offsets":[{1},{2}]}}}})",
                    dtype, bytes, bytes + 4);
    WriteFile(folder / "x", File(header, std::string(bytes, 'o') + "wxyz"));
    const SafetensorsFile file = SafetensorsFile::Read(folder / "x");
    ASSERT_NE(file.Find("other"), nullptr) << dtype;
    EXPECT_EQ(file.Find("other")->dtype, dtype);
    EXPECT_EQ(file.Find("other")->data.size(), bytes) << dtype;
    ASSERT_NE(file.Find("wanted"), nullptr) << dtype;
    EXPECT_EQ(std::memcmp(file.Find("wanted")->data.data(), "wxyz", 4), 0) << dtype;
  }
  EXPECT_THAT(OneFault("\"U16\"", "[2]", "[0,5]", "vwxyz"),
              HasSubstr("tensor \"a\" has 5 bytes, but dtype U16 and shape [2] take 4"));
  EXPECT_THAT(OneFault("\"F4\"", "[3]", "[0,2]", "yz"),
              HasSubstr("takes 12 bits, not whole bytes"));
  EXPECT_THAT(OneFault("\"U64\"", "[4294967296,4294967296]", "[0,1]", "z"), HasSubstr("2^63"));
}

TEST(Safetensors, EscapesNamesInErrors) {
  EXPECT_THAT(HeaderFault(R"({"\u001b[31m":{}})", ""), HasSubstr("tensor \"\\x1b[31m\""));
}

TEST(Safetensors, RefusesMalformedShapes) {
  EXPECT_THAT(OneFault("\"U8\"", "[-1]", "[0,1]", "x"), HasSubstr("the negative size -1"));
  EXPECT_THAT(OneFault("\"U8\"", "[-1,-1]", "[0,1]", "x"), HasSubstr("the negative size -1"));
  for (const char* size : {"1.0", "\"1\"", "null", "9223372036854775808", "[1]"}) {
    EXPECT_THAT(OneFault("\"U8\"", fmt::format("[{}]", size), "[0,1]", "x"),
                HasSubstr("; integers below 2^63 were expected"))
        << size;
  }
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  // 2^32 * 2^32 is 0 in 64 bits, and so are the bytes of 2^62 4-byte elements.
  EXPECT_THAT(OneFault("\"U8\"", "[4294967296,4294967296]", "[0,0]", ""),
              HasSubstr("takes 2^63 bytes or more"));
  EXPECT_THAT(OneFault("\"F32\"", "[4611686018427387904]", "[0,0]", ""),
              HasSubstr("takes 2^63 bytes or more"));
  EXPECT_THAT(OneFault("\"U8\"", "[4294967296,0,4294967296]", "[0,0]", ""),
              HasSubstr("takes 2^63 bytes or more"));
}

TEST(Safetensors, RefusesOffsetsOutOfOrder) {
  EXPECT_THAT(OneFault("\"U8\"", "[1]", "[1,0]", "x"),
              HasSubstr("data_offsets [1,0] of tensor \"a\" are not in order"));
}

TEST(Safetensors, RefusesOffsetsBeyondTheData) {
  EXPECT_THAT(OneFault("\"U8\"", "[2]", "[0,2]", "x"),
              HasSubstr("1 bytes of data, but its tensors take 2"));
  EXPECT_THAT(OneFault("\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]", "x"),
              HasSubstr("its tensors take 9223372036854775807"));
}

TEST(Safetensors, RefusesSizesThatDoNotFitTheShape) {
  EXPECT_THAT(OneFault("\"F32\"", "[2]", "[0,4]", "wxyz"),
              HasSubstr("tensor \"a\" has 4 bytes, but dtype F32 and shape [2] take 8"));
}

TEST(Safetensors, RefusesTrailingBytes) {
  EXPECT_THAT(OneFault("\"U8\"", "[1]", "[0,1]", "xy"),
              HasSubstr("2 bytes of data, but its tensors take 1"));
  EXPECT_THAT(HeaderFault("{}", "x"), HasSubstr("1 bytes of data, but its tensors take 0"));
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](const char* second, std::string_view data) {
    return HeaderFault(fmt::format(R"({{"a":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}},)"
                                   R"("b":{{"dtype":"U8","shape":[2],"data_offsets":{}}}}})",
                                   second),
                       data);
  };
  EXPECT_EQ(two("[2,4]", "wxyz"), "none");
  EXPECT_THAT(two("[1,3]", "wxy"), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,2]", "wx"), HasSubstr("overlaps"));
  EXPECT_THAT(two("[3,5]", "vwxyz"), HasSubstr("leaves a hole"));
  EXPECT_THAT(OneFault("\"U8\"", "[1]", "[1,2]", "xy"), HasSubstr("leaves a hole"));
  EXPECT_THAT(OneFault("\"U8\"", "[0]", "[1,1]", "x"), HasSubstr("leaves a hole"));
}

TEST(WriteSafetensors, RefusesUnreadableContents) {
  const TestFolder folder;
  const auto fault = [&](const std::vector<StoredTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) -> std::string {
    try {
      WriteSafetensors(folder / "f", tensors, metadata);
    } catch (const RunError& e) {
      EXPECT_THAT(e.what(), HasSubstr("cannot write " + (folder / "f").string() + ": "));
      return e.what();
    }
    return "none";
  };
  const StoredTensor good = Tensor("a", "U8", {1}, "x");
  EXPECT_THAT(fault({good, good}, {}), HasSubstr("the name \"a\" of a tensor is used twice"));
  EXPECT_THAT(fault({Tensor("__metadata__", "U8", {1}, "x")}, {}),
              HasSubstr("\"__metadata__\" of a tensor is reserved"));
  EXPECT_THAT(fault({Tensor("a", "F8", {1}, "x")}, {}),
              HasSubstr("tensor \"a\" has the unknown dtype \"F8\""));
  EXPECT_THAT(fault({Tensor("a", "F32", {1}, "x")}, {}), HasSubstr("shape [1] take 4"));
  EXPECT_THAT(fault({Tensor("a", "U8", {-1}, "x")}, {}), HasSubstr("the negative size -1"));
  EXPECT_THAT(fault({Tensor("\xff", "U8", {1}, "x")}, {}), HasSubstr("UTF-8"));
  EXPECT_THAT(fault({good}, {{"k", "\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(fault({good}, {{"planish.crc32", "x"}}),
              HasSubstr("the metadata has \"planish.crc32\""));
  EXPECT_THAT(fault({good}, {{"k", std::string(100'000'000, 'x')}}),
              HasSubstr("at most 100000000 are allowed"));
  EXPECT_TRUE(folder.Entries().empty());
  EXPECT_THAT([&] { WriteSafetensors(folder / "no" / "f", std::vector{good}); },
              ThrowsMessage<RunError>(HasSubstr("No such file or directory")));
}

}  // namespace
}  // namespace planish::lab
