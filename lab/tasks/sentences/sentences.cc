#include "lab/tasks/sentences/sentences.h"

#include <fmt/format.h>

#include "lab/base/escape.h"
#include "lab/error.h"
#include "lab/tasks/sentence_task.h"
#include "lab/tasks/sentences/labelled_tables.h"
#include "lab/tasks/split_settings.h"

namespace planish::lab {

namespace {

// Classes of the synthetic sentences.
constexpr int64_t kSyntheticClasses = 5;

class SentencesTask final : public SentenceTask {
 public:
  SentencesTask() : SentenceTask("sentences", kSyntheticClasses) {
    summary =
        "sentences of a CSV, TSV or JSONL table in its classes: the Transformer encoder of rt";
    AddDataSettings({
        {"text", "", "column of the sentences, by name or number; empty: found", {}, {}, {}},
        {"label", "", "column of the classes, by name or number; empty: found", {}, {}, {}},
        {"split",
         "",
         "column of train, valid and test; empty: \"split\", or at random",
         {},
         {},
         {}},
        {"header", true, "the first line of CSV and TSV names the columns", {}, {}, {}},
    });
    AddDataSettings(SplitSettings());
    AddTestLoss();
    // The first preset's text speaks of the paper's data.
    presets.front().help = "the paper's model for 6 epochs, as in rt";
    report.title = "Sentences";
    report.source = "your own classes, with the model of Xu et al. 2019, 2.2";
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    for (const char* column : {"text", "label", "split"}) {
      if (!path && !s.Text(column).empty()) {
        throw UsageError(fmt::format("[sentences] {} must be empty without --data, got {}", column,
                                     Quoted(s.Text(column))));
      }
    }
    return SentenceTask::Load(s, path);
  }

 private:
  SentenceSets Read(const Settings& s, const std::filesystem::path& path) const override {
    return ReadLabelledTables(path, {.text = s.Text("text"),
                                     .label = s.Text("label"),
                                     .split = s.Text("split"),
                                     .header = s.Flag("header"),
                                     .sets = SplitOptionsOf(s),
                                     .longest = s.Int("longest")});
  }
};

}  // namespace

std::unique_ptr<Task> MakeSentencesTask() { return std::make_unique<SentencesTask>(); }

}  // namespace planish::lab
