#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deltanet::eval {

// The articles of the raw text of a split of WikiText: each begins with a heading of the first level. Carriage returns
// are left out.
std::vector<std::string> wikitext_pages(std::string_view raw);

// An article as people would write it: WikiText has blanks around its punctuation. The rules of lm-evaluation-harness.
std::string detokenized_wikitext(std::string_view page);

}  // namespace deltanet::eval
