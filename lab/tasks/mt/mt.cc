#include "lab/tasks/mt/mt.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/engine/batches.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/data_inspector.h"
#include "lab/engine/settings_of_data.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/run/item_metrics.h"
#include "lab/tasks/mt/beam.h"
#include "lab/tasks/mt/bleu.h"
#include "lab/tasks/mt/corpus.h"
#include "lab/tasks/mt/model.h"
#include "lab/tasks/mt/parallel.h"

namespace planish::lab {

namespace {

// Pieces per evaluation or translation batch, including padding.
constexpr int64_t kEvaluationTokens = 4096;
constexpr int64_t kTranslationTokens = 2048;
// Number of training pairs in the training loss.
constexpr int64_t kTrainSample = 500;
// Names of the vocabularies in an exported model.
constexpr char kPieces[] = "pieces", kSourcePieces[] = "source_pieces";
// Number of translations in the report.
constexpr int64_t kSamples = 5;

TransformerOptions LayersOf(const Settings& s) {
  TransformerOptions options;
  options.layers = s.Int("layers");
  options.width = s.Int("width");
  options.heads = s.Int("heads");
  options.ffn = s.Int("ffn");
  options.dropout = s.Real("dropout");
  options.attention_dropout = s.Real("attention_dropout");
  options.activation_dropout = s.Real("activation_dropout");
  options.final_norm = s.Text("norm");
  options.norm = s.Text("wiring") == "code" ? "layer" : s.Text("norm");
  options.norm_options = NormOptionsOf(s);
  options.placement = PlacementOf(s.Text("placement"));
  options.qk_norm = s.Flag("qk_norm");
  options.init = InitialWeightsOf(s.Text("init"));
  return options;
}

// Targets of some pairs.
struct Wanted {
  at::Tensor input;      // [B, T] the piece before each piece of the target, </s> before the first
  at::Tensor positions;  // [P] those of the B * T that are not padding
  at::Tensor pieces;     // [P] int64, the pieces at these positions
};

Wanted WantedOf(const at::Tensor& target) {
  const at::Tensor first = at::full({target.size(0), 1}, Bpe::kEnd, at::kInt);
  const at::Tensor flat = target.flatten();
  const at::Tensor positions = (flat != Bpe::kPad).nonzero().squeeze(1);
  return {at::cat({first, target.slice(1, 0, -1)}, 1), positions,
          flat.index_select(0, positions).to(at::kLong)};
}

class Translation final : public Experiment, public LineTranslator {
 public:
  Translation(const Settings& s, const Corpus& corpus)
      : corpus_(corpus),
        batch_tokens_(s.Int("batch_size")),
        smoothing_(s.Real("label_smoothing")),
        bleu_sentences_(s.Int("bleu_sentences")),
        beam_{.beam = s.Int("beam"), .length_penalty = s.Real("length_penalty")},
        lengths_(Longer(corpus.train)),
        model_({.vocabulary = corpus.bpe.size(),
                .source_vocabulary = corpus.source_bpe ? corpus.source_bpe->size() : 0,
                .transformer = LayersOf(s)}) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    return TokenBatches({lengths_.const_data_ptr<int64_t>(), static_cast<size_t>(lengths_.size(0))},
                        batch_tokens_, generator);
  }

  // Returns source [B, S], its lengths [B], and WantedOf the target.
  Tensors Batch(const at::Tensor& cases) override { return Batch(corpus_.train, cases); }

  // The loss is a mean over pieces.
  double ShardFactor(const at::Tensor& cases, const at::Tensor& batch) override {
    return static_cast<double>(Batch(cases)[4].numel()) /
           static_cast<double>(Batch(batch)[4].numel());
  }

  at::Tensor Loss(const Tensors& batch) override {
    return at::cross_entropy_loss(Predict(batch), batch[4], {}, at::Reduction::Mean,
                                  /*ignore_index=*/-100, smoothing_);
  }

  Values Evaluate() override {
    Values values;
    Measure(corpus_.train, std::min(kTrainSample, corpus_.train.size()), "train", values);
    Measure(corpus_.valid, corpus_.valid.size(), "valid", values);
    values.erase("train_accuracy");
    BeamOptions greedy = beam_;
    greedy.beam = 1;
    values["valid_bleu"] =
        BleuOf(SumOf(TranslateAndCount(corpus_.valid,
                                       std::min(bleu_sentences_, corpus_.valid.size()), greedy)))
            .score;
    return values;
  }

  Values Test() override {
    Values values;
    Measure(corpus_.test, corpus_.test.size(), "test", values);
    const std::vector<BleuCounts> sentences =
        TranslateAndCount(corpus_.test, corpus_.test.size(), beam_);
    values["test_bleu"] = BleuOf(SumOf(sentences)).score;
    SetPredictions(BleuPredictions(sentences));
    return values;
  }

