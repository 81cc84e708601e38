#include "src/base/tuning.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "src/base/check.h"
#include "src/base/facts.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <unistd.h>
#endif

namespace planish::internal {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Largest L3 cache, in bytes and in cores that share it, that counts as fast: a larger one is a
// mesh of slices.
constexpr int64_t kMaxFastL3Bytes = int64_t{96} << 20;
constexpr int64_t kMaxFastL3Cores = 24;

// L1 cache, in bytes, that holds the same columns of four rows of dy, x and dx: 12 lines of a set.
constexpr int64_t kFourRowsL1Bytes = int64_t{48} << 10;

// Rows from which batch norm does not tile its columns. Fewer with a slow L3 cache, because rows a
// power of two apart compete in the L2 cache.
constexpr int64_t kUntiledRows = 2048, kSlowL3UntiledRows = 512;

// --- End of tuning constants ---

std::string LineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the number of processors in a list of sysfs, such as "0-3,8", and 0 if it is empty.
int64_t CountOf(const std::string& list) {
  std::istringstream stream(list);
  int64_t count = 0, first = 0, last = 0;
  while (stream >> first) {
    last = first;
    if (stream.peek() == '-') stream.ignore() >> last;
    count += std::max<int64_t>(0, last - first + 1);
    if (stream.peek() != ',') break;
    stream.ignore();
  }
  return count;
}

struct Cache {
  int64_t bytes = 0;  // 0 if it is not reported
  int64_t processors = 0;
};

// Returns the folder of a processor: the first of the fastest kind. ARM processors can have cores
// of several kinds, which sysfs ranks by their capacity; the first core is often of the slowest.
std::string FastestProcessor(const std::string& processors) {
  std::string fastest;
  int64_t max_capacity = -1;
  const int64_t count = std::max<int64_t>(1, CountOf(LineOf(processors + "/present")));
  for (int64_t i = 0; i < count; ++i) {
    const std::string folder = processors + "/cpu" + std::to_string(i) + "/";
    int64_t capacity = 0;
    std::istringstream(LineOf(folder + "cpu_capacity")) >> capacity;
    if (capacity > max_capacity) max_capacity = capacity, fastest = folder;
    if (i == 0 && capacity == 0) break;  // cores of one kind
  }
  return fastest;
}

// Returns the data cache of a level.
Cache CacheOf(const std::string& processor, int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = processor + "cache/index" + std::to_string(index) + "/";
    if (LineOf(folder + "level") != std::to_string(level)) continue;
    if (LineOf(folder + "type") == "Instruction") continue;
    std::istringstream stream(LineOf(folder + "size"));  // "32768K" is 32 MB
    int64_t size = 0;
    char unit = 0;
    if (!(stream >> size >> unit) || size <= 0 || size >= 1 << 30) return {};
    return {size << (unit == 'M' ? 20 : 10), CountOf(LineOf(folder + "shared_cpu_list"))};
  }
  return {};
}

#ifdef __APPLE__
// Returns the first of two values of the system that exists, or 0.
int64_t SystemValue(const char* name, const char* other) {
  for (const char* each : {name, other}) {
    int64_t value = 0;  // some values have 32 bits; the processor is little-endian
    size_t size = sizeof value;
    if (sysctlbyname(each, &value, &size, nullptr, 0) == 0 && value > 0) return value;
  }
  return 0;
}
#endif

// --- Fields ---

using Member = std::variant<int64_t Tuning::*, bool Tuning::*>;

struct Field {
  const char* name;
  Member member;
  int64_t min, max;
};

constexpr int64_t kMaxCacheBytes = int64_t{1} << 50;
constexpr Field kCaches[] = {{"l1_bytes", &Tuning::l1_bytes, 1, kMaxCacheBytes},
                             {"l2_bytes", &Tuning::l2_bytes, 1, kMaxCacheBytes},
                             {"l3_bytes", &Tuning::l3_bytes, 1, kMaxCacheBytes},
                             {"l3_cores", &Tuning::l3_cores, 1, INT32_MAX}};
