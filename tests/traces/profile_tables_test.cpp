// Profile tables: written tables read back unchanged, and errors name their place.
#include "traces/files/specs.hpp"

#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/profile_fixtures.hpp"

namespace dflop {
namespace profile_tables_test {

TEST(ProfileTables, ReadBackAsTheSame) {
  ProfileTables profile = fixtures::known_profile();
  for (const TpMode mode : {TpMode{2, false}, TpMode{2, true}}) {
    profile.tp.push_back(profile.tp.front());
    profile.tp.back().mode = mode;
  }
  profile.tp.back().activation.head = 25;
  profile.tp.back().of(ProfileUnit::head)[1].forward_s = 1.0 / 3;
  EXPECT_EQ(parse_profile_tables(to_json(profile), "p.json"), profile);
}

/// The second encoder's tables cover what the first tables cover.
TEST(ProfileTables, OfTwoEncodersBelongTogether) {
  ProfileTables profile = fixtures::known_hearing_profile();
  for (std::vector<TpProfile>* tables : {&profile.tp, &profile.second_tp}) {
    tables->push_back(tables->front());
    tables->back().mode.tp = 2;
  }
  EXPECT_EQ(parse_profile_tables(to_json(profile), "p.json"), profile);
  const auto refuses = [](const ProfileTables& tables, std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_profile_tables(to_json(tables), "p.json"); }, "p.json: key 'second_tables'",
                   words);
  };
  ProfileTables fewer = profile;
  fewer.second_tp.pop_back();
  refuses(fewer, {"expected tables of tp 1, tp 2", "'tables'", "found tp 1"});
  fewer.second_tp.clear();  // without the key
  refuses(fewer, {"expected this key, found none"});
  ProfileTables more = profile;
  more.tp.pop_back();
  refuses(more, {"expected tables of tp 1,", "found tp 1, tp 2"});
  const std::string text = to_json(fixtures::known_profile());
  const std::string tables = "\"tables\": [";
  expect_refused(
      [&] { parse_profile_tables(replaced(text, tables, "\"second_tables\": [], " + tables), "p.json"); },
      "p.json: key 'second_tables'", {"only for a model with a key 'second'"});
}

/// Profiles without the later keys still suit older files and programs that do not know these keys.
TEST(ProfileTables, LaterKeysAreOptional) {
  ProfileTables profile = fixtures::known_profile();
  EXPECT_EQ(to_json(profile).find("busy_ranks"), std::string::npos);
  EXPECT_EQ(to_json(profile).find("recompute_s"), std::string::npos);
  EXPECT_EQ(to_json(profile).find("row_alignment"), std::string::npos);
  profile.settings.busy_ranks = 3;
  profile.row_alignment = 8;
  for (ProfilePoint& p : profile.tp[0].of(ProfileUnit::llm_linear)) p.recompute_s = 0.25 * p.forward_s;
  const std::string text = to_json(profile);
  EXPECT_EQ(parse_profile_tables(text, "p.json"), profile);
  expect_refused(
      [&] { parse_profile_tables(replaced(text, "\"busy_ranks\": 3", "\"busy_ranks\": 0"), "p.json"); },
      "p.json: key 'settings.busy_ranks'", {"0"});
  expect_refused(
      [&] { parse_profile_tables(replaced(text, "\"row_alignment\": 8", "\"row_alignment\": 0"), "p.json"); },
      "p.json: key 'row_alignment'", {"0"});
  expect_refused(
      [&] { parse_profile_tables(replaced(text, "\"recompute_s\": [", "\"recompute_s\": [1, "), "p.json"); },
      "p.json: key 'tables[0].units.llm_linear.recompute_s'", {"3 numbers"});
}

/// Attention may be measured at several increasing numbers of tokens for one length.
TEST(ProfileTables, KeepTheExtraValuesOfAGpu) {
  ProfileTables profile = fixtures::known_profile();
  for (const char* key : {"encoder_windows", "norm", "host_s"})
    EXPECT_EQ(to_json(profile).find(key), std::string::npos) << key;
  profile.windows = AttentionWindows{1, 64};
  profile.norm = {0.5e-3, 0.25e-6};
  for (ProfilePoint& p : profile.tp[0].of(ProfileUnit::patches)) p.host_s = 0.5 * p.forward_s;
  UnitPoints& attention = profile.tp[0].of(ProfileUnit::llm_attention);
  attention.insert(attention.begin() + 1, {8192, 16, 0.5, 0.25, 0});
  const std::string text = to_json(profile);
  EXPECT_EQ(parse_profile_tables(text, "p.json"), profile);
  expect_refused([&] { parse_profile_tables(replaced(text, "[256,8192,", "[256,256,"), "p.json"); },
                 "p.json: key 'tables[0].units.llm_attention.lengths[1]'", {"16"});
  expect_refused([&] { parse_profile_tables(replaced(text, "[256,8192,", "[15,8192,"), "p.json"); },
                 "p.json: key 'tables[0].units.llm_attention.tokens[0]'", {"at least the 16 tokens", "15"});
  profile.tp[0].of(ProfileUnit::patches)[1].host_s = 1;
  expect_refused([&] { parse_profile_tables(to_json(profile), "p.json"); },
                 "p.json: key 'tables[0].units.patches.host_s[1]'", {"at most the forward", "1"});
  expect_refused([&] { parse_profile_tables(replaced(text, "\"layers\": 1,", "\"layers\": 3,"), "p.json"); },
                 "p.json: key 'encoder_windows.layers'", {"3"});
}

