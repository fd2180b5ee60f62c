#include "experiments/training/export.hpp"

#include <filesystem>
#include <optional>
#include <system_error>

#include "backend/content/model_folder.hpp"
#include "core/error.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/text/staged_folder.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

/// Creates a folder for pieces inside the folder that is being written.
std::string make_pieces_folder(const StagedFolder& folder) {
  const std::string pieces = (fs::path(folder.part()) / "pieces").string();
  std::error_code problem;
  fs::create_directory(pieces, problem);
  if (problem) refuse_output(pieces, problem.message());
  return pieces;
}

void write_folder(const std::string& to, const ModelSpec& model, const std::string& checkpoint, World& world,
                  LiveExecutor& executor) {
  std::optional<StagedFolder> folder;
  if (world.leads()) folder.emplace(to);
  std::string pieces;
  if (checkpoint.empty()) {
    pieces = world.broadcast(world.leads() ? make_pieces_folder(*folder) : "");
    executor.save_weights(pieces);
  }
  if (!world.leads()) return;
  write_model_folder(model, CheckpointReader(checkpoint.empty() ? pieces : checkpoint), model.name,
                     folder->part());
  std::error_code problem;
  if (!pieces.empty()) fs::remove_all(pieces, problem);
  if (problem) refuse_output(pieces, "cannot be removed: " + problem.message());
  folder->take_final_name();
}

}  // namespace

void export_weights(const std::string& to, const ModelSpec& model, const std::string& checkpoint,
                    World& world, LiveExecutor& executor) {
  try {
    write_folder(to, model, checkpoint, world, executor);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::output || checkpoint.empty()) throw;
    throw Error(ErrorKind::output,
                error.message() + "; the weights are in " + checkpoint +
                    ": free some space, then run the same command with --resume to write them",
                error.context());
  }
}

}  // namespace dflop
