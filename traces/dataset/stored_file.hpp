// A StoredFile reads the bytes of one medium of a sample.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "traces/dataset/sample_source.hpp"
#include "traces/media/image.hpp"
#include "traces/text/readable_file.hpp"

namespace dflop {

class StoredFile {
 public:
  /// Opens a medium's file. `stored` must outlive this. @throws Error (input) with the medium's place and
  /// hint
  explicit StoredFile(const StoredMedium& stored);

  const ReadableFile& file() const { return *file_; }
  std::uint64_t size() const { return size_; }  ///< of the medium

  /// Returns the first bytes of the medium.
  /// @throws Error (input) with the medium's place if the file is shorter, and for a file over 1 GiB
  std::string read(std::uint64_t count) const;

  /// Returns use(bytes) for the first bytes of a picture, as few as `use` needs: with more bytes each time
  /// that it throws an Error. The bytes of a PNG file are its headers. Other media are read completely.
  template <typename Use>
  auto of_headers(const Use& use) const {
    // A picture's headers usually fit in the first number of bytes. With color profiles and thumbnails they
    // take up to the second number, or more.
    constexpr std::array<std::uint64_t, 2> kHeaders = {16 * 1024, 256 * 1024};
    for (const std::uint64_t count : kHeaders) {
      if (size_ <= count) break;
      const std::string bytes = read(count);
      if (!begins_as_picture(bytes)) break;
      if (begins_as_png(bytes)) return use(png_headers());
      try {
        return use(bytes);
      } catch (const Error&) {  // cut off or damaged; more bytes will tell
      }
    }
    return use(read(size_));
  }

 private:
  std::string png_headers() const;

  const StoredMedium& stored_;
  std::optional<ReadableFile> file_;
  std::uint64_t size_ = 0;
};

}  // namespace dflop
