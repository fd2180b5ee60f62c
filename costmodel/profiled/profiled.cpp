#include "costmodel/profiled/profiled.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "core/padded_model.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"

namespace dflop {

namespace {

constexpr double kProgramValueBytes = kBf16Bytes;  // activations, as counted by lower()
constexpr double kProgramSumBytes = kFp32Bytes;    // gradients

/// Returns whether a layer's part is recomputed before its backward.
bool is_recomputed(Recomputation recomputation, bool attention) {
  return recomputation == Recomputation::full || (recomputation == Recomputation::selective && attention);
}

/// Returns the number of parts in which the ranks of a tp group send a message.
int shards_of(const Message& message, const Program& program) {
  const Stage& source = program.stage_of(message.source);
  const Stage& destination = program.stage_of(message.destination);
  const bool from_encoder = source.llm_layers == 0 && destination.encoder_layers == 0;
  const bool to_encoder = source.encoder_layers == 0 && destination.llm_layers == 0;
  return source.sequence_parallel && !from_encoder && !to_encoder ? source.tp : 1;
}

/// Returns the fraction of a device's bandwidth requested by a pass with this slowdown next to a neighbor;
/// see ProfiledCostModel::bandwidth().
double fraction_of(double slowing_down) {
  return std::clamp(slowing_down / 2, 0.5, 1.0);
}

double mean_length(const Workload& work) {
  return static_cast<double>(work.attention_pairs) / static_cast<double>(work.tokens);
}

}  // namespace

ProfiledCostModel::UnitCurves ProfiledCostModel::curves_of(ProfileUnit unit, const UnitPoints& points,
                                                           bool launches) {
  const auto curve = [&](const auto& seconds) {
    std::vector<TimedPoint> timed;
    for (const ProfilePoint& p : points) {
      timed.push_back({static_cast<double>(p.tokens), static_cast<double>(p.length), seconds(p)});
    }
    return PassCurve(timed, is_attention(unit), launches);
  };
  const bool has_recompute = std::all_of(points.begin(), points.end(),
                                         [](const ProfilePoint& p) { return p.recompute_s.has_value(); });
  const auto host = [](const ProfilePoint& p) { return p.host_s.value_or(0); };
  return {curve([&](const ProfilePoint& p) { return std::max(0.0, p.forward_s - host(p)); }),
          curve([](const ProfilePoint& p) { return p.backward_input_s; }),
          curve([](const ProfilePoint& p) { return p.backward_weight_s; }),
          curve([&](const ProfilePoint& p) { return has_recompute ? *p.recompute_s : p.forward_s; }),
          curve(host),
          static_cast<double>(is_attention(unit) ? points.back().length : points.back().tokens)};
}

ProfiledCostModel::ProfiledCostModel(ProfileTables profile) : profile_(std::move(profile)) {
  if (profile_.model.second) second_.emplace_back(second_tables(profile_));
  for (const TpProfile& tp : profile_.tp) {
    Tables& tables = by_mode_[tp.mode][tp.quanta];
    tables.part = tp.part.value_or(PartProfile{});
    tables.optimizer = tp.part ? tp.part->optimizer : profile_.optimizer;
    tables.activation = tp.activation;
    tables.forward_buffers = tp.forward_buffers;
    tables.backward_buffers = tp.backward_buffers;
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      if (tp.units[u].empty()) continue;
      tables.curves[u] = curves_of(static_cast<ProfileUnit>(u), tp.units[u], launches_kernels(profile_));
    }
  }
}

const ProfiledCostModel::UnitCurves& ProfiledCostModel::curves_of(const Tables& tables,
                                                                  ProfileUnit unit) const {
  const std::optional<UnitCurves>& curves = tables.curves[static_cast<std::size_t>(unit)];
  if (curves) return *curves;
  refuse_input("", "the profile of '{}' has no unit '{}', which a stage needs", profile_.model.name,
               to_string(unit));
}

