#include "traces/media/image.hpp"

#include <algorithm>

#include "core/refuse.hpp"
#include "traces/media/codecs.hpp"
#include "traces/text/first_bytes.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// An ImageCodec reads files that begin with `magic`, then any 4 bytes, then `later`, if that is not empty.
struct ImageCodec {
  std::string_view name;
  std::string_view magic;
  std::string_view later;
  RgbImage (*decode)(const PictureFile&);
  ImageSize (*size)(const PictureFile&);

  bool reads(std::string_view bytes) const {
    return bytes.starts_with(magic) && (later.empty() || (bytes.size() >= magic.size() + 4 &&
                                                          bytes.substr(magic.size() + 4).starts_with(later)));
  }
};

constexpr ImageCodec kCodecs[] = {
    {"JPEG", "\xFF\xD8\xFF", "", decode_jpeg, jpeg_size},
    {"PNG", "\x89PNG\r\n\x1A\n", "", decode_png, png_size},
    {"WebP", "RIFF", "WEBP", decode_webp, webp_size},
};

const ImageCodec& codec_of(std::string_view bytes, const std::string& file) {
  for (const ImageCodec& codec : kCodecs) {
    if (codec.reads(bytes)) return codec;
  }
  std::string found;
  for (const char byte : bytes.substr(0, 8)) {
    found += fmt::format(" {:02x}", static_cast<unsigned char>(byte));
  }
  if (const std::string_view other = medium_that_begins(bytes); !other.empty())
    found = fmt::format(" {} instead of a picture", other);
  refuse_input(
      file,
      "expected a JPEG file, which begins with ff d8 ff, a PNG file (89 50 4e 47) or a WebP file ('RIFF', 4 bytes "
      "and 'WEBP'), found{}",
      found.empty() ? " an empty file" : found);
}

}  // namespace

ImageSize checked_size(const PictureFile& file, std::uint64_t width, std::uint64_t height) {
  // All codecs have sides below 2^31, so the product cannot overflow.
  if (width == 0 || height == 0 || width * height > static_cast<std::uint64_t>(file.most_pixels)) {
    refuse_input(file.name, "expected a picture of 1 to {} pixels, found {}x{}", file.most_pixels, width,
                 height);
  }
  return {static_cast<std::int32_t>(width), static_cast<std::int32_t>(height)};
}

std::string place_at(const PictureFile& file, std::size_t offset) {
  return offset_place(file.name, offset);
}

bool begins_as_picture(std::string_view bytes) {
  return std::any_of(std::begin(kCodecs), std::end(kCodecs),
                     [&](const ImageCodec& codec) { return codec.reads(bytes); });
}

RgbImage decode_image(std::string_view bytes, const std::string& file, std::int64_t most_pixels,
                      ExifRule exif) {
  return codec_of(bytes, file).decode({bytes, file, most_pixels, exif});
}

ImageSize image_size(std::string_view bytes, const std::string& file, std::int64_t most_pixels,
                     ExifRule exif) {
  return codec_of(bytes, file).size({bytes, file, most_pixels, exif});
}

}  // namespace dflop
