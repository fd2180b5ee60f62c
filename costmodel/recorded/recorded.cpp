#include "costmodel/recorded/recorded.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "costmodel/analytic/communication.hpp"

namespace dflop {
namespace {

/// A LinkGroup holds transfers that share a line, with pointers to their durations.
struct LinkGroup {
  std::vector<LinkSample> samples;
  std::vector<Nanoseconds*> durations;

  void add(double bytes, Nanoseconds& duration) {
    samples.push_back({bytes, duration});
    durations.push_back(&duration);
  }

  /// Rescales the durations. Returns the number of transfers that count as all bandwidth, because their
  /// latency is unknown.
  std::size_t rescale(double latency_scale, double bandwidth_scale) {
    const std::optional<LinkFit> fit = fit_link(samples);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      const Seconds latency = std::min(samples[k].duration, fit->latency);
      const Seconds rest = samples[k].duration - latency;
      *durations[k] = to_nanoseconds(latency * latency_scale + rest / bandwidth_scale);
    }
    return fit->has_known_latency ? 0 : samples.size();
  }
};

/// If all sizes are within this factor of one another, noise dominates the line's intercept: noise of 3 % of
/// a transfer's time shifts it by a tenth. Times without noise, as from a simulation, are on the line anyway.
constexpr double kNarrow = 2;
/// Sizes that differ by no more than this part of their mean count as equal.
constexpr double kOneSize = 1e-6;

/// Returns half the width of the 95 % interval of the least-squares line's intercept; zero for two samples,
/// which the line passes through.
Seconds intercept_error(std::span<const LinkSample> samples, const LinkFit& line, double mean_bytes,
                        double spread) {
  if (samples.size() < 3) return Seconds(0);
  const auto count = static_cast<double>(samples.size());
  double squares = 0;
  for (const LinkSample& sample : samples)
    squares += std::pow((sample.duration - line.duration(sample.bytes)).count(), 2);
  const double variance = squares / (count - 2) * (1 / count + mean_bytes * mean_bytes / spread);
  const boost::math::students_t student(count - 2);
  return Seconds(boost::math::quantile(student, 0.975) * std::sqrt(variance));
}

}  // namespace

std::optional<LinkFit> fit_link(std::span<const LinkSample> samples) {
  if (samples.empty()) return std::nullopt;
  const auto count = static_cast<double>(samples.size());
  double mean_bytes = 0;
  Seconds mean{0};
  for (const LinkSample& sample : samples) {
    mean_bytes += sample.bytes / count;
    mean += sample.duration / count;
  }
  double spread = 0;
  double common = 0;
  double squares = 0;  // the same about zero, for a line through the origin
  double products = 0;
  for (const LinkSample& sample : samples) {
    spread += (sample.bytes - mean_bytes) * (sample.bytes - mean_bytes);
    common += (sample.bytes - mean_bytes) * (sample.duration - mean).count();
    squares += sample.bytes * sample.bytes;
    products += sample.bytes * sample.duration.count();
  }
  if (squares == 0) return LinkFit{mean, 0};
  const auto through_zero = [&](bool has_known_latency) {
    return LinkFit{Seconds(0), products / squares, has_known_latency};
  };
  const auto [least, most] = std::ranges::minmax(samples, {}, &LinkSample::bytes);
  const bool is_narrow = most.bytes <= kNarrow * least.bytes;
  if (most.bytes - least.bytes <= kOneSize * mean_bytes || (is_narrow && samples.size() < 3))
    return through_zero(false);
  const double slope = common / spread;
  const Seconds intercept = mean - Seconds(slope * mean_bytes);
  const Seconds error = intercept_error(samples, {intercept, slope}, mean_bytes, spread);
  const Seconds latency = slope > 0 ? intercept : mean;
  constexpr double kNearZero = 0.1;  // of the mean size; smaller samples show the latency directly
  constexpr double kNothing = 0.01;  // of the mean duration
  const bool is_noise =
      is_narrow ? error > kNothing * mean : latency < error && least.bytes > kNearZero * mean_bytes;
  if (is_noise || latency < Seconds(0)) return through_zero(!is_noise || error <= kNothing * mean);
  return LinkFit{latency, std::max(0.0, slope)};
}

