// The table of rows, the vocabulary of options and the rules between them.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "deltanet/error.h"
#include "deltanet/recurrence.h"
#include "deltanet/rows.h"
#include "theory/row_formulas.h"

namespace deltanet {
namespace {

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Spec with(std::string_view row, std::initializer_list<std::pair<const char*, const char*>> changes) {
  Spec spec = find_row(row).spec;
  for (const auto& [key, value] : changes) set_option(spec, key, value);
  return spec;
}

TEST(Rows, HaveUniqueNamesAndConsistentSpecs) {
  std::set<std::string_view> names;
  for (const Row& row : rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(&find_row(row.name), &row);
    EXPECT_FALSE(row.paper.empty()) << row.name;
    EXPECT_FALSE(row.summary.empty()) << row.name;
    EXPECT_NO_THROW(validate(row.spec)) << row.name;
  }
}

TEST(Rows, DifferInTheirSpecs) {
  std::set<std::vector<std::pair<std::string, std::string>>> specs;
  for (const Row& row : rows()) EXPECT_TRUE(specs.insert(options(row.spec)).second) << row.name;
}

TEST(FindRow, SuggestsTheNearestNames) {
  const std::string error = error_of([] { find_row("PGDN"); });
  EXPECT_EQ(error, "[find_row] row: given \"PGDN\"; expected the name of a row, such as pgdn, gdn or pdn");
  EXPECT_NE(error_of([] { find_row("mamba_2"); }).find("mamba2"), std::string::npos);
  EXPECT_NO_THROW(error_of([] { find_row(""); }));
}

TEST(Options, ReadBackWhatTheyWrite) {
  for (const Row& row : rows()) {
    Spec copy;
    for (const auto& [key, value] : options(row.spec)) set_option(copy, key, value);
    EXPECT_EQ(options(copy), options(row.spec)) << row.name;
    EXPECT_EQ(copy.x, row.spec.x);
    EXPECT_EQ(copy.eps, row.spec.eps);
    EXPECT_EQ(copy.scale, row.spec.scale);
  }
}

TEST(Options, AcceptPythonAndJsonSpellings) {
  Spec spec;
  set_option(spec, "l2norm", "True");
  EXPECT_TRUE(spec.l2norm);
  set_option(spec, "l2norm", "0");
  EXPECT_FALSE(spec.l2norm);
  set_option(spec, "scale", "0.125");
  EXPECT_EQ(spec.scale, 0.125);
  for (const char* none : {"none", "None", "null"}) {
    spec.scale = 1.0;
    set_option(spec, "scale", none);
    EXPECT_FALSE(spec.scale.has_value()) << none;
  }
}

TEST(Options, RejectUnknownKeysAndValuesAndListTheValidOnes) {
  Spec spec;
  EXPECT_EQ(error_of([&] { set_option(spec, "decay", "diagonal"); }),
            "[set_option] decay: given \"diagonal\"; expected none, const, scalar or diag");
  EXPECT_NE(error_of([&] { set_option(spec, "color", "red"); }).find("solve, decay, erase, gain"), std::string::npos);
  for (const char* number : {"", "2.5", "1e9"}) EXPECT_THROW(set_option(spec, "block", number), Error) << number;
  for (const char* number : {"", "abc", "1.5x", "nan", "inf", " 1"}) {
    EXPECT_THROW(set_option(spec, "x", number), Error) << number;
  }
  EXPECT_THROW(set_option(spec, "tie_gates", "maybe"), Error);
  for (const char* side : {"rls", "free", "atq"}) EXPECT_THROW(set_option(spec, "query", side), Error);
  for (const char* side : {"mesa", "minus_dk"}) EXPECT_THROW(set_option(spec, "key", side), Error);
  EXPECT_EQ(options(spec), options(Spec{})) << "a rejected option must not change the spec";
}

// What files and configs of earlier versions say.
TEST(Options, ReadTheWordsOfEarlierVersions) {
  const auto expect_row = [](const char* row, const Spec& spec) {
    EXPECT_EQ(options(spec), options(find_row(row).spec)) << row;
  };
  expect_row("pgdn", with("gdn", {{"precond", "atk_stable"}}));
  expect_row("pgdn_unstable", with("gdn", {{"precond", "atk_unstable"}}));
  expect_row("p_longhorn_raw", with("longhorn", {{"precond", "atk_raw"}}));
  expect_row("pgdn_identity", with("gdn", {{"precond", "identity"}}));
  expect_row("p_mamba2", with("mamba2", {{"precond", "atq"}}));
  expect_row("mesa", with("mamba2_gain", {{"precond", "mesa"}, {"scale", "1"}}));
  expect_row("rls", with("delta_net", {{"gain", "one"}, {"precond", "rls"}}));
  expect_row("gdn", with("pgdn", {{"precond", "none"}}));
  expect_row("comba", with("gdn", {{"gain", "comba"}, {"norm", "none"}, {"precond", "none"}}));
  for (const char* norm : {"inv", "one_plus", "alpha_beta"}) {
    const std::string row = std::string("pgdn_norm_") + norm;
    expect_row(row.c_str(), with("gdn", {{"norm", norm}, {"precond", "atk_stable"}}));
    expect_row("pgdn", with(row, {{"norm", "none"}}));
  }
  EXPECT_EQ(
      error_of([] {
        with("longhorn", {{"norm", "inv"}});
      }),
      "[set_option] norm: given \"inv\"; expected the gain beta beside it: it is a gain of its own, and there is one");
  EXPECT_THROW(with("gdn", {{"precond", "atk"}}), Error);
}

TEST(Options, OfSeveralMeanTheSameInAnyOrder) {
  std::vector<std::pair<std::string, std::string>> words = {
      {"precond", "atk_unstable"}, {"norm", "none"}, {"gain", "beta"}, {"decay", "scalar"}};
  std::sort(words.begin(), words.end());
  do {
    Spec spec;
    set_options(spec, words);
    EXPECT_EQ(options(spec), options(find_row("pgdn_unstable").spec)) << words.front().first;
  } while (std::next_permutation(words.begin(), words.end()));
  Spec spec;
  EXPECT_THROW(set_options(spec, {{"color", "red"}}), Error);
}

TEST(Validate, AcceptsTheAblations) {
  EXPECT_NO_THROW(validate(with("pkda", {{"tie_gates", "true"}})));
  EXPECT_NO_THROW(validate(with("pdn", {{"gain", "alpha_beta"}})));
  EXPECT_NO_THROW(validate(with("gdn", {{"query", "inverse"}})));  // query-side preconditioning of the online solve
  EXPECT_NO_THROW(validate(with("pgdn", {{"query", "minus_dk"}})));
  EXPECT_NO_THROW(validate(with("pkda", {{"query", "stable"}})));
  EXPECT_NO_THROW(validate(with("p_mamba2", {{"key", "stable"}})));  // both sides
  EXPECT_NO_THROW(validate(with("pgdn", {{"query", "mesa"}})));
  EXPECT_NO_THROW(validate(with("rls", {{"query", "inverse"}})));
  EXPECT_NO_THROW(validate(with("comba", {{"key", "stable"}})));
  EXPECT_NO_THROW(validate(with("comba", {{"decay", "diag"}})));
  EXPECT_NO_THROW(validate(with("dplr", {{"query", "inverse"}})));
  EXPECT_NO_THROW(validate(with("gdn", {{"gain", "inv"}})));
  EXPECT_NO_THROW(validate(with("mesa", {{"decay", "none"}, {"gain", "one"}})));
  EXPECT_NO_THROW(validate(with("dplr", {{"decay", "scalar"}})));
  EXPECT_NO_THROW(validate(with("pgdn", {{"x", "1"}})));
}

struct Contradiction {
  const char* name;
  const char* row;
  std::pair<const char*, const char*> change;
  const char* argument;  // which the error names
};

class ValidateRejects : public testing::TestWithParam<Contradiction> {};

TEST_P(ValidateRejects, TheContradiction) {
  const Contradiction& c = GetParam();
  const std::string error = error_of([&] { validate(with(c.row, {c.change})); });
  EXPECT_EQ(error.find(std::string("[validate] ") + c.argument + ": given "), 0U) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, ValidateRejects,
    testing::Values(Contradiction{"squash_without_stable", "pla", {"squash", "tanh"}, "squash"},
                    Contradiction{"range_without_stable", "gdn", {"range", "amplify"}, "range"},
                    Contradiction{"alpha_beta_with_diag", "pkda", {"gain", "alpha_beta"}, "decay"},
                    Contradiction{"mesa_with_diag", "mesa", {"decay", "diag"}, "decay"},
                    Contradiction{"mesa_with_efla", "mesa", {"gain", "efla"}, "gain"},
                    Contradiction{"rls_offline", "rls", {"solve", "offline"}, "solve"},
                    Contradiction{"rls_with_decay", "rls", {"decay", "diag"}, "decay"},
                    Contradiction{"rls_with_gain", "rls", {"gain", "longhorn"}, "gain"},
                    Contradiction{"dplr_with_key", "dplr", {"key", "stable"}, "key"},
                    Contradiction{"dplr_with_gain", "dplr", {"gain", "nlms"}, "gain"},
                    Contradiction{"tying_without_dplr", "gdn", {"tying", "rwkv7"}, "tying"},
                    Contradiction{"own_gain_offline", "comba", {"solve", "offline"}, "solve"},
                    Contradiction{"own_gain_with_longhorn", "comba", {"gain", "longhorn"}, "gain"},
                    Contradiction{"free_erase_offline", "gla", {"erase", "free"}, "erase"},
                    Contradiction{"free_erase_with_dplr", "dplr", {"erase", "free"}, "erase"},
                    Contradiction{"free_erase_with_free_write", "gdn_free", {"erase", "free"}, "erase"},
                    Contradiction{"free_erase_with_rls", "rls", {"erase", "free"}, "erase"},
                    Contradiction{"free_erase_with_nlms", "nlms", {"erase", "free"}, "gain"},
                    Contradiction{"free_write_with_dplr", "dplr", {"key", "free"}, "key"},
                    Contradiction{"block_of_nothing", "pgdn_block", {"block", "0"}, "block"},
                    Contradiction{"block_beside_mesa", "pgdn_block", {"query", "mesa"}, "query"},
                    Contradiction{"tied_without_moment", "gdn", {"tie_gates", "true"}, "tie_gates"},
                    Contradiction{"x_below_1", "pgdn", {"x", "0.9"}, "x"},
                    Contradiction{"x_above_2", "pgdn", {"x", "2.1"}, "x"},
                    Contradiction{"eps_zero", "pgdn", {"eps", "0"}, "eps"},
                    Contradiction{"eps_zero_as_float", "pgdn", {"eps", "1e-60"}, "eps"},
                    Contradiction{"l2norm_eps_zero_as_float", "gdn", {"l2norm_eps", "1e-46"}, "l2norm_eps"},
                    Contradiction{"l2norm_eps_negative", "gdn", {"l2norm_eps", "-1e-6"}, "l2norm_eps"}),
    [](const auto& test) { return test.param.name; });

TEST(RowFormulas, NameTheStateTheOutputAndEveryGate) {
  const Shape any{1, 1, 1, 1, 1, 1, 1};
  for (const Row& row : rows()) {
    std::string text;
    for (const theory::RowFormula& line : theory::row_formulas(row.spec)) text += line.equation + "\n";
    EXPECT_NE(text.find("S_t = "), std::string::npos) << row.name;
    EXPECT_NE(text.find("o_t = "), std::string::npos) << row.name;
    for (const char* name : {"beta", "beta_erase", "g_atk", "beta_atk", "log_atk_scale", "ridge", "eta"}) {
      if (input_shape(row.spec, name, any).empty()) continue;
      EXPECT_NE(text.find(name), std::string::npos) << row.name << " reads " << name << ":\n" << text;
    }
  }
}

}  // namespace
}  // namespace deltanet
