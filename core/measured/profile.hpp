// ProfileTables hold measured durations of the parts of one model on one device.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/names.hpp"
#include "core/program.hpp"
#include "core/quanta.hpp"
#include "core/units.hpp"

namespace dflop {

/// A ProfileUnit is a part of a model that is measured separately. A transformer layer has two units: its
/// linear part (norms, projections, MLP, additions) and its attention part (the attention itself and the
/// rotation of queries and keys).
enum class ProfileUnit : std::uint8_t {
  patches,
  encoder_linear,
  encoder_attention,
  connector,
  embedding,
  llm_linear,
  llm_attention,
  head,
};
inline constexpr std::size_t kProfileUnits = 8;

template <>
inline constexpr NameTable<ProfileUnit, kProfileUnits> kNames<ProfileUnit> = {
    {{ProfileUnit::patches, "patches"},
     {ProfileUnit::encoder_linear, "encoder_linear"},
     {ProfileUnit::encoder_attention, "encoder_attention"},
     {ProfileUnit::connector, "connector"},
     {ProfileUnit::embedding, "embedding"},
     {ProfileUnit::llm_linear, "llm_linear"},
     {ProfileUnit::llm_attention, "llm_attention"},
     {ProfileUnit::head, "head"}}};

constexpr bool is_attention(ProfileUnit unit) {
  return unit == ProfileUnit::encoder_attention || unit == ProfileUnit::llm_attention;
}

/// Returns whether a model has a unit: a model without an encoder has no encoder units and no connector. The
/// model of second_tables() has no LLM.
inline bool has_unit(const ModelSpec& model, ProfileUnit unit) {
  switch (unit) {
    case ProfileUnit::patches:
    case ProfileUnit::encoder_linear:
    case ProfileUnit::encoder_attention:
    case ProfileUnit::connector:
      return model.encoder.layers > 0;
    case ProfileUnit::embedding:
    case ProfileUnit::llm_linear:
    case ProfileUnit::llm_attention:
    case ProfileUnit::head:
      return model.llm.layers > 0;
  }
  return true;
}

/// A ProfilePoint is one measured call of a unit. For the encoder's units and the connector, tokens are
/// counted before merging.
struct ProfilePoint {
  std::int64_t tokens = 0;
  std::int64_t length = 0;  ///< of each sequence; 0 for units without attention
  double forward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  /// The backward_input of a layer's linear part takes this much longer if the whole layer is recomputed
  /// before it. Absent if not measured.
  std::optional<double> recompute_s = {};
  /// This is the part of forward_s in which the host prepares and uploads the device's input, such as pixels.
  /// A run overlaps it with the previous microbatch, except in the first microbatch of a step. Absent if the
  /// host is the device.
  std::optional<double> host_s = {};

  bool operator==(const ProfilePoint&) const = default;
};

/// UnitPoints are the points of one unit, in increasing order of tokens; for attention, in increasing order
/// of length and then tokens.
using UnitPoints = std::vector<ProfilePoint>;

/// BytesPerToken has the bytes per token of each part of a model. Layers have one number for each
/// Recomputation: none, selective, full.
struct BytesPerToken {
  std::array<double, 3> encoder_layer{};
  std::array<double, 3> llm_layer{};
  double patches = 0;
  double connector = 0;
  double embedding = 0;
  double head = 0;

  bool operator==(const BytesPerToken&) const = default;
};

/// A TpMode says how the ranks of a tp group share a layer. Sequence parallelism needs at least two ranks.
struct TpMode {
  int tp = 1;
  bool sequence_parallel = false;

  auto operator<=>(const TpMode&) const = default;
};

inline TpMode tp_mode(int tp, bool sequence_parallel) {
  return {tp, sequence_parallel && tp > 1};
}
inline TpMode tp_mode(const Stage& stage) {
  return tp_mode(stage.tp, stage.sequence_parallel);
}
/// Returns "tp 2 with sequence parallelism".
inline std::string to_string(const TpMode& mode) {
  return "tp " + std::to_string(mode.tp) + (mode.sequence_parallel ? " with sequence parallelism" : "");
}

/// A ProfileLine is a fitted line: start_s + amount * s_per_unit.
struct ProfileLine {
  double start_s = 0;
  double s_per_unit = 0;

