#include "traces/weights/safetensors.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "core/support/process_memory.hpp"
#include "tests/traces/weights/weights_fixtures.hpp"
#include "traces/weights/folder.hpp"

namespace dflop {
namespace safetensors_test {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(DFLOP_SOURCE_DIR) / "tests" / "golden" / "models";

template <typename Real>
std::vector<Real> numbers(const SafetensorsFile& file, const StoredTensor& tensor, const Block& block) {
  std::vector<Real> out(static_cast<std::size_t>(block.rows() * block.columns()));
  file.read_block(tensor, block, std::span(out));
  return out;
}

struct Totals {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t numbers = 0;  // numbers read that are finite

  bool operator==(const Totals&) const = default;
};

void PrintTo(const Totals& totals, std::ostream* out) {
  *out << totals.tensors << " tensors, " << totals.bytes << " bytes, " << totals.numbers << " numbers";
}

/// Totals over all tensors in all files of a model, including its inputs, activations and gradients.
Totals totals_of(const fs::path& folder) {
  Totals totals;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path().string());
    totals.tensors += file.tensors().size();
    for (const StoredTensor& tensor : file.tensors()) {
      totals.bytes += file.bytes(tensor).size();
      if (!is_decoded(tensor.dtype)) continue;
      for (const double number : numbers<double>(file, tensor, whole(tensor))) {
        totals.numbers += std::isfinite(number) ? 1 : 0;
      }
    }
  }
  return totals;
}

/// The totals were counted in Python, with json.loads() of the header: its entries, the sum of end - begin of
/// the offsets, and that sum over 8 for F64 and over 4 for F32; other dtypes are integers. All numbers are
/// finite.
TEST(Safetensors, ReadsAllTensorsOfGoldenModels) {
  EXPECT_EQ(totals_of(kModels / "internvl-300m-style"), (Totals{168, 2012664, 358819}));
  EXPECT_EQ(totals_of(kModels / "llama3"), (Totals{57, 1266824, 213251}));
  EXPECT_EQ(totals_of(kModels / "llava-onevision-qwen2"), (Totals{182, 2428496, 452461}));
  EXPECT_EQ(totals_of(kModels / "qwen2-audio"), (Totals{157, 1905784, 324563}));
  EXPECT_EQ(totals_of(kModels / "qwen2-tied"), (Totals{67, 1024136, 172803}));
  EXPECT_EQ(totals_of(kModels / "qwen2.5-vl"), (Totals{215, 3287904, 569605}));
}

/// Returns one number of a golden file.
double golden(const std::string& path, const std::string& tensor, std::int64_t row, std::int64_t column) {
  const SafetensorsFile file((kModels / path).string());
  return numbers<double>(file, file.at(tensor), {row, row + 1, column, column + 1}).at(0);
}

/// In Python, for a file's bytes d with the header h: struct.unpack_from("<f", d, 8 + len(h) + begin + 4 *
/// i), printed by float.hex(). i counts from the tensor's begin; the i of row 5, column 7 of 64 is 327.
TEST(Safetensors, ReadsTheNumbersThatPythonReads) {
  EXPECT_EQ(golden("qwen2.5-vl/model-00001-of-00003.safetensors", "lm_head.weight", 0, 0), 0x1.d7a2eep-3);
  EXPECT_EQ(
      golden("qwen2.5-vl/model-00002-of-00003.safetensors", "model.layers.1.self_attn.q_proj.weight", 5, 7),
      0x1.bace38p-4);
  EXPECT_EQ(golden("qwen2.5-vl/model-00003-of-00003.safetensors", "visual.merger.mlp.0.weight", 191, 191),
            -0x1.744eacp-6);
  EXPECT_EQ(golden("qwen2.5-vl/gradients.safetensors", "lm_head.weight", 2, 3), -0x1.fa728581523c4p-13);
  // [48, 16, 3] is 48 rows of 48: "<f" at 3 * 48 + 17.
  EXPECT_EQ(golden("qwen2-audio/model.safetensors", "audio_tower.conv1.weight", 3, 17), 0x1.bd5c9cp-4);
  EXPECT_EQ(golden("qwen2-audio/model.safetensors", "audio_tower.conv1.bias", 0, 47), 0x1.8ca8f6p-3);
}

