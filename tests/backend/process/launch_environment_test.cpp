// Tests reading the environment variables that launchers set for their processes.
#include "backend/process/process_world.hpp"

#include <gtest/gtest.h>

#include <map>

#include "core/error.hpp"

namespace dflop {
namespace launch_environment_test {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

const Variables kTorchrun = {{"RANK", "9"},
                             {"WORLD_SIZE", "16"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node-0"},
                             {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

void expect_launch(const LaunchEnvironment& launch, const std::string& launcher, int port) {
  EXPECT_EQ(launch.launcher, launcher);
  EXPECT_EQ(launch.rank, 9);
  EXPECT_EQ(launch.ranks, 16);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.host, "node-0");
  EXPECT_EQ(launch.port, port);
}

TEST(LaunchEnvironment, IsReadFromEachLauncher) {
  expect_launch(read(kTorchrun), "torchrun", 29500);
  expect_launch(read({{"OMPI_COMM_WORLD_RANK", "9"},
                      {"OMPI_COMM_WORLD_SIZE", "16"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"MASTER_ADDR", "node-0"},
                      {"MASTER_PORT", "1"}}),
                "mpirun", 1);
  expect_launch(read({{"SLURM_PROCID", "9"},
                      {"SLURM_NTASKS", "16"},
                      {"SLURM_LOCALID", "1"},
                      {"MASTER_ADDR", "node-0"},
                      {"MASTER_PORT", "65535"}}),
                "srun", 65535);
}

TEST(LaunchEnvironment, TorchrunTakesPrecedenceOverItsLauncher) {
  const LaunchEnvironment launch = read(with(with(kTorchrun, "SLURM_PROCID", "0"), "SLURM_NTASKS", "2"));
  expect_launch(launch, "torchrun", 29500);
}

TEST(LaunchEnvironment, ThePortDiffersFromTorchrunsOwnStore) {
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True")).port, 29501);
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).port, 29500);
  EXPECT_EQ(read(with(kTorchrun, "DFLOP_PORT", "7000")).port, 7000);
  EXPECT_EQ(read(without(with(kTorchrun, "DFLOP_PORT", "7000"), "MASTER_PORT")).port, 7000);
}

TEST(LaunchEnvironment, TheTokenIsTheLaunchersRunIdOrDflopToken) {
  EXPECT_EQ(read(kTorchrun).token, "");
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_RUN_ID", "none")).token, "");  // torchrun's own default
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_RUN_ID", "run-7")).token, "run-7");
  EXPECT_EQ(read(with(kTorchrun, "SLURM_JOB_ID", "12")).token, "");  // set by another launcher
  const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "9"},
                            {"OMPI_COMM_WORLD_SIZE", "16"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "node-0"},
                            {"MASTER_PORT", "1"}};
  EXPECT_EQ(read(with(mpirun, "PMIX_NAMESPACE", "prterun-node-0-5@1")).token, "prterun-node-0-5@1");
  EXPECT_EQ(read(with(mpirun, "OMPI_MCA_ess_base_jobid", "81")).token, "81");
  const Variables srun = {{"SLURM_PROCID", "9"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_LOCALID", "1"},
                          {"MASTER_ADDR", "node-0"},
                          {"MASTER_PORT", "1"}};
  EXPECT_EQ(read(with(with(srun, "SLURM_JOB_ID", "12"), "SLURM_STEP_ID", "3")).token, "12.3");
  EXPECT_EQ(read(with(with(srun, "SLURM_JOB_ID", "12"), "DFLOP_TOKEN", "a secret")).token, "a secret");
  expect_launch(read(with(kTorchrun, "DFLOP_TOKEN", std::string(1024, 's'))), "torchrun", 29500);
  for (const std::string& wrong : {std::string(), std::string(1025, 's')}) {
    const std::string message = refusal(with(kTorchrun, "DFLOP_TOKEN", wrong));
    EXPECT_NE(message.find("DFLOP_TOKEN: expected 1 to 1024 bytes"), std::string::npos) << message;
  }
}

TEST(LaunchEnvironment, AMissingTokenIsNoted) {
  EXPECT_EQ(token_note(read(with(kTorchrun, "DFLOP_TOKEN", "a secret"))), "");
  const std::string note = token_note(read(kTorchrun));
  EXPECT_NE(note.find("anyone who reaches node-0:29500"), std::string::npos) << note;
  EXPECT_NE(note.find("DFLOP_TOKEN"), std::string::npos) << note;
}

TEST(LaunchEnvironment, EachMissingVariableIsNamed) {
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    for (const Variables& variables : {without(kTorchrun, name), with(kTorchrun, name, "")}) {
      const std::string message = refusal(variables);
      EXPECT_NE(message.find(std::string("environment variable ") + name + ":"), std::string::npos)
          << message;
      EXPECT_NE(message.find("torchrun"), std::string::npos) << message;
    }
  }
  EXPECT_NE(refusal({}).find("no environment variable says which rank this is"), std::string::npos);
  EXPECT_NE(refusal({{"SLURM_PROCID", "1"}}).find("SLURM_NTASKS"), std::string::npos);
}

TEST(LaunchEnvironment, NumbersAreWholeAndInRange) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"RANK", "16"},       {"RANK", "-1"},        {"RANK", "1.5"},      {"RANK", "nine"},
      {"RANK", ""},         {"RANK", "9 "},        {"WORLD_SIZE", "0"},  {"WORLD_SIZE", "99999999999"},
      {"LOCAL_RANK", "10"}, {"LOCAL_RANK", "0x1"}, {"MASTER_PORT", "0"}, {"MASTER_PORT", "65536"},
      {"DFLOP_PORT", "0"},  {"DFLOP_PORT", "http"}};
  for (const auto& [name, value] : wrong) {
    const std::string message = refusal(with(kTorchrun, name, value));
    EXPECT_NE(message.find(std::string("environment variable ") + name + ":"), std::string::npos) << message;
    EXPECT_NE(message.find(value), std::string::npos) << message;
  }
  EXPECT_NE(refusal(with(kTorchrun, "RANK", "16")).find("from 0 to 15, found '16'"), std::string::npos);
}

}  // namespace launch_environment_test
}  // namespace dflop