  double at(double amount) const { return start_s + amount * s_per_unit; }
  bool operator==(const ProfileLine&) const = default;
};

/// AttentionWindows describe an encoder in which the attention of some layers stays within windows: the
/// number of these layers, and the tokens of a full window.
struct AttentionWindows {
  int layers = 0;
  std::int64_t tokens = 0;

  bool operator==(const AttentionWindows&) const = default;
};

/// PassFactors are the factors by which a busy neighbor on the same device lengthens a unit's passes.
struct PassFactors {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  bool operator==(const PassFactors&) const = default;
};

/// A PartProfile has additional measurements for ranks that compute on only a part of their device. The
/// factors compare runs in which neighbors ran units on the rest of the devices with runs in which they did
/// not.
struct PartProfile {
  std::array<PassFactors, kProfileUnits> beside;  ///< by ProfileUnit
  ProfileLine optimizer;                          ///< per parameter
  double optimizer_beside = 1;                    ///< factor by which a busy neighbor lengthens `optimizer`

  bool operator==(const PartProfile&) const = default;
};

/// A TpProfile has the measurements for one TpMode and one part of each device. Bytes are per rank.
struct TpProfile {
  TpMode mode;
  BytesPerToken activation;        ///< kept from a forward to its backward
  BytesPerToken forward_buffers;   ///< in addition to `activation` while the forward runs
  BytesPerToken backward_buffers;  ///< while the backward runs, including gradients
  /// By ProfileUnit; units that a model without an encoder lacks are empty.
  std::array<UnitPoints, kProfileUnits> units;
  int quanta = 1;                        ///< quanta of the device on which a rank computed
  std::optional<PartProfile> part = {};  ///< none if these were all quanta of the device

  const UnitPoints& of(ProfileUnit unit) const { return units[static_cast<std::size_t>(unit)]; }
  UnitPoints& of(ProfileUnit unit) { return units[static_cast<std::size_t>(unit)]; }
  bool operator==(const TpProfile&) const = default;
};

/// ProfileSettings are the options of the measuring run.
struct ProfileSettings {
  std::uint64_t seed = 1;
  double budget_s = 0;
  std::int64_t most_tokens = 0;
  int busy_ranks = 1;  ///< number of ranks that ran units at the same time during the measurement

  bool operator==(const ProfileSettings&) const = default;
};

/// ProfileTables have all measurements of one model on one device.
struct ProfileTables {
  std::string dflop_version;
  std::string device;                     ///< see World::device_name()
  std::string cpu;                        ///< model of the host's processor
  std::string software;                   ///< driver and libraries, see World::software(); may be empty
  std::string dtype;                      ///< "f32", "f64", "bf16"
  std::string kernels;                    ///< hash of the file that chose kernels; empty: defaults ran
  std::int64_t value_bytes = kFp32Bytes;  ///< of an activation or weight
  std::int64_t sum_bytes = kFp32Bytes;    ///< of a gradient or optimizer state
  int row_alignment = 1;                  ///< of rows within MLPs, as in with_padded_rows()
  ModelSpec model;                        ///< as returned by profiled_model()
  ProfileSettings settings;
  /// A device is divided between its ranks in this many quanta: cores of the host, groups of a GPU's
  /// multiprocessors.
  int quanta = 1;
  std::vector<TpProfile> tp;                ///< in increasing order of mode, then quanta; at least one
  std::vector<TpProfile> second_tp = {};    ///< of the second encoder and its connector, in the same order
  std::optional<AttentionWindows> windows;  ///< of the encoder, if it has any
  ProfileLine optimizer;                    ///< per parameter
  /// This is the time per parameter to sum a rank's squared gradients for their norm. Zero if not measured.
  ProfileLine norm;
  ProfileLine message;                    ///< per byte
  std::map<int, ProfileLine> all_reduce;  ///< per byte, by number of ranks