  std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) override {
    const int64_t count = std::min(kSamples, corpus_.valid.size());
    const std::vector<std::string> ours = TranslateSet(corpus_.valid, count, beam_);
    std::vector<RunResult::Sample> samples;
    for (size_t i = 0; i < ours.size(); ++i) {
      const SentencePair& pair = corpus_.valid.text[i];
      samples.push_back({pair.source, fmt::format("{}\n(reference: {})", ours[i], pair.target)});
    }
    return samples;
  }

  std::vector<std::string> Translate(const std::vector<std::string>& lines) override {
    if (lines.empty()) return {};
    return Translate(EncodeLines(corpus_.SourceBpe(), lines), beam_);
  }

 private:
  // Returns the number of pieces on the longer side of each pair [N].
  static at::Tensor Longer(const PairSet& set) {
    return at::maximum(set.source.lengths, set.target.lengths);
  }

  static Tensors Batch(const PairSet& set, const at::Tensor& cases) {
    const Pieces source = set.source.Select(cases);
    const Wanted wanted = WantedOf(set.target.Select(cases).rows);
    return {source.rows, source.lengths, wanted.input, wanted.positions, wanted.pieces};
  }

  // Returns the logits [P, V] of the wanted pieces.
  at::Tensor Predict(const Tensors& batch) {
    const at::Tensor x = model_.forward(batch[0], batch[1], batch[2]);
    return model_.Logits(x.flatten(0, 1).index_select(0, batch[3]));
  }

  // Computes the mean nats per piece, and the fraction of pieces that are the likeliest, of the
  // first `count` pairs.
  void Measure(const PairSet& set, int64_t count, const std::string& name, Values& values) {
    double nats = 0, right = 0, pieces = 0;
    for (const at::Tensor& cases :
         SortedBatches(Longer(set).slice(0, 0, count), kEvaluationTokens)) {
      Poll();
      const Tensors batch = OnDevice(Batch(set, cases));
      const at::Tensor logits = Predict(batch);
      nats += at::cross_entropy_loss(logits, batch[4], {}, at::Reduction::Sum).item<double>();
      right += (logits.argmax(1) == batch[4]).sum().item<double>();
      pieces += static_cast<double>(batch[4].size(0));
    }
    values[name + "_nats"] = nats / pieces;
    values[name + "_accuracy"] = right / pieces;
  }

  // Returns one line for each row of `source`. An empty line has an empty translation.
  std::vector<std::string> Translate(const Pieces& source, const BeamOptions& options) {
    std::vector<std::string> lines(static_cast<size_t>(source.size()));
    for (const at::Tensor& cases : SortedBatches(source.lengths, kTranslationTokens)) {
      Poll();
      const Pieces batch = source.Select(cases);
      const std::vector<Hypothesis> found =
          BeamSearch(model_, OnDevice(batch.rows), OnDevice(batch.lengths), options);
      const auto place = cases.accessor<int64_t, 1>();
      const auto length = batch.lengths.accessor<int64_t, 1>();
      for (int64_t i = 0; i < cases.size(0); ++i) {
        if (length[i] <= 1) continue;
        lines[static_cast<size_t>(place[i])] =
            corpus_.bpe.Decode(found[static_cast<size_t>(i)].pieces);
      }
    }
    return lines;
  }

  std::vector<std::string> TranslateSet(const PairSet& set, int64_t count,
                                        const BeamOptions& options) {
    return Translate({set.source.rows.slice(0, 0, count), set.source.lengths.slice(0, 0, count)},
                     options);
  }

  // Translates the first `count` sentences. Returns the counts of each for BLEU.
  std::vector<BleuCounts> TranslateAndCount(const PairSet& set, int64_t count,
                                            const BeamOptions& options) {
    std::vector<std::string> references;
    for (int64_t i = 0; i < count; ++i) {
      references.push_back(set.text[static_cast<size_t>(i)].target);
    }
    return CountsOf(TranslateSet(set, count, options), references);
  }

  const Corpus& corpus_;
  int64_t batch_tokens_;
  double smoothing_;
  int64_t bleu_sentences_;
  BeamOptions beam_;
  at::Tensor lengths_;
  TranslationModel model_;
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Machine translation";
  report.source = "Xu et al. 2019, 2.2";
  report.compare = "norm";
  report.baseline = "layer";
  report.panel = "direction";
  report.curves = {"train_nats", "valid_nats", "valid_bleu"};
  report.headline = "test_bleu";
  return report;
}

