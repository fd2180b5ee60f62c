#include "traces/tokens/chat.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {

struct ChatTokenizer::Form {
  /// A Turn holds the texts around the words of one role.
  struct Turn {
    std::string_view before;       // never trained
    std::string_view lead = "";    // trained with an answer
    std::string_view end = "";     // trained with an answer; for the assistant, a token
    std::string_view behind = "";  // never trained
  };

  std::string_view name;
  std::string_view begin;        // token that begins the conversation
  std::array<Turn, 3> turns;     // by ChatRole
  std::string_view system = "";  // default system turn
  bool is_trimmed = false;       // whether words lose surrounding spaces
  bool has_thoughts = false;     // whether answers to the last question have thoughts

  const Turn& turn(ChatRole role) const { return turns[static_cast<std::size_t>(role)]; }
};

namespace {

/// Returns ChatML with a default system turn.
constexpr ChatTokenizer::Form chatml(std::string_view name, std::string_view system,
                                     bool has_thoughts = false) {
  return {.name = name,
          .begin = "",
          .turns = {{{"<|im_start|>system\n", "", "<|im_end|>", "\n"},
                     {"<|im_start|>user\n", "", "<|im_end|>", "\n"},
                     {"<|im_start|>assistant\n", "", "<|im_end|>", "\n"}}},
          .system = system,
          .has_thoughts = has_thoughts};
}

constexpr ChatTokenizer::Form kForms[] = {
    chatml("chatml", ""),
    chatml("qwen2", "You are a helpful assistant."),
    chatml("qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    chatml(
        "qwen2.5-omni",
        "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory "
        "and visual inputs, as well as generating text and speech."),
    chatml("qwen3", "", true),
    {.name = "llama3",
     .begin = "<|begin_of_text|>",
     .turns = {{{"<|start_header_id|>system<|end_header_id|>\n\n", "", "<|eot_id|>"},
                {"<|start_header_id|>user<|end_header_id|>\n\n", "", "<|eot_id|>"},
                {"<|start_header_id|>assistant<|end_header_id|>\n\n", "", "<|eot_id|>"}}},
     .is_trimmed = true},
    {.name = "vicuna",
     .begin = "<s>",
     .turns = {{{"", "", " "}, {"USER: ", "", " "}, {"ASSISTANT:", " ", "</s>"}}}},
    {.name = "mistral",
     .begin = "<s>",
     .turns = {{{"<<SYS>>\n", "", "\n<</SYS>>\n\n"}, {"[INST] ", "", " [/INST]"}, {"", " ", "</s>"}}}},
    {.name = "plain", .begin = "", .turns = {}},
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
    {"qwen2.5-omni", ChatMedium::image, "<|vision_bos|>", "<|IMAGE|>", "<|vision_eos|>"},
    {"qwen2.5-omni", ChatMedium::video, "<|vision_bos|>", "<|VIDEO|>", "<|vision_eos|>"},
    {"qwen2.5-omni", ChatMedium::audio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"},
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

  /// Adds a token that ends words; -1 adds none.
  void add_token(std::int32_t id, bool is_trained) {
    if (id < 0) return;
    flush();
    append(id, 1, is_trained);
    at_ = TextPlace::after_token;
  }

  /// Adds the token that begins a conversation. Words after it are encoded like a text's first words.
  void begin(std::int32_t id) {
    if (id >= 0) append(id, 1, false);
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
    at_ = TextPlace::after_token;
  }

  void append(std::int32_t id, std::size_t count, bool is_trained) {
    tokens_.ids.insert(tokens_.ids.end(), count, id);
    tokens_.is_trained.insert(tokens_.is_trained.end(), count, is_trained ? 1 : 0);
  }

  void flush() {
    if (words_.empty()) return;
    for (const std::int32_t id : tokenizer_.encode_next(words_, at_, cache_, place_)) {
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
  TextPlace at_ = TextPlace::begin;
};

/// Returns a turn's words without leading and trailing spaces.
std::vector<std::string> trimmed(std::vector<std::string> words) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  words.front().erase(0, words.front().find_first_not_of(kSpaces));
  words.back().erase(words.back().find_last_not_of(kSpaces) + 1);
  return words;
}

constexpr std::string_view kThoughtEnd = "</think>";

std::string without_first_lines(std::string_view text) {
  return std::string(text.substr(std::min(text.find_first_not_of('\n'), text.size())));
}

std::string without_lines(std::string_view text) {
  return without_first_lines(text.substr(0, text.find_last_not_of('\n') + 1));
}

/// A Thought says which thought an answer has in Qwen3's template.
enum class Thought : std::uint8_t {
  none,    ///< before the last question
  own,     ///< after it: the answer's own one, unless it is empty
  always,  ///< the last answer: its own one or an empty one
};

/// Returns the index of the last question, which Qwen3's template distinguishes from a tool's response; of
/// the last turn if there is none.
std::size_t last_question(const std::vector<ChatTurn>& turns) {
  const auto asks = [](const ChatTurn& turn) {
    const bool responds =
        turn.words.front().starts_with("<tool_response>") && turn.words.back().ends_with("</tool_response>");
    return turn.role == ChatRole::user && !responds;
  };
  const auto last = std::find_if(turns.rbegin(), turns.rend(), asks);
  return static_cast<std::size_t>((last == turns.rend() ? turns.rbegin() : last).base() - turns.begin()) - 1;
}

Thought thought_of(const std::vector<ChatTurn>& turns, std::size_t turn) {
  if (turn <= last_question(turns)) return Thought::none;
  return turn + 1 == turns.size() ? Thought::always : Thought::own;
}

/// Writes an answer's thought as Qwen3's template does, or removes it. @return whether the words have one
bool rewrite_thought(std::string& words, Thought kept) {
  const std::size_t end = words.find(kThoughtEnd);
  if (end == std::string::npos) return false;
  constexpr std::string_view kBegin = "<think>";
  std::string thought = words.substr(0, end);
  if (const std::size_t begin = thought.rfind(kBegin); begin != std::string::npos)
    thought.erase(0, begin + kBegin.size());
  thought = without_lines(thought);
  const std::string answer = without_first_lines(words.substr(words.rfind(kThoughtEnd) + kThoughtEnd.size()));
  const bool keeps = kept == Thought::always || (kept == Thought::own && !thought.empty());
  words = keeps ? fmt::format("<think>\n{}\n</think>\n\n{}", thought, answer) : answer;
  return keeps;
}

/// Adds a turn in the form's layout. `end` is the token that ends an answer, or -1. `thought` matters in
/// forms with thoughts.
void add_turn(ChatWriter& writer, const ChatTokenizer::Form& form, ChatTurn turn, std::int32_t end,
              Thought thought) {
  const bool is_answer = turn.role == ChatRole::assistant;
  const bool is_trained = is_answer && turn.is_trained;
  const ChatTokenizer::Form::Turn& around = form.turn(turn.role);
  writer.add(around.before, false);
  if (form.has_thoughts && is_answer && !rewrite_thought(turn.words.front(), thought) &&
      thought == Thought::always) {
    writer.add("<think>\n\n</think>\n\n", false);
    turn.words.front() = without_first_lines(turn.words.front());
  }
  writer.add(around.lead, is_trained);
  writer.add(form.is_trimmed ? trimmed(turn.words) : turn.words, turn.media, is_trained);
  if (is_answer) {
    writer.add_token(end, is_trained);
  } else {
    writer.add(around.end, false);
  }
  writer.add(around.behind, false);
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
  if (!form_->begin.empty()) begin_ = require_id(form_->begin);
  const Form::Turn& answer = form_->turn(ChatRole::assistant);
  if (answer.before.starts_with("<|")) require_id(answer.before.substr(0, answer.before.find("|>") + 2));
  if (!answer.end.empty()) end_ = require_id(answer.end);
  for (const FamilyMedium& row : kFamilyMedia) {
    if (row.family != family) continue;
    MediumIds ids = {row.medium, -1, tokenizer.id_of(row.token).value_or(-1), -1, row.token};
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

std::string_view ChatTokenizer::token_of(ChatMedium medium) const {
  const auto found =
      std::ranges::find_if(media_, [&](const MediumIds& known) { return known.medium == medium; });
  return found == media_.end() ? std::string_view() : found->name;
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
  writer.begin(begin_);
  if (conversation.is_text) {
    for (const ChatTurn& turn : conversation.turns) writer.add(turn.words, turn.media, true);
    return writer.take();
  }
  const bool has_system = !conversation.turns.empty() && conversation.turns[0].role == ChatRole::system;
  if (!has_system && !form_->system.empty())
    add_turn(writer, *form_, {ChatRole::system, {std::string(form_->system)}, {}}, end_, Thought::none);
  for (std::size_t i = 0; i < conversation.turns.size(); ++i) {
    add_turn(writer, *form_, conversation.turns[i], end_,
             form_->has_thoughts ? thought_of(conversation.turns, i) : Thought::none);
  }
  return writer.take();
}

}  // namespace dflop
