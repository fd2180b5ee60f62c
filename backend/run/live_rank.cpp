#include "backend/run/live_rank.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include "backend/run/warm_up.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

bool makes_input_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}

bool makes_weight_gradient(Op op) {
  return op == Op::backward || op == Op::backward_weight;
}

std::string place_of(const Instruction& instruction) {
  return std::string(to_string(instruction.op)) + " of microbatch " + std::to_string(instruction.microbatch) +
         " on stage " + std::to_string(instruction.stage);
}

/// Returns the range of one part of rows that are divided into consecutive parts of these sizes.
Range part_of(const std::vector<std::int64_t>& sizes, std::int32_t part) {
  const std::int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + part, std::int64_t{0});
  return {begin, begin + sizes[static_cast<std::size_t>(part)]};
}

/// Returns the collective in which a group reduces the gradients of a stage; null with one dp rank.
const Collective* reduction_of(const Program& program, std::size_t group, int stage) {
  for (const Instruction& i : program.instructions_of(program.groups[group])) {
    if (!ends_collective(i.op) || i.stage != stage) continue;
    const Collective& collective = program.collectives[static_cast<std::size_t>(i.index)];
    if (collective.sum == CollectiveSum::gradients) return &collective;
  }
  return nullptr;
}

/// Returns the context of a rank in the tp group of its copy of a stage with this tp.
RankContext in_copy(const RankContext& rank, int tp) {
  RankContext context = rank;
  const auto first = rank.tp.ranks.begin() + rank.tp_rank / tp * tp;
  context.tp.ranks.assign(first, first + tp);
  context.tp_rank = rank.tp_rank % tp;
  return context;
}

}  // namespace

