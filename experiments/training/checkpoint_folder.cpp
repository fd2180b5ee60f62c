#include "experiments/training/checkpoint_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "backend/run/live_checkpoint.hpp"
#include "core/error.hpp"
#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/text/staged_file.hpp"

namespace dflop {
namespace {

constexpr int kKept = 2;

std::string sizes(const TransformerSpec& spec) {
  return fmt::format("{} layers {} wide, ffn {}{}, heads {}/{} of {}, vocabulary {}", spec.layers,
                     spec.hidden, spec.ffn, spec.gated_mlp ? " gated" : "", spec.heads, spec.kv_heads,
                     spec.head_dim, spec.vocabulary);
}

/// Describes what the layers of a module compute. The text is for people, and differs between models with
/// different layers.
std::string forms(const TransformerSpec& spec) {
  const LayerForm form = spec.layer_form();
  std::string text = fmt::format("{} norm {}", form.norm == NormKind::rms ? "RMS" : "layer", form.epsilon);
  const auto add = [&](bool has, const char* what) {
    if (has) text += fmt::format(", {}", what);
  };
  add(form.qkv_bias, form.key_bias ? "biases of qkv" : "biases of q and v");
  add(form.output_bias, "of attention's output");
  add(form.mlp_bias, "of the MLP");
  add(form.qk_norm != QkNormKind::none,
      form.qk_norm == QkNormKind::each_head ? "norms of each head of q and k" : "norms of q and k");
  add(form.layer_scale, "scales");
  add(spec.tied_embeddings, "tied embeddings");
  if (form.rotary) text += fmt::format(", rotary base {}", form.rotary->base);
  if (form.rotary && form.rotary->scaling) {
    const RopeScaling& s = *form.rotary->scaling;
    text += fmt::format(" scaled {} {} {} {}", s.factor, s.low_frequency_factor, s.high_frequency_factor,
                        s.original_positions);
  }
  if (form.rotary && !form.rotary->sections.empty())
    text += fmt::format(" in {}", fmt::join(form.rotary->sections, "-"));
  const auto windowed = std::count(form.windowed.begin(), form.windowed.end(), true);
  if (windowed > 0) text += fmt::format(", {} layers in windows", windowed);
  return text;
}

void require_same(const std::string& path, const char* what, const std::string& expected,
                  const std::string& found) {
  if (expected == found) return;
  refuse_input(path, "the checkpoint is from another run: expected {} '{}', found '{}'", what, expected,
               found);
}

/// Finds the newest checkpoint with intact files; nothing if there is none. The processes share the
/// verification of the files.
std::optional<std::string> find_newest(World& world, const std::string& folder) {
  std::vector<std::string> paths;
  do_in_all(world, [&] {
    if (world.leads()) paths = step_paths(folder);
  });
  const auto count = std::stoul(world.broadcast(std::to_string(paths.size())));
  paths.resize(count);
  const auto is_ours = [&, ranks = world.local_ranks()](std::size_t file) {
    const int rank = static_cast<int>(file % static_cast<std::size_t>(world.ranks()));
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  for (std::string& path : paths) path = world.broadcast(path);
  const NewestStep newest = newest_step(
      paths, [&](const std::string& path) { do_in_all(world, [&] { verify_step(path, is_ours); }); });
  if (world.leads()) {
    for (const std::string& note : newest.notes) say("dflop: note: ignored {}\n", note);
  }
  if (newest.path) return newest.path;
  if (count > 0)
    refuse_input(folder, "none of its checkpoints can be read: remove them, or name another folder");
  if (world.leads()) say("dflop: note: no checkpoint in '{}': training begins at step 1\n", folder);
  return std::nullopt;
}

/// Returns the index of a checkpoint of this run. @throws Error (input) if it belongs to another run
CheckpointIndex index_of(const std::string& path, const RunIdentity& run) {
  CheckpointIndex index = CheckpointReader(path).index();
  require_same(path, "model", run.model_spec, index.model_spec);
  require_same(path, "seed", std::to_string(run.seed), std::to_string(index.seed));
  require_same(path, "gbs", std::to_string(run.gbs), std::to_string(index.gbs));
  require_same(path, "data with fingerprint", run.data_fingerprint, index.data_fingerprint);
  return index;
}

/// Waits until a file is visible. Returns false if it is not within `longest`.
bool comes_to_be_seen(const std::string& file, std::chrono::milliseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  std::error_code ignored;
  while (!std::filesystem::exists(file, ignored)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "a machine";
}

/// Returns whether a checkpoint has a readable index. Does not read its other files, which may be large.
bool has_index(const std::string& path) {
  try {
    verify_step(path, [](std::size_t) { return false; });
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Rejects a folder of an earlier version, which has a single file for each checkpoint.
void refuse_old_checkpoints(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || !name.ends_with(".ckpt")) continue;
    refuse_input(entry.path().string(),
                 "a checkpoint of an earlier version, in one file: expected folders such as "
                 "step-00000050; continue with the version that wrote it, or name another folder");
  }
}

}  // namespace

std::string fingerprint(std::span<const Sample> samples) {
  std::uint64_t hash = kHashOfNothing;
  std::string text;  // text of one sample; the text of all samples may be larger than the samples
  for (const Sample& s : samples) {
    text.clear();
    fmt::format_to(std::back_inserter(text), "{} {} {} {}", s.id, to_string(s.modality),
                   s.encoder_output_tokens, s.llm_tokens);
    for (const EncoderSequences& e : s.encoder_sequences) {
      fmt::format_to(std::back_inserter(text), " {} {} {}", e.count, e.tokens, e.attention_pairs);
      if (e.second) text += " second";
    }
    text += '\n';
    hash = stable_hash(text, hash);
  }
  return fmt::format("{:016x}", hash);
}

RunIdentity run_identity(const ModelSpec& model, const std::string& data_file,
                         const std::string& data_fingerprint, std::uint64_t seed, int gbs) {
  std::string spec =
      fmt::format("encoder {}; connector {} of {}; llm {}", sizes(model.encoder),
                  fmt::join(model.connector.widths, "-"), model.connector.merge, sizes(model.llm));
  if (model.second) {
    spec += fmt::format("; second encoder {}; connector {} of {}", sizes(model.second->encoder),
                        fmt::join(model.second->connector.widths, "-"), model.second->connector.merge);
  }
  if (model.architecture) {  // all presets have the same form
    if (model.encoder.layers > 0) spec += "; encoder's " + forms(model.encoder);
    if (model.second) spec += "; second encoder's " + forms(model.second->encoder);
    spec += "; llm's " + forms(model.llm);
  }
  return {model.name, spec, data_file, data_fingerprint, seed, gbs};
}

void save_checkpoint(const CheckpointFolder& folder, std::int64_t step, const SavedSettings& settings) {
  CheckpointIndex index;
  static_cast<RunIdentity&>(index) = folder.run;
  index.step = step;
  index.scheduler = settings.scheduler;
  index.samples_drawn = step * folder.run.gbs;
  index.plan = settings.plan;
  index.optimizer = settings.optimizer;
  if (folder.kernels != nullptr) index.kernels = folder.kernels->learned();
  if (settings.attention_sums != AttentionSums::fixed)
    index.attention_sums = to_string(settings.attention_sums);
  try {
    folder.executor.save(folder.path, index);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::output) throw;
    throw Error(ErrorKind::output,
                fmt::format("{}; there is no checkpoint of step {}. Earlier checkpoints, if any, are "
                            "complete: --resume continues from the newest",
                            error.message(), step),
                error.context());
  }
  if (folder.world.leads()) keep_newest_steps(folder.path, step, kKept);
}

ResumedRun resume_training(const CheckpointFolder& folder, const ResumeSettings& settings,
                           OptimizerChoice& optimizer) {
  World& world = folder.world;
  const std::optional<std::string> path = find_newest(world, folder.path);
  if (!path) return {};
  const CheckpointIndex index = index_of(*path, folder.run);
  std::string chosen;
  do_in_all(world, [&] {
    if (!world.leads()) return;
    for (const std::string& note : keep_settings(settings.given, index.optimizer, optimizer))
      say("dflop: note: {}\n", note);
    check_optimizer(optimizer);
    chosen = describe(optimizer);
    if (settings.dtype && dtype_of_index(*settings.dtype) != index.dtype) {
      say("dflop: note: the run continues in {}; it was in {} before\n",
          to_string(dtype_of_index(*settings.dtype)), to_string(index.dtype));
    }
    const std::string_view sums_before = index.attention_sums.empty()
                                             ? to_string(AttentionSums::fixed)
                                             : std::string_view(index.attention_sums);
    if (settings.attention_sums && to_string(*settings.attention_sums) != sums_before) {
      say("dflop: note: the run continues with --attention-sums {}; it had {} before\n",
          to_string(*settings.attention_sums), sums_before);
    }
    say("dflop: continues after step {} of {}\n", index.step, *path);
    for (const std::string& aside : set_aside_steps(folder.path, index.step)) {
      say("dflop: note: the damaged checkpoint was renamed to {}: it no longer counts as a checkpoint, "
          "and no run removes it\n",
          aside);
    }
    if (folder.kernels != nullptr) folder.kernels->resume(index.kernels, *path);
  });
  take_description(world.broadcast(chosen), optimizer);  // because processes may have been given different
                                                         // options
  folder.executor.load(*path);
  return {index.step, index.optimizer.count("learning-rate") > 0};
}

void require_seen_by_all(World& world, const std::string& folder, std::chrono::milliseconds longest) {
  if (std::ssize(world.local_ranks()) == world.ranks()) return;
  const std::string name = (std::filesystem::path(folder) / ".seen").string();
  std::optional<StagedFile> own;  // its file is removed when this function ends, or by a signal
  do_in_all(world, [&] {
    if (world.leads()) own.emplace(name);
  });
  const std::string seen = world.broadcast(own ? own->part() : "");  // other processes write next to this
                                                                     // file
  do_in_all(world, [&] {
    const int rank = world.local_ranks().front();
    if (!comes_to_be_seen(seen, longest)) {
      throw Error(
          ErrorKind::output,
          fmt::format("rank {} on {} does not see what rank 0 writes there; expected a folder on a disk "
                      "that all machines of the run share",
                      rank, host_name()),
          folder);
    }
    if (!own) own.emplace(fmt::format("{}-{}", seen, rank));
  });
}

FolderLock prepare_checkpoints(const std::string& folder, bool resume, std::int64_t last_step,
                               std::int64_t every) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem || !std::filesystem::is_directory(folder, problem)) {
    const std::string reason = problem ? problem.message() : "something else has this name";
    throw Error(ErrorKind::output, "a folder for checkpoints cannot be created: " + reason, folder);
  }
  check_output((std::filesystem::path(folder) / kCheckpointIndex).string());
  std::optional<FolderLock> lock = FolderLock::try_hold(folder);
  if (!lock) {
    throw Error(ErrorKind::usage, "option '--checkpoint': another run uses '" + folder +
                                      "'; wait until it ends, or name another folder");
  }
  refuse_old_checkpoints(folder);
  for (const std::string& path : taken_step_paths(folder, last_step, every)) {
    throw Error(ErrorKind::output,
                "has the name of a checkpoint but is not one; remove it, or name another folder", path);
  }
  const std::vector<std::string> steps = step_paths(folder);
  if (!resume && std::any_of(steps.begin(), steps.end(), has_index)) {
    throw Error(ErrorKind::usage, "option '--checkpoint': '" + folder +
                                      "' already has checkpoints; continue from them with --resume, or "
                                      "name another folder");
  }
  return std::move(*lock);
}

}  // namespace dflop
