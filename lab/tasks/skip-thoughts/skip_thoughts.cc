#include "lab/tasks/skip-thoughts/skip_thoughts.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lab/downstream/evaluate.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/length_batches.h"
#include "lab/error.h"
#include "lab/tasks/skip-thoughts/corpus.h"
#include "lab/tasks/skip-thoughts/model.h"
#include "lab/tasks/skip-thoughts/words.h"

namespace planish::lab {

namespace {

// Triples per loss evaluation, and sentences per encoder call.
constexpr int64_t kTriplesAtOnce = 32, kSentencesAtOnce = 128;
// Sentences of the synthetic evaluation set.
constexpr int64_t kSyntheticSentences = 600;
// Sentences in the report's nearest neighbours, and candidates.
constexpr int64_t kSamples = 6, kSampled = 2'000;

// Indices of a batch's tensors.
enum Part : size_t {
  kWords = 0,  // int [T, B] of the middle sentence
  kLengths,    // int64 [B]
  kPrevious,   // words and lengths of the sentence before, and int64 [P] the positions of its words
               // in the T * B
  kNext = kPrevious + 3,  // the same of the sentence after
  kTargets = kNext + 3,   // int64 [P] the words of both, those of the sentence before first
  kDrawn,                 // int64 [K], if the softmax is sampled
};

class SkipThoughts final : public Experiment, public SentenceEncoder {
 public:
  SkipThoughts(const Settings& s, const ThoughtData& data)
      : data_(data),
        fewer_(Fewer(data.sets, s.Int("downstream_cases"))),
        batch_size_(s.Int("batch_size")),
        samples_(s.Text("softmax") == "sampled" ? s.Int("samples") : 0),
        while_training_{.folds = s.Int("downstream_folds"), .inner = s.Int("downstream_inner")},
        at_the_end_{.folds = s.Int("test_folds"), .inner = s.Int("test_inner")},
        log_probabilities_(ZipfLogProbabilities(data.numbers.size())),
        model_({.cell = s.Text("norm") == "layer" ? "ln-gru" : "gru",
                .vocabulary = data.numbers.size(),
                .words = s.Int("words"),
                .hidden = s.Int("hidden"),
                .condition = s.Text("condition") == "steps" ? SkipThoughtModel::Condition::kSteps
                                                            : SkipThoughtModel::Condition::kStart,
                .epsilon = s.Real("eps"),
                .gain = s.Real("gain"),
                .composed = s.Text("cell") == "composed"}) {
    while_training_.poll = at_the_end_.poll = [this] { Poll(); };
  }

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    const at::Tensor& lengths = data_.train.lengths;
    return LengthBatches({lengths.const_data_ptr<int64_t>(), static_cast<size_t>(lengths.size(0))},
                         batch_size_, generator);
  }

  // Returns the tensors of Part.
  Tensors Batch(const at::Tensor& cases) override {
    Tensors batch = Batch(data_.train, cases);
    if (samples_ > 0) batch.push_back(DrawWords(data_.numbers.size(), samples_));
    return batch;
  }

  // The loss is a sum over words.
  double ShardFactor(const at::Tensor& /*cases*/, const at::Tensor& /*batch*/) override {
    return 1;
  }

  at::Tensor Loss(const Tensors& batch) override {
    const at::Tensor states = States(batch);
    log_probabilities_ = OnDevice(log_probabilities_);
    return samples_ > 0 ? SampledLoss(states, model_.output(), batch[kTargets], batch[kDrawn],
                                      log_probabilities_)
                        : FullLoss(states, batch);
  }

  Values Evaluate() override {
    Values values = Judge(fewer_, while_training_, "");
    values["valid_nats"] = Nats(data_.valid);
    return values;
  }

  Values Test() override { return Judge(data_.sets, at_the_end_, "test_"); }
  std::string TestPhase() const override {
    const size_t count = data_.sets.classified.size() + (data_.sets.sick ? 1 : 0);
    if (count == 0) return "testing";
    return fmt::format("testing on {} sentence set{}", count, count == 1 ? "" : "s");
  }

