#pragma once

#include <span>
#include <string_view>

namespace deltanet::eval {

// The two words of a needle's key, "brave-lantern". A change of the lists changes all prompts: count the version up.
std::span<const std::string_view> adjectives();
std::span<const std::string_view> nouns();
inline constexpr int kWordListVersion = 1;

}  // namespace deltanet::eval