// Returns the settings of the model and its training loss.
std::vector<SettingSpec> ModelSettings() {
  return {
      Choice("wiring", "paper",
             "places of the chosen norm: paper: all; code: only the last of encoder and decoder, "
             "others are layer",
             {"paper", "code"}),
      {"layers", 6, "layers of the encoder, and of the decoder", 1, 1000, {}},
      {"width", 512, "width of the model", 2, 65536, {}},
      {"heads", 4, "heads of each attention", 1, 1024, {}},
      {"ffn", 1024, "hidden units of the feed-forward sublayers", 1, 1 << 20, {}},
      {"dropout", 0.3, "dropout of embeddings and of each sublayer's result", 0, 0.99, {}},
      {"attention_dropout", 0.1, "dropout of attention weights", 0, 0.99, {}},
      {"activation_dropout",
       0.1,
       "dropout of the feed-forward sublayers' hidden units",
       0,
       0.99,
       {}},
      {"label_smoothing", 0.1, "label smoothing of the training loss", 0, 0.99, {}},
      Choice(
          "init", "glorot",
          "initial weights: uniform after Glorot & Bengio, or Kaiming He's in all linear layers, "
          "or only in attentions, as the paper's code has them",
          InitialWeightsNames()),
  };
}

// German to English, of the paper's columns.
constexpr char kDefaultDirection[] = "de-en";

// Returns the settings that the data depends on.
std::vector<SettingSpec> DataSettings() {
  return {
      Choice(
          "data", "auto",
          "auto: multi30k if the data folder has it, else your own files; synthetic without data",
          {"auto", "synthetic", "multi30k", "tatoeba", "iwslt14", "files"},
          {{"made", "synthetic"}}),
      {"direction",
       kDefaultDirection,
       "source and target language: the endings of their files' names, or labels of a table",
       {},
       {},
       {}},
      {"columns",
       "",
       "languages of a table's columns, such as en-de; empty: those of direction",
       {},
       {},
       {}},
      {"split_seed", 1, "seed of the random sets of your own files without sets", 0, 1e9, {}},
      {"vocabulary",
       10149,
       "pieces of the shared vocabulary, or of the target's",
       8,
       1'000'000,
       {}},
      {"source_vocabulary",
       0,
       "pieces of the source's own vocabulary; 0: the languages share one, and embeddings",
       0,
       1'000'000,
       {}},
      {"train_pairs", 10'000'000, "maximum number of training pairs", 1, 1e15, {}},
      {"max_length", 256, "pairs with more pieces on a side are left out of training", 2, 1e6, {}},
  };
}

// Returns the settings of translations in evaluations and in the test.
std::vector<SettingSpec> TranslationSettings() {
  return {
      {"bleu_sentences",
       200,
       "validation pairs translated (greedily) at each evaluation",
       1,
       1e9,
       {}},
      {"beam", 5, "hypotheses per sentence in translation", 1, 1000, {}},
      {"length_penalty", 1.0, "scores are divided by the length to this power", 0, 10, {}},
  };
}