int link_class(const std::optional<ClusterSpec>& cluster, const Message& message, const Program& program) {
  return cluster && !inside_node(*cluster, message, program) ? 1 : 0;
}

std::size_t rescale_links(const Program& program, ProgramCosts& costs,
                          const std::optional<ClusterSpec>& cluster, double latency_scale,
                          double bandwidth_scale) {
  std::map<int, LinkGroup> messages;
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const Message& message = program.messages[m];
    messages[link_class(cluster, message, program)].add(bytes_on_link(message, program), costs.message[m]);
  }
  std::map<std::tuple<std::int32_t, std::size_t, std::int32_t>, LinkGroup> collectives;
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    const Collective& collective = program.collectives[c];
    const std::vector<std::int32_t>& groups = collective.groups;
    const std::int32_t apart = groups.size() > 1 ? groups[1] - groups[0] : 0;
    collectives[{collective.operation, groups.size(), apart}].add(static_cast<double>(collective.bytes.count),
                                                                  costs.collective[c]);
  }
  std::size_t not_told_apart = 0;
  for (auto& [link, group] : messages) not_told_apart += group.rescale(latency_scale, bandwidth_scale);
  for (auto& [kind, group] : collectives) not_told_apart += group.rescale(latency_scale, bandwidth_scale);
  return not_told_apart;
}

namespace {

constexpr int kAny = -1;

constexpr int kEncoder = 1;
constexpr int kLlm = 2;
constexpr int kBoth = kEncoder + kLlm;

/// Returns which modules a stage holds; 0: unknown.
int kind_of(const Stage& stage) {
  return (stage.encoder_layers > 0 ? kEncoder : 0) + (stage.llm_layers > 0 ? kLlm : 0);
}

std::array<std::int64_t, 4> place_of(const Group& group, const Instruction& instruction) {
  return {static_cast<std::int64_t>(instruction.op), instruction.stage, group.dp_rank,
          instruction.microbatch};
}

/// Returns the key of the group's model state.
std::array<std::int64_t, 4> place_of(const Group& group) {
  return place_of(group, {Op::optimizer_step, static_cast<std::uint16_t>(group.stage), -1, -1});
}

/// PartDurations hand out the next unused duration of each key's parts, if there is one.
class PartDurations {
 public:
  template <typename Parts, typename Key>
  const Nanoseconds* next(const Parts& parts, const Key& key) {
    const auto found = parts.find(key);
    if (found == parts.end()) return nullptr;
    std::size_t& used = used_[&found->second];
    return used < found->second.size() ? &found->second[used++] : nullptr;
  }

 private:
  std::map<const void*, std::size_t> used_;
};

}  // namespace

RecordedCostModel::RecordedCostModel(const RecordedProgram& recording, const CostModel& fallback,
                                     std::optional<ClusterSpec> cluster)
    : fallback_(fallback), cluster_(std::move(cluster)), memory_(recording.memory) {
  learn_instructions(recording);
  for (auto& [key, line] : lines_) line.settle();
  for (auto& [key, line] : lines_of_stages_) line.settle();
  learn_messages(recording);
  learn_collectives(recording);
  settle_ratios();
}

RecordedCostModel::ShapeKey RecordedCostModel::mode_key(Op op, const Stage& stage) {
  Stage mode;
  mode.tp = stage.tp;
  mode.sequence_parallel = stage.sequence_parallel;
  mode.recomputation = stage.recomputation;
  mode.trained = stage.trained;
  return shape_key(op, mode, Work{});
}

RecordedCostModel::ShapeKey RecordedCostModel::shape_key(Op op, const Stage& stage, const Work& work) {
  Stage shape = stage;
  if (is_compute(op)) {
    shape.dp = 1;
    shape.zero1 = false;
    shape.optimizer_states = OptimizerStates::fp32;
  }
  Work counted = work;
  counted.llm.untrained_tokens = 0;  // older recordings lack these
  return {op, shape, counted};
}

RecordedCostModel::PartKey RecordedCostModel::message_key(const Message& message, const Program& program) {
  const Group& source = program.groups[message.source];
  const Group& destination = program.groups[message.destination];
  return {source.stage,        source.dp_rank,     destination.stage,
          destination.dp_rank, message.microbatch, message.bytes.count};
}