/// Before version 3, nearly all of the forward time of a GPU's patches was the host's conversion of pixels.
TEST(ProfileTables, NoteTheHostsPartInOlderFiles) {
  ProfileTables profile = fixtures::known_profile();
  profile.software = "CUDA driver 13.0, runtime 13.0";
  const std::string text = replaced(to_json(profile), "\"version\": 3", "\"version\": 2");
  for (ProfilePoint& p : profile.tp[0].of(ProfileUnit::patches)) p.host_s = p.forward_s;
  EXPECT_EQ(parse_profile_tables(text, "p.json"), profile);
}

ProfileTables profile_of_parts() {
  ProfileTables profile = fixtures::known_profile();
  profile.quanta = 4;
  profile.tp.front().quanta = 4;
  TpProfile part = profile.tp.front();
  part.quanta = 3;
  part.part.emplace();
  part.part->optimizer = {0.5, 0.25e-3};
  part.part->optimizer_beside = 1.25;
  part.part->beside[1] = {1.5, 0.75, 2};
  profile.tp.insert(profile.tp.begin(), part);
  return profile;
}

/// Tables for a whole device look as they did before there were tables for parts of it.
TEST(ProfileTables, PartsReadBackAsTheSame) {
  const ProfileTables profile = profile_of_parts();
  EXPECT_EQ(parse_profile_tables(to_json(profile), "p.json"), profile);
  EXPECT_EQ(to_json(fixtures::known_profile()).find("quanta"), std::string::npos);
  EXPECT_EQ(parse_profile_tables(to_json(fixtures::known_profile()), "p.json").quanta, 1);
}

TEST(ProfileTables, RejectsWrongParts) {
  const std::string text = to_json(profile_of_parts());
  const auto refuses = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_profile_tables(replaced(text, from, to), "p.json"); },
                   "p.json: key '" + key + "'", words);
  };
  refuses("\"quanta\": 3", "\"quanta\": 5", "tables[0].quanta", {"4", "5"});
  refuses("\"quanta\": 3", "\"quanta\": 4", "tables[0].optimizer", {"device parts"});
  refuses("\"quanta\": 4", "\"quanta\": 0", "quanta", {"0"});
  refuses("\"beside_neighbour\": {", "\"beside\": {", "tables[0].beside", {});
  refuses("[1.5,0.75,2]", "[1.5,0.75]", "tables[0].beside_neighbour.encoder_linear", {"3 numbers"});
  refuses("[1.5,0.75,2]", "[1.5,-0.75,2]", "tables[0].beside_neighbour.encoder_linear[1]", {"-0.75"});
  ProfileTables falling = profile_of_parts();
  std::swap(falling.tp[0], falling.tp[1]);
  expect_refused([&] { parse_profile_tables(to_json(falling), "p.json"); }, "p.json: key 'tables[1].tp'",
                 {"tables in increasing order, after tp 1"});
}

void refused(std::string_view from, std::string_view to, const std::string& key,
             std::initializer_list<std::string_view> words) {
  const std::string text = replaced(to_json(fixtures::known_profile()), from, to);
  expect_refused([&] { parse_profile_tables(text, "p.json"); }, "p.json: key '" + key + "'", words);
}

/// The host has no software entry, and then no key either.
TEST(ProfileTables, SoftwareIsWrittenIfKnown) {
  ProfileTables profile = fixtures::known_profile();
  EXPECT_EQ(to_json(profile).find("software"), std::string::npos);
  profile.software = "CUDA driver 13.0, runtime 13.0";
  EXPECT_EQ(parse_profile_tables(to_json(profile), "p.json"), profile);
}

