// These functions give the time of one layer on one tensor-parallel rank, by roofline (Williams et al. 2009):
// each kernel takes the longer of its arithmetic and its memory traffic. Communication and recomputation are
// not in here; see costmodel/analytic/analytic.hpp.
//
// How efficiency falls for small shapes is a model, not a law: the fractions and half-points of SoftwareSpec
// are per GPU type and meant to be calibrated against measurements.
#pragma once

#include <cmath>

#include "core/cost_model.hpp"

namespace dflop {

/// A Processor is what kernels run on: a GPU, or a share of one.
struct Processor {
  double flop_per_s = 0;   ///< peak
  double bytes_per_s = 0;  ///< of memory, peak
  Seconds kernel_overhead{0};
  const SoftwareSpec& software;

  /// Makes a whole GPU of a cluster, which must outlive it.
  Processor(const ClusterSpec& cluster);

  /// Makes a part of a GPU's multiprocessors that shares the GPU with another kernel. A kernel of arithmetic
  /// C, traffic B and overhead t0 then takes max(C / s, f B / min(1, s / s_sat)) + t0 at share s, with
  /// GpuSpec::saturating_share s_sat and SoftwareSpec::shared_cache_factor f (the form of Mosaic, arXiv
  /// 2605.18710; s_sat is of BulletServe, issue 1).
  Processor(const ClusterSpec& cluster, double share);

  /// Makes a shared GPU that does all arithmetic at once, so that times are those of the traffic alone at the
  /// whole bandwidth.
  static Processor of_traffic(const ClusterSpec& cluster);

