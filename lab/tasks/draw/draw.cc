#include "lab/tasks/draw/draw.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lab/engine/capabilities.h"
#include "lab/tasks/draw/cases.h"
#include "lab/tasks/draw/model.h"
#include "lab/tasks/draw/picture.h"

namespace planish::lab {

namespace {

// Number of first training cases in the training bound.
constexpr int64_t kTrainProbe = 5'000;
// Cases per evaluation batch: enough for fast GEMMs, and their canvases stay in cache.
constexpr int64_t kEvaluationBatch = 200;
// Seed of the noise of codes in every evaluation of every run, so that differences between norms
// and evaluations come only from the models.
constexpr uint64_t kEvaluationSeed = 1;
// Pictures that the trained model draws, and the maximum of shown glimpses of each.
constexpr int64_t kSamples = 8;
constexpr int64_t kShown = 16;

// Norms and their LSTMs.
const std::vector<std::pair<std::string, std::string>>& Cells() {
  static const std::vector<std::pair<std::string, std::string>> cells = {
      {"none", "lstm"}, {"layer", "draw-lstm"}, {"layer-full", "ln-lstm"}};
  return cells;
}

std::string CellOf(const std::string& norm) {
  return std::ranges::find(Cells(), norm, &std::pair<std::string, std::string>::first)->second;
}

class Draw final : public Experiment, public Illustrator {
 public:
  Draw(const Settings& s, const BinaryCases& data)
      : data_(data),
        batch_size_(s.Int("batch_size")),
        glimpses_(s.Int("glimpses")),
        latents_(s.Int("latents")),
        model_({.cell = CellOf(s.Text("norm")),
                .composed = s.Text("cell") == "composed",
                .hidden = s.Int("hidden"),
                .latents = latents_,
                .read = s.Int("read"),
                .write = s.Int("write"),
                .epsilon = s.Real("eps"),
                .gain = s.Real("gain")}) {}

  torch::nn::Module& model() override { return model_; }

  EpochPlan PlanEpoch(at::Generator& generator) override {
    return ShuffledBatches(data_.train.size(0), batch_size_, generator);
  }

  // Returns images [B, 784] and the noise of their codes [T, B, Z].
  Tensors Batch(const at::Tensor& cases) override {
    return {data_.train.index_select(0, cases).to(at::kFloat),
            at::randn({glimpses_, cases.size(0), latents_})};
  }

  at::Tensor Loss(const Tensors& batch) override {
    const auto [reconstruction, kl] = model_.forward(batch[0], batch[1]);
    return (reconstruction + kl).mean();
  }

  Values Evaluate() override {
    Values values;
    Measure("train", data_.train.slice(0, 0, kTrainProbe), &values);
    Measure("valid", data_.valid, &values);
    Measure("test", data_.test, &values);
    return values;
  }

  std::vector<RunResult::Sample> Samples(at::Generator& generator) override {
    return {{fmt::format("{} digits, one a row, after glimpse {} of {}; red: where it wrote",
                         kSamples, fmt::join(ShownGlimpses(glimpses_, kShown), ", "), glimpses_),
             "", DrawImages(kSamples, generator)}};
  }

  std::string DrawImages(int64_t count, at::Generator& generator) override {
    const auto [canvases, windows] =
        model_.Generate(OnDevice(at::randn({glimpses_, count, latents_}, generator)));
    return DrawCanvases({canvases.cpu(), windows.cpu()}, ShownGlimpses(glimpses_, kShown));
  }

 private:
  void Measure(const std::string& split, const at::Tensor& images, Values* values) {
    at::Generator generator = at::detail::createCPUGenerator(kEvaluationSeed);
    const int64_t count = images.size(0);
    double reconstruction = 0, kl = 0;
    for (int64_t begin = 0; begin < count; begin += kEvaluationBatch) {
      Poll();
      const int64_t end = std::min(begin + kEvaluationBatch, count);
      const at::Tensor noise = at::randn({glimpses_, end - begin, latents_}, generator);
      const auto bound =
          model_.forward(OnDevice(images.slice(0, begin, end).to(at::kFloat)), OnDevice(noise));
      reconstruction += bound.reconstruction.sum().item<double>();
      kl += bound.kl.sum().item<double>();
    }
    (*values)[split + "_bound"] = (reconstruction + kl) / static_cast<double>(count);
    (*values)[split + "_kl"] = kl / static_cast<double>(count);
  }

