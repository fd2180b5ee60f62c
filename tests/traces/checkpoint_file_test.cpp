#include "traces/files/checkpoint.hpp"

#include <zlib.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/support/random.hpp"
#include "tests/traces/checkpoint_fixtures.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace checkpoint_file_test {

class CheckpointFileOnDisk : public CheckpointTest {};

constexpr std::size_t kPreambleBytes = 32;

std::uint64_t number_at(const std::string& bytes, std::size_t at, std::size_t width) {
  std::uint64_t number = 0;
  for (std::size_t i = width; i > 0; --i)
    number = number << 8 | static_cast<unsigned char>(bytes[at + i - 1]);
  return number;
}

void set_number(std::string& bytes, std::size_t at, std::size_t width, std::uint64_t number) {
  for (std::size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<char>(number >> (8 * i));
}

std::string header_of(const std::string& bytes) {
  return bytes.substr(kPreambleBytes, number_at(bytes, 16, 8));
}

/// The file of this header and these values, with a beginning that is right for them: written from the
/// documentation of the layout, not with the writer's code.
std::string assemble(const std::string& header, const std::string& values) {
  std::string bytes = "DFLOPCKP" + std::string(24, '\0');
  set_number(bytes, 8, 4, 1);
  set_number(bytes, 16, 8, header.size());
  set_number(bytes, 24, 8, kPreambleBytes + header.size() + values.size());
  bytes += header;
  set_number(bytes, 12, 4, crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  return bytes + values;
}

std::string values_of(const std::string& bytes) {
  return bytes.substr(kPreambleBytes + number_at(bytes, 16, 8));
}

/// Expects that these bytes are refused at `context`, with `words`.
void expect_bad(const std::string& bytes, const std::string& context,
                std::initializer_list<std::string_view> words) {
  expect_refused([&] { parse_checkpoint(bytes, "a.ckpt"); }, context, words);
}

TEST(CheckpointFile, HasADocumentedForm) {
  const std::string header = R"({
  "schema": "dflop.checkpoint",
  "version": 1,
  "model": "tiny-vlm",
  "model_spec": "{\"layers\": 2}",
  "step": 50,
  "seed": 18446744073709551615,
  "dtype": "f32",
  "gbs": 8,
  "scheduler": "dflop",
  "data_file": "omni_mix.csv",
  "data_fingerprint": "crc32 0badcafe",
  "samples_drawn": 400,
  "plan": "llm 1x2x1",
  "tensors": [
    {
      "name": "llm.0.wq",
      "kind": "weight",
      "element": "f32",
      "rows": 1,
      "columns": 2,
      "offset_bytes": 0,
      "crc32": 1443037940
    },
    {
      "name": "llm.0.wq",
      "kind": "moment2",
      "element": "f64",
      "rows": 1,
      "columns": 1,
      "offset_bytes": 8,
      "crc32": 2033463944
    }
  ]
}
)";
  // IEEE 754: 1 is 0x3f800000 and -2.5 = -1.25 x 2^1 is 0xc0200000 in single precision, 1/3 is
  // 0x3fd5555555555555 in double; the lowest byte first. Their CRC-32 above are those of Python's zlib.
  const std::string values("\x00\x00\x80\x3f\x00\x00\x20\xc0\x55\x55\x55\x55\x55\x55\xd5\x3f", 16);
  EXPECT_EQ(to_bytes(example_checkpoint()), assemble(header, values));
}

