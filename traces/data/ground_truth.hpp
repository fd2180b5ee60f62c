// This file reads measured training iterations, both published ones and our own. Predictions are compared
// with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// A TruthKind is a format of ground-truth files; the header identifies it.
enum class TruthKind : std::uint8_t {
  megatron_gpt,  ///< any GPT widths, no memory
  llama,         ///< a named Llama-3 model cut to some layers, with memory
  dflop_live,    ///< runs of 'dflop train' on a text model of any widths
};

/// A TruthRow is one measured iteration.
struct TruthRow {
  std::int64_t row = 0;  ///< line in the file; the header is line 1
  std::string model;     ///< "llama3-70b"; empty for megatron_gpt
  int hidden = 0;        ///< not set for llama; nor are heads and seq
  int heads = 0;
  int seq = 0;
  int ffn = 0;  ///< set only for dflop_live; so are kv_heads, head_dim and vocabulary
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int layers = 0;
  int tp = 1;
  int dp = 1;
  int pp = 1;
  int micro_batch = 1;   ///< sequences
  int microbatches = 1;  ///< number per iteration and dp rank
  Seconds iteration{0};
  std::optional<Bytes> peak_memory_max_rank;  ///< max allocated bytes, on the rank with the largest
  std::optional<Bytes> peak_memory_min_rank;

  int gpus() const { return tp * dp * pp; }
  bool operator==(const TruthRow&) const = default;
};

struct TruthSet {
  std::string file;
  TruthKind kind = TruthKind::megatron_gpt;
  std::vector<TruthRow> rows;
};

/// Reads the CSV text of one file, with columns in any order:
///   gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iteration_s, or
///   model,layers,tp,pp,dp,microbatches,iteration_s,peak_allocated_bytes_max_rank,
///   peak_allocated_bytes_min_rank, or
///   model,hidden,ffn,heads,kv_heads,head_dim,vocabulary,layers,seq,micro_batch,microbatches,tp,dp,pp,
///   iteration_s,commit,note; commit and note are for people.
/// @throws Error (input) with "file:row N, column 'x'" for an unknown header, a missing or out-of-range
/// value, gpus other than tp x dp x pp, a global batch that dp x micro_batch does not divide, layers that pp
/// does not divide, heads that do not divide hidden or that tp does not divide, and for a file without rows.
TruthSet parse_ground_truth(std::string_view csv, const std::string& file);

/// Reads a file. @throws Error (input) if the file cannot be read; what parse_ground_truth() throws
TruthSet read_ground_truth(const std::string& path);

}  // namespace dflop
