#include "experiments/studies/what_if/replay_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/refuse.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/analytic/memory.hpp"
#include "experiments/cli/option_values.hpp"
#include "sim/network/network.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {
namespace {

void add(PriceSources& sum, const PriceSources& sources) {
  sum.exact += sources.exact;
  sum.by_shape += sources.by_shape;
  sum.scaled += sources.scaled;
}

/// Gives a run the names and shapes of stages of the recording that it replaces. Unknown ones stay unknown.
Timeline named_as(const Timeline& recording, Timeline timeline) {
  if (recording.stage_shapes.empty() && timeline.stages.size() == recording.stages.size()) {
    timeline.stages = recording.stages;
    timeline.stage_shapes.clear();
  }
  if (has_pieces_alone(recording)) timeline.collectives = recording.collectives;
  return timeline;
}

PricedProgram apply(const ReplayChange& change, const PricedProgram& before, const RecordedProgram& recorded,
                    int iteration) {
  try {
    return change.apply(before, recorded, iteration);
  } catch (const Error& error) {
    throw Error(error.kind(), error.what(), "what-if '" + change.name + "'");
  }
}

bool has_activations(const ProgramCosts& costs) {
  return std::any_of(costs.activation.begin(), costs.activation.end(),
                     [](Bytes bytes) { return bytes > Bytes{}; });
}

bool has_whole_backwards(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& instruction) { return instruction.op == Op::backward; });
}

bool splits_backward(const StepOrder& order) {
  for (const std::vector<OrderStep>& steps : order) {
    for (const OrderStep& step : steps) {
      if (step.op == Op::backward_input || step.op == Op::backward_weight) return true;
    }
  }
  return false;
}

/// A SplitBackward has the costs of the two parts of a backward pass, in seconds or FLOP.
struct SplitBackward {
  double input = 0;
  double weight = 0;
};

SplitBackward split_by_time(const SumCostModel& cost, const Stage& stage, const Work& work) {
  return {cost.compute(Op::backward_input, stage, work).count(),
          cost.compute(Op::backward_weight, stage, work).count()};
}

/// A head that processes rows in chunks has its backward pass inside the forward pass, so neither part
/// includes it. Only layers are recomputed.
SplitBackward split_by_flop(const ModelSpec& model, const Stage& stage, const Work& work) {
  SplitBackward split;
  Work of_first = work;
  of_first.encoder.second = {};
  if (work.has_second(stage, model))
    split = split_by_flop(model.of_second(), stage_of_second(stage, model), work.of_second());
  const auto add = [&](const Stage& part, bool has_input, bool has_weights) {
    const StageFlop flop = stage_flop(model, part, of_first);
    const double attention = flop.attention.count;
    const double head = model.llm.logits_at_once == 0 ? flop.head.count : 0;
    const double linear = flop.layers.count + flop.ends.count + head;
    const double again = stage.recomputation == Recomputation::full        ? flop.layers.count + attention
                         : stage.recomputation == Recomputation::selective ? attention
                                                                           : 0;
    if (has_input) split.input += linear + 2 * attention + again;
    if (has_weights) split.weight += linear + flop.first.count;
  };
  Stage encoder;
  encoder.encoder_layers = stage.encoder_layers;
  encoder.front = stage.front;
  Stage connector;
  connector.connector = stage.connector;
  Stage llm;
  llm.llm_layers = stage.llm_layers;
  llm.head = stage.head;
  const TrainedParts& trained = stage.trained;
  add(encoder, trained.encoder, trained.encoder);
  add(connector, trained.reaches_connector(), trained.connector);
  add(llm, true, trained.llm);
  const double pairs = adapter_flop(model, trained, work.llm).count * stage.llm_layers / model.llm.layers;
  return {split.input + pairs, split.weight + pairs};
}