constexpr Field kSlowL3[] = {{"slow_l3", &Tuning::slow_l3, 0, 1}};
constexpr Field kThresholds[] = {
    {"l1_holds_four_rows", &Tuning::l1_holds_four_rows, 0, 1},
    {"nt_store_call_bytes", &Tuning::nt_store_call_bytes, 0, INT64_MAX},
    {"nt_store_thread_bytes", &Tuning::nt_store_thread_bytes, 0, INT64_MAX},
    {"nt_store_saved_bytes", &Tuning::nt_store_saved_bytes, 0, INT64_MAX},
    {"prefetch_output_bytes", &Tuning::prefetch_output_bytes, 0, INT64_MAX},
    {"own_weight_bytes", &Tuning::own_weight_bytes, 0, INT64_MAX},
    {"run_tile_bytes", &Tuning::run_tile_bytes, 0, INT64_MAX},
    {"untiled_rows", &Tuning::untiled_rows, 0, INT64_MAX}};

template <class F>
void ForFields(const F& f) {
  for (const auto& field : kCaches) f(field);
  for (const auto& field : kSlowL3) f(field);
  for (const auto& field : kThresholds) f(field);
}

constexpr const char* kVariable = "PLANISH_TUNING";

int64_t ValueOf(const Field& field, std::string_view text) {
  int64_t value = 0;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto [stopped, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stopped != end || value < field.min || value > field.max) {
    Fail(kVariable, field.name,
         "be an integer from " + std::to_string(field.min) + " to " + std::to_string(field.max),
         "\"" + std::string(text) + "\"");
  }
  return value;
}

using Overrides = std::map<std::string, int64_t>;

Overrides ParseOverrides(std::string_view text) {
  Overrides overrides;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::string name(item.substr(0, item.find('=')));
    std::string names;
    bool found = false;
    ForFields([&](const Field& field) {
      names += (names.empty() ? "" : ", ") + std::string(field.name);
      if (name != field.name) return;
      found = true;
      const std::string_view value = item.substr(std::min(item.size(), name.size() + 1));
      if (!overrides.emplace(name, ValueOf(field, value)).second) {
        Fail(kVariable, name, "be given once", "\"" + std::string(item) + "\"");
      }
    });
    if (!found) Fail(kVariable, "field", "be one of " + names, "\"" + name + "\"");
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) Fail(kVariable, "field", "be one of " + names, "\"\"");
  }
  return overrides;
}

template <size_t kCount>
void Apply(const Field (&fields)[kCount], const Overrides& overrides, Tuning& tuning) {
  for (const Field& field : fields) {
    const auto found = overrides.find(field.name);
    if (found == overrides.end()) continue;
    std::visit(
        [&](auto member) {
          using Value = std::remove_reference_t<decltype(tuning.*member)>;
          tuning.*member = static_cast<Value>(found->second);
        },
        field.member);
  }
}

Tuning& TheTuning() {
  // The environment is read once, by the thread that comes first.
  static Tuning tuning = [] {
    const char* text = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe)
    return TuningFor(MachineCaches(), text ? text : "");
  }();
  return tuning;
}

}  // namespace

Caches CachesIn(const std::string& processors, Caches caches) {
  const std::string processor = FastestProcessor(processors);
  const Cache l1 = CacheOf(processor, 1), l2 = CacheOf(processor, 2), l3 = CacheOf(processor, 3);
  if (l1.bytes > 0) caches.l1_bytes = l1.bytes;
  if (l2.bytes > 0) caches.l2_bytes = l2.bytes;
  const Cache last = l3.bytes > 0 ? l3 : l2;
  if (last.bytes > 0) {
    const int64_t threads = CountOf(LineOf(processor + "topology/thread_siblings_list"));
    caches.l3_bytes = last.bytes;
    caches.l3_cores = std::max<int64_t>(1, last.processors / std::max<int64_t>(1, threads));
  }
  return caches;
}

