#include "lab/tasks/rt/rt.h"

#include <fmt/format.h>

#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "lab/base/format_integer.h"
#include "lab/base/random.h"
#include "lab/data/file_content.h"
#include "lab/papers/paper_data.h"
#include "lab/tasks/sentence_task.h"

namespace planish::lab {

namespace {

// The paper's numbers of sentences, one fewer in total than the 10,662 that exist.
constexpr int64_t kTrain = kRtTrainCases, kValid = 964, kTest = 1089;

constexpr int64_t kMaxSplit = 1'000'000'000;

class RtTask final : public SentenceTask {
 public:
  RtTask() : SentenceTask("rt", 2) {
    summary = "positive and negative film reviews: a Transformer encoder (Xu et al. 2019, RT)";
    AddDataSettings({{"split", 1, "seed of the random split", 0, kMaxSplit, {}},
                     {"split_by_seed",
                      true,
                      "runs of different seeds have different splits, drawn from split and seed",
                      {},
                      {},
                      {}}});
    report.title = "RT: sentences in two classes";
    report.source = "Xu et al. 2019, Tables 1 to 4";
  }

  Settings LoadSettings(const Settings& s, int64_t seed) const override {
    Settings of_run = s;
    if (s.Flag("split_by_seed")) {
      of_run.Set("split", std::to_string(MixedSeed({s.Int("split"), seed}) % kMaxSplit));
    }
    return of_run;
  }

 private:
  SentenceSets Read(const Settings& s, const std::filesystem::path& folder) const override {
    const std::filesystem::path files = FolderWith(folder, "mr", "rt-polarity.pos");
    SentenceReader reader(s.Int("longest"));
    Sentences all = reader.Read(NeedFile(files, "rt-polarity.pos"), 1);
    const Sentences negative = reader.Read(NeedFile(files, "rt-polarity.neg"), 0);
    for (const auto& sentence : negative.words) all.Add(sentence, 0);

    std::vector<size_t> order(all.words.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::mt19937_64 random(static_cast<uint64_t>(s.Int("split")));
    Shuffle(order, random);
    SentenceSets sets;
    size_t next = 0;
    for (const auto& [set, share] : {std::pair(&sets.train, kTrain), std::pair(&sets.valid, kValid),
                                     std::pair(&sets.test, kTest)}) {
      // Scaled in proportion for sets of another size than the paper's.
      const int64_t count = all.size() * share / (kTrain + kValid + kTest);
      for (int64_t i = 0; i < count; ++i, ++next) {
        set->Add(std::move(all.words[order[next]]), all.labels[order[next]]);
        if (set == &sets.test) sets.test_items.push_back(static_cast<int64_t>(order[next]));
      }
    }
    sets.classes = classes();
    sets.source = "files";
    sets.sha256 = reader.Sha256OfLines();
    const bool is_rt = IsPaperData("rt", sets.sha256);
    sets.name = is_rt ? "rt" : kUnknownSentences;
    sets.description = fmt::format(
        "{} sentences {} read from {}, split at random ({}split={}), {} left over{}",
        FormatInteger(all.size()), is_rt ? "of film reviews (RT)" : "in two classes (not RT)",
        files.string(), s.Flag("split_by_seed") ? "by the seed: " : "", s.Int("split"),
        order.size() - next, reader.Counts());
    return sets;
  }
};

}  // namespace

std::unique_ptr<Task> MakeRt() { return std::make_unique<RtTask>(); }

}  // namespace planish::lab
