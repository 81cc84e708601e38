#include "lab/tasks/order-embedding/synthetic_scenes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <set>
#include <span>

#include "lab/base/random.h"
#include "lab/tasks/order-embedding/captions.h"

namespace planish::lab {

namespace {

struct Word {
  std::array<const char*, 2> english;  // synonyms
  const char* german;
};

constexpr Word kPeople[] = {{{"man", "guy"}, "Mann"},       {{"woman", "lady"}, "Frau"},
                            {{"child", "kid"}, "Kind"},     {{"dog", "hound"}, "Hund"},
                            {{"cat", "tomcat"}, "Katze"},   {{"robot", "machine"}, "Roboter"},
                            {{"clown", "jester"}, "Clown"}, {{"monkey", "ape"}, "Affe"}};
constexpr Word kColours[] = {{{"red", "scarlet"}, "rot"},    {{"blue", "azure"}, "blau"},
                             {{"green", "lime"}, "grün"},    {{"yellow", "golden"}, "gelb"},
                             {{"black", "dark"}, "schwarz"}, {{"white", "pale"}, "weiß"}};
constexpr Word kActions[] = {{{"carries", "holds"}, "trägt"},  {{"throws", "tosses"}, "wirft"},
                             {{"paints", "colours"}, "malt"},  {{"watches", "observes"}, "sieht"},
                             {{"repairs", "mends"}, "flickt"}, {{"sells", "offers"}, "verkauft"}};
constexpr Word kThings[] = {{{"ball", "globe"}, "Ball"},   {{"kite", "glider"}, "Drachen"},
                            {{"hat", "cap"}, "Hut"},       {{"boat", "ship"}, "Boot"},
                            {{"bike", "bicycle"}, "Rad"},  {{"box", "crate"}, "Kiste"},
                            {{"chair", "stool"}, "Stuhl"}, {{"drum", "tambourine"}, "Trommel"}};
constexpr Word kPlaces[] = {{{"in the park", "under the trees"}, "im Park"},
                            {{"in the street", "on the road"}, "auf der Straße"},
                            {{"at the beach", "by the sea"}, "am Strand"},
                            {{"in the kitchen", "at the stove"}, "in der Küche"},
                            {{"on a roof", "above the houses"}, "auf dem Dach"},
                            {{"in the snow", "on the ice"}, "im Schnee"},
                            {{"at the market", "among the stalls"}, "auf dem Markt"},
                            {{"on a bridge", "over the river"}, "auf der Brücke"}};

// Indices into these lists: who, of which colour, does what, with what, of which colour, where.
using Scene = std::array<size_t, 6>;

class Narrator {
 public:
  Scene NewScene() {
    return {Choose(std::size(kPeople)), Choose(std::size(kColours)), Choose(std::size(kActions)),
            Choose(std::size(kThings)), Choose(std::size(kColours)), Choose(std::size(kPlaces))};
  }

  std::string English(const Scene& scene) {
    std::string text = Likely() ? "A " : "There is a ";
    const bool relative = text.size() > 2;
    if (Likely()) text += Either(kColours[scene[1]]) + " ";
    text += Either(kPeople[scene[0]]);
    if (Likely()) {
      text += (relative ? " that " : " ") + Either(kActions[scene[2]]) + " a ";
      if (Likely()) text += Either(kColours[scene[4]]) + " ";
      text += Either(kThings[scene[3]]);
    }
    if (Likely()) text += " " + Either(kPlaces[scene[5]]);
    return text + ".";
  }

  // Returns German keywords, which need no endings.
  std::string German(const Scene& scene) {
    std::string text = kPeople[scene[0]].german;
    if (Likely()) text += std::string(", ") + kColours[scene[1]].german;
    if (Likely()) {
      text += std::string("; ") + kActions[scene[2]].german + " " + kThings[scene[3]].german;
      if (Likely()) text += std::string(", ") + kColours[scene[4]].german;
    }
    if (Likely()) text += std::string("; ") + kPlaces[scene[5]].german;
    return text + ".";
  }

 private:
  size_t Choose(size_t n) { return lab::Choose(random_, n); }
  bool Likely() { return Choose(3) > 0; }
  std::string Either(const Word& word) { return word.english[Choose(2)]; }

  std::mt19937_64 random_{1};
};

}  // namespace

SyntheticScenes MakeScenes(int64_t count) {
  Narrator narrator;
  std::set<Scene> told;
  SyntheticScenes scenes;
  while (std::ssize(told) < count) {
    const Scene scene = narrator.NewScene();
    if (!told.insert(scene).second) continue;
    for (int64_t i = 0; i < kCaptionsPerImage; ++i) {
      scenes.english.push_back(narrator.English(scene));
      scenes.german.push_back(narrator.German(scene));
    }
  }
  return scenes;
}

}  // namespace planish::lab
