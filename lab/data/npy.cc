#include "lab/data/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lab/base/escape.h"
#include "lab/data/file_content.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
// Maximum size of a header in bytes, which NumPy has, too.
constexpr int64_t kMaxHeader = 10'000;
// Bytes that are read and converted at once.
constexpr int64_t kPiece = 1 << 20;

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return text;
}

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// Reader of the header's text: a Python dictionary of strings, booleans and tuples of integers.
class HeaderReader {
 public:
  // `offset` is that of `text` in the file.
  HeaderReader(const fs::path& file, std::string_view text, int64_t offset)
      : file_(file), text_(text), offset_(offset) {}

  Header Read() {
    Header header;
    Expect('{');
    while (!Take('}')) {
      const int64_t at = Here();
      const std::string key = String();
      Expect(':');
      if (key == "descr") {
        Once(header.descr, key, at) = String();
      } else if (key == "fortran_order") {
        Once(header.fortran_order, key, at) = Truth();
      } else if (key == "shape") {
        Once(header.shape, key, at) = Tuple();
      } else {
        Wrong("the key descr, fortran_order or shape", at);
      }
      if (!Take(',')) {
        Expect('}');
        break;
      }
    }
    SkipBlanks();
    if (next_ != text_.size()) Wrong("the end", Here());
    return header;
  }

 private:
  [[noreturn]] void Wrong(const std::string& expected, int64_t at) const {
    const auto i = static_cast<size_t>(at - offset_);
    const bool ends = i >= text_.size();
    FailToRead(file_,
               fmt::format("its header {} at byte {}; {} was expected",
                           ends ? "ends" : "has " + Quoted(text_.substr(i, 12)), at, expected));
  }

  template <class T>
  std::optional<T>& Once(std::optional<T>& value, const std::string& key, int64_t at) const {
    if (value) FailToRead(file_, fmt::format("its header has {} again at byte {}", key, at));
    return value;
  }

  void SkipBlanks() { next_ = std::min(text_.find_first_not_of(" \t\n\r\f", next_), text_.size()); }

  // Returns the offset of the next token.
  int64_t Here() {
    SkipBlanks();
    return offset_ + static_cast<int64_t>(next_);
  }

  bool Take(char c) {
    SkipBlanks();
    if (next_ == text_.size() || text_[next_] != c) return false;
    ++next_;
    return true;
  }

  void Expect(char c) {
    if (!Take(c)) Wrong(fmt::format("a {}", c), Here());
  }

  std::string String() {
    const int64_t at = Here();
    // Python 2 wrote Unicode strings as u'<f4'.
    if (next_ < text_.size() && text_[next_] == 'u') ++next_;
    const char quote = next_ < text_.size() ? text_[next_] : '\0';
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, next_ + 1) : text_.npos;
    if (end == text_.npos) Wrong("a string", at);
    std::string value(text_.substr(next_ + 1, end - next_ - 1));
    next_ = end + 1;
    return value;
  }

  bool Truth() {
    const int64_t at = Here();
    for (const auto& [name, value] : {std::pair<std::string_view, bool>("False", false),
                                      std::pair<std::string_view, bool>("True", true)}) {
      if (text_.substr(next_).starts_with(name)) {
        next_ += name.size();
        return value;
      }
    }
    Wrong("True or False", at);
  }

  std::vector<int64_t> Tuple() {
    std::vector<int64_t> values;
    Expect('(');
    while (!Take(')')) {
      values.push_back(Size());
      if (!Take(',')) {
        Expect(')');
        break;
      }
    }
    return values;
  }

  int64_t Size() {
    const int64_t at = Here();
    int64_t value = 0;
    const size_t begin = next_;
    while (next_ < text_.size() && text_[next_] >= '0' && text_[next_] <= '9') {
      if (value > std::numeric_limits<int64_t>::max() / 10 - 1) Wrong("a smaller size", at);
      value = 10 * value + (text_[next_++] - '0');
    }
    if (next_ == begin) Wrong("a size", at);
    // Python 2 wrote long integers as (4L, 3L).
    if (next_ < text_.size() && text_[next_] == 'L') ++next_;
    return value;
  }

  const fs::path& file_;
  std::string_view text_;
  int64_t offset_;
  size_t next_ = 0;
};

// Converts IEEE 754's binary16.
float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

// Half-precision float, as it is stored.
enum class Half : uint16_t {};

// Converts the elements of type From in `bytes` to To at `out`.
template <class From, class To>
void Convert(std::span<const uint8_t> bytes, To* out) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(From)) {
    From number;
    std::memcpy(&number, &bytes[i], sizeof number);
    if constexpr (std::is_same_v<From, Half>) {
      *out++ = HalfToFloat(static_cast<uint16_t>(number));
    } else {
      *out++ = static_cast<To>(number);
    }
  }
}

