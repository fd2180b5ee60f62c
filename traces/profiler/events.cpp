#include "traces/profiler/events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/refuse.hpp"
#include "traces/text/loose_json.hpp"

namespace dflop {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxWhole = std::numeric_limits<std::int64_t>::max();
/// Absolute times go up to the year 2096, low enough that a base and a time can be added.
constexpr std::int64_t kMaxTime = 4'000'000'000'000'000'000;
constexpr std::int64_t kMaxDuration = std::int64_t{1} << 50;  // 13 days
constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;
constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr std::size_t kLongestQuote = 60;
constexpr std::size_t kLongestInput =
    15;  // ranks and tags are shorter; such texts need no memory of their own

/// A Field is a field of an event or of its "args", in the order of kKeys.
enum class Field : std::uint8_t {
  ph,
  cat,
  name,
  ts,
  dur,
  pid,
  tid,
  correlation,
  device,
  stream,
  bytes,
  autograd_sequence,
  forward_thread,
  collective,
  dtype,
  in_elements,
  out_elements,
  group_size,
  group_name,
  group_ranks,
  sequence,
  source,
  destination,
  input_dims,
  input_types,
  concrete_inputs,
  none,
};
constexpr std::size_t kFields = static_cast<std::size_t>(Field::none);
constexpr std::size_t kEventFields = static_cast<std::size_t>(Field::correlation);

constexpr std::array<std::string_view, kFields> kKeys = {"ph",
                                                         "cat",
                                                         "name",
                                                         "ts",
                                                         "dur",
                                                         "pid",
                                                         "tid",
                                                         "correlation",
                                                         "device",
                                                         "stream",
                                                         "bytes",
                                                         "Sequence number",
                                                         "Fwd thread id",
                                                         "Collective name",
                                                         "dtype",
                                                         "In msg nelems",
                                                         "Out msg nelems",
                                                         "Group size",
                                                         "Process Group Name",
                                                         "Process Group Ranks",
                                                         "Seq",
                                                         "Src Rank",
                                                         "Dst Rank",
                                                         "Input Dims",
                                                         "Input type",
                                                         "Concrete Inputs"};

/// Finds the field for a key, of an event or of its "args".
Field find(std::string_view key, bool in_args) {
  const auto args = kKeys.begin() + kEventFields;
  const auto end = in_args ? kKeys.end() : args;
  const auto found = std::find(in_args ? args : kKeys.begin(), end, key);
  return found == end ? Field::none : static_cast<Field>(found - kKeys.begin());
}

/// Returns the key of a field in the form used in errors: "ts", "args.stream".
std::string key_of(Field field) {
  const auto index = static_cast<std::size_t>(field);
  return fmt::format("{}{}", index < kEventFields ? "" : "args.", kKeys[index]);
}

KinetoCategory category_of(std::string_view name) {
  if (name == "cpu_op") return KinetoCategory::cpu_op;
  if (name == "user_annotation") return KinetoCategory::annotation;
  if (name == "cuda_runtime" || name == "cuda_driver") return KinetoCategory::runtime;
  if (name == "kernel") return KinetoCategory::kernel;
  if (name == "gpu_memcpy") return KinetoCategory::copy;
  if (name == "gpu_memset") return KinetoCategory::set;
  if (name == "Trace") return KinetoCategory::trace;
  return KinetoCategory::other;
}

/// Returns the beginning of a text in quotes, without cutting inside a UTF-8 character, whose later bytes are
/// 10xxxxxx.
std::string quoted(const std::string& text, char quote) {
  std::size_t length = std::min(text.size(), kLongestQuote);
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return fmt::format("{}{}{}{}", quote, text.substr(0, length), length < text.size() ? "..." : "", quote);
}

/// Converts microseconds in decimal digits to nanoseconds, exactly; nothing if out of range.
std::optional<std::int64_t> nanoseconds_of(std::string_view digits) {
  const std::size_t dot = digits.find('.');
  if (dot == std::string_view::npos || digits.find_first_of("eE") != std::string_view::npos) {
    const double time = std::strtod(std::string(digits).c_str(), nullptr) * 1e3;
    if (!(std::abs(time) < 4e18)) return std::nullopt;
    return std::llround(time);
  }
  std::int64_t whole = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + dot, whole);
  constexpr std::int64_t most = kMaxTime / 1000;
  if (problem != std::errc() || end != digits.data() + dot || whole < -most || whole > most) {
    return std::nullopt;
  }
  std::int64_t fraction = 0;
  for (std::size_t i = 1; i <= 3; ++i) {
    fraction = fraction * 10 + (dot + i < digits.size() ? digits[dot + i] - '0' : 0);
  }
  if (dot + 4 < digits.size() && digits[dot + 4] >= '5') ++fraction;
  return whole * 1000 + (digits.front() == '-' ? -fraction : fraction);
}

