"""One missing flag often breaks many rows: which setting explains which rows, as data, and what to do about it.

Recognised from what was recorded (refusals, statuses, the fingerprint), never from a row's name alone; a cause that
does not show explains nothing. It names a remedy and decides no status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from servecheck.model import DECIDED, Cell, Fingerprint, Kind, Outcome, Status

__all__ = ["ROOT_CAUSES", "Hit", "RootCause", "Sign", "explain"]

_SHORT = DECIDED - {Status.SUPPORTED}
_UNSERVED = frozenset({Status.UNSUPPORTED, Status.IGNORED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One way in which a cause shows; all that is given must hold, for each row by itself.

    ``rows`` are patterns of feature ids, ``statuses`` those of the cell. ``said`` is a pattern, to be found in what a
    finding that did not hold says, or in a property's value. ``fields`` are fingerprint fields with the value that
    they must be seen to have. ``engines`` are the engines it can be true of; an engine that is not known counts only
    where ``said`` is given, because then the server's own words speak.
    """

    rows: tuple[str, ...]
    engines: frozenset[str] = frozenset()
    statuses: frozenset[Status] = _SHORT
    said: re.Pattern[str] | None = None
    fields: tuple[tuple[str, str], ...] = ()

    def shows(self, cell: Cell, known: Fingerprint) -> bool:
        """Tell whether a cell shows this sign."""
        if not any(fnmatchcase(cell.feature, pattern) for pattern in self.rows):
            return False
        if cell.kind is Kind.JUDGED and cell.status not in self.statuses:
            return False
        engine = known.value("engine")
        if self.engines and engine not in self.engines and not (engine is None and self.said):
            return False
        if any(known.value(name) != value for name, value in self.fields):
            return False
        return self.said is None or any(self.said.search(text) for text in _texts(cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause:
    """A setting that explains rows: what it is, how it shows (one sign is enough), what to change, and the source."""

    id: str
    title: str
    remedy: str
    source: str
    signs: tuple[Sign, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A cause found on an endpoint, with the features whose rows it explains, in the order of the cells."""

    cause: RootCause
    endpoint: str
    rows: tuple[str, ...]


def explain(
    cells: Sequence[Cell], fingerprints: Mapping[str, Fingerprint], causes: Iterable[RootCause] | None = None
) -> tuple[Hit, ...]:
    """Return the causes that show on each endpoint. A row belongs to the first cause that explains it."""
    table = ROOT_CAUSES if causes is None else tuple(causes)
    found: dict[tuple[str, str], list[str]] = {}
    by_id = {cause.id: cause for cause in table}
    for cell in cells:
        known = fingerprints.get(cell.endpoint, Fingerprint(fields={}))
        cause = next((each for each in table if any(sign.shows(cell, known) for sign in each.signs)), None)
        if cause is not None:
            found.setdefault((cell.endpoint, cause.id), []).append(cell.feature)
    return tuple(Hit(cause=by_id[name], endpoint=where, rows=tuple(rows)) for (where, name), rows in found.items())


def _texts(cell: Cell) -> Iterator[str]:
    yield from (finding.why for finding in cell.findings if finding.outcome is not Outcome.HELD)
    if cell.kind is Kind.JUDGED:
        yield cell.reason
    if cell.value is not None:
        yield cell.value


# --------------------------------------------------------------------------- the table

_VLLM, _SGLANG, _LLAMA = frozenset({"vllm"}), frozenset({"sglang"}), frozenset({"llama.cpp"})
_TOOLS = ("tools.*", "sdk.tools", "responses.tools", "structured.structural_tag")
_ASKS_FOR_TOOLS = ("tools.auto", "tools.required", "tools.named", "tools.stream", "tools.parallel*", "tools.strict")


def _said(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


ROOT_CAUSES: tuple[RootCause, ...] = (
    RootCause(
        id="wrong-reasoning-parser",
        title="the reasoning parser does not fit the model",
        remedy="Leave --reasoning-parser away, or name the model's own. With a parser for another model every answer "
        "counts as reasoning, content stays empty, and schemas, grammars and required tools are not applied.",
        source="https://docs.sglang.io/advanced_features/separate_reasoning.html",
        signs=(
            Sign(
                rows=("chat.*", "streaming.*", "structured.*", "tools.*", "reasoning.*", "sdk.*"),
                engines=_SGLANG | _VLLM,
                said=_said(
                    r"(?:answer|call) (?:is in|came back as) (?:the )?reasoning|content is empty and the answer"
                ),
            ),
        ),
    ),
    RootCause(
        id="no-reasoning-parser",
        title="no reasoning parser is set",
        remedy="vLLM and SGLang: --reasoning-parser NAME, with the parser of the model; llama.cpp: --reasoning-format "
        "deepseek. Without one the thinking and its tags stay in the content.",
        source="https://docs.vllm.ai/en/latest/features/reasoning_outputs/",
        signs=(
            Sign(
                rows=("reasoning.*",),
                engines=_VLLM | _SGLANG | _LLAMA,
                said=_said(r"content holds marks of thinking"),
            ),
        ),
    ),
    RootCause(
        id="no-tool-parser",
        title="no tool parser is set",
        remedy="vLLM: --enable-auto-tool-choice --tool-call-parser NAME; SGLang: --tool-call-parser NAME, with the "
        "parser of the model. Without one vLLM refuses tools and SGLang returns calls as plain text.",
        source="https://docs.vllm.ai/en/latest/features/tool_calling/",
        signs=(
            Sign(
                rows=_TOOLS,
                engines=_VLLM,
                said=_said(r"--tool-call-parser|--enable-auto-tool-choice"),
            ),
            Sign(
                rows=(*_ASKS_FOR_TOOLS, "tools.round_trip", "tools.truncated", "sdk.tools", "responses.tools"),
                engines=_SGLANG,
                fields=(("tool_call_parser", "none"),),
            ),
            Sign(rows=_ASKS_FOR_TOOLS, engines=_SGLANG, said=_said(r"call came back as text")),
        ),
    ),
    RootCause(
        id="template-without-tools",
        title="the chat template knows no tools",
        remedy="llama.cpp: --jinja with --chat-template-file FILE, a template that renders tools. The template of "
        "these weights drops them, so the model never hears of a tool, and the server answers 200.",
        source="https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md",
        signs=(
            Sign(
                rows=(*_ASKS_FOR_TOOLS, "tools.round_trip", "tools.truncated", "sdk.tools", "responses.tools"),
                engines=_LLAMA,
                fields=(("template_tools", "no"),),
            ),
        ),
    ),
    RootCause(
        id="prefix-cache-off",
        title="the prefix cache is switched off",
        remedy="vLLM: --enable-prefix-caching (and no --no-enable-prefix-caching); SGLang: without "
        "--disable-radix-cache.",
        source="https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/",
        signs=(
            Sign(
                rows=("prefix_cache.*",),
                engines=_VLLM | _SGLANG,
                statuses=_UNSERVED,
                fields=(("prefix_caching", "False"),),
            ),
        ),
    ),
    RootCause(
        id="prompt-token-details-off",
        title="cached tokens are not reported in usage",
        remedy="vLLM: --enable-prompt-tokens-details. The cache itself may work; without the flag usage says null.",
        source="https://docs.vllm.ai/en/latest/cli/serve/",
        signs=(Sign(rows=("prefix_cache.reported",), engines=_VLLM, statuses=_UNSERVED | {Status.DEGRADED}),),
    ),
    RootCause(
        id="cache-report-off",
        title="cached tokens are not reported in usage",
        remedy="SGLang: --enable-cache-report. The cache itself may work; without the flag usage says null.",
        source="https://docs.sglang.io/advanced_features/server_arguments.html",
        signs=(
            Sign(rows=("prefix_cache.reported",), engines=_SGLANG, fields=(("cache_report", "False"),)),
            Sign(rows=("prefix_cache.reported",), engines=_SGLANG, said=_said(r"null|not report|no cached_tokens")),
        ),
    ),
    RootCause(
        id="metrics-behind-a-gateway",
        title="a gateway stands before the engine's metrics",
        remedy="In the endpoints file, metrics_url: the address of the engine's own /metrics, past the gateway (of one "
        "replica: the counters are then that replica's). Ray Serve: the address of Ray's metrics agent.",
        source="https://docs.vllm.ai/en/latest/usage/metrics/",
        signs=(Sign(rows=("metrics.exposed",), statuses=_UNSERVED, said=_said(r"a gateway (?:\(|may hide)")),),
    ),
    RootCause(
        id="gateway-buffers",
        title="a gateway or proxy buffers the stream",
        remedy="nginx: proxy_buffering off, or X-Accel-Buffering: no in the engine's reply; Envoy and llm-d: no filter "
        "that wants whole bodies (ext_proc response_body_mode: FULL_DUPLEX_STREAMED); no compression of "
        "text/event-stream. Ask the engine directly to see that it is not the engine.",
        source="https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
        signs=(Sign(rows=("streaming.incremental",), said=_said(r"as behind a proxy that gathers")),),
    ),
    RootCause(
        id="replicas-differ",
        title="unlike servers answer behind one address",
        remedy="Give each pool an address or a model name of its own and run servecheck on each; while they are mixed, "
        "every row of this report is about the mixture. A header that pins requests to one replica can be sent with "
        "--header (llm-d: x-session-token, as the gateway returned it).",
        source="https://platform.openai.com/docs/api-reference/chat/object",
        signs=(Sign(rows=("identity.replicas",), said=_said(r"\d fingerprints: |and none at all \d")),),
    ),
    RootCause(
        id="replicas-without-prefix-routing",
        title="replicas have a prefix cache each, and nothing routes by prefix",
        remedy="llm-d: the prefix-cache scorer of its endpoint picker; SGLang: its router with --policy cache_aware; "
        "Ray Serve: PrefixCacheAffinityRouter; LiteLLM and nginx: route by session or user (nginx: hash). Clients of "
        "llm-d can send x-session-token back.",
        source="https://docs.ray.io/en/latest/serve/llm/user-guides/prefix-aware-routing.html",
        signs=(Sign(rows=("prefix_cache.*",), said=_said(r"where replicas have a cache each")),),
    ),
    RootCause(
        id="metrics-off",
        title="metrics are switched off",
        remedy="SGLang: --enable-metrics; llama.cpp: --metrics.",
        source="https://docs.sglang.io/references/production_metrics.html",
        signs=(
            Sign(rows=("metrics.exposed",), engines=_SGLANG, statuses=_UNSERVED, said=_said(r"404")),
            Sign(rows=("metrics.exposed",), engines=_LLAMA, said=_said(r"Start it with `?--metrics|\b501\b")),
        ),
    ),
    RootCause(
        id="one-slot",
        title="the server has one slot, so requests wait for each other",
        remedy="llama.cpp: --parallel N, with N as large as the number of users at a time; the context is shared "
        "among the slots.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(Sign(rows=("concurrency.batching",), engines=_LLAMA, fields=(("slots", "1"),)),),
    ),
    RootCause(
        id="more-answers-than-slots",
        title="more answers were asked for than the server has slots",
        remedy="llama.cpp: --parallel N with N at least as large as the largest n; each answer takes a slot.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(Sign(rows=("chat.n",), engines=_LLAMA, said=_said(r"Value must be between 1 <= value <= \d+|slots")),),
    ),
    RootCause(
        id="embeddings-off",
        title="the server was started without embeddings",
        remedy="llama.cpp: --embeddings with --pooling; SGLang: a server of its own with --is-embedding; vLLM: a "
        "server of its own with --runner pooling.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(
            Sign(
                rows=("embeddings.*", "rerank.*"),
                engines=_LLAMA | _SGLANG,
                said=_said(r"Start it with `?--embeddings?|--is-embedding"),
            ),
        ),
    ),
    RootCause(
        id="reranking-off",
        title="the server was started without reranking",
        remedy="llama.cpp: a server of its own with --reranking and a model that ranks; vLLM and SGLang: a server of "
        "its own with a model that ranks or embeds.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(Sign(rows=("rerank.*",), engines=_LLAMA, said=_said(r"Start it with `?--rerank")),),
    ),
    RootCause(
        id="slots-cut-long-texts-of-a-batch",
        title="with several slots a long text beside others is embedded by its end alone",
        remedy="llama.cpp with mean pooling: --kv-unified, or --parallel 1, or --pooling last where the model was "
        "trained for it. Otherwise embed one text a request.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(Sign(rows=("embeddings.batch",), engines=_LLAMA, said=_said(r"cosine to the lone vector at least")),),
    ),
    RootCause(
        id="embedding-longer-than-a-batch",
        title="a text that is longer than the physical batch is a server error",
        remedy="llama.cpp: --ubatch-size and --batch-size at least as large as the longest text, in tokens.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(Sign(rows=("embeddings.*",), engines=_LLAMA, said=_said(r"increase the physical batch size")),),
    ),
    RootCause(
        id="no-matryoshka",
        title="the model is not known to have been trained for shorter vectors",
        remedy="Leave dimensions away, or cut and normalise in the client. vLLM and SGLang, for a model that was "
        "trained for it: is_matryoshka true in its config.json, or with --hf-overrides (SGLang: "
        "--json-model-override-args).",
        source="https://github.com/vllm-project/vllm/pull/16331",
        signs=(Sign(rows=("embeddings.dimensions",), engines=_VLLM | _SGLANG, said=_said(r"matryoshka")),),
    ),
    RootCause(
        id="model-takes-no-images",
        title="the model takes no images",
        remedy="Serve a model that does; llama.cpp: with --mmproj FILE, the projector that belongs to the model. It "
        "answers 500 without one, where a refusal would be right.",
        source="https://github.com/ggml-org/llama.cpp/blob/master/docs/multimodal.md",
        signs=(
            Sign(
                rows=("vision.*",),
                engines=_VLLM | _SGLANG | _LLAMA,
                said=_said(
                    r"not a multimodal model|only supports text input|image input is not supported|provide the mmproj"
                ),
            ),
        ),
    ),
    RootCause(
        id="model-hears-nothing",
        title="the model takes no audio",
        remedy="Serve a model that transcribes. SGLang has the route for every model, and answers 500 where a refusal "
        "would be right.",
        source="https://docs.sglang.io/supported_models/multimodal_language_models.html",
        signs=(
            Sign(
                rows=("audio.*",),
                engines=_SGLANG | _LLAMA,
                said=_said(r"does not support audio|Unexpected keyword argument '(?:_detect_)?language'"),
            ),
        ),
    ),
    RootCause(
        id="adapter-matches-nothing",
        title="an adapter is loaded and changes nothing",
        remedy="Compare target_modules in the adapter's adapter_config.json with the names of the model's modules, "
        "and see that its weights are not all zero; engines load what does not match without an error.",
        source="https://github.com/vllm-project/vllm/issues/55193",
        signs=(
            Sign(
                rows=("lora.effect",),
                engines=_VLLM | _SGLANG | _LLAMA,
                statuses=_UNSERVED,
                said=_said(r"changes nothing, to the last digit"),
            ),
        ),
    ),
    RootCause(
        id="seed-not-on-tpu",
        title="this TPU back end takes no seed per request",
        remedy="Leave seed away, or send it only at temperature 0; there is no flag. Applications that rely on it "
        "must stay on the other endpoint.",
        source="https://github.com/vllm-project/tpu-inference",
        signs=(
            Sign(rows=("*",), said=_said(r"JAX does not support per-request seed|per-request seed is not supported")),
        ),
    ),
    RootCause(
        id="repetition-penalty-has-another-name",
        title="repetition_penalty has another name here",
        remedy="llama.cpp: send repeat_penalty; repetition_penalty is an unknown field there, taken with a 200.",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        signs=(Sign(rows=("sampling.repetition_penalty",), engines=_LLAMA, statuses=frozenset({Status.IGNORED})),),
    ),
    RootCause(
        id="fields-of-vllm",
        title="these fields are vLLM's own",
        remedy="Ban or confine tokens with logit_bias, end a text with stop strings; there is no flag. Fields that a "
        "server does not know are taken with a 200.",
        source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",
        signs=(
            Sign(
                rows=("sampling.bad_words", "sampling.allowed_token_ids"),
                engines=_SGLANG | _LLAMA,
                statuses=frozenset({Status.IGNORED}),
            ),
            Sign(
                rows=("sampling.stop_token_ids", "sampling.min_tokens"),
                engines=_LLAMA,
                statuses=frozenset({Status.IGNORED}),
            ),
        ),
    ),
    RootCause(
        id="bad-words-of-several-tokens",
        title="bad_words misses words that a space makes shorter",
        remedy="Ban the word's tokens with logit_bias -100, ids from /tokenize with a space in front. vLLM leaves out "
        "a banned word's form behind a space where that has another number of tokens.",
        source="https://github.com/vllm-project/vllm/issues/32557",
        signs=(Sign(rows=("sampling.bad_words",), engines=_VLLM, said=_said(r"another word does stay away")),),
    ),
    RootCause(
        id="deterministic-inference-off",
        title="the sampler reads no seed in this mode",
        remedy="SGLang: --enable-deterministic-inference (slower, and not on every device).",
        source="https://docs.sglang.io/advanced_features/deterministic_inference.html",
        signs=(
            Sign(
                rows=("sampling.seed",),
                engines=_SGLANG,
                statuses=_SHORT - {Status.UNSUPPORTED},
                fields=(("deterministic", "False"),),
            ),
            Sign(rows=("sampling.seed",), engines=_SGLANG, statuses=frozenset({Status.IGNORED})),
        ),
    ),
    RootCause(
        id="arguments-need-strict",
        title="tool arguments are enforced only with strict",
        remedy="Send strict: true with each function, or enforce it for all: vLLM --tool-strict-level parameter, "
        "SGLang the environment variable SGLANG_TOOL_STRICT_LEVEL.",
        source="https://docs.vllm.ai/en/latest/features/tool_calling/",
        signs=(Sign(rows=("tools.*", "sdk.tools"), engines=_VLLM | _SGLANG, said=_said(r"only with strict: true")),),
    ),
    RootCause(
        id="first-schema-chose-the-back-end",
        title="the first structured request chose a grammar back end that cannot call tools",
        remedy="vLLM: restart and let one plain json_object request go first (a readiness hook), or name the "
        "back end: --structured-outputs-config.backend xgrammar. With “auto” the first structured request that a "
        "server gets chooses for everybody, and one that uses multipleOf chooses the one without tool calls.",
        source="https://github.com/vllm-project/vllm/issues/55152",
        signs=(Sign(rows=("structured.keywords",), engines=_VLLM, said=_said(r"a forced tool call fails")),),
    ),
    RootCause(
        id="template-and-parser-disagree",
        title="the model does not write what the tool parser expects",
        remedy="llama.cpp: --jinja with --chat-template-file FILE, the template that the model was trained with. The "
        "engine derives its parser from the template, and answers 500 to whatever the model writes otherwise.",
        source="https://github.com/ggml-org/llama.cpp/issues/27025",
        signs=(Sign(rows=_TOOLS, engines=_LLAMA, said=_said(r"does not match the expected [\w-]+ format")),),
    ),
    RootCause(
        id="named-choice-taken-for-auto",
        title="a named tool_choice is taken for auto",
        remedy="Send only the tool that shall be called, with tool_choice: required; the engine reads no object here.",
        source="https://github.com/ggml-org/llama.cpp/pull/28806",
        signs=(Sign(rows=("tools.named",), engines=_LLAMA, said=_said(r"as it does without the choice")),),
    ),
    RootCause(
        id="parallel-calls-are-opt-in",
        title="parallel tool calls must be asked for",
        remedy="Send parallel_tool_calls: true with every request that may call several tools.",
        source="https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md",
        signs=(
            Sign(
                rows=("tools.parallel",),
                engines=_LLAMA,
                said=_said(r"without parallel_tool_calls, \d+ with true"),
            ),
        ),
    ),
    RootCause(
        id="tools-shown-although-off",
        title="the model is told of the tools although they are off",
        remedy="Leave tools away where none shall be called. vLLM: --exclude-tools-when-tool-choice-none.",
        source="https://docs.vllm.ai/en/latest/features/tool_calling/",
        signs=(
            Sign(
                rows=("tools.none",),
                engines=_LLAMA | _VLLM | _SGLANG,
                said=_said(r"told of the tools although they are off"),
            ),
        ),
    ),
    RootCause(
        id="compiled-while-serving",
        title="shapes are compiled while requests wait",
        remedy="Send a request of each shape to each replica after a start, before traffic. vLLM on TPU: leave "
        "SKIP_JAX_PRECOMPILE and --enforce-eager away, keep VLLM_XLA_CACHE_PATH on a disk that stays. SGL-JAX: "
        "--precompile-token-paddings, --precompile-bs-paddings, JAX_COMPILATION_CACHE_DIR.",
        source="https://docs.vllm.ai/en/latest/design/torch_compile/",
        signs=(
            Sign(
                rows=("compile.recompilation",),
                engines=_VLLM | _SGLANG,
                said=_said(r"shapes stalled at their first use"),
            ),
        ),
    ),
    RootCause(
        id="response-store-off",
        title="responses are not stored",
        remedy="vLLM: VLLM_ENABLE_RESPONSES_API_STORE=1 in the server's environment (it keeps all in memory, and never "
        "forgets); SGLang: --enable-response-store. Or send the whole conversation as input.",
        source="https://docs.vllm.ai/en/latest/configuration/env_vars/",
        signs=(
            Sign(rows=("responses.previous",), engines=_VLLM, said=_said(r"Response with id '\S+' not found")),
            Sign(rows=("responses.previous",), engines=_SGLANG, said=_said(r"Response store is disabled")),
        ),
    ),
    RootCause(
        id="text-format-unread",
        title="the responses route does not read text.format",
        remedy="Send requests with a schema to /v1/chat/completions, as response_format; the engine applies it there.",
        source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        signs=(
            Sign(
                rows=("responses.structured", "structured.responses"),
                engines=_LLAMA,
                statuses=frozenset({Status.IGNORED}),
            ),
        ),
    ),
    RootCause(
        id="white-space-unbounded",
        title="the grammar allows white space without end",
        remedy="vLLM: --structured-outputs-config.disable_any_whitespace true; SGLang: "
        "--constrained-json-disable-any-whitespace. Else a model may write blanks until max_tokens.",
        source="https://docs.vllm.ai/en/stable/api/vllm/config/structured_outputs/",
        signs=(
            Sign(
                rows=("structured.*",),
                engines=_VLLM | _SGLANG,
                said=_said(r"characters of white space in a row"),
            ),
        ),
    ),
    RootCause(
        id="template-without-developer",
        title="the chat template knows no developer role",
        remedy="Use a template that takes developer for system, or send such messages as system. Templates of most "
        "open models know system, user, assistant and tool only.",
        source="https://github.com/sgl-project/sglang/issues/40082",
        signs=(
            Sign(
                rows=("chat.multi_turn",),
                engines=_VLLM | _SGLANG | _LLAMA,
                said=_said(r"role developer is refused|behind a developer's message"),
            ),
        ),
    ),
    RootCause(
        id="guided-fields-renamed",
        title="the old guided_* fields are gone",
        remedy="vLLM: send structured_outputs instead; SGLang: regex, ebnf or response_format. Unknown fields are "
        "taken with 200, so the old ones fail without a sound.",
        source="https://github.com/vllm-project/vllm/issues/53975",
        signs=(Sign(rows=("structured.legacy_guided",), engines=_VLLM | _SGLANG, said=_said(r"ignored")),),
    ),
)
"""All causes known, the more fundamental first: where two could explain a row, the first one is named."""
