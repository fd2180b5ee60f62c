#include "traces/profiler/ranges.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "traces/text/csv.hpp"

namespace dflop {
namespace {

using Range = KinetoRangeKind;

constexpr std::string_view kPipelining = "PP:";
constexpr std::string_view kOurs = "dflop:";
constexpr std::int32_t kMax = (1 << 16) - 1;  // a stage of a Program has 16 bits
constexpr std::string_view kDigits = "0123456789";

constexpr std::array<std::pair<std::string_view, Range>, 9> kActions = {{{"F", Range::forward},
                                                                         {"B", Range::backward},
                                                                         {"I", Range::backward_input},
                                                                         {"W", Range::backward_weight},
                                                                         {"SEND_F", Range::send_forward},
                                                                         {"SEND_B", Range::send_backward},
                                                                         {"RECV_F", Range::receive_forward},
                                                                         {"RECV_B", Range::receive_backward},
                                                                         {"REDUCE_GRAD", Range::all_reduce}}};

std::optional<std::int32_t> number_of(std::string_view text, std::int32_t most) {
  std::int32_t number = -1;
  if (!parse_number(text, number) || number < 0 || number > most) return std::nullopt;
  return number;
}

/// A PipeliningName is "PP:" and the rest of the name, split into stage, action and microbatch.
struct PipeliningName {
  std::int32_t stage = 0;
  std::string_view action;
  std::optional<std::int32_t> microbatch;
};

std::optional<PipeliningName> split_pipelining(std::string_view name) {
  if (!name.starts_with(kPipelining)) return std::nullopt;
  name.remove_prefix(kPipelining.size());
  const std::size_t action = name.find_first_not_of(kDigits);
  if (action == 0 || action == std::string_view::npos) return std::nullopt;
  const auto stage = number_of(name.substr(0, action), kMax);
  const std::size_t microbatch = std::min(name.size(), name.find_last_not_of(kDigits) + 1);
  if (!stage) return std::nullopt;
  PipeliningName split{*stage, name.substr(action, microbatch - action), std::nullopt};
  if (microbatch == name.size()) return split;
  split.microbatch = number_of(name.substr(microbatch), INT32_MAX - 1);
  return split.microbatch ? std::optional(split) : std::nullopt;
}

/// Tells whether a range has all the data that its kind requires.
bool is_whole(const KinetoRange& range) {
  if (range.kind == Range::wait || range.kind == Range::optimizer_step) return true;
  if (range.stage < 0) return false;
  return is_reduction(range.kind) || range.microbatch >= 0;
}

std::optional<KinetoRange> parse_pipelining(std::string_view name) {
  const auto split = split_pipelining(name);
  if (!split) return std::nullopt;
  KinetoRange range;
  range.stage = split->stage;
  range.microbatch = split->microbatch.value_or(-1);
  if (split->action.starts_with("WAIT")) {
    range.kind = Range::wait;
    return range;
  }
  const auto known = std::ranges::find(kActions, split->action, &std::pair<std::string_view, Range>::first);
  if (known == kActions.end()) return std::nullopt;
  range.kind = known->second;
  if (!is_whole(range)) return std::nullopt;
  return range;
}

std::optional<KinetoRange> parse_ours(std::string_view name) {
  name.remove_prefix(kOurs.size());
  const auto word = [&] {
    const std::size_t end = std::min(name.size(), name.find(' '));
    const std::string_view first = name.substr(0, end);
    name.remove_prefix(std::min(name.size(), end + 1));
    return first;
  };
  KinetoRange range;
  const std::string_view kind = word();
  const std::optional<Range> known = from_string<Range>(kind);
  if (!known) return std::nullopt;
  range.kind = *known;
  std::set<std::string_view> keys;
  while (!name.empty()) {
    const std::string_view field = word();
    const std::size_t equals = field.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = field.substr(0, equals);
    const auto number = number_of(field.substr(equals + 1), key == "stage" ? kMax : INT32_MAX - 1);
    if (!number || !keys.insert(key).second) return std::nullopt;
    if (key == "stage") {
      range.stage = *number;
    } else if (key == "mb") {
      range.microbatch = *number;
    } else if (key == "peer") {
      range.peer = *number;
    } else if (key == "msg") {
      range.message = *number;
    } else {
      return std::nullopt;
    }
  }
  if (!is_whole(range)) return std::nullopt;
  return range;
}

}  // namespace

bool names_a_range(std::string_view name) {
  return name.starts_with(kPipelining) || name.starts_with(kOurs);
}

std::optional<KinetoRange> parse_range(std::string_view name) {
  return name.starts_with(kOurs) ? parse_ours(name) : parse_pipelining(name);
}

bool is_other_action(std::string_view name) {
  const auto split = split_pipelining(name);
  if (!split || split->action.starts_with("WAIT")) return false;
  return std::ranges::find(kActions, split->action, &std::pair<std::string_view, Range>::first) ==
         kActions.end();
}

}  // namespace dflop
