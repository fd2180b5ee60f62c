#include "backend/live_executor.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "backend/live_checks.hpp"
#include "backend/live_timeline.hpp"
#include "backend/rank_threads.hpp"
#include "core/error.hpp"

namespace dflop {

/// One rank of this process with all that is its own.
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

/// Where the held values of a parameter stand in the whole tensor; calls visit(held index, whole index).
template <typename Visit>
void for_each_value(const Parameter& parameter, const Visit& visit) {
  std::size_t held = 0;
  for (const Range& range : parameter.row_ranges) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (std::int64_t c = parameter.column_range.begin; c < parameter.column_range.end; ++c) {
        visit(held++, static_cast<std::size_t>(row * parameter.columns + c));
      }
    }
  }
}

}  // namespace

LiveExecutor::LiveExecutor(const Plan& plan, const ModelSpec& model, const Program& layout, World& world,
                           const LiveOptions& options)
    : world_(world), stages_(layout.stages) {
  if (world.ranks() != layout.ranks()) {
    throw Error(ErrorKind::input, "the plan is for " + std::to_string(layout.ranks()) +
                                      " ranks, this run has " + std::to_string(world.ranks()));
  }
  require_live(model);
  for (const int r : world.local_ranks()) {
    auto rank = std::make_unique<Rank>();
    rank->rank = r;
    rank->group = group_of(layout, r);
    const Group& group = layout.groups[rank->group];
    RankGroup tp;
    for (int t = 0; t < group.ranks; ++t) tp.ranks.push_back(group.first_rank + t);
    const int tp_rank = r - group.first_rank;
    rank->device = world.make_device(r);
    rank->communicator = world.make_communicator(r);
    rank->turn = world.make_turn(r, tp);
    rank->stream = rank->device->make_stream();
    rank->kernels = rank->device->make_kernels(*rank->stream, options.dtype);
    rank->context = std::make_unique<RankContext>(
        RankContext{*rank->device, *rank->stream, *rank->kernels, *rank->communicator, tp, tp_rank});
    rank->live = std::make_unique<LiveRank>(plan, model, layout, rank->group, options.seed, *rank->context,
                                            rank->turn.get());
    ranks_.push_back(std::move(rank));
  }
}

LiveExecutor::~LiveExecutor() = default;

LiveResult LiveExecutor::run(const LiveStep& step) {
  if (step.program.stages != stages_ || step.program.ranks() != world_.ranks()) {
    throw Error(ErrorKind::internal, "a step's program is of another plan than its executor");
  }
  if (!step.delays.empty() && step.delays.size() != step.program.instructions.size()) {
    throw Error(ErrorKind::internal, "a step's delays are not as many as its program's instructions");
  }
  std::vector<LiveRankResult> results(ranks_.size());
  run_in_threads(ranks_.size(), {[&](std::size_t i) {
                                   ranks_[i]->device->enter_thread();
                                   ranks_[i]->live->prepare(step);
                                 },
                                 [&](std::size_t i) { results[i] = ranks_[i]->live->run(step); },
                                 [&](std::size_t i, const std::string& message) {
                                   ranks_[i]->communicator->abort(message);
                                 }});
  LiveResult result;
  std::vector<GroupRecord> records(step.program.groups.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    GroupRecord& record = records[ranks_[i]->group];
    if (ranks_[i]->context->tp_rank != 0) {  // does the same as the first, which comes before it
      const auto first = step.program.groups[ranks_[i]->group].begin;
      add_lockstep(record.spans, results[i].spans,
                   &step.program.instructions[static_cast<std::size_t>(first)]);
      continue;
    }
    result.loss += results[i].loss;
    record = {std::move(results[i].spans), ranks_[i]->live->model_state()};
  }
  result.timeline = live_timeline(step.program, records, world_.device_name());
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
  WholeTensors tensors;
  for (const auto& rank : ranks_) {
    for (std::size_t s = 0; s < rank->live->stages(); ++s) {
      ParameterStore& store = rank->live->module(s).parameters();
      for (const Parameter& parameter : store.list()) {
        WholeTensor& whole = tensors[parameter.name];
        if (whole.values.empty()) {
          whole = {parameter.rows, parameter.columns,
                   std::vector<double>(static_cast<std::size_t>(parameter.rows * parameter.columns), 0.0)};
        }
        const std::vector<double> held = store.read(*rank->context, parameter, which);
        const auto held_here = store.held(parameter, which);
        for_each_value(parameter, [&](std::size_t from, std::size_t to) {
          const auto place = static_cast<std::int64_t>(from);
          if (place >= held_here.begin && place < held_here.end) whole.values[to] = held[from];
        });
      }
    }
  }
  return tensors;
}

void LiveExecutor::write(ParameterStore::Kind which, const WholeTensors& tensors) {
  for (const auto& rank : ranks_) {
    for (std::size_t s = 0; s < rank->live->stages(); ++s) {
      ParameterStore& store = rank->live->module(s).parameters();
      for (const Parameter& parameter : store.list()) {
        const auto found = tensors.find(parameter.name);
        if (found == tensors.end())
          throw Error(ErrorKind::input, "tensor '" + parameter.name + "' is missing");
        const WholeTensor& whole = found->second;
        if (whole.rows != parameter.rows || whole.columns != parameter.columns) {
          throw Error(ErrorKind::input,
                      "tensor '" + parameter.name + "': expected " + std::to_string(parameter.rows) + " x " +
                          std::to_string(parameter.columns) + " values, found " + std::to_string(whole.rows) +
                          " x " + std::to_string(whole.columns));
        }
        std::vector<double> held(static_cast<std::size_t>(parameter.count()));
        for_each_value(parameter, [&](std::size_t to, std::size_t from) { held[to] = whole.values[from]; });
        store.write(*rank->context, parameter, which, held);
      }
    }
  }
}

}  // namespace dflop
