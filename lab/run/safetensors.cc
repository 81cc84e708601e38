#include "lab/run/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "lab/base/escape.h"
#include "lab/run/atomic_file.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;
using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and tensors are stored as they lie in memory");

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own library
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kChecksum = "planish.crc32";
constexpr size_t kChecksumDigits = 8;

// The format's names of types and their widths in bytes.
constexpr std::array<std::pair<std::string_view, int64_t>, 10> kDtypes{{{"F64", 8},
                                                                        {"I64", 8},
                                                                        {"F32", 4},
                                                                        {"I32", 4},
                                                                        {"F16", 2},
                                                                        {"BF16", 2},
                                                                        {"I16", 2},
                                                                        {"I8", 1},
                                                                        {"U8", 1},
                                                                        {"BOOL", 1}}};

// Further dtypes of the format, which are skipped, and their widths in bits.
constexpr std::array<std::pair<std::string_view, int64_t>, 12> kSkippedDtypes{{{"U64", 64},
                                                                               {"C64", 64},
                                                                               {"U32", 32},
                                                                               {"U16", 16},
                                                                               {"F8_E4M3", 8},
                                                                               {"F8_E5M2", 8},
                                                                               {"F8_E8M0", 8},
                                                                               {"F8_E4M3FNUZ", 8},
                                                                               {"F8_E5M2FNUZ", 8},
                                                                               {"F6_E2M3", 6},
                                                                               {"F6_E3M2", 6},
                                                                               {"F4", 4}}};

// Error as a sentence without the file, which the caller adds.
struct Fault {
  std::string text;
};

std::string TooLongHeader(uint64_t bytes) {
  return fmt::format("its header has {} bytes; at most {} are allowed", bytes, kMaxHeader);
}

std::string WrongSize(const std::string& name, std::string_view dtype,
                      std::span<const int64_t> shape, uint64_t bytes, int64_t expected) {
  return fmt::format("tensor \"{}\" has {} bytes, but dtype {} and shape [{}] take {}", name, bytes,
                     dtype, fmt::join(shape, ", "), expected);
}

// Returns the size of a tensor in units of `width`. Multiplies the nonzero sizes first, so that a
// zero does not hide an overflow.
int64_t Size(const std::string& name, int64_t width, std::span<const int64_t> shape) {
  int64_t bytes = width;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      throw Fault{fmt::format("the shape of tensor \"{}\" has the negative size {}", name, size)};
    }
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, size, &bytes)) {
      throw Fault{fmt::format("the shape [{}] of tensor \"{}\" takes 2^63 bytes or more",
                              fmt::join(shape, ", "), name)};
    }
  }
  return empty ? 0 : bytes;
}

// Returns the bytes of a tensor of one of StoredTensor's dtypes.
int64_t ByteSize(const std::string& name, std::string_view dtype, std::span<const int64_t> shape) {
  const int64_t width = DtypeWidth(dtype);
  if (width == 0) {
    throw Fault{fmt::format("tensor \"{}\" has the unknown dtype \"{}\"", name, dtype)};
  }
  return Size(name, width, shape);
}

// Returns the bytes of a tensor of a file, or nullopt for an unknown dtype.
std::optional<int64_t> StoredSize(const std::string& name, std::string_view dtype,
                                  std::span<const int64_t> shape) {
  if (DtypeWidth(dtype) > 0) return ByteSize(name, dtype, shape);
  const auto* const skipped =
      std::ranges::find(kSkippedDtypes, dtype, [](const auto& known) { return known.first; });
  if (skipped == kSkippedDtypes.end()) return std::nullopt;
  const int64_t bits = Size(name, skipped->second, shape);
  if (bits % 8 != 0) {
    throw Fault{fmt::format("tensor \"{}\" takes {} bits, not whole bytes", name, bits)};
  }
  return bits / 8;
}

// Parses a header. Throws Fault for a repeated key in an object, which readers resolve differently,
// and for more nesting than the format has.
Json ParseHeader(std::string_view header) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    constexpr int kDepth = 3;
    switch (event) {
      case Json::parse_event_t::object_start:
        if (depth > kDepth) throw Fault{"its header has nested objects"};
        keys.emplace_back();
        break;
      case Json::parse_event_t::array_start:
        if (depth > kDepth) throw Fault{"its header has nested arrays"};
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys.back().insert(value.get<std::string>()).second) {
          throw Fault{fmt::format("its header has the key \"{}\" twice", value.get<std::string>())};
        }
        break;
      default:
        break;
    }
    return true;
  };
  // The parser would treat a zero byte as the end.
  if (header.find('\0') != header.npos) throw Fault{"its header is not JSON: it has a zero byte"};
  try {
    return Json::parse(header, check);
  } catch (const Json::exception& e) {
    throw Fault{std::string("its header is not JSON: ") + JsonReason(e)};
  }
}

