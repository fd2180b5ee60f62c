#include "experiments/cli/command.hpp"
#include "traces/text/text_file.hpp"

int main(int argc, char** argv) {
  dflop::remove_temporaries_on_signals();
  return dflop::run_dflop(std::vector<std::string>(argv + 1, argv + argc));
}