std::int64_t LiveRank::HeldStage::output_rows(const StageInput& input) const {
  if (copies == 1) return module->output_rows(input);
  const std::vector<std::int64_t>& rows = input.encoder->rows_of_copies;
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

LiveRank::LiveRank(const Plan& plan, const ModelSpec& model, const Program& layout, std::size_t group,
                   std::uint64_t seed, const WeightSource* weights, const RankContext& rank,
                   ComputeTurn* turn)
    : plan_(plan),
      group_(group),
      dp_rank_(layout.groups[group].dp_rank),
      rank_(rank),
      turn_(turn),
      guide_(rank.kernels.dtype()),
      loss_(rank, 1, 1),
      checked_(rank, 1, plan.clip_gradients ? 2 : 0) {
  const std::vector<StagePlace> places = stage_places(layout.stages);
  for (const Instruction& instruction : layout.instructions_of(layout.groups[group_])) {
    if (instruction.op != Op::optimizer_step) continue;
    const StagePlace& place = places[instruction.stage];
    const Collective* reduction = reduction_of(layout, group_, instruction.stage);
    HeldStage held{instruction.stage,
                   1,
                   place.stage.copies,
                   rank.tp_rank / place.stage.tp,
                   std::make_unique<const RankContext>(in_copy(rank, place.stage.tp)),
                   nullptr};
    int shard = 0;
    if (plan.zero1 && reduction != nullptr) {
      const auto& groups = reduction->groups;
      held.shards = reduction->participants();
      shard = static_cast<int>(std::find(groups.begin(), groups.end(), static_cast<std::int32_t>(group)) -
                               groups.begin()) *
                  held.copies +
              held.copy;
    }
    held.module = std::make_unique<StageModule>(model, place, held.shards, shard, seed, *held.rank, weights);
    stages_.push_back(std::move(held));
  }
}

ModelState LiveRank::model_state() const {
  ModelState state;
  for (const HeldStage& held : stages_) state += held.module->parameters().memory();
  return state;
}

const LiveRank::HeldStage& LiveRank::held(int stage) const {
  const auto found =
      std::find_if(stages_.begin(), stages_.end(), [&](const HeldStage& h) { return h.stage == stage; });
  if (found == stages_.end()) {
    throw Error(ErrorKind::internal, "stage " + std::to_string(stage) + " is not on this rank");
  }
  return *found;
}

LiveRank::Slot& LiveRank::slot(const Instruction& instruction) {
  const auto found = slots_.find({instruction.stage, instruction.microbatch});
  if (found == slots_.end())
    throw Error(ErrorKind::internal, "no state is kept for " + place_of(instruction));
  return found->second;
}

StageInput LiveRank::input_of(const BatchContent& content, int stage, int microbatch) const {
  const HeldStage& own = held(stage);
  const StageModule& module = *own.module;
  const StagePlace& place = module.place();
  StageInput input;
  input.token_weight = content.token_weight();
  if (place.stage.encoder_layers > 0)
    input.encoder = content.encoder(microbatch, dp_rank_ * own.copies + own.copy, module.takes_values());
  if (place.stage.llm_layers > 0) input.llm = content.llm(microbatch, dp_rank_);
  return input;
}

RankInputs LiveRank::make_inputs(const Program& program, const BatchContent& content) const {
  RankInputs inputs;
  for (const Instruction& i : program.instructions_of(program.groups[group_])) {
    if (i.op == Op::forward) inputs[{i.stage, i.microbatch}] = input_of(content, i.stage, i.microbatch);
  }
  return inputs;
}

void LiveRank::prepare(const LiveStep& step, RankInputs inputs) {
  slots_.clear();
  pieces_.clear();
  weights_left_.clear();
  arrivals_.clear();
  updates_ = false;
  incoming_ = IncomingMessages(step.program, group_);
  std::map<std::pair<int, int>, bool> turned;
  for (const Instruction& i : step.program.instructions_of(step.program.groups[group_])) {
    const std::pair<int, int> key{i.stage, i.microbatch};
    if (i.op == Op::forward) {
      slots_[key].input = std::move(inputs.at(key));
      held(i.stage).module->prepare(slots_[key].input);
    }
    if (makes_input_gradient(i.op)) turned[key] = true;
    if (makes_weight_gradient(i.op)) ++weights_left_[i.stage];
    if (i.op == Op::optimizer_step) updates_ = true;
    if (is_send(i.op)) ++(turned[key] ? slots_[key].gradient_sends : slots_[key].activation_sends);
    if (ends_collective(i.op) &&
        step.program.collectives[static_cast<std::size_t>(i.index)].sum == CollectiveSum::gradients) {
      ++pieces_[i.stage].count;
    }
  }
  const bool warms_up = rank_.communicator.posts_receives() && !std::exchange(is_warm_, true);
  if (warms_up) warm_up();
  rank_.communicator.connect(routes_of(step.program));
  if (rank_.communicator.posts_receives()) meet(step.program);
  if (updates_ || warms_up) {
    for (const HeldStage& held : stages_) begin_gradients(held);
  }
  rank_.kernels.zero(Sums(loss_));
  rank_.kernels.zero(Sums(checked_));
  gradient_norm_.reset();
  gradient_factor_ = 1;
  is_finite_ = true;
  if (step.options.kernels != nullptr) guide_.begin_step(*step.options.kernels);
  rank_.kernels.guide(step.options.kernels != nullptr ? &guide_ : nullptr);
  rank_.compute.synchronize();  // keeps earlier work out of the first instruction's time
}

/// Begins a stage's gradients. They are zeros if the stage has no backward in this step, as for an encoder on
/// more groups than there are microbatches.
void LiveRank::begin_gradients(const HeldStage& held) {
  ParameterStore& parameters = held.module->parameters();
  parameters.begin_gradients();
  if (weights_left_.count(held.stage) == 0) {
    parameters.zero_left_gradients(rank_, 0, parameters.gradients().columns);
  }
}

/// Does a first sum with each group that sums gradients or gathers the outputs of copies. In it the ranks
/// wait for each other and memory is allocated, so that later sums that overlap with a backward need not. All
/// ranks go through the groups in the same order.
void LiveRank::meet(const Program& program) {
  const auto meet_in = [&](const RankGroup& ranks) {
    if (!met_.insert(ranks.ranks).second) return;
    rank_.communicator.all_reduce(loss_.view().data, 1, sum_type_of(rank_.kernels.dtype()), ranks,
                                  rank_.compute, "a first sum");
  };
  for (const Collective& collective : program.collectives) {
    const auto& groups = collective.groups;
    const bool is_in =
        std::find(groups.begin(), groups.end(), static_cast<std::int32_t>(group_)) != groups.end();
    if (is_in && collective.sum == CollectiveSum::gradients) meet_in(ranks_of(program, collective));
  }
  for (const HeldStage& held : stages_) {
    if (held.copies > 1) meet_in(ranks_of_copies(held));
  }
}

/// Runs a forward and backward of warm_up_inputs() of each stage, with arbitrary activations, so that the
/// device has loaded all code before messages are in flight. Gradients and loss are garbage afterwards.
void LiveRank::warm_up() {
  for (const HeldStage& held : stages_) {
    const StageModule& module = *held.module;
    std::vector<const StageInput*> inputs;  // none: a colocated encoder with more groups than microbatches
    for (const auto& [place, s] : slots_) {
      if (place.first == held.stage) inputs.push_back(&s.input);
    }
    for (const StageInput* input : warm_up_inputs(inputs)) {
      StageTape tape;
      module.forward(Tensor(rank_, module.input_rows(*input), module.input_columns()), *input, loss_, tape);
      module.backward(Tensor(rank_, module.output_rows(*input), module.output_columns()), tape);
    }
  }
}

/// Runs the iteration. Only messages may wait for the device; times are read at the end.
LiveRankResult LiveRank::run(const LiveStep& step) {
  const std::span<const Instruction> instructions = step.program.instructions_of(step.program.groups[group_]);
  std::vector<Note> notes;
  std::int64_t place = step.program.groups[group_].begin;
  for (const Instruction& instruction : instructions) {
    for (const std::int32_t message : step.posts.before(place++)) post(step, message);
    notes.push_back(run_noted(step, instruction));
    notes.back().span.instruction = static_cast<std::int32_t>(notes.size() - 1);
  }
  rank_.compute.synchronize();
  LiveRankResult result;
  Nanoseconds last_end{0};
  for (std::size_t i = 0; i < notes.size(); ++i) {
    read_times(notes[i], is_send(instructions[i].op), last_end);
    last_end = notes[i].span.end;
    result.spans.push_back(notes[i].span);
  }
  result.loss = download(rank_, loss_.view().data, sum_type_of(rank_.kernels.dtype()), 1).front();
  result.gradient_norm = gradient_norm_;
  if (step.options.kernels != nullptr) result.kernels = guide_.end_step();
  slots_.clear();
  arrivals_.clear();
  return result;
}

LiveRank::Note LiveRank::run_noted(const LiveStep& step, const Instruction& instruction) {
  Note note;
  note.start = rank_.device.make_event();
  note.end = rank_.device.make_event();
  rank_.device.reset_most_in_use();
  note.span.in_use_before = rank_.device.in_use();
  if (turn_ != nullptr && (is_compute(instruction.op) || instruction.op == Op::optimizer_step)) {
    note.turn_began = turn_->begin();
    in_turn_ = true;
  }
  rank_.compute.record(*note.start);
  run(step, instruction, note);
  delay(step, instruction);
  rank_.compute.record(*note.end);
  end_turn();
  note.span.in_use = rank_.device.in_use();
  note.span.most_in_use = rank_.device.most_in_use();
  return note;
}

/// Adds the step's delay to an instruction that is in the stream.
void LiveRank::delay(const LiveStep& step, const Instruction& instruction) const {
  if (step.options.delays.empty()) return;
  const auto place = static_cast<std::size_t>(&instruction - step.program.instructions.data());
  const Nanoseconds longer = step.options.delays[place];
  if (longer <= Nanoseconds(0)) return;
  rank_.compute.synchronize();
  std::this_thread::sleep_for(std::chrono::nanoseconds(longer));
}

/// Reads the times of an instruction. Devices may round a later time below an earlier one, by less than a
/// microsecond; spans are corrected for that.
void LiveRank::read_times(Note& note, bool sends, Nanoseconds last_end) {
  LiveSpan& span = note.span;
  span.start = std::max(last_end, note.turn_began.value_or(note.start->time()));
  const Nanoseconds end = std::max(span.start, note.end->time());
  if (note.arrival) span.arrival = note.arrival();
  if (sends) span.arrival = span.start;
  if (note.stepped != nullptr) {
    // Gathering counts as part of the optimizer step of the last rank to arrive. For ranks that waited for
    // it, the time counts as idle; otherwise their steps would look as long as if the ranks had gathered one
    // after another.
    const Nanoseconds waited = std::max(Nanoseconds{0}, span.arrival - note.stepped->time());
    span.idle = waited + std::clamp(end - span.arrival, Nanoseconds{0}, waited);
  }
  span.end = std::max(span.start, end - span.idle);
}

void LiveRank::run(const LiveStep& step, const Instruction& instruction, Note& note) {
  switch (instruction.op) {
    case Op::forward:
      return forward(instruction);
    case Op::backward:
    case Op::backward_input:
      return backward(step, instruction);
    case Op::backward_weight:
      return backward_weight(step, instruction);
    case Op::send:
    case Op::reshard_send:
      return send(step, instruction);
    case Op::receive:
    case Op::reshard_receive:
      return receive(step, instruction, note.arrival);
    case Op::all_reduce_start:
      return enter_reduction(instruction);
    case Op::all_reduce:
    case Op::all_reduce_wait:
      return reduce(step, instruction, note.arrival);
    case Op::optimizer_step:
      return optimize(step, instruction, note);
  }
}

/// Passes the result to the neighboring stage if that is on this rank; otherwise keeps it for its sends.
void LiveRank::pass_on(const Instruction& instruction, Tensor& made, int neighbor, int sends,
                       bool activations) {
  const auto next = slots_.find({neighbor, instruction.microbatch});
  if (sends > 0 || next == slots_.end()) return;
  (activations ? next->second.in : next->second.d_out) = std::move(made);
}

/// Returns the tensor for a stage's input, or for the gradient of its output, with memory for the arriving
/// message.
Tensor& LiveRank::arriving(Slot& slot, const HeldStage& held, bool activations) const {
  const StageModule& module = *held.module;
  Tensor& into = activations ? slot.in : slot.d_out;
  if (into.empty()) {
    into = activations ? Tensor(rank_, module.input_rows(slot.input), module.input_columns())
                       : Tensor(rank_, held.output_rows(slot.input), module.output_columns());
  }
  return into;
}

/// Returns the ranks with this rank's tp index in each copy of the stage in this group.
RankGroup LiveRank::ranks_of_copies(const HeldStage& held) const {
  RankGroup group;
  for (int copy = 0; copy < held.copies; ++copy) {
    const int index = copy * held.rank->tp_size() + held.rank->tp_rank;
    group.ranks.push_back(rank_.tp.ranks[static_cast<std::size_t>(index)]);
  }
  return group;
}

/// Returns the output of all copies. `part` is the output of this rank's copy.
Tensor LiveRank::gather_copies(const HeldStage& held, const EncoderInput& input, const Tensor& part) const {
  const std::vector<std::int64_t>& rows = input.rows_of_copies;
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  const std::int64_t columns = held.module->output_columns();
  const std::size_t width = static_cast<std::size_t>(columns) * bytes_of(rank_.kernels.dtype());
  const auto copy = [&](ConstMatrix from, Matrix to, std::int64_t count) {
    if (count > 0) rank_.compute.copy(to.data, from.data, static_cast<std::size_t>(count) * width);
  };
  Tensor padded(rank_, held.copies * most, columns);  // every copy's part has as many rows as the largest
  const Matrix own = rows_of(rank_, Matrix(padded), held.copy * most, most);
  copy(part, own, part.rows());
  rank_.communicator.all_gather(padded.view().data, own.data, static_cast<std::size_t>(most * columns),
                                rank_.kernels.dtype(), ranks_of_copies(held), rank_.compute,
                                "outputs of the encoder's copies");
  Tensor all(rank_, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), columns);
  for (std::int32_t c = 0; c < held.copies; ++c) {
    const Range place = part_of(rows, c);
    copy(rows_of(rank_, ConstMatrix(padded), c * most, most),
         rows_of(rank_, Matrix(all), place.begin, place.size()), place.size());
  }
  return all;
}

