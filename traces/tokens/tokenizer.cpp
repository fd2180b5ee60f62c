#include "traces/tokens/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>

#include "core/refuse.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"
#include "traces/text/utf8.hpp"
#include "traces/tokens/byte_letters.hpp"

namespace dflop {
namespace {

constexpr std::string_view kVocabulary = "vocab.json";
constexpr std::string_view kMerges = "merges.txt";
/// This expression splits words in transformers' Qwen2Tokenizer (PRETOKENIZE_REGEX).
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::int32_t kLargestId = std::numeric_limits<std::int32_t>::max() - 1;

/// Searches tokens by id.
constexpr auto kIsBefore = [](const auto& token, std::int32_t id) { return token.first < id; };

bool is_null(const JsonValue& value) {
  return value.text() == "null";
}

/// Rejects an object of another type. Checks the value before the type's keys, because other types have other
/// keys.
void require_type(const JsonValue& value, std::string_view type) {
  const JsonValue found = value.at("type");
  if (found.string() != type) found.refuse_type("\"{}\"", type);
}

/// Rejects a flag that is present and true.
void require_false(const JsonValue& value, std::string_view key) {
  if (value.has(key) && value.at(key).boolean()) value.at(key).refuse_type("false");
}

/// Rejects a text that is present and neither null nor empty.
void require_no_text(const JsonValue& value, std::string_view key) {
  if (value.has(key) && !is_null(value.at(key)) && !value.at(key).string().empty())
    value.at(key).refuse_type("null");
}

/// Tells whether a text is one character. @param text  valid UTF-8
bool is_character(std::string_view text) {
  return !text.empty() &&
         std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }) == 1;
}

bool reads_nfc(const JsonValue& root) {
  if (!root.has("normalizer") || is_null(root.at("normalizer"))) return false;
  require_type(root.at("normalizer"), "NFC");
  return true;
}

/// Reads the expression that splits words: a Sequence of Split and ByteLevel.
WordSplitter read_splitter(const JsonValue& value, const std::string& file) {
  if (value.at("type").string() != "Sequence")
    value.at("type").refuse_type("\"Sequence\", \"Metaspace\" or no pre_tokenizer");
  const JsonValue list = value.at("pretokenizers");
  const std::vector<JsonValue> steps = list.elements();
  if (steps.size() != 2) list.refuse("expected a Split and a ByteLevel, found {} steps", steps.size());
  const JsonValue& split = steps[0];
  require_type(split, "Split");
  if (split.at("behavior").string() != "Isolated") split.at("behavior").refuse_type("\"Isolated\"");
  require_false(split, "invert");
  const JsonValue pattern = split.at("pattern");
  pattern.require_keys({"Regex"});
  require_type(steps[1], "ByteLevel");
  require_false(steps[1], "add_prefix_space");
  // By default, a ByteLevel splits by its own expression.
  const JsonValue own = steps[1].at("use_regex");
  if (own.boolean()) own.refuse_type("false");
  return {pattern.at("Regex").string(),
          fmt::format("{}: key 'pre_tokenizer.pretokenizers[0].pattern.Regex'", file)};
}

void require_text(const JsonValue& value, std::string_view key, std::string_view expected) {
  if (value.at(key).string() != expected) value.at(key).refuse_type("\"{}\"", expected);
}

/// Rejects a Replace of other texts.
void require_replace(const JsonValue& value, std::string_view from, std::string_view to) {
  require_type(value, "Replace");
  value.at("pattern").require_keys({"String"});
  require_text(value.at("pattern"), "String", from);
  require_text(value, "content", to);
}

bool is_absent(const JsonValue& root, std::string_view key) {
  return !root.has(key) || is_null(root.at(key));
}

/// Reads a Sequence of Prepend and Replace.
SpaceMarks read_normalizer(const JsonValue& value) {
  require_type(value, "Sequence");
  const JsonValue list = value.at("normalizers");
  const std::vector<JsonValue> steps = list.elements();
  if (steps.size() != 2) list.refuse("expected a Prepend and a Replace, found {} steps", steps.size());
  require_type(steps[0], "Prepend");
  require_text(steps[0], "prepend", kSpaceMark);
  require_replace(steps[1], " ", kSpaceMark);
  return {.in_normalizer = true, .doubles = true};
}

