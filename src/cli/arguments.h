#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
class Option;
}  // namespace CLI

// The arguments of a subcommand. A thin face of CLI11, whose headers take longer to compile than all that is said with
// them; only arguments.cc and main.cc see them.

namespace deltanet::cli {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  Option show_default() const;  // the value it has now, in --help
  Option positive() const;
  Option not_negative() const;
  template <class T>  // int, int64_t or double
  Option between(T low, T high) const;
  Option one_of(std::initializer_list<const char*> names) const;
  Option existing_file() const;
  Option comma_separated() const;
  Option one_value_each() const;  // a list grows by repeating the option: what follows a value is not another one
  Option excludes(const Option& other) const;

 private:
  CLI::Option* option_;
};

class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  // `names` is "--long", "-s,--long" or, for an argument without a dash, its name. `value` must outlive the parsing.
  // T is std::string, int, int64_t, uint64_t, double, a std::vector or a std::optional of some of these.
  template <class T>
  Option option(const std::string& names, T& value, const std::string& help) const;
  Option flag(const std::string& names, bool& value, const std::string& help) const;
  void footer(const std::string& text) const;  // below the list of options in --help

  CLI::App& app() const { return app_; }

 private:
  CLI::App& app_;
};

}  // namespace deltanet::cli
