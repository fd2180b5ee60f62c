#include "traces/profiler/events.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "traces/profiler/fields.hpp"

namespace dflop {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostBase = 4'000'000'000'000'000'000;  // as of times in events
constexpr std::int64_t kMostRanks = 1 << 20;

/// Follows the parser through the document: {header..., "traceEvents": [{event..., "args": {...}}, ...]}, or
/// the array of events alone. The callbacks are those of nlohmann's SAX interface; true means: go on.
class EventParser {
 public:
  EventParser(const std::string& file, const std::function<void(const KinetoEvent&)>& take)
      : file_(file), take_(take), fields_(file) {}

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
    } else if (level() == 1) {
      field_ = kineto_event_field(key);
      args_next_ = key == "args";
    } else if (level() == 2 && in_args_) {
      field_ = kineto_args_field(key);
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (in_events() && level() == 0) {
      fields_.clear(index_);
      field_ = KinetoField::none;
    } else if (in_events() && level() == 1 && args_next_) {
      in_args_ = true;
    } else if (in_events()) {
      if (direct()) fields_.set_other(field_);
      if (lists_ > 0) fields_.list_other();
    } else if (depth_ == 1) {
      refuse_header_value();
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
    throw Error(ErrorKind::input,
                fmt::format("expected JSON, found at byte {}: {}", position,
                            what.substr(id == std::string::npos ? 0 : id + 2, 300)),
                place);
  }

  KinetoHeader finish() {
    if (!seen_events_) {
      throw Error(ErrorKind::input, "expected a PyTorch-profiler trace with key 'traceEvents', found none",
                  file_);
    }
    header_.fractions = fields_.fractions();
    return header_;
  }

 private:
  bool in_events() const { return events_depth_ > 0; }
  int level() const { return depth_ - events_depth_; }
  /// Whether the next value belongs to the event itself or to its args, and not to something inside them.
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
      throw Error(ErrorKind::input, "expected an event, found no object",
                  fmt::format("{}: traceEvents[{}]", file_, index_));
    }
    if (lists_ > 0) fields_.list_other();
  }

  std::string header_name() const { return depth_ == 2 ? header_key_ + '.' + info_key_ : header_key_; }

  void header_whole(std::int64_t number) {
    const std::string name = depth_ <= 2 ? header_name() : "";
    const auto in = [&](std::int64_t least, std::int64_t most) {
      if (number >= least && number <= most) return number;
      throw Error(ErrorKind::input,
                  fmt::format("expected a whole number from {} to {}, found {}", least, most, number),
                  fmt::format("{}: key '{}'", file_, name));
    };
    if (name == "baseTimeNanoseconds") header_.base_time = Nanoseconds(in(0, kMostBase));
    if (name == "distributedInfo.rank") header_.rank = in(0, kMostRanks - 1);
    if (name == "distributedInfo.world_size") header_.world_size = in(1, kMostRanks);
    refuse_events_value(name);
  }

  bool header_other() {
    refuse_header_value();
    return true;
  }

  /// The value that begins is no whole number.
  void refuse_header_value() {
    if (depth_ > 2) return;
    const std::string name = header_name();
    if (name == "baseTimeNanoseconds" || name == "distributedInfo.rank" ||
        name == "distributedInfo.world_size") {
      throw Error(ErrorKind::input, "expected a whole number, found another type",
                  fmt::format("{}: key '{}'", file_, name));
    }
    refuse_events_value(name);
  }

  void refuse_events_value(const std::string& name) const {
    if (name != "traceEvents") return;
    throw Error(ErrorKind::input, "expected an array, found another type",
                fmt::format("{}: key '{}'", file_, name));
  }

  void finish_event() {
    if (fields_.is_used()) take_(fields_.finish());
    ++index_;
  }

  const std::string& file_;
  const std::function<void(const KinetoEvent&)>& take_;
  KinetoFields fields_;
  KinetoHeader header_;
  std::string header_key_;  ///< the last key of the root object
  std::string info_key_;    ///< the last key one level below
  int depth_ = 0;           ///< open objects and arrays
  int events_depth_ = 0;    ///< depth inside the array of events; 0 outside it
  int lists_ = 0;           ///< open arrays inside a field
  bool in_args_ = false;
  bool args_next_ = false;
  bool seen_events_ = false;
  KinetoField field_ = KinetoField::none;
  std::size_t index_ = 0;
};

}  // namespace

KinetoHeader read_kineto_events(std::string_view json, const std::string& file,
                                const std::function<void(const KinetoEvent&)>& take) {
  EventParser parser(file, take);
  Json::sax_parse(json.begin(), json.end(), &parser);
  return parser.finish();
}

}  // namespace dflop
