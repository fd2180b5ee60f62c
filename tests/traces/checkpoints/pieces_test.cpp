#include "traces/checkpoints/pieces.hpp"

#include <filesystem>
#include <numeric>

#include "tests/traces/checkpoints/held_fixtures.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace checkpoint_pieces_test {

using namespace held_fixtures;

class CheckpointPieces : public PiecesTest {};

/// Reads a random part of a tensor and checks the value at each position.
template <typename Real>
void expect_values(const CheckpointReader& reader, const Whole& whole, std::size_t t, TensorKind kind,
                   Random& random) {
  const auto part_of_size = [&](std::int64_t size) {
    const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size)));
    return IndexRun{
        begin, begin + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size - begin) + 1))};
  };
  const IndexRun rows = random.below(3) == 0 ? IndexRun{0, whole.rows} : part_of_size(whole.rows);
  const IndexRun columns = random.below(3) == 0 ? IndexRun{0, whole.columns} : part_of_size(whole.columns);
  std::vector<Real> out(static_cast<std::size_t>(rows.size() * columns.size()), Real{-1});
  reader.read(reader.at(kind, whole.name), rows, columns, out);
  std::size_t i = 0;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (std::int64_t column = columns.begin; column < columns.end; ++column) {
      ASSERT_EQ(static_cast<double>(out[i++]), value_at(t, kind, row, column, reader.index().step));
    }
  }
}

TEST_F(CheckpointPieces, PiecesOfAnyRanksAreReadInAnyOtherParts) {
  Random random(5);
  for (int run = 0; run < 150; ++run) {
    const std::vector<Whole> wholes = random_wholes(random);
    const Dtype dtype = run % 2 == 0 ? Dtype::f32 : Dtype::f64;
    const CheckpointIndex written = write_step(folder_, 7, random_parts(wholes, random), dtype);
    const CheckpointReader reader(step_folder(folder_, 7));
    ASSERT_EQ(reader.index(), written);
    reader.verify();
    for (std::size_t t = 0; t < wholes.size(); ++t) {
      for (const TensorKind kind : all_of<TensorKind>()) {
        for (int part = 0; part < 6; ++part) {
          ASSERT_NO_FATAL_FAILURE(expect_values<float>(reader, wholes[t], t, kind, random));
          ASSERT_NO_FATAL_FAILURE(expect_values<double>(reader, wholes[t], t, kind, random));
        }
      }
    }
  }
}

/// Files are read in parallel; the file named in the error does not depend on which read finishes first.
TEST_F(CheckpointPieces, OfSeveralDamagedFilesTheFirstIsNamed) {
  Random random(9);
  const std::string step = step_folder(folder_, 7);
  CheckpointIndex index;
  while (index.files.size() < 3) {
    std::filesystem::remove_all(step);
    index = write_step(folder_, 7, random_parts(random_wholes(random), random), Dtype::f32);
  }
  const CheckpointReader reader(step);
  for (std::size_t first = index.files.size(); first-- > 0;) {
    std::filesystem::resize_file(std::filesystem::path(step) / index.files[first].name, 1);
    for (int again = 0; again < 20; ++again) {
      const Error error = error_of([&] { reader.verify(); });
      ASSERT_EQ(error.context(), (std::filesystem::path(step) / index.files[first].name).string());
    }
  }
}

TEST_F(CheckpointPieces, EachValueIsInOneFileInTheDtypeOfTraining) {
  // Each value has 4 bytes, in three kinds of each tensor: copies on other ranks are not written.
  Random random(6);
  for (int run = 0; run < 50; ++run) {
    const std::vector<Whole> wholes = random_wholes(random);
    write_step(folder_, 7, random_parts(wholes, random));
    std::int64_t expected = 0;
    for (const Whole& whole : wholes) expected += 3 * whole.rows * whole.columns;
    std::int64_t found = 0;
    const CheckpointReader reader(step_folder(folder_, 7));
    for (const CheckpointFile& file : reader.index().files) {
      const SafetensorsFile tensors(step_folder(folder_, 7) + "/" + file.name);
      for (const StoredTensor& tensor : tensors.tensors()) {
        EXPECT_EQ(tensor.dtype, Dtype::f32);
        found += tensor.rows * tensor.columns;
      }
    }
    ASSERT_EQ(found, expected);
  }
}

