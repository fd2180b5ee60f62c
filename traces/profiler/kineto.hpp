// This file reads PyTorch-profiler (Kineto) traces: what one rank's GPU did, and where on the host each
// activity was launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"
#include "core/units.hpp"
#include "traces/profiler/ranges.hpp"

namespace dflop {

/// A KinetoPhase is the part of a training step that a kernel belongs to, determined from its launch;
/// docs/replay.md explains how.
enum class KinetoPhase : std::uint8_t { forward, backward, optimizer, other };

template <>
inline constexpr NameTable<KinetoPhase, 4> kNames<KinetoPhase> = {{{KinetoPhase::forward, "forward"},
                                                                   {KinetoPhase::backward, "backward"},
                                                                   {KinetoPhase::optimizer, "optimizer"},
                                                                   {KinetoPhase::other, "other"}}};

/// A KinetoWork is the kind of a device activity.
enum class KinetoWork : std::uint8_t {
  compute,        ///< kernels
  communication,  ///< kernels of NCCL and of DeepEP
  copy,           ///< memcpy and memset
};

/// A KinetoStep is the annotation ProfilerStep#N on the host.
struct KinetoStep {
  std::int64_t number = 0;
  Nanoseconds start{0};
  Nanoseconds duration{0};
  std::size_t event = 0;  ///< index in traceEvents
};

/// A KinetoLaunch is a call of the CUDA runtime or driver that has a correlation.
struct KinetoLaunch {
  std::int64_t correlation = 0;
  std::int64_t thread = 0;
  Nanoseconds start{0};
  Nanoseconds end{0};
  std::int32_t name = 0;     ///< index into KinetoTrace::names
  bool starts_work = false;  ///< judged by its name: launch, memcpy or memset
  bool waits = false;        ///< judged by its name: the host continues only when the device is done
  bool has_work = false;     ///< the trace has a device activity with this correlation
  std::size_t event = 0;
};

/// A KinetoActivity is a kernel, copy or memset on the device.
struct KinetoActivity {
  std::int64_t device = 0;
  std::int64_t stream = 0;
  std::int32_t name = 0;  ///< index into KinetoTrace::names
  KinetoWork work = KinetoWork::compute;
  KinetoPhase phase = KinetoPhase::other;
  /// Index into KinetoTrace::steps: the step of its launch, or without a launch, the step in which it starts.
  std::int32_t step = -1;
  std::int32_t collective = -1;  ///< index into KinetoTrace::collectives
  std::int32_t launch = -1;      ///< index into KinetoTrace::launches
  Nanoseconds start{0};
  Nanoseconds duration{0};
  Bytes bytes;  ///< copies and memsets only
  std::size_t event = 0;

  Nanoseconds end() const { return start + duration; }
};

/// A KinetoCollective describes the collective or message of a communication kernel. Values that the trace
/// lacks are empty.
struct KinetoCollective {
  std::size_t activity = 0;  ///< index into KinetoTrace::activities
  std::string name;          ///< PyTorch's name ("allreduce", "send"), else from the kernel's name
  std::string dtype;
  std::optional<Bytes> in;
  std::optional<Bytes> out;
  std::string group;                ///< process group name
  std::int64_t group_size = 0;      ///< 0: unknown
  std::vector<std::int32_t> ranks;  ///< the group's ranks, ascending; empty: unknown
  std::optional<std::int64_t> sequence;
  std::optional<std::int64_t> source;  ///< global rank, for a receive and a send
  std::optional<std::int64_t> destination;

  /// Returns the size of the operation: the larger of input and output, as NCCL's tests count it
  /// (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
  std::optional<Bytes> bytes() const;
};

/// A KinetoHostMessage is a call of c10d::send or c10d::recv_ on the host.
struct KinetoHostMessage {
  bool is_send = false;
  std::int32_t peer = 0;  ///< rank in its process group
  std::int64_t tag = 0;
  std::int64_t thread = 0;
  Nanoseconds start{0};  ///< of the call
  /// The latest time at which the message can have arrived or left: the end of the range "gloo:recv" or
  /// "gloo:send", which lasts until somebody has waited for the message. Without such a range, the end of the
  /// call.
  Nanoseconds end{0};
  bool is_awaited = false;     ///< whether it has a range "gloo:recv" or "gloo:send"
  std::optional<Bytes> bytes;  ///< from the shapes of that range
  std::size_t event = 0;
};

/// A KinetoHostReduction is a call of c10d::allreduce_ on the host.
struct KinetoHostReduction {
  std::int64_t thread = 0;
  Nanoseconds start{0};  ///< of the call
  Nanoseconds end{0};
  /// Begin and end of the range "gloo:all_reduce", in which the rank took part; nullopt if there is no such
  /// range.
  std::optional<Nanoseconds> run_start;
  std::optional<Nanoseconds> run_end;
  std::optional<std::int64_t> elements;
  std::optional<Bytes> bytes;  ///< from the shapes of that range
  std::size_t event = 0;
};

/// A KinetoTrace is the record of one rank. Times count from its earliest event.
struct KinetoTrace {
  std::string file;
  std::optional<std::int32_t> rank;
  std::optional<std::int64_t> world_size;
  Nanoseconds base{0};        ///< absolute time of time 0, to align traces of one machine
  Nanoseconds resolution{1};  ///< a microsecond if no time has decimals
  std::optional<Nanoseconds> record_end;
  std::vector<std::string> names;
  std::vector<KinetoStep> steps;              ///< by start
  std::int64_t renumbered = 0;                ///< number that align_steps() subtracted from the step numbers
  std::vector<KinetoLaunch> launches;         ///< in the order of the file
  std::vector<KinetoActivity> activities;     ///< by start, then in the order of the file
  std::vector<KinetoCollective> collectives;  ///< in the order of their activities
  std::vector<KinetoRange> ranges;            ///< by start
  std::vector<std::size_t> unread_ranges;     ///< events whose names look like ranges but cannot be read
  std::vector<KinetoHostMessage> messages;    ///< by start
  std::vector<KinetoHostReduction> reductions;            ///< by start
  std::vector<std::vector<std::int32_t>> process_groups;  ///< global ranks of each group, in order
  std::size_t loose_values = 0;                           ///< values of the file that were not strict JSON
};

/// Tells whether calls of a trace capture or launch CUDA graphs.
bool uses_graphs(const KinetoTrace& trace);

/// The end of findings about calls without work, in traces that use graphs.
inline constexpr std::string_view kMayBeCaptured =
    "; a call that is captured into a CUDA graph starts no work, and the graph's kernels have the correlation of "
    "its launch";

/// Reads a trace of torch.profiler, as written by export_chrome_trace(): events of the categories cpu_op,
/// user_annotation, cuda_runtime, cuda_driver, kernel, gpu_memcpy and gpu_memset; everything else is ignored.
/// Text that is not strict JSON only in ways that tighten_json() knows is read too; loose_values counts them.
/// @throws Error (input) if events are more than 13 days apart, if no event has one of these categories, or
/// if the world size is too small for the rank or a process group; also everything that read_kineto_events()
/// throws
KinetoTrace parse_kineto(std::string_view json, const std::string& file);

}  // namespace dflop
