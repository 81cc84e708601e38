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

// Images, known by rows of numbers that describe them, with captions.
namespace planish::lab {

inline constexpr int64_t kCaptionsPerImage = 5;

/// A row of numbers for each image. Rows have the Euclidean length 1, or are all 0. Either all
/// numbers are in `dense`, or `dense` is empty and the others have those that are not 0.
struct FeatureRows {
  int64_t rows = 0, width = 0;
  std::vector<float> dense;  ///< [rows, width]
  /// Row r has values[begins[r]] .. values[begins[r + 1] - 1] in these columns.
  std::vector<int64_t> begins = {};
  std::vector<int32_t> columns = {};
  std::vector<float> values = {};

  /// The first `count` rows alone stay.
  void Cut(int64_t count);
};

/// Images with their captions. Captions 5 i to 5 i + 4 are of image i.
struct CaptionedImages {
  FeatureRows images;
  std::vector<std::string> captions;

  int64_t size() const { return images.rows; }
};

/// Which images are wanted.
struct CaptionRequest {
  /// "multi30k", "files" or "made"; "auto" for files where the folder has train_ims.npy, else
  /// multi30k, and made without a folder.
  std::string data = "auto";
  /// So many training images are used, the first ones.
  int64_t train_images = std::numeric_limits<int64_t>::max();
  /// Width of the rows that are computed from descriptions: of multi30k and made.
  int64_t features = 4096;
};

/// Captioned images with what RunConfig::Data records of them.
struct CaptionSets {
  CaptionedImages train, valid, test;
  /// Whether captions are words already, with blanks between them: WordsOf takes them as they are.
  bool tokenised = false;
  std::string name;         ///< "multi30k", "made scenes", or the folder's name
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< of what was read or made
};

/// Reads captioned images, or makes them.
///
/// - files: {train,dev,test}_ims.npy and {train,dev,test}_caps.txt in `folder`, the form in which
///   features of COCO, Flickr8k and Flickr30k are passed on: an array [images, width], and five
///   lines for each image. The set is called as the folder is, without "_precomp". Rows are divided
///   by their length. The order of dimensions is NumPy's; a blank caption is one without words.
/// - multi30k: {train,val,test_2016}.{1..5}.{en,de} in `folder`, or in task2 or multi30k/task2
///   below it: five English and five German descriptions of each image, of which there is no
///   picture. The English ones are the captions. What stands for the image is made of the German
///   ones: HashedTfidf of the training set.
/// - made: MakeScenes, 2,000 images for training and 200 each for validation and test, with
///   HashedTfidf of their descriptions.
///
/// Files are plain or gzip, with or without ".gz" in their names. Throws UsageError for a set that
/// needs a folder without one; DataError for missing files, other numbers of lines than five an
/// image (of rows, of lines of the first file), arrays that are not [images, width] of one width
/// and finite, a split without images, and what ReadNpy and ReadLines throw.
CaptionSets OpenCaptions(const std::optional<std::filesystem::path>& folder,
                         const CaptionRequest& request);

/// The words of a caption. As they stand between blanks where it is `tokenised`; else in small
/// letters (ASCII's and Latin-1's), without punctuation: runs of letters and digits, with
/// apostrophes and hyphens inside them.
std::vector<std::string> WordsOf(std::string_view caption, bool tokenised);

/// Frequencies of a text's words, weighted: the number of times that words occur whose hash is the
/// column, times ln((1 + N) / (1 + n)) + 1, where n of the N texts that it is made from have such a
/// word (Salton & Buckley 1988, in scikit-learn's smoothed form), the row divided by its length.
/// The hash is FNV-1a of 64 bits, modulo the width.
class HashedTfidf {
 public:
  /// From texts, `lines_each` lines of `lines` for each of them.
  HashedTfidf(int64_t width, std::span<const std::string> lines, int64_t lines_each);

  /// Rows of other texts of as many lines each.
  FeatureRows Rows(std::span<const std::string> lines) const;

 private:
  int64_t lines_each_;
  std::vector<double> weights_;  // of each column
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_CAPTIONS_H_