// Type of a file's elements that are read as T.
template <class T>
struct Type {
  std::string_view descr;
  int64_t size;  // bytes
  void (*convert)(std::span<const uint8_t> bytes, T* out);
};

template <class T>
constexpr std::array<Type<T>, 0> kTypes{};
template <>
constexpr std::array<Type<float>, 3> kTypes<float>{{{"<f4", 4, Convert<float, float>},
                                                    {"<f8", 8, Convert<double, float>},
                                                    {"<f2", 2, Convert<Half, float>}}};
template <>
constexpr std::array<Type<uint8_t>, 1> kTypes<uint8_t>{{{"|u1", 1, Convert<uint8_t, uint8_t>}}};
template <>
constexpr std::array<Type<int64_t>, 7> kTypes<int64_t>{{{"|i1", 1, Convert<int8_t, int64_t>},
                                                        {"|u1", 1, Convert<uint8_t, int64_t>},
                                                        {"<i2", 2, Convert<int16_t, int64_t>},
                                                        {"<u2", 2, Convert<uint16_t, int64_t>},
                                                        {"<i4", 4, Convert<int32_t, int64_t>},
                                                        {"<u4", 4, Convert<uint32_t, int64_t>},
                                                        {"<i8", 8, Convert<int64_t, int64_t>}}};

// Returns "<f4, <f8 or <f2".
template <class T>
std::string TypeNames() {
  std::string names;
  for (size_t i = 0; i < kTypes<T>.size(); ++i) {
    names += i == 0 ? "" : i + 1 < kTypes<T>.size() ? ", " : " or ";
    names += kTypes<T>[i].descr;
  }
  return names;
}

class NpyReader {
 public:
  explicit NpyReader(ByteStream& content)
      : file_(content.path()), content_(content), header_(ReadHeader()) {}

  const std::string& descr() const { return *header_.descr; }

  // Returns the elements as T. `type_names` are those that errors list.
  template <class T>
  NpyElements<T> Read(const std::string& type_names = TypeNames<T>()) {
    if (*header_.fortran_order) {
      FailToRead(file_, "its elements are in Fortran order; C order was expected");
    }
    const auto type = std::ranges::find(kTypes<T>, descr(), &Type<T>::descr);
    if (type == kTypes<T>.end()) {
      FailToRead(file_, fmt::format("its elements have the type {}; {} was expected",
                                    Quoted(descr()), type_names));
    }
    NpyElements<T> array{.shape = *header_.shape, .values = {}};
    ReadValues(*type, array);
    std::array<uint8_t, 1> more;
    if (content_.Read(more) > 0) {
      FailToRead(file_, fmt::format("its array ends at byte {}, but more bytes follow", offset_));
    }
    return array;
  }

 private:
  // Throws for a file that ends at byte `end`, before the `count` bytes of `what`.
  [[noreturn]] void FailTruncated(const std::string& end, const std::string& count,
                                  const std::string& what) const {
    FailToRead(file_,
               fmt::format("it ends at byte {}; {} bytes of {} were expected from byte {} on", end,
                           count, what, offset_));
  }