TEST(ProfileTables, RejectsWrongValues) {
  const std::string unit = "tables[0].units.patches";
  // For patches k = 1: 16, 64 and 256 microseconds forward.
  const std::string_view forward = "\"forward_s\": [1.6e-05,";
  const auto in_patches = [&](std::string_view to, const std::string& key,
                              std::initializer_list<std::string_view> words) {
    refused(forward, to, key, words);
  };
  in_patches("\"forward_s\": [-1.6e-05,", unit + ".forward_s[0]", {"-1.6e-05"});
  in_patches("\"forward_s\": [null,", unit + ".forward_s[0]", {"null"});
  in_patches("\"forward_s\": [", unit + ".forward_s", {"3 numbers"});
  in_patches("\"color\": 1, \"forward_s\": [1.6e-05,", unit + ".color", {});
  refused("\"device\": \"host\",", "", "device", {});
  refused("\"message\": {", "\"speed\": 1, \"message\": {", "speed", {});
  refused("\"ranks\": 4", "\"ranks\": 2", "all_reduce[1].ranks", {"3", "2"});
  refused("\"budget_s\": 2.5", "\"budget_s\": -2.5", "settings.budget_s", {"-2.5"});
  refused("\"tp\": 1", "\"tp\": 0", "tables[0].tp", {"0"});
  refused("\"version\": 3", "\"version\": 4", "version", {"4"});
}

/// In version 1 the activations stand next to the tables and apply to all of them.
TEST(ProfileTables, ReadVersion1) {
  ProfileTables profile = fixtures::known_profile();
  profile.tp[0].forward_buffers = profile.tp[0].backward_buffers = {};
  std::string text = replaced(to_json(profile), "\"version\": 3", "\"version\": 1");
  const auto cut = [&](const std::string& key) {
    const std::size_t begin = text.find("\"" + key + "\"");
    const std::size_t end = text.find("},", begin) + 2;
    const std::string object = text.substr(begin, end - begin);
    text.erase(begin, end - begin);
    return object;
  };
  const std::string activation = cut("activation_bytes_per_token");
  cut("forward_buffer_bytes_per_token");
  cut("backward_buffer_bytes_per_token");
  EXPECT_EQ(parse_profile_tables(replaced(text, "\"message\": {", activation + "\"message\": {"), "p.json"),
            profile);
  expect_refused([&] { parse_profile_tables(text, "p.json"); }, "p.json: key 'activation_bytes_per_token'",
                 {});
}

TEST(ProfileTables, ModesRise) {
  refused("\"tp\": 1", "\"tp\": 1, \"sequence_parallel\": true", "tables[0].tp", {"at least 2", "found 1"});
  ProfileTables profile = fixtures::known_profile();
  profile.tp.front().mode = {2, true};
  for (const TpMode mode : {TpMode{2, true}, TpMode{2, false}, TpMode{1, false}}) {
    profile.tp.push_back(profile.tp.front());
    profile.tp.back().mode = mode;
    expect_refused([&] { parse_profile_tables(to_json(profile), "p.json"); }, "p.json: key 'tables[1].tp'",
                   {"tp 2 with sequence parallelism"});
    profile.tp.pop_back();
  }
}

TEST(ProfileTables, RejectsPointsThatDoNotRise) {
  ProfileTables profile = fixtures::known_profile();
  const auto expect = [&](const std::string& key) {
    expect_refused([&] { parse_profile_tables(to_json(profile), "p.json"); }, "p.json: key '" + key + "'",
                   {"above the previous one, 16", "found 16"});
  };
  profile.tp[0].of(ProfileUnit::head)[1].tokens = 16;
  expect("tables[0].units.head.tokens[1]");
  profile = fixtures::known_profile();
  profile.tp[0].of(ProfileUnit::llm_attention)[1].length = 16;
  expect("tables[0].units.llm_attention.lengths[1]");
}

/// A model without an encoder has no encoder and no connector in its file, and no tables for them.
TEST(ProfileTables, OfTextModelsHaveNoEncoder) {
  ProfileTables profile = fixtures::known_text_profile();
  profile.model.llm.tied_embeddings = true;
  const std::string text = to_json(profile);
  EXPECT_EQ(text.find("\"encoder\""), std::string::npos);
  EXPECT_EQ(text.find("\"patches\": {"), std::string::npos);
  EXPECT_EQ(parse_profile_tables(text, "p.json"), profile);
  const std::string units = "\"units\": {";
  expect_refused([&] { parse_profile_tables(replaced(text, units, units + "\"connector\": {},"), "p.json"); },
                 "p.json: key 'tables[0].units.connector'", {"unknown key"});
  const std::string llm = "\"llm\": {";
  expect_refused([&] { parse_profile_tables(replaced(text, llm, "\"connector\": {}," + llm), "p.json"); },
                 "p.json: key 'model.encoder'", {"expected this key"});
}

TEST(ProfileTables, ATableHasPoints) {
  ProfileTables profile = fixtures::known_profile();
  profile.tp[0].of(ProfileUnit::connector).clear();
  expect_refused([&] { parse_profile_tables(to_json(profile), "p.json"); },
                 "p.json: key 'tables[0].units.connector.tokens'", {"at least one"});
  profile.tp.clear();
  expect_refused([&] { parse_profile_tables(to_json(profile), "p.json"); }, "p.json: key 'tables'",
                 {"at least one"});
}

}  // namespace profile_tables_test
}  // namespace dflop
