// These functions predict the time of one layer on one tensor-parallel rank by a roofline (Williams et al.
// 2009): each kernel takes the longer of its arithmetic and its memory traffic. They exclude communication
// and recomputation; see costmodel/analytic/analytic.hpp.
//
// The efficiency loss on small shapes is an empirical model, not a law: the fractions and half-points of
// SoftwareSpec belong to one GPU type and are meant to be calibrated against measurements.
#pragma once

#include <cmath>

#include "core/cost_model.hpp"

namespace dflop {

/// A Processor is a GPU, or a share of one, that runs kernels.
struct Processor {
  double flop_per_s = 0;   ///< peak
  double bytes_per_s = 0;  ///< peak, of memory
  Seconds kernel_overhead{0};
  const SoftwareSpec& software;

  /// Describes a whole GPU of a cluster, which must outlive the Processor.
  Processor(const ClusterSpec& cluster);

  /// Describes a share of a GPU's multiprocessors while another kernel uses the rest. A kernel of arithmetic
  /// C, traffic B and overhead t0 then takes max(C / s, f B / min(1, s / s_sat)) + t0 at share s, with
  /// GpuSpec::saturating_share s_sat and SoftwareSpec::shared_cache_factor f (the form of Mosaic, arXiv
  /// 2605.18710; s_sat is from BulletServe, issue 1).
  Processor(const ClusterSpec& cluster, double share);

  /// Describes a shared GPU with infinitely fast arithmetic, so that times contain only the memory traffic at
  /// full bandwidth.
  static Processor of_traffic(const ClusterSpec& cluster);