/// Returns the memory that the backward passes of a program need after they are split; empty if the recording
/// has no memory. Without recomputation, an input part keeps only what was already in memory before it. Only
/// the model shows how much recomputation restores for the weight part.
std::vector<SplitMemory> split_memory(const PricedProgram& before, const ReplayReference& reference,
                                      const NoteOnce& note) {
  const Program& program = before.program;
  if (!has_activations(before.costs) || !knows_shapes(program.stages)) return {};
  const auto recomputes = [](const Stage& stage) { return stage.recomputation != Recomputation::none; };
  if (std::ranges::none_of(program.stages, recomputes)) return {};
  if (!reference.model && !reference.profile) {
    note.say(
        "the memory excludes recomputed activations that weight parts need, because the recording's model "
        "is not known (--profile)");
    return {};
  }
  std::vector<SplitMemory> memory(program.instructions.size());
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op != Op::backward) continue;
    const Stage& stage = program.stages[instruction.stage];
    const Work& work = program.works[instruction.index];
    if (reference.profile) {
      const SumCostModel& cost = *reference.profile;
      memory[i] = {cost.activation_of(Op::backward_input, stage, work),
                   cost.workspace(Op::backward_input, stage, work),
                   cost.workspace(Op::backward_weight, stage, work)};
    } else {
      const ModelSpec& model = *reference.model;
      memory[i] = {split_activation_bytes(stage, model, work) - activation_bytes(stage, model, work),
                   workspace_bytes(Op::backward_input, stage, model, work),
                   workspace_bytes(Op::backward_weight, stage, model, work)};
    }
  }
  return memory;
}

/// Returns the reordering with weight shares and memory, for an order that splits backward passes. Errors use
/// `name` as their subject.
Reordering with_split(const std::string& name, const PricedProgram& before, Reordering reordering,
                      const ReplayReference& reference, const NoteOnce& note) {
  const Program& program = before.program;
  if (!has_whole_backwards(program)) return reordering;
  reordering.split_memory = split_memory(before, reference, note);
  if (reordering.weight_share) return reordering;
  reordering.weight_shares = weight_shares(program, reference);
  if (!reordering.weight_shares.empty()) return reordering;
  refuse_input("",
               "{} splits backwards, but the recorded ones are whole; give the weight part of a backward "
               "with '--weight-share', or of each stage with '--profile'",
               name);
}

/// Fills in the memory that instructions keep and need if the recording does not have it, as in live
/// recordings.
void fill_memory(RecordedProgram& recorded, const ReplayReference& reference) {
  if (recorded.memory || !reference.profile || !knows_shapes(recorded.program.stages)) return;
  ProgramCosts costs = reference.profile->price(recorded.program);
  recorded.costs.activation = std::move(costs.activation);
  recorded.costs.workspace = std::move(costs.workspace);
  recorded.memory = true;
}

std::string order_name(std::string name, const Reordering& reordering) {
  if (reordering.microbatches == 0) return name;
  return fmt::format("{}{}{} microbatches", name, name.empty() ? "" : ", ", reordering.microbatches);
}

/// Returns whether the rank with the last stage of the first chunk also has the first stage of the second
/// chunk.
bool turns_at_last_rank(const Program& program, int ranks) {
  for (const Group& group : program.groups) {
    if (group.stage != ranks - 1) continue;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      if (program.instructions[i].stage == ranks) return true;
    }
  }
  return false;
}

/// Returns the shape with which a user's order is parsed.
PipelineShape order_shape(const Program& program, const Reordering& reordering) {
  std::set<std::int32_t> ranks;
  for (const Group& group : program.groups) ranks.insert(group.stage);
  if (ranks.empty() || program.stages.size() % ranks.size() != 0) {
    refuse_input("", "expected the same number of stages on each pipeline rank, found {} stages on {} ranks",
                 program.stages.size(), ranks.size());
  }
  PipelineShape shape;
  shape.ranks = static_cast<int>(ranks.size());
  shape.chunks = static_cast<int>(program.stages.size() / ranks.size());
  shape.microbatches = reordering.microbatches > 0 ? reordering.microbatches : program.microbatches;
  if (shape.chunks > 1) {
    shape.kind = OrderKind::interleaved;
    shape.placement = turns_at_last_rank(program, shape.ranks) ? Placement::v : Placement::round_robin;
  }
  return shape;
}

/// A Role describes which collectives a group enters in a step: for each queue, the numbers of participants
/// and of collectives, in ascending order.
using Role = std::vector<std::pair<std::size_t, std::size_t>>;

/// An Entries has the times at which a group enters collectives.
struct Entries {
  Role role;
  std::vector<std::pair<std::size_t, std::size_t>> place;  ///< queue of the role and number in it, in program
                                                           ///< order
  std::vector<Nanoseconds> computed;                       ///< compute time before each entry, and in total
};

