#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  std::optional<std::string> query;
  std::filesystem::path in;
  int64_t count = 5;
};

// Returns the lines that a query finds.
using Finder = std::function<std::string(const std::string& query)>;

Finder FindImages(CaptionSearcher& searcher, int64_t count) {
  return [&searcher, count](const std::string& caption) {
    std::string found;
    for (const CaptionSearcher::Hit& hit : searcher.Search(caption, count)) {
      found +=
          fmt::format("{:.4f}\t{}\t{}\n", hit.score, hit.image, fmt::join(hit.captions, " / "));
    }
    return found;
  };
}

at::Tensor UnitVectors(SentenceEncoder& encoder, const std::vector<std::string>& sentences) {
  const at::Tensor x = encoder.EncodeSentences(sentences);
  return x / x.norm(2, 1, true).clamp_min(1e-30);
}

// Finds the lines of `file` whose vectors have the smallest angles with the query's.
Finder FindLines(SentenceEncoder& encoder, const std::filesystem::path& file, int64_t count) {
  std::vector<std::string> sentences;
  std::vector<int64_t> numbers;
  int64_t number = 0;
  for (std::string& line : ReadLines(file)) {
    ++number;
    if (IsBlank(line)) continue;
    sentences.push_back(std::move(line));
    numbers.push_back(number);
  }
  if (sentences.empty()) FailToRead(file, "it has no line to search");
  return [&encoder, sentences, numbers, vectors = UnitVectors(encoder, sentences),
          count](const std::string& query) {
    const at::Tensor cosines = vectors.mv(UnitVectors(encoder, {query})[0]);
    const at::Tensor order = cosines.argsort(/*stable=*/true, 0, /*descending=*/true);
    std::string found;
    for (int64_t i = 0; i < std::min(count, order.size(0)); ++i) {
      const auto line = order[i].item<int64_t>();
      found +=
          fmt::format("{:.4f}\t{}\t{}\n", cosines[line].item<double>(),
                      numbers[static_cast<size_t>(line)], sentences[static_cast<size_t>(line)]);
    }
    return found;
  };
}

Finder FinderOf(TrainedRun& run, const SearchFlags& flags) {
  if (auto* encoder = run.If<SentenceEncoder>()) {
    if (flags.in.empty()) {
      throw UsageError("[search] --in must name the text to search: RUN gives sentences vectors");
    }
    return FindLines(*encoder, flags.in, flags.count);
  }
  auto* searcher = run.If<CaptionSearcher>();
  if (searcher == nullptr) {
    run.Refuse(fmt::format("{} or {}", CaptionSearcher::kTask, SentenceEncoder::kTask));
  }
  if (!flags.in.empty()) {
    throw UsageError("[search] --in must go with a run of skip-thoughts: RUN finds images");
  }
  return FindImages(*searcher, flags.count);
}

// Treats each line of stdin as a query. An empty line ends the results of each.
void SearchForLines(const Finder& find) {
  int64_t number = 0;
  for (std::string line; ReadLine(std::cin, "stdin", number + 1, line);) {
    CheckUtf8("stdin", ++number, line);
    try {
      if (!IsBlank(line)) PrintText(find(line));
    } catch (const UsageError& e) {
      throw DataError(fmt::format("{}, on line {} of stdin", e.what(), number));
    }
    Print("\n");
    FlushStdout();
  }
}

int RunSearch(const SearchFlags& flags) {
  if (flags.query && FindInvalidUtf8(*flags.query)) {
    throw UsageError("[search] QUERY must be UTF-8");
  }
  if (flags.query && IsBlank(*flags.query)) {
    throw UsageError("[search] QUERY must have a character other than blanks");
  }
  TrainedRun run("search", flags.trained);
  const Finder find = FinderOf(run, flags);
  if (flags.query) {
    PrintText(find(*flags.query));
  } else {
    SearchForLines(find);
  }
  return 0;
}

}  // namespace

void AddSearch(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SearchFlags>();
  CLI::App* search = app.add_subcommand("search", "Find images or sentences with a trained model");
  search->footer(
      "With a run of order-embedding, QUERY is a caption. Prints the best test images, one per "
      "line\n"
      "and separated by tabs: score (larger is better), index of the image from 0, and its own\n"
      "captions. Words that the training captions lack are unknown; a caption with only such "
      "words\n"
      "is an error. With data=files, words are separated by blanks.\n"
      "With a run of skip-thoughts, or a model exported from one, prints the lines of a text that "
      "are\n"
      "nearest to QUERY: cosine of the angle between their vectors, number of the line, and the "
      "line.\n"
      "Without QUERY, each line of stdin is one, and an empty line ends its results.\n\n"
      "Example:\n"
      "  planish search runs/order-embedding/small-layer-b128-s1 \"a dog runs on the beach\" -n 3\n"
      "  planish search results/models/skip-thoughts.safetensors \"he sat down\" --in novel.txt");
  AddRunArgument(*search, flags->trained,
                 "Folder of a run of order-embedding or skip-thoughts, or an exported model");
  search
      ->add_option("QUERY", flags->query,
                   "Caption or sentence to search for (default: the lines of stdin)")
      ->type_name("");
  search
      ->add_option("--in", flags->in,
                   "Text whose lines are searched with a run of skip-thoughts; plain or gzip")
      ->type_name("FILE")
      ->check(NotEmpty("search", "--in"));
  search->add_option("-n,--count", flags->count, "Images or lines to print (default: 5)")
      ->type_name("N")
      ->check(WholeNumber("search", "--count", 1, 1'000'000));
  AddTrainedRunOptions(*search, flags->trained);
  search->callback([&action, flags] { action = [flags] { return RunSearch(*flags); }; });
}

}  // namespace planish::lab