  // Returns the nearest neighbours of some validation sentences, by the angle between vectors.
  std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) override {
    const int64_t count = std::min(kSampled, std::ssize(data_.valid_text));
    std::vector<std::string> text(data_.valid_text.begin(), data_.valid_text.begin() + count);
    const at::Tensor x = EncodeSentences(text);
    const at::Tensor unit = x / x.norm(2, 1, true).clamp_min(1e-30);
    std::vector<RunResult::Sample> samples;
    for (int64_t i = 0; i < std::min(kSamples, count); ++i) {
      const int64_t query = i * count / kSamples;
      at::Tensor cosine = unit.mv(unit[query]);
      for (int64_t k = 0; k < count; ++k) {
        // A book can repeat a sentence.
        if (text[static_cast<size_t>(k)] == text[static_cast<size_t>(query)]) cosine[k] = -2;
      }
      const auto nearest = cosine.argmax().item<int64_t>();
      samples.push_back(
          {text[static_cast<size_t>(query)],
           fmt::format("{}\n(nearest of {}; cosine {:.3f})", text[static_cast<size_t>(nearest)],
                       count, cosine[nearest].item<double>())});
    }
    return samples;
  }

  at::Tensor EncodeSentences(const std::vector<std::string>& sentences) override {
    std::vector<Words> words;
    for (const std::string& sentence : sentences) words.push_back(SplitIntoWords(sentence));
    const SentenceRows rows = NumberSentences(words, data_.numbers);
    const at::Tensor order = rows.lengths.argsort();
    std::vector<at::Tensor> vectors;
    for (const at::Tensor& which : order.split(kSentencesAtOnce)) {
      Poll();
      const auto [x, lengths] = rows.Select(which);
      vectors.push_back(model_.Encode(OnDevice(x), OnDevice(lengths)).cpu());
    }
    return at::cat(vectors).index_select(0, order.argsort());
  }

 private:
  static Tensors Batch(const Triples& triples, const at::Tensor& cases) {
    const at::Tensor middles = triples.middles.index_select(0, cases);
    Tensors batch, targets;
    for (const int64_t offset : {0, -1, 1}) {
      const auto [words, lengths] = triples.sentences.Select(middles + offset);
      batch.push_back(words);
      batch.push_back(lengths);
      if (offset == 0) continue;
      const at::Tensor is_word = at::arange(words.size(0)).unsqueeze(1) < lengths;
      const at::Tensor positions = is_word.flatten().nonzero().squeeze(1);
      batch.push_back(positions);
      targets.push_back(words.flatten().index_select(0, positions));
    }
    batch.push_back(at::cat(targets).to(at::kLong));
    return batch;
  }

  // Returns the states [P, H] that predict the words kTargets.
  at::Tensor States(const Tensors& batch) {
    const at::Tensor vectors = model_.Encode(batch[kWords], batch[kLengths]);
    const auto states = [&](SkipThoughtModel::Decoder decoder, size_t first) {
      return model_.Decode(decoder, batch[first], batch[first + 1], vectors)
          .flatten(0, 1)
          .index_select(0, batch[first + 2]);
    };
    return at::cat(
        {states(SkipThoughtModel::kPrevious, kPrevious), states(SkipThoughtModel::kNext, kNext)});
  }

  at::Tensor FullLoss(const at::Tensor& states, const Tensors& batch) {
    return at::cross_entropy_loss(model_.output()->forward(states), batch[kTargets], {},
                                  at::Reduction::Sum);
  }

  // Returns the mean nats per word of both neighbours, including end marks.
  double Nats(const Triples& triples) {
    double nats = 0, words = 0;
    for (const at::Tensor& cases : triples.lengths.argsort().split(kTriplesAtOnce)) {
      Poll();
      const Tensors batch = OnDevice(Batch(triples, cases));
      nats += FullLoss(States(batch), batch).item<double>();
      words += static_cast<double>(batch[kTargets].size(0));
    }
    return nats / words;
  }

