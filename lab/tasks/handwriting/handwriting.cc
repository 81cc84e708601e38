#include "lab/tasks/handwriting/handwriting.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "lab/engine/batches.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/model/recurrent.h"
#include "lab/tasks/handwriting/corpus.h"
#include "lab/tasks/handwriting/mixture.h"
#include "lab/tasks/handwriting/model.h"
#include "lab/tasks/handwriting/strokes.h"
#include "lab/tasks/handwriting/svg.h"
#include "lab/tasks/handwriting/window.h"

namespace planish::lab {

namespace {

// Lines per evaluation batch.
constexpr int64_t kEvaluationLines = 16;
// Pixels of the mean deviation of an offset in pictures.
constexpr double kPixels = 4;
// Bias of the samples in the report.
constexpr double kSampleBias = 0.5;
// Steps between polls for a stop while writing a text.
constexpr int64_t kPollSteps = 64;

class Writing final : public Experiment, public HandWriter {
 public:
  Writing(const Settings& s, const HandwritingCorpus& corpus)
      : corpus_(corpus),
        batch_size_(s.Int("batch_size")),
        samples_(s.Int("samples")),
        floor_(s.Real("floor")),
        model_({.norm = s.Text("norm"),
                .composed = s.Text("cell") == "composed",
                .alphabet = corpus.alphabet.size(),
                .hidden = s.Int("hidden"),
                .heads = s.Int("heads"),
                .window = s.Int("window"),
                .mixture = s.Int("mixture"),
                .epsilon = s.Real("eps"),
                .gain = s.Real("gain"),
                .advance = s.Real("advance"),
                .clip_outputs = s.Real("clip_outputs"),
                .clip_layers = s.Real("clip_layers")}) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    return ShuffledBatches(corpus_.train.size(), batch_size_, generator);
  }

  // Returns LineSet::Batch.
  Tensors Batch(const at::Tensor& cases) override { return corpus_.train.Batch(cases); }

  at::Tensor Loss(const Tensors& batch) override {
    return Nats(batch).sum() / static_cast<double>(batch[0].size(1));
  }

  Values Evaluate() override {
    Values values;
    // Uses as many training lines as validation lines.
    Measure(corpus_.train, std::min(corpus_.train.size(), corpus_.valid.size()), "train", values);
    Measure(corpus_.valid, corpus_.valid.size(), "valid", values);
    return values;
  }

  Values Test() override {
    Values values;
    Measure(corpus_.test, corpus_.test.size(), "test", values);
    return values;
  }

  std::vector<RunResult::Sample> Samples(at::Generator& generator) override {
    const LineSet& valid = corpus_.valid;
    std::vector<RunResult::Sample> samples;
    for (int64_t i = 0; i < std::min(samples_, valid.size()); ++i) {
      const std::string& text = valid.texts[static_cast<size_t>(i)];
      if (i == 0) {
        samples.push_back({fmt::format("from the validation data: {}", text), "",
                           Picture(corpus_.Trace(valid.Line(i)), text)});
      }
      const Request request{.text = text, .bias = kSampleBias, .steps = DefaultSteps(text)};
      samples.push_back({fmt::format("by the model, bias {:g}: {}", kSampleBias, text), "",
                         Draw(request, generator).svg});
    }
    return samples;
  }

  Written Write(const Request& request, at::Generator& generator) override {
    const std::vector<int64_t> symbols = corpus_.alphabet.Encode(request.text);
    const std::vector<std::string_view> characters = CharactersOf(request.text);
    std::vector<std::string> unknown;
    for (size_t i = 0; i < symbols.size(); ++i) {
      // Characters that share a symbol have no shape of their own.
      if (symbols[i] != Alphabet::kOther && corpus_.known[static_cast<size_t>(symbols[i])])
        continue;
      const std::string name = fmt::format("\"{}\"", characters[i]);
      if (std::ranges::find(unknown, name) == unknown.end()) unknown.push_back(name);
    }
    if (!unknown.empty()) {
      throw UsageError(fmt::format("[write] TEXT has characters that the model has not learned: {}",
                                   fmt::join(unknown, ", ")));
    }
    if (request.prime && corpus_.valid.size() == 0) {
      throw UsageError("[write] --prime-case must go with a run: an exported model has no lines");
    }
    if (request.prime && *request.prime >= corpus_.valid.size()) {
      throw UsageError(
          fmt::format("[write] --prime-case must be below {}, the lines of the validation data, "
                      "got {}",
                      corpus_.valid.size(), *request.prime));
    }
    return Draw(request, generator);
  }

 private:
  // Returns the nats of every point [S] of a batch.
  at::Tensor Nats(const Tensors& batch) {
    const double scale = 1 / static_cast<double>(batch[0].size(1));
    const at::Tensor y = model_.forward(batch[0], batch[1], batch[2], scale);
    return MixtureNats(y.flatten(0, 1).index_select(0, batch[3]), batch[4], floor_);
  }