SpaceMarks read_metaspace(const JsonValue& value) {
  using Before = SpaceMarks::Before;
  require_text(value, "replacement", kSpaceMark);
  SpaceMarks marks;
  marks.splits = !value.has("split") || value.at("split").boolean();
  if (value.has("prepend_scheme")) {
    constexpr Before kSchemes[] = {Before::always, Before::begin, Before::never};
    marks.before = kSchemes[value.at("prepend_scheme").choice_index({"always", "first", "never"})];
  } else if (value.has("add_prefix_space") && !value.at("add_prefix_space").boolean()) {
    marks.before = Before::never;
  }
  return marks;
}

/// Reads the decoder that belongs to byte fallback. @return whether it strips the first space
bool read_strip(const JsonValue& decoder) {
  require_type(decoder, "Sequence");
  const JsonValue list = decoder.at("decoders");
  const std::vector<JsonValue> steps = list.elements();
  if (steps.size() < 3 || steps.size() > 4)
    list.refuse("expected Replace, ByteFallback, Fuse and perhaps Strip, found {} steps", steps.size());
  require_replace(steps[0], kSpaceMark, " ");
  require_type(steps[1], "ByteFallback");
  require_type(steps[2], "Fuse");
  if (steps.size() == 3) return false;
  require_type(steps[3], "Strip");
  require_text(steps[3], "content", " ");
  if (steps[3].at("start").integer(0, 1) == 0) return false;
  if (steps[3].at("stop").integer(0) != 0) steps[3].at("stop").refuse_type("0");
  return true;
}

/// Reads how spaces are written; nullopt for byte-level BPE, which has another pre-tokenizer.
std::optional<SpaceMarks> read_marks(const JsonValue& root) {
  SpaceMarks marks;
  if (is_absent(root, "pre_tokenizer")) {
    marks = read_normalizer(root.at("normalizer"));
  } else {
    const JsonValue value = root.at("pre_tokenizer");
    if (value.at("type").string() != "Metaspace") return std::nullopt;
    if (!is_absent(root, "normalizer"))
      root.at("normalizer").refuse_type("null, as in files with a Metaspace");
    marks = read_metaspace(value);
  }
  marks.strips = read_strip(root.at("decoder"));
  return marks;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& file) : file_(file) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(file).parent_path();
  std::error_code ignored;
  const bool has_files = fs::exists(folder / kVocabulary, ignored) && fs::exists(folder / kMerges, ignored);
  if (has_files && !fs::exists(file, ignored)) {
    read_files(folder.string());
  } else {
    read_json(read_text_file(file));
  }
}

Tokenizer::Tokenizer(std::string_view json, const std::string& file) : file_(file) {
  read_json(json);
}

void Tokenizer::read_json(std::string_view json) {
  const JsonDocument document(json, file_);
  const JsonValue root = document.root();
  root.require_object();
  marks_ = read_marks(root);
  if (!marks_) {
    is_nfc_ = reads_nfc(root);
    splitter_.emplace(read_splitter(root.at("pre_tokenizer"), file_));
    require_type(root.at("decoder"), "ByteLevel");
  }
  read_model(root.at("model"));
  if (root.has("added_tokens")) read_added(root.at("added_tokens"));
  finish();
}