/// Returns a name as errors show it, with '?' for each damaged byte.
std::string shown(std::string name) {
  std::replace(name.begin(), name.end(), kDamaged, '?');
  return name;
}

/// Describes a value that was not strict JSON.
std::string damage(std::string_view text) {
  return text.size() == 1 ? "NaN, an infinity or a control character"
                          : "control characters, plain backslashes or bytes that are not UTF-8";
}

/// An EventFields collects the fields of one event, in any order, and checks them when it is complete. One
/// object serves all events of a file, so that its memory is reused.
class EventFields {
 public:
  EventFields(const std::string& file, bool was_loose) : file_(file), was_loose_(was_loose) {}

  void clear(std::size_t index) {
    for (Value& value : values_) value.type = Type::absent;
    event_.index = index;
    event_.group_ranks.clear();
    event_.input_elements.clear();
    event_.input_types.clear();
    event_.concrete_inputs.clear();
    event_.damaged.clear();
  }

  void set_whole(Field field, std::int64_t number) {
    if (field == Field::none) return;
    value(field).type = Type::whole;
    value(field).whole = number;
  }

  /// Takes a number; `digits` is its text in the file, because a double would lose nanoseconds of absolute
  /// times.
  void set_real(Field field, std::string_view digits) {
    if (field == Field::none) return;
    value(field).type = Type::real;
    value(field).text = digits;
  }

  void set_text(Field field, const std::string& text) {
    if (field == Field::none) return;
    value(field).type = Type::text;
    value(field).text = text;
  }

  /// Takes a value that is neither number nor text.
  void set_other(Field field) {
    if (field != Field::none) value(field).type = Type::other;
  }

  /// These take arrays; only four fields have them.
  void begin_list(Field field) {
    list_ = field;
    list_complete_ = true;
    elements_ = 1;
    innermost_ = false;
    set_other(field);
  }

  void begin_inner_list() {
    elements_ = 1;
    innermost_ = true;
  }

  void list_number(std::int64_t number) {
    if (list_ == Field::group_ranks && number >= 0 && number < kMaxRanks) {
      event_.group_ranks.push_back(static_cast<std::int32_t>(number));
    } else if (list_ == Field::input_dims) {
      elements_ = number < 0 || number > kMaxElements || (number > 0 && elements_ > kMaxElements / number)
                      ? kMaxElements
                      : elements_ * number;
    } else {
      list_complete_ = false;
    }
  }

  void list_text(const std::string& text) {
    if (was_loose_ && list_ != Field::none && dflop::is_damaged(text))
      event_.damaged.push_back(kKeys[static_cast<std::size_t>(list_)]);
    if (list_ == Field::input_types) {
      event_.input_types.push_back(text);
    } else if (list_ == Field::concrete_inputs) {
      event_.concrete_inputs.push_back(text.size() <= kLongestInput ? text : std::string());
    } else {
      list_complete_ = false;
    }
  }

  void list_other() { list_complete_ = false; }

  void end_inner_list() {
    if (innermost_ && list_ == Field::input_dims) event_.input_elements.push_back(elements_);
    innermost_ = false;
  }

  /// Tells whether the event is used: it is complete, or the instant that ends the record.
  bool is_used() const {
    const Value& ph = value(Field::ph);
    if (ph.type != Type::text) refuse(Field::ph, "a text");
    if (ph.text == "X") return true;
    const Value& name = value(Field::name);
    return ph.text == "i" && name.type == Type::text && name.text == "Record Window End";
  }

