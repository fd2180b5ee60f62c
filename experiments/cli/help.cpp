#include "experiments/cli/help.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "experiments/cli/table.hpp"

namespace dflop {
namespace {

constexpr int kWidth = 100;
constexpr int kMinWidth = 60;
constexpr std::size_t kManualWidth = 110;
/// A command with more options hides those that are neither required nor common.
constexpr std::size_t kMaxShortOptions = 14;

constexpr std::string_view kTitle =
    "dflop: finds, explains and runs the fastest way to train multimodal LLMs";
constexpr std::string_view kExitCodes =
    "0 success, 1 failure, 2 bad usage or input, or output that cannot be written, 3 infeasible (no plan "
    "fits, a run does not finish, or a finding of --fail-on), 4 no device";

/// A Noun begins the names of several commands, and has one line in the overview.
struct Noun {
  std::string_view name;
  std::string_view summary;
};
constexpr Noun kNouns[] = {
    {"check", "compare predictions with measurements, or a schedule file with its plan"},
    {"kernels", "measure kernel variants into a kernel file"},
    {"sweep", "run a grid of what-ifs, and print its results"},
};

/// Returns the line of a command's noun in the overview.
std::string summary_of_noun(const Command& command) {
  const auto noun = std::ranges::find(kNouns, command.noun(), &Noun::name);
  return noun == std::end(kNouns) ? command.summary : std::string(noun->summary);
}

// Descriptions are paragraphs and lists.

/// A Block is a paragraph, an item of a list, or a blank line.
struct Block {
  enum class Kind : std::uint8_t { blank, paragraph, item };

  Kind kind = Kind::blank;
  std::string head = {};  ///< of an item: "-", or the word that the text explains
  std::string text = {};
};

/// Reads a description: lines without indentation make a paragraph, lines indented by two spaces begin an
/// item, and lines indented further continue it. Two spaces separate an item's head from its text.
std::vector<Block> blocks_of(const std::string& description) {
  std::vector<Block> blocks;
  const auto append = [](std::string& text, std::string_view more) {
    text += (text.empty() ? "" : " ") + std::string(more);
  };
  for (const std::string_view line : split(description, '\n')) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view words = line.substr(indent);
    const Block::Kind last = blocks.empty() ? Block::Kind::blank : blocks.back().kind;
    if (words.empty()) {
      blocks.emplace_back();
    } else if (indent == 0) {
      if (last != Block::Kind::paragraph) blocks.push_back({Block::Kind::paragraph});
      append(blocks.back().text, words);
    } else if (indent > 2 && last == Block::Kind::item) {
      append(blocks.back().text, words);
    } else if (words.starts_with("- ")) {
      blocks.push_back({Block::Kind::item, "-", std::string(words.substr(2))});
    } else {
      const std::size_t end = std::min(words.find("  "), words.size());
      const std::size_t text = std::min(words.find_first_not_of(' ', end), words.size());
      blocks.push_back(
          {Block::Kind::item, std::string(words.substr(0, end)), std::string(words.substr(text))});
    }
  }
  return blocks;
}

constexpr std::size_t kGap = 2;

/// Returns the head, and the text in lines that all begin at `column`, at least `gap` blanks after the head;
/// a long head has a line of its own.
std::string hanging(const std::string& head, const std::string& text, std::size_t column, std::size_t width,
                    std::size_t gap = kGap) {
  std::string printed = head;
  std::size_t at = head.size();
  if (text.empty()) return printed + '\n';
  if (at + gap > column) {
    printed += '\n';
    at = 0;
  }
  for (const std::string& line : lines_of(text, width - column)) {
    printed += std::string(column - at, ' ') + line + '\n';
    at = 0;
  }
  return printed;
}

/// Returns a description for terminals.
std::string plain_description(const std::string& description, std::size_t width) {
  constexpr std::size_t kMaxHead = 22;
  const std::vector<Block> blocks = blocks_of(description);
  std::string printed;
  for (std::size_t i = 0; i < blocks.size();) {
    const Block& block = blocks[i];
    if (block.kind != Block::Kind::item) {
      for (const std::string& line : lines_of(block.text, width)) printed += line + '\n';
      ++i;
      continue;
    }
    std::size_t end = i;
    std::size_t longest = 0;
    for (; end < blocks.size() && blocks[end].kind == Block::Kind::item; ++end) {
      if (blocks[end].head.size() <= kMaxHead) longest = std::max(longest, blocks[end].head.size());
    }
    for (; i < end; ++i) {
      const std::size_t gap = blocks[i].head == "-" ? 1 : kGap;
      printed += hanging("  " + blocks[i].head, blocks[i].text, 2 + longest + gap, width, gap);
    }
    const bool has_more = i < blocks.size() && blocks[i].kind == Block::Kind::paragraph;
    if (has_more) printed += '\n';
  }
  return printed;
}

/// Returns words in lines for a Markdown page, which must not take them for its own signs.
std::string markdown_lines(const std::string& text) {
  std::string escaped;
  bool in_code = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '`') in_code = !in_code;
    const bool is_bold = text.substr(i, 2) == "**" || (i > 0 && text.substr(i - 1, 2) == "**");
    if (text[i] == '*' && !in_code && !is_bold) escaped += '\\';
    escaped += text[i];
  }
  std::string printed;
  for (const std::string& line : lines_of(escaped, kManualWidth)) {
    const bool begins_list = line.starts_with("+ ") || line.starts_with("- ");
    printed += (begins_list ? "\\" : "") + line + '\n';
  }
  return printed;
}

