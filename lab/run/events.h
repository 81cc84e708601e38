#ifndef PLANISH_LAB_RUN_EVENTS_H_
#define PLANISH_LAB_RUN_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "lab/run/posix_file.h"

namespace planish::lab {

/// Returns the CRC-32C (Castagnoli) of `bytes`, which TensorBoard's files use; zlib has another
/// CRC-32.
uint32_t Crc32c(std::span<const std::byte> bytes);

/// Returns one record of a TFRecord file: 8 bytes length, the length's masked CRC-32C, the payload,
/// and the payload's masked CRC-32C.
std::string FrameRecord(std::string_view payload);

/// Writer of scalars to a new TensorBoard event file.
class EventWriter {
 public:
  /// Creates "events.out.tfevents.<unix time>.<host>.<pid>" in `folder`, which must exist.
  /// TensorBoard drops points of earlier files in the folder at `first_step` or later: a run
  /// resumed from a checkpoint at step s passes s + 1.
  /// `now` returns the wall time in seconds since 1970. Throws RunError if the file cannot be
  /// written.
  explicit EventWriter(const std::filesystem::path& folder, int64_t first_step = 0,
                       std::function<double()> now = WallTime);

  /// Appends the values (tag -> value) at `step` with one write. TensorBoard stores floats: a value
  /// beyond their range becomes infinite. Throws RunError if the file cannot be written, or has
  /// been removed, moved or replaced.
  void Scalars(int64_t step, const std::map<std::string, double>& values);

  const std::filesystem::path& path() const { return path_; }

  /// Returns the system's clock in seconds since 1970.
  static double WallTime();

 private:
  void Write(std::string_view record);

  std::function<double()> now_;
  std::filesystem::path path_;
  FileDescriptor fd_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_EVENTS_H_
