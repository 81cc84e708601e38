#ifndef PLANISH_LAB_TASKS_PI_MNIST_CLASSIFIER_H_
#define PLANISH_LAB_TASKS_PI_MNIST_CLASSIFIER_H_

#include <memory>
#include <string>
#include <vector>

#include "lab/engine/settings.h"
#include "lab/tasks/digit_cases.h"

namespace planish::lab {

/// Returns the settings of PixelMlp: width, depth and bn_variance.
std::vector<SettingSpec> MlpSettings();

/// Makes an experiment that classifies images by PixelMlp. Reads the settings norm, batch_size,
/// MlpSettings, and NormDetails if the task has them. `metric` and `test_curves` are those of
/// DigitExperiment::Options. `data` must outlive the experiment.
std::unique_ptr<DigitExperiment> MakeMlpClassifier(const Settings& settings, const DigitCases& data,
                                                   const std::string& metric, bool test_curves);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PI_MNIST_CLASSIFIER_H_
