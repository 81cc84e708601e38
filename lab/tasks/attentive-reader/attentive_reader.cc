#include "lab/tasks/attentive-reader/attentive_reader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lab/error.h"
#include "lab/tasks/attentive-reader/attention_picture.h"
#include "lab/tasks/attentive-reader/corpus.h"
#include "lab/tasks/attentive-reader/model.h"
#include "lab/tasks/class_predictions.h"
#include "lab/tasks/theano.h"

namespace planish::lab {

namespace {

// Number of batches that are drawn together and sorted by passage length to reduce padding, as in
// the released code.
constexpr int64_t kPool = 12;
// Number of training questions for the training error.
constexpr int64_t kTrainProbe = 1000;
// Questions per evaluation batch.
constexpr int64_t kEvaluationBatch = 64;

// Returns the initial gain of `norm`.
double GainOf(const Settings& s) {
  const std::string gain = s.Text("gain");
  if (gain == "paper") return s.Text("norm").starts_with("batch") ? 0.1 : 1;
  return std::stod(gain);
}

AttentiveReader::Options ModelOptions(const Settings& s, const ReaderCorpus& corpus) {
  return {.symbols = corpus.symbols,
          .entities = corpus.entities,
          .embedding = s.Int("words"),
          .hidden = s.Int("hidden"),
          .dropout = s.Real("dropout"),
          .deviation = s.Real("init"),
          .norm = s.Text("norm"),
          .gain = GainOf(s),
          .epsilon = s.Real("eps"),
          .composed = s.Text("cell") == "composed",
          .released = s.Text("reader") == "released",
          .equal_gates = s.Text("compat") == "theano",
          .passage_steps = corpus.train.passages.size(1),
          .question_steps = corpus.train.questions.size(1)};
}

class Reader final : public Experiment {
 public:
  Reader(const Settings& s, const ReaderCorpus& corpus)
      : corpus_(corpus),
        batch_size_(s.Int("batch_size")),
        permute_evaluations_(s.Text("permute") == "always"),
        estimate_batches_(s.Int("estimate_batches")),
        model_(ModelOptions(s, corpus)) {}

  torch::nn::Module& model() override { return model_; }

  // Case n + N b is training question n under permutation b, the index of the batch before batches
  // are sorted. So a batch determines its permutation, and only the epoch's generator determines
  // both.
  EpochPlan PlanEpoch(at::Generator& generator) override {
    const int64_t count = corpus_.train.size();
    const int64_t batches = count / batch_size_;
    const at::Tensor drawn =
        at::randperm(count, generator, at::kLong).slice(0, 0, batches * batch_size_);
    std::vector<at::Tensor> pools;
    for (const at::Tensor& pool : drawn.split(kPool * batch_size_)) {
      const at::Tensor lengths = corpus_.train.passage_lengths.index_select(0, pool);
      pools.push_back(pool.index_select(0, at::argsort(lengths, /*stable=*/true)));
    }
    const at::Tensor by_batch = at::cat(pools).view({batches, batch_size_}) +
                                count * at::arange(batches, at::kLong).unsqueeze(1);
    EpochPlan plan;
    plan.order = by_batch.index_select(0, at::randperm(batches, generator, at::kLong)).flatten();
    for (int64_t b = 0; b <= batches; ++b) plan.offsets.push_back(b * batch_size_);
    permutations_ =
        at::rand({batches, corpus_.entities}, generator, at::kDouble).argsort(int64_t{1});
    return plan;
  }

  // Returns passage [T, B], its lengths [B], question [U, B], its lengths, answers [B].
  Tensors Batch(const at::Tensor& cases) override {
    const int64_t count = corpus_.train.size();
    const int64_t b = cases[0].item<int64_t>() / count;
    return Gather(corpus_.train, cases - b * count, permutations_[b]);
  }

  at::Tensor Loss(const Tensors& batch) override {
    return at::cross_entropy_loss(Read(batch).logits, batch[4]);
  }