std::string markdown_description(const std::string& description) {
  std::string printed;
  Block::Kind last = Block::Kind::blank;
  for (const Block& block : blocks_of(description)) {
    if (block.kind != last && last != Block::Kind::blank && block.kind != Block::Kind::blank) printed += '\n';
    last = block.kind;
    if (block.kind != Block::Kind::item) {
      printed += block.text.empty() ? "\n" : markdown_lines(block.text);
    } else if (block.head == "-") {
      printed += "* " + markdown_lines(block.text);
    } else {
      printed += "* " + markdown_lines(
                            fmt::format("`{}`{}{}", block.head, block.text.empty() ? "" : ": ", block.text));
    }
  }
  return printed;
}

// Options.

/// Tells whether an option takes one of many names, which stand in its text instead of in place of the value.
bool has_many_names(const Option& option) {
  constexpr std::ptrdiff_t kMaxBars = 2;
  const std::string& stands_for = option.kind.stands_for;
  return std::ranges::count(stands_for, '|') > kMaxBars && stands_for.find('[') == std::string::npos;
}

/// Returns "--seed S".
std::string head_of(const Option& option) {
  const std::string value = has_many_names(option) ? "NAME" : option.kind.stands_for;
  return "--" + option.name + (value.empty() ? "" : ' ' + value);
}

/// Returns "--seed S (=1)".
std::string head_with_default(const Option& option) {
  const std::string usual = plain_text(option.kind.usual);
  return head_of(option) + (usual.empty() ? "" : " (=" + usual + ")");
}

/// Returns what an option does, with all that its declaration says.
std::string text_of(const Option& option) {
  std::string text = option.help;
  if (has_many_names(option)) {
    std::string names = option.kind.stands_for;
    for (std::size_t bar = names.find('|'); bar != std::string::npos; bar = names.find('|', bar))
      names.replace(bar, 1, ", ");
    text += ": " + names;
  }
  if (option.kind.is_repeatable) text += "; repeatable";
  if (!option.also.empty()) text += fmt::format("; also --{}", option.also);
  return text;
}

std::string plain_options(std::string_view heading, const std::vector<const Option*>& options, int width) {
  if (options.empty()) return "";
  const std::size_t column = width < kWidth ? 24 : 30;
  std::string printed = fmt::format("\n{}:\n", heading);
  for (const Option* option : options)
    printed += hanging("  " + head_with_default(*option), text_of(*option), column, width);
  return printed;
}

/// Returns the options for which a test holds.
template <typename Test>
std::vector<const Option*> options_where(const Command& command, Test test) {
  std::vector<const Option*> found;
  for (const Option& option : command.options.rows()) {
    if (test(option)) found.push_back(&option);
  }
  return found;
}

/// Returns the other commands that begin with the command's whole name, as help lists them.
std::string subcommands(std::string_view noun, int width) {
  std::vector<Command> found;
  std::size_t longest = 0;
  for (Command& command : commands()) {
    if (!command.name.starts_with(std::string(noun) + ' ')) continue;
    longest = std::max(longest, command.name.size());
    found.push_back(std::move(command));
  }
  std::string printed;
  for (const Command& command : found)
    printed += hanging("  " + command.name, command.summary, longest + 4, width);
  return found.empty() ? "" : "\nSubcommands:\n" + printed;
}

}  // namespace