TEST_F(CheckpointPieces, AFileHasThePiecesOfItsRank) {
  write_step(folder_, 2, two_ranks());
  // Rank 1 holds rows 1 and 3 of t0, and values 4 and 5 of t1: its second row without the first value.
  const SafetensorsFile file(step_folder(folder_, 2) + "/rank-00001.safetensors");
  ASSERT_EQ(file.tensors().size(), 2U);
  const StoredTensor& weight = file.at("weight:t0");
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> values(6);
  file.read_block(weight, whole(weight), values);
  std::vector<float> expected;
  for (const int row : {1, 3}) {
    for (int column = 0; column < 3; ++column) {
      expected.push_back(static_cast<float>(value_at(0, TensorKind::weight, row, column, 2)));
    }
  }
  EXPECT_EQ(values, expected);
  const StoredTensor& moment = file.at("moment1:t1");
  EXPECT_EQ(moment.shape, (std::vector<std::int64_t>{2}));
  values.resize(2);
  file.read_block(moment, whole(moment), values);
  EXPECT_EQ(values, (std::vector{static_cast<float>(value_at(1, TensorKind::moment1, 1, 1, 2)),
                                 static_cast<float>(value_at(1, TensorKind::moment1, 1, 2, 2))}));
}

TEST_F(CheckpointPieces, AnyChangedByteIsNoticed) {
  write_step(folder_, 3, two_ranks());
  const std::string step = step_folder(folder_, 3);
  Random random(8);
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors", "checkpoint.json"}) {
    const std::string file = step + "/" + name;
    const std::string bytes = bytes_in(file);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << random.below(8)));
      put_bytes(file, damaged);
      const Error error = error_of([&] { CheckpointReader(step).verify(); });
      ASSERT_EQ(error.kind(), ErrorKind::input) << error.what();
      ASSERT_EQ(error.context().rfind(file, 0), 0U) << i << ": " << error.what();
    }
    put_bytes(file, bytes);
  }
  CheckpointReader(step).verify();
}

TEST_F(CheckpointPieces, AMissingFileOrAnotherLengthIsNoticed) {
  write_step(folder_, 3, two_ranks());
  const std::string step = step_folder(folder_, 3);
  const std::string file = step + "/rank-00001.safetensors";
  const std::string bytes = bytes_in(file);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, bytes.size() - 1}) {
    put_bytes(file, bytes.substr(0, size));
    expect_refused([&] { CheckpointReader(step).verify(); }, file, {"cut short: expected", "bytes, found"});
  }
  put_bytes(file, bytes + "x");
  expect_refused([&] { CheckpointReader(step).verify(); }, file, {"followed by something else"});
  std::filesystem::remove(file);
  expect_refused([&] { CheckpointReader(step).verify(); }, file, {"No such file"});
}

TEST_F(CheckpointPieces, AFileWithoutThePieceOfTheIndexIsRejected) {
  CheckpointIndex index = write_step(folder_, 3, two_ranks());
  const std::string step = step_folder(folder_, 3);
  const std::string file = step + "/rank-00001.safetensors";
  // Under this name the file has six values, not two.
  for (PiecedTensor& tensor : index.tensors) {
    if (tensor.kind == TensorKind::moment1) tensor.pieces[1].name = "weight:t0";
  }
  put_bytes(step + "/checkpoint.json", to_json(index));
  expect_refused([&] { CheckpointReader(step).verify(); }, file + ": tensor 'weight:t0'",
                 {"expected 2 values of F32 or F64, as checkpoint.json says, found 2 x 3 of F32"});
  const CheckpointReader reader(step);
  std::vector<float> out(6);
  expect_refused(
      [&] {
        reader.read(reader.at(TensorKind::moment1, "t1"), {0, 2}, {0, 3}, out);
      },
      file + ": tensor 'weight:t0'", {"expected 2 values"});
}

TEST_F(CheckpointPieces, TensorsMissingFromTheCheckpointAreRejected) {
  write_step(folder_, 3, two_ranks());
  const CheckpointReader reader(step_folder(folder_, 3));
  expect_refused([&] { reader.at(TensorKind::moment2, "t0"); }, step_folder(folder_, 3),
                 {"expected a moment2 't0', found none"});
  const PiecedTensor& tensor = reader.at(TensorKind::weight, "t0");
  std::vector<double> out(3);
  for (const IndexRun rows : {IndexRun{4, 5}, IndexRun{-1, 0}, IndexRun{0, 2}, IndexRun{2, 1}}) {
    EXPECT_EQ(error_of([&] { reader.read(tensor, rows, {0, 3}, out); }).kind(), ErrorKind::internal);
  }
}

TEST_F(CheckpointPieces, AWriterNeedsAllValuesOfItsPieces) {
  CheckpointIndex index = example_index(1);
  divide_among_files(two_ranks(), index);
  PieceWriter writer(folder_, index, 0, Dtype::f32);
  const std::vector<float> five(5);
  writer.append(writer.pieces()[0], std::span(five));
  EXPECT_EQ(error_of([&] { writer.finish(); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { writer.append(writer.pieces()[0], std::span(five)); }).kind(),
            ErrorKind::internal);
}

}  // namespace checkpoint_pieces_test
}  // namespace dflop
