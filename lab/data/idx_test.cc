#include "lab/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <ostream>

#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns the message of LoadMnist's DataError.
std::string ErrorOf(const fs::path& folder) {
  try {
    LoadMnist(folder);
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), AnyOf(StartsWith("cannot read "), HasSubstr(" has no")));
    return e.what();
  }
  ADD_FAILURE() << "LoadMnist did not throw";
  return "";
}

void ExpectSmallSet(const ImageSet& set) {
  EXPECT_EQ(set.train.count, 3);
  EXPECT_EQ(set.train.height, 28);
  EXPECT_EQ(set.train.width, 28);
  EXPECT_THAT(set.train.labels, ElementsAre(7, 0, 9));
  EXPECT_EQ(set.test.count, 2);
  EXPECT_THAT(set.test.labels, ElementsAre(1, 2));
  ASSERT_EQ(set.train.pixels.size(), 3u * 784);
  ASSERT_EQ(set.test.pixels.size(), 2u * 784);
  for (size_t i = 0; i < 3 * 784; ++i) ASSERT_EQ(set.train.pixels[i], i % 251) << i;
  for (size_t i = 0; i < 2 * 784; ++i) ASSERT_EQ(set.test.pixels[i], i % 251) << i;
}

TEST(LoadMnist, PlainAndGzipAgree) {
  const TestFolder plain, gzip;
  SmallSet().Write(plain.path());
  SmallSet().Write(gzip.path(), true);
  const ImageSet a = LoadMnist(plain.path());
  const ImageSet b = LoadMnist(gzip.path());
  ExpectSmallSet(a);
  ExpectSmallSet(b);
  EXPECT_EQ(a.sha256, b.sha256);
  EXPECT_EQ(a.sha256, HashImages(a.train, a.test));
  EXPECT_EQ(a.source, "files");
  EXPECT_EQ(a.name, "idx images");
  EXPECT_EQ(a.description,
            "images in MNIST's format (not MNIST itself), 3 training and 2 test images read from " +
                plain.path().string());
}

TEST(LoadMnist, FindsTheFolder) {
  const TestFolder temp;
  for (const char* folder : {"a", "b/mnist", "c/MNIST/raw"}) SmallSet().Write(temp.path() / folder);
  for (const char* root : {"a", "b", "c"}) ExpectSmallSet(LoadMnist(temp.path() / root));
}

TEST(LoadMnist, ReadsGzipWithoutTheEnding) {
  const TestFolder temp;
  SmallSet().Write(temp.path(), true);
  fs::rename(temp.path() / "train-images-idx3-ubyte.gz", temp.path() / "train-images-idx3-ubyte");
  ExpectSmallSet(LoadMnist(temp.path()));
}

TEST(LoadMnist, OneImage) {
  const TestFolder temp;
  SmallSet set;
  set.test_images = Idx({0x803, 1, 28, 28}, std::string(784, '\377'));
  set.test_labels = Idx({0x801, 1}, "\11");
  set.Write(temp.path());
  const ImageSet read = LoadMnist(temp.path());
  EXPECT_EQ(read.test.pixels, std::vector<uint8_t>(784, 255));
  EXPECT_THAT(read.test.labels, ElementsAre(9));
}

TEST(LoadMnist, SeveralGzipStreamsAreOneFile) {
  const TestFolder temp;
  const SmallSet set;
  set.Write(temp.path(), true);
  // Cut inside the header and inside the pixels, with empty streams in between and at the end.
  WriteFile(temp.path() / "train-images-idx3-ubyte.gz",
            Gzip(set.train_images.substr(0, 5)) + Gzip("") + Gzip(set.train_images.substr(5, 900)) +
                Gzip(set.train_images.substr(905)) + Gzip(""));
  ExpectSmallSet(LoadMnist(temp.path()));
}

