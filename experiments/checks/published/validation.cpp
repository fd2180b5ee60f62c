#include "experiments/checks/published/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "core/support/median.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "experiments/cli/say.hpp"
#include "sim/engine.hpp"
#include "traces/families/hugging_face.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kGptVocabulary = 51'200;
constexpr std::int64_t kVocabularyMultiple = 128;  // Megatron-LM: make-vocab-size-divisible-by, times tp
constexpr int kFusedSoftmaxMultiple = 4;           // Megatron-LM, fused_softmax.py: attn_batches % 4
constexpr int kLlamaSequence = 4096;

TransformerSpec gpt(const TruthRow& row) {
  TransformerSpec spec;
  spec.name = "gpt";
  spec.layers = row.layers;
  spec.hidden = row.hidden;
  spec.ffn = 4 * row.hidden;
  spec.heads = spec.kv_heads = row.heads;
  spec.head_dim = row.hidden / row.heads;
  spec.causal = true;
  spec.vocabulary = round_up(kGptVocabulary, kVocabularyMultiple * row.tp);
  const std::int64_t matrices = row.micro_batch * spec.heads_per_rank(row.tp);
  spec.attention =
      matrices % kFusedSoftmaxMultiple == 0 ? AttentionKernel::fused_softmax : AttentionKernel::softmax;
  spec.dropout = true;
  spec.fused_cross_entropy = false;
  spec.tied_embeddings = true;
  return spec;
}

TransformerSpec llama(const TruthRow& row) {
  if (row.model == "llama3-405b") {
    return {row.model, row.layers, 16384, 53248, 128, 16, 128, true, true, 128256};
  }
  return {row.model, row.layers, 8192, 28672, 64, 8, 128, true, true, 128256};
}

/// Returns a model of the Llama family in the form that dflop runs live, with logits in chunks.
TransformerSpec live(const TruthRow& row) {
  TransformerSpec spec{row.model,    row.layers,   row.hidden, row.ffn, row.heads,
                       row.kv_heads, row.head_dim, true,       true,    row.vocabulary};
  spec.tied_embeddings = true;
  spec.logits_at_once = kLogitsAtOnce;
  return spec;
}

TransformerSpec spec_of(TruthKind kind, const TruthRow& row) {
  switch (kind) {
    case TruthKind::megatron_gpt:
      return gpt(row);
    case TruthKind::llama:
      return llama(row);
    case TruthKind::dflop_live:
      return live(row);
  }
  throw Error(ErrorKind::internal, "unknown kind of measured iterations");
}

ClusterSpec nodes_for(const Program& program, ClusterSpec cluster) {
  cluster.nodes = static_cast<int>(round_up(program.ranks(), cluster.gpus_per_node) / cluster.gpus_per_node);
  return cluster;
}

}  // namespace

TruthCase truth_case(TruthKind kind, const TruthRow& row) {
  const bool megatron = kind == TruthKind::megatron_gpt;
  TruthCase run;
  run.model.llm = spec_of(kind, row);
  run.model.name = run.model.llm.name;
  run.sequence = kind == TruthKind::llama ? kLlamaSequence : row.seq;
  run.fp16_gradients = megatron;
  run.plan.layout = Layout::uniform;
  run.plan.llm = {row.tp, row.pp, row.dp, split_layers(row.layers, row.pp)};
  run.plan.encoder = {row.tp, row.pp, row.dp, std::vector<int>(row.pp, 0)};
  run.plan.microbatches = row.microbatches;
  run.plan.gbs = row.microbatches * row.micro_batch * row.dp;
  run.plan.recomputation = megatron ? Recomputation::full : Recomputation::none;
  run.plan.zero1 = !megatron;
  run.plan.sequence_parallel = !megatron;
  return run;
}

Program truth_program(const TruthCase& run) {
  Sample sample;
  sample.llm_tokens = run.sequence;
  const std::vector<Sample> batch(run.plan.gbs, sample);
  Assignment assignment{run.plan.microbatches, run.plan.llm.dp, std::vector<std::int32_t>(run.plan.gbs)};
  for (int i = 0; i < run.plan.gbs; ++i) assignment.bin[i] = i % run.plan.bins();
  Program program = lower(run.plan, run.model, batch, assignment);
  if (run.fp16_gradients) {
    for (Collective& collective : program.collectives) collective.bytes.count /= 2;
  }
  verify(program);
  return program;
}

Prediction predict(const TruthCase& run, const Program& program, const ClusterSpec& cluster) {
  const AnalyticCostModel cost(run.model, nodes_for(program, cluster));
  const Timeline timeline = simulate(program, cost.price(program), Detail::usage);
  return {Seconds(timeline.makespan), peak_memory(timeline)};
}

