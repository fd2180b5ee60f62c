// A Timeline records what ran when. Simulated and live runs produce the same type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A Stream is one of the concurrent queues of a rank.
enum class Stream : std::uint8_t { compute, send, receive, collective };
inline constexpr int kStreams = 4;

template <>
inline constexpr NameTable<Stream, kStreams> kNames<Stream> = {{{Stream::compute, "compute"},
                                                                {Stream::send, "send"},
                                                                {Stream::receive, "receive"},
                                                                {Stream::collective, "collective"}}};

/// A Span is one activity of a rank. Spans of one stream of a rank do not overlap, with two exceptions: in
/// `send` and `receive`, several messages may be in flight; in `collective`, the program may have several
/// queues (Collective::queue).
struct Span {
  std::int32_t rank = 0;  ///< global; the first rank of its tp group, whose ranks all do the same
  Stream stream = Stream::compute;
  Op op = Op::forward;
  std::uint16_t stage = 0;
  std::int32_t microbatch = -1;
  Nanoseconds start{0};
  Nanoseconds duration{0};    ///< of a send: until arrival; of a receive: the rank's wait for the message
  Bytes bytes;                ///< bytes moved; zero for compute
  std::int32_t message = -1;  ///< index of the message or collective, the same at all of its ends; -1 if none
  std::int32_t position = -1;  ///< of its instruction in the group's list; -1 if unknown
  std::int32_t work = -1;      ///< index into Timeline::works, for compute of known shape; otherwise -1

  bool operator==(const Span&) const = default;
};

/// A RecordedCollective has details of a recorded collective that spans do not have.
struct RecordedCollective {
  std::string operation;            ///< "allreduce"
  std::vector<std::int32_t> after;  ///< collectives that must end before it begins

  bool operator==(const RecordedCollective&) const = default;
};

/// A MemoryPoint is the memory in use on each rank of a group from `time` on, without the model state.
struct MemoryPoint {
  std::int32_t rank = 0;  ///< first rank of the group
  Nanoseconds time{0};
  Bytes activations;
  Bytes buffers;  ///< memory that instructions hold only while they run

  bool operator==(const MemoryPoint&) const = default;
};

/// A GroupUsage says how one group spent the run: busy + bubble + wait = makespan.
struct GroupUsage {
  std::int32_t first_rank = 0;
  std::int32_t ranks = 1;
  std::int32_t stage = 0;
  std::int32_t dp_rank = 0;
  Nanoseconds busy{0};      ///< compute and optimizer
  Nanoseconds bubble{0};    ///< idle time while nothing is in flight toward the group
  Nanoseconds wait{0};      ///< idle time while an awaited message or collective is in flight
  Nanoseconds transfer{0};  ///< time of its messages (sent or received) and collectives; may overlap busy
  ModelState model_state;   ///< per rank; the permanent part of the peak
  Bytes peak_memory;        ///< per rank: model state, activations and buffers at peak_time
  Nanoseconds peak_time{0};
  Bytes peak_activations;
  Bytes peak_buffers;
  Nanoseconds begin{0};  ///< when the group begins this step, at the end of its own previous one; 0 in all
                         ///< groups if they begin together

  bool operator==(const GroupUsage&) const = default;
};

/// A Stall describes a group that did not finish, and where it stopped.
struct Stall {
  std::int32_t rank = 0;  ///< first rank of the group
  Op op = Op::forward;
  std::uint16_t stage = 0;
  std::int32_t microbatch = -1;
  Nanoseconds since{0};
  bool failed = false;             ///< the group failed; false: it waits for other groups
  std::int32_t awaited_rank = -1;  ///< sender of the message that it waits for; -1 in a collective

  bool operator==(const Stall&) const = default;
};

struct Timeline {
  std::string source;  ///< "simulated"; "recorded" if imported from another program's profiler; the device's
                       ///< name in a live run
  Nanoseconds makespan{0};  ///< if the run stalled: when the last group or transfer stopped
  std::int32_t cores = 0;   ///< number of cores that ranks shared for compute; 0: unlimited or unknown
  std::int32_t hub = -1;    ///< first rank of the group that forwarded messages between encoder and LLM; -1:
                            ///< none
  std::int32_t shared_gpus = 0;  ///< see Program::shared_gpus
  std::vector<GroupUsage> groups;
  std::vector<Span> spans;                           ///< empty if only usage was requested
  std::vector<MemoryPoint> memory;                   ///< empty if only usage was requested
  std::vector<std::string> stages;                   ///< names, such as "encoder 0", "llm 1"
  std::vector<Stage> stage_shapes;                   ///< per stage, from the program; empty if unknown
  std::vector<Work> works;                           ///< the work of spans; empty if unknown or not requested
  std::vector<Stall> stalls;                         ///< empty: all groups finished
  std::vector<RecordedCollective> collectives = {};  ///< by index; empty if spans have all details

  bool operator==(const Timeline&) const = default;
};

/// Returns the idle time (bubble + wait) as a fraction of the makespan, averaged over ranks.
double idle_fraction(const Timeline& timeline);

/// Returns the memory that each GPU needs, indexed by GPU: the peak of its rank or, on a shared GPU, the sum
/// of both ranks' peaks, because the peaks may coincide.
std::vector<Bytes> gpu_memory(const Timeline& timeline);

/// Returns the memory that the fullest of a group's GPUs needs. `memory` is the result of gpu_memory().
Bytes most_of(const std::vector<Bytes>& memory, const Timeline& timeline, const GroupUsage& group);

/// Returns whether a timeline has only pieces of compute between collectives, without stages and
/// microbatches, like a recorded DDP or FSDP step. Such a timeline has no pipeline order or plan that could
/// be varied. Each set of ranks that meet has its own queue for collectives (Collective::queue), so their
/// spans may overlap.
bool has_pieces_alone(const Timeline& timeline);

/// Returns whether groups begin the step at different times, because some are still in the previous step. The
/// makespan then goes from the last group's end of the previous step to the last group's end of this one.
bool begin_apart(const Timeline& timeline);

/// Sets the makespan to `makespan`, which is shorter if it counts from the end of the previous step. Limits
/// each group's busy, wait and transfer time and its peak_time to it; the rest is bubble. Spans and memory
/// stay unchanged.
void shorten_to(Nanoseconds makespan, Timeline& timeline);

/// Returns the largest memory of any GPU.
Bytes peak_memory(const Timeline& timeline);

/// Returns the name of each stage: "encoder 0" or "llm 0" if every stage holds layers of exactly one module,
/// otherwise "stage 0". The number counts the pipeline ranks that hold such stages. The second stage of one
/// kind on a rank is its chunk 1: "llm 0.1".
std::vector<std::string> stage_names(const Program& program);

}  // namespace dflop