TEST(LoadMnist, LongerThanOneBuffer) {
  const TestFolder temp;
  SmallSet set;
  std::string pixels(500 * 784, '\0');
  uint32_t state = 1;  // incompressible bytes, so that the input is also refilled
  for (char& c : pixels) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  set.train_images = Idx({0x803, 500, 28, 28}, pixels);
  set.train_labels = Idx({0x801, 500}, std::string(500, '\3'));
  for (const bool gzip : {false, true}) {
    set.Write(temp.path() / (gzip ? "gzip" : "plain"), gzip);
    const ImageSet read = LoadMnist(temp.path() / (gzip ? "gzip" : "plain"));
    EXPECT_EQ(std::string(read.train.pixels.begin(), read.train.pixels.end()), pixels);
  }
}

TEST(LoadMnist, MissingFolder) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp.path() / "none"),
              HasSubstr((temp.path() / "none").string() + ": no such folder"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("no such folder"));
}

TEST(LoadMnist, FolderIsAFile) {
  const TestFolder temp;
  WriteFile(temp.path() / "file", "text");
  EXPECT_THAT(ErrorOf(temp.path() / "file"),
              HasSubstr("file: it is not a folder with the files of MNIST"));
}

TEST(LoadMnist, EmptyFolder) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp.path()),
              AllOf(HasSubstr(temp.path().string()), HasSubstr("train-images-idx3-ubyte[.gz]"),
                    HasSubstr(" has none of the files of MNIST (")));
}

TEST(LoadMnist, FileInPlaceOfTheInnerFolder) {
  const TestFolder temp;
  WriteFile(temp.path() / "mnist", "text");
  EXPECT_THAT(ErrorOf(temp.path()), HasSubstr(" has none of the files of MNIST ("));
}

TEST(LoadMnist, NameTooLong) {
  EXPECT_THAT(ErrorOf(std::string(5000, 'a')), HasSubstr("name too long"));
}

TEST(LoadMnist, EachMissingFile) {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const TestFolder temp;
    SmallSet().Write(temp.path());
    fs::remove(temp.path() / name);
    EXPECT_THAT(ErrorOf(temp.path()), HasSubstr(std::string(" has no file ") + name + " or "));
  }
}

TEST(LoadMnist, FolderInPlaceOfAFile) {
  const TestFolder temp;
  SmallSet().Write(temp.path());
  fs::remove(temp.path() / "t10k-images-idx3-ubyte");
  fs::create_directory(temp.path() / "t10k-images-idx3-ubyte");
  EXPECT_THAT(ErrorOf(temp.path()),
              HasSubstr("t10k-images-idx3-ubyte: it is a folder, not a file"));
}

TEST(LoadMnist, PipeInPlaceOfAFile) {
  const TestFolder temp;
  SmallSet().Write(temp.path());
  fs::remove(temp.path() / "train-labels-idx1-ubyte");
  ASSERT_EQ(mkfifo((temp.path() / "train-labels-idx1-ubyte").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(temp.path()), HasSubstr("train-labels-idx1-ubyte: it is a device or pipe"));
}

TEST(LoadMnist, Unreadable) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const TestFolder temp;
  SmallSet().Write(temp.path() / "file");
  fs::permissions(temp.path() / "file" / "t10k-labels-idx1-ubyte", fs::perms::none);
  EXPECT_THAT(ErrorOf(temp.path() / "file"),
              HasSubstr("t10k-labels-idx1-ubyte: Permission denied"));
  SmallSet().Write(temp.path() / "closed");
  fs::permissions(temp.path() / "closed", fs::perms::none);
  EXPECT_THAT(ErrorOf(temp.path() / "closed"), HasSubstr("Permission denied"));
  fs::permissions(temp.path() / "closed", fs::perms::owner_all);
}

struct Malformed {
  const char* name;
  std::function<void(SmallSet&)> spoil;
  const char* file;   // named in the message
  const char* plain;  // error for the plain file
  const char* gzip;   // error for the gzipped file
};

void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.file; }

class LoadMnistMalformed : public ::testing::TestWithParam<Malformed> {};

