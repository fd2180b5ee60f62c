#include "traces/text/strict_json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "core/error.hpp"

namespace dflop {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestQuote = 60;

std::string shorten(std::string text, std::size_t longest) {
  if (text.size() <= longest) return text;
  // Do not cut inside a UTF-8 character, whose later bytes are 10xxxxxx.
  while (longest > 0 && (static_cast<unsigned char>(text[longest]) & 0xC0) == 0x80) --longest;
  return text.substr(0, longest) + "...";
}

std::string describe(const Json& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return fmt::format("an array of {}", json.size());
  return shorten(json.dump(), kLongestQuote);
}

std::string member_path(const std::string& parent, std::string_view key) {
  const std::string name = shorten(std::string(key), kLongestQuote);
  return parent.empty() ? name : parent + '.' + name;
}

std::optional<std::int64_t> whole_number(const Json& json) {
  if (const auto* number = json.get_ptr<const Json::number_unsigned_t*>()) {
    if (*number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(*number);
  }
  if (const auto* number = json.get_ptr<const Json::number_integer_t*>()) return *number;
  // 1e6 and 1000000.0 are also whole, up to the size at which a double is exact.
  constexpr double kMaxExact = 9'007'199'254'740'992;  // 2^53
  const auto* number = json.get_ptr<const Json::number_float_t*>();
  if (number == nullptr || std::abs(*number) > kMaxExact || std::trunc(*number) != *number)
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

constexpr int kDeepest = 64;  // valid files are never as deep, and each level takes memory

/// Values take at most this many bytes each, including growing lists, and all values of a text at most 2 GiB.
/// Without a limit, "[],[],..." would take 20 times its length.
constexpr std::size_t kScalarBytes = 24;
constexpr std::size_t kTextBytes = 56;
constexpr std::size_t kListBytes = 72;
constexpr std::size_t kKeyBytes = 96;
constexpr std::size_t kMaxValueBytes = std::size_t{2} << 30;

/// A KeyTwice is thrown for an object with a repeated key.
struct KeyTwice {};

/// A StrictReader builds a Json from the parser's events. It rejects an object with a repeated key, of which
/// the parser would keep the last, and documents that are too deep or take too much memory. It also knows the
/// current key, which the parser does not tell. (The parser's own callbacks would work, but at the end of
/// each object they walk over the whole enclosing list.)
class StrictReader {
 public:
  /// @param names  whether to remember all keys, which is slow, to name the repeated one; otherwise KeyTwice
  /// is thrown at the object's end
  StrictReader(const std::string& file, bool names) : file_(file), names_(names) {}

  Json finish() { return std::move(root_); }

  bool null() { return put(nullptr, kScalarBytes); }
  bool boolean(bool value) { return put(value, kScalarBytes); }
  bool number_integer(Json::number_integer_t value) { return put(value, kScalarBytes); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value, kScalarBytes); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value, kScalarBytes); }
  bool string(std::string& value) { return put(std::move(value), kTextBytes); }
  bool binary(Json::binary_t&) { return false; }  // does not occur in JSON text

  bool start_object(std::size_t) {
    begin(Json::value_t::object);
    objects_.emplace_back();
    return true;
  }

  bool key(std::string& key) {
    count(kKeyBytes);
    Object& object = objects_.back();
    object.current = key;
    ++object.count;
    if (names_ && !object.keys.insert(key).second)
      throw Error(ErrorKind::input, "expected each key once, found it again", place());
    member_ = &open_.back()->get_ref<Json::object_t&>()[std::move(key)];
    return true;
  }

  bool end_object() {
    if (open_.back()->size() != objects_.back().count) throw KeyTwice();
    objects_.pop_back();
    open_.pop_back();
    return true;
  }

  bool start_array(std::size_t) {
    begin(Json::value_t::array);
    return true;
  }

  bool end_array() {
    open_.pop_back();
    return true;
  }

  template <typename Exception>
  bool parse_error(std::size_t, const std::string&, const Exception& error) {
    throw Exception(error);
  }

  /// Returns "file: key 'llm.layers'" for the current value, without array indices.
  std::string place() const {
    std::string path;
    for (const Object& outer : objects_) path = member_path(path, outer.current);
    return path.empty() ? file_ : fmt::format("{}: key '{}'", file_, path);
  }

 private:
  struct Object {
    std::size_t count = 0;
    std::string current;
    std::unordered_set<std::string> keys;
  };

  void begin(Json::value_t type) {
    if (open_.size() >= kDeepest) {
      throw Error(ErrorKind::input,
                  fmt::format("expected at most {} nested lists and objects, found more", kDeepest), place());
    }
    open_.push_back(&add(type, kListBytes));
  }

  template <typename Value>
  bool put(Value&& value, std::size_t bytes) {
    add(std::forward<Value>(value), bytes);
    return true;
  }

  /// Adds a value to the innermost list or object. Its address stays valid until that grows.
  template <typename Value>
  Json& add(Value&& value, std::size_t bytes) {
    count(bytes);
    if (open_.empty()) return root_ = Json(std::forward<Value>(value));
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::forward<Value>(value));
    return *member_ = Json(std::forward<Value>(value));
  }