  // Computes mean nats of a line and of a point over the first `count` lines.
  void Measure(const LineSet& set, int64_t count, const std::string& name, Values& values) {
    const at::Tensor order = set.steps.slice(0, 0, count).argsort(/*stable=*/true, 0, false);
    double nats = 0;
    for (const at::Tensor& lines : order.split(kEvaluationLines)) {
      Poll();
      nats += Nats(OnDevice(set.Batch(lines))).sum().item<double>();
    }
    values[name + "_nats"] = nats / static_cast<double>(count);
    values[name + "_point_nats"] = nats / set.steps.slice(0, 0, count).sum().item<double>();
  }

  Written Draw(const Request& request, at::Generator& generator) {
    std::string text = request.text;
    at::Tensor given = at::zeros({1, 3});
    if (request.prime) {
      given = corpus_.valid.Line(*request.prime);
      text = corpus_.valid.texts[static_cast<size_t>(*request.prime)] + " " + text;
    }
    const at::Tensor symbols = OnDevice(SymbolsOf(corpus_.alphabet.Encode(text)));
    HandwritingModel::Pen pen = model_.Start(1);
    at::Tensor y;
    for (int64_t i = 0; i < given.size(0); ++i) {
      if (i % kPollSteps == 0) Poll();
      y = model_.Step(OnDevice(given.slice(0, i, i + 1)), symbols, pen);
    }
    // A line begins with the first point of its strokes; a primed line continues elsewhere.
    std::vector<at::Tensor> rows;
    if (!request.prime) rows.push_back(given);
    Written written;
    for (int64_t step = 0; step < request.steps && !written.whole; ++step) {
      if (step % kPollSteps == 0) Poll();
      const auto point = SampleMixture(y[0].cpu(), floor_, request.bias, generator);
      rows.push_back(at::tensor({point[0], point[1], point[2]}).unsqueeze(0));
      y = model_.Step(OnDevice(rows.back()), symbols, pen);
      written.whole = HasPassed(pen.raw, pen.positions, symbols.size(1));
    }
    written.svg = Picture(corpus_.Trace(at::cat(rows)), request.text);
    return written;
  }

  std::string Picture(const std::vector<PenPoint>& points, const std::string& text) const {
    const auto& deviation = corpus_.scale.deviation;
    return StrokesSvg(points, kPixels / std::sqrt(double{deviation[0]} * double{deviation[1]}),
                      text);
  }