void Tokenizer::finish() {
  std::sort(bytes_.begin(), bytes_.end());
  const auto twice = std::adjacent_find(bytes_.begin(), bytes_.end(),
                                        [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != bytes_.end()) {
    refuse_input(file_, "expected a different id for each token, found id {} for '{}' and '{}'", twice->first,
                 to_valid_utf8(twice->second), to_valid_utf8(std::next(twice)->second));
  }
}

void Tokenizer::add_name(const std::string& content, std::int32_t id, const JsonValue& place) {
  const auto [known, is_new] = ids_.emplace(content, id);
  if (!is_new && known->second != id)
    place.refuse("expected {}, the id of '{}' in the vocabulary, found {}", known->second, content, id);
  if (!is_new) return;
  // A token with letters outside of the alphabet stands for itself.
  bytes_.emplace_back(id, marks_ ? with_spaces(content) : bytes_of_letters(content).value_or(content));
}

void Tokenizer::read_model(const JsonValue& model) {
  require_type(model, "BPE");
  if (model.has("dropout") && !is_null(model.at("dropout")) && model.at("dropout").number() != 0)
    model.at("dropout").refuse_type("null");
  require_no_text(model, "continuing_subword_prefix");
  require_no_text(model, "end_of_word_suffix");
  const bool falls_back = model.has("byte_fallback") && model.at("byte_fallback").boolean();
  if (falls_back != marks_.has_value())
    model.at("byte_fallback").refuse_type("{}", marks_ ? "true" : "false");
  const bool takes_whole_words = model.has("ignore_merges") && model.at("ignore_merges").boolean();
  read_vocabulary(model.at("vocab"), takes_whole_words);
  read_merges(model.at("merges"));
}

void Tokenizer::read_vocabulary(const JsonValue& vocabulary, bool takes_whole_words) {
  pairs_.take_whole_words(takes_whole_words);
  const auto members = vocabulary.members();
  ids_.reserve(members.size());
  bytes_.reserve(members.size());
  for (const auto& [token, value] : members) {
    const auto id = value.integer<std::int32_t>(0, kLargestId);
    add_name(token, id, value);
    // Other words are made only by merges.
    auto bytes = marks_ ? std::optional(token) : bytes_of_letters(token);
    if (bytes && (takes_whole_words || (marks_ ? is_character(*bytes) : bytes->size() == 1)))
      pairs_.add_token(std::move(*bytes), id);
  }
  // With a token for each byte, no token is unknown, whatever the file says.
  if (marks_) {
    read_byte_tokens(vocabulary);
  } else if (const int byte = pairs_.set_bytes(); byte >= 0)
    vocabulary.refuse("expected a token for each of the 256 bytes, found none for byte 0x{:02x}", byte);
}

/// Adds the next merge. Its tokens are looked up as written: letters stand for bytes one by one. `refuse`
/// rejects the merge with a message.
template <typename Refuse>
void Tokenizer::add_merge(std::string_view left, std::string_view right, const Refuse& refuse) {
  const auto require_half = [&](std::string_view token) {
    const auto found = ids_.find(token);
    if (token.empty() || found == ids_.end())
      refuse(fmt::format("expected tokens of the vocabulary, found '{}'", token));
    return found->second;
  };
  const std::int32_t left_id = require_half(left);
  const std::int32_t right_id = require_half(right);
  const std::string joined = std::string(left) + std::string(right);
  const auto made = ids_.find(joined);
  if (made == ids_.end())
    refuse(fmt::format("expected '{}', the result of this merge, in the vocabulary, found none", joined));
  pairs_.add_merge(left_id, right_id, merges_++, made->second);
}

void Tokenizer::read_byte_tokens(const JsonValue& vocabulary) {
  std::array<std::int32_t, 256> byte_ids{};
  std::vector<std::pair<std::int32_t, char>> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = fmt::format("<0x{:02X}>", byte);
    const std::optional<std::int32_t> id = id_of(name);
    if (!id) vocabulary.refuse("expected a token for each of the 256 bytes, found no '{}'", name);
    byte_ids[static_cast<std::size_t>(byte)] = *id;
    bytes.emplace_back(*id, static_cast<char>(byte));
  }
  pairs_.start_from_characters(byte_ids);
  std::sort(bytes.begin(), bytes.end());
  for (auto& [id, shown] : bytes_) {
    const auto byte = std::lower_bound(bytes.begin(), bytes.end(), id, kIsBefore);
    if (byte != bytes.end() && byte->first == id) shown.assign(1, byte->second);
  }
}