Prediction predict(const TruthCase& run, const ClusterSpec& cluster) {
  return predict(run, truth_program(run), cluster);
}

Program skeleton(const Program& program) {
  Program rest;
  rest.microbatches = program.microbatches;
  rest.stages = program.stages;
  rest.groups = program.groups;
  rest.works = {program.works.front()};
  rest.collectives = program.collectives;
  std::vector<bool> seen(program.stages.size());
  for (const Message& message : program.messages) {
    const auto stage = static_cast<std::size_t>(program.groups[message.source].stage);
    if (!seen[stage]) rest.messages.push_back(message);
    seen[stage] = true;
  }
  return rest;
}

Seconds estimate(const TruthCase& run, const Program& program, const ClusterSpec& cluster) {
  const AnalyticCostModel cost(run.model, nodes_for(program, cluster));
  Seconds sum{0};
  Seconds slowest{0};
  Seconds message{0};
  std::vector<Seconds> end;  // of each stage, after its last backward
  for (const Stage& stage : program.stages) {
    const Seconds passes = cost.compute(Op::forward, stage, program.works.front()) +
                           cost.compute(Op::backward, stage, program.works.front());
    sum += passes;
    slowest = std::max(slowest, passes);
    end.push_back(cost.optimizer_step(stage));
  }
  for (const Message& m : program.messages) message = std::max(message, cost.message(m, program));
  for (const Collective& c : program.collectives) {
    end[program.groups[c.groups.front()].stage] += cost.all_reduce(c, program);
  }
  const int further = program.microbatches - 1;
  const int messages = 2 * (run.plan.llm.pp - 1) + further;
  return sum + further * slowest + messages * message + *std::max_element(end.begin(), end.end());
}

TruthSet read_ground_truth_on(const ClusterSpec& cluster, const std::string& path) {
  TruthSet set = read_ground_truth(path);
  const int node = cluster.gpus_per_node;
  for (const TruthRow& row : set.rows) {
    if (node % row.tp == 0 || row.tp % node == 0) continue;
    refuse_input(fmt::format("{}:row {}, column 'tp'", path, row.row),
                 "expected a divisor or a multiple of the {} GPUs of a node of '{}', found '{}'", node,
                 cluster.name, row.tp);
  }
  return set;
}

void note_odd_rows(const TruthSet& set, const std::vector<Prediction>& predictions,
                   const std::string& row_is) {
  constexpr double kOdd = 1.5;
  constexpr double kDeviations = 5 * 1.4826;  // this many median deviations equal five standard deviations
  constexpr std::size_t kMaxShown = 5;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < set.rows.size(); ++i)
    ratios.push_back(predictions[i].iteration / set.rows[i].iteration);
  const double usual = median(ratios);
  const auto deviation = [&](double ratio) { return std::abs(std::log(ratio / usual)); };
  std::vector<double> deviations;
  for (const double ratio : ratios) deviations.push_back(deviation(ratio));
  const double least = std::max(std::log(kOdd), kDeviations * median(deviations));
  std::size_t odd = 0;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    if (deviation(ratios[i]) <= least || ++odd > kMaxShown) continue;
    say("dflop: note: {}{}{}: measured {:.4g} s, predicted {:.4g} s, a ratio of {:.3g}; the median of the file "
        "is {:.3g}: check this row\n",
        printable(set.file), row_is, set.rows[i].row, set.rows[i].iteration.count(),
        predictions[i].iteration.count(), ratios[i], usual);
  }
  if (odd > kMaxShown)
    say("dflop: note: {}: {} more rows like these\n", printable(set.file), odd - kMaxShown);
}

ErrorSummary summarize(std::vector<double> errors) {
  std::sort(errors.begin(), errors.end());
  const std::size_t count = errors.size();
  ErrorSummary summary;
  summary.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(count);
  summary.median = median(errors);
  summary.p95 = errors[(95 * count + 99) / 100 - 1];
  summary.max = errors.back();
  return summary;
}

std::vector<double> time_errors(const TruthSet& set, const std::vector<Prediction>& predictions) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < set.rows.size(); ++i) {
    errors.push_back(std::abs(predictions[i].iteration / set.rows[i].iteration - 1));
  }
  return errors;
}

std::vector<double> memory_errors(const TruthSet& set, const std::vector<Prediction>& predictions) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < set.rows.size(); ++i) {
    const auto& measured = set.rows[i].peak_memory_max_rank;
    if (!measured) continue;
    const auto predicted = static_cast<double>(predictions[i].peak_memory.count);
    errors.push_back(std::abs(predicted / static_cast<double>(measured->count) - 1));
  }
  return errors;
}

}  // namespace dflop