  const HandwritingCorpus& corpus_;
  int64_t batch_size_, samples_;
  double floor_;
  HandwritingModel model_;
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Handwriting";
  report.source = "Ba, Kiros & Hinton 2016, 6.5 and Figure 5; model of Graves 2013, 5.2";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "length";
  report.curves = {"train_nats", "valid_nats"};
  report.headline = "test_nats";
  report.targets = {
      {"valid_nats", {1500, 1250, 1000, 750, 500, 250, 0, -250, -500, -750, -1000, -1250}}};
  report.notes = {
      "The paper says that the log likelihood converges to a comparable value with and without "
      "layer normalization; it prints no value.",
      "Nats are of pen offsets that are scaled to mean 0 and standard deviation 1 over the "
      "training lines.",
  };
  return report;
}

// Returns the settings of the model.
std::vector<SettingSpec> ModelSettings() {
  return {
      CellSetting("the recurrent layers"),
      EpsSetting(),
      GainSetting(),
      {"hidden", 400, "units of each of the three layers", 1, 65536, {}},
      HeadsSetting(),
      {"window", 10, "Gaussians of the window on the text", 1, 1000, {}},
      {"mixture", 20, "Gaussians of the next offset", 1, 1000, {}},
  };
}

// Returns the settings that the data depends on.
std::vector<SettingSpec> DataSettings() {
  return {
      {"length", 500, "maximum number of steps of a line", 1, 1e6, {}},
      Choice("alphabet", "paper",
             "paper: 57 symbols for letters, \" ,.'\" and all others; digits: also the digits",
             {"paper", "digits"}),
      {"lines", 5364, "maximum number of training lines", 1, 1e7, {}},
      {"held_out", 1500, "maximum number of lines for validation, and for the test", 1, 1e7, {}},
      {"symbols",
       "",
       "characters that the lines consist of, besides blanks; empty: all",
       {},
       {},
       {}},
      {"writers", "", "numbers of writers, such as \"1-20 33\"; empty: all", {}, {}, {}},
  };
}

// Returns the settings of gradients, of the mixture's deviations, and of the window at the start.
std::vector<SettingSpec> OutputSettings() {
  return {
      {"clip_outputs",
       100.0,
       "largest derivative of a line's nats by an output; 0: no limit",
       0,
       1e9,
       {}},
      {"clip_layers",
       10.0,
       "largest derivative of a line's nats by an output of a layer; 0: no limit",
       0,
       1e9,
       {}},
      {"floor",
       0.01,
       "added to deviations of the next offset, in units of the deviation of all offsets",
       1e-6,
       1,
       {}},
      {"advance", 0.04, "initial advance of the window in characters a step", 1e-6, 1e3, {}},
  };
}

std::vector<Preset> MakePresets() {
  return {
      {"small",
       "128 units on 800 lines of 500 steps for 5 epochs: two minutes a run on one core",
       {{"hidden", 128},
        {"alphabet", "digits"},
        {"lines", 800},
        {"held_out", 64},
        {"epochs", 5},
        {"lr", 8e-3},
        {"evaluations_per_epoch", 2}}},
      {"paper", "three layers of 400 on all lines; epochs and learning rate are not printed", {}},
      {"smoke",
       "16 units on 64 lines of 60 steps for 2 epochs: a test that it runs",
       {{"hidden", 16},
        {"window", 3},
        {"mixture", 3},
        {"length", 60},
        {"lines", 64},
        {"held_out", 8},
        {"batch_size", 4},
        {"epochs", 2},
        {"lr", 1e-2},
        {"samples", 1}}},
  };
}

std::vector<MetricSpec> MakeMetrics() {
  const std::string line = "nats/line", point = "nats/point";
  return {
      {kTrainLoss, "training loss of the batches", line, true},
      {"train_nats", "training loss", line, true},
      {"train_point_nats", "training loss", point, true},
      {"valid_nats", "validation loss", line, true},
      {"valid_point_nats", "validation loss", point, true},
      {"test_nats", "test loss", line, true},
      {"test_point_nats", "test loss", point, true},
  };
}

Alphabet AlphabetOf(const Settings& s) { return Alphabet(s.Text("alphabet") == "digits"); }

class HandwritingTask final : public Task {
 public:
  HandwritingTask() {
    name = "handwriting";
    summary = "pen strokes from text: three recurrent layers with a window (Ba et al. 2016, 6.5)";
    SettingSpec norm = NormSetting(HandwritingNorms());
    norm.help = "the norm of the three LSTMs; slstm: sLSTMs, which have no norm";
    norm.compared = {"layer", "none"};  // the others are formulas of other libraries
    settings = EngineSettings(norm);
    Default("batch_size", 8);
    Default("epochs", 50);
    Default("lr", 5e-4);
    AddSettings(ModelSettings());
    AddDataSettings(DataSettings());
    AddSettings(OutputSettings());
    AddSettings({{"samples", 3, "lines of the samples in the report", 0, 1000, {}}});
    presets = MakePresets();
    metrics = MakeMetrics();
    choose_by = "valid_nats";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    return std::make_unique<HandwritingCorpus>(
        OpenHandwriting(path, {.train = s.Int("lines"),
                               .held_out = s.Int("held_out"),
                               .symbols = s.Text("symbols"),
                               .writers = s.Text("writers")}),
        AlphabetOf(s), s.Int("length"));
  }

  std::optional<PackedData> Pack(const Dataset& data) const override {
    const auto& corpus = dynamic_cast<const HandwritingCorpus&>(data);
    return PackedData{.values = {{"known", corpus.known},
                                 {"offset_mean", corpus.scale.mean},
                                 {"offset_deviation", corpus.scale.deviation}},
                      .tensors = {}};
  }
  std::unique_ptr<Dataset> Unpack(const Settings& s, const PackedData& packed) const override {
    OffsetScale scale;
    packed.values.at("offset_mean").get_to(scale.mean);
    packed.values.at("offset_deviation").get_to(scale.deviation);
    for (const float deviation : scale.deviation) {
      if (!(deviation > 0) || !std::isfinite(deviation)) {
        throw std::invalid_argument(
            fmt::format("offset_deviation must be positive, got {}", deviation));
      }
    }
    return std::make_unique<HandwritingCorpus>(AlphabetOf(s), scale,
                                               packed.values.at("known").get<std::vector<bool>>());
  }

  void Check(const Settings& s, const Dataset& data) const override {
    Task::Check(s, data);
    CheckRecurrent(HandwritingCell(s.Text("norm")),
                   {.hidden = s.Int("hidden"), .heads = s.Int("heads")});
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    Check(s, data);
    return std::make_unique<Writing>(s, dynamic_cast<const HandwritingCorpus&>(data));
  }
};

}  // namespace

std::unique_ptr<Task> MakeHandwriting() { return std::make_unique<HandwritingTask>(); }

}  // namespace planish::lab
