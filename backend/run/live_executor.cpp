#include "backend/run/live_executor.hpp"

#include <algorithm>
#include <exception>

#include "backend/model/made_up.hpp"
#include "backend/model/parameter_list.hpp"
#include "backend/run/live_checkpoint.hpp"
#include "backend/run/live_timeline.hpp"
#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "traces/checkpoints/folder.hpp"

namespace dflop {
namespace {

std::size_t group_of(const Program& layout, int rank) {
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const Group& group = layout.groups[g];
    if (rank >= group.first_rank && rank < group.first_rank + group.ranks) return g;
  }
  throw Error(ErrorKind::internal, "rank " + std::to_string(rank) + " is in no group");
}

/// A tp group begins an instruction when its last rank begins, and ends it when its last rank ends. A message
/// counts as sent when the first rank sends, which always has something to send.
void add_lockstep(std::vector<LiveSpan>& group, const std::vector<LiveSpan>& rank,
                  const Instruction* instructions) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i].start = std::max(group[i].start, rank[i].start);
    group[i].end = std::max(group[i].end, rank[i].end);
    if (!is_send(instructions[i].op)) group[i].arrival = std::max(group[i].arrival, rank[i].arrival);
  }
}

/// Returns, for each stage, the first group that holds it.
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

/// Merges a rank's record, written by step(), into its group's record. The group's first rank must come
/// before the others.
void add_to(std::vector<GroupRecord>& records, const Program& program, ByteReader& reader,
            LiveResult& result) {
  const auto group = reader.get<std::size_t>();
  const bool first = reader.get<int>() == 0;
  GroupRecord& record = records.at(group);
  const auto own_loss = reader.get<double>();
  if (reader.get<bool>()) result.gradient_norm = reader.get<double>();
  const auto state = reader.get<ModelState>();
  std::vector<LiveSpan> spans = reader.get_all<LiveSpan>();
  result.kernels.push_back(reader.get_all<KernelObservation>());
  if (first) {
    result.loss += own_loss;
    record = {std::move(spans), state};
  } else {
    const auto begin = static_cast<std::size_t>(program.groups[group].begin);
    add_lockstep(record.spans, spans, &program.instructions[begin]);
  }
}

/// Checks that the world places ranks on devices as the plan does.
void require_places(const Plan& plan, const World& world) {
  const int shared = plan.layout == Layout::shared ? plan.gpus() : 0;
  if (world.shared_devices() == shared) return;
  if (world.shared_devices() == 0) {
    refuse_input("",
                 "key 'layout': a shared plan needs ranks that share devices, but the ranks of {} have "
                 "one device each",
                 world.device_name());
  }
  refuse_input("", "key 'layout': expected a shared plan on {} devices of {}, found a {} plan on {}",
               world.shared_devices(), world.device_name(), to_string(plan.layout), plan.gpus());
}

}  // namespace

/// A Rank is one rank of this process and all objects that it owns.
struct LiveExecutor::Rank {
  Rank(const LiveExecutor& of, const Program& layout, int number, const LiveOptions& options)
      : rank(number),
        group(group_of(layout, number)),
        parts(of.world_, number, options.dtype),
        context(context_in(layout.groups[group], of.plan_.sequence_parallel)),
        turn(of.world_.make_turn(number, context.tp)),
        live(of.plan_, of.model_, layout, group, of.seed_, options.weights, context, turn.get()) {}

  RankContext context_in(const Group& own, bool sequence_parallel) const {
    return context_of(parts, consecutive_ranks(own.first_rank, own.ranks), rank - own.first_rank,
                      sequence_parallel);
  }

  int rank;
  std::size_t group;
  LocalRank parts;
  RankContext context;
  std::unique_ptr<ComputeTurn> turn;
  LiveRank live;
};

std::string why_untrainable(const TrainedParts& trained) {
  if (trained.lora_rank > 0)
    return fmt::format("live ranks do not train with LoRA, found rank {}", trained.lora_rank);
  const std::vector<std::string_view> frozen = frozen_parts(trained);
  if (frozen.empty()) return "";
  std::string rates;
  for (const std::string_view part : frozen)
    rates += fmt::format("{}--{}-rate 0", rates.empty() ? "" : " ", part);
  return fmt::format(
      "live ranks train all parts, found only {}; 'dflop train {}' keeps the weights of {} unchanged, at the "
      "cost of training",
      describe(trained), rates, frozen.size() == 1 ? "this part" : "these parts");
}

