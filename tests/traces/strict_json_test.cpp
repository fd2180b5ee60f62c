#include "traces/text/strict_json.hpp"

#include <cmath>
#include <cstring>

#include "core/plan.hpp"
#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/text/json_writer.hpp"

namespace dflop {
namespace strict_json_test {

/// Expects that `use` of the parsed root is rejected.
template <typename Use>
void expect_use_refused(const std::string& json, Use use, const std::string& context,
                        std::initializer_list<std::string_view> words) {
  expect_refused(
      [&] {
        const JsonDocument document(json, "f.json");
        use(document.root());
      },
      context, words);
}

TEST(StrictJson, SyntaxErrorsNameLineAndColumn) {
  // Line 2 is `  "b" 1`: the `1` in column 7 stands in place of a colon.
  expect_refused([] { JsonDocument("{\n  \"b\" 1}", "f.json"); }, "f.json:2:7", {"expected JSON"});
  // The text ends after 4 characters, so the error points at the missing fifth.
  expect_refused([] { JsonDocument("[1, ", "f.json"); }, "f.json:1:5", {"unexpected end of input"});
  expect_refused([] { JsonDocument("", "f.json"); }, "f.json:1:1", {"unexpected end of input"});
  expect_refused([] { JsonDocument("NaN", "f.json"); }, "f.json:1:1", {"invalid literal"});
  expect_refused([] { JsonDocument("{} {}", "f.json"); }, "f.json:1:4", {"expected end of input"});
}

TEST(StrictJson, NumbersBeyondADoubleNameTheirKey) {
  const auto refused = [](const std::string& text, const std::string& place, std::string_view found) {
    const Error error = error_of([&] { JsonDocument(text, "f.json"); });
    EXPECT_EQ(error.context(), place);
    EXPECT_EQ(error.message(), "expected a number within the range of a double, found " + std::string(found));
  };
  refused("[1e999]", "f.json", "1e999");
  refused("{\"a\": {\"b\": [1, -2e400]}}", "f.json: key 'a.b'", "-2e400");
  refused("{\"a\": {\"b\": 1}, \"c\": 1e309}", "f.json: key 'c'", "1e309");
  refused(std::string(400, '1'), "f.json", std::string(60, '1') + "...");
}

TEST(StrictJson, EveryTruncationIsRejected) {
  const std::string text = R"({"a": {"b": [1, 2.5, true, null, "xé"]}, "c": "d"})";
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(JsonDocument(text.substr(0, length), "f.json"), Error) << length;
  }
  EXPECT_NO_THROW(JsonDocument(text, "f.json"));
}

TEST(StrictJson, DeepNestingIsRejectedAndNotRecursedInto) {
  const auto refused = [](const std::string& text, const std::string& place) {
    expect_refused([&] { JsonDocument(text, "f.json"); }, place, {"at most 64 nested lists and objects"});
  };
  refused(std::string(1'000'000, '['), "f.json");
  refused("{\"a\": " + std::string(64, '[') + std::string(64, ']') + "}", "f.json: key 'a'");
  const JsonDocument closed(std::string(64, '[') + std::string(64, ']'), "f.json");
  EXPECT_EQ(closed.root().elements().size(), 1U);
}

TEST(StrictJson, DuplicateKeysAreRejectedWithTheirPath) {
  expect_refused([] { JsonDocument(R"({"llm": {"tp": 1, "tp": 2}})", "f.json"); }, "f.json: key 'llm.tp'",
                 {"once"});
  // The same key in two objects is no duplicate.
  EXPECT_NO_THROW(JsonDocument(R"({"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 1}]})", "f.json"));
}

TEST(StrictJson, ObjectsHaveExactlyTheKnownKeys) {
  const auto use = [](const JsonValue& root) { root.at("llm").require_keys({"tp", "pp"}, {"note"}); };
  expect_use_refused(R"({"llm": {"tp": 1}})", use, "f.json: key 'llm.pp'", {"expected this key, found none"});
  expect_use_refused(R"({"llm": {"tp": 1, "pp": 1, "ep": 1}})", use, "f.json: key 'llm.ep'",
                     {"unknown key", "tp, pp, note"});
  expect_use_refused(R"({"llm": 3})", use, "f.json: key 'llm'", {"expected an object", "found 3"});
  const JsonDocument good(R"({"llm": {"tp": 1, "pp": 1, "note": ""}})", "f.json");
  EXPECT_NO_THROW(use(good.root()));
}

