#include "traces/tokens/conversation.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

/// A role's other names come from LLaVA's data.
constexpr std::pair<std::string_view, ChatRole> kRoleNames[] = {{"system", ChatRole::system},
                                                                {"user", ChatRole::user},
                                                                {"human", ChatRole::user},
                                                                {"assistant", ChatRole::assistant},
                                                                {"gpt", ChatRole::assistant}};

void add_medium(ChatTurn& turn, ChatMedium medium) {
  turn.media.push_back(medium);
  turn.words.emplace_back();
}

/// Returns the medium whose placeholder a text begins with, and the placeholder's size.
std::optional<std::pair<ChatMedium, std::size_t>> placeholder_at(std::string_view text) {
  for (const NamedValue<ChatMedium>& row : kNames<ChatMedium>) {
    if (text.size() >= row.name.size() + 2 && text[0] == '<' && text.substr(1).starts_with(row.name) &&
        text[row.name.size() + 1] == '>') {
      return std::pair{row.value, row.name.size() + 2};
    }
  }
  return std::nullopt;
}

void add_text(ChatTurn& turn, std::string_view text) {
  std::size_t from = 0;
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string_view::npos;) {
    const auto placeholder = placeholder_at(text.substr(at));
    if (!placeholder) {
      ++at;
      continue;
    }
    turn.words.back() += text.substr(from, at - from);
    add_medium(turn, placeholder->first);
    from = at += placeholder->second;
  }
  turn.words.back() += text.substr(from);
}

void add_content(ChatTurn& turn, const JsonValue& content) {
  if (!content.is_array()) {
    add_text(turn, content.string());
    return;
  }
  for (const JsonValue& part : content.elements()) {
    const JsonValue type = part.at("type");
    if (type.string() == "text") {
      turn.words.back() += part.at("text").string();
    } else if (const auto medium = from_string<ChatMedium>(type.string())) {
      add_medium(turn, *medium);
    } else {
      type.refuse_type("text, image, video or audio");
    }
  }
}

ChatRole read_role(const JsonValue& value) {
  const std::string& name = value.string();
  const auto row = std::find_if(std::begin(kRoleNames), std::end(kRoleNames),
                                [&](const auto& known) { return known.first == name; });
  if (row == std::end(kRoleNames)) value.refuse_type("system, user, human, assistant or gpt");
  return row->second;
}

std::vector<ChatTurn> read_turns(const JsonValue& list, std::string_view role, std::string_view content) {
  std::vector<ChatTurn> turns;
  bool has_answer = false;
  for (const JsonValue& value : list.elements()) {
    ChatTurn turn;
    turn.role = read_role(value.at(role));
    if (turn.role == ChatRole::system && !turns.empty())
      value.at(role).refuse("expected a system turn before all others, found it after {}", turns.size());
    has_answer = has_answer || turn.role == ChatRole::assistant;
    add_content(turn, value.at(content));
    const bool has_weight = value.has("weight") && value.at("weight").text() != "null";
    if (turn.role == ChatRole::assistant && has_weight)
      turn.is_trained = value.at("weight").integer(0, 1) == 1;
    turns.push_back(std::move(turn));
  }
  if (!has_answer) list.refuse("expected a turn of the assistant, found none: nothing could be learned");
  return turns;
}

}  // namespace

std::vector<ChatMedium> Conversation::media() const {
  std::vector<ChatMedium> all;
  for (const ChatTurn& turn : turns) all.insert(all.end(), turn.media.begin(), turn.media.end());
  return all;
}

Conversation parse_conversation(std::string_view json, const std::string& place) {
  const JsonDocument document(json, place);
  const JsonValue root = document.root();
  root.require_object();
  const int forms = root.has("conversations") + root.has("messages") + root.has("text");
  if (forms != 1) root.refuse("expected one of 'conversations', 'messages' and 'text', found {}", forms);
  if (root.has("conversations")) return {read_turns(root.at("conversations"), "from", "value"), false};
  if (root.has("messages")) return {read_turns(root.at("messages"), "role", "content"), false};
  ChatTurn turn;
  turn.role = ChatRole::assistant;
  add_text(turn, root.at("text").string());
  return {{std::move(turn)}, true};
}

}  // namespace dflop
