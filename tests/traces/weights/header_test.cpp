#include "traces/weights/header.hpp"

#include <nlohmann/json.hpp>

#include "tests/traces/weights/weights_fixtures.hpp"

namespace dflop {
namespace header_test {

const std::string kFile = "model.safetensors";

SafetensorsHeader parse(const std::string& bytes) {
  return parse_header(bytes, bytes.size(), kFile);
}

/// Two tensors, 2 x 2 numbers of 4 bytes and 3 numbers of 2 bytes: 16 and 6 bytes of data.
const std::string kGood = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                          R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";

/// Expects that the good header is rejected after a change.
void expect_change_refused(const std::string& from, const std::string& to, const std::string& context,
                           std::initializer_list<std::string_view> words, std::size_t data_bytes = 22) {
  const std::string bytes = safetensors_bytes(replaced(kGood, from, to), std::string(data_bytes, 'x'));
  expect_refused([&] { parse(bytes); }, context.empty() ? kFile : kFile + ": " + context, words);
}

TEST(SafetensorsHeader, SaysWhereTensorsAre) {
  const SafetensorsHeader header = parse(safetensors_bytes(kGood, std::string(22, 'x')));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.data_begin, 8 + kGood.size());
  const StoredTensor& a = header.tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, Dtype::f32);
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(a.begin, header.data_begin);
  EXPECT_EQ(a.bytes, 16U);
  EXPECT_EQ(header.tensors[1].begin, header.data_begin + 16);
  EXPECT_EQ(header.tensors[1].bytes, 6U);
}

/// A shape [r, ...] is r rows; vectors and single numbers are one row.
TEST(SafetensorsHeader, TensorsAreMatricesToo) {
  const std::string text = R"({"m":{"dtype":"U8","shape":[2,3,4],"data_offsets":[0,24]},)"
                           R"("v":{"dtype":"U8","shape":[5],"data_offsets":[24,29]},)"
                           R"("x":{"dtype":"U8","shape":[],"data_offsets":[29,30]},)"
                           R"("z":{"dtype":"U8","shape":[0,7],"data_offsets":[30,30]}})";
  const SafetensorsHeader header = parse(safetensors_bytes(text, std::string(30, 'x')));
  const auto extent = [&](std::size_t t) {
    return std::pair(header.tensors[t].rows, header.tensors[t].columns);
  };
  EXPECT_EQ(extent(0), std::pair(std::int64_t{2}, std::int64_t{12}));
  EXPECT_EQ(extent(1), std::pair(std::int64_t{1}, std::int64_t{5}));
  EXPECT_EQ(extent(2), std::pair(std::int64_t{1}, std::int64_t{1}));
  EXPECT_EQ(extent(3), std::pair(std::int64_t{0}, std::int64_t{7}));
}

TEST(SafetensorsHeader, HasMetadataAndSpaces) {
  const std::string text = R"({"__metadata__":{"format":"pt","x":"y"}}   )";
  const SafetensorsHeader header = parse(safetensors_bytes(text, ""));
  EXPECT_EQ(header.metadata, (Metadata{{"format", "pt"}, {"x", "y"}}));
  EXPECT_TRUE(header.tensors.empty());
}

TEST(SafetensorsHeader, InvalidLengthsAreRejected) {
  expect_refused([] { parse("short"); }, kFile, {"found 5 bytes"});
  expect_refused([] { parse(""); }, kFile, {"found 0 bytes"});
  // The cases: one byte more than the file has; the largest number; more than the limit, in a file that is
  // long enough.
  std::string bytes = safetensors_bytes(kGood, "");
  ++bytes[0];
  expect_refused([&] { parse(bytes); }, kFile,
                 {"at most " + std::to_string(kGood.size()), "found " + std::to_string(kGood.size() + 1)});
  expect_refused([] { parse(std::string(8, '\xFF')); }, kFile, {"at most 0", "found 18446744073709551615"});
  const std::uint64_t long_one = kLongestHeader + 1;
  const std::string beginning(reinterpret_cast<const char*>(&long_one), 8);
  expect_refused([&] { parse_header(beginning, std::uint64_t{1} << 40, kFile); }, kFile,
                 {"at most 100000000", "found 100000001"});
}