std::vector<Preset> MakePresets() {
  return {
      {"small",
       "6 + 6 layers of 64 on 20,000 pairs for 2 epochs: two minutes a run on one thread",
       {{"width", 64},
        {"ffn", 128},
        {"dropout", 0.1},
        {"attention_dropout", 0.0},
        {"activation_dropout", 0.0},
        {"vocabulary", 2000},
        {"train_pairs", 20'000},
        {"max_length", 64},
        {"batch_size", 1024},
        {"accumulate", 1},
        {"epochs", 2},
        {"evaluations_per_epoch", 2},
        {"lr", 3e-3},
        {"warmup", 200},
        {"bleu_sentences", 100}}},
      {"paper",
       "6 + 6 layers of 512 as printed for German to English; 55 epochs (not printed)",
       {}},
      {"en-de",
       "6 + 6 layers of 1024 as printed for English to German: 210 million weights",
       {{"data", "files"},
        {"direction", "en-de"},
        {"vocabulary", 32'765},
        {"width", 1024},
        {"heads", 16},
        {"ffn", 4096},
        {"accumulate", 1},
        {"lr", 1e-3},
        {"warmup", 4000}}},
      {"en-vi",
       "6 + 6 layers of 512 as printed for English to Vietnamese: a vocabulary for each",
       {{"data", "files"},
        {"direction", "en-vi"},
        {"source_vocabulary", 7669},
        {"vocabulary", 6669},
        {"heads", 8},
        {"ffn", 2048},
        {"dropout", 0.1},
        {"attention_dropout", 0.0},
        {"activation_dropout", 0.0},
        {"accumulate", 1},
        {"lr", 1e-3}}},
      {"smoke",
       "2 + 2 layers of 16 on 300 pairs for 2 epochs: a test that it runs",
       {{"layers", 2},
        {"width", 16},
        {"heads", 2},
        {"ffn", 32},
        {"vocabulary", 200},
        {"train_pairs", 300},
        {"max_length", 64},
        {"batch_size", 1024},
        {"accumulate", 1},
        {"epochs", 2},
        {"lr", 1e-2},
        {"warmup", 4},
        {"bleu_sentences", 20},
        {"beam", 2}}},
  };
}

std::vector<MetricSpec> MakeMetrics() {
  const std::string nats = "nats/piece";
  return {
      {kTrainLoss, "training loss of the batches, labels smoothed", nats, true},
      {"train_nats", "training loss", nats, true},
      {"valid_nats", "validation loss", nats, true},
      {"valid_accuracy", "validation accuracy of pieces", "%", false},
      {"valid_bleu", "validation BLEU, greedy", "", false},
      {"test_nats", "test loss", nats, true},
      {"test_accuracy", "test accuracy of pieces", "%", false},
      {"test_bleu", "test BLEU", "", false},
  };
}

class MtTask final : public Task, public DataInspector, public SettingsOfData {
 public:
  MtTask() {
    name = "mt";
    summary = "machine translation: a Transformer on sentence pairs";
    settings = EngineSettings(NormSetting(RowNormNames("layer")));
    Default("batch_size", 4096, "pieces of the longer side of a batch, including padding");
    Default("epochs", 55);
    Default("lr", 1.5e-3);
    Default("adam_beta2", 0.98);
    Default("schedule", "inverse-sqrt");
    Default("warmup", 8000);
    Default("accumulate", 2);
    AddSettings(NormDetails());
    AddSettings(PlacementSettings("pre"));
    AddSettings(ModelSettings());
    AddDataSettings(DataSettings());
    AddSettings(TranslationSettings());
    presets = MakePresets();
    metrics = MakeMetrics();
    // The paper's code chooses checkpoints in this way; a loss over all pieces varies less than
    // BLEU.
    choose_by = "valid_nats";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    return std::make_unique<Corpus>(PairsOf(s, path), s.Int("vocabulary"), s.Int("max_length"),
                                    CacheFolder(), s.Int("source_vocabulary"));
  }

  RunConfig::Data Inspect(const Settings& s,
                          const std::optional<std::filesystem::path>& path) const override {
    const ParallelText text = PairsOf(s, path);
    return AboutSplits(text, text.description, std::ssize(text.train), std::ssize(text.valid),
                       std::ssize(text.test));
  }

  void Check(const Settings& s, const Dataset& data) const override {
    const auto& train = dynamic_cast<const Corpus&>(data).train;
    const int64_t longest =
        at::maximum(train.source.lengths.max(), train.target.lengths.max()).item<int64_t>();
    if (longest > s.Int("batch_size")) {
      throw UsageError(fmt::format(
          "[mt] batch_size must be at least the {} pieces of the longest training pair, got {}",
          longest, s.Int("batch_size")));
    }
  }

  // The serialized vocabularies, as bytes.
  std::optional<PackedData> Pack(const Dataset& data) const override {
    const auto& corpus = dynamic_cast<const Corpus&>(data);
    PackedData packed;
    AddBytes(packed, kPieces, corpus.bpe.model());
    if (corpus.source_bpe) AddBytes(packed, kSourcePieces, corpus.source_bpe->model());
    return packed;
  }
  std::unique_ptr<Dataset> Unpack(const Settings& s, const PackedData& packed) const override {
    std::optional<Bpe> source;
    if (s.Int("source_vocabulary") > 0) source = Bpe(BytesNamed(packed, kSourcePieces));
    return std::make_unique<Corpus>(Bpe(BytesNamed(packed, kPieces)), std::move(source));
  }

  // A table has no names of languages, and the default direction need not be its own.
  std::map<std::string, std::string> SettingsFor(const Settings& s,
                                                 const std::filesystem::path& path) const override {
    const bool reads_files = s.Text("data") == "auto" || s.Text("data") == "files";
    if (!reads_files || s.Text("direction") != kDefaultDirection) return {};
    if (!s.Text("columns").empty()) return {};
    const auto direction = DirectionOfTable(path, kDefaultDirection);
    if (!direction) return {};
    return {{"direction", *direction}};
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    return std::make_unique<Translation>(s, dynamic_cast<const Corpus&>(data));
  }

 private:
  static ParallelText PairsOf(const Settings& s, const std::optional<std::filesystem::path>& path) {
    return OpenParallel(path, {.data = s.Text("data"),
                               .direction = s.Text("direction"),
                               .columns = s.Text("columns"),
                               .split_seed = s.Int("split_seed"),
                               .train_pairs = s.Int("train_pairs")});
  }
};

}  // namespace

std::unique_ptr<Task> MakeMt() { return std::make_unique<MtTask>(); }

}  // namespace planish::lab