TEST(CheckpointFile, ReadsBackToTheLastBit) {
  Random random(11);
  for (int run = 0; run < 50; ++run) {
    Checkpoint checkpoint = example_checkpoint();
    checkpoint.tensors.clear();
    for (std::uint64_t t = random.below(6); t > 0; --t) {
      NamedTensor tensor{"t" + std::to_string(t),
                         static_cast<TensorKind>(random.below(3)),
                         static_cast<ElementType>(random.below(2)),
                         1 + static_cast<int>(random.below(9)),
                         1 + static_cast<int>(random.below(9)),
                         {}};
      for (std::int64_t i = 0; i < tensor.rows * tensor.columns; ++i) {
        // Any bits: subnormal numbers, infinity and NaN among them.
        const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
        const auto number = std::bit_cast<double>(random.bits());
        tensor.values.push_back(tensor.element == ElementType::f32 ? static_cast<double>(single) : number);
      }
      checkpoint.tensors.push_back(tensor);
    }
    const std::string bytes = to_bytes(checkpoint);
    const Checkpoint read = parse_checkpoint(bytes, "a.ckpt");
    ASSERT_EQ(read.tensors.size(), checkpoint.tensors.size());
    for (std::size_t t = 0; t < read.tensors.size(); ++t) {
      EXPECT_EQ(bits_of(read.tensors[t].values), bits_of(checkpoint.tensors[t].values));
    }
    EXPECT_EQ(to_bytes(read), bytes);
  }
}

TEST(CheckpointFile, SpecialValuesAndStringsReadBack) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  using namespace std::string_literals;
  Checkpoint checkpoint = example_checkpoint();
  checkpoint.plan = "quotes \" and \\, lines\n, zeros \0 and ü"s;
  const std::vector<double> values = {0.0, -0.0, inf, -inf, nan, 0x1p-149, 0x1.fffffep127, -0x1p-126};
  checkpoint.tensors = {{"a", TensorKind::moment1, ElementType::f32, 2, 4, values},
                        {"a", TensorKind::weight, ElementType::f64, 4, 2, values}};
  Checkpoint read = parse_checkpoint(to_bytes(checkpoint), "a.ckpt");
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(bits_of(read.tensors[t].values), bits_of(values));
    read.tensors[t].values = checkpoint.tensors[t].values = {};
  }
  EXPECT_EQ(read, checkpoint);
}

TEST(CheckpointFile, EveryChangedByteIsSeen) {
  const std::string good = to_bytes(example_checkpoint());
  EXPECT_EQ(parse_checkpoint(good, "a.ckpt"), example_checkpoint());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      ASSERT_EQ(error_of([&] { parse_checkpoint(bad, "a.ckpt"); }).kind(), ErrorKind::input)
          << "byte " << at << " with bits " << flip;
    }
  }
}

TEST(CheckpointFile, ManyChangedBytesAreSeen) {
  const std::string good = to_bytes(example_checkpoint());
  Random random(12);
  for (int run = 0; run < 20'000; ++run) {
    std::string bad = good;
    for (std::uint64_t flips = 1 + random.below(8); flips > 0; --flips) {
      bad[random.below(bad.size())] = static_cast<char>(random.bits());
    }
    if (bad == good) continue;
    ASSERT_EQ(error_of([&] { parse_checkpoint(bad, "a.ckpt"); }).kind(), ErrorKind::input);
  }
}

TEST(CheckpointFile, EveryCutIsSeen) {
  const std::string good = to_bytes(example_checkpoint());
  for (std::size_t length = 0; length < good.size(); ++length) {
    // Within the first 32 bytes it is not known yet how many there should be.
    const std::size_t expected = length < kPreambleBytes ? kPreambleBytes : good.size();
    expect_bad(
        good.substr(0, length), "a.ckpt",
        {"cut short: expected ", std::to_string(expected) + " bytes, found " + std::to_string(length)});
  }
}

TEST(CheckpointFile, OtherFilesAndVersionsAreRefused) {
  const std::string good = to_bytes(example_checkpoint());
  const std::string size = std::to_string(good.size());
  expect_bad("{\"schema\": \"dflop.checkpoint\"}", "a.ckpt", {"expected a checkpoint", "DFLOPCKP"});
  expect_bad(good + "x", "a.ckpt", {"followed by something else: expected " + size + " bytes"});
  std::string other = good;
  set_number(other, 8, 4, 2);
  expect_bad(other, "a.ckpt", {"another version", "reads version 1, found 2"});
  other = good;
  set_number(other, 16, 8, std::numeric_limits<std::uint64_t>::max());
  expect_bad(other, "a.ckpt", {"expected a header of at most", "found 18446744073709551615"});
  expect_bad(replaced(good, "tiny", "tinz"), "a.ckpt", {"damaged: the header has another CRC-32"});
  expect_bad(assemble("weights\n", ""), "a.ckpt:1:1", {"expected JSON"});
  // One byte of a value.
  other = good;
  other.back() = 'x';
  expect_bad(other, "a.ckpt: key 'tensors[1].crc32'", {"damaged: the values of moment2 'llm.0.wq'"});
}

