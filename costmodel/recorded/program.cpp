#include "costmodel/recorded/recorded.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/program/lowering.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kNone = -1;

/// Sums of times (36 years) and bytes stay inside 64 bits.
constexpr double kMaxSum = 0x1p60;

/// Returns the largest part of a duration that, rounded as the engine does, is at most `delay`.
double latest_ready(Nanoseconds delay, Nanoseconds duration) {
  if (delay >= duration) return 1;
  if (delay < Nanoseconds(0)) return 0;
  const auto whole = static_cast<double>(duration.count());
  double ready = (static_cast<double>(delay.count()) + 0.5) / whole;
  while (std::llround(ready * whole) > delay.count()) ready = std::nextafter(ready, 0.0);
  return std::min(ready, 1.0);
}

using Points = std::vector<const MemoryPoint*>;

bool takes_time(Op op) {
  return is_compute(op) || op == Op::optimizer_step;
}

Nanoseconds end_of(const Span& span) {
  return span.start + span.duration;
}

/// A MemoryWalk reads the points of one group in the order of its instructions.
class MemoryWalk {
 public:
  MemoryWalk(const Points& points, ProgramCosts& costs) : points_(points), costs_(costs) {}

  /// Reads the point that every group begins with.
  bool begin() { return expect(Nanoseconds(0), Bytes{}); }

  /// Reads an instruction. `forward_follows`: a forward begins at the instant at which this ends. `may_fall`:
  /// its stage has frozen parts, so a backward_input leaves nothing of them. Otherwise a fall belongs to
  /// another instruction that takes no time.
  bool run(std::int64_t i, const Instruction& instruction, const Span& span, bool forward_follows,
           bool may_fall) {
    start(i, instruction, span);
    const Bytes before = activations_;
    const Nanoseconds end = end_of(span);
    const std::pair key{instruction.stage, instruction.microbatch};
    if (instruction.op == Op::backward_input) {
      costs_.activation[i] = change_at(end, forward_follows && costs_.workspace[i] == Bytes{}, may_fall);
      kept_[key] += costs_.activation[i];
      activations_ += costs_.activation[i];
    } else if (instruction.op == Op::backward || instruction.op == Op::backward_weight) {
      costs_.activation[i] = kept_[key];
      activations_ -= costs_.activation[i];
    }
    const bool changes = activations_ != before || costs_.workspace[i] != Bytes{};
    return !changes || expect(end, activations_);
  }

  bool at_end() const { return next_ == points_.size(); }

 private:
  /// Returns whether the next point matches, and if so consumes it.
  bool expect(Nanoseconds time, Bytes activations) {
    if (at_end() || points_[next_]->time != time || points_[next_]->activations != activations ||
        points_[next_]->buffers != Bytes{}) {
      return false;
    }
    ++next_;
    return true;
  }

  /// Returns the change of activations at the end of an instruction, according to the next point; below 0 if
  /// less is left for the weight gradients. A rise that could be the start of a forward counts as such,
  /// unless another rise follows.
  Bytes change_at(Nanoseconds end, bool may_be_forward, bool may_fall) const {
    const auto is_at_end = [&](std::size_t point) {
      return point < points_.size() && points_[point]->time == end;
    };
    if (!is_at_end(next_)) return {};
    const MemoryPoint& point = *points_[next_];
    if (point.buffers != Bytes{}) return {};
    const bool rises = point.activations > activations_;
    if (rises ? may_be_forward && !is_at_end(next_ + 1) : !may_fall) return {};
    return point.activations - activations_;
  }

