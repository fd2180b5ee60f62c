#include "traces/checkpoints/folder.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>

#include "core/refuse.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/text/staged_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartEnding = ".part";
constexpr std::string_view kUnreadableEnding = ".unreadable";

/// Returns the step in a name made by step_folder(); nothing for other names.
std::optional<std::int64_t> step_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const std::string_view digits = name.substr(kPrefix.size());
  if (std::from_chars(digits.data(), digits.data() + digits.size(), step).ec != std::errc()) {
    return std::nullopt;
  }
  return step >= 0 && step_folder("", step) == name ? std::optional(step) : std::nullopt;
}

struct StepEntries {
  std::map<std::int64_t, std::string, std::greater<>> checkpoints;  // by step, the highest first
  std::map<std::int64_t, std::string> others;                       // entries with such a name but no index
  std::vector<std::string> parts;                                   // left by killed writers
};

StepEntries list_entries(const std::string& folder) {
  StepEntries entries;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code ignored;  // for a broken link
    const std::string path = entry.path().string();
    const std::string name = entry.path().filename().string();
    const bool is_part = name.ends_with(kPartEnding);
    const auto step =
        step_of_name(std::string_view(name).substr(0, name.size() - (is_part ? kPartEnding.size() : 0)));
    if (!step) continue;
    if (is_part) {
      entries.parts.push_back(path);
    } else if (fs::exists(entry.path() / kCheckpointIndex, ignored)) {
      entries.checkpoints.emplace(*step, path);
    } else if (fs::exists(entry.symlink_status(ignored))) {
      entries.others.emplace(*step, path);
    }
  }
  return entries;
}

/// Lists the checkpoints in a folder. @throws Error (input)
StepEntries list_steps(const std::string& folder) {
  try {
    return fs::exists(folder) ? list_entries(folder) : StepEntries();
  } catch (const fs::filesystem_error& error) {
    refuse_input(folder, "cannot be listed: {}", error.code().message());
  }
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw Error(ErrorKind::output, "cannot be removed: " + error.message(), path);
}

void rename_folder(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) refuse_output(to, std::strerror(errno));
}

/// Removes a checkpoint. It is renamed first, so that an interrupted removal leaves only a part.
void remove_checkpoint(const std::string& path) {
  const std::string part = path + std::string(kPartEnding);
  remove_folder(part);
  rename_folder(path, part);
  remove_folder(part);
}

}  // namespace

std::string step_folder(const std::string& folder, std::int64_t step) {
  return (fs::path(folder) / fmt::format("step-{:08}", step)).string();
}

std::string begin_checkpoint(const std::string& folder, std::int64_t step) {
  for (const std::string& part : list_steps(folder).parts) remove_folder(part);
  const std::string part = step_folder(folder, step) + std::string(kPartEnding);
  std::error_code error;
  fs::create_directories(part, error);
  if (error) refuse_output(part, error.message());
  return part;
}

void discard_checkpoint(const std::string& folder, std::int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(step_folder(folder, step) + std::string(kPartEnding), ignored);
}

void write_checkpoint_index(const std::string& folder, const CheckpointIndex& index) {
  StagedFile file((fs::path(folder) / kCheckpointIndex).string());
  file.append(to_json(index));
  file.sync();
  file.take_final_name();
}

void finish_checkpoint(const std::string& folder, const CheckpointIndex& index) {
  const std::string path = step_folder(folder, index.step);
  const std::string part = path + std::string(kPartEnding);
  write_checkpoint_index(part, index);
  std::error_code ignored;
  if (fs::exists(fs::path(path) / kCheckpointIndex, ignored)) remove_folder(path);
  rename_folder(part, path);
  if (!sync_folder(folder)) refuse_output(folder, std::strerror(errno));
}

std::vector<std::string> step_paths(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& [step, path] : list_steps(folder).checkpoints) paths.push_back(path);
  return paths;
}

void verify_step(const std::string& path, const std::function<bool(std::size_t)>& counts) {
  const CheckpointReader reader(path);
  const std::int64_t inside = reader.index().step;
  const std::optional<std::int64_t> named = step_of_name(fs::path(path).filename().string());
  if (inside != named)
    refuse_input(path, "holds step {}, expected step {}, as its name says", inside, named.value_or(-1));
  reader.verify(counts);
}

NewestStep newest_step(const std::vector<std::string>& paths,
                       const std::function<void(const std::string&)>& verify) {
  NewestStep newest;
  for (const std::string& path : paths) {
    try {
      verify(path);
      newest.path = path;
      return newest;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      newest.notes.emplace_back(error.what());
    }
  }
  return newest;
}

std::vector<std::string> set_aside_steps(const std::string& folder, std::int64_t last_good) {
  std::vector<std::string> aside;
  for (const auto& [step, path] : list_steps(folder).checkpoints) {
    if (step <= last_good) break;
    aside.push_back(path + std::string(kUnreadableEnding));
    remove_folder(aside.back());
    rename_folder(path, aside.back());
  }
  return aside;
}

std::vector<std::string> taken_step_paths(const std::string& folder, std::int64_t last_step,
                                          std::int64_t every) {
  std::vector<std::string> taken;
  for (const auto& [step, path] : list_steps(folder).others) {
    const bool is_written = step == last_step || (every > 0 && step % every == 0);
    if (step >= 1 && step <= last_step && is_written) taken.push_back(path);
  }
  return taken;
}

void keep_newest_steps(const std::string& folder, std::int64_t newest, int count) {
  if (count < 1) throw Error(ErrorKind::internal, "expected to keep at least one checkpoint", folder);
  const StepEntries entries = list_steps(folder);
  int kept = 0;
  for (auto entry = entries.checkpoints.lower_bound(newest); entry != entries.checkpoints.end(); ++entry) {
    if (kept++ >= count) remove_checkpoint(entry->second);
  }
}

}  // namespace dflop
