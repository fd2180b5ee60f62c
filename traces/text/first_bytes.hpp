// This file tells from a file's first bytes which kind of medium it is, so that errors can name it.
#pragma once

#include <algorithm>
#include <string_view>

namespace dflop {

/// Returns "a picture", "a sound" or "a video" if a file begins as JPEG, PNG or WebP, as WAV, or as MP4 or
/// Matroska; otherwise nothing.
inline std::string_view medium_that_begins(std::string_view bytes) {
  const auto has_at = [&](std::size_t place, std::string_view text) {
    return bytes.size() >= place && bytes.substr(place).starts_with(text);
  };
  if (has_at(0, "\xFF\xD8\xFF") || has_at(0, "\x89PNG\r\n\x1A\n")) return "a picture";
  if (has_at(0, "RIFF") && has_at(8, "WEBP")) return "a picture";
  if (has_at(0, "RIFF") && has_at(8, "WAVE")) return "a sound";
  constexpr std::string_view kMp4[] = {"ftypiso", "ftypmp4", "ftypqt", "ftypavc1", "ftypM4V"};
  const bool is_mp4 = std::ranges::any_of(kMp4, [&](std::string_view brand) { return has_at(4, brand); });
  return is_mp4 || has_at(0, "\x1A\x45\xDF\xA3") ? "a video" : "";
}

}  // namespace dflop