  bool is_of_traffic() const { return std::isinf(flop_per_s); }
};

/// Returns the times of Y[tokens, outputs] = X[tokens, inputs] W and its two gradients, bf16.
///
/// Arithmetic: 2 * tokens * inputs * outputs FLOP in each pass, at
///   peak * gemm_efficiency * t / (t + gemm_half_tokens) * w / (w + gemm_half_width),
/// t being tokens and w the smaller of inputs and outputs.
/// Traffic: both operands and the result once, 2 bytes an element; the weight gradient is read and written in
/// fp32 (Megatron-LM's fused accumulation), whatever the optimizer states are kept in.
PassTimes matrix_product(const Processor& gpu, double tokens, double inputs, double outputs);

/// Returns the times of the attention core. backward_weight is zero.
///
/// Without flash attention every value of the s² matrices of the rank's heads is moved: 2 bytes by each of
/// two products forward and four backward, which take the longer of that and of their arithmetic at
/// gemm_efficiency; 4 by the softmax forward (read, write), 6 backward (read it and its gradient, write);
/// with dropout 5 more (read 2, write 2, the mask 1). A softmax in single steps moves as much or a little
/// more, which its launches outweigh: costmodel/analytic/analytic.hpp.
///
/// Flash attention:
///
/// Arithmetic: attention_flop with the head dimension rounded up to the kernels' multiple of 32
/// (flash-attention, flash_api.cpp: head_size_rounded), backward 2.5 times the forward (Dao 2023: five
/// products instead of two), at
///   peak * attention efficiency of the pass * s / (s + attention_half_tokens) * w / (w + gemm_half_width),
/// s being the mean sequence length pairs / tokens and w the width of the rank's heads: few heads fill few of
/// the GPU's processors. Traffic: Q, K, V and the output once; in the backward pass their gradients too.
PassTimes attention_core(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp);

/// Returns the times of one transformer layer: four products (fused QKV, output, MLP up with gate, MLP down),
/// the attention core, and what streams through memory. Elements moved per token, hidden h, query and KV
/// widths q and k, MLP width f:
///   forward:  10 h = two norms (read, write: 2 each) and two residual adds (read two, write one: 3 each)
///             2 (q + k) = rotary embedding or biases of Q and K (read, write)
///             3 f gated (read two, write one), 2 f else
///   backward: 12 h = two norms (read input and gradient, write one: 3 each), two residual adds (3 each)
///             2 (q + k); 5 f gated (read three, write two), 3 f else
/// Of a released model's form (LayerForm), in place of 2 (q + k):
///   rotary positions 2 (q + k) in both passes
///   a norm of Q and K 2 (q + k), backward 3 (q + k)
///   scales of both halves 4 h, backward 8 h: two reads of gradient and what was scaled for the scale's own
///             gradient, read and write for the result's
///   biases    nothing forward, where products add them as they write (cuBLASLt's epilogues); in
///             backward_weight their output's gradient is read once more: q + 2 k, h, f (gated 2 f), h
/// A layer norm moves as much as an RMS norm. The h terms are split over tp under sequence parallelism
/// (Korthikanti et al. 2022). kernel_overhead once per pass; that of the backward pass is in backward_input.
PassTimes transformer_layer(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp,
                            bool sequence_parallel);

/// Returns the times of LoRA's pairs beside the matrices of one layer (Hu et al. 2022; beside all of them,
/// Dettmers et al. 2023, "QLoRA"): for each matrix a product to the rank, one from there to the outputs, and
/// what adds the result (read two, write one), in the backward to the gradient of the input. tp splits the
/// outputs of Q, K, V and the MLP's first products and the inputs of the others, as it does those of the
/// matrices; the sums that this needs over ranks are those of the matrices. Launches are not counted.
PassTimes adapters(const Processor& gpu, const TransformerSpec& spec, int lora_rank, double tokens, int tp);

/// Returns the times of a norm of so many rows: read and write; backward: read input and gradient, write one.
PassTimes norm(const Processor& gpu, double width, double rows);

/// Returns the times of what makes rows of an encoder, on one of `split` ranks that share the rows: the
/// product with patches; or of sounds two convolutions as products over three rows each, their GELU (read and
/// write; backward: read two, write one) and the laying side by side of three rows. A table of positions:
/// read two, write one; backward, where it is learned, as much in backward_weight. kernel_overhead once per
/// pass. Nothing without an architecture.
PassTimes front(const Processor& gpu, const ModelSpec& model, const Workload& encoder, int split);

/// Returns the times of the connector's products, split alternately by column and by row, and its activations
/// between them (read and write; backward: read two, write one); of an architecture's form also those of its
/// norm, of the picking of rows (read and write in both passes), and of the gradients of its biases (a read
/// of the output's). kernel_overhead once per pass. Of frozen ones there is no backward_weight, and before
/// all trained parameters no backward; the gradient of the first product's input is left out where neither
/// the encoder nor a norm needs it.
PassTimes connector(const Processor& gpu, const ModelSpec& model, const Workload& encoder, int tp,
                    const TrainedParts& trained = {});

/// Returns the times of the vocabulary-parallel head and the loss. Beside the product, bytes per token and
/// vocabulary entry of the rank: forward 18 (to fp32: 2 + 4; maximum: 4; exponential and sum: 4 + 4),
/// backward 6 (softmax 4 to bf16 gradient 2); step by step (Megatron-LM, cross_entropy.py, 2022) forward 38
/// (to fp32: 6; maximum: 4; less the maximum, exponential and quotient: 8 each; sum: 4), backward 14 (times
/// the loss's gradient: 8; to bf16: 6). kernel_overhead once per pass. Where the loss takes rows in chunks
/// (TransformerSpec::logits_at_once) products are of a chunk's rows, and the forward has all passes. All rows
/// count, as samples do not say which are trained: the live head leaves the others out. A frozen head makes
/// no gradient of its weights.
PassTimes vocabulary_head(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp,
                          bool is_trained = true);

/// Returns the times of the embedding lookup: rows read and written in bf16; backward: bf16 gradients added
/// to fp32 rows (2 + 4 + 4 bytes).
PassTimes embedding(const Processor& gpu, const TransformerSpec& spec, const Workload& work);

/// Returns the time to move `bytes` between GPU memory and processors.
Seconds memory_time(const Processor& gpu, double bytes);

}  // namespace dflop
