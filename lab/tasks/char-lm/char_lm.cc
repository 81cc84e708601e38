#include "lab/tasks/char-lm/char_lm.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lab/data/text.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/streams.h"
#include "lab/error.h"
#include "lab/model/recurrent.h"
#include "lab/tasks/char-lm/model.h"
#include "lab/tasks/text_corpus.h"

namespace planish::lab {

namespace {

// Number of parallel pieces of an evaluated text, each from a zero state. A piece has some thousand
// characters, so that the missing context at its start is negligible.
constexpr int64_t kEvaluationStreams = 16;
// Steps per evaluation batch.
constexpr int64_t kEvaluationSteps = 64;

class CharLm final : public Experiment, public TextSampler, public SequenceReader {
 public:
  CharLm(const Settings& settings, const TextCorpus& corpus)
      : corpus_(corpus),
        streams_(settings.Int("batch_size")),
        window_(settings.Int("window")),
        sample_(settings.Int("sample")),
        temperature_(settings.Real("temperature")),
        model_({.cell = settings.Text("cell"),
                .characters = corpus.vocabulary.size(),
                .embedding = settings.Int("embedding"),
                .hidden = settings.Int("hidden"),
                .layers = settings.Int("layers"),
                .heads = settings.Int("heads"),
                .streams = streams_,
                .gain = settings.Real("gain")}) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    EpochPlan plan = StreamedBatches(corpus_.train.size(0), streams_, window_, generator);
    first_ = plan.order[0].item<int64_t>();
    stream_length_ = plan.order.size(0) / streams_;
    return plan;
  }

  at::Tensor ShardOfBatch(const at::Tensor& batch, const Shard& shard) const override {
    return ShardOfStreams(batch, streams_, shard);
  }
  Tensors StreamStates() override { return {model_.carried().movedim(2, 0)}; }

  // Returns characters [T, B], the next characters [T * B], and true at the start of a pass.
  Tensors Batch(const at::Tensor& cases) override {
    const int64_t streams = shard().End(streams_) - shard().Begin(streams_);
    return {corpus_.train.index_select(0, cases).to(at::kLong).view({-1, streams}),
            corpus_.train.index_select(0, cases + 1).to(at::kLong),
            (cases[0] - first_).remainder(stream_length_) == 0};
  }

  at::Tensor Loss(const Tensors& batch) override {
    const at::Tensor carried =
        model_.carried().slice(2, shard().Begin(streams_), shard().End(streams_));
    if (batch[2].item<bool>()) carried.copy_(model_.ZeroState(carried.size(2)));
    // A copy, because backward reads the state that this replaces.
    const auto [logits, state] = model_.forward(batch[0], carried.clone());
    carried.copy_(state.detach());
    return at::cross_entropy_loss(logits, batch[1]);
  }

  Values Evaluate() override {
    // Uses as much of the training text as of the others.
    return {{"train_bits", Bits(corpus_.train.slice(0, 0, corpus_.valid.size(0)))},
            {"valid_bits", Bits(corpus_.valid)},
            {"test_bits", Bits(corpus_.test)}};
  }

  std::vector<RunResult::Sample> Samples(at::Generator& generator) override {
    return {{fmt::format("{} characters at temperature {:g}", sample_, temperature_),
             Sample("", sample_, temperature_, generator)}};
  }

  std::string Sample(const std::string& prompt, int64_t length, double temperature,
                     at::Generator& generator) override {
    at::Tensor state = model_.ZeroState(1);
    return WriteText(corpus_.vocabulary, prompt, length, temperature, generator,
                     [&](const at::Tensor& characters) {
                       const auto [logits, after] =
                           model_.forward(OnDevice(characters.unsqueeze(1)), state);
                       state = after;
                       return logits[-1].cpu();
                     });
  }

  RecurrentModule& recurrent() override { return model_.recurrent(); }

  int64_t MaxSteps() const override { return corpus_.train.size(0) - 1; }

  Sequences ReadSequences(int64_t steps, int64_t count, at::Generator& generator) override {
    if (steps > MaxSteps()) {
      throw UsageError(fmt::format("[ReadSequences] steps must be at most {} for this text, got {}",
                                   MaxSteps(), steps));
    }
    const at::Tensor first =
        at::randint(corpus_.train.size(0) - steps, {count}, generator, at::kLong);
    const at::Tensor cases = at::arange(steps).unsqueeze(1) + first;  // [T, B]
    const auto characters = [&](const at::Tensor& t) {
      return OnDevice(corpus_.train.index_select(0, t.flatten()).to(at::kLong).view(t.sizes()));
    };
    return {model_.Embed(characters(cases)), characters(cases[-1] + 1)};
  }

  at::Tensor LastLoss(const at::Tensor& h, const at::Tensor& target) override {
    return at::cross_entropy_loss(model_.Logits(h), target);
  }

 private:
  // Returns the mean bits per character of `text` [N]: minus the binary logarithm of the model's
  // probability.
  double Bits(const at::Tensor& text) {
    const int64_t length = (text.size(0) - 1) / kEvaluationStreams;
    const int64_t count = length * kEvaluationStreams;
    const auto columns = [&](int64_t from) {
      return text.slice(0, from, from + count).to(at::kLong).view({kEvaluationStreams, length}).t();
    };
    const at::Tensor x = OnDevice(columns(0)), next = OnDevice(columns(1));
    at::Tensor state = model_.ZeroState(kEvaluationStreams);
    double nats = 0;
    for (int64_t begin = 0; begin < length; begin += kEvaluationSteps) {
      Poll();
      const int64_t end = std::min(begin + kEvaluationSteps, length);
      const auto [logits, after] = model_.forward(x.slice(0, begin, end), state);
      nats += at::cross_entropy_loss(logits, next.slice(0, begin, end).flatten(), {},
                                     at::Reduction::Sum)
                  .item<double>();
      state = after;
    }
    return nats / static_cast<double>(count) / std::numbers::ln2;
  }

