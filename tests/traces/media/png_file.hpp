// PNG files for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>

namespace dflop::testing {

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

inline std::string png_chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(static_cast<std::uint32_t>(crc));
}

/// Builds a PNG file from rows, each preceded by its filter byte.
inline std::string png_file(std::uint32_t width, std::uint32_t height, char depth, char kind,
                            const std::string& rows, const std::string& palette = "",
                            const std::string& exif = "") {
  std::string packed(::compressBound(rows.size()), '\0');
  uLongf length = packed.size();
  ::compress(reinterpret_cast<Bytef*>(packed.data()), &length, reinterpret_cast<const Bytef*>(rows.data()),
             rows.size());
  packed.resize(length);
  return "\x89PNG\r\n\x1A\n" +
         png_chunk("IHDR", big_endian(width) + big_endian(height) + depth + kind + std::string(3, '\0')) +
         (palette.empty() ? "" : png_chunk("PLTE", palette)) + (exif.empty() ? "" : png_chunk("eXIf", exif)) +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

/// Returns a gray PNG file whose pixels all have one value.
inline std::string gray_png(std::uint32_t width, std::uint32_t height, std::uint8_t value,
                            const std::string& exif = "") {
  std::string rows;
  for (std::uint32_t y = 0; y < height; ++y) rows += '\0' + std::string(width, static_cast<char>(value));
  return png_file(width, height, 8, 0, rows, "", exif);
}

}  // namespace dflop::testing
