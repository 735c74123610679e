#pragma once

#include <span>
#include <string>
#include <string_view>

// How what a model says becomes the scores of an example.

namespace deltanet::eval {

// Whether the text holds one of the answers, ignoring case: how questions are scored, and when they end early.
bool contains_answer(std::string_view text, std::span<const std::string> answers);

}  // namespace deltanet::eval