  /// Returns the event. @throws Error (input) as read_kineto_events().
  const KinetoEvent& finish() {
    const bool complete = value(Field::ph).text == "X";
    if (value(Field::name).type == Type::absent) refuse(Field::name, "a text");
    event_.category = complete ? category_of(text(Field::cat)) : KinetoCategory::trace;
    read_name();
    event_.time = time(Field::ts, -kMaxTime, kMaxTime);
    event_.duration = complete ? time(Field::dur, 0, kMaxDuration) : Nanoseconds(0);
    switch (event_.category) {
      case KinetoCategory::trace:
      case KinetoCategory::other:
        return event_;
      case KinetoCategory::kernel:
      case KinetoCategory::copy:
      case KinetoCategory::set:
        finish_device();
        return event_;
      case KinetoCategory::runtime:
      case KinetoCategory::cpu_op:
      case KinetoCategory::annotation:
        break;
    }
    event_.thread = present(Field::tid);
    event_.correlation = whole(Field::correlation);
    event_.autograd_sequence = whole(Field::autograd_sequence);
    event_.forward_thread = whole(Field::forward_thread);
    if (!list_complete_ || event_.input_elements.size() != event_.input_types.size()) {
      event_.input_elements.clear();  // lists of tensors and the like: their bytes stay unknown
      event_.input_types.clear();
    }
    return event_;
  }

  /// Tells whether any time so far has decimals.
  bool fractions() const { return fractions_; }

  /// Returns "file: traceEvents[3] 'name'".
  std::string place() const {
    const std::string place = fmt::format("{}: traceEvents[{}]", file_, event_.index);
    const Value& name = value(Field::name);
    return name.type == Type::text ? place + ' ' + quoted(shown(name.text), '\'') : place;
  }

 private:
  enum class Type : std::uint8_t { absent, whole, real, text, other };
  struct Value {
    Type type = Type::absent;
    std::int64_t whole = 0;
    std::string text;  ///< the text, or the digits of a real number
  };

  const Value& value(Field field) const { return values_[static_cast<std::size_t>(field)]; }
  Value& value(Field field) { return values_[static_cast<std::size_t>(field)]; }

  [[noreturn]] void refuse(Field field, const std::string& expected) const {
    const Value& found = value(field);
    std::string what;
    switch (found.type) {
      case Type::absent:
        what = "none";
        break;
      case Type::whole:
        what = std::to_string(found.whole);
        break;
      case Type::real:
        what = found.text;
        break;
      case Type::text:
        what = is_damaged(field) ? damage(found.text) : quoted(found.text, '"');
        break;
      case Type::other:
        what = "another type";
    }
    refuse_key(place(), key_of(field), "expected {}, found {}", expected, what);
  }

  bool is_damaged(Field field) const {
    return was_loose_ && value(field).type == Type::text && dflop::is_damaged(value(field).text);
  }

  /// Reads the name, which is used for kernels, copies and calls. For an operation or an annotation, the
  /// caller decides; other events have any name.
  void read_name() {
    if (!is_damaged(Field::name)) {
      event_.name = text(Field::name);
      return;
    }
    event_.name = value(Field::name).text;
    switch (event_.category) {
      case KinetoCategory::kernel:
      case KinetoCategory::copy:
      case KinetoCategory::set:
      case KinetoCategory::runtime:
        refuse(Field::name, "a text");
      case KinetoCategory::cpu_op:
      case KinetoCategory::annotation:
        event_.damaged.push_back(kKeys[static_cast<std::size_t>(Field::name)]);
        break;
      case KinetoCategory::trace:
      case KinetoCategory::other:
        break;
    }
  }

