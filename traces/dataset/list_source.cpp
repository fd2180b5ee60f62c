#include "traces/dataset/list_source.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

std::vector<JsonList> found_lists(const std::vector<std::string>& names) {
  std::vector<std::optional<JsonList>> found(names.size());
  parallel_for(names.size(), [&](std::size_t i) { found[i].emplace(names[i]); });
  std::vector<JsonList> all;
  all.reserve(names.size());
  for (std::optional<JsonList>& list : found) all.push_back(*std::move(list));
  return all;
}

/// Inserts a sample's own id, if it has one, after its place at the start of an error's context. Its line or
/// element stays, because ids need not be unique.
std::string with_id(std::string context, const std::string& place, const std::string& json) {
  const nlohmann::json sample = nlohmann::json::parse(json, nullptr, false);
  if (!sample.is_object() || !context.starts_with(place)) return context;
  const auto id = sample.find("id");
  if (id == sample.end() || !(id->is_string() || id->is_number())) return context;
  return context.insert(place.size(), fmt::format(", id {}", id->dump()));
}

StoredMedium stored_file(const fs::path& root, const std::string& path, const std::string& where) {
  const std::string file = (root / path).string();  // an absolute path stays
  return {where + ", " + path, file, 0, StoredMedium::kToEnd,
          fmt::format(" ({}; --media-root names the folder of relative paths)", file)};
}

bool is_picture_name(const fs::path& file) {
  constexpr std::string_view kEndings[] = {".jpg", ".jpeg", ".png", ".webp"};
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kEndings, ending) != std::end(kEndings);
}

/// Compares names so that runs of digits count as numbers: "f2.jpg" comes before "f10.jpg". Of equal numbers,
/// as 2 and 02, the shorter is first.
bool comes_before(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto take_number = [&](std::string_view& text) {
    const std::size_t zeros = std::min(text.find_first_not_of('0'), text.size());
    text.remove_prefix(zeros);
    const auto end = std::ranges::find_if_not(text, is_digit);
    const auto size = static_cast<std::size_t>(end - text.begin());
    const std::string_view number = text.substr(0, size);
    text.remove_prefix(size);
    return number;
  };
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view x = take_number(a);
      const std::string_view y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return std::pair(whole_a.size(), whole_a) < std::pair(whole_b.size(), whole_b);
}

/// Returns the names of a folder's pictures in the order of their numbers.
std::vector<std::string> pictures_in(const std::string& folder, const std::string& where) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_picture_name(entry->path())) names.push_back(entry->path().filename().string());
  }
  if (error)
    refuse_input(where, "the folder of a video's frames cannot be read: {} ({})", error.message(), folder);
  if (names.empty())
    refuse_input(where, "expected a video's frames, .jpg, .png or .webp, found none in the folder {}",
                 folder);
  std::ranges::sort(names, comes_before);
  return names;
}

/// Returns a video: a file, a folder of frames, or a list of frames.
StoredMedium stored_video(const fs::path& root, const ListedMedium& named, const std::string& where) {
  StoredMedium video = stored_file(root, named.path, where);
  video.rate = named.rate;
  if (!named.frames.empty()) {
    video.place = where + ", video of " + named.frames.front();
    for (const std::string& frame : named.frames) video.frames.push_back(stored_file(root, frame, where));
    return video;
  }
  std::error_code error;
  if (!fs::is_directory(video.file, error)) {
    if (named.rate.fps > 0)
      refuse_input(video.place,
                   "has key 'fps' or 'sample_fps', which sets the rate of frames in a folder or list, "
                   "but a video file has its own rate: expected no such key");
    return video;
  }
  for (const std::string& name : pictures_in(video.file, video.place))
    video.frames.push_back(stored_file(root, (fs::path(named.path) / name).string(), where));
  return video;
}

}  // namespace

ListSource::ListSource(const std::vector<std::string>& names, const std::string& media_root)
    : lists_(found_lists(names)) {
  std::error_code error;
  if (!media_root.empty() && !fs::is_directory(media_root, error))
    refuse_input(media_root, "expected the folder of a list's media, found no folder");
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    roots_.push_back(media_root.empty() ? fs::path(lists_[l].path()).parent_path().string() : media_root);
    for (std::size_t s = 0; s < lists_[l].size(); ++s)
      places_.push_back({static_cast<std::uint32_t>(l), static_cast<std::uint32_t>(s)});
  }
}

std::string ListSource::key(std::size_t sample) const {
  return std::to_string(list_of(sample).number(places_[sample].sample));
}

std::string ListSource::place(std::size_t sample) const {
  return list_of(sample).place(places_[sample].sample);
}

StoredSample ListSource::read(std::size_t sample) const {
  const std::string where = place(sample);
  const std::string json = list_of(sample).read(places_[sample].sample);
  ListedConversation listed;
  try {
    listed = parse_listed_conversation(json, where);
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), with_id(error.context(), where, json));
  }
  const std::vector<ChatMedium> media = listed.conversation.media();
  StoredSample stored{std::move(listed.conversation), {}};
  const std::string& root = roots_[places_[sample].list];
  for (std::size_t m = 0; m < media.size(); ++m) {
    const ListedMedium& named = listed.files[m];
    stored.media.push_back(media[m] == ChatMedium::video ? stored_video(root, named, where)
                                                         : stored_file(root, named.path, where));
  }
  return stored;
}

std::string ListSource::fingerprint() const {
  std::uint64_t hash = kHashOfNothing;
  for (const JsonList& list : lists_) {
    const std::string name = fs::path(list.path()).filename().string();
    hash = stable_hash(fmt::format("{} {:016x}\n", name, list.hash()), hash);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace dflop
