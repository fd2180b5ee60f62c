#include "traces/checkpoints/index.hpp"

#include <zlib.h>

#include "tests/traces/checkpoints/held_fixtures.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace checkpoint_index_test {

using namespace held_fixtures;

CheckpointIndex two_ranks_index() {
  CheckpointIndex index = example_index(50);
  index.optimizer = {{"beta1", "0.9"}, {"clip-norm", "none"}};
  index.attention_sums = "any";
  divide_among_files(two_ranks(), index);
  for (std::size_t f = 0; f < index.files.size(); ++f) index.files[f].crc32 = 4294967295U;  // the maximum
  return index;
}

/// Returns a changed text with a matching CRC-32, so that the change itself is checked.
std::string with_crc(std::string text) {
  text.resize(text.rfind(",\n  \"crc32\": "));
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return text + ",\n  \"crc32\": " + std::to_string(crc) + "\n}\n";
}

TEST(CheckpointIndex, IsReadBack) {
  const CheckpointIndex index = two_ranks_index();
  EXPECT_EQ(parse_checkpoint_index(to_json(index), "i.json"), index);
  CheckpointIndex empty;
  EXPECT_EQ(parse_checkpoint_index(to_json(empty), "i.json"), empty);
}

TEST(CheckpointIndex, EndsWithTheCrcOfItsText) {
  const std::string text = to_json(two_ranks_index());
  EXPECT_EQ(with_crc(text), text);
  expect_refused([&] { parse_checkpoint_index(replaced(text, "\"gbs\": 8", "\"gbs\": 9"), "i.json"); },
                 "i.json", {"damaged: the CRC-32 of the text differs"});
  expect_refused([&] { parse_checkpoint_index(text.substr(0, text.size() / 2), "i.json"); }, "i.json",
                 {"damaged", "cut short"});
  expect_refused([&] { parse_checkpoint_index("", "i.json"); }, "i.json", {"cut short"});
}

TEST(CheckpointIndex, RejectsWrongValuesByKey) {
  const std::string text = to_json(two_ranks_index());
  const auto refused = [&](const char* from, const char* to, const std::string& key, const char* words) {
    expect_refused([&] { parse_checkpoint_index(with_crc(replaced(text, from, to)), "i.json"); },
                   "i.json: key '" + key + "'", {words});
  };
  refused("\"version\": 2", "\"version\": 3", "version", "3");
  refused("\"file\": 1", "\"file\": 2", "tensors[0].pieces[1].file",
          "expected a file index below 2, found 2");
  refused("rank-00000.safetensors\"", "../x\"", "files[0].name", "in the same folder");
  refused("rank-00000.safetensors\"", "rank-00001.safetensors\"", "files[1].name", "twice");
  refused("\"rows\": [0,1,2,3]", "\"rows\": [0,1,2,5]", "tensors[0].pieces[0].rows[3]", "5");
  refused("\"rows\": [0,1,2,3]", "\"rows\": [0,1,2]", "tensors[0].pieces[0].rows", "a begin and an end");
  refused("\"rows\": [0,1,2,3]", "\"rows\": [1,1,2,3]", "tensors[0].pieces[0].rows", "[1, 1)");
  refused("\"rows\": [0,1,2,3]", "\"rows\": [0,4,0,4]", "tensors[0].pieces[0].rows", "at most 4 rows");
  refused("\"rows\": [0,1,2,3]", "\"rows\": [0,1,1,2]", "tensors[0].pieces",
          "each of 4 rows once in columns [0, 3)");
  refused("\"columns\": [0,3]", "\"columns\": [0,2]", "tensors[0].pieces[0].values[1]", "6");
  refused("\"values\": [4,6]", "\"values\": [3,6]", "tensors[1].pieces", "each of 6 values of a block once");
  refused("\"columns\": 3", "\"columns\": 4", "tensors[0].pieces", "each of 4 columns once");
  refused("\"columns\": 3", "\"columns\": 4611686018427387904", "tensors[0]", "expected at most");
}