/// Returns a group's entries. Its queues are numbered in order of the number of participants, the number of
/// collectives, the distance of the first two participants, and the first use.
Entries entries_of(const PricedProgram& priced, const Group& group) {
  struct Queue {
    std::tuple<std::size_t, std::size_t, std::int32_t, std::size_t> order;
    std::int32_t queue = 0;
  };
  const Program& program = priced.program;
  Entries entries;
  std::vector<Queue> queues;
  Nanoseconds sum{0};
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    if (enters_collective(program.instructions[i].op)) {
      const Collective& collective = program.collectives[program.instructions[i].index];
      const std::vector<std::int32_t>& groups = collective.groups;
      auto own = std::ranges::find(queues, collective.queue, &Queue::queue);
      if (own == queues.end()) {
        const std::int32_t apart = groups.size() > 1 ? groups[1] - groups[0] : 0;
        own = queues.insert(own, {{groups.size(), 0, apart, queues.size()}, collective.queue});
      }
      entries.place.emplace_back(collective.queue, std::get<1>(own->order)++);
      entries.computed.push_back(sum);
    }
    sum += priced.costs.instruction[i];
  }
  entries.computed.push_back(sum);
  std::ranges::sort(queues, {}, &Queue::order);
  std::map<std::size_t, std::size_t> number;
  for (const Queue& queue : queues) {
    number.emplace(queue.queue, number.size());
    entries.role.emplace_back(std::get<0>(queue.order), std::get<1>(queue.order));
  }
  for (auto& [queue, index] : entries.place) queue = number.at(queue);
  return entries;
}

/// Returns the median compute time before each of the entries, and in total, over the groups with the same
/// role whose ranks are not in `ranks`. @throws Error (usage) if there is no such group
std::vector<Nanoseconds> others_median(const PricedProgram& priced, const Group& group,
                                       const Entries& entries, const std::vector<int>& ranks) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Nanoseconds>> times;
  std::vector<Nanoseconds> in_all;
  for (const Group& other : priced.program.groups) {
    if (std::ranges::find(ranks, other.first_rank) != ranks.end()) continue;
    const Entries theirs = entries_of(priced, other);
    if (theirs.role != entries.role) continue;
    for (std::size_t k = 0; k < theirs.place.size(); ++k)
      times[theirs.place[k]].push_back(theirs.computed[k]);
    in_all.push_back(theirs.computed.back());
  }
  if (in_all.empty()) {
    refuse_option(
        "as-others",
        fmt::format("expected another rank that enters {} collectives in the step, each with as many "
                    "ranks as on rank {}, found none",
                    entries.place.size(), group.first_rank));
  }
  const auto median = [](std::vector<Nanoseconds>& of_ranks) {
    std::ranges::sort(of_ranks);
    return of_ranks[(of_ranks.size() - 1) / 2];
  };
  std::vector<Nanoseconds> medians;
  for (const auto& place : entries.place) medians.push_back(median(times.at(place)));
  medians.push_back(median(in_all));
  return medians;
}

/// Scales a group's compute to the wanted compute time before each collective, as far as the group computes
/// anything before it.
void compute_up_to_entries(const Program& program, ProgramCosts& costs, const Group& group,
                           const std::vector<Nanoseconds>& own, const std::vector<Nanoseconds>& wanted) {
  Nanoseconds done{0};
  std::size_t k = 0;
  const auto factor = [&] {
    const Nanoseconds piece = own[k] - (k > 0 ? own[k - 1] : Nanoseconds(0));
    const Nanoseconds left = std::max(Nanoseconds(0), wanted[k] - done);
    return piece.count() > 0 ? Seconds(left) / Seconds(piece) : 0;
  };
  double scale = factor();
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    costs.set_duration(i, to_nanoseconds(Seconds(costs.instruction[i]) * scale));
    done += costs.instruction[i];
    if (!enters_collective(program.instructions[i].op)) continue;
    ++k;
    scale = factor();
  }
}

ConditionedProgram condition(const ReplayConditions& conditions, const PricedProgram& priced, int cores) {
  const NetworkModel network = conditions.what_if.network.value_or(NetworkModel::latency_bandwidth);
  const Program& program = priced.program;
  if (network == NetworkModel::contention && program.gpus() > conditions.cluster->gpus()) {
    refuse_option("cluster",
                  fmt::format("expected at least the {} GPUs of the recording, found '{}' with {}",
                              program.gpus(), conditions.cluster->name, conditions.cluster->gpus()));
  }
  const NetworkMaker make_network = [&](const std::vector<double>& bandwidth_factor) {
    return cluster_network(program, *conditions.cluster, bandwidth_factor);
  };
  return {conditions.what_if, program, priced.costs, network, make_network, cores};
}

}  // namespace

