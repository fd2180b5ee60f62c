#include "traces/shards/shard_list.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/refuse.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShards = 1'000'000;
constexpr std::size_t kMostDigits = 19;

std::vector<std::string> shards_of_folder(const std::string& folder) {
  std::vector<std::string> shards;
  std::error_code error;
  for (fs::directory_iterator file(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (file->path().extension() == ".tar") shards.push_back(file->path().string());
  }
  if (error) refuse_input(folder, "cannot be listed: {}", error.message());
  if (shards.empty()) refuse_input(folder, "expected files *.tar in the folder, found none");
  std::sort(shards.begin(), shards.end());
  return shards;
}

/// Numbers from `first` to `last`, with at least so many digits.
struct ShardRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t digits = 0;
};

std::uint64_t shard_number(std::string_view text, std::string_view braces, const std::string& name) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() > kMostDigits)
    refuse_input(name, "expected a range as {{000..009}}, found {{{}}}", braces);
  return number;
}

ShardRange read_range(std::string_view braces, const std::string& name) {
  const std::size_t dots = std::min(braces.find(".."), braces.size());
  const std::string_view first = braces.substr(0, dots);
  const std::string_view last = braces.substr(std::min(dots + 2, braces.size()));
  ShardRange range = {shard_number(first, braces, name), shard_number(last, braces, name), 0};
  if (range.last < range.first || range.last - range.first >= kMostShards) {
    refuse_input(name, "expected a range of 1 to {} shards, the smaller number first, found {{{}}}",
                 kMostShards, braces);
  }
  if (first.starts_with('0') || last.starts_with('0')) range.digits = std::max(first.size(), last.size());
  return range;
}

/// Returns each of `beginnings` followed by each number of the range.
std::vector<std::string> with_numbers(const std::vector<std::string>& beginnings, const ShardRange& range,
                                      const std::string& name) {
  if (beginnings.size() * (range.last - range.first + 1) > kMostShards)
    refuse_input(name, "expected at most {} shards, found more", kMostShards);
  std::vector<std::string> longer;
  for (const std::string& beginning : beginnings) {
    for (std::uint64_t i = 0; i <= range.last - range.first; ++i)
      longer.push_back(fmt::format("{}{:0{}}", beginning, range.first + i, range.digits));
  }
  return longer;
}

}  // namespace

std::vector<std::string> expand_shards(const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error)) return shards_of_folder(name);
  if (fs::exists(name, error)) return {name};
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

}  // namespace dflop
