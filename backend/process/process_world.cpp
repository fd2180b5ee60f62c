#include "backend/process/process_world.hpp"

#include <array>
#include <charconv>
#include <cstdlib>

#include "core/error.hpp"
#include "core/support/bytes.hpp"

namespace dflop {
namespace {

constexpr int kMaxRanks = 1 << 16;
constexpr int kMaxPort = 65535;
constexpr std::size_t kMaxTokenBytes = 1024;

struct Launcher {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  std::array<const char*, 2> run;  ///< variables with the launcher's name for the run; null: no further one
};

constexpr std::array<Launcher, 3> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", nullptr}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
}};

[[noreturn]] void fail(const std::string& variable, const std::string& problem) {
  throw Error(ErrorKind::usage, "environment variable " + variable + ": " + problem);
}

std::string read_text(const Environment& environment, const std::string& variable,
                      const std::string& launcher) {
  const std::optional<std::string> value = environment(variable);
  if (value && !value->empty()) return *value;
  fail(variable, "expected a value, because ranks started by " + launcher + " need it; found none");
}

int to_int(const std::string& variable, const std::string& text, int least, int most) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end || value < least || value > most) {
    fail(variable, "expected a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                       ", found '" + text + "'");
  }
  return value;
}

int read_port(const Environment& environment, const std::string& launcher) {
  if (const auto own = environment("DFLOP_PORT")) return to_int("DFLOP_PORT", *own, 1, kMaxPort);
  const bool taken = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const int most = taken ? kMaxPort - 1 : kMaxPort;
  const int port = to_int("MASTER_PORT", read_text(environment, "MASTER_PORT", launcher), 1, most);
  return taken ? port + 1 : port;
}

std::string read_token(const Environment& environment, const Launcher& launcher) {
  if (const auto own = environment("DFLOP_TOKEN")) {
    if (own->empty() || own->size() > kMaxTokenBytes) {
      fail("DFLOP_TOKEN", "expected 1 to " + std::to_string(kMaxTokenBytes) + " bytes, found " +
                              std::to_string(own->size()));
    }
    return *own;
  }
  std::string token;
  for (const char* variable : launcher.run) {
    const auto part = variable != nullptr ? environment(variable) : std::nullopt;
    if (part && !part->empty() && *part != "none") token += (token.empty() ? "" : ".") + *part;
  }
  return token.substr(0, kMaxTokenBytes);
}

LaunchEnvironment read(const Environment& environment, const Launcher& launcher) {
  const auto number = [&](const char* variable, int least, int most) {
    return to_int(variable, read_text(environment, variable, launcher.name), least, most);
  };
  LaunchEnvironment launch;
  launch.launcher = launcher.name;
  launch.ranks = number(launcher.ranks, 1, kMaxRanks);
  launch.rank = number(launcher.rank, 0, launch.ranks - 1);
  launch.local_rank = number(launcher.local_rank, 0, launch.rank);
  launch.host = read_text(environment, "MASTER_ADDR", launcher.name);
  launch.port = read_port(environment, launcher.name);
  launch.token = read_token(environment, launcher);
  return launch;
}

using Values = std::vector<std::pair<std::string, std::string>>;

std::string to_bytes(const Values& values) {
  ByteWriter writer;
  for (const auto& [name, value] : values) {
    writer.add(name);
    writer.add(value);
  }
  return writer.take();
}

Values read_values(const std::string& bytes) {
  Values values;
  for (ByteReader reader(bytes); !reader.at_end();) {
    std::string name = reader.get_text();
    values.emplace_back(std::move(name), reader.get_text());
  }
  return values;
}

/// Describes the first of a rank's values that differs from rank 0's; empty if all are equal.
std::string difference(const Values& first, const Values& other, std::size_t rank) {
  if (first.size() != other.size()) return "the processes run different versions of dflop";
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] == other[i]) continue;
    return "the ranks of a run need the same " + first[i].first + ": rank 0 has '" + first[i].second +
           "', rank " + std::to_string(rank) + " has '" + other[i].second + "'";
  }
  return "";
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

LaunchEnvironment read_launch_environment(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (environment(launcher.rank)) return read(environment, launcher);
  }
  throw Error(ErrorKind::usage,
              "no environment variable says which rank this is: expected RANK (torchrun), "
              "OMPI_COMM_WORLD_RANK (mpirun) or SLURM_PROCID (srun); start a run on several GPUs with one "
              "of these, one process per GPU");
}

std::string token_note(const LaunchEnvironment& launch) {
  if (!launch.token.empty()) return "";
  return "nothing distinguishes the ranks of this run from strangers: anyone who reaches " + launch.host +
         ":" + std::to_string(launch.port) +
         " can take the place of a rank; set DFLOP_TOKEN to the same secret for all processes";
}

void require_agreement(World& world, const Values& values) {
  const std::vector<std::string> all = world.gather(to_bytes(values));
  std::string problem;
  for (std::size_t r = 1; r < all.size() && problem.empty(); ++r) {
    problem = difference(values, read_values(all[r]), r);
  }
  problem = world.broadcast(problem);
  if (!problem.empty()) throw Error(ErrorKind::input, problem);
}

}  // namespace dflop