TEST_P(LoadMnistMalformed, Throws) {
  const TestFolder temp;
  SmallSet set;
  GetParam().spoil(set);
  set.Write(temp.path() / "plain");
  EXPECT_THAT(ErrorOf(temp.path() / "plain"),
              AllOf(HasSubstr(GetParam().file), HasSubstr(GetParam().plain)));
  set.Write(temp.path() / "gzip", true);
  EXPECT_THAT(ErrorOf(temp.path() / "gzip"),
              AllOf(HasSubstr(GetParam().file), HasSubstr(GetParam().gzip)));
}

const Malformed kMalformed[] = {
    {"Empty", [](SmallSet& s) { s.train_images.clear(); }, "train-images-idx3-ubyte",
     "it ends at byte 0; a header of 16 bytes was expected",
     "it ends at byte 0; a header of 16 bytes was expected"},
    {"HeaderCut", [](SmallSet& s) { s.train_images.resize(15); }, "train-images-idx3-ubyte",
     "it ends at byte 15; a header of 16 bytes was expected",
     "it ends at byte 15; a header of 16 bytes was expected"},
    {"LabelsHeaderCut", [](SmallSet& s) { s.test_labels.resize(7); }, "t10k-labels-idx1-ubyte",
     "it ends at byte 7; a header of 8 bytes was expected",
     "it ends at byte 7; a header of 8 bytes was expected"},
    {"ImagesCut", [](SmallSet& s) { s.test_images.pop_back(); }, "t10k-images-idx3-ubyte",
     "it has 1,583 bytes; its header requires 1,584",
     "it has 1,583 bytes; its header requires 1,584"},
    {"LabelsCut", [](SmallSet& s) { s.train_labels.pop_back(); }, "train-labels-idx1-ubyte",
     "it has 10 bytes; its header requires 11", "it has 10 bytes; its header requires 11"},
    {"ImagesTooLong", [](SmallSet& s) { s.train_images += 'x'; }, "train-images-idx3-ubyte",
     "it has more than the 2,368 bytes that its header requires",
     "it has more than the 2,368 bytes that its header requires"},
    {"LabelsTooLong", [](SmallSet& s) { s.test_labels += '\1'; }, "t10k-labels-idx1-ubyte",
     "it has more than the 10 bytes that its header requires",
     "it has more than the 10 bytes that its header requires"},
    {"LabelsForImages", [](SmallSet& s) { s.train_images = s.train_labels + s.train_labels; },
     "train-images-idx3-ubyte", "its idx magic number is 0x00000801; 0x00000803 was expected",
     "its idx magic number is 0x00000801; 0x00000803 was expected"},
    {"ImagesForLabels", [](SmallSet& s) { s.test_labels = s.test_images; },
     "t10k-labels-idx1-ubyte", "its idx magic number is 0x00000803; 0x00000801 was expected",
     "its idx magic number is 0x00000803; 0x00000801 was expected"},
    {"LittleEndian",
     [](SmallSet& s) {
       s.train_images = Idx({0x03080000, 0x03000000, 0x1c000000, 0x1c000000}, "");
     },
     "train-images-idx3-ubyte", "magic number is 0x03080000; 0x00000803 was",
     "magic number is 0x03080000; 0x00000803 was"},
    {"Text", [](SmallSet& s) { s.train_images = "<html>404 not found</html>"; },
     "train-images-idx3-ubyte", "magic number is 0x3c68746d; 0x00000803 was",
     "magic number is 0x3c68746d; 0x00000803 was"},
    {"NoImages", [](SmallSet& s) { s.train_images = Idx({0x803, 0, 28, 28}, ""); },
     "train-images-idx3-ubyte", "its header gives 0 cases; 1 to 10,000,000 are allowed",
     "its header gives 0 cases; 1 to 10,000,000 are allowed"},
    {"NoLabels", [](SmallSet& s) { s.test_labels = Idx({0x801, 0}, ""); }, "t10k-labels-idx1-ubyte",
     "its header gives 0 cases; 1 to 10,000,000 are allowed",
     "its header gives 0 cases; 1 to 10,000,000 are allowed"},
    {"CountHuge", [](SmallSet& s) { s.train_images = Idx({0x803, 0x80000000, 28, 28}, ""); },
     "train-images-idx3-ubyte", "its header gives 2,147,483,648 cases; 1 to 10,000,000 are allowed",
     "its header gives 2,147,483,648 cases; 1 to 10,000,000 are allowed"},
    {"LabelCountHuge", [](SmallSet& s) { s.test_labels = Idx({0x801, 0xffffffff}, "\1\2"); },
     "t10k-labels-idx1-ubyte", "its header gives 4,294,967,295 cases; 1 to 10,000,000 are allowed",
     "its header gives 4,294,967,295 cases; 1 to 10,000,000 are allowed"},
    // 7.84 GB claimed by 16 bytes, or by the about 30 bytes of their gzip stream.
    {"CountBeyondFile", [](SmallSet& s) { s.train_images = Idx({0x803, 10'000'000, 28, 28}, ""); },
     "train-images-idx3-ubyte", "it has 16 bytes; its header requires 7,840,000,016",
     " bytes; its header requires 7,840,000,016"},
    {"OtherHeight", [](SmallSet& s) { s.test_images = Idx({0x803, 2, 32, 28}, ""); },
     "t10k-images-idx3-ubyte", "its images have 32 x 28 pixels; 28 x 28 were expected",
     "its images have 32 x 28 pixels; 28 x 28 were expected"},
    {"OtherWidth", [](SmallSet& s) { s.test_images = Idx({0x803, 2, 28, 0}, ""); },
     "t10k-images-idx3-ubyte", "its images have 28 x 0 pixels; 28 x 28 were expected",
     "its images have 28 x 0 pixels; 28 x 28 were expected"},
    // Their product is 784 modulo 2^32.
    {"SizesWrap", [](SmallSet& s) { s.test_images = Idx({0x803, 2, 0x80000001, 784}, ""); },
     "t10k-images-idx3-ubyte", "its images have 2147483649 x 784 pixels; 28 x 28 were expected",
     "its images have 2147483649 x 784 pixels; 28 x 28 were expected"},
    {"FewerLabels", [](SmallSet& s) { s.train_labels = Idx({0x801, 2}, "\1\2"); },
     "train-labels-idx1-ubyte", "it has 2 labels for the 3 images of train-images-idx3",
     "it has 2 labels for the 3 images of"},
    {"MoreLabels", [](SmallSet& s) { s.test_labels = Idx({0x801, 3}, "\1\2\3"); },
     "t10k-labels-idx1-ubyte", "it has 3 labels for the 2 images of t10k-images-idx3",
     "it has 3 labels for the 2 images of"},
    {"LabelTen", [](SmallSet& s) { s.test_labels = Idx({0x801, 2}, "\11\12"); },
     "t10k-labels-idx1-ubyte", "the label at index 1 is 10; labels are from 0 to 9",
     "the label at index 1 is 10; labels are from 0 to 9"},
    {"Label255", [](SmallSet& s) { s.train_labels = Idx({0x801, 3}, "\377\1\1"); },
     "train-labels-idx1-ubyte", "the label at index 0 is 255; labels are from 0 to 9",
     "the label at index 0 is 255; labels are from 0 to 9"},
};