  void start(std::int64_t i, const Instruction& instruction, const Span& span) {
    if (at_end() || points_[next_]->time != span.start) return;
    const MemoryPoint& point = *points_[next_];
    // If an instruction needs buffers for no time, it gives them back at once; otherwise they belong to the
    // next instruction.
    const bool ends_here = next_ + 1 < points_.size() && points_[next_ + 1]->time == span.start;
    if (span.duration == Nanoseconds(0) && point.buffers != Bytes{} && !ends_here) return;
    const bool forward = instruction.op == Op::forward;
    if (forward ? point.activations < activations_ : point.activations != activations_) return;
    ++next_;
    costs_.workspace[i] = point.buffers;
    if (!forward) return;
    costs_.activation[i] = point.activations - activations_;
    kept_[{instruction.stage, instruction.microbatch}] = costs_.activation[i];
    activations_ = point.activations;
  }

  const Points& points_;
  ProgramCosts& costs_;
  std::size_t next_ = 0;
  Bytes activations_;
  std::map<std::pair<std::uint16_t, std::int32_t>, Bytes> kept_;
};

/// Returns the instructions of a group that take time, in order.
std::vector<std::int64_t> timed_instructions(const Program& program, const Group& group) {
  std::vector<std::int64_t> timed;
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    if (takes_time(program.instructions[i].op)) timed.push_back(i);
  }
  return timed;
}

/// Returns whether one of the timed instructions, from the k-th on, is a forward that starts at this instant.
bool forward_starts(const Timeline& timeline, const Program& program,
                    const std::vector<std::int64_t>& span_of, const std::vector<std::int64_t>& timed,
                    std::size_t k, Nanoseconds instant) {
  for (; k < timed.size() && timeline.spans[span_of[timed[k]]].start == instant; ++k) {
    if (program.instructions[timed[k]].op == Op::forward) return true;
  }
  return false;
}

bool walk(const Timeline& timeline, const Program& program, const std::vector<std::int64_t>& span_of,
          ProgramCosts& costs) {
  std::unordered_map<std::int32_t, Points> points;
  for (const MemoryPoint& point : timeline.memory) points[point.rank].push_back(&point);
  for (const Group& group : program.groups) {
    MemoryWalk memory(points[group.first_rank], costs);
    if (!memory.begin()) return false;
    const std::vector<std::int64_t> timed = timed_instructions(program, group);
    for (std::size_t k = 0; k < timed.size(); ++k) {
      const Span& span = timeline.spans[span_of[timed[k]]];
      const bool forward_follows = forward_starts(timeline, program, span_of, timed, k + 1, end_of(span));
      const Instruction& instruction = program.instructions[timed[k]];
      const bool may_fall = !program.stages[instruction.stage].trained.all();
      if (!memory.run(timed[k], instruction, span, forward_follows, may_fall)) return false;
    }
    if (!memory.at_end()) return false;
  }
  return true;
}

/// Fills costs.activation and costs.workspace with the memory that the instructions kept and needed, from the
/// memory points of their run. `span_of` is the row of each instruction's span.
///
/// A group's points mark every change. At the start of a compute or optimizer instruction, a forward's
/// activations and the instruction's workspace are added. At its end, the workspace is removed and, after a
/// backward, the activations; a backward_input may add to them. Two cases are ambiguous: a forward of no
/// duration that keeps and needs nothing looks like the next forward. If a backward_input without workspace
/// adds memory at the instant at which a forward without workspace takes some, and one of the two takes
/// nothing, the memory counts as the forward's, as in all timelines whose backward_inputs add nothing.
/// @returns false, with both tables zero, if there are no points or they do not fit the instructions.
bool recover_memory(const Timeline& timeline, const Program& program,
                    const std::vector<std::int64_t>& span_of, ProgramCosts& costs) {
  const auto clear = [&] {
    costs.activation.assign(program.instructions.size(), Bytes{});
    costs.workspace.assign(program.instructions.size(), Bytes{});
  };
  clear();
  if (!timeline.memory.empty() && walk(timeline, program, span_of, costs)) return true;
  clear();
  return false;
}

/// Builds a Program from the spans of one run, step by step.
class Rebuild {
 public:
  Rebuild(const Timeline& timeline, const std::string& file, int iteration)
      : timeline_(timeline),
        spans_(timeline.spans),
        where_(fmt::format("{}: key 'iterations[{}].", file, iteration)) {}

