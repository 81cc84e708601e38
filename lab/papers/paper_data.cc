#include "lab/papers/paper_data.h"

#include <array>

#include "lab/data/idx.h"

namespace planish::lab {

std::span<const PaperData> KnownPaperData() {
  // The checksums are RunConfig::Data::sha256 as the loaders compute them, not those of files.
  static constexpr std::array kData = {
      PaperData{"mnist", kMnistSha256, 55'000},
      // As the task images reads it.
      PaperData{"mnist", "5d9852dbde5264a2eb089b99c00a7518ad68b9bbe9475f508330b09c9ba8785e",
                60'000},
      PaperData{"binarized mnist",
                "018ea321ea0de0016a7b4045ad31dab0857d99e0c30c5ca59e07b987f33580ab", 50'000},
      // The UTF-8 version that is distributed with code for sentence classification.
      PaperData{"rt", "ca1789389a3cf2fafead1bad622ea85aaebbcf4d55e19400be339973d9c28e26",
                kRtTrainCases},
      // The original files, converted from Windows-1252 to UTF-8.
      PaperData{"rt", "f5c66e37f8e268e02f39895849af1a80dbfeca4b9275d8cff35720cda2647e66",
                kRtTrainCases},
      PaperData{"sst5", "94af91a2e5fd68ce3a118c7159b24026380625e6fc9921f76b68b8c03848f131", 8544},
      PaperData{"enwik8", "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
                90'000'000},
  };
  return kData;
}

namespace {

const PaperData* Find(std::string_view name, std::string_view sha256) {
  for (const PaperData& data : KnownPaperData()) {
    if (data.name == name && data.sha256 == sha256) return &data;
  }
  return nullptr;
}

}  // namespace

bool IsPaperData(std::string_view name, std::string_view sha256) {
  return Find(name, sha256) != nullptr;
}

bool IsSmoke(std::string_view preset) { return preset == "smoke"; }

Evidence EvidenceOf(const RunConfig& config, std::string_view paper_data) {
  if (IsSmoke(config.preset)) return Evidence::kSmoke;
  const PaperData* data = Find(paper_data, config.data.sha256);
  if (!data) return Evidence::kOtherData;
  const auto train = config.data.sizes.find("train");
  const bool enough =
      train != config.data.sizes.end() &&
      static_cast<double>(train->second) >= kMinTrainShare * static_cast<double>(data->train);
  return enough ? Evidence::kVerdict : Evidence::kFewCases;
}

std::string_view EvidenceText(Evidence evidence) {
  switch (evidence) {
    case Evidence::kVerdict:
      return "";
    case Evidence::kSmoke:
      return "smoke run: no verdict";
    case Evidence::kOtherData:
      return "other or unknown data";
    case Evidence::kFewCases:
      return "trained on under a tenth of the paper's cases: no verdict";
  }
  return "";
}

}  // namespace planish::lab