ProfiledCostModel::Between ProfiledCostModel::between(const Stage& stage) const {
  const int quanta = quanta_of(stage, profile_.quanta);
  const auto found = by_mode_.find(tp_mode(stage));
  if (found != by_mode_.end() && (stage.share == 1 || profile_.quanta > 1)) {
    const std::map<int, Tables>& measured = found->second;
    const auto more = measured.lower_bound(quanta);
    if (more != measured.end() && more->first == quanta) return {more->second, more->second, 0};
    if (more != measured.end() && more != measured.begin()) {
      const auto fewer = std::prev(more);
      const double all = 1.0 / fewer->first - 1.0 / more->first;
      return {fewer->second, more->second, (1.0 / fewer->first - 1.0 / quanta) / all};
    }
  }
  refuse_input("", "the profile of '{}' has no tables of {}; it was measured at {}", profile_.model.name,
               needed_tables(profile_, stage), measured_tables(profile_));
}

/// Visits the attention of `layers` encoder layers. `work` has the mean pairs over all layers of the model: P
/// = w W + (1 - w) S, where a fraction w of the layers has windows, and their pairs W are tokens times the
/// tokens of a window.
template <typename Visit>
void ProfiledCostModel::for_each_encoder_attention(double layers, const Workload& work,
                                                   const Visit& visit) const {
  const auto tokens = static_cast<double>(work.tokens);
  const double mean = mean_length(work);
  const AttentionWindows windows = profile_.windows.value_or(AttentionWindows{});
  const double part = static_cast<double>(windows.layers) / std::max(1, profile_.model.encoder.layers);
  const double window = std::min(static_cast<double>(windows.tokens), mean);
  if (part > 0) visit({ProfileUnit::encoder_attention, layers * part, tokens, window});
  if (part >= 1) return;
  visit({ProfileUnit::encoder_attention, layers * (1 - part), tokens, (mean - part * window) / (1 - part)});
}

template <typename Visit>
void ProfiledCostModel::for_each_unit(const Stage& stage, const Work& work, const Visit& visit) const {
  if (work.encoder.tokens > 0 && (stage.encoder_layers > 0 || stage.connector)) {
    const auto tokens = static_cast<double>(work.encoder.tokens);
    const double part =
        static_cast<double>(stage.encoder_layers) / std::max(1, profile_.model.encoder.layers);
    if (part > 0) {
      visit(UnitCalls{ProfileUnit::patches, part, tokens});
      visit(UnitCalls{ProfileUnit::encoder_linear, static_cast<double>(stage.encoder_layers), tokens});
      for_each_encoder_attention(stage.encoder_layers, work.encoder,
                                 [&](const UnitCalls& calls) { visit(calls); });
    }
    if (stage.connector) visit(UnitCalls{ProfileUnit::connector, 1, tokens});
  }
  if (!work.llm.empty()) {
    const auto tokens = static_cast<double>(work.llm.tokens);
    const auto layers = static_cast<double>(stage.llm_layers);
    if (stage.embedding) visit(UnitCalls{ProfileUnit::embedding, 1, tokens});
    if (stage.llm_layers > 0) {
      visit(UnitCalls{ProfileUnit::llm_linear, layers, tokens});
      visit(UnitCalls{ProfileUnit::llm_attention, layers, tokens, mean_length(work.llm)});
    }
    const bool trained_alone = profile_.model.llm.logits_at_once > 0;
    const std::int64_t left_out = trained_alone ? work.llm.untrained_tokens : 0;
    if (stage.head) visit(UnitCalls{ProfileUnit::head, 1, static_cast<double>(work.llm.tokens - left_out)});
  }
}

PassTimes ProfiledCostModel::passes(const Tables& tables, const Stage& stage, const Work& work,
                                    bool beside) const {
  PassTimes all;
  for_each_unit(stage, work, [&](const UnitCalls& made) {
    const UnitCurves& curves = curves_of(tables, made.unit);
    const PassFactors factors =
        beside ? tables.part.beside[static_cast<std::size_t>(made.unit)] : PassFactors{};
    const auto time = [&](const PassCurve& curve) { return made.calls * curve.at(made.tokens, made.length); };
    PassTimes passes{time(curves.forward) * factors.forward,
                     time(curves.backward_input) * factors.backward_input,
                     time(curves.backward_weight) * factors.backward_weight};
    const bool of_layer = made.unit == ProfileUnit::encoder_linear || made.unit == ProfileUnit::llm_linear ||
                          is_attention(made.unit);
    if (of_layer && is_recomputed(stage.recomputation, is_attention(made.unit))) {
      passes.backward_input += time(curves.recompute) * factors.forward;
    }
    all += passes;
  });
  return all;
}

