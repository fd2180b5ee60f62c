// libpng reports errors through a callback that must not return, so we leave by longjmp(): no objects with
// destructors may be in the functions between setjmp() and libpng, because their destructors would be
// skipped.
#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/refuse.hpp"
#include "traces/media/codecs.hpp"
#include "traces/media/orientation.hpp"

namespace dflop {
namespace {

/// Deflate expands one byte to at most this many: 258 from two codes of a bit each.
constexpr std::uint64_t kMaxInflated = 1032;

constexpr std::size_t kPngSignature = 8;
constexpr std::size_t kPngChunkHeader = 8;  // length and name
constexpr std::size_t kPngChecksum = 4;

std::uint32_t png_number(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

/// Calls use(name, data) for the whole chunks of a file, which may be cut off, to its end.
template <typename Use>
void for_each_chunk(std::string_view bytes, const Use& use) {
  for (std::size_t at = kPngSignature; at <= bytes.size() && bytes.size() - at >= kPngChunkHeader;) {
    const std::size_t size = png_number(bytes.substr(at));
    const std::string_view name = bytes.substr(at + 4, 4);
    at += kPngChunkHeader;
    if (bytes.size() - at < size || name == "IEND") return;
    use(name, bytes.substr(at, size));
    at += size + kPngChecksum;
  }
}

/// Returns the orientation in the last EXIF data of a file, before or after its pixels, or else in its XMP
/// data, as Pillow does after it loaded the pixels.
Orientation png_orientation(std::string_view bytes) {
  constexpr std::string_view kXmp("XML:com.adobe.xmp\0\0", 19);  // not compressed
  std::optional<Orientation> exif;
  std::string_view xmp;
  for_each_chunk(bytes, [&](std::string_view name, std::string_view data) {
    if (name == "eXIf") exif = exif_orientation(data);
    if (name == "iTXt" && data.starts_with(kXmp)) xmp = data;
  });
  return exif ? *exif : xmp_orientation(xmp);
}

/// A PngReader is one run of libpng over bytes in memory. Chunks that do not affect upright RGB are ignored.
class PngReader {
 public:
  explicit PngReader(const PictureFile& file) : file_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw Error(ErrorKind::internal, "libpng does not start", file.name);
    }
    guarded([this] {
      png_set_read_fn(png_, this, on_read);
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    });
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Reads up to the pixels.
  ImageSize read_header() {
    guarded([this] { png_read_info(png_, info_); });
    return checked_size(file_, png_get_image_width(png_, info_), png_get_image_height(png_, info_));
  }

  Orientation orientation() const {
    return file_.exif == ExifRule::ignore ? Orientation() : png_orientation(file_.bytes);
  }

  /// Returns the upright picture.
  RgbImage decode() {
    const ImageSize size = read_header();
    check_bytes(size);
    const Orientation upright = orientation();
    const auto width = static_cast<std::size_t>(size.width);
    const auto height = static_cast<std::size_t>(size.height);
    RgbImage image{size, std::vector<std::uint8_t>(3 * width * height)};
    if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) == 16) {
      std::vector<std::uint8_t> gray(2 * width * height);
      guarded([&] { read_rows(gray.data(), 2 * width); });
      for (std::size_t i = 0; i < width * height; ++i) {
        std::memset(&image.pixels[3 * i], gray[2 * i] == 0 ? gray[2 * i + 1] : 255, 3);
      }
    } else {
      guarded([&] {
        ask_for_rgb();
        read_rows(image.pixels.data(), 3 * width);
      });
    }
    return upright.turned(std::move(image));
  }

 private:
  void ask_for_rgb() {
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
  }

  /// Reads all rows into `bytes`; interlaced pictures take seven passes.
  void read_rows(std::uint8_t* bytes, std::size_t row_bytes) {
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "rows of an unexpected length");
    const png_uint_32 height = png_get_image_height(png_, info_);
    for (int pass = 0; pass < passes; ++pass) {
      for (png_uint_32 row = 0; row < height; ++row) png_read_row(png_, bytes + row * row_bytes, nullptr);
    }
    png_read_end(png_, nullptr);
  }

  /// Rejects a file that is too short for its pixels before allocating them.
  void check_bytes(ImageSize size) const {
    const std::uint64_t bits = std::uint64_t{png_get_bit_depth(png_, info_)} * png_get_channels(png_, info_);
    const std::uint64_t pixels =
        static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height);
    const std::uint64_t least = pixels * bits / 8 / kMaxInflated;
    if (file_.bytes.size() < least) {
      refuse_input(file_.name, "expected {} bytes or more for {}x{} pixels, found {}: the file is cut short",
                   least, size.width, size.height, file_.bytes.size());
    }
  }

  /// Runs calls of libpng. @throws Error (input) if one fails.
  template <typename Call>
  void guarded(const Call& call) {
    if (setjmp(back_) == 0) {
      call();
      return;
    }
    refuse_input(place_at(file_, offset_), "expected a whole PNG file, found: {}", error_);
  }

  static PngReader& of(void* reader) { return *static_cast<PngReader*>(reader); }

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    PngReader& reader = of(png_get_error_ptr(png));
    std::strncpy(reader.error_, text, sizeof reader.error_ - 1);
    std::longjmp(reader.back_, 1);
  }

  static void on_read(png_structp png, png_bytep out, std::size_t count) {
    PngReader& reader = of(png_get_io_ptr(png));
    const std::string_view bytes = reader.file_.bytes;
    if (count > bytes.size() - reader.offset_) png_error(png, "the end of the file");
    std::memcpy(out, bytes.data() + reader.offset_, count);
    reader.offset_ += count;
  }

  PictureFile file_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::size_t offset_ = 0;
  char error_[200] = {};
  std::jmp_buf back_{};
};

}  // namespace

std::string png_headers(std::uint64_t size, const ReadBytes& read) {
  constexpr std::size_t kMaxKept = 1 << 20;
  std::string kept(kPngSignature, '\0');
  read(0, kept.data(), kept.size());
  bool has_pixels = false;
  for (std::uint64_t at = kPngSignature; at <= size && size - at >= kPngChunkHeader;) {
    std::string chunk(kPngChunkHeader, '\0');
    read(at, chunk.data(), kPngChunkHeader);
    const std::uint64_t whole = kPngChunkHeader + png_number(chunk) + kPngChecksum;
    const std::string_view name = std::string_view(chunk).substr(4);
    if (name == "IDAT") {
      if (!has_pixels) kept += std::string(4, '\0') + "IDAT" + std::string(kPngChecksum, '\0');
      has_pixels = true;
    } else {
      if (size - at < whole) break;
      if (whole <= kMaxKept) {
        const bool is_end = name == "IEND";
        chunk.resize(whole);
        read(at, chunk.data(), chunk.size());
        kept += chunk;
        if (is_end) break;
      }
    }
    at += whole;
  }
  return kept;
}

bool begins_as_png(std::string_view bytes) {
  return bytes.starts_with("\x89PNG\r\n\x1A\n");
}

RgbImage decode_png(const PictureFile& file) {
  return PngReader(file).decode();
}

ImageSize png_size(const PictureFile& file) {
  PngReader reader(file);
  const ImageSize stored = reader.read_header();
  return reader.orientation().turned(stored);
}

}  // namespace dflop