  void count(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMaxValueBytes) return;
    throw Error(
        ErrorKind::input,
        fmt::format("expected values that take at most {} GiB of memory, found more: about {} numbers",
                    kMaxValueBytes >> 30, kMaxValueBytes / kScalarBytes),
        place());
  }

  const std::string& file_;
  bool names_;
  Json root_;
  std::vector<Json*> open_;  ///< lists and objects, the innermost last
  Json* member_ = nullptr;   ///< value of the last key in the innermost object
  std::vector<Object> objects_;
  std::size_t bytes_ = 0;  ///< estimated memory of all values
};

[[noreturn]] void refuse_syntax(const Json::parse_error& error, std::string_view text,
                                const std::string& file) {
  // error.byte counts the bytes read, including the offending one.
  const std::string_view read = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const std::size_t column = read.size() - (read.rfind('\n') + 1) + 1;  // npos + 1 == 0: the first line
  const std::string what = error.what();
  const std::size_t place = what.find("column ");
  const std::size_t begin = place == std::string::npos ? std::string::npos : what.find(": ", place);
  const std::string message = begin == std::string::npos ? what : what.substr(begin + 2);
  throw Error(ErrorKind::input, "expected JSON, found a " + shorten(message, 300),
              fmt::format("{}:{}:{}", file, line, column));
}

[[noreturn]] void refuse_range(const Json::out_of_range& error, const std::string& place) {
  // The message is "[json.exception.out_of_range.406] number overflow parsing '1e999'"
  const std::string what = error.what();
  const std::size_t quote = what.find('\'');
  std::string number = what.substr(quote == std::string::npos ? 0 : quote + 1);
  if (!number.empty() && number.back() == '\'') number.pop_back();
  throw Error(ErrorKind::input,
              "expected a number within the range of a double, found " + shorten(number, kLongestQuote),
              place);
}

Json parse(std::string_view text, const std::string& file, bool names_keys = false) {
  StrictReader reader(file, names_keys);
  try {
    Json::sax_parse(text.begin(), text.end(), &reader);
    return reader.finish();
  } catch (const KeyTwice&) {
    return parse(text, file, true);  // throws with the key's name
  } catch (const Json::parse_error& error) {
    refuse_syntax(error, text, file);
  } catch (const Json::out_of_range& error) {
    refuse_range(error, reader.place());
  }
}

}  // namespace

void JsonValue::refuse(const std::string& message) const {
  throw Error(ErrorKind::input, message, path_.empty() ? *file_ : fmt::format("{}: key '{}'", *file_, path_));
}

void JsonValue::refuse_type(const std::string& expected) const {
  refuse(fmt::format("expected {}, found {}", expected, describe(*json_)));
}

void JsonValue::require_object() const {
  if (!json_->is_object()) refuse_type("an object");
}

void JsonValue::require_keys(const std::vector<std::string_view>& required,
                             const std::vector<std::string_view>& optional) const {
  require_object();
  const auto in = [](const auto& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (const auto& [key, value] : json_->items()) {
    if (in(required, key) || in(optional, key) || (path_.empty() && key == kMadeBy)) continue;
    std::vector<std::string_view> known(required);
    known.insert(known.end(), optional.begin(), optional.end());
    JsonValue(value, *file_, member_path(path_, key))
        .refuse(fmt::format("unknown key, expected one of {}", fmt::join(known, ", ")));
  }
  // Report missing keys after unknown ones: a misspelled key is both, and its own name helps most.
  for (const std::string_view key : required) at(key);
}

JsonValue JsonValue::at(std::string_view key) const {
  if (!json_->is_object()) refuse_type(fmt::format("an object with key '{}'", key));
  const auto it = json_->find(key);
  if (it == json_->end())
    JsonValue(*json_, *file_, member_path(path_, key)).refuse("expected this key, found none");
  return {*it, *file_, member_path(path_, key)};
}

bool JsonValue::has(std::string_view key) const {
  return json_->is_object() && json_->contains(key);
}

std::string JsonValue::text() const {
  return json_->dump();
}

bool JsonValue::is_object() const {
  return json_->is_object();
}

bool JsonValue::is_string() const {
  return json_->is_string();
}

bool JsonValue::is_array() const {
  return json_->is_array();
}

JsonValue JsonValue::element(std::size_t index) const {
  return {(*json_)[index], *file_, fmt::format("{}[{}]", path_, index)};
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  require_object();
  std::vector<std::pair<std::string, JsonValue>> values;
  values.reserve(json_->size());
  for (const auto& [key, value] : json_->items()) {
    values.emplace_back(key, JsonValue(value, *file_, member_path(path_, key)));
  }
  return values;
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!json_->is_array()) refuse_type("an array");
  std::vector<JsonValue> values;
  values.reserve(json_->size());
  for (std::size_t i = 0; i < json_->size(); ++i) values.push_back(element(i));
  return values;
}