  const BinaryCases& data_;
  int64_t batch_size_, glimpses_, latents_;
  DrawModel model_;
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Binarized MNIST with DRAW";
  report.source = "Ba, Kiros & Hinton 2016, section 6.4 and Figure 4";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "glimpses";
  report.curves = {"test_bound", "valid_bound"};
  report.headline = "test_bound";
  report.targets = {{"test_bound", {200, 150, 120, 110, 100, 95, 90, 85}}};
  report.notes = {
      "The bound is estimated with one code for each image, from the same noise for every norm and "
      "evaluation.",
      "The paper does not print these values: codes of 100 variables, a reading grid of 2 x 2 and "
      "a writing grid of 5 x 5 (as in Gregor et al. 2015); gradients clipped to norm 10, the "
      "initial weights, and initial biases and states of 0 (our choice).",
  };
  return report;
}

class DrawTask final : public Task {
 public:
  DrawTask() {
    name = "draw";
    summary = "DRAW, a recurrent net that draws binarized MNIST (Ba et al. 2016, 6.4, Fig 4)";
    std::vector<std::string> norms;
    for (const auto& [norm, cell] : Cells()) norms.push_back(norm);
    SettingSpec norm = NormSetting(norms);
    norm.help = "norm of both LSTMs; layer: only of c at the output, layer-full: also of the gates";
    settings = EngineSettings(norm);
    Default("epochs", 200);
    Default("clip", 10.0);
    AddSettings({
        CellSetting("the LSTMs"),
        {"glimpses", 64, "number of glimpses", 1, 4096, {}},
        {"hidden", 256, "units of each LSTM", 1, 65536, {}},
        {"latents", 100, "size of a glimpse's code", 1, 65536, {}},
        {"read", 2, "filters of the reading grid in each direction", 1, 28, {}},
        {"write", 5, "filters of the writing grid in each direction", 1, 28, {}},
        EpsSetting(),
        GainSetting(),
    });
    AddDataSettings(BinaryCaseSettings());
    presets = {
        {"small",
         "16 glimpses and LSTMs of 128 on 10,000 cases for 15 epochs: minutes a run on one core",
         {{"glimpses", 16},
          {"hidden", 128},
          {"latents", 50},
          {"batch_size", 64},
          {"train_cases", 10000},
          {"valid_cases", 1000},
          {"test_cases", 2000},
          {"epochs", 15},
          {"evaluations_per_epoch", 2}}},
        {"paper", "64 glimpses and LSTMs of 256 on 50,000 cases for 200 epochs, as printed", {}},
        {"smoke",
         "4 glimpses and LSTMs of 16 on 256 cases for 2 epochs: a test that it runs",
         {{"glimpses", 4},
          {"hidden", 16},
          {"latents", 8},
          {"batch_size", 32},
          {"train_cases", 256},
          {"valid_cases", 64},
          {"test_cases", 64},
          {"epochs", 2}}},
    };
    metrics = {{kTrainLoss, "training loss of the batches", "nats", true}};
    for (const auto& [split, label] :
         {std::pair("train", "training"), {"valid", "validation"}, {"test", "test"}}) {
      metrics.push_back(
          {fmt::format("{}_bound", split), fmt::format("{} bound", label), "nats", true});
      metrics.push_back({fmt::format("{}_kl", split), fmt::format("{} KL", label), "nats", true});
    }
    choose_by = "valid_bound";
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& folder) const override {
    return LoadBinaryCases(s, folder);
  }

  // Drawing needs nothing of the data.
  std::optional<PackedData> Pack(const Dataset& /*data*/) const override { return PackedData(); }
  std::unique_ptr<Dataset> Unpack(const Settings& /*settings*/,
                                  const PackedData& /*packed*/) const override {
    auto cases = std::make_unique<BinaryCases>();
    cases->train = cases->valid = cases->test = at::empty({0, 784}, at::kByte);
    return cases;
  }

  std::unique_ptr<Experiment> Make(const Settings& s, const Dataset& data) const override {
    return std::make_unique<Draw>(s, dynamic_cast<const BinaryCases&>(data));
  }
};

}  // namespace

std::unique_ptr<Task> MakeDraw() { return std::make_unique<DrawTask>(); }

}  // namespace planish::lab
