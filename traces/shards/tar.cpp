#include "traces/shards/tar.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/refuse.hpp"
#include "traces/text/readable_file.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::uint64_t kTarBlock = 512;
constexpr std::uint64_t kLongestRecords = std::uint64_t{1} << 20;  // for a long name or pax records, in bytes

using TarBlock = std::array<char, kTarBlock>;

/// A TarField is a part of a header.
struct TarField {
  std::size_t begin;
  std::size_t size;
};
constexpr TarField kTarName{0, 100};
constexpr TarField kTarSize{124, 12};
constexpr TarField kTarChecksum{148, 8};
constexpr std::size_t kTarType = 156;
constexpr TarField kTarMagic{257, 6};
constexpr TarField kTarPrefix{345, 155};

std::string_view field_of(const TarBlock& header, TarField field) {
  return {header.data() + field.begin, field.size};
}

/// Returns the text of a field up to its first zero.
std::string_view text_of(const TarBlock& header, TarField field) {
  const std::string_view all = field_of(header, field);
  return all.substr(0, all.find('\0'));
}

/// Returns the number in a field: octal digits, or base 256 if the first byte is 0x80.
std::optional<std::uint64_t> number_of(const TarBlock& header, TarField field) {
  const std::string_view all = field_of(header, field);
  std::uint64_t number = 0;
  if (all[0] == '\x80') {
    for (const char byte : all.substr(1)) {
      if (number >> 56 != 0) return std::nullopt;
      number = number << 8 | static_cast<unsigned char>(byte);
    }
    return number;
  }
  const std::size_t begin = std::min(all.find_first_not_of(' '), all.size());
  const std::string_view digits =
      all.substr(begin, all.find_first_of(std::string_view(" \0", 2), begin) - begin);
  for (const char digit : digits) {  // 12 octal digits are 36 bits
    if (digit < '0' || digit > '7') return std::nullopt;
    number = number * 8 + static_cast<std::uint64_t>(digit - '0');
  }
  return number;
}

/// Returns the sum of a header's bytes, counting the checksum field as spaces.
std::uint64_t checksum_of(const TarBlock& header) {
  std::uint64_t sum = kTarChecksum.size * ' ';
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (i - kTarChecksum.begin >= kTarChecksum.size) sum += static_cast<unsigned char>(header[i]);
  }
  return sum;
}

bool is_zero(const TarBlock& block) {
  return std::all_of(block.begin(), block.end(), [](char byte) { return byte == '\0'; });
}

std::string type_name(char type) {
  switch (type) {
    case '1':
    case 'K':
      return "a hard link, or a link of a long name";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
    case '6':
      return "a device or pipe";
    case 'S':
      return "a sparse file";
    default:
      return fmt::format("an entry of type 0x{:02x}", static_cast<unsigned char>(type));
  }
}

/// A TarEntry is a file in a tar.
struct TarEntry {
  std::string path;
  std::uint64_t header = 0;  // offset
  std::uint64_t begin = 0;   // offset of its content
  std::uint64_t size = 0;
};

/// A TarExtension holds data about a file from preceding entries, when its own header has no room.
struct TarExtension {
  std::string path;
  std::optional<std::uint64_t> size;

  bool is_empty() const { return path.empty() && !size; }
};

/// A TarWalk goes from header to header.
class TarWalk {
 public:
  explicit TarWalk(const ReadableFile& tar) : tar_(tar) {}

  /// Returns the next file, or nothing at the tar's end.
  std::optional<TarEntry> next() {
    TarExtension told;
    for (;;) {
      const std::uint64_t at = at_;
      const TarBlock header = next_block();
      if (is_zero(header)) {
        if (!told.is_empty())
          refuse(at, "expected a file after the header with its long name or size, found the end of the tar");
        check_end();
        return std::nullopt;
      }
      const std::uint64_t own_size = checked_size(header, at);
      const char type = header[kTarType];
      if (type == 'L' || type == 'x' || type == 'g') {
        read_extension(type, at, own_size, told);
        continue;
      }
      TarEntry entry = {told.path.empty() ? path_of(header) : told.path, at, at_,
                        told.size.value_or(own_size)};
      if (type == '5' || entry.path.ends_with('/')) {
        if (entry.size != 0) refuse(at, "expected a folder without bytes, found {} of them", entry.size);
        told = {};
        continue;
      }
      if (type != '0' && type != '\0' && type != '7')
        refuse(at, "expected a file or folder, found {} ('{}')", type_name(type), entry.path);
      pass(entry.size, at);
      return entry;
    }
  }