Caches MachineCaches() {
  Caches caches;
#if defined(__APPLE__)
  // perflevel0 is the fastest kind of cores. Processors with one kind do not have it.
  const int64_t l1 = SystemValue("hw.perflevel0.l1dcachesize", "hw.l1dcachesize");
  const int64_t l2 = SystemValue("hw.perflevel0.l2cachesize", "hw.l2cachesize");
  const int64_t l3 = SystemValue("hw.perflevel0.l3cachesize", "hw.l3cachesize");
  if (l1 > 0) caches.l1_bytes = l1;
  if (l2 > 0) caches.l2_bytes = l2;
  if (l2 > 0 || l3 > 0) caches.l3_bytes = l3 > 0 ? l3 : l2;
  caches.l3_cores = std::max<int64_t>(1, SystemValue("hw.perflevel0.cpusperl2", "hw.physicalcpu"));
  return caches;
#elif defined(__linux__)
#ifdef _SC_LEVEL3_CACHE_SIZE
  // In a virtual machine this also counts processors of others, unlike sysfs.
  const auto bytes =
      std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
  if (bytes > 0) caches.l3_bytes = bytes;
#endif
  return CachesIn("/sys/devices/system/cpu", caches);
#else
  return caches;
#endif
}

Tuning TuningFor(Caches caches, std::string_view overrides) {
  const Overrides values = ParseOverrides(overrides);
  Tuning t{};
  static_cast<Caches&>(t) = caches;
  Apply(kCaches, values, t);
  t.slow_l3 = t.l3_bytes > kMaxFastL3Bytes || t.l3_cores > kMaxFastL3Cores;
  Apply(kSlowL3, values, t);
  t.l1_holds_four_rows = t.l1_bytes >= kFourRowsL1Bytes;
  t.nt_store_call_bytes = t.l3_bytes / 4 * 3;
  // With a slow L3 cache a lower limit would make the norm faster, but a reader of its results
  // would then load them from memory.
  t.nt_store_thread_bytes = std::min(t.l3_bytes / 2, t.slow_l3 ? 8 * t.l2_bytes : t.l3_bytes);
  t.nt_store_saved_bytes = t.slow_l3 ? t.nt_store_thread_bytes : t.nt_store_call_bytes;
  t.prefetch_output_bytes = t.slow_l3 ? t.l2_bytes : INT64_MAX;
  t.own_weight_bytes = t.slow_l3 ? t.l2_bytes / 4 * 3 : INT64_MAX;
  t.run_tile_bytes = t.slow_l3 ? t.l2_bytes / 4 : kTileBytes;
  t.untiled_rows = t.slow_l3 ? kSlowL3UntiledRows : kUntiledRows;
  Apply(kThresholds, values, t);
  return t;
}

std::string OverridesOf(const Tuning& tuning) {
  std::string text;
  const auto value_in = [](const Tuning& t, const Field& field) {
    return std::visit([&](auto member) { return static_cast<int64_t>(t.*member); }, field.member);
  };
  const auto add = [&](const Field& field) {
    text += (text.empty() ? "" : ",") + std::string(field.name) + "=" +
            std::to_string(value_in(tuning, field));
  };
  for (const Field& field : kCaches) add(field);
  for (const Field& field : kSlowL3) add(field);
  const Tuning derived = TuningFor({}, text);
  for (const Field& field : kThresholds) {
    if (value_in(tuning, field) != value_in(derived, field)) add(field);
  }
  return text;
}

const Tuning& CurrentTuning() { return TheTuning(); }

ScopedTuning::ScopedTuning(const Tuning& tuning) : before_(std::exchange(TheTuning(), tuning)) {}
ScopedTuning::~ScopedTuning() { TheTuning() = before_; }

}  // namespace planish::internal
