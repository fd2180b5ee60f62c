#include "traces/tokens/chat.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {

struct ChatTokenizer::Form {
  std::string_view name;
  std::string_view begin;     // of the conversation
  std::string_view turn;      // before a role
  std::string_view role_end;  // between role and words
  std::string_view turn_end;  // trained after an answer
  std::string_view behind;    // after a turn, never trained
  std::string_view system;    // default system turn
  bool is_trimmed = false;    // whether words lose surrounding spaces
  bool has_roles = true;
};

namespace {

/// Returns ChatML with a default system turn.
constexpr ChatTokenizer::Form chatml(std::string_view name, std::string_view system) {
  return {.name = name,
          .begin = "",
          .turn = "<|im_start|>",
          .role_end = "\n",
          .turn_end = "<|im_end|>",
          .behind = "\n",
          .system = system};
}

constexpr ChatTokenizer::Form kForms[] = {
    chatml("chatml", ""),
    chatml("qwen2", "You are a helpful assistant."),
    chatml("qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    {.name = "llama3",
     .begin = "<|begin_of_text|>",
     .turn = "<|start_header_id|>",
     .role_end = "<|end_header_id|>\n\n",
     .turn_end = "<|eot_id|>",
     .behind = "",
     .system = "",
     .is_trimmed = true},
    {.name = "plain",
     .begin = "",
     .turn = "",
     .role_end = "",
     .turn_end = "",
     .behind = "",
     .system = "",
     .has_roles = false},
};

/// A FamilyMedium holds the tokens of one family's medium; begin and end may be empty.
struct FamilyMedium {
  std::string_view family;
  ChatMedium medium;
  std::string_view begin;
  std::string_view token;
  std::string_view end;
};

constexpr FamilyMedium kFamilyMedia[] = {
    {"qwen2-vl", ChatMedium::image, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"},
    {"qwen2-vl", ChatMedium::video, "<|vision_start|>", "<|video_pad|>", "<|vision_end|>"},
    {"qwen2.5-vl", ChatMedium::image, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"},
    {"qwen2.5-vl", ChatMedium::video, "<|vision_start|>", "<|video_pad|>", "<|vision_end|>"},
    {"qwen2-audio", ChatMedium::audio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"},
    {"internvl2.5", ChatMedium::image, "<img>", "<IMG_CONTEXT>", "</img>"},
    {"llava", ChatMedium::image, "", "<image>", ""},
    {"llava-ov", ChatMedium::image, "", "<image>", ""},
    {"llava-ov", ChatMedium::video, "", "<video>", ""},
};

/// A ChatWriter collects tokens. It buffers words while their training flag stays the same, because a token
/// may span the border of two texts.
class ChatWriter {
 public:
  ChatWriter(const Tokenizer& tokenizer, std::span<const MediumIds> media,
             std::span<const std::int64_t> counts, WordCache& cache, const std::string& place)
      : tokenizer_(tokenizer), media_(media), counts_(counts), cache_(cache), place_(place) {}

  void add(std::string_view words, bool is_trained) {
    if (words.empty()) return;
    if (is_trained != is_trained_) flush();
    is_trained_ = is_trained;
    words_ += words;
  }

  /// Adds words and the media between them.
  void add(std::span<const std::string> words, std::span<const ChatMedium> media, bool is_trained) {
    add(words[0], is_trained);
    for (std::size_t i = 0; i < media.size(); ++i) {
      add_medium(media[i]);
      add(words[i + 1], is_trained);
    }
  }

  ChatTokens take() {
    flush();
    return std::move(tokens_);
  }

 private:
  void add_medium(ChatMedium medium) {
    flush();
    const auto ids = std::find_if(media_.begin(), media_.end(),
                                  [&](const MediumIds& known) { return known.medium == medium; });
    if (ids == media_.end() || ids->token < 0) {
      refuse_input(place_, "expected media that have a token in this family and tokenizer ({}), found '<{}>'",
                   tokenizer_.file(), to_string(medium));
    }
    const auto count = static_cast<std::size_t>(counts_[tokens_.media.size()]);
    if (ids->begin >= 0) append(ids->begin, 1, false);
    tokens_.media.push_back({medium, tokens_.ids.size(), count});
    append(ids->token, count, false);
    if (ids->end >= 0) append(ids->end, 1, false);
  }

  void append(std::int32_t id, std::size_t count, bool is_trained) {
    tokens_.ids.insert(tokens_.ids.end(), count, id);
    tokens_.is_trained.insert(tokens_.is_trained.end(), count, is_trained ? 1 : 0);
  }

  void flush() {
    if (words_.empty()) return;
    for (const std::int32_t id : tokenizer_.encode(words_, cache_, place_)) {
      const auto is_this = [&](const MediumIds& known) { return known.token == id; };
      if (std::any_of(media_.begin(), media_.end(), is_this)) {
        refuse_input(place_,
                     "expected media as <image>, <video> or <audio>, found the token '{}' among words",
                     tokenizer_.bytes_of(id));
      }
      append(id, 1, is_trained_);
    }
    words_.clear();
  }

  const Tokenizer& tokenizer_;
  std::span<const MediumIds> media_;
  std::span<const std::int64_t> counts_;
  WordCache& cache_;
  const std::string& place_;
  ChatTokens tokens_;
  std::string words_;
  bool is_trained_ = false;
};

/// Returns a turn's words without leading and trailing spaces.
std::vector<std::string> trimmed(std::vector<std::string> words) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  words.front().erase(0, words.front().find_first_not_of(kSpaces));
  words.back().erase(words.back().find_last_not_of(kSpaces) + 1);
  return words;
}

/// Adds a turn in the form's layout.
void add_turn(ChatWriter& writer, const ChatTokenizer::Form& form, const ChatTurn& turn) {
  const bool is_trained = turn.role == ChatRole::assistant && turn.is_trained;
  if (form.has_roles) {
    writer.add(form.turn, false);
    writer.add(to_string(turn.role), false);
    writer.add(form.role_end, false);
  }
  writer.add(form.is_trimmed ? trimmed(turn.words) : turn.words, turn.media, is_trained);
  writer.add(form.turn_end, is_trained);
  writer.add(form.behind, false);
}

void check_counts(const Conversation& conversation, std::span<const std::int64_t> counts,
                  const std::string& place) {
  const std::size_t media = conversation.media().size();
  if (counts.size() != media) {
    refuse_input(place, "expected {} placeholders for media, as many as the sample has, found {}",
                 counts.size(), media);
  }
  for (const std::int64_t count : counts) {
    if (count < 1) refuse_input(place, "expected at least 1 token for a medium, found {}", count);
  }
}

}  // namespace

void ChatTokens::cut(std::size_t longest, const std::string& sample) {
  if (ids.size() <= longest) return;
  for (const MediumPlace& place : media) {
    if (longest < place.begin + place.count) {
      refuse_input(sample,
                   "expected a cut at {} tokens that leaves media whole, found tokens [{}, {}) of '<{}>'",
                   longest, place.begin, place.begin + place.count, to_string(place.medium));
    }
  }
  const auto kept = is_trained.begin() + static_cast<std::ptrdiff_t>(longest);
  if (std::find(is_trained.begin(), kept, 1) == kept) {
    refuse_input(sample,
                 "expected a cut at {} tokens that keeps some trained tokens, found that it removes all {}",
                 longest, std::count(is_trained.begin(), is_trained.end(), 1));
  }
  ids.resize(longest);
  is_trained.resize(longest);
}

std::vector<std::string_view> chat_forms() {
  std::vector<std::string_view> names;
  for (const ChatTokenizer::Form& form : kForms) names.push_back(form.name);
  return names;
}

std::vector<std::string_view> media_families() {
  std::vector<std::string_view> names;
  for (const FamilyMedium& row : kFamilyMedia) {
    if (names.empty() || names.back() != row.family) names.push_back(row.family);
  }
  return names;
}

ChatTokenizer::ChatTokenizer(const Tokenizer& tokenizer, std::string_view form, std::string_view family)
    : tokenizer_(&tokenizer) {
  form_ =
      std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& row) { return row.name == form; });
  if (form_ == std::end(kForms)) {
    refuse_input("", "expected a chat form, one of {}, found '{}'", fmt::join(chat_forms(), ", "), form);
  }
  for (const std::string_view text : {form_->begin, form_->turn, form_->role_end, form_->turn_end}) {
    if (text.starts_with("<|")) require_id(text.substr(0, text.find("|>") + 2));
  }
  for (const FamilyMedium& row : kFamilyMedia) {
    if (row.family != family) continue;
    MediumIds ids = {row.medium, -1, tokenizer.id_of(row.token).value_or(-1), -1};
    if (ids.token >= 0 && !row.begin.empty()) {
      ids.begin = require_id(row.begin);
      ids.end = require_id(row.end);
    }
    media_.push_back(ids);
  }
  if (media_.empty() && !family.empty()) {
    refuse_input("", "expected a family of media, one of {}, found '{}'", fmt::join(media_families(), ", "),
                 family);
  }
}

std::int32_t ChatTokenizer::require_id(std::string_view token) const {
  const std::optional<std::int32_t> id = tokenizer_->id_of(token);
  if (!id) refuse_input(tokenizer_->file(), "expected the token '{}', found none of this name", token);
  return *id;
}

ChatTokens ChatTokenizer::encode(const Conversation& conversation, std::span<const std::int64_t> counts,
                                 WordCache& cache, const std::string& place) const {
  check_counts(conversation, counts, place);
  ChatWriter writer(*tokenizer_, media_, counts, cache, place);
  writer.add(form_->begin, false);
  if (conversation.is_text) {
    for (const ChatTurn& turn : conversation.turns) writer.add(turn.words, turn.media, true);
    return writer.take();
  }
  const bool has_system = !conversation.turns.empty() && conversation.turns[0].role == ChatRole::system;
  if (!has_system && !form_->system.empty())
    add_turn(writer, *form_, {ChatRole::system, {std::string(form_->system)}, {}});
  for (const ChatTurn& turn : conversation.turns) add_turn(writer, *form_, turn);
  return writer.take();
}

}  // namespace dflop