 private:
  template <typename... Values>
  [[noreturn]] void refuse(std::uint64_t offset, fmt::format_string<Values...> message,
                           Values&&... values) const {
    refuse_input(offset_place(tar_.path(), offset), message, std::forward<Values>(values)...);
  }

  TarBlock next_block() {
    const std::uint64_t left = tar_.size() - std::min(at_, tar_.size());
    if (left < kTarBlock) {
      refuse(at_, "expected a header, or two blocks of zeros as the tar's end, found {} bytes: it is cut off",
             left);
    }
    TarBlock block;
    tar_.read(at_, block.data(), block.size());
    at_ += kTarBlock;
    return block;
  }

  std::uint64_t checked_size(const TarBlock& header, std::uint64_t at) const {
    const std::uint64_t sum = checksum_of(header);
    if (number_of(header, kTarChecksum) != sum)
      refuse(at, "expected a header of checksum {:o}, found '{}'", sum, text_of(header, kTarChecksum));
    const std::optional<std::uint64_t> size = number_of(header, kTarSize);
    if (!size) refuse(at, "expected a size, found '{}'", text_of(header, kTarSize));
    return *size;
  }

  static std::string path_of(const TarBlock& header) {
    const std::string name(text_of(header, kTarName));
    // GNU's magic ends in a space, and other fields are at the place of ustar's prefix.
    const bool is_ustar = field_of(header, kTarMagic) == std::string_view("ustar\0", 6);
    const std::string_view prefix = is_ustar ? text_of(header, kTarPrefix) : "";
    return prefix.empty() ? name : fmt::format("{}/{}", prefix, name);
  }

  /// Skips an entry's content, which fills whole blocks.
  void pass(std::uint64_t size, std::uint64_t header) {
    if (size > tar_.size() - at_) {
      refuse(header, "expected a size of at most {}, the bytes to the file's end, found {}",
             tar_.size() - at_, size);
    }
    at_ += (size + kTarBlock - 1) / kTarBlock * kTarBlock;
  }

  void read_extension(char type, std::uint64_t at, std::uint64_t size, TarExtension& told) {
    if (size > kLongestRecords)
      refuse(at, "expected a long name or records of at most {} bytes, found {}", kLongestRecords, size);
    const std::uint64_t begin = at_;
    pass(size, at);
    std::string text(size, '\0');
    tar_.read(begin, text.data(), text.size());
    if (type == 'L') {
      told.path = text.substr(0, text.find('\0'));
      return;
    }
    TarExtension records = type == 'x' ? std::move(told) : TarExtension{};
    read_records(text, begin, records);
    if (type == 'x') {
      told = std::move(records);
    } else if (!records.is_empty()) {
      refuse(at, "expected a path or size of one file, found one for all files that follow");
    }
  }

  /// Reads pax's records, "30 path=...\n"; the number is the size of the record in bytes.
  void read_records(std::string_view text, std::uint64_t offset, TarExtension& told) const {
    while (!text.empty()) {
      std::size_t size = 0;
      const char* const end = text.data() + text.size();
      const char* const space = std::from_chars(text.data(), end, size).ptr;
      const auto digits = static_cast<std::size_t>(space - text.data());
      const std::size_t equals = text.find('=');
      if (space == end || *space != ' ' || size > text.size() || size < digits + 3 ||
          text[size - 1] != '\n' || equals >= size) {
        refuse(offset, "expected a record 'bytes key=value', found {} bytes of another form", text.size());
      }
      const std::string_view key = text.substr(digits + 1, equals - digits - 1);
      const std::string_view value = text.substr(equals + 1, size - equals - 2);
      if (key == "path") told.path = value;
      if (key == "size") told.size = decimal(value, offset);
      if (key.starts_with("GNU.sparse")) refuse(offset, "expected a plain file, found {}", type_name('S'));
      text.remove_prefix(size);
      offset += size;
    }
  }

