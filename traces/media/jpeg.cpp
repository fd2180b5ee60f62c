// libjpeg-turbo reports errors through a callback that must not return, so we leave by longjmp(): no objects
// with destructors may be in the functions between setjmp() and libjpeg, because their destructors would be
// skipped.
#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/refuse.hpp"
#include "traces/media/codecs.hpp"
#include "traces/media/orientation.hpp"

namespace dflop {
namespace {

/// A progressive file has about 10 scans; each costs a pass over all pixels, however short it is.
constexpr int kMaxScans = 100;

constexpr int kMetadataMarker = JPEG_APP0 + 1;
constexpr std::string_view kXmpName = "http://ns.adobe.com/xap/1.0/";
constexpr std::string_view kExifName("Exif\0\0", 6);

/// Returns a * b / 255, rounded.
unsigned multiply_255(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/// Converts a row of inverted CMYK to RGB, in place: the white that ink and black leave (Pillow, Convert.c,
/// cmyk2rgb).
void cmyk_to_rgb(const std::uint8_t* cmyk, std::size_t width, std::uint8_t* rgb) {
  for (std::size_t x = 0; x < width; ++x) {
    const unsigned paper = cmyk[4 * x + 3];  // inverted: 255 means no black
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned ink = multiply_255(255u - cmyk[4 * x + c], paper);
      rgb[3 * x + c] = static_cast<std::uint8_t>(paper - std::min(ink, paper));
    }
  }
}

/// A JpegReader is one run of libjpeg over bytes in memory.
class JpegReader {
 public:
  explicit JpegReader(const PictureFile& file) : file_(file) {
    state_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    errors_.output_message = [](j_common_ptr) {};
    state_.client_data = this;
    guarded([this] {
      jpeg_create_decompress(&state_);
      jpeg_save_markers(&state_, kMetadataMarker, 0xFFFF);
    });
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = on_end;
    source_.skip_input_data = on_skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(file.bytes.data());
    source_.bytes_in_buffer = file.bytes.size();
    state_.src = &source_;
    progress_.progress_monitor = on_progress;
    state_.progress = &progress_;
  }
  ~JpegReader() { jpeg_destroy_decompress(&state_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// Reads up to the first scan. @throws Error (input) for unsupported kinds.
  ImageSize read_header() {
    guarded([this] { jpeg_read_header(&state_, TRUE); });
    const ImageSize size = checked_size(file_, state_.image_width, state_.image_height);
    if (state_.arith_code) refuse("expected Huffman codes, found arithmetic coding");
    if (state_.data_precision != 8) refuse("expected 8 bits a channel, found {}", state_.data_precision);
    const J_COLOR_SPACE space = state_.jpeg_color_space;
    if (space != JCS_GRAYSCALE && space != JCS_RGB && space != JCS_YCbCr && space != JCS_CMYK &&
        space != JCS_YCCK) {
      refuse("expected gray, RGB, YCbCr, CMYK or YCCK, found {} channels", state_.num_components);
    }
    return size;
  }

  /// Returns the orientation in the header, before decoding ends. @pre read_header()
  Orientation orientation() const {
    if (file_.exif == ExifRule::ignore) return {};
    std::string_view xmp;
    for (jpeg_saved_marker_ptr marker = state_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (marker->marker != kMetadataMarker) continue;
      if (data.starts_with(kXmpName)) xmp = data;
      if (!data.starts_with(kExifName)) continue;
      if (const std::optional<Orientation> found = exif_orientation(data)) return *found;
    }
    return xmp_orientation(xmp);
  }

  /// Returns the upright picture.
  RgbImage decode() {
    const ImageSize size = read_header();
    check_bytes(size);
    const Orientation upright = orientation();
    const auto width = static_cast<std::size_t>(size.width);
    RgbImage image{size, std::vector<std::uint8_t>(3 * width * static_cast<std::size_t>(size.height))};
    const bool inks = state_.jpeg_color_space == JCS_CMYK || state_.jpeg_color_space == JCS_YCCK;
    state_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    std::vector<std::uint8_t> row(inks ? 4 * width : 0);
    guarded([&] { jpeg_start_decompress(&state_); });
    guarded([&] { read_rows(image.pixels.data(), inks ? row.data() : nullptr); });
    return upright.turned(std::move(image));
  }

 private:
  void read_rows(std::uint8_t* rgb, std::uint8_t* cmyk) {
    for (; state_.output_scanline < state_.output_height; rgb += 3 * std::size_t{state_.output_width}) {
      JSAMPROW row = cmyk == nullptr ? rgb : cmyk;
      jpeg_read_scanlines(&state_, &row, 1);
      if (cmyk != nullptr) cmyk_to_rgb(cmyk, state_.output_width, rgb);
    }
    jpeg_finish_decompress(&state_);
  }

  /// Rejects a file that is too short for its pixels before allocating them: each block of 8x8 pixels has at
  /// least a bit for its mean.
  void check_bytes(ImageSize size) const {
    const auto blocks = [](std::int32_t side) { return (static_cast<std::size_t>(side) + 7) / 8; };
    const std::size_t least = blocks(size.width) * blocks(size.height) / 8;
    if (file_.bytes.size() < least) {
      refuse_input(file_.name, "expected {} bytes or more for {}x{} pixels, found {}: the file is cut short",
                   least, size.width, size.height, file_.bytes.size());
    }
  }

  /// Runs a call of libjpeg. @throws Error (input) if it fails.
  template <typename Call>
  void guarded(const Call& call) {
    if (setjmp(back_) == 0) {
      call();
      return;
    }
    if (too_many_scans_) refuse("expected at most {} scans, found more", kMaxScans);
    std::array<char, JMSG_LENGTH_MAX> text{};
    errors_.format_message(reinterpret_cast<j_common_ptr>(&state_), text.data());
    refuse("expected a whole JPEG file, found: {}", text.data());
  }

  template <typename... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> message, Values&&... values) const {
    const std::size_t offset =
        source_.next_input_byte == nullptr ? 0 : file_.bytes.size() - source_.bytes_in_buffer;
    refuse_input(place_at(file_, offset), message, std::forward<Values>(values)...);
  }

  static JpegReader& of(j_common_ptr state) { return *static_cast<JpegReader*>(state->client_data); }

  [[noreturn]] static void on_error(j_common_ptr state) { std::longjmp(of(state).back_, 1); }

  /// Treats warnings after which pixels may be wrong as errors, and drops all others.
  static void on_message(j_common_ptr state, int level) {
    if (level >= 0) return;
    switch (state->err->msg_code) {
      case JWRN_ARITH_BAD_CODE:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_JPEG_EOF:
      case JWRN_MUST_RESYNC:
        on_error(state);
    }
  }

  static boolean on_end(j_decompress_ptr state) {
    WARNMS(state, JWRN_JPEG_EOF);  // on_message() does not return from this
    return FALSE;
  }

  static void on_skip(j_decompress_ptr state, long count) {
    if (count <= 0) return;
    jpeg_source_mgr& source = *state->src;
    const std::size_t skipped = static_cast<std::size_t>(count);
    if (skipped > source.bytes_in_buffer) {
      source.next_input_byte += source.bytes_in_buffer;
      source.bytes_in_buffer = 0;
      on_end(state);
    }
    source.next_input_byte += skipped;
    source.bytes_in_buffer -= skipped;
  }

  static void on_progress(j_common_ptr state) {
    if (of(state).state_.input_scan_number <= kMaxScans) return;
    of(state).too_many_scans_ = true;
    on_error(state);
  }

  PictureFile file_;
  jpeg_decompress_struct state_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf back_{};
  bool too_many_scans_ = false;
};

}  // namespace

RgbImage decode_jpeg(const PictureFile& file) {
  return JpegReader(file).decode();
}

ImageSize jpeg_size(const PictureFile& file) {
  JpegReader reader(file);
  const ImageSize stored = reader.read_header();
  return reader.orientation().turned(stored);
}

}  // namespace dflop