Seconds ProfiledCostModel::host_time(const Stage& stage, const Work& work) const {
  Seconds time{0};
  for_each_unit(stage, work, [&](const UnitCalls& made) {
    if (made.unit == ProfileUnit::patches)
      time += made.calls * curves_of(tables(stage), made.unit).host.at(made.tokens, 0);
  });
  with_second(stage, work,
              [&](const ProfiledCostModel& second, const Stage& its_stage, const Work& its_work) {
                time += second.host_time(its_stage, its_work);
              });
  return time;
}

std::vector<Nanoseconds> ProfiledCostModel::compute_times(const Program& program) const {
  std::vector<Nanoseconds> times = SumCostModel::compute_times(program);
  add_host_times(program, times);
  return times;
}

void ProfiledCostModel::add_host_times(const Program& program, std::vector<Nanoseconds>& times) const {
  for (const Group& group : program.groups) {
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.op != Op::forward) continue;
      const Work& work = program.works[instruction.index];
      times[i] += to_nanoseconds(host_time(program.stages[instruction.stage], work));
      if (!work.encoder.empty()) break;
    }
  }
}

Seconds ProfiledCostModel::compute(Op op, const Stage& stage, const Work& work) const {
  const auto [fewer, more, weight] = between(stage);
  Seconds time = passes(fewer, stage, work, false).of(op);
  if (weight != 0) time += weight * (passes(more, stage, work, false).of(op) - time);
  with_second(stage, work,
              [&](const ProfiledCostModel& second, const Stage& its_stage, const Work& its_work) {
                time += second.compute(op, its_stage, its_work);
              });
  return time + gather_time(op, stage, work);
}

/// Returns the time in which the copies of an encoder in one tp group gather their outputs. Live ranks
/// receive gradients whole. An all-gather is the second half of an all-reduce.
Seconds ProfiledCostModel::gather_time(Op op, const Stage& stage, const Work& work) const {
  if (stage.copies == 1 || work.encoder.tokens == 0 || op != Op::forward) return Seconds(0);
  const ModelSpec& model = profile_.model;
  const std::int64_t rows = work.encoder.tokens / (stage.connector ? std::max(1, model.connector.merge) : 1);
  const std::int64_t values = stage.copies * rows * model.sent_width();
  // sum_time() converts from sums of 4 bytes; values are smaller by the ratio of the profile's types.
  const double part = static_cast<double>(profile_.value_bytes) / static_cast<double>(profile_.sum_bytes);
  return sum_time(stage.copies, Bytes{std::llround(kProgramSumBytes * part * static_cast<double>(values))}) /
         2;
}

bool ProfiledCostModel::knows_shares() const {
  return std::ranges::any_of(profile_.tp, [](const TpProfile& tp) { return tp.part.has_value(); });
}

double ProfiledCostModel::bandwidth(Op op, const Stage& stage, const Work& work) const {
  Seconds alone(0);
  Seconds beside(0);
  const auto add = [&](const ProfiledCostModel& of, const Stage& its_stage, const Work& its_work) {
    const Tables& fewer = of.between(its_stage).fewer;
    alone += of.passes(fewer, its_stage, its_work, false).of(op);
    beside += of.passes(fewer, its_stage, its_work, true).of(op);
  };
  add(*this, stage, work);
  with_second(stage, work, add);
  return alone > Seconds(0) ? fraction_of(beside / alone) : 0;
}

double ProfiledCostModel::optimizer_bandwidth(const Stage& stage) const {
  return fraction_of(between(stage).fewer.part.optimizer_beside);
}

ProfileReach ProfiledCostModel::reach(const Stage& stage, const Work& work) const {
  const Tables& measured = tables(stage);
  ProfileReach farthest;
  for_each_unit(stage, work, [&](const UnitCalls& made) {
    farthest.extend({made.unit, is_attention(made.unit) ? made.length : made.tokens,
                     curves_of(measured, made.unit).last});
  });
  with_second(stage, work,
              [&](const ProfiledCostModel& second, const Stage& its_stage, const Work& its_work) {
                ProfileReach its_reach = second.reach(its_stage, its_work);
                its_reach.second = true;
                farthest.extend(its_reach);
              });
  return farthest;
}

