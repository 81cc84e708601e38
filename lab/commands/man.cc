#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "lab/commands/commands.h"
#include "planish/version.h"

namespace planish::lab {

namespace {

// Returns text for roff. Escapes the characters that it would replace by typographic ones, and
// prevents lines that begin with a period from being requests.
std::string Roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '.':
        if (escaped.empty() || escaped.back() == '\n') escaped += "\\&";
        [[fallthrough]];
      default:
        escaped += c;
    }
  }
  return escaped;
}

// Returns text whose lines stay as they are.
std::string Preformatted(std::string_view text) {
  return text.empty() ? "" : fmt::format(".nf\n{}\n.fi\n", Roff(text));
}

// Returns the options and arguments as a list.
std::string OptionList(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    std::string help = option->get_description();
    std::ranges::replace(help, '\n', ' ');  // wrapped for --help
    const std::string name = option->get_positional()
                                 ? option->get_name(/*positional=*/true)
                                 : option->get_name(/*positional=*/false, /*all_options=*/true);
    const bool has_value = !option->get_positional() && option->get_expected_min() > 0;
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", Roff(name),
                        has_value ? fmt::format(" \\fI{}\\fR", Roff(option->get_type_name())) : "",
                        Roff(help));
  }
  return text;
}

// Returns a section for each command that is or belongs to `app`.
std::string CommandSections(const CLI::App& app, const std::string& command) {
  std::string text;
  for (const CLI::App* subcommand : app.get_subcommands(nullptr)) {
    const std::string path = command + " " + subcommand->get_name();
    std::string footer = subcommand->get_footer();
    // The main page has the exit statuses that commands share.
    if (const size_t shared = footer.find(kExitStatuses); shared != std::string::npos) {
      footer.erase(shared);
    }
    while (footer.ends_with('\n')) footer.pop_back();
    text += fmt::format(".SS {}\n{}.\n{}.PP\n{}", Roff(path), Roff(subcommand->get_description()),
                        OptionList(*subcommand), Preformatted(footer));
    text += CommandSections(*subcommand, path);
  }
  return text;
}

std::string ManPage(const CLI::App& app) {
  std::string footer = app.get_footer();
  constexpr std::string_view kHead = "Exit status:\n";
  const std::string statuses = std::string(kExitStatuses).substr(kHead.size());
  if (const size_t shared = footer.find(kExitStatuses); shared != std::string::npos) {
    footer.erase(shared);
  }
  while (footer.ends_with('\n')) footer.pop_back();
  return fmt::format(
      ".TH PLANISH 1 \"\" \"planish {}\" \"User Commands\"\n"
      ".SH NAME\nplanish \\- train and compare the experiments of the layer normalization papers\n"
      ".SH SYNOPSIS\n.B planish\n\\fICOMMAND\\fR [\\fIARGUMENT\\fR...]\n"
      ".SH DESCRIPTION\n{}\n.PP\n{}"
      ".SH OPTIONS\n{}"
      ".SH COMMANDS\n{}"
      ".SH EXIT STATUS\n{}",
      PLANISH_VERSION, Roff(app.get_description()), Preformatted(footer), OptionList(app),
      CommandSections(app, "planish"), Preformatted(statuses));
}

}  // namespace

void AddMan(CLI::App& app, Action& action) {
  CLI::App* man = app.add_subcommand("man", "Print the manual page, made of all help texts");
  man->footer(
      "Example:\n"
      "  planish man > planish.1 && man -l planish.1");
  man->callback([&app, &action] {
    action = [&app] {
      Print(ManPage(app));
      return 0;
    };
  });
}

}  // namespace planish::lab
