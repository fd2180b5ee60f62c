// These functions predict how many bytes of memory one rank of a stage needs.
#pragma once

#include "core/cost_model.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// Returns parameters, gradients and optimizer states: 2 bytes a parameter (bf16), 4 (fp32 gradient) and 12
/// (Adam: fp32 parameter, mean, variance), the 12 divided by dp under ZeRO-1 (Rajbhandari et al. 2020;
/// Megatron-LM's distributed optimizer: 6 + 12 / dp). With OptimizerStates::bf16 it counts 2 bytes a
/// parameter for each of parameters, gradients, gradient buckets (torch DDP), mean and variance: 10 in total,
/// the last 4 of them divided by dp under ZeRO-1. Frozen parameters take only their 2 bytes.
ModelState model_state_bytes(const Stage& stage, const ModelSpec& model);

/// Returns the activations that one rank keeps of a microbatch from its forward to its backward pass
/// (Korthikanti et al. 2022 with flash attention, so without the terms in s²). Bytes per token and layer,
/// with the rank's hidden size h, query and KV widths q and k and MLP width f, for each recomputation mode:
///   none       8 h = inputs of two norms (4), of QKV (2) and of the MLP (2); with dropout 2 h
///              more, two masks
///              4 q + 4 k = Q, K, V and the attention output, which the output projection reads
///              6 f gated (gate, up, their product), 4 f else (before and after the activation)
///              34 h in total for q = k = h, f = 4 h and dropout
///   selective  2 q less: the attention output is recomputed from Q, K, V. (This mode was invented to drop
///              the attention matrix, which flash attention never stores.)
///   full       2 h, the layer's input
/// A released model's form adds 4 h if both halves are scaled, and 2 q + 2 k if Q and K are normed. Sequence
/// parallelism splits the h terms over tp. A stage's input is its first layer's input. The softmax statistics
/// (4 bytes a head) and token ids are left out.
///
/// The front of a model with an architecture keeps its input data and, for sounds, the inputs of GELU and of
/// the convolutions. The connector keeps its input, the input of its norm if it has one, and the values
/// before and after each activation between two products. The head keeps the inputs of the final norm and of
/// its product (4 h) and, per vocabulary entry of the rank, the logits in bf16 (2), which a fused
/// cross-entropy overwrites with their gradient; without fusion it keeps the softmax in fp32 (4), from which
/// the backward pass computes the logits' gradient. A head whose loss takes rows in chunks
/// (TransformerSpec::logits_at_once) keeps the final norm's input and the gradient of its output (4 h), and
/// no logits.
///
/// Frozen parts keep less, because a product with frozen weights needs no input for its gradients (torch then
/// saves only the weights). Frozen parts before all trained parameters have no backward pass and keep
/// nothing. A frozen LLM layer does not keep the inputs of QKV and of the MLP (4 h), the scaled halves or the
/// input of the last product (2 f); it keeps the inputs of norms, Q, K, V, the attention's output and the
/// activation's input. A frozen head keeps 2 h less. LoRA's pairs need the products' inputs again, plus 2 r
/// for each of the layer's matrices. A frozen connector keeps the inputs of its norm and activations.
Bytes activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work);

/// Returns the activations that one rank keeps of a microbatch between the two parts of a split backward
/// pass: activation_bytes() of the trained parts, without recomputation.
Bytes split_activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work);

/// Returns the memory that one rank holds only during a forward or backward pass: the max over its layers,
/// the connector and the head, because they run one after the other. A layer needs
///   forward: the activations that recomputation discards, plus its output (2 h);
///   backward: these activations, rebuilt, plus the gradients of its input (2 h) and of the MLP's
///             intermediates;
///   backward_input: as in backward, plus activations that layers before it rebuilt and keep for their
///             backward_weight;
///   backward_weight: as in backward, but nothing is rebuilt;
/// and, in each of these under sequence parallelism, a gathered input (2 h, not split). The head needs a
/// gathered input and, in the backward pass, the input's gradient (2 h, whole before it is scattered) and its
/// weights' gradient in bf16 (2 a parameter); without a fused cross-entropy also 2 bytes per vocabulary entry
/// of the rank: bf16 logits, then their gradient. A head in chunks needs most of it in the forward pass:
/// logits and input of most_logit_rows() rows, the norm's output (2 h), if rows are split the gathered rows
/// and their gradients (4 h, whole), and the gradient in bf16; in the backward pass it needs the norm's
/// result (2 h).
///
/// Parts without a backward pass need nothing in it, and frozen parts need nothing in backward_weight. A
/// forward pass needs as much for frozen layers as for trained ones, including the values that frozen layers
/// do not keep.
///
/// Every pass adds the bf16 weight gradients of one layer of each trained module on the stage. Transformer
/// Engine keeps one such tensor for each weight shape, next to the fp32 gradients that it accumulates into
/// (2.8 and later, get_dummy_wgrad of its module/base.py).
Bytes workspace_bytes(Op op, const Stage& stage, const ModelSpec& model, const Work& work);

}  // namespace dflop
