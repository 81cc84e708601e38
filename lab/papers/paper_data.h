#ifndef PLANISH_LAB_PAPERS_PAPER_DATA_H_
#define PLANISH_LAB_PAPERS_PAPER_DATA_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "lab/run/results.h"

namespace planish::lab {

/// Data set of a paper, identified by its contents.
struct PaperData {
  std::string_view name;    ///< name in PaperColumn::data and ClaimSpec::data
  std::string_view sha256;  ///< RunConfig::Data::sha256 of this version of the set
  int64_t train;            ///< cases that the paper trains on: RunConfig::Data::sizes["train"]
};

/// Training cases of RT in Xu et al. 2019.
inline constexpr int64_t kRtTrainCases = 8608;

/// Returns every data set whose checksum is known. A set with several versions has a row for each.
std::span<const PaperData> KnownPaperData();

/// Returns true if data with that checksum is the data set `name`.
bool IsPaperData(std::string_view name, std::string_view sha256);

/// Value of a run as evidence about a paper.
enum class Evidence {
  kVerdict,    ///< it can agree or differ
  kSmoke,      ///< preset "smoke", which only shows that the task runs
  kOtherData,  ///< data differs from the paper's, or its checksum is unknown
  kFewCases,   ///< it trained on less than kMinTrainShare of the paper's cases
};

/// Smallest fraction of the paper's training cases for a verdict.
inline constexpr double kMinTrainShare = 0.1;

/// Returns whether a run gets a verdict on values printed for the data set `paper_data` (empty: its
/// checksum is unknown). File names and RunConfig::Data::name play no part.
Evidence EvidenceOf(const RunConfig& config, std::string_view paper_data);

/// Returns text like "smoke run: no verdict"; empty for kVerdict.
std::string_view EvidenceText(Evidence evidence);

/// Returns true if runs of this preset are smoke runs.
bool IsSmoke(std::string_view preset);

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_PAPER_DATA_H_
