#include "traces/weights/writer.hpp"

#include <cmath>

#include "tests/traces/weights/weights_fixtures.hpp"
#include "traces/weights/safetensors.hpp"

namespace dflop {
namespace weights_writer_test {

namespace fs = std::filesystem;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string as_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Appends the bytes of a tensor in pieces of random sizes.
template <typename Writer>
void append_in_pieces(Writer& writer, const std::string& name, const std::string& bytes, Random& random) {
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t piece = 1 + random.below(bytes.size() - done);
    writer.append(name, as_bytes(bytes).subspan(done, piece));
    done += piece;
  }
}

class WeightsWriters : public WeightsTest {};

/// Any tensors come back, with any bytes in any pieces, from one file or from several with an index.
TEST_F(WeightsWriters, WrittenTensorsReadBack) {
  Random random(21);
  for (int round = 0; round < 200; ++round) {
    const std::vector<TensorShape> tensors = random_tensors(random);
    const std::string folder = path(std::to_string(round));
    fs::create_directory(folder);
    WeightsWriter writer(folder, tensors, {}, 1 + random.below(200));
    std::map<std::string, std::string> expected;
    for (const TensorShape& tensor : tensors) {
      const std::string bytes = random_bytes(random, stored_bytes(tensor));
      append_in_pieces(writer, tensor.name, bytes, random);
      expected[tensor.name] = bytes;
    }
    writer.finish();

    const WeightsFolder read(folder);
    read.open_all();
    ASSERT_EQ(read.names().size(), tensors.size());
    for (const TensorShape& tensor : tensors) {
      const Weight weight = read.at(tensor.name);
      EXPECT_EQ(static_cast<const TensorShape&>(*weight.tensor), tensor);
      EXPECT_EQ(as_string(weight.file->bytes(*weight.tensor)), expected[tensor.name]);
      EXPECT_EQ(weight.file->metadata(), (Metadata{{"format", "pt"}}));
    }
  }
}

/// Golden models written through the writer come back byte for byte.
TEST_F(WeightsWriters, GoldenModelsComeBack) {
  for (const char* model : {"llama3", "qwen2.5-vl"}) {
    const WeightsFolder golden((fs::path(DFLOP_SOURCE_DIR) / "tests/golden/models" / model).string());
    std::vector<TensorShape> tensors;
    for (const std::string& name : golden.names()) tensors.push_back(*golden.at(name).tensor);
    fs::create_directory(path(model));
    WeightsWriter writer(path(model), tensors, {}, 300'000);
    for (const TensorShape& tensor : tensors) {
      const Weight weight = golden.at(tensor.name);
      writer.append(tensor.name, weight.file->bytes(*weight.tensor));
    }
    writer.finish();
    const WeightsFolder read(path(model));
    EXPECT_EQ(read.names(), golden.names());
    for (const std::string& name : golden.names()) {
      const Weight one = golden.at(name);
      const Weight other = read.at(name);
      EXPECT_EQ(as_string(one.file->bytes(*one.tensor)), as_string(other.file->bytes(*other.tensor))) << name;
    }
  }
}

/// Numbers in pieces, more than fit in the writer's buffer of 4 MiB.
TEST_F(WeightsWriters, NumbersAreConvertedInPieces) {
  constexpr std::int64_t kNumbers = 2'500'000;
  Random random(4);
  std::vector<double> values(kNumbers);
  for (double& value : values) value = random.uniform() - 0.5;
  const std::vector<TensorShape> tensors = {{"wide", Dtype::f64, {kNumbers}},
                                            {"single", Dtype::f32, {kNumbers}},
                                            {"half", Dtype::bf16, {2, kNumbers / 2}}};
  const std::string file = path("numbers.safetensors");
  SafetensorsWriter writer(file, tensors);
  for (const TensorShape& tensor : tensors) {
    for (std::size_t done = 0; done < values.size();) {
      const std::size_t piece = std::min<std::size_t>(1 + random.below(1'500'000), values.size() - done);
      writer.append(tensor.name, std::span<const double>(values).subspan(done, piece));
      done += piece;
    }
  }
  writer.finish();

  const SafetensorsFile read(file);
  for (const TensorShape& tensor : tensors) {
    std::vector<std::byte> expected(values.size() * static_cast<std::size_t>(bits_of(tensor.dtype)) / 8);
    encode(tensor.dtype, std::span<const double>(values), expected.data());
    const auto found = read.bytes(read.at(tensor.name));
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end())) << tensor.name;
  }
}

TEST_F(WeightsWriters, FloatsAreWrittenToo) {
  const std::vector<float> values = {1.5F, -2.25F, 3e38F};
  SafetensorsWriter writer(
      path("f"),
      std::vector<TensorShape>{{"d", Dtype::f64, {3}}, {"s", Dtype::f32, {3}}, {"h", Dtype::bf16, {3}}});
  for (const char* name : {"d", "s", "h"}) writer.append(name, std::span<const float>(values));
  writer.finish();
  const SafetensorsFile file(path("f"));
  std::vector<float> read(3);
  for (const char* name : {"d", "s", "h"}) {
    file.read_block(file.at(name), whole(file.at(name)), std::span(read));
    EXPECT_EQ(read[0], 1.5F) << name;
    EXPECT_EQ(read[1], -2.25F) << name;
    // 3e38 is 1.763... x 2^127, and BF16 has 7 bits of fraction: 0.763 x 128 = 97.7, so 1 + 98/128.
    EXPECT_EQ(read[2], name[0] == 'h' ? std::ldexp(1 + 98.0F / 128, 127) : 3e38F) << name;
  }
}

