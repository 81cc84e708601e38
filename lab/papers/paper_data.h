#ifndef PLANISH_LAB_PAPERS_PAPER_DATA_H_
#define PLANISH_LAB_PAPERS_PAPER_DATA_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "lab/run/results.h"

namespace planish::lab {

/// A data set of a paper, recognised by its contents.
struct PaperData {
  std::string_view name;    ///< as PaperColumn::data and ClaimSpec::data name it
  std::string_view sha256;  ///< RunConfig::Data::sha256 of this version of the set
  int64_t train;            ///< cases that the paper trains on: RunConfig::Data::sizes["train"]
};

/// Every data set whose checksum is known. A set with several versions has a row for each.
std::span<const PaperData> KnownPaperData();

/// Returns true if data with that checksum is the data set `name`.
bool IsPaperData(std::string_view name, std::string_view sha256);

/// What a run can say about a paper.
enum class Evidence {
  kVerdict,    ///< it can agree or differ
  kSmoke,      ///< a run of preset "smoke", which only shows that the task runs
  kOtherData,  ///< its data is another set than the paper's, or one whose checksum is not known
  kFewCases,   ///< it trained on less than kMinTrainShare of the paper's cases
};

/// Smallest share of the paper's training cases that a verdict needs.
inline constexpr double kMinTrainShare = 0.1;

/// The rule that decides which runs get a verdict on what a paper prints for the data set
/// `paper_data` (empty: one whose checksum is not known). Neither file names nor
/// RunConfig::Data::name have a part in it.
Evidence EvidenceOf(const RunConfig& config, std::string_view paper_data);

/// Returns "smoke run: no verdict" and the like; empty for kVerdict.
std::string_view EvidenceText(Evidence evidence);

/// Returns true if runs of this preset are smoke runs.
bool IsSmoke(std::string_view preset);

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_PAPER_DATA_H_
