#include "traces/tokens/tokenizer.hpp"

#include <algorithm>
#include <limits>

#include "core/refuse.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/byte_letters.hpp"

namespace dflop {
namespace {

constexpr std::int32_t kLargestId = std::numeric_limits<std::int32_t>::max() - 1;

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

bool reads_nfc(const JsonValue& root) {
  if (!root.has("normalizer") || is_null(root.at("normalizer"))) return false;
  require_type(root.at("normalizer"), "NFC");
  return true;
}

/// Reads the expression that splits words: a Sequence of Split and ByteLevel.
WordSplitter read_splitter(const JsonValue& value, const std::string& file) {
  require_type(value, "Sequence");
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

}  // namespace

Tokenizer::Tokenizer(const std::string& file) : Tokenizer(read_text_file(file), file) {}

Tokenizer::Tokenizer(std::string_view json, const std::string& file) : file_(file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  root.require_object();
  is_nfc_ = reads_nfc(root);
  splitter_.emplace(read_splitter(root.at("pre_tokenizer"), file));
  require_type(root.at("decoder"), "ByteLevel");
  read_model(root.at("model"));
  if (root.has("added_tokens")) read_added(root.at("added_tokens"));
  std::sort(bytes_.begin(), bytes_.end());
  const auto twice = std::adjacent_find(bytes_.begin(), bytes_.end(),
                                        [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != bytes_.end()) {
    refuse_input(file, "expected a different id for each token, found id {} for '{}' and '{}'", twice->first,
                 to_valid_utf8(twice->second), to_valid_utf8(std::next(twice)->second));
  }
}

void Tokenizer::add_name(const std::string& content, std::int32_t id, const JsonValue& place) {
  const auto [known, is_new] = ids_.emplace(content, id);
  if (!is_new && known->second != id)
    place.refuse("expected {}, the id of '{}' in the vocabulary, found {}", known->second, content, id);
  // A token with letters outside of the alphabet stands for itself.
  if (is_new) bytes_.emplace_back(id, bytes_of_letters(content).value_or(content));
}

void Tokenizer::read_model(const JsonValue& model) {
  require_type(model, "BPE");
  if (model.has("dropout") && !is_null(model.at("dropout")) && model.at("dropout").number() != 0)
    model.at("dropout").refuse_type("null");
  require_no_text(model, "continuing_subword_prefix");
  require_no_text(model, "end_of_word_suffix");
  require_false(model, "byte_fallback");
  const bool takes_whole_words = model.has("ignore_merges") && model.at("ignore_merges").boolean();
  pairs_.take_whole_words(takes_whole_words);
  const JsonValue vocabulary = model.at("vocab");
  const auto members = vocabulary.members();
  ids_.reserve(members.size());
  bytes_.reserve(members.size());
  for (const auto& [token, value] : members) {
    const auto id = value.integer<std::int32_t>(0, kLargestId);
    add_name(token, id, value);
    // Other words are made only by merges.
    auto bytes = bytes_of_letters(token);
    if (bytes && (takes_whole_words || bytes->size() == 1)) pairs_.add_token(std::move(*bytes), id);
  }
  // With a token for each byte, no token is unknown, whatever the file says.
  if (const int byte = pairs_.set_bytes(); byte >= 0)
    vocabulary.refuse("expected a token for each of the 256 bytes, found none for byte 0x{:02x}", byte);
  read_merges(model.at("merges"));
}

void Tokenizer::read_merges(const JsonValue& merges) {
  std::int32_t rank = 0;
  std::string joined;
  // A merge's tokens are looked up as written: letters stand for bytes one by one.
  const auto require_half = [&](std::string_view token, const JsonValue& place) {
    const auto found = ids_.find(token);
    if (token.empty() || found == ids_.end())
      place.refuse("expected tokens of the vocabulary, found '{}'", token);
    return found->second;
  };
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
    const std::int32_t left_id = require_half(left, merge);
    const std::int32_t right_id = require_half(right, merge);
    joined = left;
    joined += right;
    const auto made = ids_.find(joined);
    if (made == ids_.end())
      merge.refuse("expected '{}', the result of this merge, in the vocabulary, found none", joined);
    pairs_.add_merge(left_id, right_id, rank++, made->second);
  }
}

void Tokenizer::read_added(const JsonValue& tokens) {
  for (const JsonValue& token : tokens.elements()) {
    for (const std::string_view flag : {"lstrip", "rstrip", "single_word"}) require_false(token, flag);
    const JsonValue place = token.at("content");
    const std::string& content = place.string();
    if (content.empty()) place.refuse_type("a text that is not empty");
    const auto id = token.at("id").integer<std::int32_t>(0, kLargestId);
    add_name(content, id, token.at("id"));
    if (token.has("normalized") && token.at("normalized").boolean()) {
      added_normal_.add(is_nfc_ ? to_nfc(content) : content, id);
    } else {
      added_.add(content, id);
    }
  }
}

namespace {

/// Walks through a text: `on_text` gets the text between added tokens, `on_token` the tokens.
template <typename OnText, typename OnToken>
void walk(std::string_view text, const AddedTokens& added, OnText on_text, OnToken on_token) {
  for (std::size_t from = 0; from < text.size();) {
    const AddedTokens::Found found = added.find(text, from);
    if (found.begin > from) on_text(text.substr(from, found.begin - from));
    if (found.size > 0) on_token(found.id);
    from = found.begin + found.size;
  }
}

}  // namespace

void Tokenizer::encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
  std::vector<std::size_t> ends;
  splitter_->split(text, ends);
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    pairs_.encode(text.substr(begin, end - begin), cache, ids);
    begin = end;
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, WordCache& cache,
                                            const std::string& place) const {
  check_text(text, place);
  std::vector<std::int32_t> ids;
  const auto on_token = [&](std::int32_t id) { ids.push_back(id); };
  const auto on_words = [&](std::string_view words) { encode_words(words, cache, ids); };
  walk(
      text, added_,
      [&](std::string_view piece) {
        // Normalized text is searched again, because NFC may produce an added token that is normalized.
        const std::string normal = is_nfc_ ? to_nfc(piece) : std::string(piece);
        walk(normal, added_normal_, on_words, on_token);
      },
      on_token);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  WordCache cache;
  return encode(text, cache);
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const {
  const auto found =
      std::lower_bound(bytes_.begin(), bytes_.end(), id,
                       [](const auto& token, std::int32_t wanted) { return token.first < wanted; });
  if (found == bytes_.end() || found->first != id)
    refuse_input(file_, "expected the id of a token, below {}, found {}", vocabulary_size(), id);
  return found->second;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += bytes_of(id);
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