TEST(SafetensorsHeader, HeadersThatAreNoJsonObjectAreRejected) {
  expect_refused([] { parse(safetensors_bytes("", "")); }, kFile, {"begins with '{', at byte 8, found none"});
  expect_refused([] { parse(safetensors_bytes("[]", "")); }, kFile, {"found byte 0x5b"});
  expect_refused([] { parse(safetensors_bytes(" {}", "")); }, kFile, {"found byte 0x20"});
  expect_refused([] { parse(safetensors_bytes("{", "")); }, kFile + ":1:2", {"expected JSON"});
  expect_refused([] { parse(safetensors_bytes("{\"\xFF\":1}", "")); }, kFile + ":1:3", {"UTF-8"});
  expect_refused([] { parse(safetensors_bytes("{}x", "")); }, kFile + ":1:3", {"expected JSON"});
}

TEST(SafetensorsHeader, RepeatedNamesAreRejected) {
  expect_change_refused(R"("b")", R"("a")", "key 'a'", {"each key once"});
  expect_change_refused(R"("shape":[3])", R"("shape":[3],"shape":[3])", "key 'b.shape'", {"each key once"});
}

TEST(SafetensorsHeader, WrongTypesAreRejected) {
  expect_change_refused(R"("BF16")", R"("BF17")", "key 'b.dtype'", {"one of F64", "found \"BF17\""});
  expect_change_refused(R"("BF16")", "16", "key 'b.dtype'", {"found 16"});
  expect_change_refused("[3]", "3", "key 'b.shape'", {"an array", "found 3"});
  expect_change_refused("[3]", "[\"3\"]", "key 'b.shape[0]'", {"whole number"});
  expect_change_refused("[3]", "[1.5]", "key 'b.shape[0]'", {"whole number", "found 1.5"});
  expect_change_refused("[3]", "[-3]", "key 'b.shape[0]'", {"at least 0", "found -3"});
  expect_change_refused("[16,22]", "[16]", "key 'b.data_offsets'", {"[begin, end]", "found 1 numbers"});
  expect_change_refused("[16,22]", "[16,22,22]", "key 'b.data_offsets'", {"found 3 numbers"});
  expect_change_refused("[16,22]", "[16,18446744073709551615]", "key 'b.data_offsets[1]'", {"whole number"});
  expect_change_refused(R"("shape":[3],)", "", "key 'b.shape'", {"expected this key"});
  expect_change_refused(R"("shape":[3],)", R"("shape":[3],"strides":[1],)", "key 'b.strides'",
                        {"unknown key"});
  expect_change_refused(R"({"a")", R"({"c":[],"a")", "key 'c'", {"an object"});
  expect_change_refused(R"({"a")", R"({"__metadata__":[],"a")", "key '__metadata__'", {"an object"});
  expect_change_refused(R"({"a")", R"({"__metadata__":{"x":1},"a")", "key '__metadata__.x'", {"a string"});
}

TEST(SafetensorsHeader, OffsetsOutsideOfTheDataAreRejected) {
  expect_change_refused("[16,22]", "[16,23]", "tensor 'b'", {"within the 22 bytes", "found [16, 23]"});
  expect_change_refused("[16,22]", "[22,16]", "tensor 'b'", {"found [22, 16]"});
  expect_change_refused("[16,22]", "[9223372036854775807,9223372036854775807]", "tensor 'b'", {"within"});
}

TEST(SafetensorsHeader, BytesMustMatchTheShape) {
  expect_change_refused("[3]", "[2]", "tensor 'b'",
                        {"expected 4 bytes for BF16 [2], found 6, from 16 to 22 of the data"});
  expect_change_refused("[3]", "[]", "tensor 'b'", {"expected 2 bytes for BF16 []"});
  expect_change_refused("[3]", "[0,3]", "tensor 'b'", {"expected 0 bytes for BF16 [0, 3]"});
  // 11 numbers of 4 bits end in the middle of a byte.
  expect_change_refused(R"("BF16","shape":[3])", R"("F4","shape":[11])", "tensor 'b'",
                        {"whole number of bytes"});
}

/// 2^32 x 2^32 numbers overflow to 0 in 64 bits, and so do 2^61 of 8 bytes. A zero among the sizes does not
/// make the product of the other sizes valid.
TEST(SafetensorsHeader, SizesThatOverflowAreRejected) {
  for (const std::string shape :
       {"[4294967296,4294967296]", "[4611686018427387904,2]", "[4611686018427387904,2,0]",
        "[0,9223372036854775807,9223372036854775807]", "[4611686018427387904]"}) {
    expect_change_refused("[3]", shape, "tensor 'b'", {"that can be counted"});
  }
}