void Tokenizer::read_merges(const JsonValue& merges) {
  for (const JsonValue& merge : merges.elements()) {
    std::string_view left;
    std::string_view right;
    if (merge.is_array()) {
      const std::vector<JsonValue> halves = merge.elements();
      if (halves.size() != 2) merge.refuse("expected two tokens, found {}", halves.size());
      left = halves[0].string();
      right = halves[1].string();
    } else {
      const std::string_view both = merge.string();
      const std::size_t space = both.find(' ');
      if (space == std::string_view::npos) merge.refuse_type("two tokens with a space between them");
      left = both.substr(0, space);
      right = both.substr(space + 1);
    }
    add_merge(left, right, [&](const std::string& message) { merge.refuse(message); });
  }
}

/// Reads merges.txt: two tokens a line, with a space between them, after an optional line "#version: ...".
void Tokenizer::read_merges(std::string_view lines, const std::string& file) {
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const auto refuse = [&](const std::string& message) {
      refuse_input(fmt::format("{}:{}", file, number), "{}", message);
    };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos)
      refuse(fmt::format("expected two tokens with a space between them, found '{}'", line));
    add_merge(line.substr(0, space), line.substr(space + 1), refuse);
  }
}

void Tokenizer::read_files(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto path = [&](std::string_view name) { return (fs::path(folder) / name).string(); };
  std::error_code ignored;
  file_ = path(kVocabulary);
  is_nfc_ = true;
  splitter_.emplace(std::string(kQwen2Words), file_);
  read_vocabulary(JsonDocument(read_text_file(file_), file_).root(), false);
  read_merges(read_text_file(path(kMerges)), path(kMerges));
  if (const std::string config = path("tokenizer_config.json"); fs::exists(config, ignored)) {
    const JsonDocument document(read_text_file(config), config);
    read_config(document.root());
  }
  if (const std::string added = path("added_tokens.json"); fs::exists(added, ignored)) {
    const JsonDocument document(read_text_file(added), added);
    for (const auto& [content, value] : document.root().members()) {
      if (id_of(content)) continue;  // tokenizer_config.json has it, with its flags
      const auto id = value.integer<std::int32_t>(0, kLargestId);
      if (content.empty()) value.refuse("expected a token that is not empty, found none");
      add_name(content, id, value);
      added_.add(content, id);
    }
  }
  finish();
}

void Tokenizer::read_config(const JsonValue& config) {
  config.require_object();
  if (config.has("tokenizer_class")) {
    const JsonValue name = config.at("tokenizer_class");
    if (name.string() != "Qwen2Tokenizer" && name.string() != "Qwen2TokenizerFast")
      name.refuse_type("\"Qwen2Tokenizer\", because there are {} and {}, but no tokenizer.json", kVocabulary,
                       kMerges);
  }
  require_false(config, "add_prefix_space");
  require_false(config, "split_special_tokens");
  if (!config.has("added_tokens_decoder")) return;
  for (const auto& [text, token] : config.at("added_tokens_decoder").members()) {
    std::int32_t id = -1;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (problem != std::errc() || end != text.data() + text.size() || id < 0 || id > kLargestId)
      token.refuse("expected an id as the key, found '{}'", text);
    read_added_token(token, id, token);
  }
}

void Tokenizer::read_added(const JsonValue& tokens) {
  std::vector<std::pair<std::int32_t, std::string>>
      shown;  // Hugging Face decodes normalized tokens like this
  for (const JsonValue& token : tokens.elements()) {
    const JsonValue place = token.at("id");
    const auto id = place.integer<std::int32_t>(0, kLargestId);
    const std::optional<std::string> normal = read_added_token(token, id, place);
    if (normal && marks_) shown.emplace_back(id, with_spaces(*normal));
  }
  std::sort(bytes_.begin(), bytes_.end());
  for (auto& [id, text] : shown) {
    const auto token = std::lower_bound(bytes_.begin(), bytes_.end(), id, kIsBefore);
    if (token->first == id) token->second = std::move(text);
  }
}