  Values Evaluate() override {
    if (model_.has_estimates()) Estimate();
    const Result valid = Measure(corpus_.valid, corpus_.valid.size());
    return {{"train_error", Measure(corpus_.train, kTrainProbe).error},
            {"valid_loss", valid.loss},
            {"valid_error", valid.error},
            {"valid_passage_error", valid.passage_error}};
  }

  Values Test() override {
    const Result test = Measure(corpus_.test, corpus_.test.size());
    SetPredictions(ClassPredictions(corpus_.test.answers, test.found));
    return {{"test_loss", test.loss},
            {"test_error", test.error},
            {"test_passage_error", test.passage_error}};
  }

  // Returns the passage of each shown question with the attention to its words.
  std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) override {
    std::vector<RunResult::Sample> samples;
    for (size_t i = 0; i < corpus_.shown.size(); ++i) {
      const ClozeQuestion& q = corpus_.shown[i];
      const at::Tensor row = at::tensor({static_cast<int64_t>(i)}, at::kLong);
      const AttentiveReader::Reading reading =
          Read(OnDevice(Gather(corpus_.valid, row, Identity())));
      const auto entity = reading.logits[0].argmax().item<int32_t>();
      const auto text = [&](ClozeToken token) {
        return IsEntity(token) ? fmt::format("@entity{}", EntityOf(token))
                               : corpus_.texts[static_cast<size_t>(token)];
      };
      const auto texts = [&](const std::vector<ClozeToken>& tokens) {
        std::vector<std::string> all;
        for (const ClozeToken token : tokens) all.push_back(text(token));
        return all;
      };
      const auto named = [&](int32_t number) {
        const auto name =
            std::ranges::find(q.names, number, &std::pair<int32_t, std::string>::first);
        return text(EntityToken(number)) +
               (name == q.names.end() ? "" : fmt::format(" ({})", name->second));
      };
      const at::Tensor attention = reading.attention.cpu();
      std::vector<double> shares;
      for (size_t t = 0; t < q.passage.size(); ++t) {
        shares.push_back(attention[static_cast<int64_t>(t)][0].item<double>());
      }
      std::string question;
      for (const std::string& word : texts(q.question)) question += word + " ";
      RunResult::Sample sample;
      sample.title = fmt::format("attention over a passage; the answer, {}, was {}", named(entity),
                                 entity == q.answer ? "right" : "wrong");
      sample.text = fmt::format("question: {}\nanswer: {}\n{}\n", question, named(q.answer),
                                AttentionText(texts(q.passage), shares));
      sample.svg = AttentionPicture(texts(q.passage), shares);
      samples.push_back(std::move(sample));
    }
    return samples;
  }

 private:
  struct Result {
    double loss = 0, error = 0, passage_error = 0;
    at::Tensor found;  // [N] the most likely entity
  };

  at::Tensor Identity() const { return at::arange(corpus_.entities, at::kLong); }

  AttentiveReader::Reading Read(const Tensors& batch) {
    return model_.forward(batch[0], batch[1], batch[2], batch[3]);
  }

  // Gathers a batch, with entity n renamed to permutation[n].
  Tensors Gather(const NumberedQuestions& set, const at::Tensor& cases,
                 const at::Tensor& permutation) const {
    const at::Tensor numbers =
        at::cat({permutation, at::arange(corpus_.entities, corpus_.symbols, at::kLong)});
    const auto columns = [&](const at::Tensor& rows, const at::Tensor& lengths) {
      const at::Tensor tokens =
          rows.slice(1, 0, lengths.max().item<int64_t>()).index_select(0, cases).t();
      return numbers.index_select(0, tokens.flatten().to(at::kLong)).view(tokens.sizes());
    };
    const at::Tensor passage_lengths = set.passage_lengths.index_select(0, cases);
    const at::Tensor question_lengths = set.question_lengths.index_select(0, cases);
    return {columns(set.passages, passage_lengths), passage_lengths,
            columns(set.questions, question_lengths), question_lengths,
            permutation.index_select(0, set.answers.index_select(0, cases))};
  }