void require_live(const Plan& plan) {
  if (plan.optimizer_states != OptimizerStates::fp32) {
    refuse_input("", "key 'optimizer_states': live ranks keep gradients and Adam's states in fp32, found {}",
                 to_string(plan.optimizer_states));
  }
  if (const std::string why = why_untrainable(plan.trained); !why.empty())
    refuse_input("", "key '{}': {}", plan.trained.lora_rank > 0 ? "lora_rank" : "frozen", why);
  if (has_encoder_ranks(plan.layout) && plan.reshard != Reshard::direct) {
    refuse_input("", "key 'reshard': live runs support only reshard direct, found {}",
                 to_string(plan.reshard));
  }
}

LiveExecutor::LiveExecutor(const Plan& plan, const ModelSpec& model, World& world, const LiveOptions& options)
    : plan_(plan), model_(model), world_(world), seed_(options.seed), contents_(options.contents) {
  if (contents_ == nullptr) contents_ = std::make_shared<MadeUpContents>(model, options.seed, options.dtype);
  if (world.ranks() != plan.ranks()) {
    throw Error(ErrorKind::input, "the plan is for " + std::to_string(plan.ranks()) +
                                      " ranks, this run has " + std::to_string(world.ranks()));
  }
  require_live(model);
  require_live(plan);
  require_places(plan, world);
  const Program layout = lower_without_work(plan, model);
  stages_ = layout.stages;
  first_groups_ = first_groups(layout);
  try {
    for (const int rank : world.local_ranks()) {
      ranks_.push_back(std::make_unique<Rank>(*this, layout, rank, options));
    }
  } catch (const std::exception& error) {
    world.abort(error.what());  // otherwise the others would wait for this process's ranks
    throw;
  }
}

LiveExecutor::~LiveExecutor() = default;

Timeline LiveExecutor::run(const Iteration& iteration, Detail detail) const {
  StepOptions options;
  options.optimizer.learning_rate = 0;
  Timeline timeline = step(iteration, options).timeline;
  if (detail == Detail::usage) {
    timeline.spans.clear();
    timeline.memory.clear();
    timeline.works.clear();
  }
  return timeline;
}

void LiveExecutor::require_own(const Iteration& iteration, const StepOptions& options) const {
  const Program& program = iteration.program;
  if (iteration.plan != plan_ || program.stages != stages_ || program.ranks() != world_.ranks()) {
    throw Error(ErrorKind::internal, "the program of the step and its executor have different plans");
  }
  if (!options.delays.empty() && options.delays.size() != program.instructions.size()) {
    throw Error(ErrorKind::internal, "the step needs one delay for each instruction of its program");
  }
}

/// Returns the receives that ranks must enter ahead so that no rank waits forever. @throws Error (input) if
/// ranks would deadlock nevertheless
LiveExecutor::Entries LiveExecutor::entries_of(const Iteration& iteration) const {
  const bool needs_them = std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank->parts.communicator->posts_receives();
  });
  if (!needs_them) return {{}, true};
  ReceivePosts posts = post_receives(iteration.program);
  if (progresses_with_early_sums(iteration.program, posts)) return {std::move(posts), true};
  try {
    require_progress(iteration.program, posts);
  } catch (const Error& error) {
    std::string orders;
    for (const OrderTraits& order : pipeline_orders()) {
      if (fits(order, plan_.layout)) orders += (orders.empty() ? "" : ", ") + std::string(order.name);
    }
    refuse_input(
        "order " + std::string(to_string(plan_.order)),
        "ranks of several processes cannot run the program: {}; the orders {} can always run as dflop "
        "makes them",
        error.what(), orders);
  }
  return {std::move(posts), false};
}

BatchContent LiveExecutor::content_of(const Iteration& iteration, const Contents& contents) const {
  return {plan_, model_, iteration.samples, iteration.assignment, contents};
}

StepInputs LiveExecutor::make_inputs(const Iteration& iteration) const {
  const BatchContent content = content_of(iteration, *contents_);
  StepInputs inputs;
  for (const auto& rank : ranks_) inputs.push_back(rank->live.make_inputs(iteration.program, content));
  return inputs;
}

