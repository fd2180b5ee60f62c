// A ModelSpec has the sizes of a modality encoder, its connector and an LLM. A ModelState is the memory that
// training a model holds permanently.
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

/// An AttentionKernel says how attention is computed. All but flash write the s² matrix to memory.
enum class AttentionKernel : std::uint8_t {
  flash,          ///< one kernel (Dao 2022)
  fused_softmax,  ///< two products and one kernel for scale, mask and softmax (Megatron-LM, 2021)
  softmax,        ///< two products, and separate kernels for scale, mask and softmax
};

/// TrainedParts say which parameters of a model have gradients and optimizer states. All others are frozen: a
/// rank keeps only their bf16 values, and they take part in neither reductions nor optimizer steps. Layers
/// before all trained parameters have no backward pass.
struct TrainedParts {
  bool encoder = true;
  bool connector = true;
  bool llm = true;  ///< embedding, layers and head
  /// This is the rank of LoRA (Hu et al. 2022): each matrix of the LLM's layers, which are then frozen, gets
  /// a pair of trained matrices of this rank. 0: no LoRA.
  int lora_rank = 0;

  bool all() const { return *this == TrainedParts{}; }
  /// Returns whether a gradient flows back into the connector.
  bool reaches_connector() const { return encoder || connector; }
  /// Returns whether the LLM's layers have trained parameters.
  bool in_llm() const { return llm || lora_rank > 0; }

  auto operator<=>(const TrainedParts&) const = default;
};

inline constexpr int kMaxLoraRank = 1 << 16;

/// Returns the flag of the named part (encoder, connector or llm); nullptr for other names.
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
  bool causal = false;          ///< decoder: a query sees only the keys before it
  std::int64_t vocabulary = 0;  ///< 0: neither embedding nor vocabulary head (encoders)
  AttentionKernel attention = AttentionKernel::flash;
  bool dropout = false;             ///< on the attention matrix and before both residual additions
  bool fused_cross_entropy = true;  ///< few kernels compute the loss, instead of one for each step of it
  bool tied_embeddings = false;     ///< embedding and vocabulary head are one matrix
  /// The loss takes rows in chunks of at most this many logits per rank and computes each chunk's gradients
  /// before the next chunk, so the forward includes the head's backward (Hsu et al. 2024, "Liger Kernel",
  /// fused linear cross entropy). 0: all rows at once; the gradients of their logits stay until the backward.
  std::int64_t logits_at_once = 0;
  std::optional<LayerForm> form = std::nullopt;  ///< layer form of a released model; none: preset_form()

  /// Returns the form of the layers.
  LayerForm layer_form() const { return form ? *form : preset_form(gated_mlp); }

  /// Returns the query heads on one tp rank. Heads that tp does not divide are padded to a multiple, and the
  /// padding costs compute.
  std::int64_t heads_per_rank(int tp) const { return round_up(heads, tp) / tp; }
  /// Returns the KV heads on one tp rank. They are replicated if there are fewer heads than ranks, otherwise
  /// padded like query heads.
  std::int64_t kv_heads_per_rank(int tp) const { return kv_heads < tp ? 1 : round_up(kv_heads, tp) / tp; }
  std::int64_t ffn_per_rank(int tp) const { return round_up(ffn, tp) / tp; }
  std::int64_t vocabulary_per_rank(int tp) const { return round_up(vocabulary, tp) / tp; }

  /// Returns the max rows of logits that exist at once on one tp rank, out of `rows`.
  std::int64_t most_logit_rows(std::int64_t rows, int tp) const {
    if (logits_at_once == 0) return rows;
    return std::min(rows, std::max<std::int64_t>(1, logits_at_once / vocabulary_per_rank(tp)));
  }
  /// Returns the number of chunks into which `rows` rows of logits are divided; 0 if there are no rows. The
  /// lengths of chunks differ by at most one row.
  std::int64_t logit_chunks(std::int64_t rows, int tp) const {
    if (rows == 0) return 0;
    const std::int64_t most = most_logit_rows(rows, tp);
    return round_up(rows, most) / most;
  }
  /// Returns the number of rows of logits that exist at once: the length of the longest chunk.
  std::int64_t logit_rows(std::int64_t rows, int tp) const {
    const std::int64_t chunks = std::max<std::int64_t>(1, logit_chunks(rows, tp));
    return round_up(rows, chunks) / chunks;
  }

  /// Returns the matrix parameters of one layer on one tp rank: Q and output, K and V, and the MLP.
  std::int64_t layer_parameters(int tp) const {
    const std::int64_t attention_width = (heads_per_rank(tp) + kv_heads_per_rank(tp)) * head_dim;
    return hidden * (2 * attention_width + (gated_mlp ? 3 : 2) * ffn_per_rank(tp));
  }
  /// Returns the LoRA parameters of one layer on one tp rank, for the matrices Q, K, V, output and the MLP's:
  /// r * (inputs + outputs) for each, counting the rank's part of dimensions that tp splits.
  std::int64_t adapter_parameters(int lora_rank, int tp) const {
    const std::int64_t attention_width = (heads_per_rank(tp) + kv_heads_per_rank(tp)) * head_dim;
    const std::int64_t matrices = gated_mlp ? 3 : 2;
    return lora_rank * (4 * hidden + 2 * attention_width + matrices * (hidden + ffn_per_rank(tp)));
  }
  /// Returns the number of parameters of one layer on one tp rank that are not in matrices: the norms, biases
  /// and scales of its form. 0 if there is no form, because they are below 0.1 % of all.
  std::int64_t layer_vectors(int tp) const;
  /// Returns the embedding parameters on one tp rank; a separate vocabulary head has as many.
  std::int64_t embedding_parameters(int tp) const { return vocabulary_per_rank(tp) * hidden; }

  bool operator==(const TransformerSpec&) const = default;
};

