// A ModelSpec has the widths and layers of a modality encoder, its connector and an LLM, and a ModelState the
// memory that training it holds all the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/architecture.hpp"
#include "core/sample.hpp"
#include "core/units.hpp"

namespace dflop {

/// An AttentionKernel says how attention is computed. The two without flash write the s² matrix to memory.
enum class AttentionKernel : std::uint8_t {
  flash,          ///< one kernel (Dao 2022)
  fused_softmax,  ///< two products and one kernel for scale, mask and softmax (Megatron-LM, 2021)
  softmax,        ///< the same in single steps
};

/// TrainedParts say which parameters of a model have gradients and optimizer states. The others are frozen: a
/// rank keeps them in bf16 and nothing else of them, and they are neither reduced nor stepped. What lies
/// before all trained parameters has no backward.
struct TrainedParts {
  bool encoder = true;
  bool connector = true;
  bool llm = true;  ///< embedding, layers and head
  /// Beside each matrix of the LLM's layers, which are frozen then, is a pair of trained ones of this rank
  /// (Hu et al. 2022, "LoRA"). 0: none.
  int lora_rank = 0;

  bool all() const { return *this == TrainedParts{}; }
  /// Returns whether a gradient goes back into the connector.
  bool reaches_connector() const { return encoder || connector; }
  /// Returns whether the LLM's layers have trained parameters.
  bool in_llm() const { return llm || lora_rank > 0; }

  auto operator<=>(const TrainedParts&) const = default;
};

inline constexpr int kMostLoraRank = 1 << 16;

/// Returns the flag of a part by its name, encoder, connector or llm; none for other names.
constexpr bool TrainedParts::*trained_flag(std::string_view part) {
  if (part == "encoder") return &TrainedParts::encoder;
  if (part == "connector") return &TrainedParts::connector;
  return part == "llm" ? &TrainedParts::llm : nullptr;
}

/// Returns the names of the parts that are frozen.
inline std::vector<std::string_view> frozen_parts(const TrainedParts& trained) {
  std::vector<std::string_view> frozen;
  for (const std::string_view part : {"encoder", "connector", "llm"}) {
    if (!(trained.*trained_flag(part))) frozen.push_back(part);
  }
  return frozen;
}

/// A TransformerSpec is one stack of equal transformer layers.
struct TransformerSpec {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;  ///< = heads without grouped-query attention
  int head_dim = 0;
  bool gated_mlp = false;       ///< SwiGLU: three matrices instead of two
  bool causal = false;          ///< decoder: a query sees the keys before it
  std::int64_t vocabulary = 0;  ///< 0: neither embedding nor vocabulary head (encoders)
  AttentionKernel attention = AttentionKernel::flash;
  bool dropout = false;             ///< on the attention matrix and before both residual adds
  bool fused_cross_entropy = true;  ///< the loss in few kernels instead of one for each step
  bool tied_embeddings = false;     ///< embedding and vocabulary head are one matrix
  /// The loss takes rows in chunks of at most so many logits on a rank, and turns each back before the next,
  /// so that the forward has the head's backward in it (Hsu et al. 2024, "Liger Kernel", fused linear cross
  /// entropy). 0: all rows at once, whose logits' gradients stay for the backward.
  std::int64_t logits_at_once = 0;
  std::optional<LayerForm> form =
      std::nullopt;  ///< what a released model's layers compute; none: preset_form()

  /// Returns what the layers compute.
  LayerForm layer_form() const { return form ? *form : preset_form(gated_mlp); }

  /// Returns the query heads on one tp rank: heads that tp does not divide are padded to a multiple, and the
  /// padding is paid for.
  std::int64_t heads_per_rank(int tp) const { return round_up(heads, tp) / tp; }
  /// Returns the KV heads on one tp rank: they are replicated where there are fewer than ranks, else padded
  /// as query heads are.
  std::int64_t kv_heads_per_rank(int tp) const { return kv_heads < tp ? 1 : round_up(kv_heads, tp) / tp; }
  std::int64_t ffn_per_rank(int tp) const { return round_up(ffn, tp) / tp; }
  std::int64_t vocabulary_per_rank(int tp) const { return round_up(vocabulary, tp) / tp; }

  /// Returns how many of `rows` rows of logits may exist at once on one tp rank.
  std::int64_t most_logit_rows(std::int64_t rows, int tp) const {
    if (logits_at_once == 0) return rows;
    return std::min(rows, std::max<std::int64_t>(1, logits_at_once / vocabulary_per_rank(tp)));
  }
  /// Returns in how many chunks of equal length, to a row, these rows come; none without rows.
  std::int64_t logit_chunks(std::int64_t rows, int tp) const {
    if (rows == 0) return 0;
    const std::int64_t most = most_logit_rows(rows, tp);
    return round_up(rows, most) / most;
  }
  /// Returns how many do: those of the longest chunk.
  std::int64_t logit_rows(std::int64_t rows, int tp) const {
    const std::int64_t chunks = std::max<std::int64_t>(1, logit_chunks(rows, tp));
    return round_up(rows, chunks) / chunks;
  }

