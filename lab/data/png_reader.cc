#include "lab/data/png_reader.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "lab/base/escape.h"
#include "lab/data/file_content.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr size_t kPngSignature = 8;

// Image formats that are often named .png.
struct ImageFormat {
  std::string_view start;
  std::string_view name;
};
constexpr ImageFormat kImageFormats[] = {
    {"\xff\xd8\xff", "a JPEG image"},
    {"GIF8", "a GIF image"},
    {"BM", "a BMP image"},
    {"RIFF", "a WebP image"},
    {"II*", "a TIFF image"},
    {"MM", "a TIFF image"},
    {"P5", "a PGM image"},
    {"P6", "a PPM image"},
    {"<", "a text, such as SVG or HTML"},
};

// libpng's state and the error that ended it. libpng reports errors by longjmp, so functions that
// call it have no objects with destructors.
struct PngDecoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const uint8_t* next = nullptr;
  size_t left = 0;
  bool truncated = false;
  char error[128] = "";

  PngDecoder() = default;
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto* const decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::strncpy(decoder->error, message, sizeof decoder->error - 1);
  png_longjmp(png, 1);
}

void OnWarning(png_structp /*png*/, png_const_charp /*message*/) {}

void OnRead(png_structp png, png_bytep out, size_t count) {
  auto* const decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (decoder->left < count) {
    decoder->truncated = true;
    png_error(png, "truncated");
  }
  std::memcpy(out, decoder->next, count);
  decoder->next += count;
  decoder->left -= count;
}

// Reads the header and sets the conversion to 8 bits, grey or RGB. Returns false after an error.
bool StartPng(PngDecoder* decoder, const std::string& bytes) {
  decoder->next = reinterpret_cast<const uint8_t*>(bytes.data());
  decoder->left = bytes.size();
  decoder->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, decoder, OnError, OnWarning);
  if (decoder->png == nullptr) return false;
  if (setjmp(png_jmpbuf(decoder->png)) != 0) return false;
  decoder->info = png_create_info_struct(decoder->png);
  if (decoder->info == nullptr) png_error(decoder->png, "out of memory");
  png_set_read_fn(decoder->png, decoder, OnRead);
  png_read_info(decoder->png, decoder->info);
  png_set_scale_16(decoder->png);
  // Palettes become RGB, and grey samples of fewer than 8 bits become bytes.
  png_set_expand(decoder->png);
  png_set_strip_alpha(decoder->png);
  png_set_interlace_handling(decoder->png);
  png_read_update_info(decoder->png, decoder->info);
  return true;
}

// Reads the pixels into rows of `stride` bytes. Returns false after an error.
bool ReadPngRows(PngDecoder* decoder, uint8_t* pixels, size_t stride, png_uint_32 height,
                 int passes) {
  if (setjmp(png_jmpbuf(decoder->png)) != 0) return false;
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 row = 0; row < height; ++row) {
      png_read_row(decoder->png, pixels + row * stride, nullptr);
    }
  }
  png_read_end(decoder->png, nullptr);
  return true;
}

[[noreturn]] void FailToDecode(const fs::path& file, const PngDecoder& decoder) {
  const std::string_view error = decoder.error;
  if (decoder.truncated) FailToRead(file, "its PNG data is truncated");
  if (error.empty() || error.find("emory") != error.npos) throw std::bad_alloc();
  FailToRead(file, fmt::format("its PNG data is damaged ({})", Escaped(error)));
}

}  // namespace

void CheckImageSides(const fs::path& file, const ImageShape& shape) {
  if (std::max(shape.height, shape.width) > kMaxImageSide) {
    FailToRead(file, fmt::format("its image has {} x {} pixels; sides up to {} are allowed",
                                 shape.height, shape.width, kMaxImageSide));
  }
}

void RemoveEqualChannels(ImagePixels* image) {
  if (image->shape.channels != 3) return;
  const std::vector<uint8_t>& rgb = image->pixels;
  for (size_t i = 0; i < rgb.size(); i += 3) {
    if (rgb[i] != rgb[i + 1] || rgb[i] != rgb[i + 2]) return;
  }
  for (size_t i = 0; i < rgb.size() / 3; ++i) image->pixels[i] = image->pixels[3 * i];
  image->pixels.resize(rgb.size() / 3);
  image->pixels.shrink_to_fit();
  image->shape.channels = 1;
}

ImagePixels ReadPng(const fs::path& file) {
  return ReadInMemory(file, [&] {
    const std::string bytes = FileContent(file).Rest();
    const auto* const start = reinterpret_cast<const uint8_t*>(bytes.data());
    if (bytes.empty()) FailToRead(file, "it is empty");
    if (png_sig_cmp(start, 0, std::min(bytes.size(), kPngSignature)) != 0) {
      for (const ImageFormat& format : kImageFormats) {
        if (bytes.starts_with(format.start)) {
          FailToRead(file, fmt::format("it is {}, not PNG: convert it first", format.name));
        }
      }
      FailToRead(file, "it is not a PNG image");
    }
    PngDecoder decoder;
    if (!StartPng(&decoder, bytes)) FailToDecode(file, decoder);
    ImagePixels image;
    image.shape.height = png_get_image_height(decoder.png, decoder.info);
    image.shape.width = png_get_image_width(decoder.png, decoder.info);
    image.shape.channels = png_get_channels(decoder.png, decoder.info);
    CheckImageSides(file, image.shape);
    const size_t stride = png_get_rowbytes(decoder.png, decoder.info);
    image.pixels.resize(stride * static_cast<size_t>(image.shape.height));
    const int passes =
        png_get_interlace_type(decoder.png, decoder.info) == PNG_INTERLACE_NONE ? 1 : 7;
    if (!ReadPngRows(&decoder, image.pixels.data(), stride,
                     static_cast<png_uint_32>(image.shape.height), passes)) {
      FailToDecode(file, decoder);
    }
    RemoveEqualChannels(&image);
    return image;
  });
}

std::vector<uint8_t> GreyOf(const std::vector<uint8_t>& pixels) {
  std::vector<uint8_t> grey(pixels.size() / 3);
  for (size_t i = 0; i < grey.size(); ++i) {
    // Weights in units of 2^-16, with rounding, as in Pillow.
    const uint32_t sum =
        19595u * pixels[3 * i] + 38470u * pixels[3 * i + 1] + 7471u * pixels[3 * i + 2] + 0x8000u;
    grey[i] = static_cast<uint8_t>(sum >> 16);
  }
  return grey;
}

}  // namespace planish::lab
