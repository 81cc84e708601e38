#ifndef PLANISH_LAB_THEORY_PAIRED_TRAINING_H_
#define PLANISH_LAB_THEORY_PAIRED_TRAINING_H_

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/engine/optimizer.h"
#include "lab/engine/settings.h"
#include "lab/engine/task.h"
#include "lab/tasks/digit_cases.h"
#include "lab/tasks/pi-mnist/model.h"
#include "lab/theory/analyses.h"

// Training of the model of permutation-invariant MNIST (Ba, Kiros & Hinton 2016, 6.6) with several
// norms, for analyses that compare them. Norms of a seed start from the same weights and see the
// same batches, those of `planish train pi-mnist` with this seed.
namespace planish::lab {

/// One training, update by update.
class DigitTraining {
 public:
  /// `data` must outlive the training. Throws what Task::Make throws.
  DigitTraining(const Settings& settings, const DigitCases& data, const std::string& optimizer,
                double learning_rate, int64_t seed);

  PixelMlp& model() { return model_; }

  /// Returns the cases of the next update.
  at::Tensor NextBatch();

  /// Updates the weights once, with NextBatch. Returns the loss before the update; if it is not
  /// finite, the weights are unchanged.
  double Step();

 private:
  std::unique_ptr<Experiment> experiment_;
  PixelMlp& model_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t seed_, epoch_ = -1, next_ = 0;
  EpochPlan plan_;
};

/// A norm and an optimizer whose trainings are compared.
struct TrainingCase {
  std::string norm, optimizer;

  /// Returns "layer sgd".
  std::string Name() const { return norm + " " + optimizer; }
};

/// Trainings of an analysis.
class PairedTrainings {
 public:
  /// Returns the settings that the constructor reads, with these defaults.
  static std::vector<AnalysisSetting> SettingsWith(double depth, double steps);

  /// Returns the lists "norm" and "optimizer".
  static std::vector<AnalysisList> ListsWith(std::vector<std::string> norms,
                                             std::vector<std::string> optimizers);

  /// Loads the data, which `result` then names. `analysis` begins errors. `probe`: validation
  /// cases. Throws UsageError if a batch has more cases than there are, and what LoadData throws.
  PairedTrainings(std::string analysis, const AnalysisSettings& settings, int64_t probe,
                  TheoryResult& result);

  /// Returns all optimizers with all norms.
  std::vector<TrainingCase> Cases() const;

  const DigitCases& data() const { return *data_; }
  int64_t steps() const { return settings_.Whole("steps"); }
  int64_t seeds() const { return settings_.Whole("seeds"); }
  double LearningRate(const std::string& optimizer) const;

  /// Calls train(cases[i], index, i) for each training number and case.
  template <class Train>
  void ForEach(const std::vector<TrainingCase>& cases, const Train& train) const {
    for (int64_t index = 0; index < seeds(); ++index) {
      for (size_t i = 0; i < cases.size(); ++i) {
        settings_.ShowProgress(fmt::format("{}, training {} of {}", cases[i].Name(),
                                           static_cast<size_t>(index) * cases.size() + i + 1,
                                           static_cast<size_t>(seeds()) * cases.size()));
        train(cases[i], index, i);
      }
    }
  }

  /// Starts training number `index` of a case. Its seed is the setting's plus `index`.
  DigitTraining Start(const TrainingCase& which, int64_t index) const;

  /// Updates the weights once. Throws UsageError if the loss is not finite.
  void Step(const TrainingCase& which, DigitTraining& training) const;

  /// Returns the sizes for captions: "784-64-64-10, 200 updates of 64 cases, 5 seeds".
  std::string Description() const;

 private:
  Settings SettingsOf(const std::string& norm) const;

  std::string analysis_;
  const AnalysisSettings& settings_;
  int64_t probe_;
  std::unique_ptr<Dataset> owned_;
  const DigitCases* data_;
};

/// Cases by the sign of a 95% interval.
class SignedCases {
 public:
  /// `above` and `below` say what a case does whose interval is above or below 0: "grow".
  SignedCases(std::string above, std::string below)
      : above_{std::move(above), {}, 0}, below_{std::move(below), {}, 0} {}

  /// Adds a case by SureSign(estimate).
  void Add(const std::string& name, const Estimate& estimate);

  int above() const { return above_.count; }
  int below() const { return below_.count; }
  int all() const { return above_.count + below_.count + unclear_.count; }

  /// Returns "grow: batch sgd, layer sgd; cannot tell: layer adam".
  std::string Text() const;

 private:
  struct List {
    std::string name, cases;
    int count = 0;
  };
  List above_, below_, unclear_{"cannot tell", {}, 0};
};

/// Adds exp of the mean of a logarithm, and its 95% interval: "1.21-1.22".
void AddFactor(const Estimate& log, int digits, std::vector<TheoryCell>& row);

/// Returns a line through at most 200 of the values of steps 1, 2, ....
TheoryLine LineOf(std::string name, const std::vector<double>& values);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_PAIRED_TRAINING_H_