  Nanoseconds time(Field field, std::int64_t least, std::int64_t most) {
    const Value& found = value(field);
    std::optional<std::int64_t> ns;
    if (found.type == Type::whole && std::abs(found.whole / 1000) <= kMaxTime / 1'000'000) {
      ns = found.whole * 1000;
    } else if (found.type == Type::real) {
      ns = nanoseconds_of(found.text);
      fractions_ = fractions_ || (ns && *ns % 1000 != 0);
    }
    if (!ns || *ns < least || *ns > most) {
      refuse(field, least == 0 ? "microseconds of at least 0 and at most 13 days" : "microseconds");
    }
    return Nanoseconds(*ns);
  }

  /// Returns a whole number; nothing if the field is absent.
  std::optional<std::int64_t> whole(Field field, std::int64_t least = -kMaxWhole,
                                    std::int64_t most = kMaxWhole) const {
    const Value& found = value(field);
    if (found.type == Type::absent) return std::nullopt;
    if (found.type == Type::whole && found.whole >= least && found.whole <= most) return found.whole;
    refuse(field,
           most == kMaxWhole ? "a whole number" : fmt::format("a whole number from {} to {}", least, most));
  }

  /// Returns the whole number in a required field. If the field is absent, a whole number in `other`, which
  /// PyTorch gives the same value, takes its place.
  std::int64_t present(Field field, Field other = Field::none) const {
    std::optional<std::int64_t> number = whole(field);
    if (!number && other != Field::none && value(other).type == Type::whole) number = value(other).whole;
    if (!number) refuse(field, "a whole number");
    return *number;
  }

  std::string text(Field field) const {
    const Value& found = value(field);
    if (found.type == Type::absent) return "";
    if (found.type != Type::text || is_damaged(field)) refuse(field, "a text");
    return found.text;
  }

  void finish_device() {
    event_.correlation = whole(Field::correlation);
    event_.bytes = whole(Field::bytes, 0, kMaxElements);
    event_.device = present(Field::device, Field::pid);
    event_.stream = present(Field::stream, Field::tid);
    finish_collective();
  }

  void finish_collective() {
    event_.collective = text(Field::collective);
    event_.dtype = text(Field::dtype);
    event_.in_elements = whole(Field::in_elements, 0, kMaxElements);
    event_.out_elements = whole(Field::out_elements, 0, kMaxElements);
    event_.group_size = whole(Field::group_size, 0, kMaxRanks);
    event_.group_name = text(Field::group_name);
    event_.sequence = whole(Field::sequence);
    event_.source = whole(Field::source, 0, kMaxRanks);
    event_.destination = whole(Field::destination, 0, kMaxRanks);
    read_group_ranks();
  }

  void read_group_ranks() {
    const Value& found = value(Field::group_ranks);
    if (found.type == Type::absent) return;
    if (is_damaged(Field::group_ranks)) refuse(Field::group_ranks, "ranks");
    if (found.type == Type::text) {  // PyTorch writes it as "[0, 1, 2]"
      const std::string& list = found.text;
      for (std::size_t at = 0; (at = list.find_first_of("0123456789", at)) != std::string::npos;) {
        std::int32_t rank = 0;
        const auto [end, problem] = std::from_chars(list.data() + at, list.data() + list.size(), rank);
        if (problem != std::errc() || rank >= kMaxRanks) refuse(Field::group_ranks, "ranks");
        event_.group_ranks.push_back(rank);
        at = static_cast<std::size_t>(end - list.data());
      }
    } else if (found.type != Type::other || !list_complete_) {
      refuse(Field::group_ranks, "a list of ranks");
    }
    // Long lists are truncated ("[0, 1, ...]"); such a group is known only by its name.
    const auto size = static_cast<std::int64_t>(event_.group_ranks.size());
    if (event_.group_size && *event_.group_size != size) event_.group_ranks.clear();
    std::sort(event_.group_ranks.begin(), event_.group_ranks.end());
  }

  const std::string& file_;
  bool was_loose_;
  std::array<Value, kFields> values_;
  KinetoEvent event_;
  Field list_ = Field::none;
  bool list_complete_ = true;  ///< all items were of the expected type
  bool innermost_ = false;     ///< the list that ends next holds numbers, not lists
  std::int64_t elements_ = 1;  ///< product of the innermost list
  bool fractions_ = false;
};

