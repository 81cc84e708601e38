#include "lab/data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}

// Returns a file of this version whose header is `dictionary`, padded with blanks to a multiple of
// 16.
std::string Npy(const std::string& dictionary, const std::string& numbers, int version = 1) {
  const int size_bytes = version == 1 ? 2 : 4;
  std::string header = dictionary;
  while ((8 + size_bytes + header.size() + 1) % 16 != 0) header += ' ';
  header += '\n';
  return "\x93NUMPY" + std::string(1, static_cast<char>(version)) + std::string(1, '\0') +
         LittleEndian(header.size(), size_bytes) + header + numbers;
}

std::string Dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

template <class T>
std::string Bytes(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

class NpyTest : public ::testing::Test {
 protected:
  NpyArray Read(const std::string& content) {
    WriteFile(folder / "a.npy", content);
    return ReadNpy(folder / "a.npy");
  }
  std::string ErrorOf(const std::string& content) {
    try {
      Read(content);
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), StartsWith("cannot read " + (folder / "a.npy").string() + ": it"));
      return e.what();
    }
    return "no error";
  }
  TestFolder folder;
};

const std::string kFloats = Bytes<float>({1, -2.5F, 3e-20F, 4, 5, 6});

TEST_F(NpyTest, ReadsFloatsOfEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const std::string file = Npy(Dictionary("<f4", "(2, 3)"), kFloats, version);
    for (const std::string& content : {file, Gzip(file)}) {
      const NpyArray array = Read(content);
      EXPECT_THAT(array.shape, ElementsAre(2, 3));
      EXPECT_THAT(array.values, ElementsAre(1, -2.5F, 3e-20F, 4, 5, 6)) << version;
    }
  }
}

// The bytes of numpy.save of numpy.arange(3, dtype=numpy.float32), NumPy 2.4.
TEST_F(NpyTest, ReadsFilesOfNumPy) {
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += "v";
  file += '\0';
  file += "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  file.append(128 - 1 - file.size(), ' ');
  file += '\n';
  EXPECT_THAT(Read(file + Bytes<float>({0, 1, 2})).values, ElementsAre(0, 1, 2));
}

TEST_F(NpyTest, ReadsDoubles) {
  EXPECT_THAT(Read(Npy(Dictionary("<f8", "(3,)"), Bytes<double>({0.1, -1e300, 2}))).values,
              ElementsAre(0.1F, -std::numeric_limits<float>::infinity(), 2));
}

TEST_F(NpyTest, ReadsHalves) {
  // 1, -2, the largest, the smallest normal and subnormal values, infinities, NaN.
  const std::vector<uint16_t> bits = {0x3c00, 0xc000, 0x7bff, 0x0400,
                                      0x0001, 0x7c00, 0xfc00, 0x7e00};
  const NpyArray array = Read(Npy(Dictionary("<f2", "(8,)"), Bytes(bits)));
  const std::vector<float> expected = {1, -2, 65504, 0x1p-14F, 0x1p-24F, INFINITY, -INFINITY};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(array.values[i], expected[i]) << i;
  EXPECT_TRUE(std::isnan(array.values[7]));
}

