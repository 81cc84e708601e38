#include "lab/tasks/enwik8/enwik8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "lab/engine/capabilities.h"
#include "lab/engine/streams.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/model/transformer_xl.h"
#include "lab/tasks/enwik8/bytes.h"
#include "lab/tasks/text_corpus.h"

namespace planish::lab {

namespace {

class Enwik8 final : public Experiment, public TextSampler {
 public:
  Enwik8(const Settings& s, const TextCorpus& corpus)
      : corpus_(corpus),
        streams_(s.Int("batch_size")),
        target_(s.Int("target")),
        reach_{.memory = s.Int("memory")},
        eval_target_(s.Int("eval_target")),
        eval_reach_{.memory = s.Int("eval_memory")},
        test_target_(s.Int("test_target")),
        test_reach_{.memory = s.Int("test_memory"),
                    .window = s.Flag("test_same_length") ? s.Int("test_memory") : 0,
                    .clamp = s.Int("test_clamp")},
        eval_streams_(s.Int("eval_streams")),
        eval_bytes_(s.Int("eval_bytes")),
        test_bytes_(s.Int("test_bytes")),
        sample_(s.Int("sample")),
        temperature_(s.Real("temperature")),
        model_({.symbols = corpus.vocabulary.size(),
                .layers = s.Int("layers"),
                .width = s.Int("width"),
                .heads = s.Int("heads"),
                .head_width = s.Int("head_width"),
                .inner = s.Int("inner"),
                .dropout = s.Real("dropout"),
                .attention_dropout = s.Real("attention_dropout"),
                .norm = s.Text("norm"),
                .norm_options = NormOptionsOf(s),
                .placement = PlacementOf(s.Text("placement")),
                .qk_norm = s.Flag("qk_norm"),
                .deviation = s.Real("init")}),
        memory_(model_.register_buffer(
            "memory", at::zeros({s.Int("layers"), streams_, reach_.memory, s.Int("width")}))),
        remembered_(model_.register_buffer("remembered", at::zeros({}, at::kLong))) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    EpochPlan plan = StreamedBatches(corpus_.train.size(0), streams_, target_, generator);
    first_ = plan.order[0].item<int64_t>();
    stream_length_ = plan.order.size(0) / streams_;
    return plan;
  }

  at::Tensor ShardOfBatch(const at::Tensor& batch, const Shard& shard) const override {
    return ShardOfStreams(batch, streams_, shard);
  }
  Tensors StreamStates() override { return {memory_.movedim(1, 0)}; }

  // Returns bytes [B, T], the next bytes [B * T], and true at the start of a pass.
  Tensors Batch(const at::Tensor& cases) override {
    const int64_t streams = shard().End(streams_) - shard().Begin(streams_);
    const at::Tensor by_stream = cases.view({-1, streams}).t().flatten();
    return {corpus_.train.index_select(0, by_stream).to(at::kLong).view({streams, -1}),
            corpus_.train.index_select(0, by_stream + 1).to(at::kLong),
            (cases[0] - first_).remainder(stream_length_) == 0};
  }

  at::Tensor Loss(const Tensors& batch) override {
    if (batch[2].item<bool>()) remembered_.zero_();
    SegmentMemory memory = Remembered();
    const at::Tensor logits = model_.forward(batch[0], memory, reach_);
    Remember(memory);
    return at::cross_entropy_loss(logits, batch[1]);
  }

  Values Evaluate() override {
    return {{"train_bits", Bits(corpus_.train, eval_bytes_, eval_target_, eval_reach_)},
            {"valid_bits", Bits(corpus_.valid, eval_bytes_, eval_target_, eval_reach_)}};
  }

  Values Test() override {
    return {{"test_bits", Bits(corpus_.test, test_bytes_, test_target_, test_reach_)}};
  }

  std::vector<RunResult::Sample> Samples(at::Generator& generator) override {
    return {{fmt::format("{} bytes at temperature {:g}", sample_, temperature_),
             Sample("", sample_, temperature_, generator)}};
  }

  std::string Sample(const std::string& prompt, int64_t length, double temperature,
                     at::Generator& generator) override {
    SegmentMemory memory;
    return WriteText(
        corpus_.vocabulary, prompt, length, temperature, generator, [&](const at::Tensor& bytes) {
          at::Tensor logits;
          for (const at::Tensor& segment : bytes.split(eval_target_)) {
            logits = model_.forward(OnDevice(segment.unsqueeze(0)), memory, eval_reach_);
          }
          return logits[-1].cpu();
        });
  }

 private:
  // Returns the part of memory_ that belongs to the shard.
  at::Tensor Streams() const {
    return memory_.slice(1, shard().Begin(streams_), shard().End(streams_));
  }