bool knows_shapes(std::span<const Stage> stages) {
  return !stages.empty() && std::all_of(stages.begin(), stages.end(), [](const Stage& stage) {
    return stage.encoder_layers + stage.llm_layers > 0 || stage.connector || stage.embedding || stage.head;
  });
}

ReplayChange other_plan(const std::string& name, const PlanFiles& files, const std::string& schedule_file,
                        RecordedPart part, PricedParts& parts) {
  return {name, [=, &files, &parts](const PricedProgram&, const RecordedProgram& recorded, int iteration) {
            const ScheduleFile& schedule = files.schedule;
            const Target& target = files.target;
            auto number = static_cast<std::size_t>(part.first + iteration);
            if (part.repeats) number %= schedule.iterations.size();
            if (number >= schedule.iterations.size()) {
              refuse_input(schedule_file, "expected a schedule that has iteration {}, found {} iterations",
                           number, schedule.iterations.size());
            }
            const ScheduledIteration& scheduled = schedule.iterations[number];
            PricedProgram result =
                make_iteration(target.problem(), files.plan, scheduled.samples, scheduled.assignment);
            PricedParts found;
            const RecordedCostModel cost(recorded, target.cost, target.cluster);
            result.costs = cost.price(result.program, found);
            add(parts.instructions, found.instructions);
            add(parts.messages, found.messages);
            add(parts.collectives, found.collectives);
            return result;
          }};
}

std::vector<double> weight_shares(const Program& program, const ReplayReference& reference) {
  if (!knows_shapes(program.stages) || (!reference.profile && !reference.model)) return {};
  std::vector<SplitBackward> of(program.stages.size());
  for (const Instruction& i : program.instructions) {
    if (i.op != Op::backward) continue;
    const Stage& stage = program.stages[i.stage];
    const Work& work = program.works[i.index];
    const SplitBackward parts = reference.profile ? split_by_time(*reference.profile, stage, work)
                                                  : split_by_flop(*reference.model, stage, work);
    of[i.stage].input += parts.input;
    of[i.stage].weight += parts.weight;
  }
  std::vector<double> shares;
  for (const SplitBackward& parts : of) {
    const double whole = parts.input + parts.weight;
    shares.push_back(whole > 0 ? parts.weight / whole : 0);
  }
  return shares;
}

ReplayChange other_order(std::optional<OrderKind> wanted, const Reordering& reordering,
                         const ReplayReference& reference) {
  const NoteOnce note;
  return {order_name(wanted ? std::string(to_string(*wanted)) : "", reordering),
          [=](const PricedProgram& before, const RecordedProgram&, int) {
            Reordering known = reordering;
            if (has_activations(before.costs)) known.usable_memory = reference.usable_memory;
            const auto kind =
                wanted ? wanted : order_kind_of(before.program, before.costs, known.usable_memory);
            if (!kind) {
              refuse_input("",
                           "the recorded order matches no known schedule; name one with "
                           "'--pipeline-schedule'");
            }
            const Reordering split = splits_backward(*kind) ? with_split(std::string(to_string(*kind)),
                                                                         before, known, reference, note)
                                                            : known;
            const StepOrder order = order_of_kind(before.program, before.costs, *kind, split);
            return reorder(before.program, before.costs, order, split);
          }};
}

ReplayChange user_order(const std::string& file, const std::string& json, const Reordering& reordering,
                        const ReplayReference& reference) {
  const NoteOnce note;
  return {order_name("order " + file, reordering),
          [=](const PricedProgram& before, const RecordedProgram&, int) {
            const StepOrder order = parse_order(json, file, order_shape(before.program, reordering)).ranks;
            const Reordering split =
                splits_backward(order) ? with_split(file, before, reordering, reference, note) : reordering;
            return reorder(before.program, before.costs, order, split);
          }};
}