TEST(CheckpointFile, BadHeadersAreRefused) {
  const std::string good = to_bytes(example_checkpoint());
  EXPECT_EQ(assemble(header_of(good), values_of(good)), good);
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_bad(assemble(replaced(header_of(good), from, to), values_of(good)), "a.ckpt: key '" + key + "'",
               words);
  };
  refused("dflop.checkpoint", "dflop.plan", "schema", {"expected \"dflop.checkpoint\""});
  refused("\"version\": 1", "\"version\": 2", "version", {"newer version", "found 2"});
  refused("\"gbs\"", "\"batch\"", "batch", {"unknown key", "gbs"});
  refused("  \"gbs\": 8,\n", "", "gbs", {"expected this key"});
  refused("\"gbs\": 8", "\"gbs\": 0", "gbs", {"at least 1", "found 0"});
  refused("\"step\": 50", "\"step\": -1", "step", {"at least 0", "found -1"});
  refused("\"seed\": 1", "\"seed\": -1", "seed", {"at least 0"});
  refused("\"dtype\": \"f32\"", "\"dtype\": \"f16\"", "dtype", {"f32, f64", "found \"f16\""});
  refused("\"samples_drawn\": 400", "\"samples_drawn\": 4.5", "samples_drawn", {"found 4.5"});
  refused("\"plan\": \"llm 1x2x1\"", "\"plan\": 1", "plan", {"expected a string"});
  refused("\"kind\": \"weight\"", "\"kind\": \"bias\"", "tensors[0].kind", {"moment1", "found \"bias\""});
  refused("\"element\": \"f64\"", "\"element\": \"i8\"", "tensors[1].element", {"f32, f64"});
  refused("\"rows\": 1", "\"row\": 1", "tensors[0].row", {"unknown key"});
  refused("\"rows\": 1", "\"rows\": 0", "tensors[0].rows", {"at least 1", "found 0"});
  refused("\"kind\": \"moment2\"", "\"kind\": \"weight\"", "tensors[1].name", {"'llm.0.wq' twice"});
}

TEST(CheckpointFile, SizesAndOffsetsThatCannotBeAreRefused) {
  const std::string good = to_bytes(example_checkpoint());
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_bad(assemble(replaced(header_of(good), from, to), values_of(good)), "a.ckpt: key '" + key + "'",
               words);
  };
  // The second begins in the middle of the first; behind a gap; far beyond the file.
  for (const std::string_view offset : {"4", "9", "18446744073709551615"}) {
    refused("\"offset_bytes\": 8", "\"offset_bytes\": " + std::string(offset), "tensors[1].offset_bytes",
            {"expected 8, where the tensor before it ends", offset});
  }
  refused("\"offset_bytes\": 0", "\"offset_bytes\": 8", "tensors[0].offset_bytes", {"expected 0", "found 8"});
  // 16 bytes of values are 4 of f32.
  refused("\"columns\": 2", "\"columns\": 5", "tensors[0]", {"at most 4 values", "found 1 x 5"});
  // 2^62 x 4 bytes and 2^32 x 2^32 are 0 in 64 bits.
  refused("\"columns\": 2", "\"columns\": 4611686018427387904", "tensors[0]", {"at most 4 values"});
  refused("\"rows\": 1,\n      \"columns\": 2", "\"rows\": 4294967296,\n      \"columns\": 4294967296",
          "tensors[0]", {"at most 4 values"});
  // The first with one of its two values.
  refused("\"columns\": 2", "\"columns\": 1", "tensors[0].crc32", {"damaged"});
  expect_bad(assemble(header_of(good), values_of(good) + "12345678"), "a.ckpt: key 'tensors'",
             {"expected tensors of 24 bytes", "found 16"});
}

