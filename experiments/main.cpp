#include "experiments/command.hpp"

int main(int argc, char** argv) {
  return dflop::run_dflop(std::vector<std::string>(argv + 1, argv + argc));
}
