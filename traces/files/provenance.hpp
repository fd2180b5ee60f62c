// A Provenance says how a file was made. Files of all schemas may contain one under kMadeBy. Results on
// standard output contain none, so that they are the same on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// An Origin identifies an input by name and by a hash of its contents.
struct Origin {
  std::string name;
  std::string hash;  ///< 16 hexadecimal digits; empty if unknown

  bool operator==(const Origin&) const = default;
};

/// A DataOrigin identifies a data set's file and how it was processed.
struct DataOrigin : Origin {
  std::int64_t samples = 0;
  std::vector<std::string> assumptions = {};  ///< made for records with missing values
  SampleCut cut = {};
  std::string delay = {};  ///< how outliers changed the order of samples; empty: not at all

  bool operator==(const DataOrigin&) const = default;
};

/// A MachineOrigin describes the machine on which a file was made.
struct MachineOrigin {
  std::string host;
  std::string processor;
  std::int64_t cores = 0;
  /// The share of the processor's time that other processes took during the measurement. Only measured
  /// results have it. Other results do not depend on it, and it would make their bytes differ between runs.
  std::optional<double> others = {};

  bool operator==(const MachineOrigin&) const = default;
};

struct Provenance {
  std::string version;
  std::string commit;  ///< with "-dirty" if the tree had changes; empty if unknown
  std::string command;
  std::optional<Origin> model = {};
  std::optional<Origin> cluster = {};
  std::optional<Origin> plan = {};
  std::optional<Origin> profile = {};
  std::optional<Origin> kernels = {};  ///< the file that chose the kernels or adjusted the profile
  std::optional<DataOrigin> data = {};
  std::optional<std::int64_t> gbs = {};
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int64_t> first_iteration = {};  ///< first iteration of the run or batches, from 0
  std::optional<MachineOrigin> machine = {};

  bool operator==(const Provenance&) const = default;
};

/// Returns the hash of a file's contents, for Origin::hash.
std::string content_hash(std::string_view contents);

/// Returns `json`, the text of a JSON object, with the key "made_by" added at its end.
std::string with_provenance(std::string json, const Provenance& made_by);

/// Reads the provenance under kMadeBy; returns nullopt if the file has none. Unknown keys from newer versions
/// are ignored.
/// @throws Error (input) naming the key of a value that has a wrong type.
std::optional<Provenance> read_provenance(const JsonValue& root);

/// Reads the provenance from a file's text. @throws Error (input) for a text that is not a JSON object; what
/// read_provenance() throws
std::optional<Provenance> parse_provenance(std::string_view json, const std::string& file);

/// Returns lines for people, such as "data       vision_mix.csv (2,000 samples, 41c2...)".
std::vector<std::string> provenance_lines(const Provenance& made_by);

/// Lists how the models, clusters and data of two files that are used together contradict each other: "model
/// tiny-vlm (0f3a...) and small-vlm (9e11...)". Values that either file leaves out do not contradict.
std::vector<std::string> contradictions(const Provenance& a, const Provenance& b);

}  // namespace dflop
