// Shards of rows: together, the tp ranks have all rows, and rows without a token are zeros.
#include <gtest/gtest.h>

#include <memory>

#include "backend/host/world.hpp"
#include "backend/model/tensor.hpp"

namespace dflop {
namespace tp_rows_test {

constexpr int kRanks = 3;
constexpr std::int64_t kColumns = 2;

/// Runs `body` on each of the ranks of a tp group.
template <typename Body>
void on_ranks(bool sequence_parallel, const Body& body) {
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(kRanks);
  const auto run = [&](std::size_t r) {
    const auto device = world->make_device(static_cast<int>(r));
    const auto communicator = world->make_communicator(static_cast<int>(r));
    const auto stream = device->make_stream();
    const auto kernels = device->make_kernels(*stream, DType::f64);
    body(RankContext{
        *device, *stream, *kernels, *communicator, {{0, 1, 2}}, static_cast<int>(r), sequence_parallel});
  };
  run_in_threads(kRanks, {[](std::size_t) {}, run, [](std::size_t, const std::string&) {}});
}

std::vector<double> values_of(const RankContext& rank, ConstMatrix matrix) {
  return download(rank, matrix.data, DType::f64, static_cast<std::size_t>(matrix.size()));
}

/// Rank r has the values 100 r + position.
std::vector<double> own_values(int rank, std::int64_t rows) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * kColumns; ++i) values.push_back(100.0 * rank + static_cast<double>(i));
  return values;
}

/// The sum over the ranks is 100 (0 + 1 + 2) + 3 * position.
std::vector<double> sums(std::int64_t rows) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * kColumns; ++i) values.push_back(300.0 + 3.0 * static_cast<double>(i));
  return values;
}

Tensor filled_summand(const RankContext& rank, std::int64_t rows) {
  Tensor summand = tp_summand(rank, rows, kColumns);
  const std::vector<double> values = own_values(rank.tp_rank, rows);
  upload(rank, summand.view().data, DType::f64, std::span<const double>(values));
  return summand;
}

TEST(TpRows, ShardsAddUpToTheWhole) {
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 7, 9}) {
    const std::int64_t shard = (rows + kRanks - 1) / kRanks;
    on_ranks(true, [&](const RankContext& rank) {
      EXPECT_EQ(held_rows(rank, rows), shard);
      const Tensor sum = tp_shard_sum(rank, filled_summand(rank, rows), "a sum");
      ASSERT_EQ(sum.rows(), shard);
      std::vector<double> expected = sums(rows);
      expected.resize(static_cast<std::size_t>(shard * kRanks * kColumns), 0.0);
      const auto first = expected.begin() + rank.tp_rank * shard * kColumns;
      EXPECT_EQ(values_of(rank, sum), std::vector<double>(first, first + shard * kColumns))
          << rows << " rows";
      const AllRows all(rank, sum, rows, "rows");
      EXPECT_EQ(ConstMatrix(all).rows, rows);
      EXPECT_EQ(values_of(rank, all), sums(rows));
    });
  }
}

TEST(TpRows, WithoutShardsEachRankHasAllRows) {
  for (const std::int64_t rows : {0, 1, 4}) {
    on_ranks(false, [&](const RankContext& rank) {
      EXPECT_EQ(held_rows(rank, rows), rows);
      const Tensor sum = tp_shard_sum(rank, filled_summand(rank, rows), "a sum");
      EXPECT_EQ(values_of(rank, sum), sums(rows));
      EXPECT_EQ(ConstMatrix(AllRows(rank, sum, rows, "rows")).data, sum.view().data);
    });
  }
}

}  // namespace tp_rows_test
}  // namespace dflop