/// WeightsTest with a file that has one tensor of 6 x 10 numbers whose data begin at an odd offset.
class SafetensorsBlocks : public WeightsTest {
 protected:
  std::string file_of(Dtype dtype) const {
    Random random(3);
    const std::size_t bytes = 60 * static_cast<std::size_t>(bits_of(dtype)) / 8;
    std::string header = R"({"odd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)" +
                         fmt::format(R"("t":{{"dtype":"{}","shape":[6,5,2],"data_offsets":[1,{}]}}}})",
                                     to_string(dtype), 1 + bytes);
    header.append((8 - header.size() % 8) % 8, ' ');
    return write("blocks.safetensors", safetensors_bytes(header, random_bytes(random, 1 + bytes)));
  }
};

/// For all dtypes, every block equals its part of decode() of all bytes. The test compares bits, since random
/// bits may be NaN.
TEST_F(SafetensorsBlocks, EqualPartsOfTheWhole) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const SafetensorsFile file(file_of(dtype));
    const StoredTensor& tensor = file.at("t");
    std::vector<double> all(60);
    decode(dtype, file.bytes(tensor).data(), std::span(all));
    for (Block block; block.row_begin <= 6; ++block.row_begin)
      for (block.row_end = block.row_begin; block.row_end <= 6; ++block.row_end)
        for (block.column_begin = 0; block.column_begin <= 10; ++block.column_begin)
          for (block.column_end = block.column_begin; block.column_end <= 10; ++block.column_end) {
            std::vector<double> expected;
            for (std::int64_t r = block.row_begin; r < block.row_end; ++r)
              for (std::int64_t c = block.column_begin; c < block.column_end; ++c)
                expected.push_back(all[static_cast<std::size_t>(r * 10 + c)]);
            const std::vector<double> found = numbers<double>(file, tensor, block);
            ASSERT_EQ(found.size(), expected.size());
            if (!found.empty()) {
              ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(double)), 0);
            }
          }
  }
}

TEST_F(SafetensorsBlocks, FloatsAreTheDoublesRounded) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const SafetensorsFile file(file_of(dtype));
    const Block block = {1, 5, 2, 9};
    const std::vector<double> wide = numbers<double>(file, file.at("t"), block);
    const std::vector<float> single = numbers<float>(file, file.at("t"), block);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (!std::isnan(wide[i])) {
        EXPECT_EQ(single[i], static_cast<float>(wide[i]));
      }
    }
  }
}

TEST_F(SafetensorsBlocks, BlocksOutOfBoundsAreRejected) {
  const SafetensorsFile file(file_of(Dtype::f32));
  const StoredTensor& tensor = file.at("t");
  std::vector<float> out(60);
  const auto read = [&](const Block& block) {
    return [&, block] { file.read_block(tensor, block, std::span(out)); };
  };
  const std::string place = file.path() + ": tensor 't'";
  expect_refused(read({0, 7, 0, 10}), place, {"expected rows [0, 7) and columns [0, 10)", "6 rows of 10"});
  for (const Block& block : {Block{0, 6, 0, 11}, {-1, 6, 0, 10}, {4, 3, 0, 10}, {0, 6, -1, 10}, {0, 6, 5, 4}})
    expect_refused(read(block), place, {"6 rows of 10, of shape [6, 5, 2]"});
  const Error size = error_of(read({0, 6, 0, 9}));
  EXPECT_EQ(size.kind(), ErrorKind::internal);
  EXPECT_EQ(size.message(), "expected memory for 54 numbers, found 60");
  expect_refused([&] { file.at("T"); }, file.path(), {"'T'"});
  expect_refused(
      [&] {
        file.read_block(file.at("odd"), {0, 1, 0, 1}, std::span(out));
      },
      file.path() + ": tensor 'odd'", {"F64, F32, F16 or BF16", "found U8"});
}

