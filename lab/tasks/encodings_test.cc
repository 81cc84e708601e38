#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "lab/data/conllu.h"
#include "lab/data/sentences.h"
#include "lab/data/table.h"
#include "lab/data/test_files.h"
#include "lab/data/text.h"
#include "lab/downstream/sentence_sets.h"
#include "lab/error.h"
#include "lab/tasks/attentive-reader/cloze.h"
#include "lab/tasks/handwriting/digilets.h"
#include "lab/tasks/handwriting/iam_ondb.h"
#include "lab/tasks/mt/parallel.h"
#include "lab/tasks/order-embedding/captions.h"
#include "lab/tasks/skip-thoughts/books.h"

// Every text loader handles byte order marks, line ends and gzip alike, and refuses text that is
// not UTF-8.
namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Change = std::function<std::string(const std::string&)>;

struct Loader {
  const char* name;
  // Writes the loader's files, each with its content changed.
  std::function<void(const fs::path&, const Change&)> write;
  // Returns the content that was read, as text.
  std::function<std::string(const fs::path&)> read;
  bool may_be_empty = false;       // an empty file is no error
  bool needs_final_blank = false;  // the format ends in an empty line
};

std::string Joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "|"));
}

std::string Words(const Sentences& sentences) {
  std::string text;
  for (size_t i = 0; i < sentences.words.size(); ++i) {
    text += fmt::format("{}:{};", sentences.labels[i], Joined(sentences.words[i]));
  }
  return text;
}

std::string Pairs(const std::vector<SentencePair>& pairs) {
  std::string text;
  for (const SentencePair& pair : pairs) text += pair.source + "|" + pair.target + ";";
  return text;
}

std::string Rows(const Table& table) {
  std::string text = table.ColumnNames();
  for (const TableRow& row : table.rows) {
    for (const auto& field : row.fields) text += field.value_or("none") + "|";
  }
  return text;
}

std::string Trees(const Treebank& treebank) {
  std::string text;
  for (const DependencyTree& tree : treebank.trees) {
    for (const TreeWord& word : tree.words) {
      text += fmt::format("{}/{}/{} ", word.form, word.xpos, word.head);
    }
  }
  return text;
}

std::string DigiletsText(char way) {
  std::string text;
  for (size_t i = 0; i < kDigiletsCharacters.size(); ++i) {
    text += fmt::format("0.25 0.5 0.1 1 0 0.{} 0.75 0.2 0 0.02\n", way);
    for (size_t j = 0; j < kDigiletsCharacters.size(); ++j) {
      text += fmt::format("{}{}", j == 0 ? "" : " ", j == i ? 1 : 0);
    }
    text += "\n";
  }
  return text;
}

// A CoNLL-U file with one sentence.
constexpr char kConllu[] =
    "# sent_id = 1\n# text = Cats sleep .\n1\tCats\tcat\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n"
    "2\tsleep\tsleep\tVERB\tVBP\t_\t0\troot\t_\t_\n3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_\n\n";

// Returns the loaders of one or two files.
std::vector<Loader> FileLoaders() {
  return {
      {"Text",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "input.txt", change("round and round\n"));
       },
       [](const fs::path& folder) { return ReadText(folder, 1000).characters; }},
      {"Characters",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "input.txt", change("round and round\n"));
       },
       [](const fs::path& folder) {
         return ReadText(folder, 1000, TextUnit::kCharacter).characters;
       }},
      {"Sentences",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a", change("good film .\nfine\n"));
       },
       [](const fs::path& folder) { return Words(SentenceReader(9).Read(folder / "a", 1)); }},
      {"LabelledSentences",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a", change("1 good film .\n0 bad\n"));
       },
       [](const fs::path& folder) {
         return Words(SentenceReader(9).ReadLabelled(folder / "a", 2));
       },
       /*may_be_empty=*/true},  // SentenceTask::Load refuses a split without sentences
      {"Csv",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a.csv", change("text,label\n\"so, good\",1\nbad,0\nfine,1\nno,0\n"));
       },
       [](const fs::path& folder) { return Rows(ReadTable(folder / "a.csv")); }},
      {"Tsv",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a.tsv", change("text\tlabel\ngood \"film\t1\nbad\t0\n"));
       },
       [](const fs::path& folder) { return Rows(ReadTable(folder / "a.tsv")); }},
      {"JsonLines",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a.jsonl", change("{\"text\": \"good\"}\n{\"text\": \"bad\"}\n"));
       },
       [](const fs::path& folder) { return Rows(ReadTable(folder / "a.jsonl")); }},
      {"Sick",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a",
                   change("pair_ID\tsentence_A\tsentence_B\trelatedness_score\t"
                          "entailment_judgment\n1\tA dog .\tA cat .\t3.5\tNEUTRAL\n"));
       },
       [](const fs::path& folder) {
         const RelatedPairs pairs = ReadSick(folder / "a");
         return fmt::format("{} {} {}", Joined(pairs.a), Joined(pairs.b), pairs.scores.at(0));
       }},
      {"Classified",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a", change("1 good\n0 bad\n"));
       },
       [](const fs::path& folder) { return Joined(ReadClassified(folder / "a", "cr").sentences); }},
      {"ClassPair",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a", change("good\nfine\n"));
         WriteFile(folder / "b", change("bad\n"));
       },
       [](const fs::path& folder) {
         return Joined(ReadClassPair(folder / "a", folder / "b", "mr").sentences);
       }},
      {"Transcription",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a.txt", change("CSR:\n\none line\nanother\n"));
       },
       [](const fs::path& folder) { return Joined(ReadTranscription(folder / "a.txt")); }},
  };
}