INSTANTIATE_TEST_SUITE_P(All, LoadMnistMalformed, ::testing::ValuesIn(kMalformed),
                         [](const auto& param_info) { return param_info.param.name; });

// Returns LoadMnist's error with `content` as the gzipped training images.
std::string ErrorOfGzip(const std::string& content) {
  const TestFolder temp;
  SmallSet().Write(temp.path(), true);
  WriteFile(temp.path() / "train-images-idx3-ubyte.gz", content);
  const std::string error = ErrorOf(temp.path());
  EXPECT_THAT(error, HasSubstr("train-images-idx3-ubyte.gz"));
  return error;
}

TEST(LoadMnist, GzipCutAnywhere) {
  const std::string whole = Gzip(SmallSet().train_images);
  EXPECT_THAT(ErrorOfGzip(""), HasSubstr("ends at byte 0; a header of 16 bytes"));
  EXPECT_THAT(ErrorOfGzip(whole.substr(0, 1)), HasSubstr("its name is that of a gzip file"));
  for (size_t size = 2; size < whole.size(); ++size) {
    EXPECT_THAT(ErrorOfGzip(whole.substr(0, size)), HasSubstr("its gzip stream is truncated"))
        << size;
  }
}

TEST(LoadMnist, SecondGzipStreamCut) {
  const SmallSet set;
  const std::string second = Gzip(set.train_images.substr(1000));
  for (size_t size = 1; size < second.size(); ++size) {
    EXPECT_THAT(ErrorOfGzip(Gzip(set.train_images.substr(0, 1000)) + second.substr(0, size)),
                HasSubstr("truncated"));
  }
}

