#include "lab/data/jpeg_reader.h"

#include "lab/data/file_content.h"

#if PLANISH_HAS_JPEG
#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>

// clang-format off
#include <jpeglib.h>  // needs cstdio
#include <jerror.h>
// clang-format on

#include "lab/base/escape.h"
#endif

namespace planish::lab {

namespace fs = std::filesystem;

#if !PLANISH_HAS_JPEG

ImagePixels ReadJpeg(const fs::path& file) {
  FailToRead(file, "planish was built without libjpeg: convert it to PNG first");
}

#else

namespace {

constexpr std::string_view kJpegStart = "\xff\xd8\xff";

// libjpeg's state and the error that ended it. libjpeg reports errors by a call that must not
// return, so functions that call it have no objects with destructors.
struct JpegDecoder {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf at_error{};
  bool truncated = false, out_of_memory = false;
  char error[JMSG_LENGTH_MAX] = "";

  JpegDecoder() = default;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg); }
};

JpegDecoder* DecoderOf(j_common_ptr jpeg) { return static_cast<JpegDecoder*>(jpeg->client_data); }

[[noreturn]] void OnJpegError(j_common_ptr jpeg) {
  JpegDecoder* const decoder = DecoderOf(jpeg);
  decoder->out_of_memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
  jpeg->err->format_message(jpeg, decoder->error);
  std::longjmp(decoder->at_error, 1);
}

// libjpeg pads truncated and damaged data, with a warning.
void OnJpegMessage(j_common_ptr jpeg, int level) {
  if (level >= 0 || jpeg->err->msg_code == JWRN_EXTRANEOUS_DATA) return;
  DecoderOf(jpeg)->truncated = jpeg->err->msg_code == JWRN_JPEG_EOF;
  OnJpegError(jpeg);
}

// Reads the header and chooses grey or RGB. Returns false after an error.
bool StartJpeg(JpegDecoder* decoder, const std::string& bytes) {
  jpeg_decompress_struct* const jpeg = &decoder->jpeg;
  jpeg->err = jpeg_std_error(&decoder->errors);
  jpeg->client_data = decoder;
  decoder->errors.error_exit = OnJpegError;
  decoder->errors.emit_message = OnJpegMessage;
  if (setjmp(decoder->at_error) != 0) return false;
  jpeg_create_decompress(jpeg);
  jpeg_mem_src(jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(jpeg, TRUE);
  jpeg->out_color_space = jpeg->jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
  jpeg->dct_method = JDCT_ISLOW;
  return true;
}

// Reads the pixels into rows of `stride` bytes. Returns false after an error.
bool ReadJpegRows(JpegDecoder* decoder, uint8_t* pixels, size_t stride) {
  if (setjmp(decoder->at_error) != 0) return false;
  jpeg_start_decompress(&decoder->jpeg);
  while (decoder->jpeg.output_scanline < decoder->jpeg.output_height) {
    JSAMPROW row = pixels + decoder->jpeg.output_scanline * stride;
    jpeg_read_scanlines(&decoder->jpeg, &row, 1);
  }
  jpeg_finish_decompress(&decoder->jpeg);
  return true;
}

[[noreturn]] void FailToDecodeJpeg(const fs::path& file, const JpegDecoder& decoder) {
  if (decoder.out_of_memory) throw std::bad_alloc();
  if (decoder.truncated) FailToRead(file, "its JPEG data is truncated");
  FailToRead(file, fmt::format("its JPEG data is damaged ({})", Escaped(decoder.error)));
}

}  // namespace

ImagePixels ReadJpeg(const fs::path& file) {
  return ReadInMemory(file, [&] {
    const std::string bytes = FileContent(file).Rest();
    if (bytes.empty()) FailToRead(file, "it is empty");
    if (!bytes.starts_with(kJpegStart)) FailToRead(file, "it is not a JPEG image");
    JpegDecoder decoder;
    if (!StartJpeg(&decoder, bytes)) FailToDecodeJpeg(file, decoder);
    const jpeg_decompress_struct& jpeg = decoder.jpeg;
    if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK) {
      FailToRead(file, "it is in CMYK: convert it to RGB first");
    }
    ImagePixels image;
    image.shape = {.height = jpeg.image_height,
                   .width = jpeg.image_width,
                   .channels = jpeg.out_color_space == JCS_GRAYSCALE ? 1 : 3};
    CheckImageSides(file, image.shape);
    const auto stride = static_cast<size_t>(image.shape.width * image.shape.channels);
    image.pixels.resize(stride * static_cast<size_t>(image.shape.height));
    if (!ReadJpegRows(&decoder, image.pixels.data(), stride)) FailToDecodeJpeg(file, decoder);
    RemoveEqualChannels(&image);
    return image;
  });
}

#endif

}  // namespace planish::lab
