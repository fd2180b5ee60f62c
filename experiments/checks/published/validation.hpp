// This file predicts measured iterations with the same steps as for any plan: cost model, lower(),
// simulate().
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "traces/data/ground_truth.hpp"

namespace dflop {

/// A TruthCase describes the run behind a row of measurements.
struct TruthCase {
  ModelSpec model;              ///< text only: no encoder layers
  Plan plan;                    ///< uniform; its tp may span nodes, unlike users' plans
  int sequence = 0;             ///< tokens
  bool fp16_gradients = false;  ///< whether dp reduces gradients in 2 bytes instead of fp32

  bool operator==(const TruthCase&) const = default;
};

/// Returns the run behind a row of measurements; `kind` determines its settings:
///
/// megatron_gpt (Megatron-DeepSpeed, 2022): 4 h MLP, vocabulary 51,200 padded to a multiple of 128 tp, tied
/// embeddings, dropout, unfused cross-entropy; fused softmax if micro_batch x heads / tp is a multiple of 4,
/// as that kernel requires, else unfused (Megatron-LM, fused_softmax.py); full recomputation, fp16 gradients,
/// neither ZeRO nor sequence parallelism.
///
/// llama (Megatron-LM with Transformer Engine, 2025): published widths, vocabulary 128,256, sequence 4096,
/// flash attention, no recomputation, ZeRO-1, sequence parallelism. 405b has 16 KV heads, as SimuMax's launch
/// script (run_pretrain_llama3.sh) sets them, not the 8 of the released model.
///
/// dflop_live (dflop train): tied embeddings, flash attention, logits in chunks, no recomputation, ZeRO-1,
/// sequence parallelism.
TruthCase truth_case(TruthKind kind, const TruthRow& row);

struct Prediction {
  Seconds iteration{0};
  Bytes peak_memory;  ///< of the rank that needs the most

  bool operator==(const Prediction&) const = default;
};

/// Lowers the run's plan to a program.
Program truth_program(const TruthCase& run);

/// Simulates one iteration of run's program on as many nodes of `cluster` as the plan needs.
Prediction predict(const TruthCase& run, const Program& program, const ClusterSpec& cluster);

/// Lowers the run's plan and simulates one iteration, on as many nodes of `cluster` as the plan needs.
Prediction predict(const TruthCase& run, const ClusterSpec& cluster);

/// Returns the parts of a program that estimate() needs: its stages and groups, one message for each stage
/// boundary, the collectives and one microbatch's work, but no instructions.
Program skeleton(const Program& program);

/// Estimates the iteration time of predict() without a simulation, because a fit needs thousands of
/// predictions. All microbatches are equal. With 1F1B, the first takes the sum of all stages' passes, and
/// each further one the slowest stage's passes (Narayanan et al. 2021, section 2.2). Each pass includes a
/// message. The slowest stage's reduction and optimizer step are added.
/// @pre `program` is the truth_program() of `run`, or its skeleton()
Seconds estimate(const TruthCase& run, const Program& program, const ClusterSpec& cluster);

/// Reads a file of measured iterations, from runs on nodes of `cluster`.
/// @throws Error (input) naming row and column if tp neither divides the GPUs of a node nor fills whole
/// nodes, because no launcher places ranks in that way; what read_ground_truth() throws
TruthSet read_ground_truth_on(const ClusterSpec& cluster, const std::string& path);

/// Prints a note about suspicious rows to standard error. A row is suspicious if its ratio of predicted to
/// measured time differs from the set's median ratio by more than a factor of 1.5 and by more than five
/// standard deviations (estimated from the median deviation). Such a row is usually a mistake, such as 843 s
/// for 0.843 s, or a first iteration. An uncalibrated cluster shifts all ratios and their median alike, and
/// therefore causes no notes. `row_is` is the text between the file's name and a row's number, such as ":row
/// ".
void note_odd_rows(const TruthSet& set, const std::vector<Prediction>& predictions,
                   const std::string& row_is);

/// An ErrorSummary summarizes relative prediction errors, as fractions (0.05 is 5 %).
struct ErrorSummary {
  double mean = 0;
  double median = 0;
  double p95 = 0;  ///< by nearest rank
  double max = 0;
};

/// Summarizes errors. @pre there is at least one error, and none is negative
ErrorSummary summarize(std::vector<double> errors);

/// Returns |predicted / measured - 1| of each row's time.
std::vector<double> time_errors(const TruthSet& set, const std::vector<Prediction>& predictions);

/// Returns |predicted / measured - 1| of the peak memory, for each row with a measured peak.
std::vector<double> memory_errors(const TruthSet& set, const std::vector<Prediction>& predictions);

}  // namespace dflop
