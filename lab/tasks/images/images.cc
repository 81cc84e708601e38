#include "lab/tasks/images/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/data/digits.h"
#include "lab/engine/archive_reader.h"
#include "lab/error.h"
#include "lab/tasks/digit_cases.h"
#include "lab/tasks/images/image_files.h"
#include "lab/tasks/mnist-cnn/classifier.h"
#include "lab/tasks/mnist-cnn/model.h"
#include "lab/tasks/pi-mnist/classifier.h"
#include "lab/tasks/split_settings.h"

namespace planish::lab {

namespace {

// Maximum number of drawn digits, for training and as a share of it for validation and test each.
constexpr int64_t kMaxSynthetic = 10'000, kSyntheticShare = 4;

Colors ColorsOf(const std::string& name) {
  return name == "grey" ? Colors::kGrey : name == "color" ? Colors::kColor : Colors::kAuto;
}

// Returns drawn digits, as many for training as the setting train_cases allows.
std::unique_ptr<DigitCases> DrawnCases(const Settings& settings) {
  const int64_t train = std::min(settings.Int("train_cases"), kMaxSynthetic);
  const int64_t held_out = std::max<int64_t>(train / kSyntheticShare, 10);
  const ImageSet set = DrawDigits({.train = train + held_out, .test = held_out});
  return CutCases(set, {.train = train, .valid = held_out, .test = held_out});
}

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Images";
  report.source = "your own classes, with the models of mnist-cnn and pi-mnist";
  report.compare = "norm";
  report.baseline = "layer";
  report.panel = "model";
  report.curves = {"train_nll", "valid_nll", "valid_accuracy"};
  report.headline = "test_accuracy";
  report.targets = {{"valid_accuracy", {0.5, 0.75, 0.9, 0.95, 0.98}}};
  return report;
}

class ImagesTask final : public ImageTask, public ArchiveReader {
 public:
  ImagesTask() {
    name = "images";
    summary =
        "images of your own, PNG, JPEG, idx, npy or npz, in their classes: a convolutional network "
        "or "
        "an MLP";
    settings = EngineSettings(NormSetting(NormNames()));
    Default("batch_size", 32);
    Default("epochs", 20);
    AddSettings({Choice("model", "cnn",
                        "cnn: two convolutions and a linear layer (mnist-cnn); mlp: linear layers "
                        "(pi-mnist)",
                        {"cnn", "mlp"})});
    AddSettings(NormDetails());
    AddSettings(CnnSettings());
    AddSettings(MlpSettings());
    AddDataSettings({
        Choice("color", "auto", "auto: color if an image has it; grey or color: converted",
               {"auto", "grey", "color"}),
        {"train_cases", 10'000'000, "maximum number of training images", 1, 1e9, {}},
    });
    AddDataSettings(SplitSettings());
    AddMetrics("accuracy");
    presets = {
        {"small", "the whole network for 5 epochs", {{"epochs", 5}}},
        {"paper", "20 epochs, as in mnist-cnn", {}},
        {"smoke",
         "64 or 32 units on 512 images for 2 epochs: a test that it runs",
         {{"hidden", 64}, {"width", 32}, {"train_cases", 512}, {"epochs", 2}}},
    };
    report = MakeReport();
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& path) const override {
    if (!path) return DrawnCases(s);
    return ReadImageFiles(*path, {.colors = ColorsOf(s.Text("color")), .sets = SplitOptionsOf(s)});
  }

  bool ReadsArchive(const std::filesystem::path& file) const override { return IsNpz(file); }

  void Check(const Settings& s, const Dataset& data) const override {
    Task::Check(s, data);
    const ImageShape& shape = dynamic_cast<const DigitCases&>(data).shape;
    if (s.Text("model") == "cnn" && std::min(shape.height, shape.width) < kMinCnnSide) {
      throw UsageError(fmt::format(
          "[images] model must be mlp for images of {} x {} pixels, got cnn, which needs {} x {}",
          shape.height, shape.width, kMinCnnSide, kMinCnnSide));
    }
  }

  std::unique_ptr<Experiment> MakeExperiment(const Settings& s,
                                             const DigitCases& data) const override {
    Check(s, data);
    if (s.Text("model") == "cnn") return MakeCnnClassifier(s, data);
    constexpr bool kTestCurves = false;
    return MakeMlpClassifier(s, data, "accuracy", kTestCurves);
  }
};

}  // namespace

std::unique_ptr<Task> MakeImages() { return std::make_unique<ImagesTask>(); }

}  // namespace planish::lab
