// The public Session and TokenStream: what a model remembers of some sequences, and how they go on.

#include "base/interrupt.h"
#include "deltanet/error.h"
#include "model/generation/generate.h"
#include "model/generation/sampler.h"
#include "model/model_impl.h"

namespace deltanet {

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session Model::start(int64_t sequences) {
  return Session(
      std::make_unique<Session::Impl>(Session::Impl{impl_->language_model, State(*impl_->layout, sequences)}));
}

Session Model::load_session(const std::string& path) {
  return Session(std::make_unique<Session::Impl>(
      Session::Impl{impl_->language_model, State::load(path, *impl_->layout, impl_->weights->fingerprint())}));
}

int64_t Session::sequences() const { return impl_->state.sequences(); }
int64_t Session::bytes() const { return impl_->state.bytes(); }
void Session::reset() { impl_->state.reset(); }

void Session::drop_unread() {
  for (auto& pending : impl_->state.pending) pending.clear();
}

Session Session::copy(std::span<const int64_t> from) const {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] >= 0 && from[i] < sequences()) continue;
    throw Error("[session] from[" + std::to_string(i) + "]: given " + std::to_string(from[i]) + "; expected 0 to " +
                std::to_string(sequences() - 1) + ", the sequences of the session");
  }
  State copied(impl_->model.layout(), static_cast<int64_t>(from.size()));
  copied.copy_sequences(impl_->state, from, impl_->model.threads());
  return Session(std::make_unique<Impl>(Impl{impl_->model, std::move(copied)}));
}

void Session::read(std::span<const std::vector<int32_t>> prompts, float* out) {
  prefill(impl_->model, impl_->state, prompts, out);
}

void Session::log_probs(std::span<const int32_t> ids, std::span<const int32_t> targets,
                        std::span<const int64_t> offsets, double* log_prob, bool* greedy) {
  for (const auto& pending : impl_->state.pending) {
    if (!pending.empty()) {
      throw Error(
          "[session] log_probs: a sequence ends with a token that generate chose and the model has not read; "
          "read it first, with the tokens that follow it");
    }
  }
  std::optional<StateBefore> before;
  if (current_interrupt) before.emplace(impl_->state);
  impl_->model.log_probs(ids, targets, offsets, &impl_->state, log_prob, greedy);
  if (before) before->call_is_done();
}

GenerateStats Session::generate(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                                const std::function<bool(int64_t, int32_t)>& on_token) {
  return deltanet::generate(impl_->model, impl_->state, prompts, options, on_token);
}

void Session::save(const std::string& path) const { impl_->state.save(path, impl_->model.weights().fingerprint()); }

// ---- TokenStream

struct TokenStream::Impl {
  LanguageModel& model;
  State& state;
  std::vector<int32_t> unread;  // the prompt, before the first token
  GenerateOptions options;
  Sampler sampler;
  std::vector<float> logits = {};
  int64_t tokens = 0;
  bool ended = false;
};

TokenStream::TokenStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;
TokenStream::~TokenStream() = default;

TokenStream Session::stream(std::span<const int32_t> prompt, const GenerateOptions& options) {
  if (sequences() != 1) {
    throw Error("[stream] session: holds " + std::to_string(sequences()) +
                " sequences; expected one. on_token of generate follows several");
  }
  check(options, impl_->model);
  auto impl = std::make_unique<TokenStream::Impl>(TokenStream::Impl{
      impl_->model, impl_->state, {prompt.begin(), prompt.end()}, options, Sampler(options.sampling)});
  impl->logits.resize(static_cast<std::size_t>(impl_->model.config().vocab_size));
  return TokenStream(std::move(impl));
}

std::optional<int32_t> TokenStream::next() {
  Impl& stream = *impl_;
  if (stream.ended || stream.tokens == stream.options.max_tokens) return {};
  prefill(stream.model, stream.state, {&stream.unread, 1}, stream.logits.data());
  stream.unread.clear();
  const int32_t id = choose(stream.model, stream.state, 0, stream.logits.data(), stream.options, stream.sampler);
  stream.state.pending.front().assign(1, id);
  ++stream.tokens;
  stream.ended = is_end(stream.options, id);
  return id;
}

}  // namespace deltanet