  RecordedProgram run() {
    check_run();
    add_stages();
    add_groups();
    place_spans();
    add_instructions();
    add_messages();
    set_port_bytes();
    add_collectives();
    set_queues();
    describe_collectives();
    set_ready();
    result_.memory = recover_memory(timeline_, program_, span_of_, costs_);
    try {
      verify(program_);
    } catch (const Error& error) {
      refuse("spans", "expected the run of a program, found: {}", error.what());
    }
    return std::move(result_);
  }

 private:
  template <typename... Values>
  [[noreturn]] void refuse(const std::string& key, fmt::format_string<Values...> message,
                           Values&&... values) const {
    refuse_input(where_ + key + "'", message, std::forward<Values>(values)...);
  }

  /// Rejects a value of the span in row `row`.
  template <typename... Values>
  [[noreturn]] void refuse_span(std::string_view column, std::size_t row,
                                fmt::format_string<Values...> message, Values&&... values) const {
    refuse(fmt::format("spans.{}[{}]", column, row), message, std::forward<Values>(values)...);
  }

  void check_run() const {
    if (!timeline_.stalls.empty()) {
      refuse("stalls", "expected a run that finished, found {} groups that did not finish",
             timeline_.stalls.size());
    }
    if (spans_.empty()) {
      refuse("spans", "expected the spans of a run, found none; 'dflop simulate --out FILE' records them");
    }
    double time = 0;
    double bytes = 0;
    for (std::size_t row = 0; row < spans_.size(); ++row) {
      const Span& span = spans_[row];
      check_not_negative("start_ns", row, span.start.count());
      check_not_negative("duration_ns", row, span.duration.count());
      check_not_negative("bytes", row, span.bytes.count);
      time += static_cast<double>(span.duration.count());
      bytes += static_cast<double>(span.bytes.count);
    }
    if (time > kMaxSum) refuse("spans.duration_ns", "expected at most 2^60 ns in total");
    if (bytes > kMaxSum) refuse("spans.bytes", "expected at most 2^60 bytes in total");
  }

  void check_not_negative(const char* column, std::size_t row, std::int64_t value) const {
    if (value < 0) refuse_span(column, row, "expected at least 0, found {}", value);
  }

  void add_stages() {
    program_.stages = timeline_.stage_shapes;
    if (program_.stages.empty()) program_.stages.resize(timeline_.stages.size());
    program_.works = timeline_.works;
    const bool unknown_work = std::any_of(
        spans_.begin(), spans_.end(), [](const Span& span) { return is_compute(span.op) && span.work < 0; });
    if (unknown_work) program_.works.emplace_back();
  }

  /// Recorded durations already include the slowdown by other work on shared GPUs. So that nothing slows them
  /// down again, the costs have no bandwidths.
  void add_shared_gpus() {
    program_.shared_gpus = timeline_.shared_gpus;
    if (program_.shared_gpus == 0 || program_.ranks() == 2 * program_.shared_gpus) return;
    refuse("shared_gpus", "expected two ranks on each of {} GPUs, found {} in all", program_.shared_gpus,
           program_.ranks());
  }

  void add_groups() {
    for (const GroupUsage& usage : timeline_.groups) {
      group_of_rank_.emplace(usage.first_rank, program_.groups.size());
      program_.groups.push_back({usage.first_rank, usage.ranks, usage.stage, usage.dp_rank, 0, 0});
      costs_.model_state.push_back(usage.model_state);
    }
    for (std::size_t row = 0; row < spans_.size(); ++row) {
      const auto group = group_of_rank_.find(spans_[row].rank);
      if (group == group_of_rank_.end()) {
        refuse_span("rank", row, "expected the first rank of a group, found {}", spans_[row].rank);
      }
      ++program_.groups[group->second].end;
    }
    if (timeline_.hub >= 0) {
      const auto hub = group_of_rank_.find(timeline_.hub);
      if (hub == group_of_rank_.end())
        refuse("hub_rank", "expected the first rank of a group, found {}", timeline_.hub);
      program_.hub = static_cast<std::int32_t>(hub->second);
    }
    add_shared_gpus();
    std::int64_t begin = 0;
    for (Group& group : program_.groups) {
      if (group.end == 0) {
        refuse("spans", "expected spans of every group, found none of rank {}", group.first_rank);
      }
      group.begin = begin;
      group.end += begin;
      begin = group.end;
    }
  }