RecordedCostModel::PartKey RecordedCostModel::collective_key(const Collective& collective,
                                                             const Program& program) {
  PartKey key = {collective.bytes.count};
  for (const std::int32_t group : collective.groups) {
    key.push_back(program.groups[group].stage);
    key.push_back(program.groups[group].dp_rank);
  }
  return key;
}

void RecordedCostModel::learn_instructions(const RecordedProgram& recording) {
  const Program& program = recording.program;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    const ModelState& state = recording.costs.model_state[g];
    const Stage& shape = program.stages[group.stage];
    if (state.total() > Bytes{}) {
      const ShapeKey key(Op::optimizer_step, shape, Work{});
      states_.emplace(place_of(group), State{key, state});
      state_shapes_.emplace(key, state);
    }
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      const bool compute = is_compute(instruction.op);
      if (!compute && instruction.op != Op::optimizer_step) continue;
      const Stage& stage = program.stages[instruction.stage];
      const Work work = compute ? program.works[instruction.index] : Work{};
      const Nanoseconds duration = recording.costs.instruction[i];
      const ShapeKey key = shape_key(instruction.op, stage, work);
      if (compute) {
        lines_[shape_key(instruction.op, stage, Work{})].add(stage, work, duration);
        lines_of_stages_[mode_key(instruction.op, stage)].add(stage, work, duration);
      }
      instructions_.emplace(
          place_of(group, instruction),
          Priced{key, duration, recording.costs.activation_of(i), recording.costs.workspace_of(i)});
      Mean& mean = shapes_[key];
      mean.add(duration);
      mean.activation = std::max(mean.activation, recording.costs.activation_of(i));
      mean.workspace = std::max(mean.workspace, recording.costs.workspace_of(i));
      learn_ratio(instruction.op, kind_of(stage), duration,
                  compute ? fallback_.compute(instruction.op, stage, work) : fallback_.optimizer_step(stage));
    }
  }
}

void RecordedCostModel::learn_messages(const RecordedProgram& recording) {
  std::array<std::vector<LinkSample>, kLinkClasses> samples;
  for (std::size_t m = 0; m < recording.program.messages.size(); ++m) {
    const Message& message = recording.program.messages[m];
    const Nanoseconds duration = recording.costs.message[m];
    const int link = link_class(cluster_, message, recording.program);
    messages_[message_key(message, recording.program)].push_back(duration);
    samples[link].push_back({bytes_on_link(message, recording.program), duration});
    learn_ratio(Op::send, link, duration, fallback_.message(message, recording.program));
  }
  for (int link = 0; link < kLinkClasses; ++link) fits_[link] = fit_link(samples[link]);
}

void RecordedCostModel::learn_collectives(const RecordedProgram& recording) {
  for (std::size_t c = 0; c < recording.program.collectives.size(); ++c) {
    const Collective& collective = recording.program.collectives[c];
    const Nanoseconds duration = recording.costs.collective[c];
    collectives_[collective_key(collective, recording.program)].push_back(duration);
    collective_shapes_[{collective.groups.size(), collective.bytes.count}].add(duration);
    learn_ratio(Op::all_reduce, 0, duration, fallback_.all_reduce(collective, recording.program));
  }
}

void RecordedCostModel::learn_ratio(Op op, int kind, Nanoseconds recorded, Seconds predicted) {
  if (predicted.count() <= 0) return;
  const Weighted ratio{Seconds(recorded) / predicted, predicted.count()};
  ratios_[{static_cast<int>(op), kind}].push_back(ratio);
  ratios_[{static_cast<int>(op), kAny}].push_back(ratio);
  if (!is_compute(op)) return;
  ratios_[{kAny, kind}].push_back(ratio);
  ratios_[{kAny, kAny}].push_back(ratio);
}

