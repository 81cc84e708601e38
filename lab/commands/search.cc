#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/data/lines.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

struct SearchFlags {
  TrainedRunFlags trained;
  std::optional<std::string> caption;
  int64_t count = 5;
};

void PrintHits(CaptionSearcher& searcher, const std::string& caption, int64_t count) {
  for (const CaptionSearcher::Hit& hit : searcher.Search(caption, count)) {
    PrintText(
        fmt::format("{:.4f}\t{}\t{}\n", hit.score, hit.image, fmt::join(hit.captions, " / ")));
  }
}

// Treats each line of stdin as a caption. An empty line ends the images of each.
void SearchLines(CaptionSearcher& searcher, int64_t count) {
  int64_t number = 0;
  for (std::string line; ReadLine(std::cin, "stdin", number + 1, line);) {
    CheckUtf8("stdin", ++number, line);
    try {
      if (!IsBlank(line)) PrintHits(searcher, line, count);
    } catch (const UsageError& e) {
      throw DataError(fmt::format("{}, on line {} of stdin", e.what(), number));
    }
    Print("\n");
    FlushStdout();
  }
}

int RunSearch(const SearchFlags& flags) {
  if (flags.caption && FindInvalidUtf8(*flags.caption)) {
    throw UsageError("[search] CAPTION must be UTF-8");
  }
  TrainedRun run("search", flags.trained);
  auto& searcher = run.As<CaptionSearcher>();
  if (flags.caption) {
    PrintHits(searcher, *flags.caption, flags.count);
  } else {
    SearchLines(searcher, flags.count);
  }
  return 0;
}

}  // namespace

void AddSearch(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SearchFlags>();
  CLI::App* search = app.add_subcommand("search", "Find images by a caption with a trained run");
  search->footer(
      "Prints the best test images, one per line and separated by tabs: score (larger is better),\n"
      "index of the image from 0, and its own captions. Without CAPTION, each line of stdin is a\n"
      "caption, and an empty line ends its images. Words that the training captions lack are "
      "unknown;\n"
      "a caption with only such words is an error. With data=files, words are separated by "
      "blanks.\n\n"
      "Example:\n"
      "  planish search runs/order-embedding/small-layer-b128-s1 \"a dog runs on the beach\" -n 3");
  AddRunArgument(*search, flags->trained, "Folder of a run of order-embedding");
  search
      ->add_option("CAPTION", flags->caption, "Caption to search for (default: the lines of stdin)")
      ->type_name("");
  search->add_option("-n,--count", flags->count, "Images to print (default: 5)")
      ->type_name("N")
      ->check(WholeNumber("search", "--count", 1, 1'000'000));
  AddTrainedRunOptions(*search, flags->trained);
  search->callback([&action, flags] { action = [flags] { return RunSearch(*flags); }; });
}

}  // namespace planish::lab