  /// Checks that the group's positions are distinct and go from 0 without gaps.
  void place_spans() {
    span_of_.assign(spans_.size(), kNone);
    for (std::size_t row = 0; row < spans_.size(); ++row) {
      const Group& group = program_.groups[group_of_rank_.at(spans_[row].rank)];
      const std::int64_t position = spans_[row].position;
      if (position == kNone) {
        refuse_span(
            "position", row,
            "expected the position of the span's instruction among the instructions of its rank, found -1 "
            "(unknown): the recording shows what ran when, but not who waited for what. Timelines of 'dflop "
            "simulate' and 'train' have it; timelines of 'dflop import' have it if ranks have ranges of a "
            "pipeline or meet in collectives (docs/replay.md)");
      }
      const std::int64_t count = group.end - group.begin;
      if (position < 0 || position >= count) {
        refuse_span("position", row,
                    "expected positions without gaps from 0 to {}, as rank {} has {} spans, found {}",
                    count - 1, group.first_rank, count, position);
      }
      std::int64_t& place = span_of_[group.begin + position];
      if (place != kNone) {
        refuse_span("position", row, "expected each position of a rank once, found {} also in row {}",
                    position, place);
      }
      place = static_cast<std::int64_t>(row);
    }
  }

  void add_instructions() {
    for (const std::int64_t row : span_of_) {
      const Span& span = spans_[row];
      Instruction instruction{span.op, span.stage, span.microbatch, kNone};
      const bool timed = is_compute(span.op) || span.op == Op::optimizer_step;
      if (is_compute(span.op)) {
        instruction.index = span.work >= 0 ? span.work : static_cast<std::int32_t>(program_.works.size()) - 1;
      } else if (!timed) {
        check_index(row);
        instruction.index = span.message;
      }
      if (is_compute(span.op) || is_send(span.op)) count_microbatch(row);
      program_.instructions.push_back(instruction);
      costs_.instruction.push_back(timed ? span.duration : Nanoseconds(0));
    }
  }

  /// Tables are never larger than the file, whatever numbers it contains.
  void check_index(std::int64_t row) const {
    const std::int64_t most = static_cast<std::int64_t>(spans_.size()) - 1;
    if (spans_[row].message >= 0 && spans_[row].message <= most) return;
    refuse_span("message", row, "expected the number of its message or collective, from 0 to {}, found {}",
                most, spans_[row].message);
  }

  void count_microbatch(std::int64_t row) {
    const std::int64_t most = static_cast<std::int64_t>(spans_.size()) - 1;
    const std::int32_t microbatch = spans_[row].microbatch;
    if (microbatch < 0 || microbatch > most) {
      refuse_span("microbatch", row, "expected a microbatch from 0 to {}, found {}", most, microbatch);
    }
    program_.microbatches = std::max(program_.microbatches, microbatch + 1);
  }

  /// Ends holds the rows of a message's two ends.
  struct Ends {
    std::int64_t send = kNone;
    std::int64_t receive = kNone;
  };

  std::vector<Ends> find_ends() const {
    std::vector<Ends> ends;
    for (const std::int64_t row : span_of_) {
      const Span& span = spans_[row];
      if (!is_send(span.op) && !is_receive(span.op)) continue;
      if (static_cast<std::size_t>(span.message) >= ends.size()) ends.resize(span.message + std::size_t{1});
      std::int64_t& end = is_send(span.op) ? ends[span.message].send : ends[span.message].receive;
      if (end != kNone) {
        refuse_span("message", row, "expected one {} of message {}, found another in row {}",
                    to_string(span.op), span.message, end);
      }
      end = row;
    }
    return ends;
  }

