#ifndef PLANISH_LAB_TASKS_SENTENCE_TASK_H_
#define PLANISH_LAB_TASKS_SENTENCE_TASK_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/sentences.h"
#include "lab/engine/task.h"

namespace planish::lab {

/// Base of the tasks that classify sentences with a Transformer encoder (Xu et al. 2019, 2.2).
/// docs/tasks/rt.md says which settings the paper has and which are chosen here.
class SentenceTask : public Task {
 public:
  std::unique_ptr<Dataset> Load(const Settings& settings,
                                const std::optional<std::filesystem::path>& folder) const override;
  void Check(const Settings& settings, const Dataset& data) const override;
  std::unique_ptr<Experiment> Make(const Settings& settings, const Dataset& data) const override;

 protected:
  /// Sets settings, presets, metrics and the report, except its title and source. Synthetic
  /// sentences have `classes` classes.
  SentenceTask(std::string name, int64_t classes);

  /// Reads the task's sets from the files below `folder`.
  virtual SentenceSets Read(const Settings& settings,
                            const std::filesystem::path& folder) const = 0;

  /// Adds the metric test_loss. The runs of Xu et al.'s tasks do not have it.
  void AddTestLoss();

  int64_t classes() const { return classes_; }

 private:
  int64_t classes_;
  bool has_test_loss_ = false;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SENTENCE_TASK_H_
