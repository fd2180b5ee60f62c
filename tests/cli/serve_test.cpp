// `dflop serve` answers requests, whatever their content.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/support/random.hpp"
#include "tests/cli/run.hpp"

namespace dflop::testing {
namespace serve_test {

using nlohmann::json;

/// Sends the lines to a server and returns its answers by id, the greeting under -1.
std::map<int, json> answers(const std::vector<std::string>& lines) {
  const Sandbox sandbox;
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  write_all(sandbox.path("requests"), text);
  const RunResult result = sandbox.run("serve", "requests");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<int, json> by_id;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    const json answer = json::parse(line);
    if (answer.contains("protocol"))
      by_id[-1] = answer;
    else
      by_id[answer["id"].is_number() ? answer["id"].get<int>() : -2] = answer;
  }
  return by_id;
}

/// Returns a server's output for a line.
std::string output_of(const std::string& line) {
  const Sandbox sandbox;
  write_all(sandbox.path("requests"), line + '\n');
  return sandbox.run("serve", "requests").out;
}

std::string request(int id, const std::string& method, const json& params) {
  return json{{"id", id}, {"method", method}, {"params", params}}.dump();
}

TEST(Serve, ItemsGoIntoBins) {
  // 3 + 1 and 2 + 2: only these two bins have a largest load of 4.
  const auto all = answers({request(7, "partition", {{"llm", {3, 2, 2, 1}}, {"bins", 2}})});
  EXPECT_EQ(all.at(-1)["protocol"], 1);
  const json result = all.at(7)["result"];
  EXPECT_EQ(result["value"], 4.0);
  EXPECT_EQ(result["status"], "optimal");
  EXPECT_EQ(result["bins"][0], result["bins"][3]);
  EXPECT_EQ(result["bins"][1], result["bins"][2]);
}

TEST(Serve, ThePartitionEqualsTheCommands) {
  const Sandbox sandbox;
  Random random(5);
  std::string csv = "id,encoder_s,llm_s\n";
  json params = {{"bins", 8}, {"dp", 2}, {"encoder_dp", 2}, {"method", "local-search"}, {"seed", 3}};
  for (int i = 0; i < 64; ++i) {
    const double encoder = random.uniform();
    const double llm = random.uniform();
    csv += fmt::format("{},{},{}\n", i, encoder, llm);
    params["encoder"].push_back(encoder);
    params["llm"].push_back(llm);
  }
  write_all(sandbox.path("items.csv"), csv);
  const RunResult command = sandbox.run(
      "partition --costs items.csv --bins 8 --dp 2 --encoder-dp 2 --method local-search --seed 3 --format json");
  ASSERT_EQ(command.exit_code, 0) << command.err;
  EXPECT_EQ(answers({request(1, "partition", params)}).at(1)["result"]["bins"],
            json::parse(command.out)["assignment"]);
}

TEST(Serve, SessionsSchedulePushedBatchesInOrder) {
  for (const bool live : {false, true}) {
    std::vector<std::string> lines = {
        request(0, "open", {{"bins", 4}, {"dp", 2}, {"method", "local-search"}, {"live", live}})};
    for (int k = 0; k < 3; ++k) {
      json costs = json::array();
      for (int i = 0; i < 8 + k; ++i) costs.push_back(1 + i);
      lines.push_back(request(10 + k, "push", {{"session", 1}, {"batch", {{"llm", costs}}}}));
    }
    for (int k = 0; k < 3; ++k) lines.push_back(request(20 + k, "next", {{"session", 1}}));
    const auto all = answers(lines);
    EXPECT_EQ(all.at(0)["result"]["session"], 1);
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(all.at(10 + k)["result"]["iteration"], k);
      const json result = all.at(20 + k)["result"];
      EXPECT_EQ(result["iteration"], k);
      ASSERT_EQ(result["bins"].size(), 8u + static_cast<std::size_t>(k)) << result;
      EXPECT_EQ(std::set<int>(result["bins"].begin(), result["bins"].end()).size(), 4u) << "no bin is empty";
    }
  }
}