class SafetensorsFiles : public WeightsTest {};

TEST_F(SafetensorsFiles, PathsThatAreNoFilesAreRejected) {
  expect_refused([&] { SafetensorsFile file(path("none")); }, path("none"), {"No such file"});
  expect_refused([&] { SafetensorsFile file(folder_.string()); }, folder_.string(), {"found a directory"});
  expect_refused([] { SafetensorsFile file("/dev/null"); }, "/dev/null", {"a pipe or device"});
  const std::string empty = write("empty", "");
  expect_refused([&] { SafetensorsFile file(empty); }, empty, {"found 0 bytes"});
}

/// A golden file that is truncated at any of many places, or has an extra byte, is rejected, with no other
/// effect.
TEST_F(SafetensorsFiles, CutFilesAreRejected) {
  const std::string bytes = read((kModels / "llama3" / "inputs.safetensors").string());
  for (std::size_t size = 0; size < bytes.size(); size += 13) {
    const std::string cut = write("cut", bytes.substr(0, size));
    ASSERT_EQ(error_of([&] { SafetensorsFile file(cut); }).kind(), ErrorKind::input) << size;
  }
  const std::string longer = write("longer", bytes + 'x');
  expect_refused([&] { SafetensorsFile file(longer); }, longer, {"to end with its last tensor"});
}

