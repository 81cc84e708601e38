#include "lab/tasks/parser/parser.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/conllu.h"
#include "lab/error.h"
#include "lab/run/item_metrics.h"
#include "lab/tasks/parser/decoding.h"
#include "lab/tasks/parser/features.h"
#include "lab/tasks/parser/model.h"
#include "lab/tasks/parser/synthetic_trees.h"

namespace planish::lab {

namespace {

// Transitions per evaluation batch.
constexpr int64_t kEvaluationBatch = 4096;
// Maximum number of synthetic training sentences without data, and how many of them give one
// sentence each for validation and test.
constexpr int64_t kMaxSynthetic = 8'000;
constexpr int64_t kHeldOutShare = 8;

struct Trees final : Dataset {
  ParserVocabulary vocabulary;
  Examples train, valid;
  std::vector<EncodedSentence> valid_sentences, test_sentences;
};

class Parsing final : public Experiment {
 public:
  Parsing(const Settings& settings, const Trees& trees)
      : trees_(trees),
        batch_size_(settings.Int("batch_size")),
        feasible_(FeasibleTransitions(trees.vocabulary)),
        model_({.norm = settings.Text("norm"),
                .norm_options = NormOptionsOf(settings),
                .activation = settings.Text("activation"),
                .tokens = trees.vocabulary.tokens(),
                .features = kFeatures,
                .embedding = settings.Int("embedding"),
                .hidden = settings.Int("hidden"),
                .layers = settings.Int("hidden_layers"),
                .outputs = feasible_.size(1),
                .dropout = settings.Real("dropout")}) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    return ShuffledBatches(trees_.train.transitions.size(0), batch_size_, generator);
  }

  Tensors Batch(const at::Tensor& cases) override {
    const Examples& train = trees_.train;
    return {train.features.index_select(0, cases),
            feasible_.index_select(0, train.legal.index_select(0, cases)),
            train.transitions.index_select(0, cases)};
  }

  at::Tensor Loss(const Tensors& batch) override {
    return at::cross_entropy_loss(model_.forward(batch[0]) + batch[1], batch[2]);
  }

  Values Evaluate() override {
    Values values = Scores("valid", Parse(trees_.valid_sentences));
    values["valid_loss"] = ValidLoss();
    return values;
  }

  Values Test() override {
    const AttachmentCounts counts = Parse(trees_.test_sentences);
    SetPredictions(PredictionsOf({kWordsColumn, kHeadsColumn, kLabelledHeadsColumn},
                                 {counts.words, counts.heads, counts.labelled_heads}));
    return Scores("test", counts);
  }

 private:
  double ValidLoss() {
    const Examples& valid = trees_.valid;
    const int64_t count = valid.transitions.size(0);
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += kEvaluationBatch) {
      Poll();
      const auto part = [&](const at::Tensor& of) {
        return of.slice(0, begin, std::min(begin + kEvaluationBatch, count));
      };
      const at::Tensor logits = model_.forward(OnDevice(part(valid.features))) +
                                OnDevice(feasible_.index_select(0, part(valid.legal)));
      sum +=
          at::cross_entropy_loss(logits, OnDevice(part(valid.transitions)), {}, at::Reduction::Sum)
              .item<double>();
    }
    return sum / static_cast<double>(count);
  }

  AttachmentCounts Parse(const std::vector<EncodedSentence>& sentences) {
    const std::vector<Tree> trees = Decode(sentences, trees_.vocabulary, [&](const at::Tensor& x) {
      return Poll(), model_.forward(OnDevice(x)).cpu();
    });
    return CountAttachments(trees, sentences);
  }

  static Values Scores(const std::string& split, const AttachmentCounts& counts) {
    const Attachment score = Score(counts);
    return {{split + "_uas", score.unlabelled}, {split + "_las", score.labelled}};
  }

  const Trees& trees_;
  int64_t batch_size_;
  at::Tensor feasible_;
  ParserModel model_;
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Dependency parsing";
  report.source = "Xu et al. 2019, section 2.2, Tables 1-4 and Figure 3";
  report.compare = "norm";
  report.baseline = "layer";
  report.panel = "batch_size";
  report.curves = {"train_loss", "valid_loss", "valid_uas"};
  report.headline = "test_uas";
  report.targets = {{"valid_uas", {0.7, 0.75, 0.8, 0.85, 0.88}}};
  return report;
}

