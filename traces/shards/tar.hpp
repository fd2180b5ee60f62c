// A TarFile is a WebDataset shard: a tar whose files form samples; "000123.jpg" and "000123.json" are members
// of one sample. It reads all headers once, and can then read members in any order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A TarMember is one file in the tar.
struct TarMember {
  std::string extension;     ///< lower-case text after the name's first dot: "jpg", "seg.png"
  std::uint64_t offset = 0;  ///< offset of the file's bytes in the tar
  std::uint64_t size = 0;    ///< in bytes

  bool operator==(const TarMember&) const = default;
};

/// A TarSample groups the files with the same name up to the first dot.
struct TarSample {
  std::string key;  ///< the path up to the first dot of the file's name: "train/000123"
  std::vector<TarMember> members;

  /// Returns the member with this extension, or null.
  const TarMember* find(std::string_view extension) const;

  /// Returns the end of an error about a sample without a member `extension`: if members end in it after
  /// another dot, because the base names have dots, which members there are and what to do; else "".
  std::string hint_of_dots(std::string_view extension) const;

  bool operator==(const TarSample&) const = default;
};

/// Several threads may read a TarFile at once. It keeps no file open, because there may be thousands.
class TarFile {
 public:
  /// Reads all headers: ustar, with GNU's long names, pax's paths and sizes, and sizes of base 256. Like
  /// WebDataset, it skips folders, and files whose name begins with a dot or contains no dot.
  /// @throws Error (input) with file and offset for damaged headers, a missing end, links, sparse files and
  /// devices, a repeated member, and a sample whose members are not adjacent
  explicit TarFile(const std::string& path);

  const std::string& path() const { return path_; }
  /// Returns all samples, in the order of the tar.
  const std::vector<TarSample>& samples() const { return samples_; }

  /// Returns the bytes of a member of this file. @throws Error (input) if the file cannot be read that far
  std::string read(const TarMember& member) const;

 private:
  std::string path_;
  std::vector<TarSample> samples_;
};

}  // namespace dflop
