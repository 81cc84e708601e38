#include "lab/data/synthetic_stories.h"

#include <fmt/format.h>

#include "lab/base/random.h"

namespace planish::lab {

namespace {

constexpr size_t kThings = 6;
constexpr std::array<std::array<const char*, kThings>, kSyntheticPlaces> kThingsOf = {{
    {"boat", "net", "wave", "gull", "island", "storm"},
    {"cow", "barn", "field", "hen", "plough", "fence"},
    {"king", "tower", "sword", "gate", "crown", "knight"},
    {"tram", "lamp", "shop", "street", "office", "crowd"},
}};
constexpr std::array<const char*, kSyntheticPlaces> kPlaces = {"sea", "farm", "castle", "city"};
constexpr std::array<const char*, 8> kPeople = {"Anna", "Bert",  "Clara",  "Dora",
                                                "Emil", "Frida", "Gustav", "Hanna"};
constexpr std::array<const char*, 6> kVerbs = {"saw",   "found",   "feared",
                                               "liked", "painted", "lost"};
constexpr std::array<const char*, 6> kAdjectives = {"old", "small",   "quiet",
                                                    "red", "strange", "fine"};

}  // namespace

size_t StoryTeller::Choose(size_t n) { return lab::Choose(random_, n); }

std::string StoryTeller::Tell(size_t place, const std::string& person, std::string& thing) {
  const std::string before = thing;
  thing = kThingsOf[place][Choose(kThings)];
  const char* verb = kVerbs[Choose(kVerbs.size())];
  const char* adjective = kAdjectives[Choose(kAdjectives.size())];
  switch (Choose(4)) {
    case 0:
      return fmt::format("{} {} the {} by the {}.", person, verb, before, thing);
    case 1:
      return fmt::format("The {} was {}, but {} {} the {}.", before, adjective, person, verb,
                         thing);
    case 2:
      return fmt::format("\"Is the {} {}?\" said {} to the {}.", before, adjective, person, thing);
    default:
      return fmt::format("Near the {} {} {} a {} {}.", before, person, verb, adjective, thing);
  }
}

std::vector<std::string> StoryTeller::Story() {
  const size_t place = Choose(kSyntheticPlaces);
  const std::string person = kPeople[Choose(kPeople.size())];
  std::string thing = kThingsOf[place][Choose(kThings)];
  std::vector<std::string> sentences = {
      fmt::format("{} went to the {} and looked for the {}.", person, kPlaces[place], thing)};
  const size_t length = 5 + Choose(5);
  while (sentences.size() < length) sentences.push_back(Tell(place, person, thing));
  return sentences;
}

std::pair<std::string, size_t> StoryTeller::Sentence() {
  const size_t place = Choose(kSyntheticPlaces);
  std::string thing = kThingsOf[place][Choose(kThings)];
  return {Tell(place, kPeople[Choose(kPeople.size())], thing), place};
}

}  // namespace planish::lab