  // Returns `count` bytes, or those until the end.
  std::string Bytes(int64_t count) {
    std::string bytes(static_cast<size_t>(count), '\0');
    const int64_t got = content_.Read({reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
    bytes.resize(static_cast<size_t>(got));
    return bytes;
  }

  // Reads `count` bytes. `what` names them in errors.
  std::string Take(int64_t count, const std::string& what) {
    const std::string bytes = Bytes(count);
    if (std::ssize(bytes) < count) {
      FailTruncated(std::to_string(offset_ + std::ssize(bytes)), std::to_string(count), what);
    }
    offset_ += count;
    return bytes;
  }

  Header ReadHeader() {
    const std::string magic = Bytes(std::ssize(kMagic));
    if (magic != kMagic) {
      FailToRead(file_, fmt::format("it begins with {}; NumPy's {} was expected",
                                    magic.empty() ? "no bytes" : Hex(magic), Hex(kMagic)));
    }
    offset_ = std::ssize(kMagic);
    const std::string version = Take(2, "version");
    const int major = static_cast<uint8_t>(version[0]), minor = static_cast<uint8_t>(version[1]);
    if (major < 1 || major > 3 || minor != 0) {
      FailToRead(file_, fmt::format("it has version {}.{} at byte 6; 1.0, 2.0 or 3.0 was expected",
                                    major, minor));
    }
    const std::string size = Take(major == 1 ? 2 : 4, "header size");
    int64_t length = 0;
    for (size_t i = size.size(); i-- > 0;) length = length << 8 | static_cast<uint8_t>(size[i]);
    if (length > kMaxHeader) {
      FailToRead(file_,
                 fmt::format("its header has {} bytes, according to byte 8; at most {} are allowed",
                             length, kMaxHeader));
    }
    const int64_t begin = offset_;
    const std::string text = Take(length, "header");
    Header header = HeaderReader(file_, text, begin).Read();
    const auto needs = [&](bool has, const char* key) {
      if (!has) FailToRead(file_, fmt::format("its header has no {}", key));
    };
    needs(header.descr.has_value(), "descr");
    needs(header.fortran_order.has_value(), "fortran_order");
    needs(header.shape.has_value(), "shape");
    return header;
  }

  template <class T>
  void ReadValues(const Type<T>& type, NpyElements<T>& array) {
    const std::string what =
        fmt::format("elements for the shape ({})", fmt::join(array.shape, ", "));
    int64_t count = 1, bytes = 0;
    bool overflow = false;
    for (const int64_t size : array.shape) overflow |= __builtin_mul_overflow(count, size, &count);
    overflow |= __builtin_mul_overflow(count, type.size, &bytes);
    // Checked before allocating memory for the size in the header.
    const int64_t max_end = content_.UpperBound();
    if (overflow || bytes > max_end - offset_) {
      FailTruncated(fmt::format("{}{}", max_end, content_.is_packed() ? " or before" : ""),
                    overflow ? "2^63 or more" : std::to_string(bytes), what);
    }
    array.values.resize(static_cast<size_t>(count));
    T* out = array.values.data();
    std::vector<uint8_t> piece(static_cast<size_t>(std::min(bytes, kPiece)));
    for (int64_t done = 0; done < bytes;) {
      const std::span<uint8_t> wanted =
          std::span(piece).first(static_cast<size_t>(std::min(bytes - done, kPiece)));
      const int64_t got = content_.Read(wanted);
      if (got < std::ssize(wanted)) {
        FailTruncated(std::to_string(offset_ + done + got), std::to_string(bytes), what);
      }
      type.convert(wanted, out);
      out += got / type.size;
      done += got;
    }
    offset_ += bytes;
  }

  const fs::path& file_;
  ByteStream& content_;
  int64_t offset_ = 0;
  Header header_;  // read from content_
};

// Returns the index of element `i` of an array, such as "[2, 0, 7]".
std::string IndexText(const std::vector<int64_t>& shape, size_t i) {
  std::vector<int64_t> index(shape.size());
  auto rest = static_cast<int64_t>(i);
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

// Rounds floats from 0 to 1, or from 0 to 255 if one is above 1, to bytes.
NpyElements<uint8_t> PixelsOf(const fs::path& file, const NpyArray& array) {
  constexpr float kMaxPixel = 255;
  float max = 0;
  for (size_t i = 0; i < array.values.size(); ++i) {
    const float value = array.values[i];
    // NaN compares as false.
    if (!(value >= 0 && value <= kMaxPixel)) {
      FailToRead(file, fmt::format("its element {} is {}; numbers from 0 to 1 or from 0 to 255 "
                                   "were expected",
                                   IndexText(array.shape, i), value));
    }
    max = std::max(max, value);
  }
  const float scale = max <= 1 ? kMaxPixel : 1;
  NpyElements<uint8_t> pixels{.shape = array.shape, .values = {}};
  pixels.values.reserve(array.values.size());
  for (const float value : array.values) {
    pixels.values.push_back(static_cast<uint8_t>(std::lround(value * scale)));
  }
  return pixels;
}

}  // namespace

NpyArray ReadNpy(const fs::path& file) {
  FileContent content(file);
  return ReadInMemory(file, [&] { return NpyReader(content).Read<float>(); });
}

NpyElements<uint8_t> ReadNpyPixels(const fs::path& file) {
  FileContent content(file);
  return ReadNpyPixels(content);
}

NpyElements<uint8_t> ReadNpyPixels(ByteStream& content) {
  const fs::path& file = content.path();
  return ReadInMemory(file, [&] {
    NpyReader reader(content);
    if (std::ranges::find(kTypes<float>, reader.descr(), &Type<float>::descr) !=
        kTypes<float>.end()) {
      return PixelsOf(file, reader.Read<float>());
    }
    return reader.Read<uint8_t>(TypeNames<uint8_t>() + ", " + TypeNames<float>());
  });
}

NpyElements<int64_t> ReadNpyIntegers(const fs::path& file) {
  FileContent content(file);
  return ReadNpyIntegers(content);
}

NpyElements<int64_t> ReadNpyIntegers(ByteStream& content) {
  return ReadInMemory(content.path(), [&] { return NpyReader(content).Read<int64_t>(); });
}

}  // namespace planish::lab
