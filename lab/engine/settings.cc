#include "lab/engine/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lab/error.h"
#include "lab/run/former_settings.h"

namespace planish::lab {

using Json = nlohmann::ordered_json;

namespace {

// Parses all of `text` as a number. Returns nullopt if it is not one.
template <class T>
std::optional<T> ParseNumber(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Parses `text` as a value of the type of `like`. Returns nullopt if it is not one.
std::optional<Json> Parse(const Json& like, const std::string& text) {
  if (like.is_boolean()) {
    if (text == "true" || text == "1" || text == "yes") return Json(true);
    if (text == "false" || text == "0" || text == "no") return Json(false);
    return std::nullopt;
  }
  if (like.is_number_integer()) {
    const auto value = ParseNumber<int64_t>(text);
    return value ? std::optional<Json>(*value) : std::nullopt;
  }
  if (like.is_number()) {
    const auto value = ParseNumber<double>(text);
    return value && std::isfinite(*value) ? std::optional<Json>(*value) : std::nullopt;
  }
  return Json(text);
}

std::string TypeName(const Json& like) {
  if (like.is_boolean()) return "true or false";
  if (like.is_number_integer()) return "a whole number";
  if (like.is_number()) return "a number";
  return "text";
}

}  // namespace

Settings::Settings(const std::vector<SettingSpec>& specs)
    : specs_(&specs), values_(Json::object()) {
  for (const SettingSpec& spec : specs) values_[spec.name] = spec.value;
}

const SettingSpec& Settings::Spec(std::string_view name) const {
  const auto it = std::ranges::find(*specs_, name, &SettingSpec::name);
  if (it == specs_->end()) {
    std::vector<std::string> names;
    for (const SettingSpec& spec : *specs_) names.push_back(spec.name);
    throw UsageError(
        fmt::format("[settings] name must be one of {}, got \"{}\"", fmt::join(names, ", "), name));
  }
  return *it;
}

void Settings::Assign(const SettingSpec& spec, Json value) {
  if (value.is_number()) {
    const double number = value.get<double>();
    if ((spec.minimum && number < *spec.minimum) || (spec.maximum && number > *spec.maximum)) {
      std::string range = spec.minimum ? fmt::format("at least {}", *spec.minimum) : "";
      if (spec.maximum)
        range += fmt::format("{}at most {}", range.empty() ? "" : " and ", *spec.maximum);
      throw UsageError(
          fmt::format("[settings] {} must be {}, got {}", spec.name, range, Spelled(value)));
    }
  }
  if (value.is_string()) {
    const auto former = spec.former_choices.find(value.get<std::string>());
    if (former != spec.former_choices.end()) value = former->second;
  }
  if (!spec.choices.empty() &&
      std::ranges::find(spec.choices, Spelled(value)) == spec.choices.end()) {
    throw UsageError(fmt::format("[settings] {} must be one of {}, got \"{}\"", spec.name,
                                 fmt::join(spec.choices, ", "), Spelled(value)));
  }
  values_[spec.name] = std::move(value);
}

void Settings::Set(std::string_view name, const std::string& text) {
  const SettingSpec& spec = Spec(PresentSetting(name));
  std::optional<Json> value = Parse(spec.value, PresentValue(name, text));
  if (!value) {
    throw UsageError(
        fmt::format("[settings] {} must be {}, got \"{}\"", name, TypeName(spec.value), text));
  }
  Assign(spec, *std::move(value));
}

void Settings::Apply(const Preset& preset) {
  for (const auto& [name, value] : preset.values) Assign(Spec(name), value);
}

const Json& Settings::Value(std::string_view name) const { return values_.at(std::string(name)); }
int64_t Settings::Int(std::string_view name) const { return Value(name).get<int64_t>(); }
double Settings::Real(std::string_view name) const { return Value(name).get<double>(); }
bool Settings::Flag(std::string_view name) const { return Value(name).get<bool>(); }
std::string Settings::Text(std::string_view name) const { return Value(name).get<std::string>(); }

SettingSpec Choice(std::string name, std::string value, std::string help,
                   std::vector<std::string> choices,
                   std::map<std::string, std::string> former_choices) {
  return {std::move(name),
          std::move(value),
          std::move(help),
          {},
          {},
          std::move(choices),
          std::move(former_choices),
          {}};
}

std::string Spelled(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace planish::lab
