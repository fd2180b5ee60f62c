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

constexpr const char* kPathKeys[] = {"path", "url", "file"};
constexpr std::string_view kStored = "contents inside a list are not read, so store them as files";

bool is_no_value(const JsonValue& value) {
  return !value.is_string() && !value.is_array() && !value.is_object() && value.text() == "null";
}

/// Files are the files of media, in the order of the media; unnamed for a medium whose part names none.
using Files = std::vector<ListedMedium>;

/// Returns the path that a text of a list names; "" for null.
std::string read_path(const JsonValue& value) {
  if (is_no_value(value)) return "";
  const std::string& text = value.string();
  if (text.starts_with("data:"))
    value.refuse(fmt::format("expected the path of a file, found a data: URL: {}", kStored));
  if (text.starts_with("file://")) return text.substr(7);
  if (const std::size_t colon = text.find("://"); colon < 10)
    value.refuse("expected the path of a file, found a URL of {}: download it and name the file",
                 text.substr(0, colon));
  return text;
}

/// Returns the path in a text, {"path": ...} or {"url": ...}; "" for none.
std::string read_file(const JsonValue& value) {
  if (!value.is_object()) return read_path(value);
  for (const char* key : kPathKeys) {
    std::string path = value.has(key) ? read_path(value.at(key)) : "";
    if (!path.empty()) return path;
  }
  value.refuse(fmt::format("expected the path of a file, found none: {}", kStored));
}

/// Returns the paths in a list; each must name a file.
std::vector<std::string> read_files(const JsonValue& list) {
  std::vector<std::string> paths;
  for (const JsonValue& element : list.elements()) {
    paths.push_back(read_file(element));
    if (paths.back().empty()) element.refuse_type("the path of a file");
  }
  return paths;
}

/// Returns the file of a medium, or the frames of a video.
ListedMedium read_medium(const JsonValue& value, ChatMedium medium) {
  if (medium != ChatMedium::video || !value.is_array()) return {.path = read_file(value)};
  ListedMedium video{.frames = read_files(value)};
  if (video.frames.empty()) value.refuse("expected the frames of a video, found none");
  return video;
}

FrameRate read_frame_rate(const JsonValue& object) {
  FrameRate rate;
  for (const char* key : {"fps", "sample_fps"}) {
    if (!object.has(key) || is_no_value(object.at(key))) continue;
    const double found = object.at(key).number_in(1e-3, 1e4);
    if (rate.fps > 0 && rate.fps != found)
      object.refuse("expected 'fps' or 'sample_fps', found {} and {}", rate.fps, found);
    rate = {found, std::string_view(key) == "sample_fps"};
  }
  return rate;
}

/// Returns the file of a part with this type.
ListedMedium read_part_file(const JsonValue& part, ChatMedium medium, const std::string& type) {
  const std::string name(to_string(medium));
  ListedMedium found;
  for (const std::string& key : {type, name, name + "_url"}) {
    if (!found.is_named() && part.has(key)) found = read_medium(part.at(key), medium);
  }
  for (const char* key : kPathKeys) {
    if (!found.is_named() && part.has(key)) found.path = read_path(part.at(key));
  }
  if (medium == ChatMedium::video) found.rate = read_frame_rate(part);
  return found;
}

/// Returns the medium of a part of a list: "image", "image_url" or "input_image".
std::optional<ChatMedium> medium_of_part(std::string type) {
  if (type.ends_with("_url")) type.resize(type.size() - 4);
  if (type.starts_with("input_")) type.erase(0, 6);
  return from_string<ChatMedium>(type);
}

