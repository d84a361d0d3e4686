#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <stdexcept>
#include <string>

#include <jpeglib.h>

#include <jerror.h>

#include "base/limits.h"
#include "base/shown.h"
#include "models/data/image_codecs.h"

namespace shardlens::models {

namespace {

/// Each block of 8 x 8 pixels takes a bit at least, unless an arithmetic coder packs them.
constexpr int64_t kMostJpegPixelsAByte = 64 * 8;

/// A progressive file may draw its pixels again and again, in scans of few bytes.
constexpr int64_t kMostDrawnPixels = 32 * kMostImagePixels;

/// Lets libjpeg's callbacks leave: libjpeg passes them its first member.
struct FaultExit {
  jpeg_error_mgr errors;
  std::jmp_buf out;
  std::array<char, JMSG_LENGTH_MAX> reason;
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* const exit = reinterpret_cast<FaultExit*>(info->err);
  info->err->format_message(info, exit->reason.data());
  std::longjmp(exit->out, 1);
}

/// Treats a warning as an error, because libjpeg would repair the damage that it warns of. Bytes
/// between segments are let pass: they damage no pixel.
void note(j_common_ptr info, int level) {
  constexpr int kWarning = -1;
  if (level == kWarning && info->err->msg_code != JWRN_EXTRANEOUS_DATA) leave(info);
}

void watch_scans(j_common_ptr info) {
  const auto* const file = reinterpret_cast<j_decompress_ptr>(info);
  const int64_t pixels = int64_t{file->image_width} * file->image_height;
  if (file->input_scan_number * pixels <= kMostDrawnPixels) return;
  auto* const exit = reinterpret_cast<FaultExit*>(info->err);
  std::snprintf(exit->reason.data(), exit->reason.size(), "it has more than %d scans",
                file->input_scan_number - 1);
  std::longjmp(exit->out, 1);
}

class Decoder {
 public:
  Decoder() {
    file_.err = ::jpeg_std_error(&exit_.errors);
    exit_.errors.error_exit = leave;
    exit_.errors.emit_message = note;
    progress_.progress_monitor = watch_scans;
    jpeg_create_decompress(&file_);
    file_.progress = &progress_;
  }
  ~Decoder() { ::jpeg_destroy_decompress(&file_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Calls libjpeg, which leaves by longjmp if it finds a fault, so `step` must own nothing.
  template <class Step>
  void run(const Step& step) {
    if (setjmp(exit_.out) != 0) throw std::invalid_argument(shown(exit_.reason.data()));
    step(file_);
  }

  const jpeg_decompress_struct& file() const { return file_; }

 private:
  FaultExit exit_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct file_{};
};

bool is_for_print(const jpeg_decompress_struct& file) {
  return file.jpeg_color_space == JCS_CMYK || file.jpeg_color_space == JCS_YCCK;
}

void read_header(Decoder& decoder, std::string_view bytes) {
  decoder.run([&](jpeg_decompress_struct& file) {
    ::jpeg_mem_src(&file, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    ::jpeg_read_header(&file, TRUE);
    file.out_color_space = is_for_print(file) ? JCS_CMYK : JCS_RGB;
  });
}

void read_rows(Decoder& decoder, uint8_t* pixels) {
  decoder.run([&](jpeg_decompress_struct& file) {
    ::jpeg_start_decompress(&file);
    const size_t row_bytes =
        size_t{file.output_width} * static_cast<size_t>(file.output_components);
    while (file.output_scanline < file.output_height) {
      JSAMPROW row = pixels + file.output_scanline * row_bytes;
      ::jpeg_read_scanlines(&file, &row, 1);
    }
    ::jpeg_finish_decompress(&file);
  });
}

/// Returns a * b / 255, rounded.
int scaled(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/// Converts inks to colours. Files for print hold how much of each of four inks is absent: 255
/// means no ink.
std::vector<uint8_t> colours_of_inks(const std::vector<uint8_t>& inks) {
  std::vector<uint8_t> colours;
  colours.reserve(inks.size() / 4 * 3);
  for (size_t pixel = 0; pixel < inks.size(); pixel += 4) {
    const int black = inks[pixel + 3];
    for (size_t ink = pixel; ink < pixel + 3; ++ink) {
      colours.push_back(static_cast<uint8_t>(black - scaled(255 - inks[ink], black)));
    }
  }
  return colours;
}

}  // namespace

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xff\xd8\xff"); }

DecodedImage decode_jpeg(std::string_view bytes) {
  Decoder decoder;
  read_header(decoder, bytes);
  const jpeg_decompress_struct& file = decoder.file();
  if (file.arith_code) throw std::invalid_argument("it uses arithmetic coding");
  check_image_size(file.image_width, file.image_height, static_cast<int64_t>(bytes.size()),
                   kMostJpegPixelsAByte);
  DecodedImage image{file.image_height, file.image_width, {}};
  const int64_t channels = is_for_print(file) ? 4 : 3;
  image.pixels.resize(static_cast<size_t>(image.height * image.width * channels));
  read_rows(decoder, image.pixels.data());
  if (channels == 4) image.pixels = colours_of_inks(image.pixels);
  return image;
}

}  // namespace shardlens::models
