"""Every row of the matrix in display order, probed or not; how a row is tested is no part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from servecheck.errors import UnknownName
from servecheck.model import Feature, Kind, Risk

__all__ = ["BY_ID", "FEATURES", "GROUPS", "OWN", "get", "is_own", "matching", "with_own"]

OWN = "own"
"""The group of the rows that users name in scenarios of their own."""


def _core(feature_id: str, title: str, question: str, risk: Risk = Risk.SAFE) -> Feature:
    return Feature(id=feature_id, title=title, question=question, core=True, risk=risk)


def _extended(feature_id: str, title: str, question: str, risk: Risk = Risk.SAFE) -> Feature:
    return Feature(id=feature_id, title=title, question=question, core=False, risk=risk)


# Properties and comparisons carry no status of their own, so they are never core: a group's tally and the blockers of
# a verdict count judged rows. A profile may still raise a comparison.
def _property(feature_id: str, title: str, question: str) -> Feature:
    return Feature(id=feature_id, title=title, question=question, core=False, kind=Kind.PROPERTY)


def _comparison(feature_id: str, title: str, question: str) -> Feature:
    return Feature(id=feature_id, title=title, question=question, core=False, kind=Kind.COMPARISON)


FEATURES: tuple[Feature, ...] = (
    _core("identity.models", "Models listed", "Does the server list the model it was asked to serve?"),
    _property("identity.engine", "Engine and version", "Which engine answers here, and how is that known?"),
    _extended("identity.replicas", "One server behind the name", "Do all replicas behind this endpoint look the same?"),
    _core("health.ready", "Health tells the truth", "Does the health route agree with what the server can really do?"),
    _extended("metrics.exposed", "Metrics", "Are the engine's metrics exposed, and do they move with my requests?"),
    _core("chat.basic", "Chat", "Does a plain chat request come back complete and well formed?"),
    _core(
        "chat.multi_turn", "Conversations", "Does every earlier turn, and the system message, still reach the model?"
    ),
    _extended("chat.content_parts", "Content as parts", "Is a message in text parts the same as one string?"),
    _core("chat.max_tokens", "Output limit", "Does `max_tokens` end the answer at exactly that many tokens?"),
    _core("chat.stop", "Stop strings", "Does a stop string end the answer, without leaking into it?"),
    _extended("chat.n", "Several answers", "Does `n` give that many separate answers?"),
    _core(
        "chat.context_limit",
        "Context limit",
        "Is a prompt beyond the context limit refused clearly, and one just below it answered?",
    ),
    _extended("completions.basic", "Completions", "Does a plain text completion come back complete and well formed?"),
    _extended("completions.stream", "Completions, streamed", "Does a streamed completion say the same as a plain one?"),
    _extended("completions.echo", "Completions with echo", "Does `echo` put the prompt before the completion?"),
    _core("streaming.frames", "Stream frames", "Is a stream made of valid events, with one finish and one `[DONE]`?"),
    _core("streaming.incremental", "Tokens as they come", "Do tokens arrive as they are made, and not all at the end?"),
    _core(
        "streaming.equals_non_stream", "Stream equals plain reply", "Is the streamed answer the same as the plain one?"
    ),
    _core("streaming.usage", "Usage in streams", "Does a stream report its usage when asked to?"),
    _extended(
        "streaming.continuous_usage", "Usage on every chunk", "Can every chunk of a stream carry the usage so far?"
    ),
    _core("streaming.utf8", "Unicode in streams", "Do emoji and other long characters survive streaming?"),
    _core("streaming.cancel", "Cancellation", "Does the server stop working when the client hangs up?"),
    _property("sampling.greedy", "Greedy repeatability", "How repeatable is the answer at temperature 0?"),
    _core("sampling.temperature", "Temperature", "Does temperature change how varied the answers are?"),
    _core("sampling.top_p", "`top_p`", "Does `top_p` cut the choice of tokens?"),
    _extended("sampling.top_k", "`top_k`", "Does `top_k` cut the choice of tokens?"),
    _extended("sampling.min_p", "`min_p`", "Does `min_p` cut the choice of tokens?"),
    _extended("sampling.seed", "Seed", "Does the same seed give the same answer, and another seed another?"),
    _core("sampling.logit_bias", "Logit bias", "Does `logit_bias` ban a token, and force another?"),
    _core("sampling.frequency_penalty", "Frequency penalty", "Does `frequency_penalty` reduce repetition?"),
    _core("sampling.presence_penalty", "Presence penalty", "Does `presence_penalty` reduce repetition?"),
    _extended("sampling.repetition_penalty", "Repetition penalty", "Does `repetition_penalty` reduce repetition?"),
    _extended("sampling.bad_words", "Banned words", "Does `bad_words` keep those words out of the answer?"),
    _extended(
        "sampling.allowed_token_ids", "Allowed tokens", "Does `allowed_token_ids` confine the answer to those tokens?"
    ),
    _extended("sampling.stop_token_ids", "Stop tokens", "Does `stop_token_ids` end the answer at those tokens?"),
    _extended("sampling.min_tokens", "Least output", "Does `min_tokens` keep the answer going that long?"),
    _extended("sampling.ignore_eos", "Ignoring the end token", "Does `ignore_eos` keep the answer going to its limit?"),
    _core("logprobs.chat", "Logprobs", "Are the log probabilities of a chat answer complete and sane?"),
    _core(
        "logprobs.stream", "Logprobs, streamed", "Does a stream carry the same log probabilities as the plain reply?"
    ),
    _extended(
        "logprobs.completions",
        "Logprobs of completions",
        "Are the log probabilities of a completion complete and sane?",
    ),
    _extended(
        "logprobs.prompt",
        "Logprobs of the prompt",
        "Can I have the log probabilities of the prompt's own tokens?",
        Risk.DANGEROUS,
    ),
    _core("structured.json_object", "JSON mode", "Does JSON mode give a JSON object?"),
    _core("structured.json_schema", "JSON Schema", "Does a JSON Schema shape the answer?"),
    _extended(
        "structured.keywords",
        "JSON Schema keywords",
        "Which JSON Schema keywords are enforced, refused or ignored?",
        Risk.DANGEROUS,
    ),
    _extended("structured.regex", "Regular expressions", "Does a regular expression shape the answer?"),
    _extended("structured.choice", "Choices", "Can the answer be confined to a list of choices?"),
    _extended("structured.grammar", "Grammars", "Does a grammar shape the answer?"),
    _extended(
        "structured.structural_tag", "Structural tags", "Does a structural tag shape the marked part of the answer?"
    ),
    _property("structured.legacy_guided", "Old `guided_*` fields", "What happens to the old `guided_*` fields?"),
    _core("structured.stream", "JSON Schema, streamed", "Does a JSON Schema shape a streamed answer too?"),
    _extended(
        "structured.completions", "JSON Schema on completions", "Does a JSON Schema shape a text completion too?"
    ),
    _extended(
        "structured.responses",
        "JSON Schema on responses",
        "Does a JSON Schema shape an answer of the responses route too?",
    ),
    _core("structured.concurrent", "Constraints side by side", "Does each request in a batch keep its own constraint?"),
    _extended(
        "structured.truncated", "Structured output cut short", "Does JSON that was cut by the token limit say so?"
    ),
    _core("structured.bad_schema", "Bad schemas", "Is an impossible schema refused without harm to the server?"),
    _core("tools.auto", "Tool calls", "Does the model's tool call come back as a tool call?"),
    _core("tools.required", "Tool call required", "Does `tool_choice: required` always give a valid tool call?"),
    _core("tools.named", "Named tool", "Does naming a tool give a valid call of that tool?"),
    _extended("tools.none", "Tools switched off", "Does `tool_choice: none` prevent tool calls?"),
    _core("tools.stream", "Tool calls, streamed", "Do streamed tool calls add up to the plain ones?"),
    _extended("tools.parallel", "Parallel tool calls", "Can one answer call several tools?"),
    _extended(
        "tools.parallel_off", "Parallel tool calls off", "Does `parallel_tool_calls: false` give one call at most?"
    ),
    _core("tools.round_trip", "Tool results", "Does a tool's result reach the model?"),
    _extended("tools.strict", "Strict tools", "Do the arguments of a strict tool always fit its schema?"),
    _extended(
        "tools.truncated", "Tool call cut short", "Is a tool call that was cut by the token limit reported cleanly?"
    ),
    _extended("reasoning.split", "Reasoning apart", "Is the reasoning kept apart from the answer?"),
    _extended("reasoning.stream", "Reasoning, streamed", "Is the reasoning kept apart in streams too?"),
    _extended("reasoning.toggle", "Reasoning on and off", "Can reasoning be switched off per request?"),
    _extended(
        "reasoning.structured",
        "Reasoning with a schema",
        "Does a JSON Schema shape the answer and leave the reasoning free?",
    ),
    _extended(
        "responses.basic",
        "Responses",
        "Does a plain request to the responses route come back complete and well formed?",
    ),
    _extended(
        "responses.stream", "Responses, streamed", "Are the events of a streamed response in order and complete?"
    ),
    _extended("responses.tools", "Responses with tools", "Do tool calls work on the responses route?"),
    _extended(
        "responses.structured", "Responses with a schema", "Does the responses route report and honour its text format?"
    ),
    _extended("responses.previous", "Responses continued", "Does `previous_response_id` carry on the conversation?"),
    _extended(
        "messages.basic",
        "Anthropic messages",
        "Does a plain request in Anthropic's format come back complete and well formed?",
    ),
    _extended(
        "messages.stream",
        "Anthropic messages, streamed",
        "Are the events of a streamed Anthropic message in order and complete?",
    ),
    _extended(
        "embeddings.basic", "Embeddings", "Does an embedding come back with the right shape, the same each time?"
    ),
    _extended("embeddings.batch", "Embeddings in a batch", "Does a batch of embeddings keep its order?"),
    _extended("embeddings.base64", "Embeddings in base64", "Do base64 embeddings hold the same numbers as plain ones?"),
    _extended("embeddings.dimensions", "Shorter embeddings", "Does `dimensions` shorten an embedding?"),
    _extended("rerank.basic", "Reranking", "Is an obviously better document ranked first?"),
    _extended(
        "tokenize.round_trip", "Tokenizer", "Does the tokenizer route agree with the usage, and give the text back?"
    ),
    _core("prefix_cache.reuse", "Prefix cache", "Is a prompt prefix that was seen before reused?"),
    _core(
        "prefix_cache.conversation",
        "Prefix cache in conversations",
        "Does each turn of an agent's conversation reuse the turns before?",
    ),
    _core(
        "prefix_cache.correct", "Prefix cache is correct", "Is the answer after a cache hit the same as without one?"
    ),
    _extended(
        "prefix_cache.reported", "Prefix cache reported", "Does the usage say how many tokens came from the cache?"
    ),
    _extended("prefix_cache.isolation", "Prefix cache isolation", "Do different cache salts keep their caches apart?"),
    _core("concurrency.batching", "Batching", "Are requests served side by side, and not one after the other?"),
    _core(
        "concurrency.isolation",
        "Isolation under load",
        "Does every request under load get its own answer and no one else's?",
    ),
    _property(
        "concurrency.batch_invariance",
        "Batch invariance",
        "How much does an answer change when others are served beside it?",
    ),
    _extended(
        "concurrency.overload", "Overload", "Does an overloaded server queue or refuse cleanly, and recover?", Risk.LOAD
    ),
    _core(
        "compile.recompilation",
        "Recompilation",
        "Can traffic of new shapes be served without stalls for compilation?",
        Risk.LOAD,
    ),
    _comparison("parity.tokens", "Same tokens", "Do both endpoints count the same prompt tokens?"),
    _comparison(
        "parity.logprobs",
        "Same probabilities",
        "Do both endpoints give the same log probabilities, within their own noise?",
    ),
    _comparison(
        "parity.greedy",
        "Same greedy answers",
        "Do both endpoints give the same greedy answers as often as each agrees with itself?",
    ),
    _comparison(
        "parity.finish",
        "Same endings",
        "Do answers end for the same reasons, and at the same lengths, on both endpoints?",
    ),
    _property("quantization.identity", "Precision", "At what precision is the model served, and what says so?"),
    _core(
        "quantization.sanity", "Sane output", "Is the output free of garbage, short and long, cached and under load?"
    ),
    _extended("quantization.recovery", "Accuracy kept", "How much of the reference's task accuracy is kept?"),
    _core("errors.malformed", "Malformed requests", "Is a request that is not JSON refused cleanly?"),
    _core("errors.wrong_type", "Wrong types", "Is a field of the wrong type refused cleanly?"),
    _core("errors.bad_value", "Bad values", "Is a value out of range refused cleanly?"),
    _core("errors.empty_messages", "Empty messages", "Is an empty list of messages handled cleanly?"),
    _core("errors.unknown_model", "Unknown model", "Is a request for an unknown model refused cleanly?"),
    _property("errors.unknown_field", "Unknown fields", "Is an unknown field accepted or refused?"),
    _property("errors.family", "Shape of errors", "Which shape do error replies have?"),
    _property("errors.leniency", "Leniency", "Which values out of range are accepted?"),
    _extended("auth.required", "Key required", "Is a request with a wrong key refused?"),
    _extended("auth.admin_exposed", "Admin routes hidden", "Are dangerous routes out of reach without a key?"),
    _core("sdk.chat", "SDK chat", "Does the official openai SDK read a chat answer?"),
    _core("sdk.stream", "SDK streaming", "Does the official openai SDK read a stream to its end?"),
    _extended("sdk.tools", "SDK tools", "Does the official openai SDK read tool calls?"),
    _extended("sdk.parse", "SDK parsing", "Does the official openai SDK parse a structured answer?"),
    _extended("sdk.responses", "SDK responses", "Does the official openai SDK read the responses route?"),
    _extended("vision.image", "Images in prompts", "Does the model see the image it was sent?"),
    _extended(
        "images.generate", "Image generation", "Does the server generate an image of the size and format asked for?"
    ),
    _extended(
        "audio.transcribe", "Transcription", "Does the server answer a transcription request in the right shape?"
    ),
    _extended("lora.listed", "LoRA adapters listed", "Are the adapters listed with their parent model?"),
    _extended("lora.effect", "LoRA adapters at work", "Does an adapter change what the model says?"),
    _extended("speculative.active", "Speculative decoding", "Is speculative decoding at work, without losing words?"),
    _property("performance.latency", "Latency", "How fast are first and later tokens at small loads?"),
)

BY_ID: dict[str, Feature] = {feature.id: feature for feature in FEATURES}

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(feature.group for feature in FEATURES))
"""The groups in display order."""

_WILDCARDS = frozenset("*?[")
_OWN_ID = re.compile(rf"{OWN}\.[a-z0-9]+(?:[_-][a-z0-9]+)*")


def is_own(feature_id: str) -> bool:
    """Tell whether an id is one that users may give to a row of their own: ``own.`` and a word of theirs."""
    return _OWN_ID.fullmatch(feature_id) is not None


def with_own(named: Iterable[tuple[str, str]]) -> tuple[Feature, ...]:
    """Return every row, and behind them a user's own ones among ``named`` (ids with titles) in the order of their ids.

    They are core: who writes a check relies on what it demands.
    """
    titles: dict[str, str] = {}
    for feature_id, title in named:
        if is_own(feature_id):
            titles.setdefault(feature_id, title)
    return FEATURES + tuple(_core(feature_id, title, title) for feature_id, title in sorted(titles.items()))


def get(feature_id: str) -> Feature:
    """Return a row by its id; a user's own row is known by no more than that.

    Raises:
        UnknownName: there is no such row; the message names the nearest one.
    """
    if is_own(feature_id):
        return _core(feature_id, feature_id, feature_id)
    try:
        return BY_ID[feature_id]
    except KeyError:
        raise UnknownName("feature", feature_id, BY_ID) from None


def matching(glob: str, rows: tuple[Feature, ...] = FEATURES) -> tuple[Feature, ...]:
    """Return those of ``rows`` that a glob (``*``, ``?``, ``[…]``), an id or a group selects, in order; case matters.

    A pattern may select nothing, since that is a question of what exists; a literal is a name, and must be one.

    Raises:
        UnknownName: ``glob`` has no wildcard and is neither an id nor a group; the message names the nearest.
    """
    named = tuple(feature for feature in rows if glob in (feature.id, feature.group))
    if named:
        return named
    if _WILDCARDS.isdisjoint(glob):
        raise UnknownName("feature", glob, dict.fromkeys(name for row in rows for name in (row.id, row.group)))
    return tuple(feature for feature in rows if fnmatchcase(feature.id, glob))