TEST(LoadMnist, GzipWithAnyBitFlipped) {
  const std::string whole = Gzip(SmallSet().train_images);
  const TestFolder temp;
  SmallSet().Write(temp.path(), true);
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 4);
    WriteFile(temp.path() / "train-images-idx3-ubyte.gz", flipped);
    try {
      ExpectSmallSet(LoadMnist(temp.path()));
      // The date and flags in bytes 4 to 9 do not matter. The last byte before the 8 of checksum
      // and length can end in padding.
      EXPECT_TRUE((i >= 4 && i < 10) || i == whole.size() - 9) << i;
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), HasSubstr("train-images-idx3-ubyte.gz"));
      ++refused;
    }
  }
  EXPECT_GE(refused, static_cast<int>(whole.size()) - 7);
}

TEST(LoadMnist, BytesAfterTheGzipStream) {
  const std::string whole = Gzip(SmallSet().train_images);
  for (const std::string& tail : {std::string("x"), std::string(512, '\0') + "x"}) {
    EXPECT_THAT(ErrorOfGzip(whole + tail), HasSubstr("other bytes follow its gzip stream"));
  }
  EXPECT_THAT(ErrorOfGzip(whole + whole), HasSubstr("bytes that its header requires"));
  EXPECT_THAT(ErrorOfGzip(whole + "\x1f garbage"), HasSubstr("incorrect header check"));
  EXPECT_THAT(ErrorOfGzip(whole + "\x1f"), HasSubstr("truncated"));
}

TEST(LoadMnist, TheRealOne) {
  const std::optional<fs::path> folder = DataFolder("");
  if (!folder) GTEST_SKIP() << "PLANISH_DATA does not name a folder with MNIST";
  const ImageSet set = LoadMnist(*folder);
  EXPECT_EQ(set.name, "mnist");
  EXPECT_THAT(set.description,
              StartsWith("MNIST, 60,000 training and 10,000 test images read from "));
  EXPECT_EQ(set.train.count, 60'000);
  EXPECT_EQ(set.test.count, 10'000);
  const auto first = [](const Images& images) {
    return std::vector<int>(images.labels.begin(), images.labels.begin() + 5);
  };
  EXPECT_THAT(first(set.train), ElementsAre(5, 0, 4, 1, 9));
  EXPECT_THAT(first(set.test), ElementsAre(7, 2, 1, 0, 4));
  // .1307 and .1325 of 255, as commonly printed; the tolerance is the last digit given here.
  const auto mean = [](const Images& images) {
    return std::accumulate(images.pixels.begin(), images.pixels.end(), 0.0) /
           static_cast<double>(images.pixels.size());
  };
  EXPECT_NEAR(mean(set.train), 33.318, 5e-4);
  EXPECT_NEAR(mean(set.test), 33.791, 5e-4);
}

}  // namespace
}  // namespace planish::lab