  std::uint64_t decimal(std::string_view text, std::uint64_t offset) const {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size())
      refuse(offset, "expected a size, found '{}'", text);
    return number;
  }

  /// Checks the tar's end: a second block of zeros, and nothing after it. If tars were concatenated, only the
  /// first would be read.
  void check_end() {
    do {
      const std::uint64_t at = at_;
      if (!is_zero(next_block())) refuse(at, "expected zeros up to the file's end, found other bytes");
    } while (tar_.size() - at_ >= kTarBlock);
  }

  const ReadableFile& tar_;
  std::uint64_t at_ = 0;
};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

constexpr std::string_view kDotHint =
    ". As in WebDataset, a sample's key ends at the first dot of the file's name: rename files that have other "
    "dots, such as 22.05.png to 22_05.png";

/// Splits a path at the first dot of the file's name; nothing if the name begins with it or has none.
std::optional<std::pair<std::string, std::string>> split_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', name);
  if (dot == std::string::npos || dot == name) return std::nullopt;
  return std::pair{path.substr(0, dot), lower_case(path.substr(dot + 1))};
}

}  // namespace

const TarMember* TarSample::find(std::string_view extension) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const TarMember& member) { return member.extension == extension; });
  return found == members.end() ? nullptr : &*found;
}

std::string TarSample::hint_of_dots(std::string_view extension) const {
  const std::string end = fmt::format(".{}", extension);
  constexpr std::size_t kMaxShown = 4;
  std::vector<std::string> shown;
  bool has_dots = false;
  for (const TarMember& member : members) {
    has_dots = has_dots || member.extension.ends_with(end);
    shown.push_back("." + member.extension);
  }
  if (!has_dots) return "";
  const std::size_t left = shown.size() - std::min(shown.size(), kMaxShown);
  if (left > 0) {
    shown.resize(kMaxShown);
    shown.push_back(fmt::format("{} others", left));
  }
  const std::string last = shown.back();
  shown.pop_back();
  return fmt::format(", but {}{}{}{}", fmt::join(shown, ", "), shown.empty() ? "" : " and ", last, kDotHint);
}

TarFile::TarFile(const std::string& path) : path_(path) {
  const ReadableFile tar(path);
  std::array<char, 2> magic{};
  if (tar.size() >= magic.size()) tar.read(0, magic.data(), magic.size());
  if (magic == std::array{'\x1f', '\x8b'})
    refuse_input(path, "is compressed with gzip, in which samples cannot be located: unpack it first");
  TarWalk walk(tar);
  std::unordered_set<std::string> keys;
  std::unordered_set<std::string> extensions;  // of the last sample
  while (const std::optional<TarEntry> entry = walk.next()) {
    auto names = split_path(entry->path);
    if (!names) continue;
    auto& [key, extension] = *names;
    if (samples_.empty() || samples_.back().key != key) {
      if (!keys.insert(key).second) {
        refuse_input(
            offset_place(path, entry->header),
            "expected all members of sample '{}' one after the other, found '{}' separated from them{}", key,
            entry->path, extension.find('.') == std::string::npos ? "" : kDotHint);
      }
      extensions.clear();
      samples_.push_back({key, {}});
    }
    if (!extensions.insert(extension).second) {
      refuse_input(offset_place(path, entry->header),
                   "expected one member '{}' of sample '{}', found a second", extension, key);
    }
    samples_.back().members.push_back({std::move(extension), entry->begin, entry->size});
  }
}

std::string TarFile::read(const TarMember& member) const {
  const ReadableFile tar(path_);
  std::string bytes(member.size, '\0');
  tar.read(member.offset, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace dflop
