#include "traces/files/cluster_notes.hpp"

#include <fmt/format.h>

namespace dflop {
namespace {

constexpr double kMaxError = 100;     // relative to the measured time
constexpr double kMaxAllowance = 10;  // relative to a step
constexpr double kMinLineRate = 1e6;  // the same as for bandwidths, in bytes a second
constexpr double kMaxLineRate = 1e15;

std::optional<double> line_rate(const JsonValue& root, std::string_view link) {
  if (!root.has(link) || !root.at(link).has(kLineRateKey)) return std::nullopt;
  return root.at(link).at(kLineRateKey).number_in(kMinLineRate, kMaxLineRate);
}

}  // namespace

ClusterNotes read_cluster_notes(const JsonValue& root) {
  ClusterNotes notes;
  if (root.has(kGradeKey)) {
    const JsonValue grade = root.at(kGradeKey);
    grade.require_keys({"kind"}, {"error", "of"});
    notes.grade = grade.at("kind").choice<Grade>();
    if (grade.has("error")) notes.error = grade.at("error").number_in(0, kMaxError);
    if (grade.has("of")) notes.of = grade.at("of").string();
  }
  if (root.has(kAllowanceKey)) {
    const JsonValue allowance = root.at(kAllowanceKey);
    allowance.require_keys({"fraction", "source"});
    notes.allowance = allowance.at("fraction").number_in(0, kMaxAllowance);
    notes.allowance_source = allowance.at("source").string();
  }
  notes.intra_node_line_rate_bytes_per_s = line_rate(root, "intra_node");
  notes.inter_node_line_rate_bytes_per_s = line_rate(root, "inter_node");
  return notes;
}

ClusterNotes parse_cluster_notes(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  return read_cluster_notes(document.root("dflop.cluster", 1));
}

std::string describe(const ClusterNotes& notes) {
  std::string text(to_string(notes.grade));
  if (notes.error) text += fmt::format(", error {:.1f} %", 100 * *notes.error);
  if (!notes.of.empty()) text += fmt::format(" ({})", notes.of);
  return text;
}

}  // namespace dflop
