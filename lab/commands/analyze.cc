#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/run/atomic_file.h"
#include "lab/theory/analyses.h"

namespace planish::lab {

namespace {

void AddAnalysis(CLI::App& analyze, const TheoryAnalysis& analysis, Action& action) {
  struct Flags {
    std::map<std::string, double> values;
    std::filesystem::path json;
  };
  auto flags = std::make_shared<Flags>();
  const std::string command = "analyze " + analysis.name;
  CLI::App* app = analyze.add_subcommand(analysis.name, analysis.summary);
  for (const AnalysisSetting& setting : analysis.settings) {
    const std::string flag = "--" + setting.name;
    const auto check = setting.is_whole
                           ? WholeNumber(command, flag, static_cast<int64_t>(setting.minimum),
                                         static_cast<int64_t>(setting.maximum))
                           : Number(command, flag, "a number", [](double) { return true; });
    app->add_option_function<std::string>(
           flag,
           [flags, name = setting.name](const std::string& text) {
             flags->values[name] = std::stod(text);
           },
           fmt::format("{} (default: {:.10g})", setting.help, setting.value))
        ->type_name("N")
        ->check(check);
  }
  app->add_option("--json", flags->json, "Also write the result to this file, as JSON")
      ->type_name("FILE")
      ->check(NotEmpty(command, "--json"));
  app->callback([&action, flags, &analysis] {
    action = [flags, &analysis] {
      const TheoryResult result = RunAnalysis(analysis, flags->values);
      if (!flags->json.empty()) WriteOutputFile(flags->json, ToJson(result).dump(1) + "\n");
      PrintText(RenderTheory(result, StdoutTable()));
      return 0;
    };
  });
}

}  // namespace

void AddAnalyze(CLI::App& app, Action& action) {
  CLI::App* analyze =
      app.add_subcommand("analyze", "Measure what the papers say about norms in theory");
  analyze->footer(
      "Each analysis prints tables, and the papers' statements with a verdict.\n\n"
      "Example:\n"
      "  planish analyze gradients --rows 100000 --json gradients.json");
  analyze->require_subcommand(1);
  for (const TheoryAnalysis& analysis : Analyses()) AddAnalysis(*analyze, analysis, action);
}

}  // namespace planish::lab