/// Sets each ratio to its weighted median: the smallest one such that it and the smaller ones have half of
/// the weight.
void RecordedCostModel::settle_ratios() {
  for (auto& [key, values] : ratios_) {
    std::sort(values.begin(), values.end(),
              [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
    double total = 0;
    for (const Weighted& ratio : values) total += ratio.weight;
    double below = 0;
    std::size_t k = 0;
    while (below + values[k].weight < total / 2) below += values[k++].weight;
    medians_[key] = values[k].value;
  }
  ratios_.clear();
}

/// Returns the ratio; 1 if nothing recorded can be compared with the fallback's prices.
double RecordedCostModel::ratio(Op op, int kind) const {
  const int number = static_cast<int>(op);
  for (const RatioKey& key :
       {RatioKey(number, kind), RatioKey(number, kAny), RatioKey(kAny, kind), RatioKey(kAny, kAny)}) {
    if (key.first == kAny && !is_compute(op)) break;
    const auto found = medians_.find(key);
    if (found != medians_.end()) return found->second;
  }
  return 1;
}

const RecordedCostModel::Mean* RecordedCostModel::find_shape(Op op, const Stage& stage,
                                                             const Work& work) const {
  const auto found = shapes_.find(shape_key(op, stage, work));
  return found == shapes_.end() ? nullptr : &found->second;
}

std::optional<Seconds> RecordedCostModel::price_by_line(Op op, const Stage& stage, const Work& work) const {
  const auto own = lines_.find(shape_key(op, stage, Work{}));
  if (own != lines_.end()) {
    if (const auto duration = own->second.price(stage, work)) return duration;
  }
  const auto common = lines_of_stages_.find(mode_key(op, stage));
  return common == lines_of_stages_.end() ? std::nullopt : common->second.price(stage, work);
}

Seconds RecordedCostModel::compute(Op op, const Stage& stage, const Work& work) const {
  if (const Mean* mean = find_shape(op, stage, work)) return mean->value();
  if (const auto duration = price_by_line(op, stage, work)) return *duration;
  const int kind = kind_of(stage);
  const Seconds predicted = fallback_.compute(op, stage, work);
  if (kind != kBoth || knows_ratio(op, kBoth) || !knows_ratio(op, kEncoder) || !knows_ratio(op, kLlm)) {
    return ratio(op, kind) * predicted;
  }
  const Seconds encoder = fallback_.compute(op, stage, {work.encoder, {}});
  const Seconds llm = fallback_.compute(op, stage, {{}, work.llm});
  if (encoder + llm <= Seconds(0)) return predicted;
  const Seconds scaled = ratio(op, kEncoder) * encoder + ratio(op, kLlm) * llm;
  return predicted * (scaled / (encoder + llm));
}

Seconds RecordedCostModel::optimizer_step(const Stage& stage) const {
  if (const Mean* mean = find_shape(Op::optimizer_step, stage, {})) return mean->value();
  return ratio(Op::optimizer_step, kind_of(stage)) * fallback_.optimizer_step(stage);
}

Seconds RecordedCostModel::message(const Message& message, const Program& program) const {
  const int link = link_class(cluster_, message, program);
  if (fits_[link]) return fits_[link]->duration(bytes_on_link(message, program));
  return ratio(Op::send, link) * fallback_.message(message, program);
}

Seconds RecordedCostModel::all_reduce(const Collective& collective, const Program& program) const {
  const auto found = collective_shapes_.find({collective.groups.size(), collective.bytes.count});
  if (found != collective_shapes_.end()) return found->second.value();
  return ratio(Op::all_reduce, 0) * fallback_.all_reduce(collective, program);
}

ModelState RecordedCostModel::model_state(const Stage& stage) const {
  const auto found = state_shapes_.find(ShapeKey(Op::optimizer_step, stage, Work{}));
  return found == state_shapes_.end() ? fallback_.model_state(stage) : found->second;
}

Bytes RecordedCostModel::activation(const Stage& stage, const Work& work) const {
  const Mean* mean = memory_ ? find_shape(Op::forward, stage, work) : nullptr;
  return mean != nullptr ? mean->activation : fallback_.activation(stage, work);
}

Bytes RecordedCostModel::split_activation(const Stage& stage, const Work& work) const {
  const Mean* mean = memory_ ? find_shape(Op::backward_input, stage, work) : nullptr;
  const Bytes more = mean != nullptr
                         ? mean->activation
                         : fallback_.split_activation(stage, work) - fallback_.activation(stage, work);
  return activation(stage, work) + more;
}

Bytes RecordedCostModel::workspace(Op op, const Stage& stage, const Work& work) const {
  const Mean* mean = memory_ ? find_shape(op, stage, work) : nullptr;
  return mean != nullptr ? mean->workspace : fallback_.workspace(op, stage, work);
}

/// Returns the recorded instruction with the same key, if it has the same shape.
const RecordedCostModel::Priced* RecordedCostModel::find_part(const Program& program, const Group& group,
                                                              const Instruction& instruction) const {
  const auto same = instructions_.find(place_of(group, instruction));
  if (same == instructions_.end()) return nullptr;
  const Work work = is_compute(instruction.op) ? program.works[instruction.index] : Work{};
  const ShapeKey shape = shape_key(instruction.op, program.stages[instruction.stage], work);
  return same->second.shape == shape ? &same->second : nullptr;
}

/// Prices an instruction's activations. The freed bytes are those taken by forward and backward_input,
/// whether or not the instruction that frees them was recorded.
Bytes RecordedCostModel::price_activation(const Program& program, const Group& group,
                                          const Instruction& instruction) const {
  const auto taken_by = [&](Op op) {
    Instruction taker = instruction;
    taker.op = op;
    const Priced* part = find_part(program, group, taker);
    return part != nullptr ? part->activation
                           : activation_of(op, program.stages[taker.stage], program.works[taker.index]);
  };
  if (instruction.op == Op::backward_input) return taken_by(Op::backward_input);
  const Bytes kept = taken_by(Op::forward);
  return instruction.op == Op::backward_weight ? kept + taken_by(Op::backward_input) : kept;
}

/// Replaces the price by shape if this very part was recorded.
void RecordedCostModel::price_instruction(const Program& program, const Group& group, std::int64_t i,
                                          ProgramCosts& costs, PriceSources& sources) const {
  const Instruction& instruction = program.instructions[i];
  const bool compute_op = is_compute(instruction.op);
  if (const Priced* part = find_part(program, group, instruction)) {
    ++sources.exact;
    costs.instruction[i] = part->duration;
    if (memory_) costs.workspace[i] = part->workspace;
  } else {
    const Work work = compute_op ? program.works[instruction.index] : Work{};
    const Stage& stage = program.stages[instruction.stage];
    const bool known = find_shape(instruction.op, stage, work) != nullptr ||
                       (compute_op && price_by_line(instruction.op, stage, work).has_value());
    ++(known ? sources.by_shape : sources.scaled);
  }
  if (memory_ && compute_op) costs.activation[i] = price_activation(program, group, instruction);
}

ProgramCosts RecordedCostModel::price_sums(const Program& program) const {
  PricedParts ignored;
  return price(program, ignored);
}

ProgramCosts RecordedCostModel::price(const Program& program, PricedParts& parts) const {
  ProgramCosts costs = CostModel::price_sums(program);
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    const auto state = states_.find(place_of(group));
    const ShapeKey shape(Op::optimizer_step, program.stages[group.stage], Work{});
    if (state != states_.end() && state->second.shape == shape) costs.model_state[g] = state->second.bytes;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Op op = program.instructions[i].op;
      if (is_compute(op) || op == Op::optimizer_step) {
        price_instruction(program, group, i, costs, parts.instructions);
      }
    }
  }
  PartDurations unused;
  const auto take = [](const Nanoseconds* recorded, bool known, Nanoseconds& cost, PriceSources& sources) {
    if (recorded != nullptr) cost = *recorded;
    ++(recorded != nullptr ? sources.exact : known ? sources.by_shape : sources.scaled);
  };
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const Message& message = program.messages[m];
    const bool known = fits_[link_class(cluster_, message, program)].has_value();
    take(unused.next(messages_, message_key(message, program)), known, costs.message[m], parts.messages);
  }
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    const Collective& collective = program.collectives[c];
    const bool known = collective_shapes_.count({collective.groups.size(), collective.bytes.count}) > 0;
    take(unused.next(collectives_, collective_key(collective, program)), known, costs.collective[c],
         parts.collectives);
  }
  return costs;
}

}  // namespace dflop
