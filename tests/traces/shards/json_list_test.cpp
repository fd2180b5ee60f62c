// Lists of samples in JSON are found in one pass, and their samples read in any order.
#include "traces/shards/json_list.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/input_error.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace json_list_test {

struct JsonLists : ::testing::Test {
  testing::ShardFolder folder;

  std::string write(const std::string& name, const std::string& text) const {
    std::string path = folder.path() + "/" + name;
    write_file_atomically(path, text);
    return path;
  }
  std::vector<std::string> samples_of(const std::string& text) const {
    const JsonList list(write("list.json", text));
    std::vector<std::string> all;
    for (std::size_t i = 0; i < list.size(); ++i) all.push_back(list.read(i));
    return all;
  }
  std::string refusal(const std::string& text) const {
    return testing::input_error([&] { samples_of(text); });
  }
};

using Texts = std::vector<std::string>;

TEST_F(JsonLists, HaveASampleALine) {
  EXPECT_EQ(samples_of("{\"a\": 1}\n\n  {\"b\": [2, 3]}\r\n \t\n{}"),
            (Texts{"{\"a\": 1}", "{\"b\": [2, 3]}", "{}"}));
  EXPECT_EQ(samples_of("\xEF\xBB\xBF{\"a\": 1}\n"), (Texts{"{\"a\": 1}"}));
  EXPECT_EQ(samples_of(""), Texts());
  EXPECT_EQ(samples_of(" \n\n"), Texts());
}

/// Brackets, commas and quotes in texts end nothing.
TEST_F(JsonLists, AreArrays) {
  EXPECT_EQ(samples_of("\xEF\xBB\xBF [ {\"a\": \"],[{\\\"\\\\\"} ,\n{\"b\": [[1], {}]},7\n]\n"),
            (Texts{"{\"a\": \"],[{\\\"\\\\\"}", "{\"b\": [[1], {}]}", "7"}));
  EXPECT_EQ(samples_of("[]"), Texts());
  EXPECT_EQ(samples_of("[ ] \n"), Texts());
}

/// Lines count from 1, elements from 0.
TEST_F(JsonLists, NumberTheirSamples) {
  const JsonList lines(write("a.jsonl", "\n{}\n{}\n"));
  EXPECT_EQ(lines.number(1), 3U);
  EXPECT_EQ(lines.place(1), lines.path() + ": line 3");
  const JsonList array(write("a.json", "[\n{},\n{}]"));
  EXPECT_EQ(array.number(1), 1U);
  EXPECT_EQ(array.place(1), array.path() + ": element 1 (line 3)");
  const JsonList line(write("b.json", "[{},{}]"));
  EXPECT_EQ(line.place(1), line.path() + ": element 1");
}

/// A sample may lie across the pieces of 1 MiB in which the file is read.
TEST_F(JsonLists, HaveSamplesAcrossPieces) {
  const std::string longer = "{\"a\": \"" + std::string((1 << 20) + 5, 'x') + "\\\"\"}";
  for (const std::size_t before : {0, 1, (1 << 20) - 12, (1 << 20) - 1}) {
    const std::string first = "{\"b\": \"" + std::string(before, 'y') + "\"}";
    EXPECT_EQ(samples_of(first + "\n" + longer + "\n{}"), (Texts{first, longer, "{}"}));
    EXPECT_EQ(samples_of("[" + first + "," + longer + ",{}]"), (Texts{first, longer, "{}"}));
  }
}

TEST_F(JsonLists, NameTheLineOfDamage) {
  const auto has = [&](const std::string& text, const std::string& expected) {
    const std::string said = refusal(text);
    EXPECT_NE(said.find(expected), std::string::npos) << text << ": " << said;
  };
  has("[{},\n{}",
      "list.json: element 1 (line 2): expected the ']' that ends the array, found the end of the file");
  has("[{},\n{\"a", "element 1 (line 2): expected the ']'");
  has("[{},\n,{}]", "element 1 (line 2): expected an element of the array, found ','");
  has("[{},\n]", "element 1 (line 2): expected an element of the array, found ']'");
  has("[{}]\n{}", "element 1 (line 2): expected nothing after the array");
  has("[{}}", "list.json: element 0: expected ']' at the end of the array, found '}'");
  has(gzip("{}"), "compressed with gzip");
}

/// A .json file may be a list, a list with one object a line, or a file of samples, which is no list.
TEST_F(JsonLists, AreRecognized) {
  const auto kind = [&](const std::string& name, const std::string& text) {
    return kind_of_shards(write(name, text));
  };
  EXPECT_EQ(kind("a.json", "\n [{}]"), ShardKind::list);
  EXPECT_EQ(kind("b.json", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n"), ShardKind::list);
  EXPECT_EQ(kind("c.json", "{\"schema\": \"dflop.samples\", \"samples\": [\n{\"id\": 1},\n{\"id\": 2}]}"),
            std::nullopt);
  EXPECT_EQ(kind("d.json", "{}"), std::nullopt);
  EXPECT_EQ(kind("e.json", ""), std::nullopt);
  EXPECT_EQ(kind("a.jsonl", ""), ShardKind::list);
  EXPECT_EQ(kind("a.csv", "[{}]"), std::nullopt);
  write("p-0.json", "[]");
  EXPECT_EQ(kind_of_shards(folder.path() + "/p-{0..1}.json"), ShardKind::list);
  EXPECT_EQ(kind_of_shards(folder.path() + "/none.json"), std::nullopt);
  const std::string lists = folder.path() + "/lists";
  std::filesystem::create_directory(lists);
  write("lists/a.parquet", "PAR1");
  const std::string said = testing::input_error([&] { kind_of_shards(lists); });
  EXPECT_NE(said.find("pandas.read_parquet('" + lists + "/a.parquet').to_json('" + lists + "/a.jsonl'"),
            std::string::npos)
      << said;
  EXPECT_EQ(testing::input_error([&] {
              kind_of_shards("x.parquet");
            }).find("x.parquet: Parquet files are not read"),
            0U);
  write("lists/b.jsonl", "");
  write("lists/a.jsonl", "");
  EXPECT_EQ(kind_of_shards(lists), ShardKind::list);
  EXPECT_EQ(expand_shards(lists), (Texts{lists + "/a.jsonl", lists + "/b.jsonl"}));
}

}  // namespace json_list_test
}  // namespace dflop
