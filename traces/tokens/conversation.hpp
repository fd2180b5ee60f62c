// A Conversation is the text of a sample, with placeholders for its images, videos and sounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// A ChatMedium appears in a text as its placeholder: <image>, <video>, <audio>.
enum class ChatMedium : std::uint8_t { image, video, audio };

template <>
inline constexpr NameTable<ChatMedium, 3> kNames<ChatMedium> = {
    {{ChatMedium::image, "image"}, {ChatMedium::video, "video"}, {ChatMedium::audio, "audio"}}};

enum class ChatRole : std::uint8_t { system, user, assistant };

template <>
inline constexpr NameTable<ChatRole, 3> kNames<ChatRole> = {
    {{ChatRole::system, "system"}, {ChatRole::user, "user"}, {ChatRole::assistant, "assistant"}}};

/// A ChatTurn is one side's message.
struct ChatTurn {
  ChatRole role = ChatRole::user;
  /// The words before, between and after media: words[0], media[0], words[1], ... There is one more text than
  /// media. Texts may be empty.
  std::vector<std::string> words = {""};
  std::vector<ChatMedium> media;
  bool is_trained = true;  ///< for an assistant turn: the loss covers its words

  bool operator==(const ChatTurn&) const = default;
};

struct Conversation {
  std::vector<ChatTurn> turns;
  bool is_text = false;  ///< one assistant turn without a question, as for pretraining

  /// Returns all media, in order.
  std::vector<ChatMedium> media() const;

  bool operator==(const Conversation&) const = default;
};

/// Reads a sample's JSON in one of the forms that other trainers use, and ignores other keys:
///   {"conversations": [{"from": "human", "value": "<image>\nWhat is this?"}, {"from": "gpt", ...}]}
///   {"messages": [{"role": "user", "content": "..." or [{"type": "image"}, {"type": "text", "text": ...}]}]}
///   {"text": "..."}
/// A turn of the assistant may have a "weight", 0 or 1: with 0, the loss does not cover the turn. The roles
/// in the first two forms are system, user (human) and assistant (gpt). A system turn must be the first.
/// Placeholders are recognized in plain texts. If the content is a list of parts, media are separate parts,
/// and placeholders in the texts are not recognized.
/// @param place  of the JSON, for errors
/// @throws Error (input) with `place` and key for damaged JSON, for JSON that has none or several of these
/// forms, and for a conversation without an assistant turn, from which nothing could be learned
Conversation parse_conversation(std::string_view json, const std::string& place);

/// A FrameRate is the rate of a video's frames that are stored as pictures.
struct FrameRate {
  double fps = 0;  ///< frames per second; 0: not given
  /// Whether the frames were already sampled for a model ("sample_fps"). Otherwise ("fps"), a model samples
  /// them.
  bool is_sampled = false;

  bool operator==(const FrameRate&) const = default;
};

/// A ListedMedium is a medium as a list names it.
struct ListedMedium {
  std::string path = {};  ///< of a file or, for a video, of a folder of frames; empty for a list of frames
  std::vector<std::string> frames = {};  ///< paths of a video's frames, in order
  FrameRate rate = {};                   ///< of a video

  bool is_named() const { return !path.empty() || !frames.empty(); }
  bool operator==(const ListedMedium&) const = default;
};

/// A ListedConversation is a conversation of a list, with the files of its media.
struct ListedConversation {
  Conversation conversation;
  std::vector<ListedMedium> files;  ///< one for each of conversation.media(), as written in the list
};

/// Reads a sample of a list in one of the forms of parse_conversation(), with the files of its media:
///   "image", "images", "video", "videos", "audio", "audios"   a path, a list of paths, or of {"path":
///   "..."}, next to
///                      the conversation: the files of its placeholders, in order (LLaVA, ms-swift,
///                      LLaMA-Factory)
///   {"type": "image", "image": "a.jpg"}   a path in a part, under the name of its medium, "path", "url" or
///   "file"
///   {"type": "image_url", "image_url": {"url": "a.jpg"}}      as OpenAI has it; also video_url and audio_url
/// A video may be a list of its frames' paths: {"type": "video", "video": ["1.jpg", "2.jpg"], "fps": 1}, or a
/// list inside "videos". If the conversation has one <video>, a list of several paths next to it are its
/// frames. The frame rate is "fps" or "sample_fps" in the part or, for all videos that have none, next to the
/// conversation. Null and empty texts name no file. "file://" before a path is dropped. A "system" next to
/// the conversation is its system turn, if it has none of its own (LLaMA-Factory).
/// @throws Error (input) with `place` and key if files and placeholders differ in number, and for URLs and
/// contents in place of a path; what parse_conversation() throws
ListedConversation parse_listed_conversation(std::string_view json, const std::string& place);

/// Returns the "fps" or "sample_fps" next to a conversation; "sample_fps" if it has both. @throws Error
/// (input) with `place` and key for damaged JSON, rates outside 0.001 to 10,000, and two different rates
FrameRate parse_frame_rate(std::string_view json, const std::string& place);

}  // namespace dflop
