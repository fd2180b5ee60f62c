#include "traces/dataset/shard_data.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/tokens/chat_template.hpp"
#include "traces/tokens/conversation.hpp"

namespace dflop {
namespace {

constexpr std::size_t kIndexed = 64;  // samples that a thread indexes at a time
// A picture's headers usually fit in the first number of bytes. With color profiles and thumbnails they take
// up to the second number, or more.
constexpr std::array<std::uint64_t, 2> kPictureHeaders = {16 * 1024, 256 * 1024};

/// A NothingToTrain is thrown if a sample's media or all its answers are beyond the model's longest sequence,
/// or if it has no answer.
struct NothingToTrain {
  std::string why;
};

std::string_view last_extension(const TarMember& member) {
  const std::string_view all = member.extension;
  return all.substr(all.rfind('.') + 1);  // npos + 1 is 0
}

bool is_picture(const TarMember& member) {
  const std::string_view kind = last_extension(member);
  return kind == "jpg" || kind == "jpeg" || kind == "png";
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
constexpr std::string_view kPicture = "a picture as .jpg or .png";
constexpr std::string_view kSound = "a sound as .wav";
constexpr UnreadKind kUnreadKinds[] = {
    {"mp4", kFrames},   {"webm", kFrames},  {"mkv", kFrames},   {"avi", kFrames},  {"mov", kFrames},
    {"m4v", kFrames},   {"webp", kPicture}, {"gif", kPicture},  {"bmp", kPicture}, {"tif", kPicture},
    {"tiff", kPicture}, {"heic", kPicture}, {"avif", kPicture}, {"mp3", kSound},   {"flac", kSound},
    {"ogg", kSound},    {"opus", kSound},   {"m4a", kSound},    {"aac", kSound}};

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

std::string_view media_family(const ModelSpec& model) {
  switch (model.architecture->family) {
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      return "";
    case ModelFamily::llava:
    case ModelFamily::llava_next:
      return "llava";
    case ModelFamily::llava_onevision:
      return "llava-ov";
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen3_vl:
      return "qwen2-vl";
    case ModelFamily::qwen2_5_vl:
      return "qwen2.5-vl";
    case ModelFamily::internvl:
      return "internvl2.5";
    case ModelFamily::qwen2_audio:
      return "qwen2-audio";
  }
  return "";
}

}  // namespace

UsualChatForm usual_chat_form(const ModelSpec& model, std::string_view chat_template) {
  const auto says = [&](std::string_view words) {
    return chat_template.find(words) != std::string_view::npos;
  };
  if (model.llm.name == "llama") return {"llama3"};
  if (model.architecture->family == ModelFamily::internvl) return {"chatml"};
  if (model.architecture->family != ModelFamily::qwen2) return {"qwen2"};
  if (chat_template.empty() || says("You are Qwen, created by Alibaba Cloud.")) return {"qwen2.5"};
  if (says("You are a helpful assistant.")) return {"qwen2"};
  return {
      "chatml",
      "the folder's chat template differs from the templates of Qwen2 and Qwen2.5: the form is chatml, which "
      "adds no system turn by itself; --chat names another form, and conversations may have their own "
      "system turns"};
}

/// Returns the requested form, or the usual one; `note` then says why it is doubtful.
std::string_view chosen_form(const ModelSpec& model, const std::string& folder, std::string_view form,
                             std::string& note) {
  if (!form.empty()) return form;
  const bool is_qwen2 = model.architecture->family == ModelFamily::qwen2;
  const UsualChatForm usual = usual_chat_form(model, is_qwen2 ? read_chat_template(folder) : "");
  note = usual.note;
  return usual.name;
}

ShardData::ShardData(const ModelSpec& model, const std::string& folder, const std::string& shards,
                     std::string_view form)
    : model_(model),
      media_(model, folder),
      tokenizer_(folder + "/tokenizer.json"),
      chat_(tokenizer_, chosen_form(model, folder, form, note_), media_family(model)) {
  Architecture& of = *model_.architecture;
  if (of.family == ModelFamily::internvl && of.image_token < 0) {
    of.image_token = tokenizer_.id_of("<IMG_CONTEXT>").value_or(-1);  // OpenGVLab's configs do not contain it
  }
  check_tokens();
  tars_ = opened(expand_shards(shards));
  std::vector<Places::iterator> all;
  for (std::size_t t = 0; t < tars_.size(); ++t) {
    const std::string name = std::filesystem::path(tars_[t].path()).filename().string();
    for (std::size_t s = 0; s < tars_[t].samples().size(); ++s) {
      const std::string& key = tars_[t].samples()[s].key;
      const auto [place, is_new] = places_.emplace(name + "/" + key, Place{t, s});
      if (!is_new) {
        refuse_input(tars_[t].path(), "sample '{}' occurs twice: also in {}", key,
                     tars_[place->second.tar].path());
      }
      all.push_back(place);
    }
  }
  std::vector<std::optional<Sample>> found(all.size());
  std::size_t first_left_out = all.size();
  const auto leave_out = [&](std::size_t i, const std::string& why) {
    const std::scoped_lock lock(mutex_);
    ++left_out_.count;
    if (i >= first_left_out) return;
    first_left_out = i;
    left_out_.first = why;
  };
  parallel_for((all.size() + kIndexed - 1) / kIndexed, [&](std::size_t piece) {
    std::unique_ptr<WordCache> cache = take_cache();
    const std::size_t end = std::min(all.size(), (piece + 1) * kIndexed);
    for (std::size_t i = piece * kIndexed; i < end; ++i) {
      Place& place = all[i]->second;
      try {
        const SampleContent content = make(place, false, *cache, &place.length);
        place.trained = dflop::trained_tokens(content.tokens);
        if (place.trained == 0) throw NothingToTrain{all[i]->first + ": has no token to train on"};
        found[i] = shape_of(model_, all[i]->first, content);
      } catch (const NothingToTrain& problem) {
        leave_out(i, problem.why);
      } catch (const UntakenLength& problem) {
        leave_out(i, problem.why);
      }
    }
    give_back(std::move(cache));
  });
  cut_.longest = model_.max_tokens;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    cut_.take(all[i]->second.length);
    samples_.push_back(*std::move(found[i]));
  }
}

void ShardData::check_tokens() const {
  const Architecture& of = *model_.architecture;
  if (tokenizer_.vocabulary_size() > model_.llm.vocabulary) {
    refuse_input(tokenizer_.file(),
                 "expected at most {} tokens, as config.json's 'vocab_size' says, found {}",
                 model_.llm.vocabulary, tokenizer_.vocabulary_size());
  }
  const auto check = [&](std::string_view family, const char* key, std::string_view token,
                         std::int64_t expected) {
    if (media_family(model_) != family) return;
    const std::optional<std::int32_t> id = tokenizer_.id_of(token);
    if (id && *id == expected) return;
    if (expected < 0)
      refuse_input(model_.name, "config.json: expected key '{}', the id of token '{}', found none", key,
                   token);
    refuse_input(tokenizer_.file(), "expected token '{}' with id {}, as config.json's '{}' says, found {}",
                 token, expected, key, id ? std::to_string(*id) : "none");
  };
  check("llava-ov", "image_token_id", "<image>", of.image_token);
  check("qwen2.5-vl", "image_token_id", "<|image_pad|>", of.image_token);
  check("internvl2.5", "image_token_id", "<IMG_CONTEXT>", of.image_token);
  check("qwen2-audio", "audio_token_id", "<|AUDIO|>", of.audio_token);
}

std::string ShardData::fingerprint() const {
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

MediumContent ShardData::read_medium(const TarFile& tar, TarMember member, MediumFile medium,
                                     bool values) const {
  const std::uint64_t whole = member.size;
  std::string bytes;
  const auto read = [&](std::uint64_t size) {
    member.size = size;
    bytes = tar.read(member);
    medium.bytes = bytes;
    return values ? media_.read(medium) : media_.shape(medium);
  };
  for (const std::uint64_t size : kPictureHeaders) {
    if (values || !is_picture(member) || whole <= size) break;
    try {
      return read(size);
    } catch (const Error&) {  // cut off or damaged; more bytes will tell
    }
  }
  return read(whole);
}

SampleContent ShardData::make(const Place& place, bool values, WordCache& cache, std::int64_t* length) const {
  const TarFile& tar = tars_[place.tar];
  const TarSample& sample = tar.samples()[place.sample];
  const std::string where = tar.path() + ": sample '" + sample.key + "'";
  const TarMember* json = sample.find("json");
  if (json == nullptr) refuse_input(where, "expected a member .json with the conversation, found none");
  const Conversation conversation = parse_conversation(tar.read(*json), where);
  const std::vector<ChatMedium> wanted = conversation.media();
  const std::vector<TarMember> members = media_of(sample, where);
  const bool has_video = std::find(wanted.begin(), wanted.end(), ChatMedium::video) != wanted.end();
  if (has_video || wanted.size() != members.size()) refuse_media(sample, where, wanted, members.size());
  std::vector<MediumContent> media;
  std::vector<std::int64_t> counts;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const TarMember& member = members[m];
    const std::string file = where + ", ." + member.extension;
    const ChatMedium expected = is_picture(member) ? ChatMedium::image : ChatMedium::audio;
    if (wanted[m] != expected)
      refuse_input(file, "stands where the conversation has a placeholder for a {}", to_string(wanted[m]));
    media.push_back(read_medium(tar, member, {{}, file, members.size() == 1}, values));
    counts.push_back(media.back().tokens);
  }
  ChatTokens tokens = chat_.encode(conversation, counts, cache, where);
  if (length != nullptr) *length = std::ssize(tokens.ids);
  if (model_.max_tokens > 0 && std::ssize(tokens.ids) > model_.max_tokens) {
    try {
      tokens.cut(static_cast<std::size_t>(model_.max_tokens), where);
    } catch (const Error& error) {
      throw NothingToTrain{error.what()};
    }
  }
  std::vector<std::int32_t> labels(tokens.ids.size(), kNoTarget);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (tokens.is_trained[i] != 0) labels[i] = tokens.ids[i];
  }
  return make_content(model_, sample.key, tokens.ids, labels, media);
}

std::unique_ptr<WordCache> ShardData::take_cache() const {
  const std::scoped_lock lock(mutex_);
  if (caches_.empty()) return std::make_unique<WordCache>();
  std::unique_ptr<WordCache> cache = std::move(caches_.back());
  caches_.pop_back();
  return cache;
}

void ShardData::give_back(std::unique_ptr<WordCache> cache) const {
  const std::scoped_lock lock(mutex_);
  caches_.push_back(std::move(cache));
}

const ShardData::Place& ShardData::place_of(const std::string& id) const {
  const auto place = places_.find(id);
  if (place == places_.end()) throw Error(ErrorKind::internal, "sample '" + id + "' is in no tar");
  return place->second;
}

SampleContent ShardData::read(const std::string& id, bool values) const {
  const Place& place = place_of(id);
  std::unique_ptr<WordCache> cache = take_cache();
  SampleContent content = make(place, values, *cache);
  give_back(std::move(cache));
  return content;
}

std::int64_t ShardData::trained_tokens(const Sample& sample) const {
  return place_of(sample.id).trained;
}

}  // namespace dflop