  // Returns the memory after the last batch: a copy, because backward reads the memory that
  // Remember replaces.
  SegmentMemory Remembered() const {
    const auto count = remembered_.item<int64_t>();
    if (count == 0) return {};
    return Streams().slice(2, memory_.size(2) - count).clone().unbind(0);
  }

  void Remember(const SegmentMemory& memory) {
    if (memory.empty()) return;
    const int64_t count = memory[0].size(1);
    for (size_t i = 0; i < memory.size(); ++i) {
      Streams()[static_cast<int64_t>(i)].slice(1, memory_.size(2) - count).copy_(memory[i]);
    }
    remembered_.fill_(count);
  }

  // Returns the mean bits per byte of the first `max_bytes` bytes of `text` [N]: minus the binary
  // logarithm of the model's probability. Reads parallel pieces, each from an empty memory.
  double Bits(const at::Tensor& text, int64_t max_bytes, int64_t target, const Reach& reach) {
    const int64_t length = std::min(text.size(0) - 1, max_bytes) / eval_streams_;
    const int64_t count = length * eval_streams_;
    const auto rows = [&](int64_t from) {
      return text.slice(0, from, from + count).to(at::kLong).view({eval_streams_, length});
    };
    const at::Tensor x = OnDevice(rows(0)), next = OnDevice(rows(1));
    SegmentMemory memory;
    double nats = 0;
    for (int64_t begin = 0; begin < length; begin += target) {
      Poll();
      const int64_t end = std::min(begin + target, length);
      const at::Tensor logits = model_.forward(x.slice(1, begin, end), memory, reach);
      nats += at::cross_entropy_loss(logits, next.slice(1, begin, end).flatten(), {},
                                     at::Reduction::Sum)
                  .item<double>();
    }
    return nats / static_cast<double>(count) / std::numbers::ln2;
  }

