#include "traces/files/kernels.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "tests/core/input_error.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace kernels_file_test {
namespace {

VariantNames some_names() {
  VariantNames names;
  names[static_cast<std::size_t>(KernelOperation::linear)] = {"default", "oneDNN", "avx512 \"wide\""};
  names[static_cast<std::size_t>(KernelOperation::attention)] = {"default", "blocks of 64"};
  return names;
}

KernelKey random_key(Random& random) {
  const bool linear = random.below(2) == 0;
  return KernelKey(KernelCall{
      linear ? KernelOperation::linear : KernelOperation::attention, static_cast<DType>(random.below(3)),
      static_cast<std::int32_t>(random.below(1 << 21)), static_cast<std::int32_t>(random.below(1 << 21)),
      !linear && random.below(2) == 1, 1 + static_cast<std::int64_t>(random.below(1 << 20)),
      linear ? 0 : 1 + static_cast<std::int64_t>(random.below(1 << 12))});
}

KernelStats random_stats(Random& random) {
  return {static_cast<std::int64_t>(random.below(1000)), 1e6 * (1 - random.uniform()),
          1e9 * random.uniform()};
}

KernelTable random_table(Random& random) {
  KernelTable table(some_names());
  for (int i = 0; i < 12; ++i) {
    for (KernelStats& stats : table.entry(random_key(random))) stats = random_stats(random);
  }
  return table;
}

const KernelMachine kHere{"host", 2, "oneDNN 2.6.0", "a processor", "portable, avx2"};

KernelFile some_file(std::uint64_t seed = 1) {
  Random random(seed);
  return {"1.2.3", kHere, random_table(random)};
}

TEST(KernelFiles, ReadBackBitIdentically) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const KernelFile file = some_file(seed);
    EXPECT_EQ(parse_kernel_file(to_json(file), "f"), file);
  }
}

TEST(KernelFiles, AreReportedAndLeftUnchangedIfTruncated) {
  const std::string whole = to_json(some_file());
  const std::string path = ::testing::TempDir() + "cut.kernels";
  // The last byte ends the line: without it the file is whole.
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_FALSE(testing::input_error([&] { parse_kernel_file(cut, "f"); }).empty()) << size;
  }
  for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 2}) {
    const std::string cut = whole.substr(0, size);
    std::ofstream(path, std::ios::binary) << cut;
    const std::string message = testing::input_error([&] { parse_kernel_file(read_text_file(path), path); });
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_EQ(read_text_file(path), cut);
  }
  std::filesystem::remove(path);
}

TEST(KernelFiles, RejectOtherFiles) {
  std::string json = to_json(some_file());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = json;
    const std::size_t place = changed.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    changed.replace(place, from.size(), to);
    return testing::input_error([&] { parse_kernel_file(changed, "f"); });
  };
  EXPECT_NE(with("\"version\": 1", "\"version\": 2").find("version"), std::string::npos);
  EXPECT_NE(with("\"oneDNN\"", "\"default\"").find("'default' twice"), std::string::npos);
  EXPECT_NE(with("\"dtype\": \"", "\"dtype\": \"x").find("dtype"), std::string::npos);
  EXPECT_NE(with("\"count\": [", "\"count\": [7,").find("variants, found"), std::string::npos);
  EXPECT_NE(with("\"mean_ns\": [", "\"mean_ns\": [-1,").find("mean_ns"), std::string::npos);
  EXPECT_NE(with("\"threads\": 1", "\"threads\": 0").find("threads"), std::string::npos);
  // A row that stands twice.
  const std::size_t begin = json.find("{\n      \"operation\"");
  const std::size_t end = json.find('}', begin) + 1;
  const std::string row = json.substr(begin, end - begin);
  json.insert(begin, row + ",\n    ");
  EXPECT_NE(testing::input_error([&] { parse_kernel_file(json, "f"); }).find("each key once"),
            std::string::npos);
}

TEST(KernelFiles, OfAnotherMachineNameTheDifferenceInOneLine) {
  const auto differs = [](const std::function<void(KernelFile&)>& change, const std::string& key,
                          const std::string& expected, const std::string& found) {
    KernelFile file = some_file();
    change(file);
    const std::string message =
        testing::input_error([&] { require_valid(file, "my.kernels", kHere, some_names()); });
    EXPECT_NE(message.find("my.kernels: key '" + key + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("expected '" + expected + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("found '" + found + "'"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  EXPECT_EQ(testing::input_error([] { require_valid(some_file(), "f", kHere, some_names()); }), "");
  differs([](KernelFile& f) { f.machine.device = "H100"; }, "device", "host", "H100");
  differs([](KernelFile& f) { f.machine.processors = 132; }, "processors", "2", "132");
  differs([](KernelFile& f) { f.machine.software = "oneDNN 3.0.0"; }, "software", "oneDNN 2.6.0",
          "oneDNN 3.0.0");
  differs([](KernelFile& f) { f.machine.cpu = "another"; }, "cpu", "a processor", "another");
  differs([](KernelFile& f) { f.machine.isa = "portable"; }, "isa", "portable, avx2", "portable");
  differs([](KernelFile& f) { f.machine.threads = 4; }, "threads", "1", "4");
  differs(
      [](KernelFile& f) {
        VariantNames names = some_names();
        names[static_cast<std::size_t>(KernelOperation::attention)].pop_back();
        f.table = KernelTable(names);
      },
      "variants.attention", "default, blocks of 64", "default");
}

}  // namespace
}  // namespace kernels_file_test
}  // namespace dflop
