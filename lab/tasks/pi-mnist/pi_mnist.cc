#include "lab/tasks/pi-mnist/pi_mnist.h"

#include "lab/tasks/digit_cases.h"
#include "lab/tasks/pi-mnist/classifier.h"

namespace planish::lab {

namespace {

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Permutation-invariant MNIST";
  report.source = "Ba, Kiros & Hinton 2016, section 6.6 and Figure 6";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "batch_size";
  report.curves = {"train_nll", "test_error"};
  report.headline = "test_error";
  report.targets = {{"test_error", {0.1, 0.05, 0.03, 0.02, 0.015}}};
  return report;
}

class PiMnistTask final : public DigitTask {
 public:
  PiMnistTask() {
    name = "pi-mnist";
    summary =
        "permutation-invariant MNIST, a 784-1000-1000-10 network (Ba et al. 2016, 6.6, Fig 6)";
    settings = EngineSettings(NormSetting(NormNames()));
    AddSettings(MlpSettings());
    AddDigits("error");
    presets = {
        {"paper", "784-1000-1000-10 on 55,000 cases for 60 epochs, as printed", {}},
        {"small",
         "784-256-256-10 on 10,000 cases for 4 epochs: seconds a run on two cores",
         {{"width", 256},
          {"train_cases", 10000},
          {"valid_cases", 2000},
          {"test_cases", 5000},
          {"epochs", 4},
          {"evaluations_per_epoch", 4}}},
        {"smoke",
         "784-32-32-10 on 512 cases for 2 epochs: a test that it runs",
         {{"width", 32},
          {"train_cases", 512},
          {"valid_cases", 128},
          {"test_cases", 128},
          {"epochs", 2}}},
    };
    report = MakeReport();
  }

  std::unique_ptr<Experiment> MakeExperiment(const Settings& s,
                                             const DigitCases& data) const override {
    constexpr bool kTestCurves = true;  // as in the figure
    return MakeMlpClassifier(s, data, "error", kTestCurves);
  }
};

}  // namespace

std::unique_ptr<Task> MakePiMnist() { return std::make_unique<PiMnistTask>(); }

}  // namespace planish::lab
