// These functions count the bytes of memory on one rank of a stage.
#pragma once

#include "core/cost_model.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// Returns parameters, gradients and optimizer states: 2 bytes a parameter (bf16), 4 (fp32 gradient) and 12
/// (Adam: fp32 parameter, mean, variance), the 12 divided by dp under ZeRO-1 (Rajbhandari et al. 2020;
/// Megatron-LM's distributed optimizer: 6 + 12 / dp). With OptimizerStates::bf16, 2 bytes a parameter each of
/// parameters, gradients, the buckets in which those are reduced (torch DDP), mean and variance: 10 in all,
/// of which the last 4 are divided by dp under ZeRO-1. Frozen parameters are 2 bytes, and no more.
ModelState model_state_bytes(const Stage& stage, const ModelSpec& model);

/// Returns what one rank keeps of a microbatch from its forward to its backward (Korthikanti et al. 2022 with
/// flash attention, that is without the terms in s²). Bytes per token and layer, hidden h, query and KV
/// widths q and k and MLP width f of the rank:
///   none       8 h = inputs of two norms (4), of QKV (2) and of the MLP (2); with dropout 2 h
///              more, two masks
///              4 q + 4 k = Q, K, V and the attention output, which the output projection reads
///              6 f gated (gate, up, their product), 4 f else (before and after the activation)
///              34 h in all for q = k = h, f = 4 h and dropout
///   selective  less 2 q: the attention output, made again from Q, K, V. (The attention matrix, which it
///              was invented to drop, flash attention does not keep in the first place.)
///   full       2 h, the layer's input
/// A released model's form adds 4 h where both halves are scaled, and 2 q + 2 k where Q and K are normed.
/// The h terms are split over tp under sequence parallelism. A stage's input is its first layer's input. The
/// softmax statistics (4 bytes a head) and token ids are left out.
///
/// The front of a model with an architecture keeps what the encoder sees, and of sounds what GELU and the
/// convolutions get. The connector keeps its input, with a norm also that of the norm, and, between two
/// products, what is before and after the activation. The head
/// keeps the inputs of the final norm and of its product (4 h) and, per vocabulary entry of the rank, the
/// logits in bf16 (2), which a fused cross-entropy turns into their gradient in place, or without that the
/// softmax in fp32 (4), from which the backward pass makes the logits' gradient. A head whose loss takes rows
/// in chunks (TransformerSpec::logits_at_once) keeps the final norm's input and the gradient of its output
/// (4 h), and no logits.
///
/// Frozen parts keep less, as a product with frozen weights needs no input for its gradients (torch saves the
/// weights alone then). Those before all trained parameters have no backward and keep nothing. Of a frozen
/// LLM's layer the inputs of QKV and of the MLP (4 h), the scaled halves and the input of the last product (2
/// f) are not kept; inputs of norms, Q, K, V, the attention's output and what the activation got are. Its
/// head keeps 2 h less. LoRA's pairs need the products' inputs again, and 2 r for each of the layer's
/// matrices. A frozen connector keeps what its norm and activations got.
Bytes activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work);

/// Returns what one rank keeps of a microbatch between the parts of a split backward: activation_bytes() of
/// the trained parts, without recomputation.
Bytes split_activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work);

/// Returns what one rank holds only during a forward or backward pass: the most that any one of its layers,
/// the connector or the head needs, as they run one after the other. A layer needs
///   forward: what `none` would keep and its mode does not, plus its output (2 h);
///   backward: the same, rebuilt, plus the gradients of its input (2 h) and of the MLP's intermediates;
///   backward_input: the same, and what those before it have rebuilt, which stays for their backward_weight;
///   backward_weight: the same, but that nothing is rebuilt;
/// and in all, under sequence parallelism, a gathered input (2 h, not split). The head needs a gathered
/// input and in the backward pass the input's gradient (2 h, whole before it is scattered) and its weights'
/// gradient in bf16 (2 a parameter); without a fused cross-entropy also 2 bytes per vocabulary entry of the
/// rank: bf16 logits, then their gradient. In chunks it needs all in the forward: logits and input of
/// most_logit_rows() rows, the norm's output (2 h), where rows are split those gathered and their gradients
/// (4 h, whole), and the gradient in bf16; in the backward what the norm gives (2 h).
///
/// Parts without a backward need nothing in it, frozen ones nothing in backward_weight; a forward needs as
/// much of frozen layers as of others, what they do not keep included.
///
/// Added to all: the bf16 weight gradients of one layer of each trained module on the stage. Transformer
/// Engine keeps one such tensor for each shape of weight, beside the fp32 gradients that it accumulates into
/// (2.8 and later, get_dummy_wgrad of its module/base.py).
Bytes workspace_bytes(Op op, const Stage& stage, const ModelSpec& model, const Work& work);

}  // namespace dflop
