#include "traces/shards/json_list.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "traces/text/readable_file.hpp"

namespace dflop {
namespace {

constexpr std::size_t kScanned = std::size_t{1} << 20;  // bytes that are in memory at a time
constexpr std::uint64_t kMaxSampleBytes = std::uint64_t{256} << 20;
constexpr std::size_t kMaxListed = 20'000'000;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// Returns JsonList::place(). Many arrays are one line, so only other lines are named.
std::string place_in_list(const std::string& file, bool is_array, std::size_t sample, std::uint64_t line) {
  if (!is_array) return fmt::format("{}: line {}", file, line);
  return fmt::format("{}: element {}{}", file, sample, line > 1 ? fmt::format(" (line {})", line) : "");
}

/// A ListScan finds samples in the bytes of a list, which it takes piece by piece.
class ListScan {
 public:
  ListScan(const std::string& file, bool is_array, std::vector<JsonExtent>& found)
      : file_(file), is_array_(is_array), found_(found) {}

  void take(std::string_view bytes) {
    for (const char c : bytes) {
      is_array_ ? take_in_array(c) : take_in_line(c);
      if (c == '\n') ++line_;
      ++at_;
    }
  }

  /// Ends the list after all bytes.
  void end() {
    if (is_array_ && !has_ended_) refuse("expected the ']' that ends the array, found the end of the file");
    if (!is_array_) end_sample();
  }

 private:
  void take_in_line(char c) {
    if (c == '\n') return end_sample();
    if (!is_space(c)) extend();
  }

  void take_in_array(char c) {
    if (is_in_text_) {
      extend();
      if (!is_escaped_ && c == '"') is_in_text_ = false;
      is_escaped_ = !is_escaped_ && c == '\\';
      return;
    }
    if (is_space(c)) return;
    if (depth_ == 0) {
      if (has_ended_) refuse("expected nothing after the array, found more text");
      depth_ = 1;  // at the array's '['
      return;
    }
    if (depth_ == 1 && (c == ',' || c == ']')) return end_element(c == ']');
    if (c == '"') is_in_text_ = true;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ == 0) refuse("expected ']' at the end of the array, found '}}'");
    extend();
  }

  void end_element(bool is_last) {
    const bool is_empty_array = is_last && found_.empty() && size_ == 0;
    if (size_ == 0 && !is_empty_array)
      refuse("expected an element of the array, found '{}'", is_last ? ']' : ',');
    end_sample();
    if (!is_last) return;
    depth_ = 0;
    has_ended_ = true;
  }

  /// Makes the current byte part of the sample.
  void extend() {
    if (size_ == 0) {
      begin_ = at_;
      first_line_ = line_;
    }
    size_ = at_ + 1 - begin_;
    if (size_ > kMaxSampleBytes)
      refuse("expected samples of at most {} bytes, found a longer one", kMaxSampleBytes);
  }

  void end_sample() {
    if (size_ == 0) return;
    if (found_.size() == kMaxListed) refuse("expected at most {} samples, found more", kMaxListed);
    found_.push_back({begin_, static_cast<std::uint32_t>(size_), static_cast<std::uint32_t>(first_line_)});
    size_ = 0;
  }

  template <typename... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> message, Values&&... values) const {
    refuse_input(place_in_list(file_, is_array_, found_.size(), line_), message,
                 std::forward<Values>(values)...);
  }

  const std::string& file_;
  bool is_array_;
  std::vector<JsonExtent>& found_;
  std::uint64_t at_ = 0;
  std::uint64_t line_ = 1;
  std::uint64_t begin_ = 0;  ///< of the sample
  std::uint64_t first_line_ = 1;
  std::uint64_t size_ = 0;   ///< of the sample, without spaces around it; 0: no sample has begun
  std::uint64_t depth_ = 0;  ///< open brackets and braces
  bool is_in_text_ = false;
  bool is_escaped_ = false;
  bool has_ended_ = false;
};

}  // namespace

JsonList::JsonList(const std::string& path) : path_(path), hash_(kHashOfNothing) {
  const ReadableFile file(path);
  std::string bytes(kScanned, '\0');
  std::optional<ListScan> scan;
  for (std::uint64_t at = 0; at < file.size(); at += kScanned) {
    const std::size_t count = std::min<std::uint64_t>(kScanned, file.size() - at);
    file.read(at, bytes.data(), count);
    std::string_view piece = std::string_view(bytes).substr(0, count);
    hash_ = stable_hash(piece, hash_);
    if (!scan) {
      if (piece.starts_with("\x1F\x8B"))
        refuse_input(path, "is compressed with gzip, in which samples cannot be located: unpack it first");
      const std::size_t begin = piece.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
      const std::size_t first = piece.find_first_not_of(" \t\r\n", begin);
      is_array_ = first != std::string_view::npos && piece[first] == '[';
      scan.emplace(path_, is_array_, extents_);
      if (begin > 0) std::fill_n(bytes.begin(), begin, ' ');
    }
    scan->take(piece);
  }
  if (scan) scan->end();
  extents_.shrink_to_fit();
}

std::string JsonList::place(std::size_t sample) const {
  return place_in_list(path_, is_array_, sample, extents_[sample].line);
}

std::string JsonList::read(std::size_t sample) const {
  const ReadableFile file(path_);
  std::string bytes(extents_[sample].size, '\0');
  file.read(extents_[sample].offset, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace dflop