  Values Judge(const SentenceEvaluationSets& sets, const EvaluationOptions& options,
               const std::string& prefix) {
    const auto vectors = [&](const std::string& /*name*/, const std::vector<std::string>& text) {
      return EncodeSentences(text);
    };
    Values values;
    for (const auto& [name, value] : EvaluateSentences(sets, vectors, options)) {
      values[prefix + name] = value;
    }
    return values;
  }

  const ThoughtData& data_;
  SentenceEvaluationSets fewer_;
  int64_t batch_size_, samples_;
  EvaluationOptions while_training_, at_the_end_;
  at::Tensor log_probabilities_;
  SkipThoughtModel model_;
};

struct Measure {
  const char* name;
  const char* label;
  const char* unit;
  bool lower_is_better;
};

constexpr Measure kMeasures[] = {
    {"sick_r", "SICK Pearson correlation", "", false},
    {"sick_rho", "SICK Spearman correlation", "", false},
    {"sick_mse", "SICK mean squared error", "", true},
    {"mr", "MR accuracy", "%", false},
    {"cr", "CR accuracy", "%", false},
    {"subj", "SUBJ accuracy", "%", false},
    {"mpqa", "MPQA accuracy", "%", false},
    {"synthetic", "accuracy on synthetic sentences", "%", false},
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Skip-thought vectors";
  report.source = "Ba, Kiros & Hinton 2016, section 6.3, Table 3 and Figure 3";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "batch_size";
  report.curves = {"valid_nats"};
  report.headline = "valid_nats";
  report.targets = {{"valid_nats", {6, 5.5, 5.25, 5, 4.75, 4.5, 4.25, 4}}};
  for (const Measure& measure : kMeasures) report.curves.emplace_back(measure.name);
  report.notes = {
      "The sentence's vector is the decoders' initial state (condition=start), as in the released "
      "code that the paper used. With condition=steps it is an input of every step, as printed in "
      "Kiros et al. 2015.",
      "In the evaluation sets, all words outside the vocabulary are one unknown word; the paper "
      "gives them vectors by a linear map from word2vec's.",
      "Curves use downstream_cases sentences of each evaluation set and fewer folds; test values "
      "use all sentences.",
  };
  return report;
}

// Returns the settings of the model and its training loss.
std::vector<SettingSpec> ModelSettings() {
  return {
      CellSetting("the GRUs"),
      {"words", 620, "width of a word embedding", 1, 65536, {}},
      {"hidden", 2400, "units of each GRU, and size of a sentence's vector", 1, 65536, {}},
      Choice(
          "condition", "start",
          "the vector is the decoders' first state (start), or in the input of every step (steps)",
          {"start", "steps"}),
      Choice("softmax", "full",
             "softmax of the training loss: over all words, or over the target and sampled words",
             {"full", "sampled"}),
      {"samples", 500, "sampled words of an update", 1, 1e6, {}},
  };
}

