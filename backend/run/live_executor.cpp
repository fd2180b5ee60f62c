#include "backend/run/live_executor.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include "backend/model/live_checks.hpp"
#include "backend/rank_threads.hpp"
#include "backend/run/live_timeline.hpp"
#include "core/error.hpp"
#include "core/program/lowering.hpp"

namespace dflop {

/// A Rank is one rank of this process with all that is its own.
struct LiveExecutor::Rank {
  int rank;
  std::size_t group;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<ComputeTurn> turn;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Kernels> kernels;
  std::unique_ptr<RankContext> context;
  std::unique_ptr<LiveRank> live;
};

namespace {

std::size_t group_of(const Program& layout, int rank) {
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const Group& group = layout.groups[g];
    if (rank >= group.first_rank && rank < group.first_rank + group.ranks) return g;
  }
  throw Error(ErrorKind::internal, "rank " + std::to_string(rank) + " is in no group");
}

/// A tp group begins an instruction when its last rank does, and ends it when its last rank does. Messages
/// are sent when the first rank does, which always has something to send.
void add_lockstep(std::vector<LiveSpan>& group, const std::vector<LiveSpan>& rank,
                  const Instruction* instructions) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i].start = std::max(group[i].start, rank[i].start);
    group[i].end = std::max(group[i].end, rank[i].end);
    if (!is_send(instructions[i].op)) group[i].arrival = std::max(group[i].arrival, rank[i].arrival);
  }
}

/// Returns, per stage, the first group that holds it.
std::vector<std::size_t> first_groups(const Program& layout) {
  std::vector<std::size_t> groups(layout.stages.size(), layout.groups.size());
  for (std::size_t g = layout.groups.size(); g-- > 0;) {
    const Group& group = layout.groups[g];
    for (auto i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = layout.instructions[static_cast<std::size_t>(i)];
      if (instruction.op == Op::optimizer_step) groups[static_cast<std::size_t>(instruction.stage)] = g;
    }
  }
  return groups;
}

/// Joins the next rank's record, of a group of which the first rank does the same and came before it.
void add_to(std::vector<GroupRecord>& records, const Program& program, ByteReader& reader, double& loss) {
  const auto group = reader.get<std::size_t>();
  const bool first = reader.get<int>() == 0;
  GroupRecord& record = records.at(group);
  const auto own_loss = reader.get<double>();
  const auto state = reader.get<ModelState>();
  std::vector<LiveSpan> spans = reader.get_all<LiveSpan>();
  if (first) {
    loss += own_loss;
    record = {std::move(spans), state};
  } else {
    const auto begin = static_cast<std::size_t>(program.groups[group].begin);
    add_lockstep(record.spans, spans, &program.instructions[begin]);
  }
}

}  // namespace

LiveExecutor::LiveExecutor(const Plan& plan, const ModelSpec& model, World& world, const LiveOptions& options)
    : plan_(plan), model_(model), world_(world), seed_(options.seed) {
  if (world.ranks() != plan.ranks()) {
    throw Error(ErrorKind::input, "the plan is for " + std::to_string(plan.ranks()) +
                                      " ranks, this run has " + std::to_string(world.ranks()));
  }
  require_live(model);
  const Program layout = lower_without_work(plan, model);
  stages_ = layout.stages;
  first_groups_ = first_groups(layout);
  try {
    make_ranks(layout, options.dtype);
  } catch (const std::exception& error) {
    world.abort(error.what());  // or the others would wait for this process's ranks
    throw;
  }
}

void LiveExecutor::make_ranks(const Program& layout, DType dtype) {
  for (const int r : world_.local_ranks()) {
    auto rank = std::make_unique<Rank>();
    rank->rank = r;
    rank->group = group_of(layout, r);
    const Group& group = layout.groups[rank->group];
    RankGroup tp;
    for (int t = 0; t < group.ranks; ++t) tp.ranks.push_back(group.first_rank + t);
    const int tp_rank = r - group.first_rank;
    rank->device = world_.make_device(r);
    rank->communicator = world_.make_communicator(r);
    rank->turn = world_.make_turn(r, tp);
    rank->stream = rank->device->make_stream();
    rank->kernels = rank->device->make_kernels(*rank->stream, dtype);
    rank->context =
        std::make_unique<RankContext>(RankContext{*rank->device, *rank->stream, *rank->kernels,
                                                  *rank->communicator, tp, tp_rank, plan_.sequence_parallel});
    rank->live = std::make_unique<LiveRank>(plan_, model_, layout, rank->group, seed_, *rank->context,
                                            rank->turn.get());
    ranks_.push_back(std::move(rank));
  }
}

LiveExecutor::~LiveExecutor() = default;