  const TextCorpus& corpus_;
  int64_t streams_, window_, sample_;
  double temperature_;
  CharModel model_;
  int64_t first_ = 0;          // first case of the epoch, with a zero state before it
  int64_t stream_length_ = 1;  // cases of a stream in an epoch
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Character model";
  report.source = "Karpathy's char-rnn (2015)";
  report.compare = "cell";
  report.baseline = "lstm";
  report.panel = "batch_size";
  report.curves = {"train_bits", "valid_bits"};
  report.headline = "test_bits";
  report.targets = {{"valid_bits", {3, 2.5, 2.25, 2, 1.5, 1, 0.75}}};
  return report;
}

class CharLmTask final : public Task {
 public:
  CharLmTask() {
    name = "char-lm";
    summary = "character model: any recurrent cell on your own text";
    settings = EngineSettings({"cell", "lstm", "the recurrent cell", {}, {}, CellNames()});
    Default("batch_size", 32, "streams of text read in parallel");
    Default("epochs", 5, "passes over the training text");
    Default("lr", 3e-3, "Adam's learning rate");
    Default("evaluations_per_epoch", 4, "evaluations an epoch, and a few more in the first one");
    const std::vector<SettingSpec> own = {
        {"window", 64, "characters of truncated backpropagation through time", 1, 1 << 20, {}},
        {"hidden", 128, "units of each recurrent layer", 1, 65536, {}},
        {"layers", 1, "recurrent layers", 1, 64, {}},
        {"embedding", 64, "width of a character embedding", 1, 65536, {}},
        HeadsSetting(),
        GainSetting(),
        Choice(
            "unit", "character",
            "unit of the text, of which bits are counted: character of UTF-8, or byte of any file",
            {"character", "byte"}),
        {"characters", 400'000, "maximum number of units of the text", 1, 1e15, {}},
        {"sample", 300, "characters of the sample in the report", 1, 1'000'000, {}},
        {"temperature", 0.8, "temperature of the sample: logits are divided by it", 0.01, 100, {}},
    };
    AddSettings(own);
    data_settings = {"unit", "characters"};
    presets = {
        {"small", "128 units on 400,000 characters for 5 epochs: ten seconds a run", {}},
        {"shakespeare",
         "256 units on a text of a million characters for 20 epochs: five minutes a run",
         {{"hidden", 256},
          {"epochs", 20},
          {"lr", 2e-3},
          {"evaluations_per_epoch", 2},
          {"characters", 2'000'000}}},
        {"smoke",
         "16 units on 10,000 characters for 2 epochs: a test that it runs",
         {{"hidden", 16},
          {"embedding", 8},
          {"batch_size", 8},
          {"window", 16},
          {"epochs", 2},
          {"evaluations_per_epoch", 1},
          {"characters", 10'000},
          {"sample", 60}}},
    };
    metrics = MetricsPer("char");
    choose_by = "valid_bits";
    report = MakeReport();
  }

  std::vector<MetricSpec> MetricsOf(const Settings& s) const override {
    return MetricsPer(UnitOf(s) == TextUnit::kByte ? "byte" : "char");
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    return SplitText(OpenText(path, s.Int("characters"), UnitOf(s)), name, kEvaluationStreams + 1);
  }

  std::optional<PackedData> Pack(const Dataset& data) const override { return PackText(data); }
  std::unique_ptr<Dataset> Unpack(const Settings& /*settings*/,
                                  const PackedData& packed) const override {
    return UnpackText(packed);
  }

  void Check(const Settings& s, const Dataset& data) const override {
    CheckRecurrent(s.Text("cell"), {.hidden = s.Int("hidden"), .heads = s.Int("heads")});
    if (HasBatchNorm(s.Text("cell"))) CheckBatchNorm(s);
    CheckStreams(data.about.sizes.at("train"), s.Int("batch_size"), s.Int("window"));
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    Check(s, data);
    return std::make_unique<CharLm>(s, dynamic_cast<const TextCorpus&>(data));
  }

 private:
  static TextUnit UnitOf(const Settings& s) {
    return s.Text("unit") == "byte" ? TextUnit::kByte : TextUnit::kCharacter;
  }

  static std::vector<MetricSpec> MetricsPer(const std::string& unit) {
    const std::string bits = "bits/" + unit;
    return {
        {kTrainLoss, "training loss of the batches", "nats/" + unit, true},
        {"train_bits", "training loss", bits, true},
        {"valid_bits", "validation loss", bits, true},
        {"test_bits", "test loss", bits, true},
    };
  }

  static void CheckBatchNorm(const Settings& s) {
    const int64_t streams = s.Int("batch_size"), shards = s.Int("shards");
    if (streams < 2 * shards) {
      throw UsageError(fmt::format(
          "[char-lm] batch_size must be at least {} for batch norm, got {}", 2 * shards, streams));
    }
    if (s.Flag("sync_batch_norm")) {
      throw UsageError(
          "[train] sync_batch_norm must be false in char-lm, whose batch norm has statistics for "
          "each time step, got true");
    }
  }
};

}  // namespace

std::unique_ptr<Task> MakeCharLm() { return std::make_unique<CharLmTask>(); }

}  // namespace planish::lab
