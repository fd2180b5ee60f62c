// A cluster's file says, beside its figures, how far they can be trusted: notes for people who read results.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/names.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// A Grade says what the figures of a cluster were held against.
enum class Grade : std::uint8_t {
  unknown,   ///< the file does not say
  nominal,   ///< data sheets and what others have published; no iteration was measured
  fitted,    ///< fitted to measured iterations
  measured,  ///< measured on this very device, operation by operation
};

template <>
inline constexpr NameTable<Grade, 4> kNames<Grade> = {{{Grade::unknown, "unknown"},
                                                       {Grade::nominal, "nominal"},
                                                       {Grade::fitted, "fitted"},
                                                       {Grade::measured, "measured"}}};

/// ClusterNotes are what a cluster's file says of its figures.
struct ClusterNotes {
  Grade grade = Grade::unknown;
  std::optional<double> error = {};  ///< mean absolute error of iteration times, as a part of them
  std::string of = {};               ///< what was measured, or why nothing was
  /// So much longer than its simulated step, as a part of it, was a step from its begin to that of the next
  /// where it was measured; none: it was not.
  std::optional<double> allowance = {};
  std::string allowance_source = {};  ///< what is in it, and where it was measured
  /// Line rates are those of a GPU in one direction, as printed on the box.
  std::optional<double> intra_node_line_rate_bytes_per_s = {};
  std::optional<double> inter_node_line_rate_bytes_per_s = {};

  bool operator==(const ClusterNotes&) const = default;
};

/// These keys of a cluster's root are notes; "line_rate_bytes_per_s" is one of its links.
inline constexpr std::string_view kGradeKey = "grade";
inline constexpr std::string_view kAllowanceKey = "allowance";
inline constexpr std::string_view kPlaceholderKey = "placeholder";  ///< of ClusterSpec, and no note
inline constexpr std::string_view kLineRateKey = "line_rate_bytes_per_s";

/// Reads the notes of a cluster's root; what is not there stays unknown. @throws Error (input) naming the key
ClusterNotes read_cluster_notes(const JsonValue& root);

/// Reads them from the text of a cluster's file. @throws Error (input) also for a text that is no cluster
ClusterNotes parse_cluster_notes(std::string_view json, const std::string& file);

/// Returns "fitted, error 2.1 % (what was measured)".
std::string describe(const ClusterNotes& notes);

}  // namespace dflop
