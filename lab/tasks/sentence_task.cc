#include "lab/tasks/sentence_task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "lab/base/format_integer.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/model/sentence_classifier.h"
#include "lab/tasks/class_predictions.h"
#include "lab/tasks/synthetic_sentences.h"

namespace planish::lab {

namespace {

// Number of first training sentences in the training accuracy.
constexpr int64_t kTrainProbe = 1000;
// Tokens per evaluation batch.
constexpr int64_t kEvaluationTokens = 8192;

// Sentences as indices of a lexicon.
struct Numbered {
  at::Tensor words;                 // int32 [N, longest], padded with 0
  at::Tensor lengths;               // int64 [N]
  at::Tensor labels;                // int64 [N]
  std::vector<int64_t> lengths_of;  // the same as `lengths`
  int64_t tokens = 0, unknown = 0;

  int64_t size() const { return lengths.size(0); }
};

at::Tensor ToTensor(std::vector<int64_t> values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong).clone();
}

Numbered Number(const Sentences& sentences, const Lexicon& lexicon) {
  Numbered numbered;
  for (const auto& sentence : sentences.words) {
    numbered.lengths_of.push_back(static_cast<int64_t>(sentence.size()));
  }
  const int64_t longest = std::ranges::max(numbered.lengths_of);
  numbered.words = at::zeros({sentences.size(), longest}, at::kInt);
  int32_t* row = numbered.words.data_ptr<int32_t>();
  for (const auto& sentence : sentences.words) {
    std::ranges::transform(sentence, row, [&](const auto& word) { return lexicon.Number(word); });
    numbered.tokens += static_cast<int64_t>(sentence.size());
    numbered.unknown += std::count(row, row + sentence.size(), 0);
    row += longest;
  }
  numbered.lengths = ToTensor(numbered.lengths_of);
  numbered.labels = ToTensor(sentences.labels);
  return numbered;
}

struct Corpus final : Dataset {
  Numbered train, valid, test;
  std::vector<int64_t> test_items;  // SentenceSets::test_items
  int64_t classes = 0;
  int64_t words = 0;    // in the lexicon
  int64_t longest = 0;  // words of a sentence
};

SentenceClassifier::Options ModelOptions(const Settings& s, const Corpus& corpus) {
  return {.words = corpus.words,
          .longest = corpus.longest,
          .classes = corpus.classes,
          .encoder = {.layers = s.Int("layers"),
                      .width = s.Int("width"),
                      .heads = s.Int("heads"),
                      .ffn = s.Int("ffn"),
                      .dropout = s.Real("dropout"),
                      .attention_dropout = s.Real("attention_dropout"),
                      .activation_dropout = s.Real("activation_dropout"),
                      .norm = s.Text("norm"),
                      .final_norm = s.Text("norm"),
                      .norm_options = NormOptionsOf(s),
                      .placement = PlacementOf(s.Text("placement")),
                      .qk_norm = s.Flag("qk_norm")}};
}

class SentenceExperiment final : public Experiment {
 public:
  SentenceExperiment(const Settings& settings, const Corpus& corpus, bool has_test_loss)
      : corpus_(corpus),
        batch_tokens_(settings.Int("batch_size")),
        has_test_loss_(has_test_loss),
        model_(ModelOptions(settings, corpus)) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    return TokenBatches(corpus_.train.lengths_of, batch_tokens_, generator);
  }

  Tensors Batch(const at::Tensor& cases) override { return Gather(corpus_.train, cases); }

  at::Tensor Loss(const Tensors& batch) override {
    return at::cross_entropy_loss(model_.forward(batch[0], batch[1]), batch[2]);
  }

  Values Evaluate() override {
    const Result valid = Measure(corpus_.valid, corpus_.valid.size());
    return {{"train_accuracy", Measure(corpus_.train, kTrainProbe).accuracy},
            {"valid_loss", valid.loss},
            {"valid_accuracy", valid.accuracy}};
  }

  Values Test() override {
    const Result test = Measure(corpus_.test, corpus_.test.size());
    Predictions predictions = ClassPredictions(corpus_.test.labels, test.answers);
    if (!corpus_.test_items.empty()) predictions.items = corpus_.test_items;
    SetPredictions(std::move(predictions));
    Values values = {{"test_accuracy", test.accuracy}};
    if (has_test_loss_) values["test_loss"] = test.loss;
    return values;
  }

 private:
  struct Result {
    double loss = 0, accuracy = 0;
    at::Tensor answers;  // [N] the class that the model found
  };

  // Returns words [B, T] of these cases, up to the longest one's, with their lengths and labels.
  static Tensors Gather(const Numbered& set, const at::Tensor& cases) {
    const at::Tensor lengths = set.lengths.index_select(0, cases);
    const int64_t longest = lengths.max().item<int64_t>();
    return {set.words.slice(1, 0, longest).index_select(0, cases), lengths,
            set.labels.index_select(0, cases)};
  }

  // Returns mean loss and accuracy over the first `max_count` sentences.
  Result Measure(const Numbered& set, int64_t max_count) {
    const int64_t count = std::min(max_count, set.size());
    at::Generator generator = at::detail::createCPUGenerator(0);
    const auto lengths = std::span(set.lengths_of).first(static_cast<size_t>(count));
    const EpochPlan plan =
        TokenBatches(lengths, std::max(kEvaluationTokens, corpus_.longest), generator);
    double loss = 0;
    int64_t right = 0;
    const at::Tensor answers = at::empty({count}, at::kLong);
    for (int64_t b = 0; b < plan.batches(); ++b) {
      Poll();
      const Tensors batch = OnDevice(Gather(set, plan.batch(b)));
      const at::Tensor logits = model_.forward(batch[0], batch[1]);
      loss += at::cross_entropy_loss(logits, batch[2], {}, at::Reduction::Sum).item<double>();
      const at::Tensor found = logits.argmax(1);
      right += found.eq(batch[2]).sum().item<int64_t>();
      answers.index_copy_(0, plan.batch(b), found.cpu());
    }
    return {loss / static_cast<double>(count),
            static_cast<double>(right) / static_cast<double>(count), answers};
  }

