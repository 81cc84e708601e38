#include "lab/run/former_settings.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace planish::lab {

using Json = nlohmann::ordered_json;

namespace {

struct Renamed {
  std::string_view former, present;
  std::string_view former_value, present_value;  // all other values are the same
};
constexpr Renamed kRenamed[] = {
    {"norm_position", "placement", "pre", "pre-no-final"},  // of enwik8, until 0.2
};

struct Added {
  std::string_view task, name;
  Json value;  // what the task did before it had the setting
};
const std::vector<Added>& AddedSettings() {
  static const std::vector<Added> added = {
      {"mt", "placement", "pre"},     {"rt", "placement", "pre"},
      {"sst5", "placement", "pre"},   {"mt", "qk_norm", false},
      {"rt", "qk_norm", false},       {"sst5", "qk_norm", false},
      {"enwik8", "qk_norm", false},   {"char-lm", "heads", 1},
      {"handwriting", "heads", 1},    {"mt", "init", "glorot"},
      {"mt", "source_vocabulary", 0}, {"online-ln", "alpha_schedule", "constant"},
      {"char-lm", "unit", "byte"},    {"mt", "columns", ""},
      {"mt", "split_seed", 1},        {"handwriting", "symbols", ""},
      {"handwriting", "writers", ""}, {"rt", "split_by_seed", false},
  };
  return added;
}

}  // namespace

std::string PresentSetting(std::string_view name) {
  const auto row = std::ranges::find(kRenamed, name, &Renamed::former);
  return std::string(row == std::end(kRenamed) ? name : row->present);
}

std::string PresentValue(std::string_view name, std::string_view value) {
  const auto row = std::ranges::find(kRenamed, name, &Renamed::former);
  const bool is_former = row != std::end(kRenamed) && value == row->former_value;
  return std::string(is_former ? row->present_value : value);
}

std::string PresentUnit(const std::string& task, const Json& settings, std::string unit) {
  constexpr std::string_view kFormer = "/char";
  if (task == "char-lm" && settings.value("unit", Json()) == "byte" && unit.ends_with(kFormer)) {
    unit.replace(unit.size() - kFormer.size(), kFormer.size(), "/byte");
  }
  return unit;
}

void UpdateSettings(const std::string& task, Json& settings) {
  Json updated = Json::object();
  for (const auto& [name, value] : settings.items()) {
    updated[PresentSetting(name)] =
        value.is_string() ? Json(PresentValue(name, value.get<std::string>())) : value;
  }
  for (const Added& row : AddedSettings()) {
    if (row.task == task && !updated.contains(row.name)) updated[std::string(row.name)] = row.value;
  }
  settings = std::move(updated);
}

}  // namespace planish::lab