TEST_F(NpyTest, ReadsMoreThanAPiece) {
  std::vector<double> numbers(300'001);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  const NpyArray array = Read(Npy(Dictionary("<f8", "(300001,)"), Bytes(numbers)));
  ASSERT_EQ(array.values.size(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(array.values[i], numbers[i]);
}

TEST_F(NpyTest, ReadsShapesOfAnySize) {
  EXPECT_THAT(Read(Npy(Dictionary("<f4", "()"), Bytes<float>({7}))).shape, IsEmpty());
  EXPECT_THAT(Read(Npy(Dictionary("<f4", "(0, 5)"), "")).shape, ElementsAre(0, 5));
  EXPECT_THAT(Read(Npy(Dictionary("<f4", "(2,3,1)"), kFloats)).shape, ElementsAre(2, 3, 1));
}

TEST_F(NpyTest, ReadsHeadersInAnyOrder) {
  EXPECT_THAT(
      Read(Npy("{ \"shape\":(6,),\"fortran_order\" :False,\n 'descr':\"<f4\"}", kFloats)).shape,
      ElementsAre(6));
}

// The header of Python 2 on Windows, byte for byte; the array is numpy.arange(12) in 4 rows.
TEST_F(NpyTest, ReadsHeadersOfPython2) {
  std::vector<float> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += "F";
  file += '\0';
  file += "{'descr': '<f4', 'fortran_order': False, 'shape': (4L, 3L), }        \n";
  ASSERT_EQ(file.size(), 80u);
  const NpyArray array = Read(file + Bytes(numbers));
  EXPECT_THAT(array.shape, ElementsAre(4, 3));
  EXPECT_EQ(array.values, numbers);
  EXPECT_THAT(
      Read(Npy("{u'descr': u'<f4', u'fortran_order': False, u'shape': (12L,), }", Bytes(numbers)))
          .shape,
      ElementsAre(12));
}

// Blanks that numpy.load accepts, as Python does.
TEST_F(NpyTest, ReadsHeadersWithAnyBlanks) {
  for (const std::string dictionary :
       {"{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
        "{ 'descr' : '<f4' ,\t'fortran_order'\n: False,\r\n 'shape' : ( 2 , 3 , ) , }\t\f",
        "\t {'shape': (2L , 3), 'descr': \"<f4\", 'fortran_order': False}"}) {
    EXPECT_THAT(Read(Npy(dictionary, kFloats)).shape, ElementsAre(2, 3)) << dictionary;
  }
}

TEST_F(NpyTest, ReportsOtherFormats) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("begins with no bytes; NumPy's \\x93\\x4e"));
  EXPECT_THAT(ErrorOf("NUMPY\1"), HasSubstr("begins with \\x4e\\x55\\x4d\\x50\\x59\\x01;"));
  WriteFile(folder / "a.npy", "PK\3\4 an npz");
  try {
    ReadNpy(folder / "a.npy");
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a.npy: it is a zip archive"));
  }
  std::string file = Npy(Dictionary("<f4", "(6,)"), kFloats);
  file[6] = 4;
  EXPECT_THAT(ErrorOf(file), HasSubstr("version 4.0 at byte 6; 1.0, 2.0 or 3.0 was expected"));
  file[6] = 1;
  file[7] = 1;
  EXPECT_THAT(ErrorOf(file), HasSubstr("version 1.1 at byte 6"));
}

TEST_F(NpyTest, ReportsTheOffsetOfATruncation) {
  const std::string file = Npy(Dictionary("<f4", "(2, 3)"), kFloats);
  ASSERT_EQ(file.size(), 80u + 24u);
  EXPECT_THAT(ErrorOf(file.substr(0, 7)),
              HasSubstr("ends at byte 7; 2 bytes of version were expected from byte 6 on"));
  EXPECT_THAT(ErrorOf(file.substr(0, 9)),
              HasSubstr("ends at byte 9; 2 bytes of header size were expected from byte 8 on"));
  EXPECT_THAT(ErrorOf(file.substr(0, 40)),
              HasSubstr("ends at byte 40; 70 bytes of header were expected from byte 10 on"));
  for (const bool gzip : {false, true}) {
    const std::string cut = file.substr(0, 100);
    EXPECT_THAT(
        ErrorOf(gzip ? Gzip(cut) : cut),
        HasSubstr("ends at byte 100; 24 bytes of elements for the shape (2, 3) were expected "
                  "from byte 80 on"));
    const std::string longer = file + "x";
    EXPECT_THAT(ErrorOf(gzip ? Gzip(longer) : longer),
                HasSubstr("array ends at byte 104, but more bytes follow"));
  }
}

// A header must not allocate memory that the file cannot fill.
TEST_F(NpyTest, RefusesAbsurdSizes) {
  EXPECT_THAT(ErrorOf(Npy(Dictionary("<f4", "(1000000, 1000000)"), kFloats)),
              HasSubstr("ends at byte 120; 4000000000000 bytes of elements for the shape (1000000, "
                        "1000000) were expected from byte 96 on"));
  EXPECT_THAT(ErrorOf(Gzip(Npy(Dictionary("<f4", "(1000000, 1000000)"), kFloats))),
              HasSubstr(" or before; 4000000000000 bytes"));
  EXPECT_THAT(ErrorOf(Npy(Dictionary("<f4", "(9000000000, 9000000000)"), kFloats)),
              HasSubstr("2^63 or more bytes"));
  EXPECT_THAT(ErrorOf(Npy(Dictionary("<f4", "(99999999999999999999,)"), kFloats)),
              HasSubstr("; a smaller size was expected"));
  std::string file = Npy(Dictionary("<f4", "(6,)"), kFloats, 2);
  file[11] = 1;  // the highest byte of the header's size
  EXPECT_THAT(ErrorOf(file), HasSubstr("according to byte 8; at most 10000 are allowed"));
}

TEST_F(NpyTest, ReportsUnsupportedArrays) {
  EXPECT_THAT(ErrorOf(Npy(Dictionary("<f4", "(2, 3)", "True"), kFloats)),
              HasSubstr("elements are in Fortran order; C order was expected"));
  for (const std::string descr : {">f4", "<i4", "|u1", "<f16", "<c8"}) {
    EXPECT_THAT(ErrorOf(Npy(Dictionary(descr, "(2, 3)"), kFloats)),
                HasSubstr("the type \"" + descr + "\"; <f4, <f8 or <f2 was expected"));
  }
}

TEST_F(NpyTest, NamesTheByteOfABrokenHeader) {
  const auto error = [&](const std::string& dictionary) {
    return ErrorOf(Npy(dictionary, kFloats));
  };
  EXPECT_THAT(error("not a dictionary"),
              HasSubstr("its header has \"not a dictio\" at byte 10; a { was expected"));
  EXPECT_THAT(error("{'descr': <f4}"), HasSubstr("at byte 20; a string was expected"));
  EXPECT_THAT(error("{'descr': '<f4"), HasSubstr("at byte 20; a string was expected"));
  EXPECT_THAT(error("{'descr' '<f4'}"), HasSubstr("at byte 19; a : was expected"));
  EXPECT_THAT(error("{'shape': (2; 3)}"), HasSubstr("at byte 22; a ) was expected"));
  EXPECT_THAT(error("{'shape': (-1,)}"), HasSubstr("at byte 21; a size was expected"));
  EXPECT_THAT(error("{'fortran_order': 0}"), HasSubstr("at byte 28; True or False was expected"));
  EXPECT_THAT(error("{'other': 'x'}"),
              HasSubstr("at byte 11; the key descr, fortran_order or shape was expected"));
  EXPECT_THAT(error("{'descr': '<f4', 'descr': '<f4'}"),
              HasSubstr("its header has descr again at byte 27"));
  EXPECT_THAT(error(Dictionary("<f4", "(6,)") + " 1"), HasSubstr("; the end was expected"));
  EXPECT_THAT(error("{'descr': '<f4', 'shape': (6,)}"),
              HasSubstr("its header has no fortran_order"));
  EXPECT_THAT(error("{"), HasSubstr("its header ends at byte "));
}

}  // namespace
}  // namespace planish::lab