  void add_messages() {
    const std::vector<Ends> ends = find_ends();
    for (std::size_t m = 0; m < ends.size(); ++m) {
      const auto [send, receive] = ends[m];
      if (send == kNone && receive == kNone) {
        refuse("spans.message", "expected message numbers without gaps, found no message {}", m);
      }
      if (receive == kNone) refuse_span("message", send, "message {} is sent and never received", m);
      if (send == kNone) refuse_span("message", receive, "message {} is received and never sent", m);
      const Span& sent = spans_[send];
      const Span& received = spans_[receive];
      if (sent.bytes != received.bytes) {
        refuse_span("bytes", receive, "expected {}, as at the send of message {}, found {}", sent.bytes.count,
                    m, received.bytes.count);
      }
      program_.messages.push_back({static_cast<std::int32_t>(group_of_rank_.at(sent.rank)),
                                   static_cast<std::int32_t>(group_of_rank_.at(received.rank)),
                                   sent.microbatch, sent.bytes, sent.bytes});
      costs_.message.push_back(sent.duration);
      resharded_.push_back(sent.op == Op::reshard_send);
    }
  }

  /// Sets port_bytes as lower() does for the messages of one reshard.
  void set_port_bytes() {
    using Port = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // group, other stage, microbatch
    std::map<Port, Bytes> out;
    std::map<Port, Bytes> in;
    const auto ports = [&](const Message& m) {
      return std::pair(Port(m.source, program_.groups[m.destination].stage, m.microbatch),
                       Port(m.destination, program_.groups[m.source].stage, m.microbatch));
    };
    for (std::size_t m = 0; m < resharded_.size(); ++m) {
      if (!resharded_[m]) continue;
      const auto [source, destination] = ports(program_.messages[m]);
      out[source] += program_.messages[m].bytes;
      in[destination] += program_.messages[m].bytes;
    }
    for (std::size_t m = 0; m < resharded_.size(); ++m) {
      if (!resharded_[m]) continue;
      const auto [source, destination] = ports(program_.messages[m]);
      Message& message = program_.messages[m];
      message.port_bytes = std::max(out[source], in[destination]);
      message.port_bytes.count *= std::max(1, hub_copies(message, program_));
    }
  }