TEST(CheckpointIndex, RejectsARepeatedTensor) {
  CheckpointIndex index = two_ranks_index();
  index.tensors.push_back(index.tensors.front());
  expect_refused([&] { parse_checkpoint_index(to_json(index), "i.json"); }, "i.json: key 'tensors[2].name'",
                 {"expected one weight of each name, found 't0' twice"});
}

/// Counts one by one how many pieces hold each value of a tensor.
std::vector<int> holders(const PiecedTensor& tensor) {
  std::vector<int> count(static_cast<std::size_t>(tensor.rows * tensor.columns));
  for (const TensorPiece& piece : tensor.pieces) {
    std::int64_t value = 0;
    for (const IndexRun& run : piece.block.rows) {
      for (std::int64_t row = run.begin; row < run.end; ++row) {
        for (std::int64_t c = piece.block.columns.begin; c < piece.block.columns.end; ++c, ++value) {
          if (value < piece.values.begin || value >= piece.values.end) continue;
          ++count[static_cast<std::size_t>(row * tensor.columns + c)];
        }
      }
    }
  }
  return count;
}

TEST(CheckpointIndex, AnyPlansPartsAreDividedSoThatEachValueIsInOnePiece) {
  Random random(3);
  for (int run = 0; run < 500; ++run) {
    const std::vector<Whole> wholes = random_wholes(random);
    const std::vector<HeldPart> parts = random_parts(wholes, random);
    CheckpointIndex index = example_index(1);
    divide_among_files(parts, index);
    ASSERT_EQ(index.tensors.size(), 3 * wholes.size());
    for (const PiecedTensor& tensor : index.tensors) {
      for (const int count : holders(tensor)) ASSERT_EQ(count, 1) << tensor.name;
      for (const TensorPiece& piece : tensor.pieces) {
        // The file's rank holds the pieces that it writes.
        ASSERT_TRUE(std::any_of(parts.begin(), parts.end(), [&](const HeldPart& part) {
          return part.tensor == tensor.name && part.kind == tensor.kind && part.block == piece.block &&
                 part.values == piece.values && rank_file_name(part.rank) == index.files[piece.file].name;
        }));
      }
    }
    ASSERT_EQ(parse_checkpoint_index(to_json(index), "i.json"), index);
  }
}

TEST(CheckpointIndex, AcceptsNoPiecesThatLackAValueOrHaveItTwice) {
  Random random(4);
  int refused = 0;
  for (int run = 0; run < 2000; ++run) {
    CheckpointIndex index = example_index(1);
    divide_among_files(random_parts(random_wholes(random), random), index);
    PiecedTensor& tensor = index.tensors[random.below(index.tensors.size())];
    TensorPiece& piece = tensor.pieces[random.below(tensor.pieces.size())];
    IndexRun* const changed[] = {&piece.block.rows[random.below(piece.block.rows.size())],
                                 &piece.block.columns, &piece.values};
    IndexRun& interval = *changed[random.below(3)];
    (random.below(2) == 0 ? interval.begin : interval.end) += random.below(2) == 0 ? 1 : -1;
    if (random.below(8) == 0) tensor.pieces.push_back(piece);
    try {
      parse_checkpoint_index(to_json(index), "i.json");
      for (const int count : holders(tensor)) ASSERT_EQ(count, 1);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::input);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(CheckpointIndex, RanksThatDoNotHoldAllOrDisagreeAreABrokenPromise) {
  CheckpointIndex index = example_index(1);
  std::vector<HeldPart> parts = two_ranks();
  parts.pop_back();
  EXPECT_EQ(error_of([&] { divide_among_files(parts, index); }).kind(), ErrorKind::internal);
  parts = two_ranks();
  parts[1].rows = 5;
  EXPECT_EQ(error_of([&] { divide_among_files(parts, index); }).kind(), ErrorKind::internal);
}

}  // namespace checkpoint_index_test
}  // namespace dflop
