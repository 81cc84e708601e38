#include "lab/tasks/sst5/sst5.h"

#include <fmt/format.h>

#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/papers/paper_data.h"
#include "lab/tasks/sentence_task.h"

namespace planish::lab {

namespace {

class Sst5Task final : public SentenceTask {
 public:
  Sst5Task() : SentenceTask("sst5", 5) {
    summary = "film reviews in five classes: a Transformer encoder (Xu et al. 2019, SST5)";
    report.title = "SST5: sentences in five classes";
    report.source = "Xu et al. 2019, Tables 1 to 4";
  }

 private:
  SentenceSets Read(const Settings& s, const std::filesystem::path& folder) const override {
    const std::filesystem::path files = FolderWith(folder, "sst", "stsa.fine.train");
    SentenceReader reader(s.Int("longest"));
    SentenceSets sets;
    sets.train = reader.ReadLabelled(NeedFile(files, "stsa.fine.train"), classes());
    sets.valid = reader.ReadLabelled(NeedFile(files, "stsa.fine.dev"), classes());
    sets.test = reader.ReadLabelled(NeedFile(files, "stsa.fine.test"), classes());
    sets.classes = classes();
    sets.source = "files";
    sets.sha256 = reader.Sha256OfLines();
    const bool is_sst = IsPaperData("sst5", sets.sha256);
    sets.name = is_sst ? "sst5" : kUnknownSentences;
    sets.description =
        fmt::format("{} sentences {} read from {}{}",
                    FormatInteger(sets.train.size() + sets.valid.size() + sets.test.size()),
                    is_sst ? "of film reviews (SST5)" : "in five classes (not SST5)",
                    files.string(), reader.Counts());
    return sets;
  }
};

}  // namespace

std::unique_ptr<Task> MakeSst5() { return std::make_unique<Sst5Task>(); }

}  // namespace planish::lab
