#ifndef PLANISH_LAB_TASKS_MNIST_CNN_CLASSIFIER_H_
#define PLANISH_LAB_TASKS_MNIST_CNN_CLASSIFIER_H_

#include <memory>
#include <vector>

#include "lab/engine/settings.h"
#include "lab/tasks/digit_cases.h"

namespace planish::lab {

/// Returns the settings of DigitCnn: norm_at and hidden.
std::vector<SettingSpec> CnnSettings();

/// Makes an experiment that classifies images by DigitCnn and measures accuracies. Reads the
/// settings norm, batch_size, CnnSettings and NormDetails. `data` must outlive the experiment, and
/// its images must have kMinCnnSide or more pixels on each side.
std::unique_ptr<DigitExperiment> MakeCnnClassifier(const Settings& settings,
                                                   const DigitCases& data);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MNIST_CNN_CLASSIFIER_H_
