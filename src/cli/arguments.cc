#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "cli/command.h"

namespace deltanet::cli {

// ---- one option

// CLI11's own checks name the largest number of the type as a bound, in 309 digits.
template <class Relation>
static CLI::Validator number_that(Relation holds_to, const char* name, const std::string& expected) {
  const auto check = [=](const std::string& given) {
    double number = 0;
    const bool is_number = CLI::detail::lexical_cast(given, number);
    return is_number && holds_to(number, 0.0) ? std::string() : "given " + given + "; expected a number " + expected;
  };
  return CLI::Validator(check, name);
}

Option Option::required() const { return Option(option_->required()); }
Option Option::show_default() const { return Option(option_->capture_default_str()); }
Option Option::positive() const { return Option(option_->check(number_that(std::greater(), "POSITIVE", "above 0"))); }
Option Option::not_negative() const {
  return Option(option_->check(number_that(std::greater_equal(), "NONNEGATIVE", "of 0 or more")));
}
Option Option::existing_file() const { return Option(option_->check(CLI::ExistingFile)); }
Option Option::comma_separated() const { return Option(option_->delimiter(',')); }
Option Option::one_value_each() const { return Option(option_->allow_extra_args(false)); }
Option Option::excludes(const Option& other) const { return Option(option_->excludes(other.option_)); }

Option Option::one_of(std::initializer_list<const char*> names) const {
  return Option(option_->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end()))));
}

template <class T>
Option Option::between(T low, T high) const {
  return Option(option_->check(CLI::Range(low, high)));
}
template Option Option::between(int, int) const;
template Option Option::between(int64_t, int64_t) const;
template Option Option::between(double, double) const;

// ---- all of a subcommand

template <class T>
Option Arguments::option(const std::string& names, T& value, const std::string& help) const {
  return Option(app_.add_option(names, value, help));
}
template Option Arguments::option(const std::string&, std::string&, const std::string&) const;
template Option Arguments::option(const std::string&, int&, const std::string&) const;
template Option Arguments::option(const std::string&, int64_t&, const std::string&) const;
template Option Arguments::option(const std::string&, uint64_t&, const std::string&) const;
template Option Arguments::option(const std::string&, double&, const std::string&) const;
template Option Arguments::option(const std::string&, std::optional<int64_t>&, const std::string&) const;
template Option Arguments::option(const std::string&, std::optional<uint64_t>&, const std::string&) const;
template Option Arguments::option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Option Arguments::option(const std::string&, std::vector<int64_t>&, const std::string&) const;
template Option Arguments::option(const std::string&, std::vector<uint64_t>&, const std::string&) const;
template Option Arguments::option(const std::string&, std::vector<double>&, const std::string&) const;

Option Arguments::flag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_.add_flag(names, value, help));
}

void Arguments::footer(const std::string& text) const { app_.footer(text); }

// ---- subcommands

std::function<int()> add_commands(const Arguments& args, std::span<const Command> commands) {
  args.app().require_subcommand(1);
  std::vector<std::pair<const CLI::App*, std::function<int()>>> actions;
  for (const Command& command : commands) {
    CLI::App* sub = args.app().add_subcommand(std::string(command.name), std::string(command.summary));
    actions.emplace_back(sub, command.setup(Arguments(*sub)));
  }
  return [actions] {
    for (const auto& [sub, action] : actions) {
      if (sub->parsed()) return action();
    }
    return 1;
  };
}

}  // namespace deltanet::cli