/// An EventParser follows the parser through the document: {header..., "traceEvents": [{event..., "args":
/// {...}}, ...]}, or only the array of events. Its callbacks implement nlohmann's SAX interface; returning
/// true means to continue.
class EventParser {
 public:
  EventParser(const std::string& file, bool was_loose, const std::function<void(const KinetoEvent&)>& take)
      : file_(file), take_(take), fields_(file, was_loose) {}

  bool null() { return other(); }
  bool boolean(bool) { return other(); }
  bool binary(Json::binary_t&) { return other(); }
  bool number_integer(std::int64_t number) { return whole(number); }

  bool number_unsigned(std::uint64_t number) {
    if (number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return whole(static_cast<std::int64_t>(number));
    }
    return number_float(0, std::to_string(number));
  }

  bool number_float(double, const std::string& digits) {
    if (!in_events()) return header_other();
    if (direct()) {
      fields_.set_real(field_, digits);
    } else {
      nested_other();
    }
    return true;
  }

  bool string(std::string& text) {
    if (!in_events()) return header_other();
    if (direct()) {
      fields_.set_text(field_, text);
    } else if (lists_ > 0) {
      fields_.list_text(text);
    } else {
      nested_other();
    }
    return true;
  }

  bool key(std::string& key) {
    if (!in_events()) {
      if (depth_ == 1) header_key_ = key;
      if (depth_ == 2) info_key_ = key;
      if (depth_ == 4) group_key_ = key;
    } else if (level() == 1) {
      field_ = find(key, false);
      args_next_ = key == "args";
    } else if (level() == 2 && in_args_) {
      field_ = find(key, true);
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (in_events() && level() == 0) {
      fields_.clear(index_);
      field_ = Field::none;
    } else if (in_events() && level() == 1 && args_next_) {
      in_args_ = true;
    } else if (in_events()) {
      if (direct()) fields_.set_other(field_);
      if (lists_ > 0) fields_.list_other();
    } else if (depth_ == 1) {
      refuse_header_value();
    } else if (depth_ == 3 && in_process_groups()) {
      header_.process_groups.emplace_back();
    }
    ++depth_;
    return true;
  }

  bool end_object() {
    --depth_;
    if (!in_events()) return true;
    if (level() == 1) in_args_ = false;
    if (level() == 0) finish_event();
    return true;
  }

  bool start_array(std::size_t) {
    if (!in_events()) {
      if (depth_ == 0 || (depth_ == 1 && header_key_ == "traceEvents")) {
        events_depth_ = depth_ + 1;
        seen_events_ = true;
      } else {
        header_other();
      }
    } else if (direct()) {
      fields_.begin_list(field_);
      lists_ = 1;
    } else if (lists_ > 0) {
      ++lists_;
      fields_.begin_inner_list();
    } else {
      nested_other();
    }
    ++depth_;
    return true;
  }

  bool end_array() {
    if (in_events() && depth_ == events_depth_) events_depth_ = 0;
    if (lists_ > 1) fields_.end_inner_list();
    if (lists_ > 0) --lists_;
    --depth_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    const std::string what = error.what();
    const std::size_t id = what.find("] ");
    const std::string place = in_events() ? fmt::format("{}: traceEvents[{}]", file_, index_) : file_;
    throw KinetoSyntaxError(ErrorKind::input,
                            fmt::format("expected JSON, found at byte {}: {}", position,
                                        what.substr(id == std::string::npos ? 0 : id + 2, 300)),
                            place);
  }

  KinetoHeader finish() {
    if (!seen_events_) {
      refuse_input(file_, "expected a PyTorch-profiler trace with key 'traceEvents', found none");
    }
    header_.fractions = fields_.fractions();
    return header_;
  }

 private:
  bool in_events() const { return events_depth_ > 0; }
  int level() const { return depth_ - events_depth_; }
  /// Tells whether the next value belongs directly to the event or to its args, and not to something nested
  /// in them.
  bool direct() const { return level() == 1 || (level() == 2 && in_args_); }

  bool whole(std::int64_t number) {
    if (!in_events()) {
      header_whole(number);
    } else if (direct()) {
      fields_.set_whole(field_, number);
    } else if (lists_ > 0) {
      fields_.list_number(number);
    } else {
      nested_other();
    }
    return true;
  }

  bool other() {
    if (!in_events()) return header_other();
    if (direct()) {
      fields_.set_other(field_);
    } else {
      nested_other();
    }
    return true;
  }

  void nested_other() {
    if (level() == 0) {
      refuse_input(fmt::format("{}: traceEvents[{}]", file_, index_), "expected an event, found no object");
    }
    if (lists_ > 0) fields_.list_other();
  }

  bool in_process_groups() const { return header_key_ == "distributedInfo" && info_key_ == "pg_config"; }
  std::string header_name() const { return depth_ == 2 ? header_key_ + '.' + info_key_ : header_key_; }

  void header_whole(std::int64_t number) {
    if (depth_ == 5 && in_process_groups() && group_key_ == "ranks" && !header_.process_groups.empty()) {
      if (number < 0 || number >= kMaxRanks) {
        refuse_key(file_, "distributedInfo.pg_config.ranks", "expected ranks from 0 to {}, found {}",
                   kMaxRanks - 1, number);
      }
      header_.process_groups.back().push_back(static_cast<std::int32_t>(number));
      return;
    }
    const std::string name = depth_ <= 2 ? header_name() : "";
    const auto in = [&](std::int64_t least, std::int64_t most) {
      if (number >= least && number <= most) return number;
      refuse_key(file_, name, "expected a whole number from {} to {}, found {}", least, most, number);
    };
    if (name == "baseTimeNanoseconds") header_.base_time = Nanoseconds(in(0, kMaxTime));
    if (name == "distributedInfo.rank") header_.rank = in(0, kMaxRanks - 1);
    if (name == "distributedInfo.world_size") header_.world_size = in(1, kMaxRanks);
    refuse_events_value(name);
  }

  bool header_other() {
    refuse_header_value();
    return true;
  }

  /// Rejects a value of the header that is not a whole number.
  void refuse_header_value() {
    if (depth_ > 2) return;
    const std::string name = header_name();
    if (name == "baseTimeNanoseconds" || name == "distributedInfo.rank" ||
        name == "distributedInfo.world_size") {
      refuse_key(file_, name, "expected a whole number, found another type");
    }
    refuse_events_value(name);
  }

  void refuse_events_value(const std::string& name) const {
    if (name != "traceEvents") return;
    refuse_key(file_, name, "expected an array, found another type");
  }

  void finish_event() {
    if (fields_.is_used()) take_(fields_.finish());
    ++index_;
  }

  const std::string& file_;
  const std::function<void(const KinetoEvent&)>& take_;
  EventFields fields_;
  KinetoHeader header_;
  std::string header_key_;  ///< the last key of the root object
  std::string info_key_;    ///< the last key one level below
  std::string group_key_;   ///< the last key of a process group
  int depth_ = 0;           ///< open objects and arrays
  int events_depth_ = 0;    ///< depth inside the array of events; 0 outside it
  int lists_ = 0;           ///< open arrays inside a field
  bool in_args_ = false;
  bool args_next_ = false;
  bool seen_events_ = false;
  Field field_ = Field::none;
  std::size_t index_ = 0;
};

}  // namespace

KinetoHeader read_kineto_events(std::string_view json, const std::string& file, bool was_loose,
                                const std::function<void(const KinetoEvent&)>& take) {
  EventParser parser(file, was_loose, take);
  Json::sax_parse(json.begin(), json.end(), &parser);
  return parser.finish();
}

void refuse_damaged(const std::string& file, const KinetoEvent& event, std::string_view key) {
  const bool is_name = key == kKeys[static_cast<std::size_t>(Field::name)];
  refuse_key(fmt::format("{}: traceEvents[{}] {}", file, event.index, quoted(shown(event.name), '\'')),
             fmt::format("{}{}", is_name ? "" : "args.", key), "expected a text, found {}",
             damage(event.name + kDamaged));
}

}  // namespace dflop
