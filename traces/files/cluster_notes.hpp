// A cluster's file contains notes on how far its figures can be trusted, for people who read results.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/names.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// A Grade says how the figures of a cluster were obtained.
enum class Grade : std::uint8_t {
  unknown,   ///< the file does not say
  nominal,   ///< from data sheets and publications; no iteration was measured
  fitted,    ///< fitted to measured iterations
  measured,  ///< measured on this device, operation by operation
};

template <>
inline constexpr NameTable<Grade, 4> kNames<Grade> = {{{Grade::unknown, "unknown"},
                                                       {Grade::nominal, "nominal"},
                                                       {Grade::fitted, "fitted"},
                                                       {Grade::measured, "measured"}}};

/// ClusterNotes are a cluster file's notes on its figures.
struct ClusterNotes {
  Grade grade = Grade::unknown;
  std::optional<double> error = {};  ///< mean absolute error of predicted iteration times, relative
  std::string of = {};               ///< the basis of `error`: what was measured, or why nothing was
  /// The measured time from the begin of one step to the begin of the next exceeded the simulated time of a
  /// step by this fraction of the simulated time; empty if it was not measured.
  std::optional<double> allowance = {};
  std::string allowance_source = {};  ///< what the allowance covers, and where it was measured
  /// Line rates are nominal, for one GPU in one direction.
  std::optional<double> intra_node_line_rate_bytes_per_s = {};
  std::optional<double> inter_node_line_rate_bytes_per_s = {};

  bool operator==(const ClusterNotes&) const = default;
};

/// These keys of a cluster's root are notes; "line_rate_bytes_per_s" is a note of each link.
inline constexpr std::string_view kGradeKey = "grade";
inline constexpr std::string_view kAllowanceKey = "allowance";
inline constexpr std::string_view kPlaceholderKey = "placeholder";  ///< a ClusterSpec key, not a note
inline constexpr std::string_view kLineRateKey = "line_rate_bytes_per_s";

/// Reads the notes of a cluster's root; missing notes stay unknown. @throws Error (input) naming the key
ClusterNotes read_cluster_notes(const JsonValue& root);

/// Reads the notes from the text of a cluster's file. @throws Error (input) naming the key, also if the text
/// is not a cluster
ClusterNotes parse_cluster_notes(std::string_view json, const std::string& file);

/// Returns a text such as "fitted, error 2.1 % (what was measured)".
std::string describe(const ClusterNotes& notes);

}  // namespace dflop