  // Estimates batch norm's statistics from the same training batches in each evaluation.
  void Estimate() {
    at::Generator generator = at::detail::createCPUGenerator(0);
    const at::Tensor permutations = permutations_;
    const EpochPlan plan = PlanEpoch(generator);
    model_.BeginEstimates();
    for (int64_t b = 0; b < std::min(estimate_batches_, plan.batches()); ++b) {
      Poll();
      Read(OnDevice(Batch(plan.batch(b))));
    }
    model_.EndEstimates();
    permutations_ = permutations;
  }

  // Returns mean loss and error over the first `max_count` questions, among all entities and among
  // those of the passage. The permutations are the same in each evaluation.
  Result Measure(const NumberedQuestions& set, int64_t max_count) {
    const int64_t count = std::min(max_count, set.size());
    const at::Tensor order = at::argsort(set.passage_lengths.slice(0, 0, count), /*stable=*/true);
    at::Generator generator = at::detail::createCPUGenerator(0);
    Result sums;
    sums.found = at::empty({count}, at::kLong);
    for (const at::Tensor& cases : order.split(kEvaluationBatch)) {
      Poll();
      const at::Tensor permutation =
          permute_evaluations_ ? at::randperm(corpus_.entities, generator, at::kLong) : Identity();
      const Tensors batch = OnDevice(Gather(set, cases, permutation));
      const at::Tensor logits = Read(batch).logits, &answers = batch[4];
      sums.loss += at::cross_entropy_loss(logits, answers, {}, at::Reduction::Sum).item<double>();
      const at::Tensor found = logits.argmax(1);
      sums.error += found.ne(answers).sum().item<double>();
      // The inverse of the permutation gives the entity's number in the data.
      sums.found.index_copy_(0, cases, permutation.argsort().index_select(0, found.cpu()));
      // Padding is the unknown word, which is not an entity.
      const at::Tensor there =
          at::zeros({cases.size(0), corpus_.entities + 1}, batch[0].options().dtype(at::kBool))
              .scatter(1, batch[0].t().clamp_max(corpus_.entities), true)
              .slice(1, 0, corpus_.entities);
      const at::Tensor among =
          logits.masked_fill(there.logical_not(), -std::numeric_limits<float>::infinity());
      sums.passage_error += among.argmax(1).ne(answers).sum().item<double>();
    }
    const auto n = static_cast<double>(count);
    return {sums.loss / n, sums.error / n, sums.passage_error / n, sums.found};
  }