  bool operator==(const ProfileTables&) const = default;
};

/// Returns the tables of the second encoder and its connector, as for a model without an LLM.
/// @pre profile.model.second
inline ProfileTables second_tables(const ProfileTables& profile) {
  ProfileTables second = profile;
  second.model = profile.model.of_second();
  second.model.llm.layers = 0;
  second.tp = profile.second_tp;
  second.second_tp.clear();
  second.windows.reset();
  return second;
}

/// Returns whether the device runs kernels that the host launches.
inline bool launches_kernels(const ProfileTables& profile) {
  return !profile.device.starts_with("host");
}

/// Returns the number of its device's quanta that a rank of `stage` computes on: all, or in a shared plan its
/// module's quanta.
inline int quanta_of(const Stage& stage, int quanta) {
  if (stage.share == 1 || quanta < 2) return quanta;
  const bool is_encoder = stage.encoder_layers > 0;
  const int encoder = encoder_quanta(quanta, is_encoder ? stage.share : 1 - stage.share);
  return is_encoder ? encoder : quanta - encoder;
}

/// Returns whether a profile covers a stage: it has tables of the stage's mode for its number of quanta, or
/// for both fewer and more.
inline bool has_tables(const ProfileTables& profile, const Stage& stage) {
  if (stage.share != 1 && profile.quanta < 2) return false;
  const int quanta = quanta_of(stage, profile.quanta);
  bool fewer = false;
  bool more = false;
  for (const TpProfile& tables : profile.tp) {
    if (tables.mode != tp_mode(stage)) continue;
    fewer = fewer || tables.quanta <= quanta;
    more = more || tables.quanta >= quanta;
  }
  return fewer && more;
}

/// Returns the name of tables: "tp 2 with sequence parallelism" or, on a part of a device of four quanta, "tp
/// 1 on 3/4 of a device".
inline std::string to_string(const TpMode& mode, int quanta, int of_quanta) {
  if (quanta == of_quanta) return to_string(mode);
  return to_string(mode) + " on " + std::to_string(quanta) + "/" + std::to_string(of_quanta) + " of a device";
}

/// Returns the name of the tables that a stage needs, like to_string(); "tp 1 on a part of a device" if a
/// profile covers only whole devices.
inline std::string needed_tables(const ProfileTables& profile, const Stage& stage) {
  if (stage.share != 1 && profile.quanta < 2) return to_string(tp_mode(stage)) + " on a part of a device";
  return to_string(tp_mode(stage), quanta_of(stage, profile.quanta), profile.quanta);
}

/// Returns the names of a profile's tables: "tp 1, tp 2".
inline std::string measured_tables(const ProfileTables& profile) {
  std::string measured;
  for (const TpProfile& tables : profile.tp) {
    measured += (measured.empty() ? "" : ", ") + to_string(tables.mode, tables.quanta, profile.quanta);
  }
  return measured;
}

/// Returns the model as a profile stores it: name, sizes and layers, without the preprocessing rule, the max
/// sequence length, layer forms and other properties that the name implies. It keeps whether embeddings are
/// tied, because this determines the parameter count.
inline ModelSpec profiled_model(const ModelSpec& model) {
  ModelSpec profiled = model;
  profiled.preprocess.clear();
  profiled.max_tokens = 0;
  const auto forget_forms = [](TransformerSpec& spec) {
    const TransformerSpec unset;
    spec.attention = unset.attention;
    spec.dropout = unset.dropout;
    spec.fused_cross_entropy = unset.fused_cross_entropy;
    spec.form.reset();
  };
  forget_forms(profiled.encoder);
  forget_forms(profiled.llm);
  if (profiled.second) {
    forget_forms(profiled.second->encoder);
    profiled.second->front = {};
    profiled.second->form = {};
  }
  profiled.architecture.reset();
  return profiled;
}

}  // namespace dflop