  void add_collectives() {
    std::vector<Nanoseconds> end;
    std::vector<std::int64_t> first_row;
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      for (std::int64_t i = program_.groups[g].begin; i < program_.groups[g].end; ++i) {
        const std::int64_t row = span_of_[i];
        const Span& span = spans_[row];
        if (!enters_collective(span.op)) continue;
        const std::size_t c = span.message;
        if (c >= program_.collectives.size()) {
          program_.collectives.resize(c + 1);
          start_.resize(c + 1);
          end.resize(c + 1);
          first_row.resize(c + 1, kNone);
        }
        Collective& collective = program_.collectives[c];
        if (collective.groups.empty()) {
          collective.bytes = span.bytes;
          first_row[c] = row;
        } else if (collective.bytes != span.bytes) {
          refuse_span("bytes", row, "expected {}, as in row {} of collective {}, found {}",
                      collective.bytes.count, first_row[c], c, span.bytes.count);
        }
        collective.groups.push_back(static_cast<std::int32_t>(g));
        start_[c] = std::max(start_[c], span.start);
        end[c] = std::max(end[c], span.start + span.duration);
      }
    }
    for (std::size_t c = 0; c < end.size(); ++c) {
      if (program_.collectives[c].groups.empty()) {
        refuse("spans.message", "expected collective numbers without gaps, found no collective {}", c);
      }
      Collective& collective = program_.collectives[c];
      const auto stage = static_cast<std::size_t>(spans_[first_row[c]].stage);
      if (collective.bytes == kNormBytes) {
        collective.sum = CollectiveSum::norm;
      } else if (stage < program_.stages.size()) {  // otherwise the recording has no shapes
        collective.copies = program_.stages[stage].copies;
      }
      costs_.collective.push_back(end[c] - start_[c]);
    }
  }

  /// Gives each set of participants a queue if groups have only process groups; see import_joined().
  void set_queues() {
    if (!has_pieces_alone(timeline_)) return;
    std::map<std::vector<std::int32_t>, std::int32_t> queues;
    for (Collective& collective : program_.collectives) {
      collective.queue =
          queues.try_emplace(collective.groups, static_cast<std::int32_t>(queues.size())).first->second;
    }
  }

  /// Copies the properties of collectives that spans lack.
  void describe_collectives() {
    const std::vector<RecordedCollective>& known = timeline_.collectives;
    if (known.empty()) return;
    if (known.size() != program_.collectives.size()) {
      refuse("collectives", "expected {} entries, one per collective of the spans, found {}",
             program_.collectives.size(), known.size());
    }
    std::map<std::string, std::int32_t> operations;
    for (std::size_t c = 0; c < known.size(); ++c) {
      const auto number = static_cast<std::int32_t>(operations.size());
      program_.collectives[c].operation = operations.try_emplace(known[c].operation, number).first->second;
      for (const std::int32_t before : known[c].after) {
        if (static_cast<std::size_t>(before) >= known.size())
          refuse(fmt::format("collectives.after[{}]", c), "expected a collective, found {}", before);
        program_.collectives[c].after.push_back(before);
      }
    }
  }

  /// Lowers each `ready` to the max that every participant and the order of its starts allow.
  void set_ready() {
    std::vector<std::int32_t> start_before;  // pairs of starts that take effect during the same compute
    std::vector<std::int32_t> start_after;
    for (const Instruction& instruction : program_.instructions) {
      if (instruction.op != Op::all_reduce_start) continue;
      program_.collectives[instruction.index].ready = 1;
    }
    for (const Group& group : program_.groups) {
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Instruction& instruction = program_.instructions[i];
        if (instruction.op != Op::all_reduce_start) continue;
        double& ready = program_.collectives[instruction.index].ready;
        ready = std::min(ready, ready_during_next(group, i));
        if (i + 1 < group.end && program_.instructions[i + 1].op == Op::all_reduce_start) {
          start_before.push_back(instruction.index);
          start_after.push_back(program_.instructions[i + 1].index);
        }
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t k = start_before.size(); k-- > 0;) {
        double& ready = program_.collectives[start_before[k]].ready;
        const double bound = program_.collectives[start_after[k]].ready;
        changed = changed || bound < ready;
        ready = std::min(ready, bound);
      }
    }
  }

  /// Returns `ready` from the compute that follows a start and its adjacent starts; 0 if no compute follows.
  double ready_during_next(const Group& group, std::int64_t start) const {
    std::int64_t next = start;
    while (next < group.end && program_.instructions[next].op == Op::all_reduce_start) ++next;
    if (next == group.end || !is_compute(program_.instructions[next].op)) return 0;
    const Span& compute = spans_[span_of_[next]];
    const Nanoseconds delay = start_[program_.instructions[start].index] - compute.start;
    return latest_ready(delay, compute.duration);
  }

  const Timeline& timeline_;
  const std::vector<Span>& spans_;
  const std::string where_;
  RecordedProgram result_;
  Program& program_ = result_.program;
  ProgramCosts& costs_ = result_.costs;
  std::unordered_map<std::int32_t, std::size_t> group_of_rank_;
  std::vector<std::int64_t> span_of_;  ///< per instruction: the row of its span
  std::vector<bool> resharded_;        ///< per message
  std::vector<Nanoseconds> start_;     ///< per collective
};

}  // namespace

RecordedProgram recorded_program(const Timeline& timeline, const std::string& file, int iteration) {
  return Rebuild(timeline, file, iteration).run();
}

}  // namespace dflop