// Returns the loaders of folders with sentence pairs or captions in two languages.
std::vector<Loader> BilingualLoaders() {
  return {
      {"Parallel",
       [](const fs::path& folder, const Change& change) {
         for (const char* part : {"train", "valid", "test"}) {
           WriteFile(folder / fmt::format("{}.en", part), change("one\ntwo\n"));
           WriteFile(folder / fmt::format("{}.de", part), change("eins\nzwei\n"));
         }
       },
       [](const fs::path& folder) {
         const ParallelText text = OpenParallel(folder, {.data = "files"});
         return Pairs(text.train) + Pairs(text.valid) + Pairs(text.test) + text.sha256;
       }},
      {"Tatoeba",
       [](const fs::path& folder, const Change& change) {
         std::string table;
         for (int i = 0; i < 60; ++i) table += fmt::format("one {0}\teins {0}\tby me\n", i);
         WriteFile(folder / "deu.txt", change(table));
       },
       [](const fs::path& folder) {
         const ParallelText text = OpenParallel(folder, {.data = "tatoeba"});
         return Pairs(text.train) + Pairs(text.valid) + Pairs(text.test) + text.sha256;
       }},
      {"PairTable",
       [](const fs::path& folder, const Change& change) {
         std::string table;
         for (int i = 0; i < 60; ++i) table += fmt::format("one {0}\teins {0}\n", i);
         WriteFile(folder / "pairs.tsv", change(table));
       },
       [](const fs::path& folder) {
         const ParallelText text = OpenParallel(folder, {.data = "files"});
         return Pairs(text.train) + Pairs(text.valid) + Pairs(text.test) + text.sha256;
       }},
      {"Captions",
       [](const fs::path& folder, const Change& change) {
         for (const char* part : {"train", "val", "test_2016"}) {
           for (const char* language : {"en", "de"}) {
             for (int i = 1; i <= 5; ++i) {
               WriteFile(folder / fmt::format("{}.{}.{}", part, i, language),
                         change(fmt::format("dog {0}\ncat {0}\n", i)));
             }
           }
         }
       },
       [](const fs::path& folder) {
         const CaptionSets sets = OpenCaptions(folder, {.features = 8});
         return Joined(sets.train.captions) + Joined(sets.test.captions) + sets.sha256;
       }},
  };
}

// Returns the loaders of other folders.
std::vector<Loader> FolderLoaders() {
  return {
      {"Treebanks",
       [](const fs::path& folder, const Change& change) {
         for (const char* part : {"train", "dev", "test"}) {
           WriteFile(folder / fmt::format("x-{}.conllu", part), change(kConllu));
         }
       },
       [](const fs::path& folder) {
         const TreebankSet set = ReadTreebanks(folder);
         return Trees(set.train) + Trees(set.valid) + Trees(set.test);
       },
       /*may_be_empty=*/false, /*needs_final_blank=*/true},
      {"Books",
       [](const fs::path& folder, const Change& change) {
         WriteFile(folder / "a.txt", change("One came. Two went.\n\nThree stayed.\n"));
         WriteFile(folder / "b.txt", change("Four slept.\n"));
       },
       [](const fs::path& folder) {
         const Library library = ReadBooks(folder);
         std::string text;
         for (const auto* books : {&library.train, &library.valid}) {
           for (const Book& book : *books) {
             for (const auto& sentence : book.sentences) text += Joined(sentence) + ";";
           }
         }
         return text;
       }},
      {"Digilets",
       [](const fs::path& folder, const Change& change) {
         for (int i = 0; i < 10; ++i) {
           WriteFile(folder / fmt::format("{:03}.txt", i),
                     change(DigiletsText(static_cast<char>('0' + i))));
         }
       },
       [](const fs::path& folder) {
         return ReadDigilets(folder, {.train = 3, .held_out = 1}).sha256;
       }},
      {"Questions",
       [](const fs::path& folder, const Change& change) {
         for (const char* part : {"training", "validation", "test"}) {
           fs::create_directories(folder / part);
           WriteFile(folder / part / "0.question",
                     change("source\n\n@entity1 met @entity2 .\n\n@placeholder left\n\n@entity1\n\n"
                            "@entity1:Ann\n@entity2:Bob\n"));
         }
       },
       [](const fs::path& folder) {
         const ClozeSets sets = ReadQuestions(folder, {});
         return sets.valid.at(0).source + sets.sha256;
       }},
  };
}

