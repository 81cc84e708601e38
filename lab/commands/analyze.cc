#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/terminal/progress.h"
#include "lab/theory/analyses.h"

namespace planish::lab {

namespace {

// Throws UsageError if the result would replace a file of a run.
void CheckJson(const std::filesystem::path& json, const std::string& command) {
  const bool is_run = std::filesystem::exists(json.parent_path() / "config.json");
  if (is_run && (json.filename() == "config.json" || std::filesystem::exists(json))) {
    throw UsageError(
        fmt::format("[{}] --json must not be a file of a run, got {}", command, json.string()));
  }
}

// Shows progress only on a terminal.
TheoryResult AnalyzeOne(const TheoryAnalysis& analysis, const std::map<std::string, double>& values,
                        AnalysisInput input) {
  const bool is_live = StderrProgressMode(/*quiet=*/false) == ProgressMode::kLive;
  Progress progress(1, is_live ? ProgressMode::kLive : ProgressMode::kQuiet);
  input.progress = [&progress](const std::string& text) { progress.ShowFields({text}); };
  return RunAnalysis(analysis, values, std::move(input));
}

void AddAnalysis(CLI::App& analyze, const TheoryAnalysis& analysis, Action& action) {
  struct Flags {
    std::map<std::string, double> values;
    std::map<std::string, std::string> lists;
    AnalysisInput input;
    std::string data;
    int threads = 0;
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
             flags->values[name] = std::strtod(text.c_str(), nullptr);  // also subnormal numbers
           },
           fmt::format("{} (default: {:.10g})", setting.help, setting.value))
        ->type_name("N")
        ->check(check);
  }
  for (const AnalysisList& list : analysis.lists) {
    const std::string flag = "--" + list.name;
    app->add_option(
           flag, flags->lists[list.name],
           fmt::format("{}, of {} (default: {})", list.help, fmt::join(list.choices, ", "),
                       list.value.empty() ? "all" : fmt::to_string(fmt::join(list.value, ","))))
        ->type_name("NAMES")
        ->check(NotEmpty(command, flag));
  }
  const bool reads_run = analysis.files == AnalysisFiles::kRun;
  const bool reads_runs = analysis.files == AnalysisFiles::kRuns;
  if (reads_run || reads_runs) {
    CLI::Option* runs =
        app->add_option("RUN", flags->input.runs,
                        reads_run ? "Folder of a trained run, in place of random data"
                                  : "Folders of trained runs, in place of random data")
            ->type_name("")
            ->check(NotEmpty(command, "RUN"));
    if (reads_run) runs->expected(1);
  }
  if (analysis.files != AnalysisFiles::kNone) {
    AddDataOption(*app, flags->data,
                  reads_run || reads_runs
                      ? "Data that the run was trained on (default: its original place)"
                      : "Data to train on (default: $PLANISH_DATA, else synthetic data)");
    AddThreadsOption(*app, flags->threads);
  }
  app->add_option("--json", flags->json, "Also write the result to this file, as JSON")
      ->type_name("FILE")
      ->check(NotEmpty(command, "--json"));
  app->callback([&action, flags, command, &analysis] {
    action = [flags, command, &analysis] {
      CheckJson(flags->json, command);
      AnalysisInput input = flags->input;
      for (const auto& [name, text] : flags->lists) {
        if (text.empty()) continue;  // not given
        input.lists[name] = SplitList("--" + name, text, "analyze " + analysis.name);
      }
      input.data =
          analysis.files == AnalysisFiles::kData ? DataFolder(flags->data) : GivenData(flags->data);
      if (flags->threads > 0) at::set_num_threads(flags->threads);
      const TheoryResult result = AnalyzeOne(analysis, flags->values, std::move(input));
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