int help_width() {
  const int terminal = terminal_width();
  return terminal == 0 ? kWidth : std::clamp(terminal, kMinWidth, kWidth);
}

std::string overview_text(int width) {
  constexpr std::size_t kColumn = 14;
  std::string text = fmt::format("{}\n\nusage: dflop <command> [options]\n", kTitle);
  const std::vector<Command> all = commands();
  std::set<std::string> listed;
  for (const Task task : all_of<Task>()) {
    text += fmt::format("\n{}:\n", to_string(task));
    for (const Command& command : all) {
      if (command.task != task || !listed.insert(command.noun()).second) continue;
      text += hanging("  " + command.noun(), summary_of_noun(command), kColumn, width);
    }
  }
  text += "\n'dflop <command> --help' shows its main options and an example, '--help-all' all options.\n";
  for (const std::string& line : lines_of(fmt::format("Exit codes: {}.", kExitCodes), width))
    text += line + '\n';
  return text;
}

bool is_bare_noun(const std::vector<Command>& all, std::string_view word) {
  return std::ranges::find(all, word, &Command::name) == all.end() &&
         std::ranges::find(all, word, &Command::noun) != all.end();
}

std::string noun_text(std::string_view noun, int width) {
  const auto known = std::ranges::find(kNouns, noun, &Noun::name);
  return fmt::format("dflop {}{}\n{}\n'dflop {} <word> --help' shows options and an example.\n", noun,
                     known == std::end(kNouns) ? "" : ": " + std::string(known->summary),
                     subcommands(noun, width), noun);
}

std::string help_text(const Command& command, bool all, int width) {
  const bool is_short = !all && command.options.rows().size() > kMaxShortOptions;
  std::string text = fmt::format("dflop {}: {}\n\n{}", command.name, command.summary,
                                 plain_description(command.description, width));
  text += plain_options("Required",
                        options_where(command, [](const Option& o) { return o.kind.is_required; }), width);
  const auto is_common = [](const Option& o) { return o.kind.is_common && !o.kind.is_required; };
  if (is_short) {
    text += plain_options("Common", options_where(command, is_common), width);
  } else {
    for (const OptionGroup group : all_of<OptionGroup>()) {
      const auto is_other = [&](const Option& o) { return o.group == group && !o.kind.is_required; };
      std::vector<const Option*> options = options_where(command, is_other);
      std::stable_partition(options.begin(), options.end(), [&](const Option* o) { return is_common(*o); });
      text += plain_options(to_string(group), options, width);
    }
  }
  text += subcommands(command.name, width);
  text += fmt::format("\nexample:\n  {}\n", command.example);
  if (is_short) text += fmt::format("\n'dflop {} --help-all' shows all options.\n", command.name);
  return text;
}

namespace {

/// A SharedOption is an option that several commands take.
struct SharedOption {
  const Option* first = nullptr;             ///< of the first of them
  std::map<std::string, int> commands = {};  ///< how many have it with this value and default

