// A Timeline says what ran when. Simulated and live runs fill the same one.
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

/// A Span is one thing that a rank did. Spans of one stream of a rank do not overlap, except those of `send`
/// and `receive`, where several messages may be in flight.
struct Span {
  std::int32_t rank = 0;  ///< global; the first rank of its tp group, all of which do the same
  Stream stream = Stream::compute;
  Op op = Op::forward;
  std::uint16_t stage = 0;
  std::int32_t microbatch = -1;
  Nanoseconds start{0};
  Nanoseconds duration{0};     ///< of a send: until arrival; of a receive: how long the rank waited for it
  Bytes bytes;                 ///< moved; zero for compute
  std::int32_t message = -1;   ///< index of the message or collective, the same at all of its ends; else -1
  std::int32_t position = -1;  ///< of its instruction in the group's list; -1 where unknown
  std::int32_t work = -1;      ///< index into Timeline::works, of compute whose shape is known; else -1

  bool operator==(const Span&) const = default;
};

/// A RecordedCollective is what spans do not say of a recorded collective.
struct RecordedCollective {
  std::string operation;            ///< "allreduce"
  std::vector<std::int32_t> after;  ///< collectives at whose ends it begins, if not later

  bool operator==(const RecordedCollective&) const = default;
};

/// A MemoryPoint is the memory in use on each rank of a group from `time` on, beside the model state.
struct MemoryPoint {
  std::int32_t rank = 0;  ///< first rank of the group
  Nanoseconds time{0};
  Bytes activations;
  Bytes buffers;  ///< what an instruction holds only while it runs

  bool operator==(const MemoryPoint&) const = default;
};

/// GroupUsage says how one group spent the run: busy + bubble + wait = makespan.
struct GroupUsage {
  std::int32_t first_rank = 0;
  std::int32_t ranks = 1;
  std::int32_t stage = 0;
  std::int32_t dp_rank = 0;
  Nanoseconds busy{0};      ///< compute and optimizer
  Nanoseconds bubble{0};    ///< idle with nothing in flight towards it
  Nanoseconds wait{0};      ///< idle while an awaited message or collective is in flight
  Nanoseconds transfer{0};  ///< time its messages (sent or received) and collectives take; may overlap busy
  ModelState model_state;   ///< each rank; the part of the peak that is always there
  Bytes peak_memory;        ///< each rank: model state, activations and buffers at peak_time
  Nanoseconds peak_time{0};
  Bytes peak_activations;
  Bytes peak_buffers;
  Nanoseconds begin{0};  ///< where the group's own step before this one ended; 0: all begin together

  bool operator==(const GroupUsage&) const = default;
};

/// A Stall is a group that did not come to its end, and where it stands.
struct Stall {
  std::int32_t rank = 0;  ///< first rank of the group
  Op op = Op::forward;
  std::uint16_t stage = 0;
  std::int32_t microbatch = -1;
  Nanoseconds since{0};
  bool failed = false;             ///< else it waits for others
  std::int32_t awaited_rank = -1;  ///< the sender of the message that it waits for; -1 in a collective

  bool operator==(const Stall&) const = default;
};

struct Timeline {
  std::string source;       ///< "simulated", "recorded" by another program's profiler, or the device
  Nanoseconds makespan{0};  ///< of a run that stalled: when the last group or transfer stopped
  std::int32_t cores = 0;   ///< on which ranks took turns to compute; 0: unlimited or unknown
  std::int32_t hub = -1;  ///< first rank of the group that all between encoder and LLM went through; -1: none
  std::int32_t shared_gpus = 0;  ///< as Program::shared_gpus
  std::vector<GroupUsage> groups;
  std::vector<Span> spans;          ///< empty when only usage was asked for
  std::vector<MemoryPoint> memory;  ///< likewise
  std::vector<std::string> stages;  ///< names, as "encoder 0", "llm 1"
  std::vector<Stage> stage_shapes;  ///< per stage, as the program has them; empty where unknown
  std::vector<Work> works;          ///< what spans computed; empty where unknown or not asked for
  std::vector<Stall> stalls;        ///< empty: all groups came to their end
  std::vector<RecordedCollective> collectives = {};  ///< by number; empty where spans say all

  bool operator==(const Timeline&) const = default;
};

/// Returns the idle time (bubble + wait) as a fraction of the makespan, mean over ranks.
double idle_fraction(const Timeline& timeline);

/// Returns the memory that each GPU needs, by first GPU of its group and those that follow: the peak of its
/// rank, on shared GPUs the sum of both ranks' peaks, as nothing keeps these apart in time.
std::vector<Bytes> gpu_memory(const Timeline& timeline);

/// Returns the most that a GPU of a group needs, of what gpu_memory() returns.
Bytes most_of(const std::vector<Bytes>& memory, const Timeline& timeline, const GroupUsage& group);

/// Tells whether a timeline is of ranks that compute pieces of no stage and microbatch between collectives,
/// as steps of DDP and FSDP are read: it has no order and no plan that could be another one. Each set of
/// ranks that meet has a stream for its collectives.
bool has_pieces_alone(const Timeline& timeline);

/// Tells whether groups begin the step one after the other, as where some are still in the step before it.
/// The makespan is then from the last group's end of that to the last group's own.
bool begin_apart(const Timeline& timeline);

/// Makes the makespan as short as this, and usage no longer: the time until the last group ends, of which
/// groups may have spent a part in the step before.
void shorten_to(Nanoseconds makespan, Timeline& timeline);

/// Returns the largest memory of any GPU.
Bytes peak_memory(const Timeline& timeline);

/// Returns "encoder 0", "llm 0" for a disaggregated program, "stage 0" where stages hold both or the program
/// is uniform. The second stage of that kind on a rank is its chunk 1: "llm 0.1".
std::vector<std::string> stage_names(const Program& program);

}  // namespace dflop
