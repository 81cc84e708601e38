#include "lab/tasks/mnist-cnn/mnist_cnn.h"

#include "lab/tasks/digit_cases.h"
#include "lab/tasks/mnist-cnn/classifier.h"

namespace planish::lab {

namespace {

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "MNIST with a convolutional network";
  report.source = "Xu et al. 2019, Tables 1, 2, 3 and 4";
  report.compare = "norm";
  report.baseline = "layer";
  report.panel = "norm_at";
  report.curves = {"train_nll", "valid_nll", "valid_accuracy"};
  report.headline = "test_accuracy";
  report.targets = {{"valid_accuracy", {0.95, 0.97, 0.98, 0.985, 0.99}}};
  return report;
}

class MnistCnnTask final : public DigitTask {
 public:
  MnistCnnTask() {
    name = "mnist-cnn";
    summary = "MNIST with two convolutions and a linear layer (Xu et al. 2019, 2.2, Tables 1-4)";
    settings = EngineSettings(NormSetting(NormNames()));
    Default("batch_size", 32);
    Default("epochs", 20);
    AddSettings(NormDetails());
    AddSettings(CnnSettings());
    AddDigits("accuracy");
    presets = {
        {"small",
         "the same network and cases for 5 epochs: a minute a run on one core",
         {{"epochs", 5}}},
        {"paper", "55,000 cases for 20 epochs, as printed", {}},
        {"smoke",
         "the same network on 512 cases for 2 epochs: a test that it runs",
         {{"train_cases", 512}, {"valid_cases", 128}, {"test_cases", 128}, {"epochs", 2}}},
    };
    report = MakeReport();
  }

  std::unique_ptr<Experiment> MakeExperiment(const Settings& s,
                                             const DigitCases& data) const override {
    return MakeCnnClassifier(s, data);
  }
};

}  // namespace

std::unique_ptr<Task> MakeMnistCnn() { return std::make_unique<MnistCnnTask>(); }

}  // namespace planish::lab