TEST_F(SafetensorsFiles, ThreadsReadTheSameBlocks) {
  Random random(5);
  constexpr std::int64_t kRows = 1 << 10;
  const std::string header =
      fmt::format(R"({{"t":{{"dtype":"F32","shape":[{},256],"data_offsets":[0,{}]}}}})", kRows, kRows * 1024);
  std::string data(kRows * 1024, '\0');
  for (std::size_t i = 0; i < data.size(); i += 4) data[i] = static_cast<char>(random.below(256));
  const SafetensorsFile file(write("threads.safetensors", safetensors_bytes(header, data)));
  const StoredTensor& tensor = file.at("t");
  const std::vector<float> expected = numbers<float>(file, tensor, whole(tensor));
  std::vector<std::vector<float>> found(4);
  std::vector<std::thread> threads;
  for (auto& one : found) threads.emplace_back([&] { one = numbers<float>(file, tensor, whole(tensor)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : found) EXPECT_EQ(one, expected);
}

/// Runs `work` in a child process and returns how much its peak memory grew, in MiB. The peak starts at the
/// memory inherited from the parent.
std::int64_t growth_of_memory(const std::function<void()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  malloc_trim(0);  // otherwise memory freed by earlier tests would be reused and not count as growth
  const pid_t child = fork();
  if (child == 0) {
    const double before = process_memory("VmHWM");
    work();
    const auto grown =
        static_cast<std::int64_t>(before == 0 ? -1024 : (process_memory("VmHWM") - before) / 1024);
    static_cast<void>(!::write(ends[1], &grown, sizeof grown));
    _exit(0);
  }
  std::int64_t grown = 0;
  EXPECT_EQ(::read(ends[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
  close(ends[0]);
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  return grown / 1024;
}

/// A tensor of 2,500 rows of 1,000 floats that count up: three pieces of at most 4 MiB.
class SafetensorsPieces : public WeightsTest {
 protected:
  static constexpr std::int64_t kRows = 2500;
  static constexpr std::int64_t kColumns = 1000;

  SafetensorsPieces() {
    std::vector<float> values(kRows * kColumns);
    std::iota(values.begin(), values.end(), 0.0F);
    const std::string header = R"({"t":{"dtype":"F32","shape":[2500,1000],"data_offsets":[0,10000000]}})";
    const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    file_ = write("pieces.safetensors", safetensors_bytes(header, data));
  }

  std::string file_;
};

TEST_F(SafetensorsPieces, BlocksHaveTheirNumbersAcrossPieces) {
  const SafetensorsFile file(file_);
  for (const Block& block : {whole(file.at("t")), Block{7, 2493, 0, kColumns}, {3, 2499, 11, 991}}) {
    const std::vector<float> read = numbers<float>(file, file.at("t"), block);
    std::size_t i = 0;
    for (std::int64_t row = block.row_begin; row < block.row_end; ++row) {
      for (std::int64_t column = block.column_begin; column < block.column_end; ++column) {
        ASSERT_EQ(read[i++], static_cast<float>(row * kColumns + column));
      }
    }
  }
}

/// The visitor of the first piece may fail while the next piece is read.
TEST_F(SafetensorsPieces, AVisitMayFail) {
  const SafetensorsFile file(file_);
  const auto visit = [](const std::byte*, std::size_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(file.visit_block(file.at("t"), whole(file.at("t")), visit), std::runtime_error);
}

/// The bytes of the last piece are gone by the time they are read.
TEST_F(SafetensorsPieces, AFileThatBecomesShorterIsRejected) {
  const SafetensorsFile file(file_);
  fs::resize_file(file_, 9'000'000);
  std::vector<float> out(kRows * kColumns);
  const Error error = error_of([&] { file.read_block(file.at("t"), whole(file.at("t")), std::span(out)); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_NE(error.message().find("to the file's end"), std::string::npos) << error.message();
}

/// A sparse file of 1 GiB without blocks on the disk.
class SafetensorsMemory : public WeightsTest {
 protected:
  static constexpr std::int64_t kRows = 1 << 16;
  static constexpr std::int64_t kColumns = 1 << 12;

  SafetensorsMemory() {
    const std::int64_t bytes = kRows * kColumns * 4;
    const std::string header = fmt::format(
        R"({{"t":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}}}})", kRows, kColumns, bytes);
    const std::string beginning = safetensors_bytes(header, "");
    file_ = write("sparse.safetensors", beginning);
    fs::resize_file(file_, beginning.size() + static_cast<std::uint64_t>(bytes));
  }

  std::string file_;
};

/// 64 blocks of 16 MiB of a 1 GiB file are read into the same 16 MiB, through two pieces of 4 MiB. The whole
/// file would take 1 GiB.
TEST_F(SafetensorsMemory, BlocksOfRowsLeaveNoPages) {
  const std::int64_t grown = growth_of_memory([&] {
    const SafetensorsFile file(file_);
    std::vector<float> out(static_cast<std::size_t>(kRows / 64 * kColumns));
    for (std::int64_t row = 0; row < kRows; row += kRows / 64)
      file.read_block(file.at("t"), {row, row + kRows / 64, 0, kColumns}, std::span(out));
  });
  if (grown < 0) GTEST_SKIP() << "the system does not say how much memory a process had";
  EXPECT_GE(grown, 16);
  EXPECT_LE(grown, 40);
}

/// One block of 16 of the 4,096 columns reads 64 bytes of each row of the 1 GiB, for 4 MiB of numbers.
TEST_F(SafetensorsMemory, ABlockOfColumnsLeavesNoPagesMeanwhile) {
  const std::int64_t grown = growth_of_memory([&] {
    const SafetensorsFile file(file_);
    std::vector<float> out(static_cast<std::size_t>(kRows) * 16);
    file.read_block(file.at("t"), {0, kRows, 100, 116}, std::span(out));
  });
  if (grown < 0) GTEST_SKIP() << "the system does not say how much memory a process had";
  EXPECT_GE(grown, 4);
  EXPECT_LE(grown, 28);
}

/// Bytes that the caller has looked at stay in memory until they are dropped. This proves that the tests
/// above can detect growth.
TEST_F(SafetensorsMemory, BytesStayUntilTheyAreDropped) {
  const std::int64_t grown = growth_of_memory([&] {
    const SafetensorsFile file(file_);
    const auto bytes = file.bytes(file.at("t")).first(std::size_t{100} << 20);
    unsigned sum = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 4096) sum += static_cast<unsigned>(bytes[i]);
    if (sum != 0) _exit(1);
  });
  if (grown < 0) GTEST_SKIP() << "the system does not say how much memory a process had";
  EXPECT_GE(grown, 90);
}

}  // namespace safetensors_test
}  // namespace dflop
