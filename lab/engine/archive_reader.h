#ifndef PLANISH_LAB_ENGINE_ARCHIVE_READER_H_
#define PLANISH_LAB_ENGINE_ARCHIVE_READER_H_

#include <filesystem>

namespace planish::lab {

/// Implemented by tasks whose data can be an archive. LoadData refuses other archives.
class ArchiveReader {
 public:
  virtual ~ArchiveReader() = default;

  /// Returns true if Task::Load reads the file as an archive, by its name.
  virtual bool ReadsArchive(const std::filesystem::path& file) const = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_ARCHIVE_READER_H_