TEST(SafetensorsHeader, OverlapsAndHolesAreRejected) {
  expect_change_refused("[16,22]", "[15,21]", "tensor 'b'", {"where the data of 'a' end", "they overlap"});
  expect_change_refused("[16,22]", "[17,23]", "tensor 'b'", {"belong to no tensor"}, 23);
  expect_change_refused("[0,16]", "[1,17]", "tensor 'a'", {"where the data of the header end", "no tensor"});
  // Both tensors have the same bytes.
  expect_change_refused(R"("F32","shape":[2,2],"data_offsets":[0,16])",
                        R"("BF16","shape":[3],"data_offsets":[16,22])", "tensor 'a'", {"the header"});
}

TEST(SafetensorsHeader, TheFileEndsWithItsLastTensor) {
  const std::size_t end = 8 + kGood.size() + 22;
  expect_change_refused("a", "a", "", {"at byte " + std::to_string(end), "found " + std::to_string(end + 1)},
                        23);
  // One byte fewer: the last tensor exceeds the data.
  expect_change_refused("a", "a", "tensor 'b'", {"within the 21 bytes"}, 21);
}

/// A header may describe 2^40 bytes although only the first part of the file is read.
TEST(SafetensorsHeader, IsPartOfALongerFile) {
  const std::string text = R"({"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}})";
  const std::string bytes = safetensors_bytes(text, "");
  EXPECT_EQ(parse_header(bytes, bytes.size() + (std::uint64_t{1} << 40), kFile).tensors[0].bytes,
            std::uint64_t{1} << 40);
}

/// Any tensors and metadata come back at the positions that lay_out() chose. The header ends at a multiple of
/// 8.
TEST(SafetensorsHeader, ReadsBackUnchanged) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    Metadata metadata;
    for (std::uint64_t i = random.below(3); i > 0; --i)
      metadata[random_name(random, i)] = random_name(random, 0);
    const std::vector<TensorShape> tensors = random_tensors(random);
    const SafetensorsHeader header = lay_out(tensors, metadata);
    const std::string bytes = header_bytes(header);
    ASSERT_EQ(bytes.size() % 8, 0U);
    ASSERT_EQ(bytes.size(), header.data_begin);
    const SafetensorsHeader read = parse_header(bytes, header.file_bytes, kFile);
    EXPECT_EQ(read.metadata, metadata);
    ASSERT_EQ(read.tensors.size(), tensors.size());
    for (const StoredTensor& tensor : header.tensors) {
      EXPECT_EQ(std::count(read.tensors.begin(), read.tensors.end(), tensor), 1) << tensor.name;
    }
  }
}

/// Another JSON library reads the header as intended.
TEST(SafetensorsHeader, FollowsTheFormat) {
  const SafetensorsHeader header = lay_out(
      std::vector<TensorShape>{{"w", Dtype::f32, {2, 3}}, {"b", Dtype::bf16, {5}}}, {{"format", "pt"}});
  const std::string bytes = header_bytes(header);
  const auto json = nlohmann::json::parse(bytes.substr(8));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"__metadata__": {"format": "pt"},
      "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
      "b": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]}})"));
  EXPECT_EQ(header.file_bytes, bytes.size() + 34);
}

TEST(SafetensorsHeader, InvalidHeadersAreNotWritten) {
  const auto refused = [](const std::vector<TensorShape>& tensors, const std::string& word) {
    const Error error = error_of([&] { lay_out(tensors, {}); });
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(error.message().find(word), std::string::npos) << error.what();
  };
  refused({{"a", Dtype::u8, {1}}, {"a", Dtype::u8, {2}}}, "once");
  refused({{"", Dtype::u8, {1}}}, "another name");
  refused({{"__metadata__", Dtype::u8, {1}}}, "another name");
  refused({{"\xFF", Dtype::u8, {1}}}, "UTF-8");
  refused({{"a", Dtype::u8, {-1}}}, "that can be counted");
  refused({{"a", Dtype::u8, {std::int64_t{1} << 40, std::int64_t{1} << 40}}}, "that can be counted");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 8;
  refused(std::vector<TensorShape>{{"a", Dtype::u8, {most}}, {"b", Dtype::f64, {1}}}, "multiple of 8");
  refused({{"a", Dtype::bf16, {3}}, {"b", Dtype::f32, {1}}}, "found 6: sort the wider dtypes");
  EXPECT_EQ(error_of([] { lay_out({}, {{"x", "\xFF"}}); }).kind(), ErrorKind::internal);
}

}  // namespace header_test
}  // namespace dflop
