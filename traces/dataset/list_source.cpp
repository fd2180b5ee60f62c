#include "traces/dataset/list_source.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
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

}  // namespace

ListSource::ListSource(const std::vector<std::string>& names, const std::string& media_root)
    : lists_(found_lists(names)) {
  std::error_code error;
  if (!media_root.empty() && !fs::is_directory(media_root, error))
    refuse_input(media_root, "expected the folder of a list's pictures and sounds, found no folder");
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
  for (std::size_t m = 0; m < media.size(); ++m) {
    const std::string& path = listed.files[m];
    if (media[m] == ChatMedium::video) {
      refuse_input(
          where,
          "has video '{}', but videos are not supported: expected a video's frames as pictures, with an "
          "<image> for each in the text",
          path);
    }
    const fs::path file = fs::path(roots_[places_[sample].list]) / path;  // an absolute path stays
    stored.media.push_back(
        {where + ", " + path, file.string(), 0, StoredMedium::kToEnd,
         fmt::format(" ({}; --media-root names the folder of relative paths)", file.string())});
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
