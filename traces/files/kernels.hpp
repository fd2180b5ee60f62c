// This file stores measured times of kernel variants on one machine (schema "dflop.kernels"), and the learned
// kernel choices that a checkpoint holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel_choice/kernel_planner.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// A KernelMachine identifies everything that durations depend on other than the calls. Durations are valid
/// only on an equal machine.
struct KernelMachine {
  std::string device;           ///< as World::device_name()
  std::int64_t processors = 0;  ///< multiprocessors of a GPU, or host cores available to the process
  std::string software;         ///< driver and libraries; empty for none
  std::string cpu;              ///< model of the host's processor
  std::string isa;              ///< instruction set that the kernels use
  std::int64_t threads = 1;     ///< per rank on a host device; 1 on other devices

  bool operator==(const KernelMachine&) const = default;
};

struct KernelFile {
  std::string dflop_version;
  KernelMachine machine;
  KernelTable table;

  bool operator==(const KernelFile&) const = default;
};

/// Returns a file, version 1. Each key is a row: the call, in the middle of its buckets, then counts, means
/// and variances (ns, ns^2) by variant.
std::string to_json(const KernelFile& file);

/// Reads a file, exact to the last bit. `file` names the text in errors.
/// @throws Error (input) naming the key, for a text that is not such a file or is truncated
KernelFile parse_kernel_file(std::string_view json, const std::string& file);

/// Returns the hash by which other files refer to this one as the source of their kernels.
std::string kernels_hash(const KernelFile& file);

/// Checks that a file's durations are valid on this machine.
/// @throws Error (input) naming the key, the expected and the found value, for a file of another machine,
/// driver, library or set of variants
void require_valid(const KernelFile& found, const std::string& file, const KernelMachine& machine,
                   const VariantNames& names);

/// A LearnedKernels is the learned state of a run, with its machine.
struct LearnedKernels {
  KernelMachine machine;
  PlannerState state;

  bool operator==(const LearnedKernels&) const = default;
};

/// Returns the state as JSON text of schema "dflop.kernel_state".
std::string to_json(const LearnedKernels& learned);
/// Reads the state, exact to the last bit. @throws Error (input) naming the key
LearnedKernels parse_learned_kernels(std::string_view json, const std::string& file);

/// RecordedKernels says which variants the steps of a recording used.
struct RecordedKernels {
  KernelMode mode = KernelMode::fixed;
  std::string file_hash;  ///< of the file that the run started with; empty for none
  VariantNames names;
  std::vector<KernelChoices> steps;  ///< without timed_one_of, and keys without mean_ns

  bool operator==(const RecordedKernels&) const = default;
};

/// Returns a file's JSON text, an object, with the key "kernels" at its end.
std::string with_kernels(std::string json, const RecordedKernels& kernels);
/// Reads the key "kernels". @throws Error (input) naming the wrong value
RecordedKernels read_recorded_kernels(const JsonValue& json);

}  // namespace dflop
