// This file reads the events of a PyTorch-profiler trace one by one, without holding the whole JSON document.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/units.hpp"

namespace dflop {

/// A KinetoCategory is an event's category ("cat"). Categories that dflop does not use are `other`.
enum class KinetoCategory : std::uint8_t {
  cpu_op,
  annotation,  ///< user_annotation
  runtime,     ///< cuda_runtime, cuda_driver
  kernel,
  copy,   ///< gpu_memcpy
  set,    ///< gpu_memset
  trace,  ///< the profiler's own span
  other,
};

/// A KinetoEvent is a complete event ("ph": "X"), or the instant "Record Window End". Missing fields are
/// empty. Times are as in the file, in nanoseconds.
struct KinetoEvent {
  std::size_t index = 0;  ///< in traceEvents
  KinetoCategory category = KinetoCategory::other;
  std::string name;
  Nanoseconds time{0};
  Nanoseconds duration{0};
  std::int64_t thread = 0;
  std::optional<std::int64_t> correlation;
  std::optional<std::int64_t> device;
  std::optional<std::int64_t> stream;
  std::optional<std::int64_t> bytes;
  std::optional<std::int64_t> autograd_sequence;  ///< "Sequence number"
  std::optional<std::int64_t> forward_thread;     ///< "Fwd thread id"; not 0 in a backward operation
  std::string collective;                         ///< "Collective name"
  std::string dtype;
  std::optional<std::int64_t> in_elements;
  std::optional<std::int64_t> out_elements;
  std::optional<std::int64_t> group_size;
  std::string group_name;
  std::vector<std::int32_t> group_ranks;  ///< empty if the file lists none or not all
  std::optional<std::int64_t> sequence;   ///< "Seq" of the process group
  std::optional<std::int64_t> source;     ///< "Src Rank", for a receive
  std::optional<std::int64_t> destination;
  std::vector<std::int64_t> input_elements;  ///< product of each shape of "Input Dims"
  std::vector<std::string> input_types;
  /// "Concrete Inputs"; long ones are left empty. For c10d::send and c10d::recv_ the third is the peer's rank
  /// in the process group and the fourth the tag.
  std::vector<std::string> concrete_inputs;
  /// Keys of texts that were damaged before the file's JSON was made strict (traces/text/loose_json.hpp) and
  /// whose use depends on the event's name: of an operation or annotation, "name" and the lists of inputs.
  std::vector<std::string_view> damaged;
};

/// A KinetoHeader holds the data of a file other than its events.
struct KinetoHeader {
  std::optional<std::int64_t> rank;  ///< distributedInfo.rank
  std::optional<std::int64_t> world_size;
  Nanoseconds base_time{0};  ///< baseTimeNanoseconds; 0 in old traces, whose times are absolute
  bool fractions = false;    ///< whether any time has decimals; if not, times are exact only to a microsecond
  /// For each process group: its global ranks, in the order of their ranks in the group
  /// (distributedInfo.pg_config).
  std::vector<std::vector<std::int32_t>> process_groups;
};

/// A KinetoSyntaxError says that a text is not JSON, and where.
class KinetoSyntaxError : public Error {
 public:
  using Error::Error;
};

/// Passes each event to `take`, in the order of the file. Keys that KinetoEvent does not hold may have any
/// value.
/// @param was_loose  whether tighten_json() has made the text strict: then damaged values of used keys are
/// errors
/// @throws Error (input) naming the event's index and name, and the key, for a complete event without ts, dur
/// or name, a negative duration, a number out of range, or a value of a wrong type in a used key; and for
/// text that has no traceEvents. KinetoSyntaxError for text that is not JSON.
KinetoHeader read_kineto_events(std::string_view json, const std::string& file, bool was_loose,
                                const std::function<void(const KinetoEvent&)>& take);

/// Rejects an event whose value under `key` was damaged. @throws Error (input)
[[noreturn]] void refuse_damaged(const std::string& file, const KinetoEvent& event, std::string_view key);

}  // namespace dflop
