#ifndef PLANISH_TESTS_READERS_READERS_H_
#define PLANISH_TESTS_READERS_READERS_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Every reader of files of the lab, for tests with damaged files: readers_test.cc and fuzz.cc.
namespace planish::lab {

/// Reader of one kind of file.
struct Reader {
  std::string name;  ///< also of its folder of valid files in seeds
  std::string file;  ///< name of the file that it reads
  /// Reads the file. Throws DataError, RunError or UsageError if it is malformed.
  void (*read)(const std::filesystem::path& file);
  /// Other files that it needs in the same folder: a valid file in seeds, and its name.
  std::vector<std::pair<std::string, std::string>> others = {};
};

/// Returns all readers.
const std::vector<Reader>& Readers();

/// Returns the reader called `name`. Throws std::out_of_range if there is none.
const Reader& FindReader(std::string_view name);

/// Runs a reader on contents of its file, in a folder of its own.
class ReaderTrial {
 public:
  /// Creates the folder's other files. `folder` must be empty.
  ReaderTrial(const Reader& reader, const std::filesystem::path& folder);

  /// Returns the error message of the reader for a file with these bytes, or "" if it accepts them.
  /// Other exceptions than DataError, RunError and UsageError pass through.
  std::string Read(std::string_view bytes) const;

  /// Returns what is wrong with a message. It must be one printable line with the path of the file
  /// or of its folder, and must not report that memory was short. Returns "" if it is right, or
  /// empty.
  std::string Check(std::string_view message) const;

 private:
  void (*read_)(const std::filesystem::path& file);
  std::filesystem::path file_;
};

/// Returns the valid files of a reader, sorted.
std::vector<std::filesystem::path> Seeds(const Reader& reader);

}  // namespace planish::lab

#endif  // PLANISH_TESTS_READERS_READERS_H_