/// Returns the rows of this rank's copy from a matrix with the rows of all copies.
Tensor LiveRank::part_of_copy(const HeldStage& held, const EncoderInput& input, const Tensor& all) const {
  const Range place = part_of(input.rows_of_copies, held.copy);
  const ConstMatrix own = rows_of(rank_, ConstMatrix(all), place.begin, place.size());
  Tensor part(rank_, place.size(), all.columns());
  if (own.size() > 0) {
    rank_.compute.copy(part.view().data, own.data,
                       static_cast<std::size_t>(own.size()) * bytes_of(rank_.kernels.dtype()));
  }
  return part;
}

void LiveRank::forward(const Instruction& instruction) {
  Slot& s = slot(instruction);
  const HeldStage& own = held(instruction.stage);
  s.input.turns_back = updates_;
  s.out = own.module->forward(std::move(arriving(s, own, true)), s.input, loss_, s.tape);
  if (own.copies > 1) s.out = gather_copies(own, *s.input.encoder, s.out);
  if (!updates_) s.tape = {};  // no backward follows
  pass_on(instruction, s.out, instruction.stage + 1, s.activation_sends, true);
}

void LiveRank::backward(const LiveStep& step, const Instruction& instruction) {
  Slot& s = slot(instruction);
  const int stage = instruction.stage;
  const HeldStage& own = held(stage);
  const StageModule& module = *own.module;
  const bool whole = instruction.op == Op::backward;
  Tensor& d_out = arriving(s, own, false);
  if (own.copies > 1) d_out = part_of_copy(own, *s.input.encoder, d_out);
  StageModule::Completed completed;
  if (whole && weights_left_[stage] == 1 && !pieces_[stage].entered.empty() && step.starts_sums) {
    completed = [&](std::int64_t from) { start_pieces(step, stage, from); };
  }
  s.d_in = whole ? module.backward(std::move(d_out), s.tape, completed)
                 : module.backward_input(std::move(d_out), s.tape);
  s.turned_back = true;
  pass_on(instruction, s.d_in, stage - 1, s.gradient_sends, false);
  if (whole) count_weights(step, stage);
}