ReplayChange other_links(double latency_scale, double bandwidth_scale,
                         const std::optional<ClusterSpec>& cluster) {
  const NoteOnce note;
  const auto has_any = std::make_shared<bool>(false);  // in any iteration
  return {fmt::format("latency x {}, bandwidth x {}", latency_scale, bandwidth_scale),
          [=](const PricedProgram& before, const RecordedProgram&, int) {
            PricedProgram result = before;
            *has_any = *has_any || !result.program.messages.empty() || !result.program.collectives.empty();
            const std::size_t unknown =
                rescale_links(result.program, result.costs, cluster, latency_scale, bandwidth_scale);
            if (unknown > 0) {
              note.say(fmt::format(
                  "latency and bandwidth of {} messages and collectives could not be told apart, because "
                  "their sizes are similar or their times are noisy: all of their time counts as bandwidth, "
                  "and '--latency-scale' does not change it",
                  unknown));
            }
            return result;
          },
          [=] {
            if (*has_any) return;
            note.say_that("latency-scale' and '--bandwidth-scale",
                          "there are neither messages nor reductions");
          }};
}

ReplayChange as_others(const std::vector<int>& ranks) {
  return {fmt::format("as-others {}", fmt::join(ranks, ",")),
          [=](const PricedProgram& before, const RecordedProgram&, int) {
            PricedProgram result = before;
            std::set<int> there;
            for (const Group& group : before.program.groups) {
              there.insert(group.first_rank);
              if (std::ranges::find(ranks, group.first_rank) == ranks.end()) continue;
              const Entries entries = entries_of(before, group);
              compute_up_to_entries(result.program, result.costs, group, entries.computed,
                                    others_median(before, group, entries, ranks));
            }
            for (const int rank : ranks) {
              if (there.contains(rank)) continue;
              refuse_value("as-others", fmt::format("ranks of {}", fmt::join(there, ", ")),
                           std::to_string(rank));
            }
            return result;
          }};
}

ReplayedIteration replay_iteration(const RecordedIteration& iteration,
                                   const std::vector<ReplayChange>& changes,
                                   const ReplayConditions& conditions, Detail detail,
                                   ReplaySequence* sequence) {
  const Timeline& recording = iteration.timeline;
  RecordedProgram recorded = recorded_program(recording, iteration.file, iteration.number);
  fill_memory(recorded, conditions.reference);
  const bool conditioned = !conditions.name.empty();
  const auto detail_of = [&](std::size_t k) {
    return k == changes.size() && !conditioned ? detail : Detail::usage;
  };
  const bool repeats = conditions.what_if.repeat > 1;
  if (sequence != nullptr && sequence->rows.empty()) {
    sequence->rows.assign(changes.size() + 2, start_of(recording));
    if (repeats) sequence->repeated.assign(conditions.what_if.repeat, start_of(recording));
  }
  const auto start_of_row = [&](std::size_t k) { return sequence ? &sequence->rows[k] : nullptr; };
  ReplayedIteration result;
  std::vector<ReplayRun>& runs = result.runs;
  runs.push_back({"recorded", recording, peak_memory(recording) > Bytes{}});
  PricedProgram priced = recorded;
  const auto add_run = [&](const std::string& name, std::size_t k, bool memory) {
    const Conditions as_recorded{.cores = recording.cores};
    Timeline timeline =
        simulate_next(priced.program, priced.costs, detail_of(k), as_recorded, start_of_row(k));
    runs.push_back({name, named_as(recording, std::move(timeline)), memory});
  };
  add_run("replayed", 0, recorded.memory);
  for (std::size_t k = 0; k < changes.size(); ++k) {
    priced = apply(changes[k], priced, recorded, iteration.number);
    add_run(changes[k].name, k + 1, recorded.memory || has_activations(priced.costs));
  }
  if (!conditioned && !repeats) return result;
  const ConditionedProgram program = condition(conditions, priced, recording.cores);
  const auto run_again = [&](std::size_t repetition, Detail kept, StepStart* start) {
    const ProgramCosts costs = program.costs(repetition * conditions.iterations + iteration.number);
    return simulate_next(priced.program, costs, kept, program.conditions(), start);
  };
  if (conditioned) {
    Timeline timeline = run_again(0, detail, start_of_row(changes.size() + 1));
    const bool memory = runs.back().memory;
    runs.push_back({conditions.name, named_as(recording, std::move(timeline)), memory});
  }
  if (repeats && runs.back().timeline.stalls.empty()) {
    result.repeated = run_all(conditions.what_if.repeat, [&](std::size_t repetition) {
      StepStart* start = sequence ? &sequence->repeated[repetition] : nullptr;
      return time_to_end(run_again(repetition, Detail::usage, start));
    });
  }
  return result;
}

}  // namespace dflop