/// A ConnectorSpec is the MLP between encoder and LLM. It runs on the last rank group with encoder layers.
struct ConnectorSpec {
  /// These are the widths from input to output, for example {4 * 1280, 4 * 1280, 3584}, with a linear layer
  /// between each two.
  std::vector<int> widths;
  /// This many encoder tokens are merged into one connector token (2x2 merge: 4; average pooling by two: 2).
  int merge = 1;

  /// Returns the matrix parameters on one tp rank. Matrices are split alternately by column and by row.
  std::int64_t parameters(int tp) const {
    std::int64_t sum = 0;
    for (std::size_t i = 1; i < widths.size(); ++i) {
      sum += round_up(std::int64_t{widths[i - 1]} * widths[i], tp) / tp;
    }
    return sum;
  }

  bool operator==(const ConnectorSpec&) const = default;
};

/// A SecondEncoder is an encoder of another modality than the first one's, such as sounds next to pictures,
/// with a connector of its own. It runs whole on the stage with the connectors, so it is not split over
/// pipeline stages; tp, dp and recomputation are the first encoder's.
struct SecondEncoder {
  TransformerSpec encoder;
  ConnectorSpec connector;
  /// These are set for released models, whose ModelSpec has an architecture.
  EncoderFront front = {};
  ConnectorForm form = {};

  bool operator==(const SecondEncoder&) const = default;
};

struct ModelSpec {
  std::string name;             ///< "llava-ov-llama3-8b", or the path of the user's file
  std::string preprocess;       ///< name of the preprocessing rule, such as "llava-ov"
  std::int64_t max_tokens = 0;  ///< LLM sequences are truncated here
  TransformerSpec encoder;
  ConnectorSpec connector;
  TransformerSpec llm;
  std::optional<Architecture> architecture = std::nullopt;  ///< of a released model; presets have none
  std::optional<SecondEncoder> second = std::nullopt;

  /// Returns the model with its second encoder and connector in place of the first ones. Its Work is
  /// Workload::of_second(). @pre second
  ModelSpec of_second() const;
  /// Returns how the encoder's input becomes rows.
  EncoderFront front() const { return architecture ? architecture->front : EncoderFront{}; }
  /// Returns the form of the connector.
  ConnectorForm connector_form() const { return architecture ? architecture->connector : ConnectorForm{}; }
  /// Returns whether a norm precedes the connector's first linear layer. The presets' norm is not counted.
  bool has_connector_norm() const { return architecture && architecture->connector.norm; }
  /// Returns the number of encoder layers that feed the LLM in addition to the last one.
  int deep_features() const { return architecture ? static_cast<int>(architecture->deepstack.size()) : 0; }
  /// Returns how many deep features come from encoder layers before layer `layer`.
  int deep_before(int layer) const;
  /// Returns how many deep features are added to the LLM after its layer `layer` or a later one.
  int deep_from(int layer) const { return std::max(0, deep_features() - layer); }
  /// Returns the number of values that the encoder sends for each of its LLM tokens.
  std::int64_t sent_width() const { return std::int64_t{llm.hidden} * (1 + deep_features()); }
  /// Returns how many encoder rows are concatenated into one input row of the connector's first linear layer.
  int joined_rows() const { return connector_form().averages ? 1 : connector.merge; }

  // These functions count the parameters on one tp rank; for a model without an architecture, only its
  // matrices.

  /// Returns the parameters of the encoder's front, which makes its rows; each tp rank has all of them.
  std::int64_t front_parameters() const;
  /// Returns the connector's parameters: matrices, biases and norm.
  std::int64_t connector_parameters(int tp) const;
  /// Returns the parameters of the second encoder's front and layers; 0 without one.
  std::int64_t second_encoder_parameters(int tp) const;
  /// Returns the parameters of the second encoder's connector; 0 without one.
  std::int64_t second_connector_parameters(int tp) const;
  /// Returns the parameters before the LLM's first layer: the embedding, and the learned row that follows
  /// rows of a picture, if the model has one.
  std::int64_t input_parameters(int tp) const;
  /// Returns the parameters after the LLM's last layer: a norm and the vocabulary head. `shares_embedding`:
  /// the rank holds the embedding, which is also the head if embeddings are tied.
  std::int64_t output_parameters(int tp, bool shares_embedding) const;

  bool operator==(const ModelSpec&) const = default;
};

/// A ModelState has the bytes that one rank holds permanently.
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
