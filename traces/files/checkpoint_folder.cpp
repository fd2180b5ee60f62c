#include "traces/files/checkpoint_folder.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "traces/files/checkpoint.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

/// The step of a file name that checkpoint_path() gives.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* digits = name.data() + kPrefix.size();
  if (std::from_chars(digits, name.data() + name.size(), step).ec != std::errc()) return std::nullopt;
  return step >= 0 && checkpoint_path("", step) == name ? std::optional(step) : std::nullopt;
}

struct CheckpointFiles {
  std::map<std::int64_t, std::string, std::greater<>> complete;  // by step, the highest first
  std::multimap<std::int64_t, std::string> parts;                // of killed writers
  std::map<std::int64_t, std::string> others;                    // that are called so and are no files
};

CheckpointFiles list_existing(const std::string& folder) {
  CheckpointFiles files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code ignored;  // of a link to nowhere
    const bool is_file = entry.is_regular_file(ignored);
    const std::string name = entry.path().filename().string();
    const std::size_t part = name.find(".part-");
    const auto step = step_of(name.substr(0, part));
    if (!step) continue;
    if (!is_file) {
      if (part == std::string::npos && entry.exists(ignored))
        files.others.emplace(*step, entry.path().string());
    } else if (part == std::string::npos) {
      files.complete.emplace(*step, entry.path().string());
    } else {
      files.parts.emplace(*step, entry.path().string());
    }
  }
  return files;
}

/// @throws Error (input)
CheckpointFiles list_checkpoints(const std::string& folder) {
  try {
    return fs::exists(folder) ? list_existing(folder) : CheckpointFiles();
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::input, "cannot be listed: " + error.code().message(), folder);
  }
}

NewestCheckpoint newest_of(const CheckpointFiles& files) {
  NewestCheckpoint newest;
  for (const auto& [step, path] : files.complete) {
    try {
      const std::int64_t inside = read_checkpoint(path).step;
      if (inside != step) {
        throw Error(ErrorKind::input,
                    fmt::format("is of step {}: expected that of its name, {}", inside, step), path);
      }
      newest.path = path;
      return newest;
    } catch (const Error& error) {
      newest.notes.emplace_back(error.what());
    }
  }
  return newest;
}

void remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw Error(ErrorKind::output, "cannot be removed: " + error.message(), path);
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return (fs::path(folder) / fmt::format("step-{:08}.ckpt", step)).string();
}

NewestCheckpoint newest_checkpoint(const std::string& folder) {
  return newest_of(list_checkpoints(folder));
}

std::vector<std::string> taken_checkpoint_paths(const std::string& folder, std::int64_t last_step,
                                                std::int64_t every) {
  std::vector<std::string> taken;
  for (const auto& [step, path] : list_checkpoints(folder).others) {
    const bool is_written = step == last_step || (every > 0 && step % every == 0);
    if (step >= 1 && step <= last_step && is_written) taken.push_back(path);
  }
  return taken;
}

void keep_newest(const std::string& folder, int count) {
  if (count < 1) throw Error(ErrorKind::internal, "expected to keep at least one checkpoint", folder);
  const CheckpointFiles files = list_checkpoints(folder);
  const NewestCheckpoint newest = newest_of(files);
  if (!newest.path) return;
  const std::int64_t newest_step = *step_of(fs::path(*newest.path).filename().string());
  int kept = 0;
  for (auto file = files.complete.find(newest_step); file != files.complete.end(); ++file) {
    if (kept++ >= count) remove_file(file->second);
  }
  for (auto part = files.parts.begin(); part != files.parts.upper_bound(newest_step); ++part) {
    remove_file(part->second);
  }
}

}  // namespace dflop