void LiveRank::backward_weight(const LiveStep& step, const Instruction& instruction) {
  held(instruction.stage).module->backward_weight(slot(instruction).tape);
  count_weights(step, instruction.stage);
}

/// Counts backwards of a stage. The last microbatch's backward completes the gradients over this rank's rows;
/// the other tp ranks have the rest.
void LiveRank::count_weights(const LiveStep& step, int stage) {
  if (--weights_left_[stage] > 0) return;
  const HeldStage& own = held(stage);
  ParameterStore& parameters = own.module->parameters();
  const auto pieces = pieces_.find(stage);
  const bool in_pieces = pieces != pieces_.end() && !pieces->second.entered.empty();
  parameters.complete_gradients(*own.rank,
                                in_pieces ? pieces->second.complete_from : parameters.gradients().columns);
  if (step.starts_sums) start_pieces(step, stage, 0);
}

/// Returns the rows of a slot's matrix that a message carries. These are all rows, except between an encoder
/// and an LLM with different dp: then they are the rows that one rank made for the other.
Range LiveRank::rows_with(const LiveStep& step, const Message& message, const Slot& slot, int stage,
                          bool activations) const {
  const HeldStage& own = held(stage);
  const StageModule& module = *own.module;
  const bool into = message.destination == static_cast<std::int32_t>(group_);
  const bool own_input = into == activations;  // otherwise it concerns the output
  const std::int64_t all = own_input ? module.input_rows(slot.input) : own.output_rows(slot.input);
  const int boundary = own_input ? stage - 1 : stage;
  if (!has_encoder_ranks(plan_.layout) || boundary != plan_.encoder.pp - 1) return {0, all};
  const auto peer = static_cast<std::size_t>(into ? message.source : message.destination);
  const auto other = step.program.groups[peer].dp_rank;
  return part_of(own_input ? slot.input.llm->rows_from : slot.input.encoder->rows_to, other);
}