ProfileReach ProfiledCostModel::reach(const Program& program) const {
  ProfileReach farthest;
  for (const Instruction& i : program.instructions) {
    if (is_compute(i.op)) farthest.extend(reach(program.stages[i.stage], program.works[i.index]));
  }
  return farthest;
}

Seconds ProfiledCostModel::message(const Message& message, const Program& program) const {
  if (program.hub >= 0) {
    refuse_input("", "the profile of '{}' has no messages through a hub: make plans with '--reshard direct'",
                 profile_.model.name);
  }
  const double scale = static_cast<double>(profile_.value_bytes) / kProgramValueBytes;
  const double bytes = scale * static_cast<double>(message.bytes.count);
  return Seconds(profile_.message.at(bytes / shards_of(message, program)));
}

Seconds ProfiledCostModel::all_reduce(const Collective& collective, const Program& program) const {
  Seconds squares{0};
  if (collective.sum == CollectiveSum::norm) {
    for (const std::int32_t group : collective.groups) {
      double parameters = 0;
      for (const std::int32_t stage : stages_of(program, program.groups[group]))
        parameters += held_parameters(program.stages[stage]);  // one of the dp ranks adds up all of them
      squares = std::max(squares, Seconds(profile_.norm.at(parameters)));
    }
  }
  return squares + sum_time(collective.participants(), collective.bytes);
}

Seconds ProfiledCostModel::sum_time(int ranks, Bytes program_bytes) const {
  if (ranks < 2) return Seconds(0);
  const std::map<int, ProfileLine>& lines = profile_.all_reduce;
  if (lines.empty()) refuse_input("", "the profile of '{}' has no times of all-reduces", profile_.model.name);
  const double bytes =
      static_cast<double>(program_bytes.count) * static_cast<double>(profile_.sum_bytes) / kProgramSumBytes;
  const auto above = lines.lower_bound(ranks);
  if (above == lines.begin() || above == lines.end()) {
    const auto& [measured, line] = above == lines.begin() ? *above : *lines.rbegin();
    return Seconds(line.at(bytes) * (ranks - 1) / (measured - 1));
  }
  const auto below = std::prev(above);
  const double part = static_cast<double>(ranks - below->first) / (above->first - below->first);
  return Seconds(std::lerp(below->second.at(bytes), above->second.at(bytes), part));
}

double ProfiledCostModel::held_parameters(const Stage& stage) const {
  return static_cast<double>(
      stage_parameters(stage, with_padded_rows(profile_.model, stage.tp, profile_.row_alignment)));
}

Seconds ProfiledCostModel::optimizer_step(const Stage& stage) const {
  const double owned = held_parameters(stage) / (stage.zero1 ? stage.dp : 1);
  if (stage.share == 1) return Seconds(profile_.optimizer.at(owned));  // whatever the stage's tp
  const auto [fewer, more, weight] = between(stage);
  return Seconds(std::lerp(fewer.optimizer.at(owned), more.optimizer.at(owned), weight));
}

ModelState ProfiledCostModel::model_state(const Stage& stage) const {
  if (stage.optimizer_states != OptimizerStates::fp32) {
    throw Error(ErrorKind::input,
                "a profile has fp32 optimizer states, found a plan with bf16 optimizer "
                "states");
  }
  if (!stage.trained.all()) {
    throw Error(ErrorKind::input, "a profile is measured with all parts trained, found a plan that trains " +
                                      describe(stage.trained) +
                                      "; without a profile, such a plan is priced "
                                      "by shapes");
  }
  const std::int64_t parameters =
      stage_parameters(stage, with_padded_rows(profile_.model, stage.tp, profile_.row_alignment));
  const std::int64_t states = profile_.value_bytes < profile_.sum_bytes ? 3 : 2;
  const std::int64_t owned = parameters / (stage.zero1 ? stage.dp : 1);
  return {Bytes{parameters * profile_.value_bytes}, Bytes{parameters * profile_.sum_bytes},
          Bytes{owned * states * profile_.sum_bytes}};
}