std::map<std::string, std::string> ReadMetadata(const Json& header) {
  std::map<std::string, std::string> metadata;
  const auto found = header.find(kMetadata);
  if (found == header.end()) return metadata;
  if (!found->is_object()) throw Fault{"__metadata__ is not an object"};
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) {
      throw Fault{fmt::format("\"{}\" in __metadata__ is not a string", key)};
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

const Json& Member(const std::string& name, const Json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) {
    throw Fault{fmt::format("tensor \"{}\" has no {}", name, key)};
  }
  return *found;
}

struct Placed {
  StoredTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

Placed ReadEntry(const std::string& name, const Json& entry) {
  if (!entry.is_object()) {
    throw Fault{fmt::format("tensor \"{}\" is not an object", name)};
  }
  Placed placed;
  placed.tensor.name = name;
  const Json& dtype = Member(name, entry, "dtype");
  if (!dtype.is_string()) {
    throw Fault{fmt::format("the dtype of tensor \"{}\" is not a string", name)};
  }
  placed.tensor.dtype = dtype.get<std::string>();
  const Json& shape = Member(name, entry, "shape");
  if (!shape.is_array()) {
    throw Fault{fmt::format("the shape of tensor \"{}\" is not an array", name)};
  }
  for (const Json& size : shape) {
    if (!size.is_number_integer() ||
        (size.is_number_unsigned() && std::cmp_greater(size.get<uint64_t>(), INT64_MAX))) {
      throw Fault{
          fmt::format("the shape of tensor \"{}\" has {}; integers below 2^63 were expected", name,
                      size.dump())};
    }
    placed.tensor.shape.push_back(size.get<int64_t>());
  }
  const Json& offsets = Member(name, entry, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    throw Fault{
        fmt::format("the data_offsets of tensor \"{}\" are {}; two integers >= 0 were expected",
                    name, offsets.dump())};
  }
  placed.begin = offsets[0].get<uint64_t>();
  placed.end = offsets[1].get<uint64_t>();
  if (placed.begin > placed.end) {
    throw Fault{
        fmt::format("the data_offsets {} of tensor \"{}\" are not in order", offsets.dump(), name)};
  }
  const auto bytes = StoredSize(name, placed.tensor.dtype, placed.tensor.shape);
  if (bytes && !std::cmp_equal(placed.end - placed.begin, *bytes)) {
    throw Fault{WrongSize(name, placed.tensor.dtype, placed.tensor.shape, placed.end - placed.begin,
                          *bytes)};
  }
  return placed;
}

// Returns the tensors in the order of their data, which they must cover exactly.
std::vector<Placed> ReadEntries(const Json& header, uint64_t data_bytes) {
  std::vector<Placed> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name != kMetadata) entries.push_back(ReadEntry(name, entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  uint64_t covered = 0;
  for (const Placed& entry : entries) {
    if (entry.begin != covered) {
      throw Fault{fmt::format(
          "tensor \"{}\" begins at byte {}: it {} the one before it, which ends at byte {}",
          entry.tensor.name, entry.begin,
          entry.begin < covered ? "overlaps" : "leaves a hole after", covered)};
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    throw Fault{
        fmt::format("it has {} bytes of data, but its tensors take {}", data_bytes, covered)};
  }
  return entries;
}

// Returns the position of the checksum's digits in the header: after the key as a JSON token.
// Inside a string, a quote has a backslash before it.
std::optional<size_t> FindChecksum(std::string_view header, std::string_view digits) {
  const std::string key = fmt::format("\"{}\"", kChecksum);
  const std::string value = fmt::format("\"{}\"", digits);
  for (size_t at = header.find(key); at != header.npos; at = header.find(key, at + 1)) {
    if (at > 0 && header[at - 1] == '\\') continue;
    size_t next = header.find_first_not_of(" \t\r\n", at + key.size());
    if (next == header.npos || header[next] != ':') continue;
    next = header.find_first_not_of(" \t\r\n", next + 1);
    if (next != header.npos && header.substr(next).starts_with(value)) return next + 1;
  }
  return std::nullopt;
}

uLong AddToChecksum(uLong crc, std::span<const std::byte> bytes) {
  // A null pointer would make zlib return the initial value.
  if (bytes.empty()) return crc;
  return crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

void CheckChecksum(std::span<const std::byte> length, std::string header,
                   std::span<const std::byte> data, const std::string& expected) {
  const std::optional<size_t> at = FindChecksum(header, expected);
  if (!at || expected.size() != kChecksumDigits) {
    throw Fault{
        fmt::format("its checksum is \"{}\"; eight hexadecimal digits were expected", expected)};
  }
  header.replace(*at, kChecksumDigits, kChecksumDigits, '0');
  uLong crc = AddToChecksum(0, length);
  crc = AddToChecksum(crc, AsBytes(header));
  crc = AddToChecksum(crc, data);
  const std::string actual = fmt::format("{:08x}", crc);
  if (actual != expected) {
    throw Fault{
        fmt::format("its checksum is {}, but it was written with {}: it was damaged or altered",
                    actual, expected)};
  }
}

}  // namespace

int64_t DtypeWidth(std::string_view dtype) {
  for (const auto& [name, width] : kDtypes) {
    if (name == dtype) return width;
  }
  return 0;
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const StoredTensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

SafetensorsFile SafetensorsFile::Read(const fs::path& path, Checksum checksum) try {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) throw CannotRead(path, SystemReason(errno));
  struct stat status;
  if (fstat(fd.get(), &status) != 0) throw CannotRead(path, SystemReason(errno));
  if (!S_ISREG(status.st_mode)) throw CannotRead(path, "it is not a regular file");
  const auto read = [&](std::span<std::byte> bytes) {
    if (!ReadAll(fd.get(), bytes)) {
      throw CannotRead(path, errno == 0 ? "it ended while being read" : SystemReason(errno));
    }
  };

  const uint64_t size = static_cast<uint64_t>(status.st_size);
  std::array<std::byte, 8> length_bytes;
  if (size < length_bytes.size()) {
    throw Fault{fmt::format("it ends at byte {}; at least 8 bytes were expected", size)};
  }
  read(length_bytes);
  const uint64_t length = std::bit_cast<uint64_t>(length_bytes);
  if (length > kMaxHeader) throw Fault{TooLongHeader(length)};
  if (length > size - length_bytes.size()) {
    throw Fault{fmt::format("its first 8 bytes give a header of {} bytes, but only {} follow",
                            length, size - length_bytes.size())};
  }
  std::string header(length, '\0');
  read(std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) throw Fault{"its header is not a JSON object"};

  SafetensorsFile file;
  const Json json = ParseHeader(header);
  file.metadata_ = ReadMetadata(json);
  const size_t data_bytes = size - length_bytes.size() - length;
  std::vector<Placed> entries = ReadEntries(json, data_bytes);
  file.data_ = std::make_unique_for_overwrite<std::byte[]>(data_bytes);
  const std::span<std::byte> data(file.data_.get(), data_bytes);
  read(data);
  if (const auto found = file.metadata_.find(std::string(kChecksum));
      found != file.metadata_.end()) {
    CheckChecksum(length_bytes, std::move(header), data, found->second);
    file.metadata_.erase(found);
  } else if (checksum == Checksum::kRequired) {
    throw Fault{fmt::format("it has no checksum (\"{}\" in its metadata)", kChecksum)};
  }
  for (Placed& entry : entries) {
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    file.tensors_.push_back(std::move(entry.tensor));
  }
  return file;
} catch (const Fault& fault) {
  throw CannotRead(path, Escaped(fault.text));
} catch (const std::bad_alloc&) {
  throw CannotRead(path, "not enough memory");
}

void WriteSafetensors(const fs::path& path, std::span<const StoredTensor> tensors,
                      const std::map<std::string, std::string>& metadata) try {
  if (metadata.contains(std::string(kChecksum))) {
    throw Fault{fmt::format("the metadata has \"{}\", which is reserved", kChecksum)};
  }
  std::vector<const StoredTensor*> order;
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    const int64_t bytes = ByteSize(tensor.name, tensor.dtype, tensor.shape);
    if (!std::cmp_equal(tensor.data.size(), bytes)) {
      throw Fault{WrongSize(tensor.name, tensor.dtype, tensor.shape, tensor.data.size(), bytes)};
    }
    if (tensor.name == kMetadata || !names.insert(tensor.name).second) {
      throw Fault{fmt::format("the name \"{}\" of a tensor is {}", tensor.name,
                              tensor.name == kMetadata ? "reserved" : "used twice")};
    }
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(-DtypeWidth(a->dtype), std::string_view(a->name)) <
           std::pair(-DtypeWidth(b->dtype), std::string_view(b->name));
  });

  std::map<std::string, std::string> all_metadata = metadata;
  const std::string zeros(kChecksumDigits, '0');
  all_metadata[std::string(kChecksum)] = zeros;
  std::string header;
  try {
    header = fmt::format("{{\"{}\":{}", kMetadata, Json(all_metadata).dump());
    uint64_t begin = 0;
    for (const StoredTensor* tensor : order) {
      const uint64_t end = begin + tensor->data.size();
      const nlohmann::ordered_json entry{
          {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
      header += fmt::format(",{}:{}", Json(tensor->name).dump(), entry.dump());
      begin = end;
    }
    header += '}';
  } catch (const Json::exception& e) {
    throw Fault{std::string("a name or its metadata is not UTF-8: ") + JsonReason(e)};
  }
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeader) throw Fault{TooLongHeader(header.size())};

  const auto length = std::bit_cast<std::array<std::byte, 8>>(uint64_t{header.size()});
  std::vector<std::span<const std::byte>> pieces{length, AsBytes(header)};
  for (const StoredTensor* tensor : order) pieces.push_back(tensor->data);
  uLong crc = 0;
  for (const std::span<const std::byte> piece : pieces) crc = AddToChecksum(crc, piece);
  const std::string digits = fmt::format("{:08x}", crc);
  std::memcpy(header.data() + FindChecksum(header, zeros).value(), digits.data(), digits.size());
  WriteFileAtomically(path, pieces);
} catch (const Fault& fault) {
  throw CannotWrite(path, Escaped(fault.text));
}

}  // namespace planish::lab