std::vector<Loader> Loaders() {
  std::vector<Loader> loaders = FileLoaders();
  std::ranges::move(BilingualLoaders(), std::back_inserter(loaders));
  std::ranges::move(FolderLoaders(), std::back_inserter(loaders));
  return loaders;
}

class EncodingsTest : public testing::TestWithParam<Loader> {
 protected:
  std::string Read(const Change& change) {
    const TestFolder folder;
    GetParam().write(folder.path(), change);
    return GetParam().read(folder.path());
  }
  static bool IsText() {
    const std::string name = GetParam().name;
    return name == "Text" || name == "Characters";
  }
  std::string Plain() {
    return Read([](const std::string& text) { return text; });
  }
  std::string ErrorOf(const Change& change) {
    try {
      Read(change);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
};

TEST_P(EncodingsTest, SkipsAByteOrderMark) {
  EXPECT_EQ(Read([](const std::string& text) { return "\xef\xbb\xbf" + text; }), Plain());
}

TEST_P(EncodingsTest, ReadsGzipUnderAnyName) { EXPECT_EQ(Read(Gzip), Plain()); }

TEST_P(EncodingsTest, ReadsLinesThatEndInCrLf) {
  if (IsText()) GTEST_SKIP() << "every character counts";
  EXPECT_EQ(Read([](const std::string& text) {
              std::string crlf;
              for (const char c : text) crlf += c == '\n' ? "\r\n" : std::string(1, c);
              return crlf;
            }),
            Plain());
}

TEST_P(EncodingsTest, ReadsAFileWithoutAFinalLineFeed) {
  if (IsText()) GTEST_SKIP() << "every character counts";
  const Change cut = [](const std::string& text) { return text.substr(0, text.size() - 1); };
  if (GetParam().needs_final_blank) {
    EXPECT_THAT(ErrorOf(cut), HasSubstr("the empty line that ends a sentence is missing after it"));
  } else {
    EXPECT_EQ(Read(cut), Plain());
  }
}

TEST_P(EncodingsTest, RefusesAnEmptyFile) {
  const std::string error = ErrorOf([](const std::string&) { return ""; });
  if (!GetParam().may_be_empty) {
    EXPECT_NE(error, "no error");
  }
}

TEST_P(EncodingsTest, RefusesUtf16) {
  const auto wide = [](const std::string& text) {
    std::string bytes;
    for (const char c : text) bytes += {c, '\0'};
    return bytes;
  };
  EXPECT_THAT(ErrorOf([&](const std::string& text) { return "\xff\xfe" + wide(text); }),
              AllOf(HasSubstr("cannot read "), HasSubstr("it is in UTF-16")));
  if (IsText()) return;  // without a mark, all bytes are text
  EXPECT_THAT(ErrorOf(wide), HasSubstr("it has a zero byte on line 1"));
}

TEST_P(EncodingsTest, RefusesOtherArchives) {
  EXPECT_THAT(ErrorOf([](const std::string& text) { return "PK\3\4" + text; }),
              HasSubstr("it is a zip archive"));
  EXPECT_THAT(ErrorOf([](const std::string& text) { return "BZh91AY&SY" + text; }),
              HasSubstr("it is a bzip2 file"));
}

TEST_P(EncodingsTest, QuotesNoControlCharacters) {
  const std::string error =
      ErrorOf([](const std::string&) { return "\x1b[31m red \x07 \xc2\x9b\n"; });
  EXPECT_EQ(error.find_first_of("\x1b\x07\x9b"), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(Loaders, EncodingsTest, testing::ValuesIn(Loaders()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace planish::lab
