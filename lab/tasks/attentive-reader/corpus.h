#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_CORPUS_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/task.h"
#include "lab/tasks/attentive-reader/cloze.h"

namespace planish::lab {

/// Questions as indices: entity n is n, then come the unknown word and the others.
struct NumberedQuestions {
  at::Tensor passages;          ///< [N, longest] int32, padded with the unknown word
  at::Tensor passage_lengths;   ///< [N] int64
  at::Tensor questions;         ///< [N, longest] int32, padded likewise
  at::Tensor question_lengths;  ///< [N] int64
  at::Tensor answers;           ///< [N] int64, the entity

  int64_t size() const { return answers.size(0); }
};

struct ReaderCorpus final : Dataset {
  NumberedQuestions train, valid, test;
  int64_t entities = 0;              ///< E
  int64_t symbols = 0;               ///< entities, the unknown word and the others
  std::vector<ClozeQuestion> shown;  ///< first validation questions, for the report
  std::vector<std::string> texts;    ///< of the words of `shown`, in the order of ClozeWords
};

/// Returns the questions that ReadQuestions finds in `folder`, else MakeBookCloze's from its books;
/// without a folder, MakeCloze's. Reads the settings of ReaderDataSettings. Throws DataError if
/// there are neither questions nor books, and like these functions.
std::unique_ptr<ReaderCorpus> LoadReaderCorpus(const Settings& settings,
                                               const std::optional<std::filesystem::path>& folder);

/// Returns the settings that determine the data.
std::vector<SettingSpec> ReaderDataSettings();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_CORPUS_H_
