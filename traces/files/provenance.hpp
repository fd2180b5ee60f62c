// A Provenance says what made a file. Files of all schemas may carry one under kMadeBy; results on standard
// output carry none, so that they are the same on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// An Origin is something that has a name and contents; the hash tells contents apart.
struct Origin {
  std::string name;
  std::string hash;  ///< 16 hexadecimal digits; empty where unknown

  bool operator==(const Origin&) const = default;
};

/// A DataOrigin is the file of a data set, and what was made of it.
struct DataOrigin : Origin {
  std::int64_t samples = 0;
  std::vector<std::string> assumptions = {};  ///< for records that leave something out
  SampleCut cut = {};
  std::string delay = {};  ///< how outliers changed the order of samples; empty: they are as drawn

  bool operator==(const DataOrigin&) const = default;
};

/// A MachineOrigin is where it was made.
struct MachineOrigin {
  std::string host;
  std::string processor;
  std::int64_t cores = 0;
  /// This is the part of the machine's processor time that others took meanwhile. It is there for what was
  /// measured: other results do not depend on it, and would only stop being the same bytes.
  std::optional<double> others = {};

  bool operator==(const MachineOrigin&) const = default;
};

struct Provenance {
  std::string version;
  std::string commit;  ///< with "-dirty" where the tree had changes; empty where unknown
  std::string command;
  std::optional<Origin> model = {};
  std::optional<Origin> cluster = {};
  std::optional<Origin> plan = {};
  std::optional<Origin> profile = {};
  std::optional<Origin> kernels = {};  ///< the file by which kernels were chosen, or the profile adjusted
  std::optional<DataOrigin> data = {};
  std::optional<std::int64_t> gbs = {};
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int64_t> first_iteration = {};  ///< of the run or batches, from 0 on
  std::optional<MachineOrigin> machine = {};

  bool operator==(const Provenance&) const = default;
};

/// Returns the hash of an Origin's contents.
std::string content_hash(std::string_view contents);

/// Returns a file's JSON text, an object, with the key "made_by" at its end.
std::string with_provenance(std::string json, const Provenance& made_by);

/// Reads the key of a file's root; nothing where the file has none. Keys that a newer version has added are
/// passed over.
/// @throws Error (input) naming the key of a value of another type.
std::optional<Provenance> read_provenance(const JsonValue& root);

/// Reads it from a file's text. @throws Error (input) for a text that is no JSON object, and as above.
std::optional<Provenance> parse_provenance(std::string_view json, const std::string& file);

/// Returns lines for people, as "data       vision_mix.csv (2,000 samples, 41c2...)".
std::vector<std::string> provenance_lines(const Provenance& made_by);

/// Returns what two files that are to be used together contradict each other in, of model, cluster and data:
/// "model tiny-vlm (0f3a...) and small-vlm (9e11...)". What one of them does not know is no contradiction.
std::vector<std::string> contradictions(const Provenance& a, const Provenance& b);

}  // namespace dflop