void LiveRank::send(const LiveStep& step, const Instruction& instruction) {
  const Message& message = step.program.messages[static_cast<std::size_t>(instruction.index)];
  Slot& s = slot(instruction);
  const bool activations = !s.turned_back;
  Tensor& made = activations ? s.out : s.d_in;
  int& left = activations ? s.activation_sends : s.gradient_sends;
  const Range rows = rows_with(step, message, s, instruction.stage, activations);
  const ConstMatrix part = rows_of(rank_, ConstMatrix(made), rows.begin, rows.size());
  const Group& peer = step.program.groups[static_cast<std::size_t>(message.destination)];
  const auto bytes = static_cast<std::size_t>(part.size()) * bytes_of(rank_.kernels.dtype());
  // Between encoder and LLM, every rank of the sending tp group holds the whole message, and each receiving
  // rank gets it from one of them. Within a module, both stages have the same tp, and each rank receives from
  // the rank with its own index, which holds the same shard.
  for (const int t : receivers_of(rank_.tp_rank, rank_.tp_size(), peer.ranks)) {
    rank_.communicator.send(part.data, bytes, peer.first_rank + t, rank_.compute, place_of(instruction));
  }
  if (--left == 0) made = {};
}

void LiveRank::receive(const LiveStep& step, const Instruction& instruction, Arrival& arrival) {
  for (const std::int32_t message : incoming_.take_until(instruction.index)) take(step, message);
  arrival = arrivals_.at(instruction.index);
}