TEST_F(WeightsWriters, NoFileAppearsBeforeTheEnd) {
  write("w.safetensors", "old");
  {
    SafetensorsWriter writer(path("w.safetensors"), std::vector<TensorShape>{{"a", Dtype::u8, {2}}});
    EXPECT_EQ(files().size(), 2U);
    writer.append("a", as_bytes("x"));
  }
  EXPECT_EQ(files(), std::vector<std::string>{"w.safetensors"});
  EXPECT_EQ(read(path("w.safetensors")), "old");
  SafetensorsWriter writer(path("w.safetensors"), std::vector<TensorShape>{{"a", Dtype::u8, {2}}},
                           {.metadata = {}, .sync = true});
  writer.append("a", as_bytes("xy"));
  writer.complete();
  EXPECT_EQ(read(path("w.safetensors")), "old");
  writer.finish();
  EXPECT_TRUE(read(path("w.safetensors")).ends_with("xy"));
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(WeightsWriters, SeveralFilesAppearTogether) {
  const std::vector<TensorShape> tensors = {
      {"a", Dtype::u8, {2}}, {"b", Dtype::u8, {2}}, {"c", Dtype::u8, {1}}};
  WeightsWriter writer(folder_.string(), tensors, {.sync = true}, 3);
  writer.append("a", as_bytes("12"));
  writer.append("b", as_bytes("34"));
  writer.append("c", as_bytes("5"));
  for (const std::string& file : files()) EXPECT_NE(file.find(".part-"), std::string::npos) << file;
  writer.finish();
  EXPECT_EQ(files(),
            (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  const WeightsFolder folder(folder_.string());
  EXPECT_EQ(folder.at("a").file->path(), path("model-00001-of-00002.safetensors"));
  EXPECT_EQ(folder.at("c").file->path(), path("model-00002-of-00002.safetensors"));
  EXPECT_NE(read(path("model.safetensors.index.json")).find("\"total_size\": 5"), std::string::npos);
}

/// A file ends before the tensor that would make it too long. A tensor that is too long by itself gets its
/// own file.
TEST_F(WeightsWriters, TensorsAreDividedIntoFiles) {
  const auto counts = [](const std::vector<std::int64_t>& sizes, std::uint64_t most) {
    std::vector<TensorShape> tensors;
    for (const std::int64_t size : sizes) tensors.push_back({"", Dtype::u8, {size}});
    return divide_into_files(tensors, most);
  };
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(counts({}, 10), Counts{0});
  EXPECT_EQ(counts({4, 6, 1}, 10), (Counts{2, 1}));
  EXPECT_EQ(counts({4, 7, 1}, 10), (Counts{1, 2}));
  EXPECT_EQ(counts({20, 1, 20, 0, 3}, 10), (Counts{1, 1, 1, 2}));
  EXPECT_EQ(counts({0, 20}, 10), (Counts{1, 1}));
}

TEST_F(WeightsWriters, UndeclaredTensorsAreRejected) {
  const std::vector<TensorShape> tensors = {
      {"a", Dtype::f32, {2}}, {"none", Dtype::f32, {0}}, {"i", Dtype::u8, {4}}};
  SafetensorsWriter writer(path("w"), tensors);
  const auto refused = [](const auto& run, const std::string& word) {
    const Error error = error_of(run);
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(error.message().find(word), std::string::npos) << error.what();
  };
  const std::vector<float> values(3);
  const std::span<const float> numbers(values);
  refused([&] { writer.append("i", as_bytes("x")); }, "expected data of 'a', found those of 'i'");
  refused([&] { writer.append("a", numbers); }, "expected 8 bytes in all, found 12");
  writer.append("a", numbers.first(1));
  refused([&] { writer.append("a", numbers.first(2)); }, "expected 8 bytes in all, found 12");
  refused([&] { writer.finish(); }, "expected 8 bytes before the file ends, found 4");
  writer.append("a", numbers.first(1));
  refused([&] { writer.append("i", numbers.first(1)); }, "F64, F32, F16 or BF16, found U8");
  writer.append("i", as_bytes("1234"));
  refused([&] { writer.append("i", as_bytes("5")); }, "expected no more data, found those of 'i'");
  writer.finish();
}

TEST_F(WeightsWriters, InvalidTensorsAreRejectedBeforeAnythingIsWritten) {
  const auto kind = [&](const std::vector<TensorShape>& tensors, std::uint64_t most) {
    return error_of([&] { WeightsWriter writer(folder_.string(), tensors, {}, most); }).kind();
  };
  // The same name in two files, and an invalid name in the second file.
  EXPECT_EQ(kind({{"a", Dtype::u8, {2}}, {"a", Dtype::u8, {2}}}, 2), ErrorKind::internal);
  EXPECT_EQ(kind({{"a", Dtype::u8, {2}}, {"", Dtype::u8, {2}}}, 2), ErrorKind::internal);
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(error_of([&] { WeightsWriter writer(path("none"), {}); }).kind(), ErrorKind::output);
  EXPECT_EQ(error_of([] { SafetensorsWriter writer("/dev/null", {}); }).kind(), ErrorKind::output);

  write("model.safetensors", "old");
  const std::vector<TensorShape> two = {{"a", Dtype::u8, {2}}, {"b", Dtype::u8, {2}}};
  EXPECT_EQ(kind(two, 2), ErrorKind::output);  // readers would take the old file for all of the weights
  WeightsWriter(folder_.string(), two, {}, 4);
  EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"});
}

}  // namespace weights_writer_test
}  // namespace dflop