class ParserTask final : public Task {
 public:
  ParserTask() {
    name = "parser";
    summary = "dependency parsing by transitions: an MLP on 48 features (Xu et al. 2019, PTB)";
    settings = EngineSettings(NormSetting(NormNames()));
    Default("batch_size", 1024);
    Default("epochs", 20);
    AddSettings({
        {"hidden", 512, "units of each hidden layer", 1, 65536, {}},
        {"hidden_layers", 2, "hidden layers; Chen & Manning have 1", 1, 64, {}},
        {"embedding", 50, "width of the embedding of a word, tag or relation", 1, 65536, {}},
        {"dropout", 0.2, "dropout of hidden units", 0, 0.99, {}},
        Choice("activation", "relu", "activation of hidden units; Chen & Manning have the cube",
               {"relu", "cube", "tanh"}),
        Choice("tags", "upos", "tags: universal (upos) or the language's (xpos)", {"upos", "xpos"}),
        {"subtypes", false, "relations keep their subtypes: nmod:poss is not nmod", {}, {}, {}},
        {"min_count", 2, "rarer words of the training sentences are unknown", 1, 1e9, {}},
        {"sentences", 1'000'000, "maximum number of training sentences: the first", 1, 1e9, {}},
    });
    AddSettings(NormDetails());
    data_settings = {"tags", "subtypes", "min_count", "sentences"};
    presets = {
        {"small", "the paper's model for 4 epochs", {{"epochs", 4}}},
        {"paper", "512 units, batches of 1,024, as printed; 20 epochs (not printed)", {}},
        {"smoke",
         "32 units on 300 sentences for 2 epochs: a test that it runs",
         {{"hidden", 32}, {"embedding", 8}, {"batch_size", 64}, {"epochs", 2}, {"sentences", 300}}},
    };
    metrics = {
        {kTrainLoss, "training loss of the batches", "nats", true},
        {"valid_loss", "validation loss", "nats", true},
        {"valid_uas", "validation UAS", "%", false},
        {"valid_las", "validation LAS", "%", false},
        {"test_uas", "test UAS", "%", false},
        {"test_las", "test LAS", "%", false},
    };
    choose_by = "valid_uas";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& folder) const override {
    const int64_t max_sentences = s.Int("sentences");
    TreebankSet set;
    if (folder) {
      set = ReadTreebanks(*folder);
    } else {
      const int64_t train = std::min(max_sentences, kMaxSynthetic);
      set = MakeTreebanks(train, std::max<int64_t>(train / kHeldOutShare, 1));
    }
    std::vector<DependencyTree>& train = set.train.trees;
    train.resize(static_cast<size_t>(std::min(max_sentences, std::ssize(train))));

    auto trees = std::make_unique<Trees>();
    const VocabularyOptions options{.xpos = s.Text("tags") == "xpos",
                                    .subtypes = s.Flag("subtypes"),
                                    .min_count = s.Int("min_count")};
    trees->vocabulary = ParserVocabulary(train, options);
    const auto encode = [&](const Treebank& treebank) {
      std::vector<EncodedSentence> sentences;
      for (const DependencyTree& tree : treebank.trees) {
        sentences.push_back(trees->vocabulary.Encode(tree));
      }
      return sentences;
    };
    trees->train = MakeExamples(encode(set.train), trees->vocabulary);
    trees->valid_sentences = encode(set.valid);
    trees->valid = MakeExamples(trees->valid_sentences, trees->vocabulary);
    for (const auto& [examples, part] :
         {std::pair(&trees->train, "training"), {&trees->valid, "validation"}}) {
      if (examples->sentences == 0) {
        throw DataError(fmt::format("{} has no projective {} sentence", Escaped(set.name), part));
      }
    }
    trees->test_sentences = encode(set.test);
    const int64_t test = MakeExamples(trees->test_sentences, trees->vocabulary).transitions.size(0);
    trees->about = AboutSplits(set, Describe(set, *trees), trees->train.transitions.size(0),
                               trees->valid.transitions.size(0), test);
    return trees;
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    if (s.Text("norm") == "batch" && s.Int("batch_size") < 2) {
      throw UsageError("[parser] batch_size must be at least 2 for batch norm, got 1");
    }
    return std::make_unique<Parsing>(s, dynamic_cast<const Trees&>(data));
  }

 private:
  static std::string Describe(const TreebankSet& set, const Trees& trees) {
    const int64_t train = std::ssize(set.train.trees);
    return fmt::format(
        "{} training, {} validation and {} test sentences {}; {} training sentences that are not "
        "projective are left out of training, and {} of the validation loss; words, tags and "
        "relations: {}, {} and {}",
        FormatInteger(train), FormatInteger(std::ssize(set.valid.trees)),
        FormatInteger(std::ssize(set.test.trees)), set.description,
        FormatInteger(train - trees.train.sentences),
        FormatInteger(std::ssize(set.valid.trees) - trees.valid.sentences),
        FormatInteger(trees.vocabulary.words()), FormatInteger(trees.vocabulary.tags()),
        FormatInteger(trees.vocabulary.labels()));
  }
};

}  // namespace

std::unique_ptr<Task> MakeParser() { return std::make_unique<ParserTask>(); }

}  // namespace planish::lab