bool LiveExecutor::is_synchronous() const {
  return ranks_.front()->parts.device->is_synchronous();
}

LiveResult LiveExecutor::step(const Iteration& iteration, const StepOptions& options,
                              StepInputs inputs) const {
  require_own(iteration, options);
  const std::lock_guard turn(turn_);
  std::optional<BatchContent> content;  // each rank makes its inputs from it in its own thread
  if (inputs.empty()) {
    content.emplace(content_of(iteration, options.contents != nullptr ? *options.contents : *contents_));
    inputs.resize(ranks_.size());
  }
  const Entries entries = entries_of(iteration);
  const LiveStep step{iteration.program, options, entries.posts, entries.starts_sums};
  std::vector<LiveRankResult> results(ranks_.size());
  run_in_threads(ranks_.size(), {[&](std::size_t i) {
                                   ranks_[i]->parts.device->enter_thread();
                                   LiveRank& live = ranks_[i]->live;
                                   if (content) inputs[i] = live.make_inputs(step.program, *content);
                                   live.prepare(step, std::move(inputs[i]));
                                 },
                                 [&](std::size_t i) { results[i] = ranks_[i]->live.run(step); },
                                 [&](std::size_t i, const std::string& message) {
                                   ranks_[i]->parts.communicator->abort(message);
                                 }});
  ByteWriter own;
  // Added to a time of this process, it gives the time on the leading process's clock.
  const Nanoseconds offset = world_.clock_offset();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    for (LiveSpan& span : results[i].spans) {
      for (Nanoseconds* time : {&span.start, &span.end, &span.arrival}) *time += offset;
    }
    own.add(ranks_[i]->group);
    own.add(ranks_[i]->context.tp_rank);
    own.add(results[i].loss);
    own.add(results[i].gradient_norm.has_value());
    if (results[i].gradient_norm) own.add(*results[i].gradient_norm);
    own.add(ranks_[i]->live.model_state());
    own.add(results[i].spans);
    own.add(results[i].kernels);
  }
  return joined(step.program, world_.gather(own.take()));
}

/// Combines the records of all processes, in order; returns nothing if they are not known in this process.
LiveResult LiveExecutor::joined(const Program& program, const std::vector<std::string>& processes) const {
  LiveResult result;
  if (processes.empty()) return result;
  std::vector<GroupRecord> records(program.groups.size());
  for (const std::string& process : processes) {
    for (ByteReader reader(process); !reader.at_end();) add_to(records, program, reader, result);
  }
  result.timeline = live_timeline(program, records, world_.device_name());
  result.timeline.cores = world_.cores();
  return result;
}

VariantNames LiveExecutor::variant_names() const {
  return ranks_.front()->parts.kernels->variant_names();
}

Bytes LiveExecutor::in_use(int rank) const {
  for (const auto& local : ranks_) {
    if (local->rank == rank) return local->parts.device->in_use();
  }
  throw Error(ErrorKind::internal, "rank " + std::to_string(rank) + " is not of this process");
}

WholeTensors LiveExecutor::read(ParameterStore::Kind which) {
  ByteWriter own;
  for (const auto& rank : ranks_) {
    for (const LiveRank::HeldStage& stage : rank->live.stages()) {
      ParameterStore& store = stage.module->parameters();
      const bool first = first_groups_[static_cast<std::size_t>(stage.stage)] == rank->group;
      if (!first && store.holds_all(which)) continue;  // these are copies of the first group's values
      for (const Parameter& parameter : store.list()) {
        const Range held = store.held(parameter, which);
        if (held.size() == 0) continue;
        add_part(own, parameter, held, store.read(rank->context, parameter, which));
      }
    }
  }
  WholeTensors tensors;
  for (const std::string& process : world_.gather(own.take())) merge_parts(process, tensors);
  return tensors;
}