TEST(StrictJson, GettersRejectOtherTypesAndRanges) {
  const auto refused = [](const std::string& value, auto get, std::initializer_list<std::string_view> words) {
    expect_use_refused(
        "{\"k\": [0, " + value + "]}", [&](const JsonValue& root) { get(root.at("k").elements()[1]); },
        "f.json: key 'k[1]'", words);
  };
  const auto integer = [](const JsonValue& v) { v.integer(1, 8); };
  refused("9", integer, {"a whole number from 1 to 8", "found 9"});
  refused("0", integer, {"found 0"});
  refused("2.5", integer, {"found 2.5"});
  refused("1e1", integer, {"from 1 to 8", "found 10.0"});
  refused("1e300", [](const JsonValue& v) { v.integer<std::int64_t>(0); }, {"at least 0"});
  refused("9007199254740994.0", [](const JsonValue& v) { v.integer<std::int64_t>(0); }, {"at least 0"});
  refused("\"2\"", integer, {"found \"2\""});
  refused("18446744073709551615", [](const JsonValue& v) { v.integer<std::int64_t>(0); }, {"at least 0"});
  refused("-1", [](const JsonValue& v) { v.unsigned_integer(); }, {"at least 0", "found -1"});
  refused("-0.5", [](const JsonValue& v) { v.non_negative(); }, {"at least 0", "found -0.5"});
  refused("1.01", [](const JsonValue& v) { v.number_in(0.5, 1); }, {"a number from 0.5 to 1", "found 1.01"});
  refused("null", [](const JsonValue& v) { v.number(); }, {"a number", "found null"});
  refused("[1,2]", [](const JsonValue& v) { v.string(); }, {"a string", "found an array of 2"});
  refused("{}", [](const JsonValue& v) { v.boolean(); }, {"true or false", "found an object"});
  refused("1", [](const JsonValue& v) { v.elements(); }, {"an array", "found 1"});
  refused("\"zero\"",
          [](const JsonValue& v) {
            v.choice({Recomputation::none, Recomputation::full});
          },
          {"one of none, full", "found \"zero\""});
}

// 2^53 is the largest bound below which every whole number is a distinct double.
TEST(StrictJson, WholeNumbersMayHaveAPointOrAnExponent) {
  const JsonDocument file("[1e6, 1000000.0, -0.0, 9007199254740992.0, 1e3]", "f.json");
  EXPECT_EQ(file.root().integers(0, std::int64_t{1} << 53),
            (std::vector<std::int64_t>{1'000'000, 1'000'000, 0, std::int64_t{1} << 53, 1000}));
  EXPECT_EQ(file.root().elements()[0].integer(0), 1'000'000);
  EXPECT_EQ(file.root().elements()[4].unsigned_integer(), 1000u);
}

TEST(StrictJson, ColumnsNameTheElementThatDoesNotFit) {
  const auto column = [](const JsonValue& root) { root.integers(-1, 10); };
  expect_use_refused("[-1, 10, 11]", column, "f.json: key '[2]'", {"from -1 to 10", "found 11"});
  expect_use_refused("[-2]", column, "f.json: key '[0]'", {"found -2"});
  expect_use_refused("[18446744073709551615]", column, "f.json: key '[0]'", {"found 18446744073709551615"});
  expect_use_refused("[1.5]", column, "f.json: key '[0]'", {"found 1.5"});
  const JsonDocument document("[-1, 0, 10]", "f.json");
  EXPECT_EQ(document.root().integers(-1, 10), (std::vector<std::int64_t>{-1, 0, 10}));
}

TEST(StrictJson, SchemaAndVersionAreCheckedFirst) {
  const auto refused = [](const std::string& json, const std::string& context,
                          std::initializer_list<std::string_view> words) {
    expect_refused([&] { JsonDocument(json, "f.json").root("dflop.plan", 1); }, context, words);
  };
  refused(R"({"schema": "dflop.model", "version": 1})", "f.json: key 'schema'",
          {"\"dflop.plan\"", "\"dflop.model\""});
  refused(R"({"schema": "dflop.plan", "version": 2})", "f.json: key 'version'",
          {"written by a newer version: this one reads version 1, found 2"});
  refused(R"({"schema": "dflop.plan", "version": 0})", "f.json: key 'version'", {"found 0"});
  refused(R"({"version": 1})", "f.json: key 'schema'", {"found none"});
  refused("[]", "f.json", {"an object", "found an array of 0"});
}

TEST(JsonWriter, NumbersReadBackAsTheSame) {
  // Random bit patterns reach every exponent. Every finite value must come back exactly.
  Random random(1);
  std::vector<double> values = {0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1.0 / 3};
  while (values.size() < 2000) {
    const std::uint64_t bits = random.bits();
    double value = 0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  std::string text;
  append_json_row(text, values);
  const JsonDocument document(text, "f.json");
  EXPECT_EQ(document.root().numbers(), values);
  EXPECT_EQ(error_of([&] { append_json_number(text, std::nan("")); }).kind(), ErrorKind::internal);
}

// 160,000 samples took 8 s because the whole list was scanned at the end of each object. A million would take
// minutes.
TEST(StrictJson, LongListsAreReadInLinearTime) {
  constexpr std::size_t kObjects = 1'000'000;
  std::string text = "[";
  for (std::size_t i = 0; i < kObjects; ++i) text += i == 0 ? "{}" : ",{}";
  const JsonDocument document(text + "]", "f.json");
  EXPECT_EQ(document.root().elements().size(), kObjects);
}

TEST(JsonWriter, StringsAreEscaped) {
  std::string text;
  append_json_string(text, "a\"b\\c\n\x01 \xff");
  // \xff is invalid UTF-8; U+FFFD, which is EF BF BD, replaces it.
  EXPECT_EQ(text, "\"a\\\"b\\\\c\\n\\u0001 \xEF\xBF\xBD\"");
}

TEST(JsonWriter, IndentsObjectsAndKeepsRowsOnOneLine) {
  JsonWriter writer;
  writer.field("a", true);
  writer.begin_object("b");
  writer.row("c", std::vector<int>{1, -2});
  writer.end_object();
  writer.begin_array("d");
  writer.end_array();
  EXPECT_EQ(writer.finish(), "{\n  \"a\": true,\n  \"b\": {\n    \"c\": [1,-2]\n  },\n  \"d\": []\n}\n");
}

}  // namespace strict_json_test
}  // namespace dflop
