#ifndef PLANISH_LAB_RUN_FORMER_SETTINGS_H_
#define PLANISH_LAB_RUN_FORMER_SETTINGS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// Settings whose name has changed, or that older runs lack. One table: `--set` accepts the former
// names, and reading a config.json gives the present ones, so that older runs can be continued and
// compared with new ones.
namespace planish::lab {

/// Returns the present name of a setting: `name`, unless that is a former one.
std::string PresentSetting(std::string_view name);

/// Returns the present value of a setting with that former or present name. Values are in the
/// syntax of --set.
std::string PresentValue(std::string_view name, std::string_view value);

/// Returns the present unit of a metric, of a run of `task` with present settings. Earlier versions
/// wrote "bits/char" for runs that counted bytes.
std::string PresentUnit(const std::string& task, const nlohmann::ordered_json& settings,
                        std::string unit);

/// Gives the settings of a run of `task` their present names, and adds those that the version that
/// wrote them lacked, with the values that it used.
void UpdateSettings(const std::string& task, nlohmann::ordered_json& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_FORMER_SETTINGS_H_
