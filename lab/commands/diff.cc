#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/difference.h"
#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/error.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int kDifferent = 1;

// Reads the run in a folder or an archive with only one run.
Run ReadOneRun(const fs::path& folder) try {
  std::vector<Run> runs = FindReadableRuns({folder});
  if (runs.size() == 1) return std::move(runs[0]);
  throw UsageError(fmt::format("[diff] FIRST and SECOND must be one run each, got {} with {} runs",
                               folder.string(), runs.size()));
} catch (const RunError& e) {
  throw DataError(e.what());  // status 1 says that the runs differ
}

std::string SectionText(const std::string& title, const std::vector<ValueDifference>& values) {
  if (values.empty()) return "";
  std::string text = "\n" + title + "\n";
  for (const ValueDifference& value : values) {
    text +=
        fmt::format("  {}: {} -> {}\n", Escaped(value.name), Escaped(value.a), Escaped(value.b));
  }
  return text;
}

std::string CurveLine(const CurveDifference& curve) {
  std::string text = fmt::format("  {}: ", Escaped(curve.metric));
  if (curve.first) {
    const CurveDifference::Point &first = *curve.first, &largest = *curve.largest;
    text += fmt::format("differs from step {} ({} -> {}), at most by {} at step {} ({} -> {})",
                        first.step, first.a, first.b, std::abs(largest.a - largest.b), largest.step,
                        largest.a, largest.b);
  } else if (curve.common > 0) {
    text += fmt::format("the same at {} common steps", curve.common);
  } else {
    text += "no common step";
  }
  if (curve.only_a > 0) text += fmt::format("; {} steps only in the first run", curve.only_a);
  if (curve.only_b > 0) text += fmt::format("; {} steps only in the second run", curve.only_b);
  return text + "\n";
}

std::string PredictionText(const PredictionDifference& difference) {
  if (!difference.left_out.empty()) {
    return fmt::format("\npredictions\n  not compared: {}\n", Escaped(difference.left_out));
  }
  if (difference.IsSame()) return "";
  std::string text = "no common test item";
  const std::string common = FormatInteger(difference.common);
  if (difference.right) {
    text = fmt::format(
        "differ for {} of {} test items: only the first run is right for {}, only the second for "
        "{}, neither for {}",
        FormatInteger(difference.differ), common, FormatInteger(difference.right->a),
        FormatInteger(difference.right->b), FormatInteger(difference.right->neither));
  } else if (difference.common > 0) {
    const int64_t equal = difference.common - difference.differ;
    text = fmt::format("equal for {} of {} test items ({:.2f}%)", FormatInteger(equal), common,
                       100.0 * static_cast<double>(equal) / static_cast<double>(difference.common));
  }
  const auto only = [&](int64_t items, const char* run) {
    if (items > 0) text += fmt::format("; {} only in the {} run", Count(items, "item"), run);
  };
  only(difference.only_a, "first");
  only(difference.only_b, "second");
  return "\npredictions\n  " + text + "\n";
}

std::string RenderDifference(const RunDifference& difference) {
  std::string text;
  if (difference.IsSame()) {
    const bool compared = difference.predictions && difference.predictions->left_out.empty();
    text += fmt::format("\nThe runs have the same settings, data, curves{}.\n",
                        compared ? ", final values and predictions" : " and final values");
  }
  text += SectionText("settings", difference.settings);
  text += SectionText("data", difference.data);
  if (!difference.curves.empty()) text += "\ncurves\n";
  for (const CurveDifference& curve : difference.curves) text += CurveLine(curve);
  text += SectionText("results", difference.results);
  if (difference.predictions) text += PredictionText(*difference.predictions);
  return text + SectionText("machine (does not count as a difference)", difference.machine);
}

}  // namespace

void AddDiff(CLI::App& app, Action& action) {
  struct Flags {
    fs::path a, b;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* diff = app.add_subcommand("diff", "Print how two runs differ");
  diff->footer(
      "Prints the settings, data, curves and final values that differ, with exact values, as\n"
      "FIRST -> SECOND, '-' for a missing one. A curve is compared at the steps at which both "
      "runs\n"
      "were evaluated. The runs can be of different tasks. Saved predictions for the same test "
      "items\n"
      "are compared too: how many differ, and which run is right for how many of these.\n\n"
      "Example:\n"
      "  planish diff runs/pi-mnist/small-none-b4-s1 runs/pi-mnist/small-layer-b4-s1\n\n"
      "Exit status:\n"
      "  0  the runs are the same, except for machine, versions and times\n"
      "  1  they differ\n"
      "  2  wrong usage\n"
      "  3  one of them cannot be read");
  const auto add_run = [diff](const char* name, fs::path& run, const char* help) {
    diff->add_option(name, run, help)->type_name("")->required()->check(NotEmpty("diff", name));
  };
  add_run("FIRST", flags->a, "Folder of a run, or an archive with one run");
  add_run("SECOND", flags->b, "Folder of the other run");
  diff->callback([&action, flags] {
    action = [flags] {
      const Run a = ReadOneRun(flags->a), b = ReadOneRun(flags->b);
      const RunDifference difference = Difference(a, b);
      Print(fmt::format("first:  {}\nsecond: {}\n", Escaped(a.folder.string()),
                        Escaped(b.folder.string())) +
            RenderDifference(difference));
      return difference.IsSame() ? 0 : kDifferent;
    };
  });
}

}  // namespace planish::lab
