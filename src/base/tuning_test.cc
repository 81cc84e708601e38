#include "src/base/tuning.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "planish/error.h"
#include "src/base/facts.h"

namespace planish::internal {
namespace {

constexpr int64_t kKilobyte = int64_t{1} << 10, kMegabyte = int64_t{1} << 20;
constexpr Caches kZen4 = {
    .l1_bytes = 32 * kKilobyte, .l2_bytes = kMegabyte, .l3_bytes = 32 * kMegabyte, .l3_cores = 8};
constexpr Caches kXeon = {.l1_bytes = 48 * kKilobyte,
                          .l2_bytes = 2 * kMegabyte,
                          .l3_bytes = 480 * kMegabyte,
                          .l3_cores = 120};

TEST(TuningTest, ThresholdsFollowFromAFastL3Cache) {
  const Tuning t = TuningFor(kZen4);
  EXPECT_EQ(t.l2_bytes, kMegabyte);
  EXPECT_FALSE(t.slow_l3);
  EXPECT_FALSE(t.l1_holds_four_rows);
  EXPECT_EQ(t.nt_store_call_bytes, 24 * kMegabyte);
  EXPECT_EQ(t.nt_store_thread_bytes, 16 * kMegabyte);
  EXPECT_EQ(t.nt_store_saved_bytes, 24 * kMegabyte);
  EXPECT_EQ(t.prefetch_output_bytes, INT64_MAX);
  EXPECT_EQ(t.own_weight_bytes, INT64_MAX);
  EXPECT_EQ(t.run_tile_bytes, kTileBytes);
  EXPECT_EQ(t.untiled_rows, 2048);
}

TEST(TuningTest, ThresholdsFollowFromASlowL3Cache) {
  const Tuning t = TuningFor(kXeon);
  EXPECT_TRUE(t.slow_l3);
  EXPECT_TRUE(t.l1_holds_four_rows);
  EXPECT_EQ(t.nt_store_call_bytes, 360 * kMegabyte);
  EXPECT_EQ(t.nt_store_thread_bytes, 16 * kMegabyte);
  EXPECT_EQ(t.nt_store_saved_bytes, 16 * kMegabyte);
  EXPECT_EQ(t.prefetch_output_bytes, 2 * kMegabyte);
  EXPECT_EQ(t.own_weight_bytes, 3 * kMegabyte / 2);
  EXPECT_EQ(t.run_tile_bytes, kMegabyte / 2);
  EXPECT_EQ(t.untiled_rows, 512);
}

// A virtual machine with few of the processor's cores reports the whole cache.
TEST(TuningTest, AnL3CacheIsSlowIfItIsLargeOrManyCoresShareIt) {
  const auto slow = [](int64_t bytes, int64_t cores) {
    return TuningFor({.l3_bytes = bytes, .l3_cores = cores}).slow_l3;
  };
  EXPECT_FALSE(slow(96 * kMegabyte, 8));
  EXPECT_FALSE(slow(36 * kMegabyte, 24));
  EXPECT_TRUE(slow(97 * kMegabyte, 2));
  EXPECT_TRUE(slow(480 * kMegabyte, 1));
  EXPECT_TRUE(slow(39 * kMegabyte, 28));
}

TEST(TuningTest, OverriddenCachesChangeTheThresholds) {
  Tuning t = TuningFor(kZen4, "l2_bytes=2097152,slow_l3=1");
  EXPECT_EQ(t.l1_bytes, kZen4.l1_bytes);
  EXPECT_EQ(t.l2_bytes, 2 * kMegabyte);
  EXPECT_EQ(t.prefetch_output_bytes, 2 * kMegabyte);
  EXPECT_EQ(t.untiled_rows, 512);
  t = TuningFor(kXeon, "untiled_rows=7,l3_bytes=33554432,l3_cores=8");
  EXPECT_FALSE(t.slow_l3);
  EXPECT_EQ(t.untiled_rows, 7);
  EXPECT_EQ(t.nt_store_call_bytes, 24 * kMegabyte);
}

TEST(TuningTest, LimitsOfCachesDoNotOverflow) {
  const std::string most = std::to_string(int64_t{1} << 50);
  const Tuning t = TuningFor(
      {}, "l1_bytes=" + most + ",l2_bytes=" + most + ",l3_bytes=" + most + ",l3_cores=2147483647");
  EXPECT_EQ(t.nt_store_thread_bytes, int64_t{1} << 49);
  EXPECT_EQ(TuningFor({}, "l1_bytes=1,l2_bytes=1,l3_bytes=1").nt_store_call_bytes, 0);
}

std::string ErrorOf(const std::string& overrides) {
  try {
    TuningFor({}, overrides);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST(TuningTest, FieldsThatDoNotExistAreErrors) {
  const std::string fields =
      "[PLANISH_TUNING] field must be one of l1_bytes, l2_bytes, l3_bytes, l3_cores, slow_l3, "
      "l1_holds_four_rows, nt_store_call_bytes, nt_store_thread_bytes, nt_store_saved_bytes, "
      "prefetch_output_bytes, own_weight_bytes, run_tile_bytes, untiled_rows, got ";
  for (const std::string name : {"l4_bytes", "", " l2_bytes", "L2_BYTES", "l2_bytes "}) {
    EXPECT_EQ(ErrorOf(name + "=1"), fields + "\"" + name + "\"");
    EXPECT_EQ(ErrorOf("slow_l3=0," + name + "=1"), fields + "\"" + name + "\"");
  }
  for (const std::string text : {",", "slow_l3=1,", "slow_l3=1,,l2_bytes=1"}) {
    EXPECT_EQ(ErrorOf(text), fields + "\"\"") << text;
  }
  EXPECT_EQ(ErrorOf("nonsense"), fields + "\"nonsense\"");
}

TEST(TuningTest, ValuesThatAreNotValidAreErrors) {
  const auto expected = [](const std::string& field, const std::string& range,
                           const std::string& value) {
    return "[PLANISH_TUNING] " + field + " must be an integer from " + range + ", got \"" + value +
           "\"";
  };
  for (const std::string value : {"", "two", "-1", "2", "1.0", "1 ", "+1", "1=1"}) {
    EXPECT_EQ(ErrorOf("slow_l3=" + value), expected("slow_l3", "0 to 1", value));
  }
  EXPECT_EQ(ErrorOf("slow_l3"), expected("slow_l3", "0 to 1", ""));
  for (const std::string value : {"0", "1125899906842625", "9223372036854775808", "1M"}) {
    EXPECT_EQ(ErrorOf("l2_bytes=" + value), expected("l2_bytes", "1 to 1125899906842624", value));
  }
  EXPECT_EQ(ErrorOf("untiled_rows=9223372036854775807"), "");
  EXPECT_EQ(ErrorOf("untiled_rows=1,slow_l3=0,untiled_rows=1"),
            "[PLANISH_TUNING] untiled_rows must be given once, got \"untiled_rows=1\"");
}

TEST(TuningTest, NoOverridesChangeNothing) { EXPECT_EQ(ErrorOf(""), ""); }

TEST(TuningTest, ACallOrAThreadsShareOfItUsesNtStores) {
  {
    const ScopedTuning scoped(TuningFor(kZen4));
    EXPECT_FALSE(UsesNtStores(16 * kMegabyte - 1, 1, 1));
    EXPECT_TRUE(UsesNtStores(16 * kMegabyte, 1, 1));
    EXPECT_TRUE(UsesNtStores(16 * kMegabyte, 7, 7));
    EXPECT_FALSE(UsesNtStores(24 * kMegabyte - 1, 1, 2));
    EXPECT_TRUE(UsesNtStores(24 * kMegabyte, 1, 2));
    EXPECT_TRUE(UsesNtStores(24 * kMegabyte, 0, 2));
  }
  const ScopedTuning scoped(TuningFor(kXeon));
  EXPECT_FALSE(UsesNtStores(32 * kMegabyte - 1, 1, 2));
  EXPECT_TRUE(UsesNtStores(32 * kMegabyte, 1, 2));
  EXPECT_FALSE(UsesNtStores(32 * kMegabyte, 1, 3));
  EXPECT_TRUE(UsesNtStores(32 * kMegabyte, 2, 3));
}

TEST(TuningTest, SharesOfTheLargestCallsDoNotOverflow) {
  const ScopedTuning scoped(
      TuningFor(kZen4, "nt_store_call_bytes=9223372036854775807,nt_store_thread_bytes=1048576"));
  constexpr int64_t kMax = int64_t{1} << 62;
  EXPECT_TRUE(UsesNtStores(kMax, int64_t{1} << 40, int64_t{1} << 41));
  EXPECT_FALSE(UsesNtStores(kMegabyte, int64_t{1} << 40, int64_t{1} << 41));
}

TEST(TuningTest, OutputsBeyondTheL2CacheArePrefetchedWithASlowL3Cache) {
  {
    const ScopedTuning scoped(TuningFor(kXeon));
    EXPECT_FALSE(PrefetchesOutput(2 * kMegabyte, 1, 1));
    EXPECT_TRUE(PrefetchesOutput(2 * kMegabyte + 1, 1, 1));
    EXPECT_FALSE(PrefetchesOutput(4 * kMegabyte, 1, 2));
  }
  const ScopedTuning scoped(TuningFor(kZen4));
  EXPECT_FALSE(PrefetchesOutput(INT64_MAX, 1, 1));
}

TEST(TuningTest, OverridesDescribeATuning) {
  EXPECT_EQ(OverridesOf(TuningFor(kZen4)),
            "l1_bytes=32768,l2_bytes=1048576,l3_bytes=33554432,l3_cores=8,slow_l3=0");
  // A threshold is given if it does not follow from the caches.
  const std::string others =
      "l1_bytes=49152,l2_bytes=2097152,l3_bytes=503316480,l3_cores=120,slow_l3=0,"
      "l1_holds_four_rows=0,untiled_rows=9";
  EXPECT_EQ(OverridesOf(TuningFor(kXeon, "slow_l3=0,l1_holds_four_rows=0,untiled_rows=9")), others);
  EXPECT_EQ(OverridesOf(TuningFor({}, others)), others);
}

TEST(TuningTest, AScopedTuningEnds) {
  const Tuning before = CurrentTuning();
  {
    const ScopedTuning scoped(TuningFor(kZen4, "untiled_rows=3"));
    EXPECT_EQ(CurrentTuning().untiled_rows, 3);
  }
  EXPECT_EQ(CurrentTuning().untiled_rows, before.untiled_rows);
}

// --- Caches that Linux reports ---

/// A folder like /sys/devices/system/cpu.
class Processors {
 public:
  Processors() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Processors() { std::filesystem::remove_all(folder_); }
  Processors(const Processors&) = delete;
  Processors& operator=(const Processors&) = delete;

  void Write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = folder_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << '\n';
  }

  void AddCache(int cpu, int index, const std::string& level, const std::string& type,
                const std::string& size, const std::string& shared) const {
    const std::string cache = "cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    Write(cache + "/level", level);
    Write(cache + "/type", type);
    if (!size.empty()) Write(cache + "/size", size);
    Write(cache + "/shared_cpu_list", shared);
  }

  Caches Read(Caches unknown = {}) const { return CachesIn(folder_.string(), unknown); }

 private:
  // Tests can run at the same time.
  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) /
                                  ("processors." + std::to_string(std::random_device()()));
};

void ExpectCaches(const Caches& caches, int64_t l1, int64_t l2, int64_t l3, int64_t cores) {
  EXPECT_EQ(caches.l1_bytes, l1);
  EXPECT_EQ(caches.l2_bytes, l2);
  EXPECT_EQ(caches.l3_bytes, l3);
  EXPECT_EQ(caches.l3_cores, cores);
}

// As on a Zen 4 with two threads a core.
TEST(CachesTest, ProcessorsCountThreadsOnce) {
  const Processors processors;
  processors.AddCache(0, 0, "1", "Data", "32K", "0,8");
  processors.AddCache(0, 1, "1", "Instruction", "64K", "0,8");
  processors.AddCache(0, 2, "2", "Unified", "1024K", "0,8");
  processors.AddCache(0, 3, "3", "Unified", "32768K", "0-15");
  processors.Write("cpu0/topology/thread_siblings_list", "0,8");
  ExpectCaches(processors.Read(), 32 * kKilobyte, kMegabyte, 32 * kMegabyte, 8);
}

// As on a Graviton 3: 64 cores with one thread each, which share one L3 cache.
TEST(CachesTest, ArmServer) {
  const Processors processors;
  processors.Write("present", "0-63");
  processors.AddCache(0, 0, "1", "Data", "64K", "0");
  processors.AddCache(0, 1, "1", "Instruction", "64K", "0");
  processors.AddCache(0, 2, "2", "Unified", "1M", "0");
  processors.AddCache(0, 3, "3", "Unified", "32M", "0-63");
  processors.Write("cpu0/topology/thread_siblings_list", "0");
  const Caches caches = processors.Read();
  ExpectCaches(caches, 64 * kKilobyte, kMegabyte, 32 * kMegabyte, 64);
  EXPECT_TRUE(TuningFor(caches).slow_l3);
}

// As on an RK3588: the cores 0 to 3 are slow and have small caches.
TEST(CachesTest, TheFastestKindOfCoresDecides) {
  const Processors processors;
  processors.Write("present", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const bool fast = cpu >= 4;
    const std::string own = std::to_string(cpu);
    processors.Write("cpu" + own + "/cpu_capacity", fast ? "1024" : "530");
    processors.AddCache(cpu, 0, "1", "Data", fast ? "64K" : "32K", own);
    processors.AddCache(cpu, 1, "2", "Unified", fast ? "512K" : "128K", own);
    processors.AddCache(cpu, 2, "3", "Unified", "3072K", "0-7");
    processors.Write("cpu" + own + "/topology/thread_siblings_list", own);
  }
  ExpectCaches(processors.Read(), 64 * kKilobyte, kMegabyte / 2, 3 * kMegabyte, 8);
}

// As on a Raspberry Pi 4.
TEST(CachesTest, WithoutAnL3CacheTheL2CacheIsTheLast) {
  const Processors processors;
  processors.AddCache(0, 0, "1", "Data", "32K", "0");
  processors.AddCache(0, 1, "2", "Unified", "1024K", "0-3");
  ExpectCaches(processors.Read(), 32 * kKilobyte, kMegabyte, kMegabyte, 4);
}

// Many ARM boards do not describe the sizes of their caches.
TEST(CachesTest, CachesThatAreNotReportedKeepTheirValues) {
  constexpr Caches kUnknown = {1, 2, 3, 4};
  const Processors processors;
  ExpectCaches(processors.Read(kUnknown), 1, 2, 3, 4);
  processors.AddCache(0, 0, "1", "Data", "", "0");
  processors.AddCache(0, 1, "2", "Unified", "", "0-3");
  ExpectCaches(processors.Read(kUnknown), 1, 2, 3, 4);
  for (const std::string size : {"0K", "-32K", "K", "32", "large", "99999999999999999999K"}) {
    processors.AddCache(0, 1, "2", "Unified", size, "0-3");
    ExpectCaches(processors.Read(kUnknown), 1, 2, 3, 4);
  }
}

TEST(TuningTest, ThisMachineReportsPlausibleCaches) {
  const Caches caches = MachineCaches();
  EXPECT_GE(caches.l1_bytes, 8 * kKilobyte);
  EXPECT_LT(caches.l1_bytes, 2 * kMegabyte);
  EXPECT_GE(caches.l2_bytes, caches.l1_bytes);
  EXPECT_GE(caches.l3_bytes, caches.l2_bytes);
  EXPECT_GE(caches.l3_cores, 1);
}

}  // namespace
}  // namespace planish::internal
