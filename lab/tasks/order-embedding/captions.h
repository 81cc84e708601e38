#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_CAPTIONS_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_CAPTIONS_H_

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Images, represented by feature rows, with captions.
namespace planish::lab {

inline constexpr int64_t kCaptionsPerImage = 5;

/// Feature row for each image, of Euclidean length 1 or all 0. Either all elements are in `dense`,
/// or `dense` is empty and the other members have the nonzero elements.
struct FeatureRows {
  int64_t rows = 0, width = 0;
  std::vector<float> dense;  ///< [rows, width]
  /// Row r has values[begins[r]] .. values[begins[r + 1] - 1] in these columns.
  std::vector<int64_t> begins = {};
  std::vector<int32_t> columns = {};
  std::vector<float> values = {};

  /// Keeps only the first `count` rows.
  void Cut(int64_t count);
};

/// Images with their captions. Captions 5 i to 5 i + 4 belong to image i.
struct CaptionedImages {
  FeatureRows images;
  std::vector<std::string> captions;

  int64_t size() const { return images.rows; }
};

/// Set of images and its size.
struct CaptionRequest {
  /// "multi30k", "files" or "synthetic"; "auto" for files if the folder has train_ims.npy, else
  /// multi30k, and synthetic without a folder.
  std::string data = "auto";
  /// Maximum number of training images: the first ones.
  int64_t train_images = std::numeric_limits<int64_t>::max();
  /// Width of the rows computed from descriptions: of multi30k and synthetic.
  int64_t features = 4096;
};

/// Captioned images with the fields of RunConfig::Data.
struct CaptionSets {
  CaptionedImages train, valid, test;
  /// Set if captions are words separated by blanks, which WordsOf then leaves unchanged.
  bool tokenized = false;
  std::string name;         ///< "multi30k", "synthetic scenes", or the folder's name
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of the data as read or generated
};

/// Reads or generates captioned images. docs/data.md lists the files of each set,
/// docs/tasks/order-embedding.md the features. Rows of features are divided by their length. A
/// blank caption has no words. Throws UsageError if the set needs a folder. Throws DataError for
/// missing files, a number of captions other than five for each image, malformed arrays, or a split
/// without images, and like ReadNpy and ReadLines.
CaptionSets OpenCaptions(const std::optional<std::filesystem::path>& folder,
                         const CaptionRequest& request);

/// Returns the words of a caption. If it is `tokenized`, splits at blanks. Otherwise returns runs
/// of letters and digits, with inner apostrophes and hyphens, in lower case (ASCII and Latin-1),
/// without punctuation.
std::vector<std::string> WordsOf(std::string_view caption, bool tokenized);

/// TF-IDF of hashed words (Salton & Buckley 1988, in scikit-learn's smoothed form). Each text gives
/// a row, divided by its length. A column is the count of the words with that hash, times ln((1 +
/// N) / (1 + n)) + 1. Such words are in n of the N training texts. The hash is FNV-1a of 64 bits,
/// modulo the width.
class HashedTfidf {
 public:
  /// Fits the weights to texts of `lines_each` lines of `lines` each.
  HashedTfidf(int64_t width, std::span<const std::string> lines, int64_t lines_each);

  /// Returns the rows of other texts with the same number of lines each.
  FeatureRows Rows(std::span<const std::string> lines) const;

 private:
  int64_t lines_each_;
  std::vector<double> weights_;  // of each column
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_CAPTIONS_H_
