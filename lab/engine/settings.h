#ifndef PLANISH_LAB_ENGINE_SETTINGS_H_
#define PLANISH_LAB_ENGINE_SETTINGS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Settings of a run as named values. A task declares its settings with defaults (the preset `paper`
// is the defaults), presets change some, and --set changes single ones.
namespace planish::lab {

/// Declaration of a setting. The type of its default is its type: integer, real, text or boolean.
struct SettingSpec {
  std::string name;
  nlohmann::ordered_json value;      ///< the default
  std::string help;                  ///< one line
  std::optional<double> minimum;     ///< smallest number allowed
  std::optional<double> maximum;     ///< largest number allowed
  std::vector<std::string> choices;  ///< texts allowed; any if empty
  /// Earlier name of a choice -> its present name. Accepted so that older run folders can be read.
  std::map<std::string, std::string> former_choices{};
  /// Choices that a sweep trains if its user names none. Empty: only the default.
  std::vector<std::string> compared{};
};

/// Returns the declaration of a text setting with these choices.
SettingSpec Choice(std::string name, std::string value, std::string help,
                   std::vector<std::string> choices,
                   std::map<std::string, std::string> former_choices = {});

/// Named set of values for some of a task's settings.
struct Preset {
  std::string name;
  std::string help;
  std::map<std::string, nlohmann::ordered_json> values;
};

/// Settings of one run: every declared name with a value of its type.
class Settings {
 public:
  /// Sets all settings to their defaults. `specs` must outlive this object.
  explicit Settings(const std::vector<SettingSpec>& specs);

  /// Parses `text` as the value of `name`; replaces former names and choices by their present
  /// names (lab/run/former_settings.h). Throws
  /// UsageError naming all settings if there is no such setting. Throws UsageError if the text is
  /// not of the setting's type, range or choices.
  void Set(std::string_view name, const std::string& text);

  /// Applies a preset. Checks its values like Set.
  void Apply(const Preset& preset);

  /// Returns true if there is a setting with that name.
  bool Has(std::string_view name) const { return values_.contains(std::string(name)); }

  int64_t Int(std::string_view name) const;
  double Real(std::string_view name) const;
  bool Flag(std::string_view name) const;
  std::string Text(std::string_view name) const;

  /// Returns name -> value in the order of declaration, as config.json stores them.
  const nlohmann::ordered_json& values() const { return values_; }

 private:
  const SettingSpec& Spec(std::string_view name) const;
  void Assign(const SettingSpec& spec, nlohmann::ordered_json value);
  const nlohmann::ordered_json& Value(std::string_view name) const;

  const std::vector<SettingSpec>* specs_;
  nlohmann::ordered_json values_;
};

/// Returns a value in the syntax of --set: text without quotes, numbers in their shortest form.
std::string Spelled(const nlohmann::ordered_json& value);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SETTINGS_H_
