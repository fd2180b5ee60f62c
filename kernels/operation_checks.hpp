// Checks of what a caller hands to an operation, one for each of kernels.hpp, on whatever device. They cost
// nothing beside the operation, and a wrong shape would otherwise read memory that is not there. Compiled
// once, for all targets of the host.
//
// Each throws Error(internal) that names the operation, the argument and what was expected.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/kernels.hpp"

namespace dflop {

void check_linear(ConstMatrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias);
void check_linear_backward_input(ConstMatrix dx, ConstMatrix dy, ConstMatrix weight);
void check_linear_backward_weight(ConstSums dweight, ConstSums dbias, ConstMatrix dy, ConstMatrix x);

void check_layer_norm(ConstMatrix y, ConstSums statistics, ConstMatrix x, ConstMatrix gamma,
                      ConstMatrix beta);
void check_layer_norm_backward(ConstMatrix dx, ConstSums dgamma, ConstSums dbeta, ConstMatrix dy,
                               ConstMatrix x, ConstMatrix gamma, ConstSums statistics);
void check_rms_norm(ConstMatrix y, ConstSums statistics, ConstMatrix x, ConstMatrix gamma);
void check_rms_norm_backward(ConstMatrix dx, ConstSums dgamma, ConstMatrix dy, ConstMatrix x,
                             ConstMatrix gamma, ConstSums statistics);

void check_gelu(ConstMatrix y, ConstMatrix x);
void check_gelu_backward(ConstMatrix dx, ConstMatrix dy, ConstMatrix x);
void check_swiglu(ConstMatrix y, ConstMatrix x);
void check_swiglu_backward(ConstMatrix dx, ConstMatrix dy, ConstMatrix x);

void check_rope(ConstMatrix qkv, const AttentionShape& shape, Indices positions);
void check_attention(ConstMatrix out, ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape,
                     Indices offsets);
void check_attention_backward(ConstMatrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                              ConstMatrix qkv, const AttentionShape& shape, Indices offsets);

void check_embedding(ConstMatrix y, ConstMatrix table, Indices ids);
void check_embedding_backward(ConstSums dtable, ConstMatrix dy, Indices ids);

void check_cross_entropy_parts(ConstSums parts, ConstMatrix logits, Indices targets);
void check_cross_entropy_merge(ConstSums merged, ConstSums parts, int ranks);
void check_cross_entropy_backward(ConstMatrix logits, ConstSums loss, ConstSums merged, Indices targets);

void check_pool_rows(ConstMatrix y, ConstMatrix x, Indices begin, Indices end);
void check_pool_rows_backward(ConstMatrix dx, ConstMatrix dy, Indices begin, Indices end);
void check_gather_rows(ConstMatrix y, ConstMatrix x, Indices index);
void check_scatter_add_rows(ConstMatrix y, ConstMatrix x, Indices index);

void check_add(ConstMatrix y, ConstMatrix x);
void check_zero(ConstMatrix y);
void check_round(ConstMatrix y, ConstSums x);
/// Of zero and scale, which take any sums that have memory.
void check_sums(std::string_view operation, ConstSums y);

void check_adamw(ConstMatrix weight, ConstSums master, ConstSums m, ConstSums v, ConstSums gradient,
                 const AdamWStep& step);

}  // namespace dflop