void LiveExecutor::write(ParameterStore::Kind which, const WholeTensors& tensors) {
  const bool alone = world_.local_ranks().size() == static_cast<std::size_t>(world_.ranks());
  WholeTensors sent;
  if (!alone) merge_parts(world_.broadcast(world_.leads() ? to_bytes(tensors) : ""), sent);
  const WholeTensors& all = alone ? tensors : sent;
  for (const auto& rank : ranks_) {
    for (const LiveRank::HeldStage& stage : rank->live.stages()) {
      ParameterStore& store = stage.module->parameters();
      for (const Parameter& parameter : store.list()) {
        const auto found = all.find(parameter.name);
        if (found == all.end()) {
          throw Error(ErrorKind::input, "tensor '" + parameter.name + "' is missing");
        }
        store.write(rank->context, parameter, which, part_of(found->second, parameter));
      }
    }
  }
}

/// Returns the index with the files and pieces that all ranks must write, in all processes.
CheckpointIndex LiveExecutor::divided(const CheckpointIndex& index, bool weights_alone) {
  ByteWriter own;
  for (const auto& rank : ranks_) {
    add_held_parts(own, held_parts(rank->live.stages(), rank->rank, weights_alone));
  }
  const std::vector<std::string> processes = world_.gather(own.take());
  std::string text;
  if (world_.leads()) {
    std::vector<HeldPart> parts;
    for (const std::string& process : processes) {
      ByteReader reader(process);
      for (HeldPart& part : get_held_parts(reader)) parts.push_back(std::move(part));
    }
    CheckpointIndex made = index;
    made.dtype = dtype_of_index(ranks_.front()->context.kernels.dtype());
    divide_among_files(parts, made);
    text = to_json(made);
  }
  return parse_checkpoint_index(world_.broadcast(text), "the index of a checkpoint");
}

/// Writes the files of an index, each rank its own. The leading process then gets their sizes and checksums.
void LiveExecutor::write_files(const std::string& folder, CheckpointIndex& index) {
  const auto files = [&](const Rank& rank) {
    std::vector<std::size_t> own;  // one file, or none for a rank that holds only copies
    for (std::size_t f = 0; f < index.files.size(); ++f) {
      if (index.files[f].name == rank_file_name(rank.rank)) own.push_back(f);
    }
    return own;
  };
  std::vector<CheckpointFile> written(index.files.size());
  do_in_all(world_, [&] {
    run_in_threads(ranks_.size(), {[&](std::size_t i) { ranks_[i]->parts.device->enter_thread(); },
                                   [&](std::size_t i) {
                                     Rank& rank = *ranks_[i];
                                     for (const std::size_t f : files(rank)) {
                                       written[f] =
                                           write_pieces(rank.context, rank.live.stages(), folder, index, f);
                                     }
                                   },
                                   [](std::size_t, const std::string&) {}});
  });
  ByteWriter own;
  for (const auto& rank : ranks_) {
    for (const std::size_t f : files(*rank)) {
      own.add(f);
      own.add(written[f].bytes);
      own.add(written[f].crc32);
    }
  }
  for (const std::string& process : world_.gather(own.take())) {
    for (ByteReader reader(process); !reader.at_end();) {
      CheckpointFile& file = index.files.at(reader.get<std::size_t>());
      file.bytes = reader.get<std::uint64_t>();
      file.crc32 = reader.get<std::uint32_t>();
    }
  }
}

void LiveExecutor::save(const std::string& folder, const CheckpointIndex& wanted) {
  CheckpointIndex index = divided(wanted, false);
  std::string part;
  do_in_all(world_, [&] {
    if (world_.leads()) part = begin_checkpoint(folder, index.step);
  });
  part = world_.broadcast(part);
  try {
    write_files(part, index);
    do_in_all(world_, [&] {
      if (world_.leads()) finish_checkpoint(folder, index);
    });
  } catch (...) {
    if (world_.leads()) discard_checkpoint(folder, index.step);  // a partial checkpoint may fill the disk
    throw;
  }
}

void LiveExecutor::save_weights(const std::string& folder) {
  CheckpointIndex index = divided({}, true);
  write_files(folder, index);
  do_in_all(world_, [&] {
    if (world_.leads()) write_checkpoint_index(folder, index);
  });
}

void LiveExecutor::load(const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  run_in_threads(ranks_.size(),
                 {[&](std::size_t i) { ranks_[i]->parts.device->enter_thread(); },
                  [&](std::size_t i) { read_pieces(ranks_[i]->context, ranks_[i]->live.stages(), reader); },
                  [](std::size_t, const std::string&) {}});
}

}  // namespace dflop