  const ReaderCorpus& corpus_;
  int64_t batch_size_;
  bool permute_evaluations_;
  int64_t estimate_batches_;
  AttentiveReader model_;
  at::Tensor permutations_;  // [batches of the epoch, E]
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Attentive reader: cloze questions";
  report.source = "Ba, Kiros & Hinton 2016, section 6.2 and Figure 2";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "gain";
  report.curves = {kTrainLoss, "valid_error"};
  report.headline = "valid_error";
  report.targets = {{"valid_error", {0.8, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45}}};
  report.notes = {
      "The paper prints only validation results.",
      "Evaluations normalize with the mean and variance of each time step, estimated over training "
      "batches before each evaluation (norms batch and batch-everywhere).",
      "The output layer has a logit for each entity; in the released code it has one for each "
      "word.",
  };
  return report;
}

// Returns the settings of the model and its training.
std::vector<SettingSpec> ModelSettings() {
  return {
      CellSetting("the LSTMs"),
      Choice("reader", "released",
             "equations of Hermann et al., or of the released code that compares norms",
             {"released", "hermann"}),
      Choice("compat", "none",
             "reproduced errors of the released code; theano: clips only above clip^2, equal gates",
             {"none", "theano"}),
      Choice("gain", "paper",
             "initial gain of the norms; paper: 1 for layer norm, 0.1 for batch norm",
             {"paper", "1", "0.1"}),
      Choice("permute", "always", "new entity numbers in every batch: always, or only in training",
             {"always", "training"}),
      {"words", 240, "width of a word embedding", 1, 65536, {}},
      {"hidden", 240, "units of each LSTM, and of the attention", 2, 65536, {}},
      {"dropout", 0.5, "dropout of words, and of the answer layer's input", 0, 0.99, {}},
      {"init", 0.01, "standard deviation of the initial word embeddings", 0, 1e3, {}},
      EpsSetting(),
      {"estimate_batches",
       16,
       "training batches for the estimates of batch norm's statistics",
       1,
       1e6,
       {}},
  };
}

std::vector<Preset> MakePresets() {
  return {
      {"small",
       "128 units on 20,000 questions for 6 epochs: minutes a run on one core",
       {{"hidden", 128},
        {"words", 64},
        {"init", 0.1},
        {"dropout", 0.2},
        {"batch_size", 32},
        {"epochs", 6},
        {"lr", 4e-3},
        {"evaluations_per_epoch", 4},
        {"min_count", 5},
        {"train_cases", 20'000},
        {"eval_cases", 1'000}}},
      {"paper", "240 units, 135 epochs: on CNN's questions the paper's 800,000 updates", {}},
      {"smoke",
       "16 units on 300 questions for 2 epochs: a test that it runs",
       {{"hidden", 16},
        {"words", 12},
        {"init", 0.1},
        {"dropout", 0.1},
        {"batch_size", 16},
        {"epochs", 2},
        {"lr", 1e-2},
        {"evaluations_per_epoch", 2},
        {"estimate_batches", 4},
        {"entities", 8},
        {"train_cases", 300},
        {"eval_cases", 60}}},
  };
}

std::vector<MetricSpec> MakeMetrics() {
  return {
      {kTrainLoss, "training loss of the batches", "nats", true},
      {"train_error", "training error", "%", true},
      {"valid_loss", "validation loss", "nats", true},
      {"valid_error", "validation error", "%", true},
      {"valid_passage_error", "validation error among the passage's entities", "%", true},
      {"test_loss", "test loss", "nats", true},
      {"test_error", "test error", "%", true},
      {"test_passage_error", "test error among the passage's entities", "%", true},
  };
}

class AttentiveReaderTask final : public Task {
 public:
  AttentiveReaderTask() {
    name = "attentive-reader";
    summary = "cloze questions about a passage: LSTMs with attention (Ba et al. 2016, 6.2)";
    settings = EngineSettings(NormSetting({"layer", "none", "batch", "batch-everywhere"}));
    Default("batch_size", 64);
    Default("epochs", 135, "passes over the training questions");  // of CNN's: 800,000 updates
    Default("lr", 8e-5);
    Default("clip", 10.0);
    Default("evaluations_per_epoch", 6, "evaluations an epoch, and a few more in the first one");
    AddSettings(ModelSettings());
    AddDataSettings(ReaderDataSettings());
    presets = MakePresets();
    metrics = MakeMetrics();
    choose_by = "valid_error";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& folder) const override {
    return LoadReaderCorpus(s, folder);
  }

  void Check(const Settings& s, const Dataset& data) const override {
    Task::Check(s, data);
    if (s.Flag("sync_batch_norm") && s.Text("norm") == "batch") {
      throw UsageError(
          "[train] sync_batch_norm must be false in attentive-reader, whose batch norm has "
          "statistics for each time step, got true");
    }
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    Check(s, data);
    return std::make_unique<Reader>(s, dynamic_cast<const ReaderCorpus&>(data));
  }

  Clipping MakeClipping(const Settings& s) const override {
    return s.Text("compat") == "theano" ? ClipByRoot(s.Real("clip")) : Task::MakeClipping(s);
  }
};

}  // namespace

std::unique_ptr<Task> MakeAttentiveReader() { return std::make_unique<AttentiveReaderTask>(); }

}  // namespace planish::lab
