#ifndef PLANISH_SRC_BASE_TUNING_H_
#define PLANISH_SRC_BASE_TUNING_H_

#include <cstdint>
#include <string>
#include <string_view>

// Parameters that adapt work to the caches of the machine and divide it among threads. No value of
// `Tuning` changes a result. See docs/tuning.md for the measurements.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Elements that are worth a thread: about ten microseconds of work, against one or two to wake a
/// thread.
inline constexpr int64_t kGrainElements = int64_t{1} << 15;

/// Multiply-adds of a matrix product that are worth a thread.
inline constexpr int64_t kGrainProducts = int64_t{1} << 19;

/// Multiply-adds of a recurrent step that are worth a thread. Lower, because the threads wait for
/// each step anyway.
inline constexpr int64_t kGrainStepProducts = int64_t{1} << 17;

/// Bytes of input that norms over channels read twice, for sums and for the output, as one tile.
/// Larger than most L2 caches: a wider tile reads longer runs of each sample, which outweighs
/// reading from the L3 cache the second time. Determines the order of sums of ChannelNormBackward.
inline constexpr int64_t kTileBytes = int64_t{1} << 22;

// --- End of tuning constants ---

/// Caches of a processor.
struct Caches {
  int64_t l1_bytes = int64_t{32} << 10;  ///< L1 data cache of a core
  int64_t l2_bytes = int64_t{1} << 20;   ///< L2 cache of a core
  int64_t l3_bytes = int64_t{32} << 20;  ///< L3 cache of a core; without one, its L2 cache
  int64_t l3_cores = 1;                  ///< cores that share this L3 cache
};

/// Caches, and the thresholds that follow from them.
struct Tuning : Caches {
  /// Set if a core reads hardly faster from the L3 cache than from memory.
  bool slow_l3;

  /// Set if the L1 cache holds the same columns of four rows of dy, x and dx. This includes strides
  /// of a power of two, at which rows map to the same sets.
  bool l1_holds_four_rows;

  /// Bytes read and written by a call, or by one thread of it, from which outputs use non-temporal
  /// stores. Below them ordinary stores are faster; above them they read the lines that they
  /// overwrite.
  int64_t nt_store_call_bytes;
  int64_t nt_store_thread_bytes;

  /// Bytes saved for backward from which a recurrent layer saves with non-temporal stores.
  int64_t nt_store_saved_bytes;

  /// Bytes read and written by a thread above which it prefetches the lines of its outputs, unless
  /// they use non-temporal stores.
  int64_t prefetch_output_bytes;

  /// Largest packed weights, in bytes, for which threads of a recurrent layer split the batch and
  /// each reads all weights. With larger weights threads split the columns and meet twice a step.
  int64_t own_weight_bytes;

  /// Bytes of a tile of channels with long runs of elements. Even tiles of few channels then read
  /// contiguous memory. At most kTileBytes are used.
  int64_t run_tile_bytes;

  /// Rows from which batch norm does not tile its columns. For more rows, updating partial sums
  /// costs more than a second pass over the input.
  int64_t untiled_rows;
};

/// Returns the caches that the system reports, with the defaults of Caches for those that it does
/// not.
Caches MachineCaches();

/// Returns the caches that Linux reports in `processors`, /sys/devices/system/cpu or a copy of it,
/// with the values of `caches` for those that it does not.
Caches CachesIn(const std::string& processors, Caches caches = {});

/// Returns the tuning for `caches` with the fields that `overrides` lists, for example
/// "l2_bytes=2097152,slow_l3=1". Fields that it does not list follow from those that it lists.
/// Throws ArgumentError if a field or value is not valid.
Tuning TuningFor(Caches caches, std::string_view overrides = "");

/// Returns the tuning in use: TuningFor MachineCaches() and the environment variable
/// PLANISH_TUNING, which are read at the first call. If PLANISH_TUNING is not valid, every call
/// throws ArgumentError.
const Tuning& CurrentTuning();

/// Uses another tuning during its lifetime, for tests. Must not be created or destroyed while
/// another thread computes.
class ScopedTuning {
 public:
  explicit ScopedTuning(const Tuning& tuning);
  ScopedTuning(const ScopedTuning&) = delete;
  ScopedTuning& operator=(const ScopedTuning&) = delete;
  ~ScopedTuning();

 private:
  Tuning before_;
};

/// Returns whether a thread with `part` of the `whole` of a call that reads and writes `bytes` uses
/// non-temporal stores.
inline bool UsesNtStores(int64_t bytes, int64_t part, int64_t whole) {
  const Tuning& tuning = CurrentTuning();
  return bytes >= tuning.nt_store_call_bytes ||
         static_cast<double>(bytes) * static_cast<double>(part) >=
             static_cast<double>(tuning.nt_store_thread_bytes) * static_cast<double>(whole);
}

/// Returns whether a thread with `part` of the `whole` of a call that reads and writes `bytes`
/// prefetches the lines of its outputs.
inline bool PrefetchesOutput(int64_t bytes, int64_t part, int64_t whole) {
  return static_cast<double>(bytes) * static_cast<double>(part) >
         static_cast<double>(CurrentTuning().prefetch_output_bytes) * static_cast<double>(whole);
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_TUNING_H_