Bytes ProfiledCostModel::activation(const Stage& stage, const Work& work) const {
  const BytesPerToken& kept = tables(stage).activation;
  const auto mode = static_cast<std::size_t>(stage.recomputation);
  const double part = static_cast<double>(stage.encoder_layers) / std::max(1, profile_.model.encoder.layers);
  const double encoder_token = kept.encoder_layer[mode] * stage.encoder_layers + kept.patches * part +
                               (stage.connector ? kept.connector : 0);
  const double llm_token = kept.llm_layer[mode] * stage.llm_layers + (stage.embedding ? kept.embedding : 0) +
                           (stage.head ? kept.head : 0);
  Bytes bytes{std::llround(encoder_token * static_cast<double>(work.encoder.tokens) +
                           llm_token * static_cast<double>(work.llm.tokens))};
  with_second(stage, work,
              [&](const ProfiledCostModel& second, const Stage& its_stage, const Work& its_work) {
                bytes += second.activation(its_stage, its_work);
              });
  return bytes;
}

Bytes ProfiledCostModel::split_activation(const Stage& stage, const Work& work) const {
  Stage whole = stage;
  whole.recomputation = Recomputation::none;
  return std::max(activation(stage, work), activation(whole, work));
}

Bytes ProfiledCostModel::workspace(Op op, const Stage& stage, const Work& work) const {
  if (op == Op::backward_weight) return {};
  const Tables& table = tables(stage);
  const BytesPerToken& kept = table.activation;
  const BytesPerToken& buffers = op == Op::forward ? table.forward_buffers : table.backward_buffers;
  const auto mode = static_cast<std::size_t>(stage.recomputation);
  const auto none = static_cast<std::size_t>(Recomputation::none);
  double most = 0;
  double held = 0;  // by the parts after the running one, beyond what the stage is counted to keep
  // Visits parts from the last to the first: while one runs, forward or backward, the parts after it keep
  // nothing or, if weight gradients are left for later, what they keep until then (`split`).
  const auto add = [&](int parts, double buffer, double keeps, double split, const Workload& tokens) {
    if (parts == 0) return;
    const auto count = static_cast<double>(tokens.tokens);
    const double one = (op == Op::backward_input ? std::max(0.0, split - keeps) : -keeps) * count;
    most = std::max(most, buffer * count + held + (parts - 1) * std::max(0.0, one));
    held += parts * one;
  };
  const auto add_layers = [&](int layers, const auto& buffer, const auto& keeps, const Workload& tokens) {
    add(layers, buffer[mode], keeps[mode], keeps[none], tokens);
  };
  const TransformerSpec& llm = profile_.model.llm;
  add(stage.head ? 1 : 0, buffers.head, kept.head, kept.head, work.llm);
  if (stage.head && op == Op::forward && llm.logits_at_once > 0) {
    // Buffers per token were measured with logits. The other tokens of a microbatch have no logits; chunks
    // are assumed to have the max size, so that more tokens never need less memory.
    const std::int64_t without = work.llm.tokens - llm.most_logit_rows(work.llm.tokens, stage.tp);
    const std::int64_t logits = without * profile_.value_bytes * llm.vocabulary_per_rank(stage.tp);
    most = std::max(0.0, most - static_cast<double>(logits));
  }
  add_layers(stage.llm_layers, buffers.llm_layer, kept.llm_layer, work.llm);
  add(stage.embedding ? 1 : 0, buffers.embedding, kept.embedding, kept.embedding, work.llm);
  // The second encoder's forward runs after the first one's, and its backward before.
  with_second(stage, work,
              [&](const ProfiledCostModel& second, const Stage& its_stage, const Work& its_work) {
                const auto bytes = [](Bytes all) { return static_cast<double>(all.count); };
                most = std::max(most, held + bytes(second.workspace(op, its_stage, its_work)));
                held -= bytes(second.activation(its_stage, its_work));
                if (op == Op::backward_input) held += bytes(second.split_activation(its_stage, its_work));
              });
  add(stage.connector ? 1 : 0, buffers.connector, kept.connector, kept.connector, work.encoder);
  add_layers(stage.encoder_layers, buffers.encoder_layer, kept.encoder_layer, work.encoder);
  add(stage.encoder_layers > 0 ? 1 : 0, buffers.patches, 0, 0, work.encoder);
  return Bytes{std::llround(most)};
}

}  // namespace dflop