  bool is_of_traffic() const { return std::isinf(flop_per_s); }
};

/// Returns the times of Y[tokens, outputs] = X[tokens, inputs] W and its two gradients, bf16.
///
/// Arithmetic: 2 * tokens * inputs * outputs FLOP in each pass, at
///   peak * gemm_efficiency * t / (t + gemm_half_tokens) * w / (w + gemm_half_width),
/// where t is tokens and w the smaller of inputs and outputs. Traffic: both operands and the result once, 2
/// bytes an element; the weight gradient is read and written in fp32 (Megatron-LM's fused accumulation),
/// whatever the precision of the optimizer states.
PassTimes matrix_product(const Processor& gpu, double tokens, double inputs, double outputs);

/// Returns the times of the attention core. backward_weight is zero.
///
/// Without flash attention, the kernels move every value of the s² matrices of the rank's heads. Each
/// product, of which there are two forward and four backward, moves 2 bytes a value; it takes the longer of
/// this traffic and its arithmetic at gemm_efficiency. The softmax moves 4 bytes a value forward (read,
/// write) and 6 backward (read its result and the gradient, write). Dropout moves 5 more in each pass (read
/// 2, write 2, the mask 1). A softmax in single steps moves as much or a little more, but its launches take
/// longer: see costmodel/analytic/analytic.hpp.
///
/// With flash attention:
///
/// Arithmetic: attention_flop with the head dimension rounded up to the kernels' multiple of 32
/// (flash-attention, flash_api.cpp: head_size_rounded), backward 2.5 times the forward (Dao 2023: five
/// products instead of two), at
///   peak * attention efficiency of the pass * s / (s + attention_half_tokens) * w / (w + gemm_half_width),
/// where s is the mean sequence length pairs / tokens and w the width of the rank's heads: few heads fill few
/// of the GPU's multiprocessors. Traffic: Q, K, V and the output once; the backward pass adds their
/// gradients.
PassTimes attention_core(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp);

/// Returns the times of one transformer layer: four products (fused QKV, output, MLP up with gate, MLP down),
/// the attention core, and the elementwise kernels, which memory bandwidth limits. Elements moved per token,
/// hidden h, query and KV widths q and k, MLP width f:
///   forward:  10 h = two norms (read, write: 2 each) and two residual adds (read two, write one: 3 each)
///             2 (q + k) = rotary embedding or biases of Q and K (read, write)
///             3 f gated (read two, write one), 2 f else
///   backward: 12 h = two norms (read input and gradient, write one: 3 each), two residual adds (3 each)
///             2 (q + k); 5 f gated (read three, write two), 3 f else
/// A released model's form (LayerForm) has, in place of 2 (q + k):
///   rotary positions 2 (q + k) in both passes
///   a norm of Q and K 2 (q + k), backward 3 (q + k)
///   scales of both halves 4 h; backward 8 h, for each half: read the gradient and the scaled values for the
///             scale's gradient, and read and write for the gradient of the values
///   biases    nothing forward, where products add them as they write (cuBLASLt's epilogues); in
///             backward_weight their output's gradient is read once more: q + 2 k, h, f (gated 2 f), h
/// A layer norm moves as much as an RMS norm. The h terms are split over tp under sequence parallelism
/// (Korthikanti et al. 2022). kernel_overhead counts once per pass; backward_input has it for the backward
/// pass.
PassTimes transformer_layer(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp,
                            bool sequence_parallel);

/// Returns the times of LoRA's pairs for the matrices of one layer (Hu et al. 2022; for all matrices,
/// Dettmers et al. 2023, "QLoRA"). Each matrix takes a product down to the rank, one up to the outputs, and
/// an addition of the result (read two, write one), which in the backward pass goes to the input's gradient.
/// tp splits the outputs of Q, K, V and the MLP's first products, and the inputs of the other pairs, like the
/// matrices themselves; LoRA's partial sums over ranks join the matrices' sums. Launches are not counted.
PassTimes adapters(const Processor& gpu, const TransformerSpec& spec, int lora_rank, double tokens, int tp);

/// Returns the times of a norm over `rows` rows. Forward, it reads and writes; backward, it reads input and
/// gradient, and writes one.
PassTimes norm(const Processor& gpu, double width, double rows);

/// Returns the times of an encoder's front on one of `split` ranks that share the rows. Patches take one
/// product. Sounds take two convolutions as products over three rows each, their GELU (read and write;
/// backward: read two, write one) and the gathering of three neighboring rows. A table of positions: read
/// two, write one; backward, if it is learned, as much in backward_weight. kernel_overhead counts once per
/// pass. Returns zero for models without an architecture.
PassTimes front(const Processor& gpu, const ModelSpec& model, const Workload& encoder, int split);

/// Returns the times of the connector: its products, split alternately by column and by row, and the
/// activations between them (read and write; backward: read two, write one); with an architecture's form also
/// its norm, the selection of rows (read and write in both passes), and the gradients of its biases (one read
/// of the output's gradient). kernel_overhead counts once per pass. A frozen connector has no
/// backward_weight, and before all trained parameters no backward pass; the gradient of the first product's
/// input is left out if neither the encoder nor a norm needs it.
PassTimes connector(const Processor& gpu, const ModelSpec& model, const Workload& encoder, int tp,
                    const TrainedParts& trained = {});

/// Returns the times of the vocabulary-parallel head and the loss. In addition to the product, it counts
/// bytes per token and vocabulary entry of the rank: forward 18 (to fp32: 2 + 4; maximum: 4; exponential and
/// sum: 4 + 4), backward 6 (softmax 4 to bf16 gradient 2); step by step (Megatron-LM, cross_entropy.py, 2022)
/// forward 38 (to fp32: 6; maximum: 4; less the maximum, exponential and quotient: 8 each; sum: 4), backward
/// 14 (times the loss's gradient: 8; to bf16: 6). kernel_overhead counts once per pass. If the loss takes
/// rows in chunks (TransformerSpec::logits_at_once), products have a chunk's rows, and the forward pass does
/// all passes' work. All rows count, because samples do not say which tokens are trained; the live head skips
/// the untrained ones. A frozen head computes no weight gradient.
PassTimes vocabulary_head(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp,
                          bool is_trained = true);

/// Returns the times of the embedding lookup: rows read and written in bf16; backward: bf16 gradients added
/// to fp32 rows (2 + 4 + 4 bytes).
PassTimes embedding(const Processor& gpu, const TransformerSpec& spec, const Workload& work);

/// Returns the time to move `bytes` between GPU memory and processors.
Seconds memory_time(const Processor& gpu, double bytes);

}  // namespace dflop