TEST(Serve, APlansIterationHasItsProgram) {
  const Sandbox sandbox;
  const RunResult plan = sandbox.run(
      "plan --model tiny-vlm --cluster a100-80g:1 --data traces/datasets/vision_mix.csv --gbs 8 --out plan.json");
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  ASSERT_EQ(sandbox
                .run("schedule --plan plan.json --data traces/datasets/vision_mix.csv --scheduler lpt "
                     "--iterations 1 --out schedule.json")
                .exit_code,
            0);
  ASSERT_EQ(
      sandbox.run("simulate --plan plan.json --schedule schedule.json --program-out program.json").exit_code,
      0);
  const json file = json::parse(read_all(sandbox.path("schedule.json")));
  json samples = json::array();
  for (const json& index : file["iterations"][0]["samples"])
    samples.push_back(file["samples"][index.get<std::size_t>()]);
  const json text = json::parse(read_all(sandbox.path("plan.json")));
  const auto all = answers({request(0, "open", {{"plan", text}, {"method", "lpt"}, {"program", true}}),
                            request(1, "push", {{"session", 1}, {"batch", {{"samples", samples}}}}),
                            request(2, "next", {{"session", 1}})});
  ASSERT_TRUE(all.at(2).contains("result")) << all.at(2) << all.at(0);
  const json program = json::parse(read_all(sandbox.path("program.json")))["iterations"][0];
  EXPECT_EQ(all.at(2)["result"]["program"], program);
  EXPECT_EQ(program["bins"], file["iterations"][0]["bins"]);
  const json opened = all.at(0)["result"]["program"];
  EXPECT_EQ(opened["stages"], program["stages"]);
  ASSERT_EQ(opened["groups"].size(), program["groups"].size());
  for (std::size_t g = 0; g < opened["groups"].size(); ++g)
    for (const char* key : {"rank", "ranks", "stage", "dp_rank"})
      EXPECT_EQ(opened["groups"][g][key], program["groups"][g][key]);
  for (const json& message : program["messages"])
    EXPECT_LE(message[5].get<int>() + message[6].get<int>(), message[7]);
}

TEST(Serve, APlanWithoutARequestedProgramMayHaveAHub) {
  // Programs of plans with a hub have no rows of messages, but their batches can still be scheduled.
  const Sandbox sandbox;
  json plan = json::parse(read_all(sandbox.path("traces/plans/llava-ov-llama3-8b-disaggregated.json")));
  plan["reshard"] = "hub";
  json samples = json::array();
  for (int i = 0; i < 64; ++i) {
    samples.push_back({{"id", std::to_string(i)},
                       {"modality", "text"},
                       {"encoder_sequences", json::array()},
                       {"encoder_output_tokens", 0},
                       {"llm_tokens", 10 + i}});
  }
  const auto all = answers({request(0, "open", {{"plan", plan}, {"method", "lpt"}}),
                            request(1, "push", {{"session", 1}, {"batch", {{"samples", samples}}}}),
                            request(2, "next", {{"session", 1}}),
                            request(3, "open", {{"plan", plan}, {"program", true}})});
  EXPECT_EQ(all.at(0)["result"], json({{"session", 1}})) << all.at(0);
  EXPECT_EQ(all.at(2)["result"]["bins"].size(), 64u) << all.at(2);
  EXPECT_NE(all.at(3)["error"]["message"].get<std::string>().find("found reshard 'hub'"), std::string::npos);
}

TEST(Serve, ABatchOfAPlanIsScheduledByItsNumber) {
  // The third batch of one session is the first batch of another session that is given its number.
  const Sandbox sandbox;
  const RunResult plan = sandbox.run(
      "plan --model tiny-vlm --cluster a100-80g:1 --data traces/datasets/vision_mix.csv --gbs 32 --out plan.json");
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const json text = json::parse(read_all(sandbox.path("plan.json")));
  json samples = json::array();
  for (int i = 0; i < 32; ++i) {
    samples.push_back({{"id", std::to_string(i)},
                       {"modality", "text"},
                       {"encoder_sequences", json::array()},
                       {"encoder_output_tokens", 0},
                       {"llm_tokens", 10 + i * i % 37}});
  }
  const std::string open = request(0, "open", {{"plan", text}, {"method", "random"}, {"program", true}});
  const auto push = [&](int id, const json& batch) {
    return request(id, "push", {{"session", 1}, {"batch", batch}});
  };
  const auto next = [](int id) { return request(id, "next", {{"session", 1}}); };
  const json plain = {{"samples", samples}};
  const auto whole =
      answers({open, push(1, plain), push(2, plain), push(3, plain), next(11), next(12), next(13)});
  const auto resumed = answers({open, push(1, {{"samples", samples}, {"stream", 2}}), next(11)});
  EXPECT_NE(whole.at(11)["result"]["bins"], whole.at(13)["result"]["bins"]);
  // 32 samples of 2^30 tokens have 32 x 2^60 attention pairs, more than a 64-bit sum holds.
  json huge = samples;
  for (json& sample : huge) sample["llm_tokens"] = std::int64_t{1} << 30;
  const json refused = answers({open, push(1, {{"samples", huge}})}).at(1);
  ASSERT_TRUE(refused.contains("error")) << refused;
  EXPECT_NE(refused["error"]["message"].get<std::string>().find("attention pairs in an iteration"),
            std::string::npos);
  EXPECT_EQ(resumed.at(11)["result"]["program"], whole.at(13)["result"]["program"]);
}

