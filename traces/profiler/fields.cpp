#include "traces/profiler/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMostWhole = std::numeric_limits<std::int64_t>::max();
/// Absolute times until the year 2096; so low that a base and a time can be added.
constexpr std::int64_t kMostTime = 4'000'000'000'000'000'000;
constexpr std::int64_t kMostDuration = std::int64_t{1} << 50;  // 13 days
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::size_t kLongestQuote = 60;

using Field = KinetoField;

constexpr std::array<std::pair<std::string_view, Field>, 6> kEventKeys = {{
    {"ph", Field::ph},
    {"cat", Field::cat},
    {"name", Field::name},
    {"ts", Field::ts},
    {"dur", Field::dur},
    {"tid", Field::tid},
}};

constexpr std::array<std::pair<std::string_view, Field>, 18> kArgsKeys = {{
    {"correlation", Field::correlation},
    {"device", Field::device},
    {"stream", Field::stream},
    {"bytes", Field::bytes},
    {"Sequence number", Field::autograd_sequence},
    {"Fwd thread id", Field::forward_thread},
    {"Collective name", Field::collective},
    {"dtype", Field::dtype},
    {"In msg nelems", Field::in_elements},
    {"Out msg nelems", Field::out_elements},
    {"Group size", Field::group_size},
    {"Process Group Name", Field::group_name},
    {"Process Group Ranks", Field::group_ranks},
    {"Seq", Field::sequence},
    {"Src Rank", Field::source},
    {"Dst Rank", Field::destination},
    {"Input Dims", Field::input_dims},
    {"Input type", Field::input_types},
}};

template <typename Keys>
Field find(const Keys& keys, std::string_view key) {
  for (const auto& [name, field] : keys) {
    if (name == key) return field;
  }
  return Field::none;
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

/// The beginning of a text, not cut inside a UTF-8 character, whose later bytes are 10xxxxxx.
std::string quoted(const std::string& text, char quote) {
  std::size_t length = std::min(text.size(), kLongestQuote);
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return fmt::format("{}{}{}{}", quote, text.substr(0, length), length < text.size() ? "..." : "", quote);
}

/// Microseconds as decimal digits to whole nanoseconds, exactly; nothing for what is out of range.
std::optional<std::int64_t> nanoseconds_of(std::string_view digits) {
  const std::size_t dot = digits.find('.');
  if (dot == std::string_view::npos || digits.find_first_of("eE") != std::string_view::npos) {
    const double time = std::strtod(std::string(digits).c_str(), nullptr) * 1e3;
    if (!(std::abs(time) < 4e18)) return std::nullopt;
    return std::llround(time);
  }
  std::int64_t whole = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + dot, whole);
  constexpr std::int64_t most = kMostTime / 1000;
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

}  // namespace

KinetoField kineto_event_field(std::string_view key) {
  return find(kEventKeys, key);
}

KinetoField kineto_args_field(std::string_view key) {
  return find(kArgsKeys, key);
}

void KinetoFields::clear(std::size_t index) {
  for (Value& value : values_) value.type = Type::absent;
  event_.index = index;
  event_.group_ranks.clear();
  event_.input_elements.clear();
  event_.input_types.clear();
}

void KinetoFields::set_whole(KinetoField field, std::int64_t number) {
  if (field == Field::none) return;
  value(field).type = Type::whole;
  value(field).whole = number;
}

void KinetoFields::set_real(KinetoField field, std::string_view digits) {
  if (field == Field::none) return;
  value(field).type = Type::real;
  value(field).text = digits;
}

void KinetoFields::set_text(KinetoField field, const std::string& text) {
  if (field == Field::none) return;
  value(field).type = Type::text;
  value(field).text = text;
}

void KinetoFields::set_other(KinetoField field) {
  if (field != Field::none) value(field).type = Type::other;
}

void KinetoFields::begin_list(KinetoField field) {
  list_ = field;
  list_complete_ = true;
  elements_ = 1;
  innermost_ = false;
  set_other(field);
}

void KinetoFields::begin_inner_list() {
  elements_ = 1;
  innermost_ = true;
}

void KinetoFields::list_number(std::int64_t number) {
  if (list_ == Field::group_ranks && number >= 0 && number < kMostRanks) {
    event_.group_ranks.push_back(static_cast<std::int32_t>(number));
  } else if (list_ == Field::input_dims) {
    elements_ = number < 0 || number > kMostElements || (number > 0 && elements_ > kMostElements / number)
                    ? kMostElements
                    : elements_ * number;
  } else {
    list_complete_ = false;
  }
}

void KinetoFields::list_text(const std::string& text) {
  if (list_ == Field::input_types) {
    event_.input_types.push_back(text);
  } else {
    list_complete_ = false;
  }
}

void KinetoFields::list_other() {
  list_complete_ = false;
}

void KinetoFields::end_inner_list() {
  if (innermost_ && list_ == Field::input_dims) event_.input_elements.push_back(elements_);
  innermost_ = false;
}

bool KinetoFields::is_used() const {
  const Value& ph = value(Field::ph);
  if (ph.type != Type::text) refuse("ph", "a text", ph);
  if (ph.text == "X") return true;
  const Value& name = value(Field::name);
  return ph.text == "i" && name.type == Type::text && name.text == "Record Window End";
}

std::string KinetoFields::place() const {
  const std::string place = fmt::format("{}: traceEvents[{}]", file_, event_.index);
  const Value& name = value(Field::name);
  return name.type == Type::text ? place + ' ' + quoted(name.text, '\'') : place;
}

