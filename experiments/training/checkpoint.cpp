#include "experiments/training/checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/say.hpp"
#include "traces/files/checkpoint.hpp"

namespace dflop {
namespace {

constexpr int kKept = 2;

using Kind = ParameterStore::Kind;
constexpr std::array<std::pair<Kind, TensorKind>, 3> kKinds = {{
    {Kind::weight, TensorKind::weight},
    {Kind::moment1, TensorKind::moment1},
    {Kind::moment2, TensorKind::moment2},
}};

std::string sizes(const TransformerSpec& spec) {
  return fmt::format("{} layers {} wide, ffn {}{}, heads {}/{} of {}, vocabulary {}", spec.layers,
                     spec.hidden, spec.ffn, spec.gated_mlp ? " gated" : "", spec.heads, spec.kv_heads,
                     spec.head_dim, spec.vocabulary);
}

void require_same(const std::string& path, const char* what, const std::string& expected,
                  const std::string& found) {
  if (expected == found) return;
  refuse_input(path, "a checkpoint of another run: expected {} '{}', found '{}'", what, expected, found);
}

struct FoundCheckpoint {
  std::string path;
  Checkpoint checkpoint;
};

/// Finds the newest checkpoint of the run, of step 0 where there is none.
FoundCheckpoint read_newest(const std::string& folder, const RunIdentity& run) {
  const NewestCheckpoint newest = newest_checkpoint(folder);
  for (const std::string& note : newest.notes) say("dflop: note: passed over {}\n", note);
  if (!newest.path && !newest.notes.empty()) {
    refuse_input(folder, "has checkpoints of which none can be read; expected one that can, or no --resume");
  }
  if (!newest.path) {
    say("dflop: note: no checkpoint in '{}': training begins at step 1\n", folder);
    return {};
  }
  Checkpoint checkpoint = read_checkpoint(*newest.path);
  require_same(*newest.path, "model", run.model_spec, checkpoint.model_spec);
  require_same(*newest.path, "seed", std::to_string(run.seed), std::to_string(checkpoint.seed));
  require_same(*newest.path, "gbs", std::to_string(run.gbs), std::to_string(checkpoint.gbs));
  require_same(*newest.path, "data with fingerprint", run.data_fingerprint, checkpoint.data_fingerprint);
  say("dflop: goes on after step {} of {}\n", checkpoint.step, *newest.path);
  return {*newest.path, std::move(checkpoint)};
}

/// Sets the executor's state. It is called by all processes of the world, of which the leading one has the
/// tensors.
/// @throws Error (input) with the checkpoint's path
void set_state(std::vector<NamedTensor>& all, const std::string& path, LiveExecutor& executor) {
  for (const auto& [kind, stored] : kKinds) {
    WholeTensors tensors;
    for (NamedTensor& tensor : all) {
      if (tensor.kind == stored)
        tensors[tensor.name] = {tensor.rows, tensor.columns, std::move(tensor.values)};
    }
    try {
      executor.write(kind, tensors);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      throw Error(error.kind(), fmt::format("{}: {}", to_string(stored), error.what()), path);
    }
  }
}

}  // namespace

std::string fingerprint(std::span<const Sample> samples) {
  std::string text;
  for (const Sample& s : samples) {
    fmt::format_to(std::back_inserter(text), "{} {} {} {}", s.id, to_string(s.modality),
                   s.encoder_output_tokens, s.llm_tokens);
    for (const EncoderSequences& e : s.encoder_sequences) {
      fmt::format_to(std::back_inserter(text), " {} {} {}", e.count, e.tokens, e.attention_pairs);
    }
    text += '\n';
  }
  return fmt::format("{:016x}", stable_hash(text));
}

RunIdentity run_identity(const ModelSpec& model, const std::string& data_file,
                         const std::string& data_fingerprint, std::uint64_t seed, int gbs) {
  const std::string spec =
      fmt::format("encoder {}; connector {} of {}; llm {}", sizes(model.encoder),
                  fmt::join(model.connector.widths, "-"), model.connector.merge, sizes(model.llm));
  return {model.name, spec, data_file, data_fingerprint, seed, gbs};
}

void save_checkpoint(const std::string& folder, const RunIdentity& run, const Plan& plan,
                     const std::string& scheduler, std::int64_t step, World& world, LiveExecutor& executor,
                     const RunKernels* kernels) {
  Checkpoint checkpoint{run, step, ElementType::f32, scheduler, step * run.gbs, describe(plan), {}, {}};
  if (kernels != nullptr) checkpoint.kernels = kernels->checkpoint();
  for (const auto& [kind, stored] : kKinds) {
    for (auto& [name, tensor] : executor.read(kind)) {
      checkpoint.tensors.push_back(
          {name, stored, ElementType::f32, tensor.rows, tensor.columns, std::move(tensor.values)});
    }
  }
  if (!world.leads()) return;
  write_checkpoint(checkpoint_path(folder, step), checkpoint);
  keep_newest(folder, kKept);
}

std::int64_t resume_training(const std::string& folder, const RunIdentity& run, World& world,
                             LiveExecutor& executor, RunKernels* kernels) {
  FoundCheckpoint found;
  if (world.leads()) found = read_newest(folder, run);
  const std::int64_t step = std::stoll(world.broadcast(std::to_string(found.checkpoint.step)));
  if (step == 0) return 0;
  if (kernels != nullptr && world.leads()) kernels->resume(found.checkpoint.kernels, found.path);
  set_state(found.checkpoint.tensors, world.broadcast(found.path), executor);
  return step;
}

FolderLock prepare_checkpoints(const std::string& folder, bool resume, std::int64_t last_step,
                               std::int64_t every) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem || !std::filesystem::is_directory(folder, problem)) {
    const std::string reason = problem ? problem.message() : "something else has its name";
    throw Error(ErrorKind::output, "a folder for checkpoints cannot be made: " + reason, folder);
  }
  check_output(checkpoint_path(folder, last_step));
  std::optional<FolderLock> lock = FolderLock::try_hold(folder);
  if (!lock) {
    throw Error(ErrorKind::usage, "option '--checkpoint': another run has '" + folder +
                                      "'; wait for its end, or name another folder");
  }
  for (const std::string& path : taken_checkpoint_paths(folder, last_step, every)) {
    throw Error(ErrorKind::output,
                "is no file and has the name of a checkpoint; remove it, or name another folder", path);
  }
  if (!resume && newest_checkpoint(folder).path) {
    throw Error(ErrorKind::usage, "option '--checkpoint': '" + folder +
                                      "' has checkpoints already; go on from them with --resume, or name "
                                      "another folder");
  }
  return std::move(*lock);
}

}  // namespace dflop
