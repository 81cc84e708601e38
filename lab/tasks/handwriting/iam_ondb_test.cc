#include "lab/tasks/handwriting/iam_ondb.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a file in the form of IAM-OnDB's.
std::string Xml(const std::string& strokes) {
  return "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n"
         "<WhiteboardCaptureSession>\n  <WhiteboardDescription>\n"
         "    <SensorLocation corner=\"top_left\"/>\n  </WhiteboardDescription>\n  <StrokeSet>\n" +
         strokes + "  </StrokeSet>\n</WhiteboardCaptureSession>\n";
}

std::string Stroke(const std::string& points) {
  return "    <Stroke colour=\"black\" start_time=\"1.0\" end_time=\"2.0\">\n" + points +
         "    </Stroke>\n";
}

std::string Point(const std::string& x, const std::string& y) {
  return fmt::format("      <Point x=\"{}\" y=\"{}\" time=\"1.5\"/>\n", x, y);
}

std::string ErrorOf(const std::string& xml) {
  try {
    ParseLineStrokes(xml, "a01-000u-01.xml");
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ParseLineStrokes, ReadsPointsAndLifts) {
  const auto points = ParseLineStrokes(
      Xml(Stroke(Point("10", "-20") + Point("10.5", "21")) + Stroke(Point("7", "8"))), "");
  EXPECT_THAT(points, ElementsAre(PenPoint{10, -20, false}, PenPoint{10.5f, 21, true},
                                  PenPoint{7, 8, true}));
}

TEST(ParseLineStrokes, ExpandsNoEntities) {
  // Ten levels of ten entities each would have ten billion characters.
  std::string document = "<!DOCTYPE a [<!ENTITY e0 \"1\">";
  for (int i = 1; i <= 10; ++i) {
    document += fmt::format("<!ENTITY e{} \"", i);
    for (int j = 0; j < 10; ++j) document += fmt::format("&e{};", i - 1);
    document += "\">";
  }
  document += "]>" + Xml(Stroke(Point("&e10;", "2")));
  EXPECT_THAT(ErrorOf(document), HasSubstr("x is \"&e10;\""));
}

TEST(ParseLineStrokes, RefusesDeeplyNestedElements) {
  std::string document;
  for (int i = 0; i < 1'000'000; ++i) document += "<a>";
  EXPECT_NE(ErrorOf(document), "no error");
  for (int i = 0; i < 1'000'000; ++i) document += "</a>";
  EXPECT_NE(ErrorOf(document), "no error");
}

TEST(ParseLineStrokes, ReportsErrorsWithTheirPosition) {
  const std::string good = Stroke(Point("1", "2"));
  const std::string head = Xml("");
  const struct {
    std::string xml, what;
  } cases[] = {
      {"", ": it is not XML: No document element found at byte 0"},
      {"<a><b></a>", "it is not XML: Start-end tags mismatch at byte "},
      {Xml(good).substr(0, 200), "it is not XML: "},
      {"<WhiteboardCaptureSession/>", "its outermost element has no StrokeSet"},
      {Xml(""), ": it has no Stroke"},
      {Xml(good + Stroke("")), ": it has no Point"},
      {Xml(Stroke("<Point y=\"2\"/>")), ": it has no x"},
      {Xml(Stroke("<Point x=\"1\"/>")), ": it has no y"},
      {Xml(Stroke(Point("", "1"))), "x is \"\"; a number from -100000 to 100000 was expected"},
      {Xml(Stroke(Point("1", "two"))), "y is \"two\""},
      {Xml(Stroke(Point("1 2", "3"))), "x is \"1 2\""},
      {Xml(Stroke(Point("nan", "3"))), "x is \"nan\""},
      {Xml(Stroke(Point("1", "inf"))), "y is \"inf\""},
      {Xml(Stroke(Point("100001", "3"))), "x is \"100001\""},
      {Xml(Stroke(Point("1", "-1e9"))), "y is \"-1e9\""},
      {Xml(Stroke(Point("1", "1e999"))), "y is \"1e999\""},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.xml), AllOf(HasSubstr("a01-000u-01.xml"), HasSubstr(c.what))) << c.xml;
  }
  EXPECT_EQ(ErrorOf(Xml(good)), "no error");
  // The position is that of the element's name.
  const std::string xml = Xml(good + Stroke(Point("x", "1")));
  EXPECT_THAT(ErrorOf(xml), HasSubstr(fmt::format(", Point at byte {}: ", xml.rfind("Point x"))));
  const std::string empty = Xml(good + Stroke(""));
  EXPECT_THAT(ErrorOf(empty),
              HasSubstr(fmt::format(", Stroke at byte {}: ", empty.rfind("Stroke colour"))));
}

