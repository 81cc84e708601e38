#include "lab/tasks/mt/synthetic_translation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

// Guards the sentences: runs are comparable only on equal ones.
TEST(MakeTranslations, AreTheSameEverywhere) {
  Sha256 sha;
  for (const SentencePair& pair : MakeTranslations(5'000)) {
    const std::string line = pair.source + "\t" + pair.target + "\n";
    sha.Update({reinterpret_cast<const uint8_t*>(line.data()), line.size()});
  }
  EXPECT_EQ(sha.Hex(), "286e418573107d3ae277a069bc6c90396f8f5c6fd8c2bd78d93ef79a18d26cef");
}

TEST(MakeTranslations, AreTheFirstOfMore) {
  const auto some = MakeTranslations(50), more = MakeTranslations(80);
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].source, more[i].source);
    EXPECT_EQ(some[i].target, more[i].target);
  }
  EXPECT_NE(MakeTranslations(1, 2)[0].source, some[0].source);
  EXPECT_THROW(MakeTranslations(0), UsageError);
  EXPECT_THROW(MakeTranslations(100'001), UsageError);
}

// German order, gender, case and number. Each sentence was translated by hand.
TEST(MakeTranslations, FollowGermanGrammar) {
  std::map<std::string, std::string> german;
  for (const auto& [source, target] : MakeTranslations(5'000)) german[source] = target;
  EXPECT_EQ(german.size(), 5'000u);  // all distinct
  const std::vector<SentencePair> expected = {
      {"A queen sleeps.", "Eine Königin schläft."},
      {"The old lambs do not see quiet lambs.", "Die alten Lämmer sehen stille Lämmer nicht."},
      {"A small lamb carries the small friend behind the house.",
       "Ein kleines Lamm trägt den kleinen Freund hinter dem Haus."},
      {"Often, young men have bought a cat.", "Oft haben junge Männer eine Katze gekauft."},
      {"Now, the queen must carry a man in the garden.",
       "Jetzt muss die Königin einen Mann im Garten tragen."},
      {"A girl that forgets the tired horses does not forget the horses because the lamb must wait "
       "for young friends behind the house.",
       "Ein Mädchen, das die müden Pferde vergisst, vergisst die Pferde nicht, weil das Lamm junge "
       "Freunde hinter dem Haus erwarten muss."},
      {"Today, the quiet child sees the queen in the forest when an old friend looks for the tired "
       "men.",
       "Heute sieht das stille Kind die Königin im Wald, wenn ein alter Freund die müden Männer "
       "sucht."}};
  for (const auto& [source, target] : expected) {
    ASSERT_TRUE(german.contains(source)) << source;
    EXPECT_EQ(german[source], target);
  }
}

TEST(MakeTranslations, AreWellFormed) {
  for (const auto& [source, target] : MakeTranslations(5'000)) {
    for (const std::string& text : {source, target}) {
      EXPECT_TRUE(text.ends_with('.')) << text;
      EXPECT_EQ(std::ranges::count(text, '.'), 1) << text;
      for (const char* bad : {"  ", ",,", ",.", " ,", " ."}) {
        EXPECT_THAT(text, ::testing::Not(HasSubstr(bad)));
      }
    }
  }
}

}  // namespace
}  // namespace planish::lab
