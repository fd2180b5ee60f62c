// Shared by the tests of sharded checkpoints: simulated ranks that hold parts of tensors, and their values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/support/random.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/index.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop::held_fixtures {

/// A Whole is a complete tensor of a model.
struct Whole {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// The value at a position of a tensor after a step. It is unique among the test's tensors, and a whole
/// number that f32 represents exactly.
inline double value_at(std::size_t tensor, TensorKind kind, std::int64_t row, std::int64_t column,
                       std::int64_t step) {
  return static_cast<double>(
      (((static_cast<std::int64_t>(tensor) * 3 + static_cast<int>(kind)) * 32 + row) * 32 + column) * 8 +
      step);
}

inline std::vector<Whole> random_wholes(Random& random) {
  std::vector<Whole> wholes(1 + random.below(4));
  for (std::size_t t = 0; t < wholes.size(); ++t) {
    wholes[t] = {"t" + std::to_string(t), 1 + static_cast<std::int64_t>(random.below(16)),
                 1 + static_cast<std::int64_t>(random.below(16))};
  }
  return wholes;
}

/// Divides [0, size) into runs of random lengths.
inline std::vector<IndexRun> random_runs(std::int64_t size, std::size_t most, Random& random) {
  std::vector<std::int64_t> ends = {0, size};
  for (std::size_t cut = 1; cut < most && size > 1; ++cut) {
    ends.push_back(1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size - 1))));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<IndexRun> runs;
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) runs.push_back({ends[i], ends[i + 1]});
  return runs;
}

/// The blocks of a tensor that tp ranks hold: all of it on each, runs of rows dealt out, or runs of columns.
inline std::vector<TensorBlock> random_blocks(const Whole& whole, std::size_t tp, Random& random) {
  const TensorBlock all{{{0, whole.rows}}, {0, whole.columns}};
  const std::uint64_t way = random.below(3);
  std::vector<TensorBlock> blocks;
  if (way == 0) {
    for (const IndexRun& run : random_runs(whole.columns, tp, random)) blocks.push_back({all.rows, run});
  } else if (way == 1) {
    std::vector<IndexRun> runs = random_runs(whole.rows, 3 * tp, random);
    blocks.resize(std::min(tp, runs.size()), {{}, all.columns});
    for (std::size_t r = 0; r < runs.size(); ++r) blocks[r % blocks.size()].rows.push_back(runs[r]);
  }
  if (blocks.size() != tp) blocks.assign(tp, all);
  return blocks;
}

/// What the ranks of a random plan hold: each tensor is on one or two stages, a stage has dp x tp ranks, and
/// moments may be sharded over dp.
inline std::vector<HeldPart> random_parts(const std::vector<Whole>& wholes, Random& random) {
  const int tp = 1 + static_cast<int>(random.below(3));
  const int dp = 1 + static_cast<int>(random.below(3));
  const bool has_shards = random.below(2) == 0;
  std::vector<HeldPart> parts;
  const auto add = [&](std::size_t t, const std::vector<TensorBlock>& blocks, int stage) {
    for (const TensorKind kind : all_of<TensorKind>()) {
      for (int k = 0; k < tp; ++k) {
        const TensorBlock& block = blocks[static_cast<std::size_t>(k)];
        const bool is_sharded = has_shards && kind != TensorKind::weight;
        std::vector<IndexRun> shards(static_cast<std::size_t>(dp), {0, block.values()});
        if (is_sharded) {
          shards = random_runs(block.values(), shards.size(), random);
          shards.resize(static_cast<std::size_t>(dp), {0, 0});  // empty shards
        }
        for (int d = 0; d < dp; ++d) {
          parts.push_back({wholes[t].name, kind, wholes[t].rows, wholes[t].columns, block,
                           shards[static_cast<std::size_t>(d)], (stage * dp + d) * tp + k, stage, k});
        }
      }
    }
  };
  for (std::size_t t = 0; t < wholes.size(); ++t) {
    const std::vector<TensorBlock> blocks = random_blocks(wholes[t], static_cast<std::size_t>(tp), random);
    const int stage = static_cast<int>(random.below(3));
    add(t, blocks, stage);
    if (random.below(3) == 0) add(t, blocks, stage + 1);  // a tied pair, sharded differently
  }
  // Ranks report what they hold in any order.
  for (std::size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[random.below(i)]);
  return parts;
}

inline CheckpointIndex example_index(std::int64_t step) {
  CheckpointIndex index;
  index.model = "tiny-vlm";
  index.model_spec = "{\"layers\": 2}";
  index.data_file = "omni_mix.csv";
  index.data_fingerprint = "0badcafe";
  index.seed = 18446744073709551615U;  // the largest seed
  index.gbs = 8;
  index.step = step;
  index.scheduler = "dflop";
  index.samples_drawn = 8 * step;
  index.plan = "llm 1x2x1";
  index.kernels = "{\"a\": 1}";
  return index;
}

/// Writes all pieces of a file with the values of value_at(), a few at a time.
inline CheckpointFile write_file(const std::string& part, const CheckpointIndex& index, std::size_t file,
                                 Dtype dtype) {
  PieceWriter writer(part, index, file, dtype);
  for (const PlacedPiece& placed : writer.pieces()) {
    const std::size_t tensor = std::stoul(placed.tensor->name.substr(1));
    std::vector<double> values;
    for (const IndexRun& run : placed.piece->block.rows) {
      for (std::int64_t row = run.begin; row < run.end; ++row) {
        const IndexRun columns = placed.piece->block.columns;
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          values.push_back(value_at(tensor, placed.tensor->kind, row, column, index.step));
        }
      }
    }
    const IndexRun own = placed.piece->values;
    for (std::int64_t begin = own.begin; begin < own.end; begin += 7) {
      const std::int64_t count = std::min<std::int64_t>(7, own.end - begin);
      writer.append(placed, std::span<const double>(values).subspan(static_cast<std::size_t>(begin),
                                                                    static_cast<std::size_t>(count)));
    }
  }
  return writer.finish();
}

/// Writes a checkpoint in the same way as ranks that hold `parts`.
inline CheckpointIndex write_step(const std::string& folder, std::int64_t step,
                                  const std::vector<HeldPart>& parts, Dtype dtype = Dtype::f32) {
  CheckpointIndex index = example_index(step);
  divide_among_files(parts, index);
  const std::string part = begin_checkpoint(folder, step);
  for (std::size_t f = 0; f < index.files.size(); ++f) {
    index.files[f] = write_file(part, index, f, dtype);
  }
  finish_checkpoint(folder, index);
  return index;
}

/// A small checkpoint of two ranks: each holds rows of one tensor and a shard of a moment.
inline std::vector<HeldPart> two_ranks() {
  const TensorBlock all{{{0, 2}}, {0, 3}};
  return {{"t0", TensorKind::weight, 4, 3, {{{0, 1}, {2, 3}}, {0, 3}}, {0, 6}, 0, 0, 0},
          {"t0", TensorKind::weight, 4, 3, {{{1, 2}, {3, 4}}, {0, 3}}, {0, 6}, 1, 0, 1},
          {"t1", TensorKind::moment1, 2, 3, all, {0, 4}, 0, 0, 0},
          {"t1", TensorKind::moment1, 2, 3, all, {4, 6}, 1, 0, 0}};
}

inline std::string bytes_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A test with its own empty folder.
class PiecesTest : public testing::Test {
 protected:
  PiecesTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        (std::filesystem::path(testing::TempDir()) / (std::string("dflop_pieces_") + test->name())).string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~PiecesTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  /// Returns the names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
};

}  // namespace dflop::held_fixtures
