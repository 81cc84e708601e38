#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "lab/commands/commands.h"
#include "lab/commands/numbers.h"
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
      make.add_subcommand("cloze", "Make cloze questions of books for attentive-reader");
  cloze->footer(
      "BOOKS holds English novels, *.txt or *.txt.gz, in UTF-8, paragraphs with blank lines "
      "between\n"
      "them. A question is a passage of some sentences, and the next sentence with a character "
      "left\n"
      "out whom the passage names; names are @entityN. Of the books an eighth each is for "
      "validation\n"
      "and for the test. Each question is a file in the form of CNN's questions, in "
      "FOLDER/questions.\n"
      "The same books and flags give the same bytes.\n\n"
      "Example:\n"
      "  planish make cloze books -o cloze && planish train attentive-reader --data cloze");
  cloze->add_option("BOOKS", flags->books, "Folder with the books, or with a folder books")
      ->type_name("")
      ->required()
      ->check(NotEmpty("make cloze", "BOOKS"));
  cloze->add_option("-o,--output", flags->output, "Folder for the questions, new or empty")
      ->type_name("FOLDER")
      ->required()
      ->check(NotEmpty("make cloze", "--output"));
  BookCloze& r = flags->request;
  const auto number = [cloze](const char* flag, int64_t& value, int64_t least, int64_t most,
                              const char* help) {
    cloze->add_option(flag, value, fmt::format("{} (default: {})", help, value))
        ->type_name("N")
        ->check(WholeNumber("make cloze", flag, least, most));
  };
  number("--train", r.train, 1, 1'000'000'000, "Training questions, at most");
  number("--held-out", r.held_out, 1, 1'000'000'000,
         "Questions of validation, and of the test, at most");
  number("--sentences", r.sentences, 1, 1000, "Sentences of a passage");
  number("--entities", r.entities, 2, kMaxEntities, "Numbers that entities can have");
  number("--least-entities", r.min_entities, 1, 1000, "Different entities of a passage, at least");
  number("--longest-passage", r.longest_passage, 1, 1'000'000, "Words of a passage, at most");
  number("--shortest-question", r.shortest_question, 1, 1'000'000, "Words of a question, at least");
  number("--longest-question", r.longest_question, 1, 1'000'000, "Words of a question, at most");
  number("--stride", r.stride, 1, 1'000'000,
         "Sentences from a passage's beginning to the next one's, at least");
  number("--seed", r.seed, 0, 1'000'000'000, "Decides the split, the order and the numbers");
  cloze->callback([&action, flags] { action = [flags] { return RunMakeCloze(*flags); }; });
}

}  // namespace

void AddMake(CLI::App& app, Action& action) {
  CLI::App* make = app.add_subcommand("make", "Make data of other data");
  make->require_subcommand(1);
  AddMakeCloze(*make, action);
}

}  // namespace planish::lab