class ReadIamOnDbTest : public ::testing::Test {
 protected:
  // Writes a form of `lines` lines of two strokes each, of three points and one that repeats.
  void WriteForm(const std::string& form, int lines, const std::string& text = "one line") {
    const fs::path below = fs::path(form.substr(0, 3)) / form.substr(0, 7);
    fs::create_directories(folder / "lineStrokes" / below);
    fs::create_directories(folder / "ascii" / below);
    std::string ascii = "OCR:\n\nOne Line\n\nCSR:\n\n";
    for (int i = 1; i <= lines; ++i) {
      const std::string x = std::to_string(i);
      WriteFile(
          folder / "lineStrokes" / below / fmt::format("{}-{:02}.xml", form, i),
          Xml(Stroke(Point("1", "2") + Point(x, "7") + Point(x, "7")) + Stroke(Point("30", x))));
      ascii += fmt::format(" {} {}\t\r\n", text, i);
    }
    WriteFile(folder / "ascii" / below / (form + ".txt"), ascii);
  }

  std::string ErrorOf() {
    try {
      ReadIamOnDb(folder.path(), {});
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }

  fs::path Line(const std::string& name) { return folder / ("lineStrokes/a01/a01-000/" + name); }
  fs::path Text(const std::string& name) { return folder / ("ascii/a01/a01-000/" + name); }

  TestFolder folder;
};

std::set<std::string> Forms(const std::vector<WrittenLine>& lines) {
  std::set<std::string> forms;
  for (const WrittenLine& line : lines) forms.insert(line.text.substr(0, line.text.find(' ')));
  return forms;
}

TEST_F(ReadIamOnDbTest, PairsLinesWithTheirTexts) {
  for (const char* form : {"a01-000u", "a01-000w", "a01-000x"}) WriteForm(form, 2, form);
  WriteFile(folder / "trainset.txt", "a01-000u\n\n");
  WriteFile(folder / "testset_v.txt", " a01-000x \r\n");
  WriteFile(folder / "testset_f.txt", "a01-000w\nz99-999z\n");
  const Handwriting data = ReadIamOnDb(folder.path(), {});
  ASSERT_EQ(data.train.size(), 2u);
  EXPECT_EQ(data.train[0].text, "a01-000u 1");
  EXPECT_EQ(data.train[1].text, "a01-000u 2");
  EXPECT_THAT(data.train[1].points,
              ElementsAre(PenPoint{1, 2, false}, PenPoint{2, 7, true}, PenPoint{30, 2, true}));
  EXPECT_EQ(Forms(data.valid), std::set<std::string>{"a01-000x"});
  EXPECT_EQ(Forms(data.test), std::set<std::string>{"a01-000w"});
  EXPECT_EQ(data.name, "iam-ondb");
  EXPECT_EQ(data.sha256, HashLines(data));
  EXPECT_THAT(data.description, AllOf(HasSubstr("2 training, 2 validation and 2 test lines of 6"),
                                      HasSubstr("parts by the lists of forms"),
                                      HasSubstr("6 points of a resting pen")));
}

TEST_F(ReadIamOnDbTest, PartsByFormWithoutLists) {
  for (int i = 0; i < 20; ++i) {
    const std::string form = fmt::format("a01-{:03}u", i);
    WriteForm(form, 2, form);
  }
  const Handwriting data = ReadIamOnDb(folder.path(), {});
  EXPECT_EQ(data.train.size(), 32u);
  EXPECT_EQ(Forms(data.valid), (std::set<std::string>{"a01-008u", "a01-018u"}));
  EXPECT_EQ(Forms(data.test), (std::set<std::string>{"a01-009u", "a01-019u"}));
  EXPECT_EQ(Forms(data.train).size(), 16u);
  // Fewer lines are the first of a random order.
  const Handwriting some = ReadIamOnDb(folder.path(), {.train = 9, .held_out = 3});
  EXPECT_EQ(some.train.size(), 9u);
  EXPECT_EQ(some.valid.size(), 3u);
  EXPECT_GT(Forms(some.train).size(), 5u);
  const Handwriting fewer = ReadIamOnDb(folder.path(), {.train = 4, .held_out = 3});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(fewer.train[i].text, some.train[i].text);
  EXPECT_NE(fewer.sha256, some.sha256);
}

TEST_F(ReadIamOnDbTest, KeepsLinesOfTheSymbols) {
  for (int i = 0; i < 10; ++i) WriteForm(fmt::format("a01-{:03}u", i), 2);
  for (int i = 0; i < 10; ++i) {
    WriteFile(folder / fmt::format("ascii/a01/a01-{0:03}/a01-{0:03}u.txt", i),
              "CSR:\nab \u00e9a\nac\n");
  }
  const Handwriting data = ReadIamOnDb(folder.path(), {.symbols = "ab\u00e9"});
  EXPECT_EQ(data.train.size(), 8u);
  for (const WrittenLine& line : data.train) EXPECT_EQ(line.text, "ab \u00e9a");
  EXPECT_THAT(data.description,
              HasSubstr("; 10 lines with other symbols than \"ab\u00e9\" left out"));
  EXPECT_THROW(ReadIamOnDb(folder.path(), {.symbols = "z"}), DataError);
}

TEST_F(ReadIamOnDbTest, ReadsSomeWriters) {
  const auto xml = [](const std::string& form) {
    return "<?xml version=\"1.0\"?><WhiteboardCaptureSession><General>" + form +
           "</General><StrokeSet/></WhiteboardCaptureSession>";
  };
  for (int i = 0; i < 30; ++i) {
    const std::string form = fmt::format("a01-{:03}{}", i, i % 2 == 0 ? "u" : "");
    WriteForm(form, 1, form);
    if (i >= 24) continue;  // forms without a writer
    const fs::path original = folder / fmt::format("original/a01/a01-{:03}", i);
    fs::create_directories(original);
    WriteFile(original / (i % 2 == 0 ? "strokesu.xml" : "strokes.xml"),
              xml(fmt::format("<Form id=\"{}\" writerID=\"{}\"/>", form, 10000 + i / 12)));
  }
  const auto read = [&](const std::string& writers) {
    return ReadIamOnDb(folder.path(), {.writers = writers});
  };
  const Handwriting first = read("10000");
  EXPECT_EQ(Forms(first.valid), (std::set<std::string>{"a01-008u"}));
  EXPECT_EQ(Forms(first.test), (std::set<std::string>{"a01-009"}));
  EXPECT_EQ(first.train.size(), 10u);
  EXPECT_THAT(first.description,
              HasSubstr("; only the writers \"10000\", 6 lines without a writer left out"));
  EXPECT_EQ(Forms(read("10001").valid), (std::set<std::string>{"a01-020u"}));
  EXPECT_EQ(read("10000-20000").train.size(), 20u);
  for (const std::string writers : {"x", "1", "10000 7", "10001-10000"}) {
    EXPECT_THAT([&] { read(writers); },
                ::testing::ThrowsMessage<UsageError>(HasSubstr("[handwriting] writers must ")))
        << writers;
  }
  WriteFile(folder / "original/a01/a01-000/strokesu.xml",
            xml("<Form id=\"a01-000u\" writerID=\"x1\"/>"));
  EXPECT_THAT([&] { read("10000"); }, ::testing::ThrowsMessage<DataError>(AllOf(HasSubstr(
                                          "a01-000/strokesu.xml: its writerID is \"x1\""))));
  WriteFile(folder / "original/a01/a01-000/strokesu.xml", "<General>");
  EXPECT_THAT([&] { read("10000"); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("strokesu.xml: it is not XML")));
}

TEST_F(ReadIamOnDbTest, RefusesWritersThatNoFileNames) {
  for (int i = 0; i < 10; ++i) WriteForm(fmt::format("a01-{:03}u", i), 1);
  EXPECT_THAT([&] { ReadIamOnDb(folder.path(), {.writers = "1"}); },
              ::testing::ThrowsMessage<DataError>(HasSubstr(" names no writers, ")));
}

TEST(ParseWriterTest, ReadsTheForm) {
  const auto writer = [](const std::string& general) {
    return ParseWriter("<Session><General>" + general + "</General></Session>", "x.xml");
  };
  EXPECT_EQ(writer("<Form id=\"a01-000\" writerID=\"10138\"/>"), 10138);
  EXPECT_EQ(writer("<Form id=\"a01-000\"/>"), std::nullopt);
  EXPECT_EQ(writer(""), std::nullopt);
  for (const char* number : {"", "-1", "1.5", "99999999999999999999"}) {
    EXPECT_THROW(writer(fmt::format("<Form writerID=\"{}\"/>", number)), DataError) << number;
  }
}

TEST_F(ReadIamOnDbTest, LeavesOutAndCountsUnusableLines) {
  for (int i = 0; i < 10; ++i) WriteForm(fmt::format("a01-{:03}u", i), 3);
  fs::remove(folder / "ascii/a01/a01-001/a01-001u.txt");                     // three lines
  WriteFile(folder / "ascii/a01/a01-002/a01-002u.txt", "CSR:\nonly one\n");  // two
  WriteFile(Line("a01-000u-01.xml"), Xml(Stroke(Point("1", "1") + Point("1", "1"))));
  WriteFile(Line("readme.xml"), "no line");
  WriteFile(Line("a01-000u-00.xml"), "no line");
  const Handwriting data = ReadIamOnDb(folder.path(), {});
  EXPECT_EQ(data.train.size(), 24u - 3 - 2 - 1);
  EXPECT_THAT(data.description,
              HasSubstr("left out: 5 without transcription, 1 of a single point"));
}

TEST_F(ReadIamOnDbTest, ReportsMissingAndMalformedFiles) {
  EXPECT_FALSE(IsIamOnDb(folder.path()));
  fs::create_directories(folder / "lineStrokes");
  EXPECT_TRUE(IsIamOnDb(folder.path()));
  EXPECT_THAT(ErrorOf(), HasSubstr("lineStrokes has no files FORM-NUMBER.xml"));
  WriteForm("a01-000u", 2);
  EXPECT_THAT(ErrorOf(), HasSubstr(" has no validation line with its transcription"));
  for (const char* form : {"a01-000w", "a01-000x"}) WriteForm(form, 2);
  WriteFile(folder / "trainset.txt", "a01-000u\n");
  WriteFile(folder / "testset_v.txt", "a01-000x\n");
  EXPECT_THAT(ErrorOf(),
              HasSubstr(" has 2 of the lists trainset.txt, testset_v.txt and testset_f.txt"));
  WriteFile(folder / "testset_f.txt", "a01-000x\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("testset_f.txt: it has the form \"a01-000x\", and so "
                                   "has testset_v.txt"));
  WriteFile(folder / "testset_f.txt", "a01-000w\n");
  EXPECT_EQ(ErrorOf(), "no error");

  const std::string text = ReadFile(Text("a01-000x.txt"));
  WriteFile(Text("a01-000x.txt"), "OCR:\nno other\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("a01-000x.txt: it has no line \"CSR:\""));
  WriteFile(Text("a01-000x.txt"), "CSR:\n\xff\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("a01-000x.txt, line 2: byte 0xff at column 1 is not "
                                   "UTF-8"));
  WriteFile(Text("a01-000x.txt"), text);
  WriteFile(Line("a01-000x-02.xml"), "<a>");
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("a01-000x-02.xml: "), HasSubstr("it is not XML: ")));
  WriteFile(Line("a01-000x-02.xml"), Gzip(Xml(Stroke(Point("1", "2") + Point("3", "4")))));
  EXPECT_EQ(ErrorOf(), "no error");
}

}  // namespace
}  // namespace planish::lab