/// Returns the destination of a message, with memory for it.
LiveRank::Delivery LiveRank::delivery(const LiveStep& step, std::int32_t index) {
  const Message& message = step.program.messages[static_cast<std::size_t>(index)];
  const auto& [instruction, activations] = incoming_.at(index);
  Slot& s = slot(instruction);
  Tensor& into = arriving(s, held(instruction.stage), activations);
  const Range rows = rows_with(step, message, s, instruction.stage, activations);
  const Matrix part = rows_of(rank_, Matrix(into), rows.begin, rows.size());
  const Group& peer = step.program.groups[static_cast<std::size_t>(message.source)];
  const auto bytes = static_cast<std::size_t>(part.size()) * bytes_of(rank_.kernels.dtype());
  return {part.data, bytes, peer.first_rank + rank_.tp_rank % peer.ranks, place_of(instruction)};
}

/// Receives the next message that a group has sent to this one into its destination.
void LiveRank::take(const LiveStep& step, std::int32_t index) {
  const Delivery to = delivery(step, index);
  rank_.communicator.receive(to.data, to.bytes, to.peer, rank_.compute, to.what);
  arrivals_[index] = rank_.communicator.arrival();
}

void LiveRank::post(const LiveStep& step, std::int32_t index) {
  const Delivery to = delivery(step, index);
  rank_.communicator.post_receive(to.data, to.bytes, to.peer, rank_.compute, to.what);
}

/// Returns the ranks with this rank's tp index in each copy of each of a collective's groups.
RankGroup LiveRank::ranks_of(const Program& program, const Collective& collective) const {
  RankGroup group;
  const int tp = rank_.tp_size() / collective.copies;
  for (const std::int32_t g : collective.groups) {
    const std::int32_t first = program.groups[static_cast<std::size_t>(g)].first_rank;
    for (int copy = 0; copy < collective.copies; ++copy)
      group.ranks.push_back(first + copy * tp + rank_.tp_rank % tp);
  }
  return group;
}