std::vector<std::int64_t> JsonValue::integers(std::int64_t least, std::int64_t most) const {
  if (!json_->is_array()) refuse_type("an array");
  std::vector<std::int64_t> values;
  values.reserve(json_->size());
  for (const Json& item : *json_) {
    // Build a path only for a rejected item, because columns have millions.
    const auto number = whole_number(item);
    const bool fits = number && *number >= least && *number <= most;
    values.push_back(fits ? *number : element(values.size()).integer_in(least, most));
  }
  return values;
}

std::vector<double> JsonValue::numbers() const {
  std::vector<double> values;
  for (const JsonValue& item : elements()) values.push_back(item.number());
  return values;
}

std::vector<double> JsonValue::numbers(std::size_t size, double least, double most) const {
  const std::vector<JsonValue> items = elements();
  if (items.size() != size) refuse_type(fmt::format("{} numbers", size));
  std::vector<double> values;
  values.reserve(size);
  for (const JsonValue& item : items) values.push_back(item.number_in(least, most));
  return values;
}

std::int64_t JsonValue::integer_in(std::int64_t least, std::int64_t most) const {
  const auto value = whole_number(*json_);
  if (value && *value >= least && *value <= most) return *value;
  if (most == std::numeric_limits<int>::max() || most == std::numeric_limits<std::int64_t>::max()) {
    refuse_type(fmt::format("a whole number of at least {}", least));
  }
  refuse_type(fmt::format("a whole number from {} to {}", least, most));
}

std::uint64_t JsonValue::unsigned_integer() const {
  if (json_->is_number_unsigned()) return json_->get<std::uint64_t>();
  const auto value = whole_number(*json_);
  if (!value || *value < 0) refuse_type("a whole number of at least 0");
  return static_cast<std::uint64_t>(*value);
}

double JsonValue::number() const {
  if (!json_->is_number()) refuse_type("a number");
  return json_->get<double>();
}

double JsonValue::non_negative() const {
  if (!json_->is_number() || !(json_->get<double>() >= 0)) refuse_type("a number of at least 0");
  return json_->get<double>();
}

double JsonValue::number_in(double least, double most) const {
  if (!json_->is_number() || json_->get<double>() < least || json_->get<double>() > most) {
    refuse_type(fmt::format("a number from {} to {}", least, most));
  }
  return json_->get<double>();
}

const std::string& JsonValue::string() const {
  if (!json_->is_string()) refuse_type("a string");
  return json_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!json_->is_boolean()) refuse_type("true or false");
  return json_->get<bool>();
}

std::size_t JsonValue::choice_index(const std::vector<std::string_view>& names) const {
  const auto it = json_->is_string() ? std::find(names.begin(), names.end(), string()) : names.end();
  if (it == names.end()) refuse_type(fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<std::size_t>(it - names.begin());
}

JsonDocument::JsonDocument(std::string_view text, std::string file)
    : file_(std::move(file)), json_(std::make_unique<const Json>(parse(text, file_))) {}

JsonDocument::~JsonDocument() = default;

JsonValue JsonDocument::root() const {
  return {*json_, file_, ""};
}

JsonValue JsonDocument::root(std::string_view schema, int version) const {
  JsonValue root = this->root();
  const JsonValue found = root.at("schema");
  if (found.string() != schema) found.refuse_type(fmt::format("\"{}\"", schema));
  const auto found_version = root.at("version").integer<std::int64_t>(1);
  if (found_version > version) {
    root.at("version").refuse(fmt::format("written by a newer version: this one reads version {}, found {}",
                                          version, found_version));
  }
  return root;
}

}  // namespace dflop
