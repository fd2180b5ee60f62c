#include "traces/files/timeline.hpp"

#include <string>
#include <vector>

#include "traces/text/json_writer.hpp"

namespace dflop {
namespace {

void write_groups(JsonWriter& writer, const std::vector<GroupUsage>& groups) {
  writer.begin_object("groups");
  writer.row("first_rank", groups, [](const GroupUsage& g) { return g.first_rank; });
  writer.row("ranks", groups, [](const GroupUsage& g) { return g.ranks; });
  writer.row("stage", groups, [](const GroupUsage& g) { return g.stage; });
  writer.row("dp_rank", groups, [](const GroupUsage& g) { return g.dp_rank; });
  writer.row("busy_ns", groups, [](const GroupUsage& g) { return g.busy.count(); });
  writer.row("bubble_ns", groups, [](const GroupUsage& g) { return g.bubble.count(); });
  writer.row("wait_ns", groups, [](const GroupUsage& g) { return g.wait.count(); });
  writer.row("transfer_ns", groups, [](const GroupUsage& g) { return g.transfer.count(); });
  writer.row("parameter_bytes", groups, [](const GroupUsage& g) { return g.model_state.parameters.count; });
  writer.row("gradient_bytes", groups, [](const GroupUsage& g) { return g.model_state.gradients.count; });
  writer.row("optimizer_bytes", groups, [](const GroupUsage& g) { return g.model_state.optimizer.count; });
  writer.row("peak_memory_bytes", groups, [](const GroupUsage& g) { return g.peak_memory.count; });
  writer.row("peak_time_ns", groups, [](const GroupUsage& g) { return g.peak_time.count(); });
  writer.row("peak_activation_bytes", groups, [](const GroupUsage& g) { return g.peak_activations.count; });
  writer.row("peak_buffer_bytes", groups, [](const GroupUsage& g) { return g.peak_buffers.count; });
  writer.end_object();
}

void write_spans(JsonWriter& writer, const std::vector<Span>& spans) {
  writer.begin_object("spans");
  writer.row("rank", spans, [](const Span& s) { return s.rank; });
  writer.row("stream", spans, [](const Span& s) { return static_cast<int>(s.stream); });
  writer.row("op", spans, [](const Span& s) { return static_cast<int>(s.op); });
  writer.row("stage", spans, [](const Span& s) { return s.stage; });
  writer.row("microbatch", spans, [](const Span& s) { return s.microbatch; });
  writer.row("start_ns", spans, [](const Span& s) { return s.start.count(); });
  writer.row("duration_ns", spans, [](const Span& s) { return s.duration.count(); });
  writer.row("bytes", spans, [](const Span& s) { return s.bytes.count; });
  writer.row("message", spans, [](const Span& s) { return s.message; });
  writer.row("position", spans, [](const Span& s) { return s.position; });
  writer.row("work", spans, [](const Span& s) { return s.work; });
  writer.end_object();
}

void write_memory(JsonWriter& writer, const std::vector<MemoryPoint>& memory) {
  writer.begin_object("memory");
  writer.row("rank", memory, [](const MemoryPoint& m) { return m.rank; });
  writer.row("time_ns", memory, [](const MemoryPoint& m) { return m.time.count(); });
  writer.row("activation_bytes", memory, [](const MemoryPoint& m) { return m.activations.count; });
  writer.row("buffer_bytes", memory, [](const MemoryPoint& m) { return m.buffers.count; });
  writer.end_object();
}

void write_stage_shapes(JsonWriter& writer, const std::vector<Stage>& stages) {
  writer.begin_object("stage_shapes");
  writer.row("encoder_layers", stages, [](const Stage& s) { return s.encoder_layers; });
  writer.row("llm_layers", stages, [](const Stage& s) { return s.llm_layers; });
  writer.row("connector", stages, [](const Stage& s) { return s.connector; });
  writer.row("embedding", stages, [](const Stage& s) { return s.embedding; });
  writer.row("head", stages, [](const Stage& s) { return s.head; });
  writer.row("tp", stages, [](const Stage& s) { return s.tp; });
  writer.row("dp", stages, [](const Stage& s) { return s.dp; });
  writer.row("recomputation", stages, [](const Stage& s) { return to_string(s.recomputation); });
  writer.row("zero1", stages, [](const Stage& s) { return s.zero1; });
  writer.row("sequence_parallel", stages, [](const Stage& s) { return s.sequence_parallel; });
  writer.end_object();
}

void write_works(JsonWriter& writer, const std::vector<Work>& works) {
  const auto write_module = [&](const std::string& module, Workload Work::*part) {
    writer.row(module + "_sequences", works, [=](const Work& w) { return (w.*part).sequences; });
    writer.row(module + "_tokens", works, [=](const Work& w) { return (w.*part).tokens; });
    writer.row(module + "_attention_pairs", works, [=](const Work& w) { return (w.*part).attention_pairs; });
  };
  writer.begin_object("works");
  write_module("encoder", &Work::encoder);
  write_module("llm", &Work::llm);
  writer.end_object();
}

void write_stalls(JsonWriter& writer, const std::vector<Stall>& stalls) {
  writer.begin_object("stalls");
  writer.row("rank", stalls, [](const Stall& s) { return s.rank; });
  writer.row("op", stalls, [](const Stall& s) { return static_cast<int>(s.op); });
  writer.row("stage", stalls, [](const Stall& s) { return s.stage; });
  writer.row("microbatch", stalls, [](const Stall& s) { return s.microbatch; });
  writer.row("since_ns", stalls, [](const Stall& s) { return s.since.count(); });
  writer.row("failed", stalls, [](const Stall& s) { return static_cast<int>(s.failed); });
  writer.row("awaited_rank", stalls, [](const Stall& s) { return s.awaited_rank; });
  writer.end_object();
}

void write_timeline(JsonWriter& writer, const Timeline& timeline) {
  writer.begin_object();
  writer.field("source", timeline.source);
  writer.field("makespan_ns", timeline.makespan.count());
  if (timeline.cores > 0) writer.field("cores", timeline.cores);
  writer.row("stages", timeline.stages);
  write_groups(writer, timeline.groups);
  write_spans(writer, timeline.spans);
  write_memory(writer, timeline.memory);
  write_stage_shapes(writer, timeline.stage_shapes);
  write_works(writer, timeline.works);
  write_stalls(writer, timeline.stalls);
  writer.end_object();
}

std::string write_file(const Timeline* timelines, std::size_t count) {
  const auto name = [](auto value) { return to_string(value); };
  JsonWriter writer;
  writer.field("schema", kTimelineSchema);
  writer.field("version", kTimelineVersion);
  writer.row("streams", all_of<Stream>(), name);
  writer.row("ops", all_of<Op>(), name);
  writer.begin_array("iterations");
  for (std::size_t i = 0; i < count; ++i) write_timeline(writer, timelines[i]);
  writer.end_array();
  return writer.finish();
}

}  // namespace

std::string to_json(const TimelineFile& file) {
  return write_file(file.iterations.data(), file.iterations.size());
}

std::string to_json(const Timeline& timeline) {
  return write_file(&timeline, 1);
}

}  // namespace dflop