  /// Returns the matrix parameters of one layer on one tp rank: Q and output, K and V, and the MLP.
  std::int64_t layer_parameters(int tp) const {
    const std::int64_t attention_width = (heads_per_rank(tp) + kv_heads_per_rank(tp)) * head_dim;
    return hidden * (2 * attention_width + (gated_mlp ? 3 : 2) * ffn_per_rank(tp));
  }
  /// Returns the parameters of LoRA's pairs beside one layer's matrices, Q, K, V, output and those of the
  /// MLP, on one tp rank: r * (inputs + outputs) for each, of which those that tp splits are the rank's.
  std::int64_t adapter_parameters(int lora_rank, int tp) const {
    const std::int64_t attention_width = (heads_per_rank(tp) + kv_heads_per_rank(tp)) * head_dim;
    const std::int64_t matrices = gated_mlp ? 3 : 2;
    return lora_rank * (4 * hidden + 2 * attention_width + matrices * (hidden + ffn_per_rank(tp)));
  }
  /// Returns the parameters of one layer on one tp rank that are in no matrix, as its form says: norms,
  /// biases and scales. Without a form (below 0.1 %) they are left out.
  std::int64_t layer_vectors(int tp) const;
  /// Returns the embedding parameters on one tp rank; a vocabulary head of its own has as many.
  std::int64_t embedding_parameters(int tp) const { return vocabulary_per_rank(tp) * hidden; }

  bool operator==(const TransformerSpec&) const = default;
};

/// A ConnectorSpec is the MLP between encoder and LLM. It runs on the last rank group with encoder layers.
struct ConnectorSpec {
  /// The widths go from input to output, as {4 * 1280, 4 * 1280, 3584}: one linear layer is between each two.
  std::vector<int> widths;
  /// So many encoder tokens become one connector token (2x2 merge: 4; average pooling by two: 2).
  int merge = 1;

  /// Returns the matrix parameters on one tp rank: they are split alternately by column and by row.
  std::int64_t parameters(int tp) const {
    std::int64_t sum = 0;
    for (std::size_t i = 1; i < widths.size(); ++i) {
      sum += round_up(std::int64_t{widths[i - 1]} * widths[i], tp) / tp;
    }
    return sum;
  }

  bool operator==(const ConnectorSpec&) const = default;
};

struct ModelSpec {
  std::string name;             ///< "llava-ov-llama3-8b", or the path of the user's file
  std::string preprocess;       ///< name of the preprocessing rule, as "llava-ov"
  std::int64_t max_tokens = 0;  ///< LLM sequences are cut here
  TransformerSpec encoder;
  ConnectorSpec connector;
  TransformerSpec llm;
  std::optional<Architecture> architecture = std::nullopt;  ///< of a released model; none: that of presets

  /// Returns how what the encoder sees becomes rows.
  EncoderFront front() const { return architecture ? architecture->front : EncoderFront{}; }
  /// Returns what the connector computes.
  ConnectorForm connector_form() const { return architecture ? architecture->connector : ConnectorForm{}; }
  /// Returns whether a norm stands before the connector's first linear layer. That of presets is left out.
  bool has_connector_norm() const { return architecture && architecture->connector.norm; }
  /// Returns how many rows lie side by side in what the connector's first linear layer gets.
  int joined_rows() const { return connector_form().averages ? 1 : connector.merge; }

  // Parameters on one tp rank. Beside matrices, those of a model without an architecture are left out.

  /// Returns the parameters of what makes rows of the encoder, which each tp rank has whole.
  std::int64_t front_parameters() const;
  /// Returns the connector's parameters: matrices, biases and norm.
  std::int64_t connector_parameters(int tp) const;
  /// Returns the parameters before the LLM's first layer: the embedding, and a learned row that ends rows of
  /// a picture.
  std::int64_t input_parameters(int tp) const;
  /// Returns the parameters after the LLM's last layer: a norm and the vocabulary head. `shares_embedding`:
  /// the rank holds the embedding, which is the head where embeddings are tied.
  std::int64_t output_parameters(int tp, bool shares_embedding) const;

  bool operator==(const ModelSpec&) const = default;
};

/// A ModelState has the bytes that one rank holds all the time.
struct ModelState {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;

  Bytes total() const { return parameters + gradients + optimizer; }
  ModelState& operator+=(const ModelState& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    optimizer += other.optimizer;
    return *this;
  }
  bool operator==(const ModelState&) const = default;
};

}  // namespace dflop