/// Writes one rank's part of joined(), on the clock of the leading process.
void LiveExecutor::add_record(ByteWriter& writer, const Rank& rank, LiveRankResult result,
                              Nanoseconds offset) {
  for (LiveSpan& span : result.spans) {
    span.start += offset;
    span.end += offset;
    span.arrival += offset;
  }
  writer.add(rank.group);
  writer.add(rank.context->tp_rank);
  writer.add(result.loss);
  writer.add(rank.live->model_state());
  writer.add(result.spans);
}

Timeline LiveExecutor::run(const Iteration& iteration, Detail detail) const {
  StepOptions options;
  options.optimizer.learning_rate = 0;
  Timeline timeline = run_ranks(iteration, options).timeline;
  if (detail == Detail::usage) {
    timeline.spans.clear();
    timeline.memory.clear();
    timeline.works.clear();
  }
  return timeline;
}

LiveResult LiveExecutor::step(const Iteration& iteration, const StepOptions& options) {
  return run_ranks(iteration, options);
}

void LiveExecutor::require_own(const Iteration& iteration, const StepOptions& options) const {
  const Program& program = iteration.program;
  if (iteration.plan != plan_ || program.stages != stages_ || program.ranks() != world_.ranks()) {
    throw Error(ErrorKind::internal, "a step's program is of another plan than its executor");
  }
  if (!options.delays.empty() && options.delays.size() != program.instructions.size()) {
    throw Error(ErrorKind::internal, "a step's delays are not as many as its program's instructions");
  }
}

LiveResult LiveExecutor::run_ranks(const Iteration& iteration, const StepOptions& options) const {
  require_own(iteration, options);
  const std::lock_guard turn(turn_);
  const BatchContent content(plan_, model_, iteration.samples, iteration.assignment, seed_);
  const LiveStep step{iteration.program, content, options};
  std::vector<LiveRankResult> results(ranks_.size());
  run_in_threads(ranks_.size(), {[&](std::size_t i) {
                                   ranks_[i]->device->enter_thread();
                                   ranks_[i]->live->prepare(step);
                                 },
                                 [&](std::size_t i) { results[i] = ranks_[i]->live->run(step); },
                                 [&](std::size_t i, const std::string& message) {
                                   ranks_[i]->communicator->abort(message);
                                 }});
  ByteWriter own;
  const Nanoseconds offset = world_.clock_offset();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    add_record(own, *ranks_[i], std::move(results[i]), offset);
  }
  return joined(step.program, world_.gather(own.take()));
}

/// Returns what the ranks of all processes have noted, in their order; nothing where these are not known.
LiveResult LiveExecutor::joined(const Program& program, const std::vector<std::string>& processes) const {
  LiveResult result;
  if (processes.empty()) return result;
  std::vector<GroupRecord> records(program.groups.size());
  for (const std::string& process : processes) {
    for (ByteReader reader(process); !reader.at_end();) add_to(records, program, reader, result.loss);
  }
  result.timeline = live_timeline(program, records, world_.device_name());
  result.timeline.cores = world_.cores();
  return result;
}

Bytes LiveExecutor::in_use(int rank) const {
  for (const auto& local : ranks_) {
    if (local->rank == rank) return local->device->in_use();
  }
  throw Error(ErrorKind::internal, "rank " + std::to_string(rank) + " is not of this process");
}

WholeTensors LiveExecutor::read(ParameterStore::Kind which) {
  ByteWriter own;
  for (const auto& rank : ranks_) {
    for (std::size_t s = 0; s < rank->live->stages(); ++s) {
      ParameterStore& store = rank->live->module(s).parameters();
      const bool first = first_groups_[static_cast<std::size_t>(rank->live->stage_index(s))] == rank->group;
      if (!first && store.holds_all(which)) continue;  // copies of what the first group has
      for (const Parameter& parameter : store.list()) {
        const Range held = store.held(parameter, which);
        if (held.size() == 0) continue;
        add_part(own, parameter, held, store.read(*rank->context, parameter, which));
      }
    }
  }
  WholeTensors tensors;
  for (const std::string& process : world_.gather(own.take())) merge_parts(process, tensors);
  return tensors;
}

void LiveExecutor::write(ParameterStore::Kind which, const WholeTensors& tensors) {
  if (world_.local_ranks().size() == static_cast<std::size_t>(world_.ranks())) return set(which, tensors);
  set(which, whole_tensors(world_.broadcast(world_.leads() ? to_bytes(tensors) : "")));
}

void LiveExecutor::set(ParameterStore::Kind which, const WholeTensors& tensors) {
  for (const auto& rank : ranks_) {
    for (std::size_t s = 0; s < rank->live->stages(); ++s) {
      ParameterStore& store = rank->live->module(s).parameters();
      for (const Parameter& parameter : store.list()) {
        const auto found = tensors.find(parameter.name);
        if (found == tensors.end())
          throw Error(ErrorKind::input, "tensor '" + parameter.name + "' is missing");
        store.write(*rank->context, parameter, which, part_of(found->second, parameter));
      }
    }
  }
}

}  // namespace dflop
