"""The model "deltanet" of lm-evaluation-harness, and the program deltanet-eval.

    deltanet-eval --model_args pretrained=DIR,weights=bf16 --tasks arc_easy,wikitext --batch_size 8

The harness finds models only in its own list, so this module adds one to it: importing it is enough for
lm_eval.simple_evaluate(model="deltanet", ...). deltanet-eval does that and then is lm_eval's own command line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise ImportError(f"deltanet.evaluation needs lm-eval, pip install 'deltanet[eval]': {error}") from error
from tqdm import tqdm

from ._core import Error
from ._ruler_hook import offer_tokenizer
from .model import Model
from .tokenizer import tokenizer_of

__all__ = ["DeltanetLM", "main"]

AUTO_BATCH_SIZE = 8
NO_LIMIT = 2**31 - 1

_log = logging.getLogger("lm_eval.models.deltanet")


@register_model("deltanet")
class DeltanetLM(TemplateLM):
    """A checkpoint directory, run by deltanet.Model.

    pretrained       the directory, or a deltanet.Model (then tokenizer is needed)
    weights, threads as in deltanet.Model
    tokenizer        file or directory of another tokenizer than the checkpoint's, "bytes", or a deltanet.Tokenizer
    batch_size       how many sequences generate_until continues at once; "auto" is 8
    batch_tokens     about how many tokens go through the model at once in log-likelihoods
    max_length       tokens of context and continuation together; longer contexts lose their beginning, which is
                     counted and said. By default there is no limit, unless the model has softmax attention without a
                     window: then it is max_position_embeddings of config.json. Rolling log-likelihoods have windows of
                     this length, by default of max_position_embeddings or 2048 tokens: there nothing is lost
    max_gen_toks     how much generate_until says where the task does not tell
    add_bos_token    False leaves out the tokens that the tokenizer puts around a text
    prefix_token_id  what stands for an empty context; by default BOS, or EOS where there is none
    """

    def __init__(
        self,
        pretrained: str | Model,
        weights: str = "f32",
        threads: int | None = None,
        tokenizer=None,
        batch_size: int | str = 1,
        batch_tokens: int = 2048,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool = True,
        prefix_token_id: int | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ):
        super().__init__()
        if device not in (None, "cpu"):
            raise Error(f"device: given {device!r}; expected 'cpu', the only one there is")
        self.model = pretrained if isinstance(pretrained, Model) else Model(pretrained, weights, threads)
        directory = None if isinstance(pretrained, Model) else pretrained
        self._tokenizer = tokenizer_of(self.model, directory, tokenizer)
        self.batch_size = self._batch_size(batch_size, max_batch_size)
        self.batch_tokens, self.max_gen_toks = int(batch_tokens), int(max_gen_toks)
        config = self.model.config
        positions = config.get("max_position_embeddings")
        self.max_length = int(max_length or (_attends_to_all(config) and positions) or NO_LIMIT)
        self._window = int(max_length or positions or 2048)  # of rolling log-likelihoods
        self._add_special = bool(add_bos_token)
        named = tokenizer if isinstance(tokenizer, str) else directory
        encode, special = self._tokenizer.encode, self._add_special  # and not this model, which may be let go
        offer_tokenizer(None if named is None else str(named), lambda text: encode(text, special))
        self._ends = {i for i in (config.get("eos_token_id"), self._tokenizer.eos_token_id) if i is not None}
        known = (prefix_token_id, self._tokenizer.bos_token_id, self._tokenizer.eos_token_id)
        configured = (config.get("bos_token_id"), config.get("eos_token_id"))
        self._prefix = next((i for i in known + configured if i is not None), None)

    @staticmethod
    def _batch_size(given, most) -> int:
        size = AUTO_BATCH_SIZE if str(given).startswith("auto") else int(given)
        if size < 1:
            raise Error(f"batch_size: given {given}; expected at least 1, or 'auto'")
        return min(size, int(most)) if most else size

    # ---- text and tokens

    @property
    def eot_token_id(self) -> int | None:
        return min(self._ends, default=None)

    @property
    def prefix_token_id(self) -> int:
        if self._prefix is None:
            raise Error("prefix_token_id: the tokenizer has neither BOS nor EOS; give prefix_token_id=ID in model_args")
        return self._prefix

    @property
    def tokenizer_name(self) -> str:
        return type(self._tokenizer).__name__

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_) -> list[int]:
        return self._tokenizer.encode(string, self._add_special if add_special_tokens is None else add_special_tokens)

    def tok_decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens)

    # ---- log-likelihoods

    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_) -> list[tuple[float, bool]]:
        contexts, continuations, cuts = [], [], _Cuts(self.max_length)
        for _, context, continuation in requests:
            # The last token is predicted, not read.
            contexts.append(cuts.cut(context, max(1, self.max_length + 1 - len(continuation))))
            continuations.append(continuation)
        cuts.say()
        with tqdm(total=len(requests), desc="Running loglikelihood requests", disable=disable_tqdm) as progress:
            values, greedy = self.model.loglikelihood(contexts, continuations, self.batch_tokens, progress.update)
        results = [(float(value), bool(flag)) for value, flag in zip(values, greedy)]
        for (texts, *_), result in zip(requests, results):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, result)
        return results

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        windows, owners = [], []
        for owner, request in enumerate(requests):
            (text,) = request.args
            tokens = self.tok_encode(text, add_special_tokens=False)
            for window in get_rolling_token_windows(tokens, self.prefix_token_id, self._window, context_len=1):
                windows.append((None, *make_disjoint_window(window)))
                owners.append(owner)
        sums = [0.0] * len(requests)
        for owner, (value, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm)):
            sums[owner] += value
        for request, value in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, value)
        return sums

    # ---- generation

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        results: list[str] = [""] * len(requests)
        cuts = _Cuts(self.max_length)
        with tqdm(total=len(requests), desc="Running generate_until requests", disable=disable_tqdm) as progress:
            for batch, options in self._generation_batches(requests):
                texts = self._generate([context for _, context in batch], options, cuts)
                for (place, _), text in zip(batch, texts):
                    results[place] = text
                    self.cache_hook.add_partial("generate_until", requests[place].args, text)
                progress.update(len(batch))
        cuts.say()
        return results

    def _generation_batches(self, requests):
        """Requests of the same options, long contexts first, batch_size at a time: [(place, tokens)], options."""
        by_options = {}
        for place, request in enumerate(requests):
            context, options = request.args
            tokens = self.tok_encode(context) or [self.prefix_token_id]
            by_options.setdefault(json.dumps(options, sort_keys=True), []).append((place, tokens))
        for key, same in by_options.items():
            options = _GenerationOptions(json.loads(key), self.max_gen_toks)
            same.sort(key=lambda item: -len(item[1]))
            for begin in range(0, len(same), self.batch_size):
                yield same[begin : begin + self.batch_size], options

    def _generate(self, contexts: list[list[int]], options: _GenerationOptions, cuts: _Cuts) -> list[str]:
        room = self.max_length - options.max_tokens
        if room < 1:
            raise Error(f"max_gen_toks: given {options.max_tokens}; expected less than max_length, {self.max_length}")
        said: list[list[int]] = [[] for _ in contexts]

        def goes_on(sequence, token):
            if token in self._ends:
                return False
            said[sequence].append(token)
            return not options.until or options.cut(self.tok_decode(said[sequence]))[1]

        self.model.session(len(contexts)).generate(
            [cuts.cut(context, room) for context in contexts], options.max_tokens, goes_on, eos_token_id=(),
            vocab_size=self._tokenizer.vocab_size, **options.sampling,
        )  # fmt: skip
        return [options.cut(self.tok_decode(tokens))[0] for tokens in said]


class _Cuts:
    """Counts the contexts that were too long."""

    def __init__(self, max_length: int):
        self.max_length = max_length
        self.contexts = self.cut_contexts = self.cut_tokens = 0

    def cut(self, context: Sequence[int], room: int) -> Sequence[int]:
        self.contexts += 1
        if len(context) <= room:
            return context
        self.cut_contexts += 1
        self.cut_tokens += len(context) - room
        return context[-room:]

    def say(self) -> None:
        if self.cut_contexts:
            _log.warning(
                "deltanet: %d of %d contexts were longer than max_length=%d and lost their beginning, %d tokens in all",
                self.cut_contexts, self.contexts, self.max_length, self.cut_tokens,
            )  # fmt: skip


def _attends_to_all(config: dict) -> bool:
    """Whether some layer is softmax attention over everything before it."""
    if config.get("model_type") == "transformer":
        return not config.get("window_size")
    attention = config.get("attn") or []
    return any(not layers.get("window_size") for layers in ([attention] if isinstance(attention, dict) else attention))


class _GenerationOptions:
    """What a task's generation_kwargs ask for. What has no meaning here is refused rather than ignored."""

    def __init__(self, given: dict, max_tokens: int):
        until = given.pop("until", None) or []
        self.until = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
        for name in ("max_completion_tokens", "max_tokens", "max_new_tokens", "max_gen_toks"):  # the last one counts
            max_tokens = given.pop(name, None) or max_tokens
        self.max_tokens = int(max_tokens)
        do_sample = given.pop("do_sample", None)
        temperature = given.pop("temperature", 1.0 if do_sample else 0.0)
        self.sampling = {"temperature": 0.0 if do_sample is False else float(temperature or 0.0)}
        for name in ("top_k", "top_p", "min_p", "repetition_penalty", "seed"):
            if name in given:
                self.sampling[name] = given.pop(name)
        if given:
            raise Error(
                f"generation_kwargs: given {', '.join(sorted(given))}; expected until, max_gen_toks, do_sample, "
                "temperature, top_k, top_p, min_p, repetition_penalty, seed"
            )

    def cut(self, text: str) -> tuple[str, bool]:
        """The text before the first stop string, and whether there was none."""
        ends = [place for place in map(text.find, self.until) if place >= 0]
        return text[: min(ends, default=len(text))], not ends


def main() -> None:
    """lm_eval's command line, where the model is "deltanet" and the device the CPU unless something else is said."""
    from lm_eval.__main__ import cli_evaluate

    given = {argument.split("=")[0] for argument in sys.argv[1:]}
    if given & {"--model_args", "-a"}:
        if not given & {"--model", "-M"}:
            sys.argv += ["--model", "deltanet"]
        if "--device" not in given:
            sys.argv += ["--device", "cpu"]
    cli_evaluate()


if __name__ == "__main__":
    main()