  const TextCorpus& corpus_;
  int64_t streams_, target_;
  Reach reach_;
  int64_t eval_target_;
  Reach eval_reach_;
  int64_t test_target_;
  Reach test_reach_;
  int64_t eval_streams_, eval_bytes_, test_bytes_, sample_;
  double temperature_;
  TransformerXl model_;
  at::Tensor memory_;          // [layers, B, M, width], the last `remembered_` of M positions
  at::Tensor remembered_;      // [], int64
  int64_t first_ = 0;          // first case of the epoch, with an empty memory before it
  int64_t stream_length_ = 1;  // cases of a stream in an epoch
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Enwiki8: Transformer-XL on bytes";
  report.source = "Xu et al. 2019, section 2.2; model of Dai et al. 2019";
  report.compare = "norm";
  report.baseline = "layer";
  report.panel = "placement";
  report.curves = {"train_bits", "valid_bits"};
  report.headline = "test_bits";
  report.targets = {{"valid_bits", {4, 3.5, 3, 2.75, 2.5, 2.25, 2, 1.5, 1.25}}};
  return report;
}

// Maximum length of a segment or memory.
constexpr double kMaxPositions = 1 << 20;

// Returns the settings of the model.
std::vector<SettingSpec> ModelSettings() {
  return {
      {"layers", 12, "layers, each of attention and feed-forward", 1, 1000, {}},
      {"width", 512, "width of the model", 1, 65536, {}},
      {"heads", 8, "heads of attention", 1, 1024, {}},
      {"head_width", 64, "width of a head", 1, 65536, {}},
      {"inner", 2048, "units of the feed-forward part", 1, 1 << 20, {}},
      {"dropout", 0.1, "dropout of embeddings, sinusoids and sublayers", 0, 0.99, {}},
      {"attention_dropout", 0.0, "dropout of attention's probabilities", 0, 0.99, {}},
      {"init", 0.02, "standard deviation of the initial weights", 0, 1e3, {}},
  };
}

// Returns the lengths of segments and memories in training, evaluations and the test.
std::vector<SettingSpec> SegmentSettings() {
  return {
      {"target", 512, "bytes of each stream in a batch", 1, kMaxPositions, {}},
      {"memory", 512, "remembered positions of earlier batches in training", 0, kMaxPositions, {}},
      {"eval_target", 128, "target of evaluations", 1, kMaxPositions, {}},
      {"eval_memory", 896, "memory of evaluations and samples", 0, kMaxPositions, {}},
      {"eval_streams", 10, "pieces of a text that are evaluated in parallel", 1, 65536, {}},
      {"eval_bytes",
       100'000'000,
       "maximum number of bytes for training and validation metrics",
       1,
       1e15,
       {}},
      {"test_target", 80, "target of the test", 1, kMaxPositions, {}},
      {"test_memory", 2100, "memory of the test", 0, kMaxPositions, {}},
      {"test_same_length",
       true,
       "in the test all positions see as many positions as the memory has",
       {},
       {},
       {}},
      {"test_clamp",
       820,
       "in the test larger distances count as this one; 0: no limit",
       0,
       kMaxPositions,
       {}},
      {"test_bytes", 100'000'000, "maximum number of bytes for the test", 1, 1e15, {}},
  };
}

// Returns the settings of the text and of the sample in the report.
std::vector<SettingSpec> TextSettings() {
  return {
      {"bytes", 100'000'000, "maximum number of bytes of the text", 1, 1e15, {}},
      {"sample", 300, "bytes of the sample in the report", 1, 1'000'000, {}},
      {"temperature", 0.8, "temperature of the sample: logits are divided by it", 0.01, 100, {}},
  };
}

std::vector<Preset> MakePresets() {
  return {
      {"small",
       "8 layers of 64 on 1,600,000 bytes for an epoch: three minutes a run on one core",
       {{"layers", 8},        {"width", 64},          {"heads", 2},
        {"head_width", 32},   {"inner", 256},         {"target", 64},
        {"memory", 64},       {"eval_target", 64},    {"eval_memory", 128},
        {"eval_streams", 16}, {"eval_bytes", 32'768}, {"test_target", 64},
        {"test_memory", 256}, {"test_clamp", 128},    {"test_bytes", 65'536},
        {"bytes", 1'600'000}, {"batch_size", 16},     {"epochs", 1},
        {"lr", 4e-3},         {"init", 0.05},         {"evaluations_per_epoch", 4}}},
      {"paper", "12 layers of 512 for 50 epochs, on enwik8 about the 400,000 updates", {}},
      {"smoke",
       "2 layers of 16 on 10,000 bytes for 2 epochs: a test that it runs",
       {{"layers", 2},
        {"width", 16},
        {"heads", 2},
        {"head_width", 8},
        {"inner", 32},
        {"target", 32},
        {"memory", 32},
        {"eval_target", 32},
        {"eval_memory", 64},
        {"eval_streams", 4},
        {"test_target", 16},
        {"test_memory", 96},
        {"test_clamp", 48},
        {"bytes", 10'000},
        {"batch_size", 8},
        {"epochs", 2},
        {"lr", 1e-2},
        {"evaluations_per_epoch", 1},
        {"sample", 60}}},
  };
}

std::vector<MetricSpec> MakeMetrics() {
  const std::string bits = "bits/byte";
  return {
      {kTrainLoss, "training loss of the batches", "nats/byte", true},
      {"train_bits", "training loss", bits, true},
      {"valid_bits", "validation loss", bits, true},
      {"test_bits", "test loss", bits, true},
  };
}

class Enwik8Task final : public Task {
 public:
  Enwik8Task() {
    name = "enwik8";
    summary = "Transformer-XL on the bytes of a text (Xu et al. 2019, Enwiki8)";
    settings = EngineSettings(NormSetting(RowNormNames("layer")));
    Default("batch_size", 22, "streams of text read in parallel");
    Default("epochs", 50, "passes over the training text");  // of enwik8: 399,450 updates
    Default("lr", 2.5e-4);
    Default("schedule", "cosine");
    Default("clip", 0.25);
    Default("evaluations_per_epoch", 2);
    AddSettings(NormDetails());
    AddSettings(PlacementSettings("post", {kPreNoFinalName}));
    AddSettings(ModelSettings());
    AddSettings(SegmentSettings());
    AddSettings(TextSettings());
    data_settings = {"bytes", "eval_streams"};
    presets = MakePresets();
    metrics = MakeMetrics();
    choose_by = "valid_bits";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    return SplitText(OpenBytes(path, s.Int("bytes")), name, s.Int("eval_streams") + 1);
  }

  std::optional<PackedData> Pack(const Dataset& data) const override { return PackText(data); }
  std::unique_ptr<Dataset> Unpack(const Settings& /*settings*/,
                                  const PackedData& packed) const override {
    return UnpackText(packed);
  }

  void Check(const Settings& s, const Dataset& data) const override {
    CheckStreams(data.about.sizes.at("train"), s.Int("batch_size"), s.Int("target"), "target");
    for (const char* max_bytes : {"eval_bytes", "test_bytes"}) {
      if (s.Int(max_bytes) < s.Int("eval_streams")) {
        throw UsageError(fmt::format("[enwik8] {} must be at least eval_streams = {}, got {}",
                                     max_bytes, s.Int("eval_streams"), s.Int(max_bytes)));
      }
    }
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    Check(s, data);
    return std::make_unique<Enwik8>(s, dynamic_cast<const TextCorpus&>(data));
  }
};

}  // namespace

std::unique_ptr<Task> MakeEnwik8() { return std::make_unique<Enwik8Task>(); }

}  // namespace planish::lab