  /// Returns the value and default that most commands have: the first of several.
  const std::string& head() const {
    return std::ranges::max_element(commands, {}, &std::pair<const std::string, int>::second)->first;
  }
  bool is_shared() const { return commands.size() > 1 || commands.begin()->second > 1; }
};

/// SharedOptions are the options of several commands, by name and help.
using SharedOptions = std::map<std::pair<std::string, std::string>, SharedOption>;

SharedOptions shared_options(const std::vector<Command>& all) {
  SharedOptions shared;
  for (const Command& command : all) {
    for (const Option& option : command.options.rows()) {
      SharedOption& entry = shared[{option.name, option.help}];
      if (entry.first == nullptr) entry.first = &option;
      ++entry.commands[head_with_default(option)];
    }
  }
  std::erase_if(shared, [](const auto& entry) { return !entry.second.is_shared(); });
  return shared;
}

/// Returns the shared options of a group in the order in which commands declare them.
std::vector<const SharedOption*> shared_of_group(const std::vector<Command>& all, const SharedOptions& shared,
                                                 OptionGroup group) {
  std::vector<const SharedOption*> found;
  for (const Command& command : all) {
    for (const Option& option : command.options.rows()) {
      const auto entry = shared.find({option.name, option.help});
      if (option.group == group && entry != shared.end() && entry->second.first == &option)
        found.push_back(&entry->second);
    }
  }
  return found;
}

/// Returns "`--gbs N` (required)".
std::string own_head(const Option& option) {
  return fmt::format("`{}`{}", head_with_default(option), option.kind.is_required ? " (required)" : "");
}

/// Returns which shared options of a group a command takes: all, or those that are named; with those that it
/// requires or that have its own default.
std::string taken_of_group(const Command& command, const std::vector<const SharedOption*>& shared,
                           OptionGroup group) {
  std::vector<std::string> taken;
  std::vector<std::string> left_out;
  std::vector<std::string> different;
  for (const SharedOption* entry : shared) {
    const auto is_same = [&](const Option& o) {
      return o.name == entry->first->name && o.help == entry->first->help;
    };
    const auto own = std::ranges::find_if(command.options.rows(), is_same);
    const std::string name = "`--" + entry->first->name + "`";
    if (own == command.options.rows().end()) {
      left_out.push_back(name);
    } else if (own->kind.is_required || head_with_default(*own) != entry->head()) {
      taken.push_back(own_head(*own));
      different.push_back(taken.back());
    } else {
      taken.push_back(name);
    }
  }
  if (taken.empty()) return "";
  const std::string heading = fmt::format("**{}**", to_string(group));
  if (left_out.size() >= taken.size()) return fmt::format("{}: {}", heading, fmt::join(taken, ", "));
  std::string text = heading;
  if (!left_out.empty()) text += fmt::format(" without {}", fmt::join(left_out, ", "));
  if (!different.empty()) text += fmt::format(", with {}", fmt::join(different, ", "));
  return text;
}

}  // namespace

std::string manual_text() {
  const std::vector<Command> all = commands();
  const SharedOptions shared = shared_options(all);
  std::string text = fmt::format(
      "# dflop manual\n\n{}.\n\n{}\n{}\nThe same input, seed and version give the same bytes.\n\nThis page is the "
      "output of `dflop manual`.\n\n## Shared options\n\n",
      kTitle,
      markdown_lines("`dflop <command> [options]` prints results on standard output and progress, warnings "
                     "and measured seconds on standard error. `dflop <command> --help` shows the main "
                     "options of a command, `--help-all` all of them."),
      markdown_lines(fmt::format("Exit codes: {}.", kExitCodes)));
  text += markdown_lines(
      "Several commands take these options, and each command below names the groups that it takes.");
  std::map<OptionGroup, std::vector<const SharedOption*>> groups;
  for (const OptionGroup group : all_of<OptionGroup>()) {
    groups[group] = shared_of_group(all, shared, group);
    if (groups[group].empty()) continue;
    text += fmt::format("\n### {}\n\n", to_string(group));
    for (const SharedOption* entry : groups[group]) {
      text += "* " + markdown_lines(fmt::format("`{}`: {}", entry->head(), text_of(*entry->first)));
    }
  }
  for (const Task task : all_of<Task>()) {
    for (const Command& command : all) {
      if (command.task != task) continue;
      text += fmt::format("\n## dflop {}\n\n{}\n{}", command.name,
                          markdown_lines(fmt::format("**{}**: {}.", to_string(task), command.summary)),
                          markdown_description(command.description));
      std::string own;
      std::vector<std::string> taken;
      for (const OptionGroup group : all_of<OptionGroup>()) {
        for (const Option& option : command.options.rows()) {
          if (option.group == group && !shared.contains({option.name, option.help}))
            own += fmt::format("* {}", markdown_lines(own_head(option) + ": " + text_of(option)));
        }
        const std::string of_group = taken_of_group(command, groups[group], group);
        if (!of_group.empty()) taken.push_back(of_group);
      }
      if (!own.empty()) text += "\nOptions:\n\n" + own;
      if (!taken.empty())
        text += '\n' + markdown_lines(fmt::format("Shared options: {}.", fmt::join(taken, "; ")));
      text += fmt::format("\n    {}\n", command.example);
    }
  }
  return text;
}

}  // namespace dflop