TEST(Serve, BadRequestsAreAnsweredAndServingContinues) {
  const json items = {{"llm", {1, 2}}, {"bins", 2}};
  const auto with = [&](const std::string& key, const json& value) {
    json params = items;
    params[key] = value;
    return params;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"id": 0, "method": "partition")", "request:1"},
      {R"({"id": 0, "method": "partition"})", "key 'params'"},
      {R"({"id": 0, "method": "split"})", "expected one of partition, open, push, next, close, ping"},
      {request(0, "sort", items), "found \"sort\""},
      {request(0, "partition", with("bins", 0)), "key 'params.bins'"},
      {request(0, "partition", with("bins", 3)), "3"},
      {request(0, "partition", with("llm", {1, -2})), "item 1"},
      {request(0, "partition", with("encoder", {1})), "expected 2 items, as in 'llm'"},
      {request(0, "partition", with("dp", 3)), "key 'params.dp'"},
      {request(0, "partition", with("method", "best")), "best"},
      {request(0, "partition", with("token_cap", 5)), "'tokens'"},
      {request(0, "partition", with("color", 5)), "color"},
      {request(0, "next", {{"session", 1}}), "an open session"},
      {request(0, "push", {{"session", 1}, {"batch", items}, {"ends_window", true}}), "ends_window"},
      {request(0, "open", {{"bins", 2}, {"depth", 0}}), "depth"},
      {request(0, "open", {{"plan", "none.json"}}), "none.json"},
  };
  for (const auto& [line, part] : cases) {
    SCOPED_TRACE(line);
    const auto all = answers({line, request(5, "ping", json::object())});
    const json& answer = all.count(0) > 0 ? all.at(0) : all.at(-2);
    ASSERT_TRUE(answer.contains("error")) << answer;
    EXPECT_NE(answer["error"]["message"].get<std::string>().find(part), std::string::npos) << answer;
    EXPECT_TRUE(all.at(5)["result"].empty());
  }
}

TEST(Serve, AnErrorHasTheIdOfItsRequest) {
  const std::vector<std::string> lines = {
      R"({"id": 31, "params": {}})",
      R"({"id": 29, "method": "ping"})",
      R"({"id": 30, "method": "ping", "params": {}, "x": 1})",
      R"({"id": 18446744073709551615, "method": 1, "params": {}})",
      R"({"id": -9223372036854775808, "method": "none", "params": {}})",
      R"({"method": "ping", "id": "a", "params": 1, "y": 2})",
  };
  const std::vector<std::string> ids = {"31",   "29", "30", "18446744073709551615", "-9223372036854775808",
                                        "\"a\""};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string out = output_of(lines[i]);
    EXPECT_NE(out.find("{\"id\":" + ids[i] + ",\"error\":"), std::string::npos) << lines[i] << '\n' << out;
  }
  // These ids have no exact value, so the answer cannot repeat them.
  for (const std::string id : {"100000000000000000000", "1.5", "1e3", "[1]", "{}", "true"}) {
    const std::string out = output_of("{\"id\": " + id + R"(, "method": "ping", "params": {}})");
    EXPECT_NE(
        out.find(R"({"id":null,"error":{"kind":"input","message":"request: key 'id': expected a string or)"),
        std::string::npos)
        << out;
  }
}

TEST(Serve, ANextWithoutAPushAndAfterTheCloseIsAnError) {
  const std::string open = request(0, "open", {{"bins", 1}});
  const std::string next = request(1, "next", {{"session", 1}});
  const std::string push = request(2, "push", {{"session", 1}, {"batch", {{"llm", {2, 1}}}}});
  const std::string later = request(3, "next", {{"session", 1}});
  const auto early = answers({open, next, push, later});
  EXPECT_TRUE(early.at(1).contains("error")) << "nothing was pushed for it";
  EXPECT_EQ(early.at(3)["result"]["bins"], json({0, 0}));
  const auto closed = answers({open, push, request(4, "close", {{"session", 1}}), later});
  EXPECT_TRUE(closed.at(3).contains("error")) << closed.at(3);
}

}  // namespace serve_test
}  // namespace dflop::testing