// Returns the settings that the data depends on.
std::vector<SettingSpec> DataSettings() {
  return {
      {"vocabulary",
       20'000,
       "maximum number of distinct words, including the end mark and the unknown word",
       3,
       1e7,
       {}},
      {"longest", 30, "triples with a longer sentence are left out", 1, 1000, {}},
      {"triples", 100'000'000, "maximum number of training triples (evenly spaced)", 1, 1e12, {}},
      {"valid_triples", 5'000, "maximum number of validation triples (evenly spaced)", 1, 1e9, {}},
      {"stories",
       4'000,
       "synthetic stories for training, if there is no data",
       1,
       kMaxSyntheticStories,
       {}},
  };
}

// Returns the settings of the evaluation of sentence vectors.
std::vector<SettingSpec> EvaluationSettings() {
  return {
      {"downstream_cases",
       1'000'000,
       "maximum number of sentences of each evaluation set during training",
       10,
       1e9,
       {}},
      {"downstream_folds", 10, "folds of the cross-validation during training", 2, 100, {}},
      {"downstream_inner",
       10,
       "inner folds, which choose the penalty, during training",
       2,
       100,
       {}},
      {"test_folds", 10, "folds of the cross-validation at the end", 2, 100, {}},
      {"test_inner", 10, "inner folds at the end", 2, 100, {}},
  };
}

std::vector<Preset> MakePresets() {
  return {
      {"small",
       "GRUs of 128 on 80,000 triples for 3 epochs, 500 sampled words: minutes a run on one core",
       {{"words", 64},
        {"hidden", 128},
        {"vocabulary", 5'000},
        {"softmax", "sampled"},
        {"longest", 20},
        {"triples", 80'000},
        {"valid_triples", 2'000},
        {"lr", 5e-3},
        {"epochs", 3},
        {"evaluations_per_epoch", 3},
        {"downstream_cases", 1'000},
        {"downstream_folds", 3},
        {"downstream_inner", 2},
        {"test_inner", 3}}},
      {"paper",
       "GRUs of 2,400, 20,000 words, a million updates on the 156,423 triples of 36 books",
       {}},
      {"smoke",
       "GRUs of 16 on 100 synthetic stories for 2 epochs: a test that it runs",
       {{"words", 8},
        {"hidden", 16},
        {"vocabulary", 200},
        {"stories", 100},
        {"triples", 480},
        {"valid_triples", 50},
        {"batch_size", 32},
        {"lr", 1e-2},
        {"epochs", 2},
        {"downstream_cases", 60},
        {"downstream_folds", 2},
        {"downstream_inner", 2},
        {"test_folds", 3},
        {"test_inner", 2}}},
  };
}

std::vector<MetricSpec> MakeMetrics() {
  std::vector<MetricSpec> metrics = {
      {kTrainLoss, "training loss of the batches, of all their words", "nats/batch", true},
      {"valid_nats", "validation loss", "nats/word", true}};
  for (const auto& [prefix, words] : {std::pair("", ""), {"test_", "test: "}}) {
    for (const Measure& measure : kMeasures) {
      metrics.push_back({std::string(prefix) + measure.name, std::string(words) + measure.label,
                         measure.unit, measure.lower_is_better});
    }
  }
  return metrics;
}

class SkipThoughtsTask final : public Task {
 public:
  SkipThoughtsTask() {
    name = "skip-thoughts";
    summary = "sentence vectors from neighbouring sentences: GRUs (Ba et al. 2016, 6.3, Table 3)";
    SettingSpec norm = NormSetting({"none", "layer"});
    norm.help = "norm of the products in the GRUs of encoder and decoders";
    settings = EngineSettings(norm);
    Default("batch_size", 64, "sentence triples of a batch");
    Default("epochs", 410);
    Default("lr", 2e-4);
    Default("clip", 5.0);
    AddSettings(ModelSettings());
    AddDataSettings(DataSettings());
    AddSettings(EvaluationSettings());
    AddSettings({EpsSetting(), GainSetting()});
    presets = MakePresets();
    metrics = MakeMetrics();
    // Evaluation sets of sentence vectors do not affect the choice.
    choose_by = "valid_nats";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& folder) const override {
    SentenceEvaluationSets sets = folder ? ReadSentenceEvaluationSets(*folder)
                                         : MakeSentenceEvaluationSets(kSyntheticSentences);
    return std::make_unique<ThoughtData>(OpenBooks(folder, s.Int("stories")), std::move(sets),
                                         s.Int("vocabulary"), s.Int("longest"), s.Int("triples"),
                                         s.Int("valid_triples"));
  }

  std::optional<PackedData> Pack(const Dataset& data) const override {
    const auto& numbers = dynamic_cast<const ThoughtData&>(data).numbers;
    return PackedData{.values = {{"words", numbers.InOrder()}}, .tensors = {}};
  }
  std::unique_ptr<Dataset> Unpack(const Settings& /*settings*/,
                                  const PackedData& packed) const override {
    return std::make_unique<ThoughtData>(WordNumbers(packed.values.at("words").get<Words>()));
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    return std::make_unique<SkipThoughts>(s, dynamic_cast<const ThoughtData&>(data));
  }
};

}  // namespace

std::unique_ptr<Task> MakeSkipThoughts() { return std::make_unique<SkipThoughtsTask>(); }

}  // namespace planish::lab
