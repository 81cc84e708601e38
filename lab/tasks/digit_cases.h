#ifndef PLANISH_LAB_TASKS_DIGIT_CASES_H_
#define PLANISH_LAB_TASKS_DIGIT_CASES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/images.h"
#include "lab/engine/task.h"

// Shared parts of the tasks that classify images, such as digits: images as tensors, and metrics of
// a classifier.
namespace planish::lab {

/// Images with their classes.
struct Cases {
  at::Tensor x;       ///< [N, height * width * channels] float, 0 .. 1, row by row
  at::Tensor labels;  ///< [N] int64
};

/// Images for training, validation and test; digits of 28 x 28 grey pixels by default.
struct DigitCases final : Dataset {
  Cases train, valid, test;
  ImageShape shape;
  int64_t classes = 10;
};

/// Returns the cases of the settings: the first training images for training, those after them for
/// validation, the first test images for testing. Throws UsageError naming the `task` if there are
/// fewer images.
std::unique_ptr<DigitCases> CutCases(std::string_view task, const Settings& settings,
                                     const ImageSet& set);

/// Numbers of cases.
struct CaseCounts {
  int64_t train = 0, valid = 0, test = 0;
};

/// Returns these numbers of cases: the first training images, those after them for validation, and
/// the first test images. The set must have as many.
std::unique_ptr<DigitCases> CutCases(const ImageSet& set, const CaseCounts& counts);

/// Returns the cases with these indices: images [B, pixels] and labels [B].
Tensors TakeCases(const Cases& cases, const at::Tensor& indices);

/// Returns the first `count` cases, or all if there are fewer: views.
Cases FirstCases(const Cases& cases, int64_t count);

/// Metrics of a classifier: means over cases.
struct Scores {
  double nll = 0;       ///< negative log-likelihood of the class, nats
  double error = 0;     ///< fraction of cases with another most likely class
  double accuracy = 0;  ///< 1 - error
  at::Tensor answers;   ///< [N] int64, the most likely class of each case
};

/// Returns the metrics of the classifier `logits`, [B, pixels] -> [B, classes], called on `at_once`
/// cases at a time.
Scores Score(const std::function<at::Tensor(const at::Tensor&)>& logits, const Cases& cases,
             int64_t at_once);

/// Experiment that classifies images by `Logits`.
class DigitExperiment : public Experiment {
 public:
  struct Options {
    int64_t batch_size = 0;
    int64_t train_probe = 0;       ///< number of first training cases in the training metrics
    int64_t evaluation_batch = 0;  ///< cases per evaluation batch
    std::string metric = "error";  ///< beside the NLL: "error" or "accuracy"
    bool test_curves = false;      ///< set if each evaluation also measures the test set
  };
  /// `data` must outlive the experiment.
  DigitExperiment(const Options& options, const DigitCases& data)
      : options_(options), data_(data) {}

  EpochPlan PlanEpoch(at::Generator& generator) override;
  Tensors Batch(const at::Tensor& cases) override;
  at::Tensor Loss(const Tensors& batch) override;
  Values Evaluate() override;
  Values Test() override;

 protected:
  /// x: [N, pixels] -> [N, classes], in the model's mode.
  virtual at::Tensor Logits(const at::Tensor& x) = 0;

  const DigitCases& data() const { return data_; }

 private:
  Scores Measure(const std::string& split, const Cases& cases, Values* values);

  Options options_;
  const DigitCases& data_;
};

/// Task of such an experiment.
class ImageTask : public Task {
 public:
  /// Throws UsageError for batch norm on batches of one case, which have no variance.
  std::unique_ptr<Experiment> Make(const Settings& settings, const Dataset& data) const final;

 protected:
  /// Adds the metrics; `metric` is that of DigitExperiment::Options. It chooses the best
  /// evaluation.
  void AddMetrics(const std::string& metric);

  virtual std::unique_ptr<Experiment> MakeExperiment(const Settings& settings,
                                                     const DigitCases& data) const = 0;
};

/// Task with digits of MNIST's format.
class DigitTask : public ImageTask {
 public:
  /// Returns CutCases of MNIST in `folder`, or of drawn digits. Also throws like OpenDigits.
  std::unique_ptr<Dataset> Load(const Settings& settings,
                                const std::optional<std::filesystem::path>& folder) const override;

 protected:
  /// Adds the settings train_cases, valid_cases and test_cases, by default 55,000, 5,000 and
  /// 10,000, and the metrics.
  void AddDigits(const std::string& metric);
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DIGIT_CASES_H_
