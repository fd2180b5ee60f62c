// A Conversation is what a sample says: words, and places for its images, videos and sounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// A medium stands in a text as its placeholder: <image>, <video>, <audio>.
enum class ChatMedium : std::uint8_t { image, video, audio };

template <>
inline constexpr NameTable<ChatMedium, 3> kNames<ChatMedium> = {
    {{ChatMedium::image, "image"}, {ChatMedium::video, "video"}, {ChatMedium::audio, "audio"}}};

enum class ChatRole : std::uint8_t { system, user, assistant };

template <>
inline constexpr NameTable<ChatRole, 3> kNames<ChatRole> = {
    {{ChatRole::system, "system"}, {ChatRole::user, "user"}, {ChatRole::assistant, "assistant"}}};

/// A turn is what one side says.
struct ChatTurn {
  ChatRole role = ChatRole::user;
  /// Words stand between media, so that there is one more of them: words[0], media[0], words[1], ... They may
  /// be empty.
  std::vector<std::string> words = {""};
  std::vector<ChatMedium> media;
  bool is_trained = true;  ///< an answer's words

  bool operator==(const ChatTurn&) const = default;
};

struct Conversation {
  std::vector<ChatTurn> turns;
  bool is_text = false;  ///< one turn of the assistant that is no answer to anything, as for pretraining

  /// Returns all media, as they come.
  std::vector<ChatMedium> media() const;

  bool operator==(const Conversation&) const = default;
};

/// Reads a sample's JSON in one of the forms that trainers have, and passes over other keys:
///   {"conversations": [{"from": "human", "value": "<image>\nWhat is this?"}, {"from": "gpt", ...}]}
///   {"messages": [{"role": "user", "content": "..." or [{"type": "image"}, {"type": "text", "text": ...}]}]}
///   {"text": "..."}
/// A turn of the assistant may have a "weight", 0 or 1: with 0 it is not trained.
/// Roles are system, user (human) and assistant (gpt) in either of the first two; a system's turn is the
/// first. Placeholders are found in texts, but not in those of a list's parts: there a medium is a part.
/// @param place  of the JSON, for errors
/// @throws Error (input) with `place` and key for what is damaged, of none or several of these forms, and for
/// a conversation in which the assistant has no turn: nothing could be learned from it
Conversation parse_conversation(std::string_view json, const std::string& place);

}  // namespace dflop
