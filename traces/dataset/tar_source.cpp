#include "traces/dataset/tar_source.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

std::string_view last_extension(const TarMember& member) {
  const std::string_view all = member.extension;
  return all.substr(all.rfind('.') + 1);  // npos + 1 is 0
}

bool is_picture(const TarMember& member) {
  const std::string_view kind = last_extension(member);
  return kind == "jpg" || kind == "jpeg" || kind == "png" || kind == "webp";
}

/// Opens files in parallel, because opening reads a header for each member and waits for disk or network.
std::vector<TarFile> opened(const std::vector<std::string>& names) {
  std::vector<std::optional<TarFile>> found(names.size());
  parallel_for(names.size(), [&](std::size_t i) { found[i].emplace(names[i]); });
  std::vector<TarFile> all;
  all.reserve(names.size());
  for (std::optional<TarFile>& tar : found) all.push_back(*std::move(tar));
  return all;
}

/// Returns the number before a member's extension as text that sorts numerically, because the count of digits
/// comes first: "2:10" for .10.jpg. It is empty for .jpg and .left.jpg.
std::string number_of(const TarMember& member) {
  const std::string& all = member.extension;
  const std::size_t digits = std::min(all.find_first_not_of("0123456789"), all.size());
  if (digits == 0 || digits == all.size() || all[digits] != '.') return "";
  const std::string number = all.substr(std::min(all.find_first_not_of('0'), digits), digits);
  const std::string significant = number.substr(0, number.find('.'));
  return fmt::format("{:08}:{}", significant.size(), significant);
}

/// Returns pictures and sounds sorted by their numbers, because tars are often written in name order, in
/// which .10.jpg precedes .2.jpg. Without numbers, tar order is kept.
/// @throws Error (input) if the order is ambiguous: for equal numbers, and if only some media have one
std::vector<TarMember> media_of(const TarSample& sample, const std::string& where) {
  std::vector<TarMember> media;
  for (const TarMember& member : sample.members) {
    if (is_picture(member) || last_extension(member) == "wav") media.push_back(member);
  }
  std::stable_sort(media.begin(), media.end(),
                   [](const TarMember& a, const TarMember& b) { return number_of(a) < number_of(b); });
  for (std::size_t m = 1; m < media.size(); ++m) {
    const std::string before = number_of(media[m - 1]);
    const std::string number = number_of(media[m]);
    if (number.empty() || (!before.empty() && before != number)) continue;
    refuse_input(where, "expected pictures and sounds with a number each, .0.jpg, .1.jpg, found .{} and .{}",
                 media[m - 1].extension, media[m].extension);
  }
  return media;
}

/// An UnreadKind is an unsupported kind of file in trainers' tars, and the kind that is expected instead.
struct UnreadKind {
  std::string_view extension;
  std::string_view expected;
};
constexpr std::string_view kFrames =
    "a video's frames as pictures .0.jpg, .1.jpg and so on, with an <image> for each in the text";
constexpr std::string_view kPicture = "a picture as .jpg, .png or .webp";
constexpr std::string_view kSound = "a sound as .wav";
constexpr UnreadKind kUnreadKinds[] = {
    {"mp4", kFrames},   {"webm", kFrames},  {"mkv", kFrames},  {"avi", kFrames},  {"mov", kFrames},
    {"m4v", kFrames},   {"gif", kPicture},  {"bmp", kPicture}, {"tif", kPicture}, {"tiff", kPicture},
    {"heic", kPicture}, {"avif", kPicture}, {"mp3", kSound},   {"flac", kSound},  {"ogg", kSound},
    {"opus", kSound},   {"m4a", kSound},    {"aac", kSound}};

/// Rejects a sample whose conversation has placeholders but that has no supported media for them.
[[noreturn]] void refuse_media(const TarSample& sample, const std::string& where,
                               std::span<const ChatMedium> wanted, std::size_t found) {
  for (const TarMember& member : sample.members) {
    for (const UnreadKind& kind : kUnreadKinds) {
      if (last_extension(member) != kind.extension) continue;
      refuse_input(where + ", ." + member.extension, "is of an unsupported kind: expected {}", kind.expected);
    }
  }
  if (std::find(wanted.begin(), wanted.end(), ChatMedium::video) != wanted.end())
    refuse_input(where, "has <video> in its text, but videos are not supported: expected {}", kFrames);
  refuse_input(
      where, "expected {} pictures and sounds, one for each placeholder in the conversation, found {}{}",
      wanted.size(), found,
      wanted.empty() ? ": a placeholder is <image> or <audio> in a text, or {\"type\": \"image\"} in a "
                       "list"
                     : "");
}

}  // namespace

TarSource::TarSource(const std::vector<std::string>& names) : tars_(opened(names)) {
  for (std::size_t t = 0; t < tars_.size(); ++t) {
    for (std::size_t s = 0; s < tars_[t].samples().size(); ++s) places_.push_back({t, s});
  }
}

std::string TarSource::place(std::size_t sample) const {
  return file(sample) + ": sample '" + sample_of(sample).key + "'";
}

StoredSample TarSource::read(std::size_t number) const {
  const TarFile& tar = tar_of(number);
  const TarSample& sample = sample_of(number);
  const std::string where = place(number);
  const TarMember* json = sample.find("json");
  if (json == nullptr)
    refuse_input(where, "expected a member .json with the conversation, found none{}",
                 sample.hint_of_dots("json"));
  StoredSample stored{parse_conversation(tar.read(*json), where), {}};
  const std::vector<ChatMedium> wanted = stored.conversation.media();
  const std::vector<TarMember> members = media_of(sample, where);
  const bool has_video = std::find(wanted.begin(), wanted.end(), ChatMedium::video) != wanted.end();
  if (has_video || wanted.size() != members.size()) refuse_media(sample, where, wanted, members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    const TarMember& member = members[m];
    const std::string medium = where + ", ." + member.extension;
    const ChatMedium expected = is_picture(member) ? ChatMedium::image : ChatMedium::audio;
    if (wanted[m] != expected)
      refuse_input(medium, "stands where the conversation has a placeholder for a {}", to_string(wanted[m]));
    stored.media.push_back({medium, tar.path(), member.offset, member.size, ""});
  }
  return stored;
}

std::string TarSource::fingerprint() const {
  std::uint64_t hash = kHashOfNothing;
  for (const TarFile& tar : tars_) {
    hash = stable_hash(std::filesystem::path(tar.path()).filename().string() + '\n', hash);
    for (const TarSample& sample : tar.samples()) {
      hash = stable_hash(sample.key, hash);
      for (const TarMember& m : sample.members)
        hash = stable_hash(fmt::format(" {} {} {}", m.extension, m.offset, m.size), hash);
      hash = stable_hash("\n", hash);
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace dflop