  const Corpus& corpus_;
  int64_t batch_tokens_;
  bool has_test_loss_;
  SentenceClassifier model_;
};

}  // namespace

SentenceTask::SentenceTask(std::string task_name, int64_t classes) : classes_(classes) {
  name = std::move(task_name);
  settings = EngineSettings(NormSetting(RowNormNames("none")));
  Default("batch_size", 4096, "tokens of a batch, including padding");
  Default("epochs", 10);
  Default("adam_beta2", 0.998);
  Default("lr", 1e-3);
  AddSettings(NormDetails());
  AddSettings(PlacementSettings("pre"));
  AddSettings({
      {"layers", 4, "encoder layers", 1, 1000, {}},
      {"width", 128, "width of a word embedding and of each layer", 2, 65536, {}},
      {"heads", 4, "heads of attention; must divide the width", 1, 65536, {}},
      {"ffn", 128, "hidden units of the feed-forward layers", 1, 1 << 20, {}},
      {"dropout", 0.2, "dropout of embeddings and of each layer's result", 0, 1, {}},
      {"attention_dropout", 0.0, "dropout of attention weights", 0, 1, {}},
      {"activation_dropout", 0.0, "dropout of the feed-forward layers' hidden units", 0, 1, {}},
      {"min_count", 2, "rarer words of the training sentences are unknown", 1, 1e9, {}},
      {"longest", 128, "maximum number of words of a sentence", 1, 1 << 20, {}},
      {"train_cases", 1'000'000, "maximum number of training sentences", 1, 1e9, {}},
  });
  data_settings = {"min_count", "longest", "train_cases"};
  presets = {
      {"small",
       "the paper's model and data for 6 epochs: half a minute a run on one core",
       {{"epochs", 6}, {"evaluations_per_epoch", 2}}},
      {"paper", "4 layers of 128 on all sentences, as printed", {}},
      {"smoke",
       "2 layers of 32 on 600 sentences for 2 epochs: a test that it runs",
       {{"layers", 2},
        {"width", 32},
        {"ffn", 32},
        {"batch_size", 512},
        {"train_cases", 600},
        {"epochs", 2}}},
  };
  metrics = {
      {kTrainLoss, "training loss of the batches", "nats", true},
      {"train_accuracy", "training accuracy", "%", false},
      {"valid_loss", "validation loss", "nats", true},
      {"valid_accuracy", "validation accuracy", "%", false},
      {"test_accuracy", "test accuracy", "%", false},
  };
  choose_by = "valid_accuracy";
  report.compare = "norm";
  report.baseline = "layer";
  report.panel = "batch_size";
  report.curves = {kTrainLoss, "valid_loss"};
  report.headline = "test_accuracy";
}

void SentenceTask::AddTestLoss() {
  metrics.push_back({"test_loss", "test loss", "nats", true});
  has_test_loss_ = true;
}

std::unique_ptr<Dataset> SentenceTask::Load(
    const Settings& s, const std::optional<std::filesystem::path>& folder) const {
  SentenceSets sets = folder ? Read(s, *folder) : MakeSentences({.classes = classes_});
  const auto max_cases = static_cast<size_t>(s.Int("train_cases"));
  if (sets.train.words.size() > max_cases) {
    sets.train.words.resize(max_cases);
    sets.train.labels.resize(max_cases);
  }
  for (const auto& [set, what] :
       {std::pair(&sets.train, "training"), {&sets.valid, "validation"}, {&sets.test, "test"}}) {
    if (set->size() == 0) {
      throw DataError(fmt::format("{} has no {} sentences", sets.name, what));
    }
  }
  const Lexicon lexicon(sets.train, s.Int("min_count"));
  auto corpus = std::make_unique<Corpus>();
  corpus->train = Number(sets.train, lexicon);
  corpus->valid = Number(sets.valid, lexicon);
  corpus->test = Number(sets.test, lexicon);
  corpus->test_items = std::move(sets.test_items);
  corpus->classes = sets.classes;
  corpus->words = lexicon.size();
  for (const Numbered* set : {&corpus->train, &corpus->valid, &corpus->test}) {
    corpus->longest = std::max(corpus->longest, set->words.size(1));
  }
  corpus->about =
      AboutSplits(sets,
                  fmt::format("{}; {} words in the lexicon, {:.1f}% of the test words are not",
                              sets.description, FormatInteger(lexicon.size() - 1),
                              100 * static_cast<double>(corpus->test.unknown) /
                                  static_cast<double>(corpus->test.tokens)),
                  corpus->train.size(), corpus->valid.size(), corpus->test.size());
  return corpus;
}

void SentenceTask::Check(const Settings& s, const Dataset& data) const {
  const int64_t longest = dynamic_cast<const Corpus&>(data).train.words.size(1);
  if (s.Int("batch_size") < longest) {
    throw UsageError(
        fmt::format("[{}] batch_size must be at least the {} words of the longest sentence, got {}",
                    name, longest, s.Int("batch_size")));
  }
}

std::unique_ptr<Experiment> SentenceTask::Make(const Settings& s, const Dataset& data) const {
  return std::make_unique<SentenceExperiment>(s, dynamic_cast<const Corpus&>(data), has_test_loss_);
}

}  // namespace planish::lab