/// Reads an added token, whose id is at `place`. Returns the text that a normalized token matches.
std::optional<std::string> Tokenizer::read_added_token(const JsonValue& token, std::int32_t id,
                                                       const JsonValue& place) {
  for (const std::string_view flag : {"lstrip", "rstrip", "single_word"}) require_false(token, flag);
  const JsonValue named = token.at("content");
  const std::string& content = named.string();
  if (content.empty()) named.refuse_type("a text that is not empty");
  add_name(content, id, place);
  if (!token.has("normalized") || !token.at("normalized").boolean()) {
    added_.add(content, id);
    return std::nullopt;
  }
  std::string normal = normalized(content, TextPlace::begin);
  added_normal_.add(normal, id);
  return normal;
}

namespace {

/// Walks through a text: `on_text` gets the text between added tokens and returns what then precedes the
/// rest; `on_token` gets the tokens. `at` says what precedes the text, and is kept up to date.
template <typename OnText, typename OnToken>
void walk(std::string_view text, const AddedTokens& added, TextPlace& at, OnText on_text, OnToken on_token) {
  for (std::size_t from = 0; from < text.size();) {
    const AddedTokens::Found found = added.find(text, from);
    if (found.begin > from) {
      at = on_text(text.substr(from, found.begin - from));
    }
    if (found.size > 0) {
      on_token(found.id);
      at = TextPlace::after_token;
    }
    from = found.begin + found.size;
  }
}

}  // namespace

void Tokenizer::encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
  std::vector<std::size_t> ends;
  if (marks_) {
    marks_->split(text, ends);
  } else {
    splitter_->split(text, ends);
  }
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    pairs_.encode(text.substr(begin, end - begin), cache, ids);
    begin = end;
  }
}

std::string Tokenizer::normalized(std::string_view text, TextPlace at) const {
  if (is_nfc_) return to_nfc(text);
  if (marks_ && marks_->in_normalizer) return marks_->marked(text, at);
  return std::string(text);
}

std::vector<std::int32_t> Tokenizer::encode_next(std::string_view text, TextPlace& at, WordCache& cache,
                                                 const std::string& place) const {
  check_text(text, place);
  std::vector<std::int32_t> ids;
  const auto on_token = [&](std::int32_t id) { ids.push_back(id); };
  const auto on_piece = [&](std::string_view piece) {
    // Normalized text is searched again, because NFC may produce an added token that is normalized.
    const std::string normal = normalized(piece, at);
    TextPlace inside = at;
    const auto on_words = [&](std::string_view words) {
      if (marks_ && !marks_->in_normalizer) {
        encode_words(marks_->marked(words, inside), cache, ids);
      } else {
        encode_words(words, cache, ids);
      }
      return TextPlace::within;
    };
    walk(normal, added_normal_, inside, on_words, on_token);
    return inside;
  };
  walk(text, added_, at, on_piece, on_token);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, WordCache& cache,
                                            const std::string& place) const {
  TextPlace at = TextPlace::begin;
  return encode_next(text, at, cache, place);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  WordCache cache;
  return encode(text, cache);
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const {
  const auto found = std::lower_bound(bytes_.begin(), bytes_.end(), id, kIsBefore);
  if (found == bytes_.end() || found->first != id)
    refuse_input(file_, "expected the id of a token, below {}, found {}", vocabulary_size(), id);
  return found->second;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string bytes;
  std::string run;  // of byte tokens
  const auto end_run = [&] {
    if (find_no_utf8(run)) {
      for (std::size_t i = 0; i < run.size(); ++i) bytes += "\uFFFD";
    } else {
      bytes += run;
    }
    run.clear();
  };
  for (const std::int32_t id : ids) {
    const std::string_view token = bytes_of(id);
    if (marks_ && token.size() == 1 && pairs_.byte_id(static_cast<unsigned char>(token[0])) == id) {
      run += token;
    } else {
      end_run();
      bytes += token;
    }
  }
  end_run();
  if (marks_ && marks_->strips && bytes.starts_with(' ')) bytes.erase(0, 1);
  return to_valid_utf8(bytes);
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::int32_t Tokenizer::vocabulary_size() const {
  return bytes_.back().first + 1;  // there is a token for each byte
}

}  // namespace dflop