void LiveRank::reduce(const LiveStep& step, const Instruction& instruction, Arrival& arrival) {
  const Collective& collective = step.program.collectives[static_cast<std::size_t>(instruction.index)];
  if (collective.sum == CollectiveSum::joined_ends) return join_ends(step, instruction, arrival);
  if (collective.sum == CollectiveSum::norm) return find_norm(step, instruction, arrival);
  if (instruction.op == Op::all_reduce_wait) {
    finish_piece(step, instruction);
  } else {
    const Range all = piece_of(instruction.stage, 0);
    void* data = gradients_at(instruction.stage, all.begin);
    rank_.communicator.collective(sum_of(instruction.stage, all), data, data,
                                  ranks_of(step.program, collective), rank_.compute);
  }
  arrival = rank_.communicator.arrival();
}

/// Records a piece whose reduction overlaps with the backward that completes it.
void LiveRank::enter_reduction(const Instruction& instruction) {
  Pieces& pieces = pieces_[instruction.stage];
  if (pieces.entered.empty()) {
    pieces.complete_from = held(instruction.stage).module->parameters().gradients().columns;
  }
  pieces.entered.push_back(instruction.index);
}

/// Starts the pieces of a stage whose gradients are complete: those from value `from` on.
void LiveRank::start_pieces(const LiveStep& step, int stage, std::int64_t from) {
  Pieces& pieces = pieces_[stage];
  if (pieces.started.size() == pieces.entered.size()) return;
  held(stage).module->parameters().zero_left_gradients(rank_, from, pieces.complete_from);
  pieces.complete_from = from;
  while (pieces.started.size() < pieces.entered.size()) {
    const std::size_t piece = pieces.started.size();
    const Range range = piece_of(stage, piece);
    if (range.begin < from) return;
    const auto index = static_cast<std::size_t>(pieces.entered[piece]);
    void* data = gradients_at(stage, range.begin);
    pieces.started.push_back(rank_.communicator.start(sum_of(stage, range), data, data,
                                                      ranks_of(step.program, step.program.collectives[index]),
                                                      rank_.compute));
  }
}

void LiveRank::finish_piece(const LiveStep& step, const Instruction& instruction) {
  Pieces& pieces = pieces_[instruction.stage];
  start_pieces(step, instruction.stage, 0);
  const auto found = std::find(pieces.entered.begin(), pieces.entered.end(), instruction.index);
  rank_.communicator.finish(*pieces.started.at(static_cast<std::size_t>(found - pieces.entered.begin())),
                            rank_.compute);
}

/// Returns the range of a stage's gradients that a piece covers. Pieces begin at places that are aligned for
/// vectors, because NCCL handles an unaligned piece value by value.
Range LiveRank::piece_of(int stage, std::size_t piece) const {
  const std::int64_t all = held(stage).module->parameters().gradients().columns;
  const std::int64_t count = pieces_.at(stage).count;
  const std::int64_t behind = count - static_cast<std::int64_t>(piece);
  constexpr std::int64_t kVectors = 64;                               // values
  const std::int64_t grain = all / count >= kVectors ? kVectors : 1;  // no piece is empty
  const auto edge = [&](std::int64_t n) { return n == count ? all : all * n / count / grain * grain; };
  return {edge(behind - 1), edge(behind)};
}

CollectiveCall LiveRank::sum_of(int stage, const Range& range) const {
  return {CollectiveKind::all_reduce, static_cast<std::size_t>(range.size()),
          sum_type_of(rank_.kernels.dtype()), "gradients of stage " + std::to_string(stage)};
}

void* LiveRank::gradients_at(int stage, std::int64_t value) const {
  const Sums all = held(stage).module->parameters().gradients();
  return offset(all.data, static_cast<std::size_t>(value) * sum_bytes_of(rank_.kernels.dtype()));
}