/// Adds a content. `files`, if not null, receives the files of media.
void add_content(ChatTurn& turn, const JsonValue& content, Files* files) {
  if (!content.is_array()) {
    add_text(turn, content.string());
    if (files != nullptr) files->resize(files->size() + turn.media.size());
    return;
  }
  for (const JsonValue& part : content.elements()) {
    const JsonValue type = part.at("type");
    const std::string& name = type.string();
    const auto medium = files == nullptr ? from_string<ChatMedium>(name) : medium_of_part(name);
    if (name == "text") {
      turn.words.back() += part.at("text").string();
    } else if (medium) {
      add_medium(turn, *medium);
      if (files != nullptr) files->push_back(read_part_file(part, *medium, name));
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

std::vector<ChatTurn> read_turns(const JsonValue& list, std::string_view role, std::string_view content,
                                 Files* files) {
  std::vector<ChatTurn> turns;
  bool has_answer = false;
  for (const JsonValue& value : list.elements()) {
    ChatTurn turn;
    turn.role = read_role(value.at(role));
    if (turn.role == ChatRole::system && !turns.empty())
      value.at(role).refuse("expected a system turn before all others, found it after {}", turns.size());
    has_answer = has_answer || turn.role == ChatRole::assistant;
    add_content(turn, value.at(content), files);
    const bool has_weight = value.has("weight") && value.at("weight").text() != "null";
    if (turn.role == ChatRole::assistant && has_weight)
      turn.is_trained = value.at("weight").integer(0, 1) == 1;
    turns.push_back(std::move(turn));
  }
  if (!has_answer) list.refuse("expected a turn of the assistant, found none: nothing could be learned");
  return turns;
}

int forms_in(const JsonValue& root) {
  return root.has("conversations") + root.has("messages") + root.has("text");
}

Conversation read_conversation(const JsonValue& root, Files* files) {
  if (const int forms = forms_in(root); forms != 1)
    root.refuse("expected one of 'conversations', 'messages' and 'text', found {}", forms);
  if (root.has("conversations")) return {read_turns(root.at("conversations"), "from", "value", files), false};
  if (root.has("messages")) return {read_turns(root.at("messages"), "role", "content", files), false};
  ChatTurn turn;
  turn.role = ChatRole::assistant;
  add_text(turn, root.at("text").string());
  if (files != nullptr) files->resize(turn.media.size());
  return {{std::move(turn)}, true};
}

/// Returns the files that a list names next to a conversation, under "image" or "images" and so on.
/// @param wanted  how many media have no other file
Files files_next_to(const JsonValue& root, ChatMedium medium, std::size_t wanted) {
  const std::string one(to_string(medium));
  const std::string many = one + "s";
  const auto is_given = [&](const std::string& key) { return root.has(key) && !is_no_value(root.at(key)); };
  if (is_given(one) && is_given(many)) root.refuse("expected '{}' or '{}', found both", one, many);
  if (!is_given(one) && !is_given(many)) return {};
  const JsonValue value = root.at(is_given(one) ? one : many);
  if (!value.is_array()) {
    ListedMedium file = read_medium(value, medium);
    return file.is_named() ? Files{std::move(file)} : Files{};
  }
  const std::vector<JsonValue> elements = value.elements();
  const bool is_nested = !elements.empty() && elements.front().is_array();
  if (medium == ChatMedium::video && wanted == 1 && elements.size() > 1 && !is_nested)
    return {read_medium(value, medium)};
  Files files;
  for (const JsonValue& element : elements) {
    files.push_back(read_medium(element, medium));
    if (!files.back().is_named()) element.refuse_type("the path of a file");
  }
  return files;
}

/// Gives the media of one kind whose parts name no file the files next to the conversation.
void match_files(const JsonValue& root, const std::vector<ChatMedium>& media, ChatMedium medium,
                 Files& files) {
  const auto has_none = [&](std::size_t m) { return media[m] == medium && !files[m].is_named(); };
  std::size_t wanted = 0;
  for (std::size_t m = 0; m < media.size(); ++m) wanted += has_none(m) ? 1 : 0;
  Files given = files_next_to(root, medium, wanted);
  if (wanted != given.size()) {
    root.refuse("expected {0} {1}, one for each <{2}> in the conversation, found {3} in '{2}' or '{2}s'",
                wanted, wanted == 1 ? "file" : "files", to_string(medium), given.size());
  }
  const FrameRate rate = medium == ChatMedium::video ? read_frame_rate(root) : FrameRate();
  auto next = given.begin();
  for (std::size_t m = 0; m < media.size(); ++m) {
    if (media[m] != medium) continue;
    const FrameRate own = files[m].rate;
    if (has_none(m)) files[m] = std::move(*next++);
    files[m].rate = own.fps > 0 ? own : rate;
  }
}

[[noreturn]] void refuse_form(const JsonValue& root) {
  std::string found;
  for (const auto& [key, value] : root.members())
    found += fmt::format("{}'{}'", found.empty() ? "" : ", ", key);
  root.refuse(
      "expected {{\"conversations\": [{{\"from\": \"human\", \"value\": ...}}, ...]}} (LLaVA, ShareGPT), "
      "{{\"messages\": [{{\"role\": \"user\", \"content\": ...}}, ...]}} (OpenAI, ms-swift, LLaMA-Factory) or "
      "{{\"text\": ...}}, with files in \"image\" or \"images\", found {}",
      found.empty() ? "no key" : "keys " + found);
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
  return read_conversation(root, nullptr);
}

FrameRate parse_frame_rate(std::string_view json, const std::string& place) {
  const JsonDocument document(json, place);
  return read_frame_rate(document.root());
}

ListedConversation parse_listed_conversation(std::string_view json, const std::string& place) {
  const JsonDocument document(json, place);
  const JsonValue root = document.root();
  root.require_object();
  if (forms_in(root) == 0) refuse_form(root);
  ListedConversation listed;
  listed.conversation = read_conversation(root, &listed.files);
  std::vector<ChatTurn>& turns = listed.conversation.turns;
  const std::vector<ChatMedium> media = listed.conversation.media();
  for (const ChatMedium medium : all_of<ChatMedium>()) match_files(root, media, medium, listed.files);
  const bool has_system =
      root.has("system") && !is_no_value(root.at("system")) && !listed.conversation.is_text;
  if (has_system && !root.at("system").string().empty() && turns.front().role != ChatRole::system) {
    ChatTurn turn;
    turn.role = ChatRole::system;
    turn.words = {root.at("system").string()};
    turns.insert(turns.begin(), std::move(turn));
  }
  return listed;
}

}  // namespace dflop