TEST(CheckpointFile, WhatCouldNotBeReadBackIsNotWritten) {
  const auto refused = [](auto change, std::string_view word) {
    Checkpoint checkpoint = example_checkpoint();
    change(checkpoint);
    const Error error = error_of([&] { to_bytes(checkpoint); });
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  };
  refused([](Checkpoint& c) { c.step = -1; }, "found -1, 8, 400");
  refused([](Checkpoint& c) { c.gbs = 0; }, "found 50, 0, 400");
  refused([](Checkpoint& c) { c.samples_drawn = -7; }, "found 50, 8, -7");
  refused([](Checkpoint& c) { c.tensors[1].kind = TensorKind::weight; }, "weight 'llm.0.wq'");
  refused([](Checkpoint& c) { c.tensors[0].rows = 2; }, "expected 2 x 2 values, found 2");
  refused([](Checkpoint& c) { c.tensors[0] = {"a", {}, {}, 0, 0, {}}; }, "expected 0 x 0 values");
  refused([](Checkpoint& c) { c.tensors[0].values[1] = 0.1; }, "f32 holds, found 0.1");
  refused([](Checkpoint& c) { c.tensors[0].values[1] = 1e300; }, "f32 holds, found 1e+300");
  // 4 x (2^62 + 1) is 4 in 64 bits.
  refused(
      [](Checkpoint& c) {
        c.tensors[0] = {"a", {}, {}, 4, (std::int64_t{1} << 62) + 1, {1, 2, 3, 4}};
      },
      "values, found 4");
}

TEST_F(CheckpointFileOnDisk, IsWrittenReplacedAndRead) {
  Checkpoint checkpoint = example_checkpoint();
  write_checkpoint(path("a.ckpt"), checkpoint);
  checkpoint.tensors.pop_back();
  write_checkpoint(path("a.ckpt"), checkpoint);
  EXPECT_EQ(read_checkpoint(path("a.ckpt")), checkpoint);
  EXPECT_EQ(bytes_of_file(path("a.ckpt")), to_bytes(checkpoint));
  checkpoint.tensors.clear();
  write_checkpoint(path("a.ckpt"), checkpoint);
  EXPECT_EQ(read_checkpoint(path("a.ckpt")), checkpoint);
}

TEST_F(CheckpointFileOnDisk, WhatCannotBeReadNamesPathAndReason) {
  const auto refused = [&](const std::string& name, std::initializer_list<std::string_view> words) {
    expect_refused([&] { read_checkpoint(path(name)); }, path(name), words);
  };
  refused("none.ckpt", {"No such file or directory"});
  std::filesystem::create_directory(path("folder"));
  refused("folder", {"Is a directory"});
  write_bytes(path("empty.ckpt"), "");
  refused("empty.ckpt", {"cut short: expected at least 32 bytes, found 0"});
  const std::string good = to_bytes(example_checkpoint());
  write_bytes(path("cut.ckpt"), good.substr(0, 700));
  refused("cut.ckpt", {"cut short: expected " + std::to_string(good.size()) + " bytes, found 700"});
  // 8 TiB without blocks, of which 32 bytes are looked at; where the file system has no such files, 1 byte.
  write_bytes(path("huge.ckpt"), "x");
  std::error_code too_large;
  std::filesystem::resize_file(path("huge.ckpt"), std::uintmax_t{1} << 43, too_large);
  refused("huge.ckpt", {"another kind of file"});
}

TEST_F(CheckpointFileOnDisk, WhatCannotBeWrittenNamesPathAndReason) {
  const auto refused = [&](const std::string& name, const std::string& message) {
    const Error error = error_of([&] { write_checkpoint(path(name), example_checkpoint()); });
    EXPECT_EQ(error.kind(), ErrorKind::output);
    EXPECT_EQ(error.context(), path(name));
    EXPECT_EQ(error.message(), message);
  };
  refused("no/such/a.ckpt", "cannot write: No such file or directory");
  refused("a.ckpt.gz", "expected a path that does not end in .gz: checkpoints are not compressed");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace checkpoint_file_test
}  // namespace dflop
