#include "traces/shards/shard_list.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/refuse.hpp"
#include "traces/text/readable_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxShards = 1'000'000;
constexpr std::size_t kMaxDigits = 19;

constexpr std::string_view kTarEnding = ".tar";
constexpr std::string_view kIndexEnding = ".idx";
constexpr std::string_view kIdsEnding = ".bin";
constexpr std::string_view kLinesEnding = ".jsonl";
constexpr std::string_view kParquetEnding = ".parquet";

/// Returns the folder's files with an ending, sorted by name.
std::vector<std::string> files_of_folder(const std::string& folder, std::string_view ending) {
  std::vector<std::string> shards;
  std::error_code error;
  for (fs::directory_iterator file(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (file->path().extension() == ending) shards.push_back(file->path().string());
  }
  if (error) refuse_input(folder, "cannot be listed: {}", error.message());
  std::sort(shards.begin(), shards.end());
  return shards;
}

/// A ShardRange is the numbers from `first` to `last`, with at least `digits` digits.
struct ShardRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t digits = 0;
};

std::uint64_t shard_number(std::string_view text, std::string_view braces, const std::string& name) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() > kMaxDigits)
    refuse_input(name, "expected a range such as {{000..009}}, found {{{}}}", braces);
  return number;
}

ShardRange read_range(std::string_view braces, const std::string& name) {
  const std::size_t dots = std::min(braces.find(".."), braces.size());
  const std::string_view first = braces.substr(0, dots);
  const std::string_view last = braces.substr(std::min(dots + 2, braces.size()));
  ShardRange range = {shard_number(first, braces, name), shard_number(last, braces, name), 0};
  if (range.last < range.first || range.last - range.first >= kMaxShards) {
    refuse_input(name, "expected a range of 1 to {} shards, the smaller number first, found {{{}}}",
                 kMaxShards, braces);
  }
  if (first.starts_with('0') || last.starts_with('0')) range.digits = std::max(first.size(), last.size());
  return range;
}

/// Returns each of `beginnings` followed by each number of the range.
std::vector<std::string> with_numbers(const std::vector<std::string>& beginnings, const ShardRange& range,
                                      const std::string& name) {
  if (beginnings.size() * (range.last - range.first + 1) > kMaxShards)
    refuse_input(name, "expected at most {} shards, found more", kMaxShards);
  std::vector<std::string> longer;
  for (const std::string& beginning : beginnings) {
    for (std::uint64_t i = 0; i <= range.last - range.first; ++i)
      longer.push_back(fmt::format("{}{:0{}}", beginning, range.first + i, range.digits));
  }
  return longer;
}

/// Returns the names that a pattern denotes.
std::vector<std::string> expand_braces(const std::string& name) {
  std::vector<std::string> shards = {""};
  std::string_view rest = name;
  for (std::size_t open = 0; (open = rest.find('{')) != std::string_view::npos;) {
    const std::size_t close = rest.find('}', open);
    if (close == std::string_view::npos)
      refuse_input(name, "expected a closing brace for '{}', found none", rest.substr(open));
    for (std::string& shard : shards) shard += rest.substr(0, open);
    shards = with_numbers(shards, read_range(rest.substr(open + 1, close - open - 1), name), name);
    rest.remove_prefix(close + 1);
  }
  for (std::string& shard : shards) shard += rest;
  return shards;
}

bool file_exists(const std::string& name) {
  std::error_code error;
  return fs::exists(name, error);
}

bool is_folder(const std::string& name) {
  std::error_code error;
  return fs::is_directory(name, error);
}

std::string without_ending(const std::string& name) {
  const bool has_ending = name.ends_with(kIndexEnding) || name.ends_with(kIdsEnding);
  return has_ending ? name.substr(0, name.size() - kIndexEnding.size()) : name;
}

/// Returns whether a file .json is a list of samples, from its beginning. An object in a line of its own,
/// followed by another object, is not valid JSON: the file has one object a line.
bool begins_as_list(const std::string& path) {
  constexpr std::uint64_t kBeginning = std::uint64_t{1} << 20;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;  // reading from a pipe would take bytes from it
  const ReadableFile file(path);
  std::string bytes(std::min(file.size(), kBeginning), '\0');
  file.read(0, bytes.data(), bytes.size());
  constexpr std::string_view kSpaces = " \t\r\n";
  std::string_view text = bytes;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  if (text.starts_with('[')) return true;
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  const std::size_t last = line.find_last_not_of(kSpaces);
  const std::size_t next = text.find_first_not_of(kSpaces, end);
  return text.starts_with('{') && line[last] == '}' && next != std::string_view::npos && text[next] == '{';
}

[[noreturn]] void refuse_parquet(const std::string& name, const std::string& file) {
  refuse_input(
      name,
      "Parquet files are not read: expected tars, a JSON list, .jsonl, token ids (.idx) or records (.csv); "
      "convert each file, as with python3 -c \"import pandas; "
      "pandas.read_parquet('{}').to_json('{}.jsonl', orient='records', lines=True)\", which needs pictures "
      "as files that a column names",
      file, file.substr(0, file.size() - kParquetEnding.size()));
}

}  // namespace

std::optional<ShardKind> kind_of_shards(const std::string& name) {
  if (is_folder(name)) {
    const auto has = [&](std::string_view ending) { return !files_of_folder(name, ending).empty(); };
    if (has(kTarEnding)) return ShardKind::tar;
    if (has(kIndexEnding)) return ShardKind::megatron;
    if (has(kLinesEnding)) return ShardKind::list;
    if (has(kParquetEnding)) refuse_parquet(name, files_of_folder(name, kParquetEnding).front());
    return ShardKind::tar;
  }
  if (name.ends_with(kParquetEnding)) refuse_parquet(name, name);
  if (name.ends_with(kLinesEnding)) return ShardKind::list;
  if (name.ends_with(".json")) {
    const std::string first = file_exists(name) ? name : expand_braces(name).front();
    if (begins_as_list(first)) return ShardKind::list;
  }
  if (name.ends_with(kTarEnding) || name.ends_with(".tar.gz") || name.ends_with(".tgz"))
    return ShardKind::tar;
  if (without_ending(name) != name) return ShardKind::megatron;
  if (file_exists(name)) return std::nullopt;
  if (file_exists(expand_braces(name).front() + std::string(kIndexEnding))) return ShardKind::megatron;
  return std::nullopt;
}

std::vector<std::string> expand_shards(const std::string& name) {
  if (is_folder(name)) {
    std::vector<std::string> shards = files_of_folder(name, kTarEnding);
    if (shards.empty()) shards = files_of_folder(name, kLinesEnding);
    if (shards.empty())
      refuse_input(name, "expected files *.tar, *.idx or *.jsonl in the folder, found none");
    return shards;
  }
  if (file_exists(name)) return {name};
  return expand_braces(name);
}

std::vector<std::string> expand_prefixes(const std::string& name) {
  if (is_folder(name)) {
    std::vector<std::string> prefixes = files_of_folder(name, kIndexEnding);
    if (prefixes.empty()) refuse_input(name, "expected files *.idx in the folder, found none");
    for (std::string& prefix : prefixes) prefix = without_ending(prefix);
    return prefixes;
  }
  const std::string prefix = without_ending(name);
  if (file_exists(prefix + std::string(kIndexEnding))) return {prefix};
  return expand_braces(prefix);
}

}  // namespace dflop
