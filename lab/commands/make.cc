#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/tasks/attentive-reader/book_cloze.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

struct ClozeFlags {
  fs::path books, output;
  BookCloze request;
};

int RunMakeCloze(const ClozeFlags& flags) {
  CheckDataPath(flags.books);
  const ClozeSets sets = MakeBookCloze(flags.books, flags.request);
  WriteQuestions(sets, flags.output);
  PrintText(fmt::format("{}\nsha256 {}: {}\n", sets.description, sets.sha256,
                        fs::absolute(flags.output).lexically_normal().string()));
  return 0;
}

void AddMakeCloze(CLI::App& make, Action& action) {
  auto flags = std::make_shared<ClozeFlags>();
  CLI::App* cloze =
      make.add_subcommand("cloze", "Make cloze questions from books for attentive-reader");
  cloze->footer(
      "BOOKS contains English novels in UTF-8, *.txt or *.txt.gz, with blank lines between "
      "paragraphs.\n"
      "A question is a passage of some sentences, and the next sentence without the name of a\n"
      "character from the passage. Names become @entityN. One eighth of the books is for "
      "validation\n"
      "and another for the test. Each question is a file in the format of CNN's questions, in\n"
      "FOLDER/questions. The same books and flags give the same bytes.\n\n"
      "Example:\n"
      "  planish make cloze books -o cloze && planish train attentive-reader --data cloze");
  cloze->add_option("BOOKS", flags->books, "Folder of the books, or with a subfolder books")
      ->type_name("")
      ->required()
      ->check(NotEmpty("make cloze", "BOOKS"));
  cloze->add_option("-o,--output", flags->output, "Folder for the questions, new or empty")
      ->type_name("FOLDER")
      ->required()
      ->check(NotEmpty("make cloze", "--output"));
  BookCloze& r = flags->request;
  const auto number = [cloze](const char* flag, int64_t& value, int64_t min, int64_t max,
                              const char* help) {
    cloze->add_option(flag, value, fmt::format("{} (default: {})", help, value))
        ->type_name("N")
        ->check(WholeNumber("make cloze", flag, min, max));
  };
  number("--train", r.train, 1, 1'000'000'000, "Maximum number of training questions");
  number("--held-out", r.held_out, 1, 1'000'000'000,
         "Maximum number of questions for validation, and for the test");
  number("--sentences", r.sentences, 1, 1000, "Sentences of a passage");
  number("--entities", r.entities, 2, kMaxEntities,
         "Maximum number of distinct entities of a passage");
  number("--least-entities", r.min_entities, 1, 1000,
         "Minimum number of distinct entities of a passage");
  number("--longest-passage", r.longest_passage, 1, 1'000'000,
         "Maximum number of words of a passage");
  number("--shortest-question", r.shortest_question, 1, 1'000'000,
         "Minimum number of words of a question");
  number("--longest-question", r.longest_question, 1, 1'000'000,
         "Maximum number of words of a question");
  number("--stride", r.stride, 1, 1'000'000,
         "Minimum number of sentences between the starts of passages");
  number("--seed", r.seed, 0, 1'000'000'000, "Seed of the split, the order and the entity numbers");
  cloze->callback([&action, flags] { action = [flags] { return RunMakeCloze(*flags); }; });
}

}  // namespace

void AddMake(CLI::App& app, Action& action) {
  CLI::App* make = app.add_subcommand("make", "Make data from other data");
  make->require_subcommand(1);
  AddMakeCloze(*make, action);
}

}  // namespace planish::lab
