#include "traces/dataset/tar_source.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
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

bool is_video(const TarMember& member) {
  constexpr std::string_view kVideos[] = {"mp4", "webm", "mkv", "avi", "mov", "m4v"};
  return std::ranges::find(kVideos, last_extension(member)) != std::end(kVideos);
}

ChatMedium medium_of(const TarMember& member) {
  return is_picture(member) ? ChatMedium::image : is_video(member) ? ChatMedium::video : ChatMedium::audio;
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

/// Returns pictures, videos and sounds sorted by their numbers, because tars are often written in name order,
/// in which .10.jpg precedes .2.jpg. Without numbers, tar order is kept.
/// @throws Error (input) if the order is ambiguous: for equal numbers, and if only some media have one
std::vector<TarMember> media_of(const TarSample& sample, const std::string& where) {
  std::vector<TarMember> media;
  for (const TarMember& member : sample.members) {
    if (is_picture(member) || is_video(member) || last_extension(member) == "wav") media.push_back(member);
  }
  std::stable_sort(media.begin(), media.end(),
                   [](const TarMember& a, const TarMember& b) { return number_of(a) < number_of(b); });
  for (std::size_t m = 1; m < media.size(); ++m) {
    const std::string before = number_of(media[m - 1]);
    const std::string number = number_of(media[m]);
    if (number.empty() || (!before.empty() && before != number)) continue;
    refuse_input(where, "expected media with a number each, .0.jpg, .1.jpg, found .{} and .{}",
                 media[m - 1].extension, media[m].extension);
  }
  return media;
}

/// An UnreadKind is an unsupported kind of file in trainers' tars, and the kind that is expected instead.
struct UnreadKind {
  std::string_view extension;
  std::string_view expected;
};
constexpr std::string_view kPicture = "a picture as .jpg, .png or .webp";
constexpr std::string_view kSound = "a sound as .wav";
constexpr UnreadKind kUnreadKinds[] = {{"gif", kPicture},  {"bmp", kPicture},  {"tif", kPicture},
                                       {"tiff", kPicture}, {"heic", kPicture}, {"avif", kPicture},
                                       {"mp3", kSound},    {"flac", kSound},   {"ogg", kSound},
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
  const bool has_video = std::find(wanted.begin(), wanted.end(), ChatMedium::video) != wanted.end();
  refuse_input(
      where,
      "expected {} pictures, videos and sounds, one for each placeholder in the conversation, found {}{}",
      wanted.size(), found,
      wanted.empty()
          ? ": a placeholder is <image>, <video> or <audio> in a text, or {\"type\": \"image\"} in a "
            "list"
      : has_video ? "; pictures are the frames of a video only if its <video> is the only placeholder"
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
  const std::string text = tar.read(*json);
  StoredSample stored{parse_conversation(text, where), {}};
  const std::vector<ChatMedium> wanted = stored.conversation.media();
  const std::vector<TarMember> members = media_of(sample, where);
  const auto stored_member = [&](const TarMember& member) {
    return StoredMedium{where + ", ." + member.extension, tar.path(), member.offset, member.size, ""};
  };
  const bool has_one_video = wanted.size() == 1 && wanted.front() == ChatMedium::video;
  if (has_one_video && !members.empty() && std::ranges::all_of(members, is_picture)) {
    StoredMedium video;
    video.place = where + ", its video";
    video.rate = parse_frame_rate(text, where);
    std::ranges::transform(members, std::back_inserter(video.frames), stored_member);
    stored.media.push_back(std::move(video));
    return stored;
  }
  if (wanted.size() != members.size()) refuse_media(sample, where, wanted, members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    stored.media.push_back(stored_member(members[m]));
    if (wanted[m] != medium_of(members[m])) {
      refuse_input(stored.media.back().place, "stands where the conversation has a placeholder for a {}",
                   to_string(wanted[m]));
    }
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