void KinetoFields::refuse(std::string_view key, const std::string& expected, const Value& found) const {
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
      what = quoted(found.text, '"');
      break;
    case Type::other:
      what = "another type";
  }
  throw Error(ErrorKind::input, fmt::format("expected {}, found {}", expected, what),
              fmt::format("{}: key '{}'", place(), key));
}

Nanoseconds KinetoFields::time(KinetoField field, std::string_view key, std::int64_t least,
                               std::int64_t most) {
  const Value& found = value(field);
  std::optional<std::int64_t> ns;
  if (found.type == Type::whole && std::abs(found.whole / 1000) <= kMostTime / 1'000'000) {
    ns = found.whole * 1000;
  } else if (found.type == Type::real) {
    ns = nanoseconds_of(found.text);
    fractions_ = fractions_ || (ns && *ns % 1000 != 0);
  }
  if (!ns || *ns < least || *ns > most) {
    refuse(key, least == 0 ? "microseconds of at least 0 and at most 13 days" : "microseconds", found);
  }
  return Nanoseconds(*ns);
}

std::optional<std::int64_t> KinetoFields::whole(KinetoField field, std::string_view key, std::int64_t least,
                                                std::int64_t most) const {
  const Value& found = value(field);
  if (found.type == Type::absent) return std::nullopt;
  if (found.type == Type::whole && found.whole >= least && found.whole <= most) return found.whole;
  refuse(key,
         most == kMostWhole ? "a whole number" : fmt::format("a whole number from {} to {}", least, most),
         found);
}

std::string KinetoFields::text(KinetoField field, std::string_view key) const {
  const Value& found = value(field);
  if (found.type == Type::absent) return "";
  if (found.type != Type::text) refuse(key, "a text", found);
  return found.text;
}

const KinetoEvent& KinetoFields::finish() {
  const bool complete = value(Field::ph).text == "X";
  if (value(Field::name).type == Type::absent) refuse("name", "a text", value(Field::name));
  event_.name = text(Field::name, "name");
  event_.category = complete ? category_of(text(Field::cat, "cat")) : KinetoCategory::trace;
  event_.time = time(Field::ts, "ts", -kMostTime, kMostTime);
  event_.duration = complete ? time(Field::dur, "dur", 0, kMostDuration) : Nanoseconds(0);
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
  if (value(Field::tid).type == Type::absent) refuse("tid", "a whole number", value(Field::tid));
  event_.thread = *whole(Field::tid, "tid", -kMostWhole, kMostWhole);
  event_.correlation = whole(Field::correlation, "args.correlation", -kMostWhole, kMostWhole);
  event_.autograd_sequence = whole(Field::autograd_sequence, "args.Sequence number", -kMostWhole, kMostWhole);
  event_.forward_thread = whole(Field::forward_thread, "args.Fwd thread id", -kMostWhole, kMostWhole);
  if (!list_complete_ || event_.input_elements.size() != event_.input_types.size()) {
    event_.input_elements.clear();  // lists of tensors and the like: their bytes stay unknown
    event_.input_types.clear();
  }
  return event_;
}

void KinetoFields::finish_device() {
  event_.correlation = whole(Field::correlation, "args.correlation", -kMostWhole, kMostWhole);
  event_.bytes = whole(Field::bytes, "args.bytes", 0, kMostElements);
  for (const auto& [field, key, to] : {std::tuple(Field::device, "args.device", &event_.device),
                                       std::tuple(Field::stream, "args.stream", &event_.stream)}) {
    if (value(field).type == Type::absent) refuse(key, "a whole number", value(field));
    *to = whole(field, key, -kMostWhole, kMostWhole);
  }
  finish_collective();
}

void KinetoFields::finish_collective() {
  event_.collective = text(Field::collective, "args.Collective name");
  event_.dtype = text(Field::dtype, "args.dtype");
  event_.in_elements = whole(Field::in_elements, "args.In msg nelems", 0, kMostElements);
  event_.out_elements = whole(Field::out_elements, "args.Out msg nelems", 0, kMostElements);
  event_.group_size = whole(Field::group_size, "args.Group size", 0, kMostRanks);
  event_.group_name = text(Field::group_name, "args.Process Group Name");
  event_.sequence = whole(Field::sequence, "args.Seq", -kMostWhole, kMostWhole);
  event_.source = whole(Field::source, "args.Src Rank", 0, kMostRanks);
  event_.destination = whole(Field::destination, "args.Dst Rank", 0, kMostRanks);
  read_group_ranks();
}

void KinetoFields::read_group_ranks() {
  const Value& found = value(Field::group_ranks);
  if (found.type == Type::absent) return;
  if (found.type == Type::text) {  // "[0, 1, 2]", as PyTorch writes it
    const std::string& list = found.text;
    for (std::size_t at = 0; (at = list.find_first_of("0123456789", at)) != std::string::npos;) {
      std::int32_t rank = 0;
      const auto [end, problem] = std::from_chars(list.data() + at, list.data() + list.size(), rank);
      if (problem != std::errc() || rank >= kMostRanks) refuse("args.Process Group Ranks", "ranks", found);
      event_.group_ranks.push_back(rank);
      at = static_cast<std::size_t>(end - list.data());
    }
  } else if (found.type != Type::other || !list_complete_) {
    refuse("args.Process Group Ranks", "a list of ranks", found);
  }
  // Long lists are cut ("[0, 1, ...]"): such a group is known by its name only.
  const auto size = static_cast<std::int64_t>(event_.group_ranks.size());
  if (event_.group_size && *event_.group_size != size) event_.group_ranks.clear();
  std::sort(event_.group_ranks.begin(), event_.group_ranks.end());
}

}  // namespace dflop