/// Sums the gradients of tied embeddings: one matrix that is the embedding on one stage and the head on
/// another.
void LiveRank::join_ends(const LiveStep& step, const Instruction& instruction, Arrival& arrival) {
  const Collective& collective = step.program.collectives[static_cast<std::size_t>(instruction.index)];
  ParameterStore& store = held(instruction.stage).module->parameters();
  const Sums gradient = store.gradient(store.find("llm.embedding"));
  rank_.communicator.all_reduce(gradient.data, static_cast<std::size_t>(gradient.size()),
                                sum_type_of(rank_.kernels.dtype()), ranks_of(step.program, collective),
                                rank_.compute, "gradients of the embedding and the head");
  arrival = rank_.communicator.arrival();
}

/// Returns whether this rank's group is the first that holds a stage.
bool LiveRank::is_first_with(const LiveStep& step, const HeldStage& stage) const {
  for (std::size_t g = 0; g < group_; ++g) {
    for (const Instruction& i : step.program.instructions_of(step.program.groups[g])) {
      if (i.op == Op::optimizer_step && i.stage == stage.stage) return false;
    }
  }
  return true;
}

/// Returns whether this rank, whose group is the first with the stage, counts a parameter in the norm. Only
/// one rank of the stage's first copy counts a parameter: the first tp rank for a parameter that every tp
/// rank holds whole, and the embedding for a matrix that is on two stages.
bool LiveRank::counts(const LiveStep& step, const HeldStage& stage, const Parameter& parameter) const {
  if (stage.copy > 0 || step.options.optimizer.rates.of(parameter) == 0) return false;
  const StagePlace& place = stage.module->place();
  if (parameter.name == "llm.embedding" && !place.stage.embedding) return false;
  return stage.rank->tp_rank == 0 || parameter.count() != parameter.rows * parameter.columns;
}

/// Computes the norm of all gradients and the loss on every rank, and the factor that clips gradients. So all
/// ranks make the same decision whether to run the optimizer step.
void LiveRank::find_norm(const LiveStep& step, const Instruction&, Arrival& arrival) {
  const DType type = sum_type_of(rank_.kernels.dtype());
  const std::size_t width = sum_bytes_of(rank_.kernels.dtype());
  const Sums squares{checked_.view().data, 1, 1};
  for (const HeldStage& stage : stages_) {
    if (!is_first_with(step, stage)) continue;
    stage.module->parameters().add_squares(
        rank_, [&](const Parameter& parameter) { return counts(step, stage, parameter); }, squares);
  }
  if (rank_.tp_rank == 0) {  // the ranks of a tp group have the same loss
    rank_.compute.copy(offset(checked_.view().data, width), loss_.view().data, width);
  }
  rank_.communicator.all_reduce(checked_.view().data, 2, type, consecutive_ranks(0, step.program.ranks()),
                                rank_.compute, "the norm of all gradients");
  arrival = rank_.communicator.arrival();
  const std::vector<double> checked = download(rank_, checked_.view().data, type, 2);
  gradient_norm_ = std::sqrt(checked[0]);
  is_finite_ = std::isfinite(checked[0]) && std::isfinite(checked[1]);
  const double factor =
      step.options.clip_norm / (*gradient_norm_ + 1e-6);  // as torch.nn.utils.clip_grad_norm_
  if (factor < 1) gradient_factor_ = factor;
}

void LiveRank::end_turn() {
  if (!in_turn_) return;
  in_turn_ = false;
  turn_->end();
}

void LiveRank::optimize(const LiveStep& step, const Instruction& instruction, Note& note) {
  if (!step.options.update) return;
  if (!is_finite_) return;  // weights stay unchanged
  const HeldStage& stage = held(instruction.stage);
  ParameterStore& store = stage.module->parameters();
  OptimizerStep clipped = step.options.optimizer;
  clipped.gradient_factor = gradient_factor_;
  store.step(rank_, clipped);
  if (stage.shards == 1) return;
  const Collective* reduction = reduction_of(step.program, group_, instruction.stage);
  end_turn();  // the stage's other dp ranks may need the cores to get here
  note.stepped = rank_.device.make_event();
  rank_.compute.record(*note.stepped);
  store.gather(rank_, ranks_of(step.program, *reduction));
  note.arrival = rank_.communicator.arrival();
}

}  // namespace dflop
