"""Endpoints from arguments, files and the environment: URLs, models, the reference, and every rule of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from servecheck import endpoints
from servecheck.endpoints import NO_KEY, normal_url, pick_model, resolve
from servecheck.errors import ScenarioError, UnknownName, UsageError
from servecheck.model import Endpoint
from servecheck.yamlfile import read
from tests.two_endpoints import GPU, SECRET, TPU, refused


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Path:
    path = Path("endpoints.yaml")
    path.write_text(text, encoding="utf-8")
    return path


# --------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://gpu:8000", "http://gpu:8000/v1"),
        ("http://gpu:8000/", "http://gpu:8000/v1"),
        ("http://gpu:8000/v1", "http://gpu:8000/v1"),
        ("http://gpu:8000/v1//", "http://gpu:8000/v1"),
        ("https://gpu.example/team/openai/", "https://gpu.example/team/openai"),
        ("HTTPS://GPU.Example/Team", "https://gpu.example/Team"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
        ("https://gpu.example/@team/v1", "https://gpu.example/@team/v1"),
    ],
)
def test_a_url_becomes_the_root_that_requests_are_built_on(given, url):
    assert url == normal_url(given)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://gpu/v1", "expected a URL that begins with http:// or https://"),
        ("gpu:8000", "expected a URL that begins with http:// or https://"),
        ("", "expected a URL that begins with http:// or https://"),
        ("http://", "not a URL: no host"),
        ("http:///v1", "not a URL: no host"),
        ("http://:8000", "not a URL: no host"),
        ("http://gpu:0", "not a URL: port 0"),
        ("http://gpu:eight", "not a URL: its host or port cannot be read"),
        ("http://gpu:99999", "not a URL: its host or port cannot be read"),
        ("http://[::1", "not a URL: its host or port cannot be read"),
        ("http://gpu/v1?key=x", "a URL with a query is refused"),
        ("http://gpu/v1?", "a URL with a query is refused"),
        ("http://gpu/v1#x", "a URL with a fragment is refused"),
        ("http://gpu /v1", "a URL holds no spaces, backslashes or control characters"),
        ("http://gpu\\v1", "a URL holds no spaces, backslashes or control characters"),
        ("http://gpu/\n", "a URL holds no spaces, backslashes or control characters"),
        ("http://gpu/v1/chat/completions", "expected the API root, not a route; leave out /chat/completions"),
        ("http://gpu/v1/models/", "expected the API root, not a route; leave out /models"),
        (
            "http://me:pw@gpu/v1",
            "credentials in a URL are refused; name a variable that holds the key with --api-key-env",
        ),
        ("http://me@gpu", "credentials in a URL are refused; name a variable that holds the key with --api-key-env"),
        ("ftp://:@gpu", "credentials in a URL are refused; name a variable that holds the key with --api-key-env"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url, expected):
    with pytest.raises(UsageError) as caught:
        normal_url(url)

    assert expected == str(caught.value)


def test_only_the_api_root_gets_a_path_and_may_be_no_route():
    assert normal_url("http://gpu:9090/", root=False) == "http://gpu:9090"
    assert normal_url("http://gpu/v1/models", root=False) == "http://gpu/v1/models"


# --------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("argument", "name", "url"),
    [
        ("gpu=http://h:8000", "gpu", "http://h:8000/v1"),
        ("vllm-0.11_a=http://h", "vllm-0.11_a", "http://h/v1"),
        ("http://127.0.0.1:8000", "127.0.0.1-8000", "http://127.0.0.1:8000/v1"),
        ("https://API.example/v1", "api.example", "https://api.example/v1"),
        ("http://[::1]:8000", "endpoint", "http://[::1]:8000/v1"),
        (f"http://{'h' * 41}", "endpoint", f"http://{'h' * 41}/v1"),
    ],
)
def test_an_argument_is_a_named_url_or_a_url_named_after_its_host(argument, name, url):
    assert (Endpoint(name=name, base_url=url),) == resolve([argument], environ={})


NAME_RULE = "expected at most 40 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no endpoint: give NAME=URL, --endpoints FILE, or set OPENAI_BASE_URL"),
        (
            ["localhost:8000"],
            (
                "endpoint 'localhost:8000': expected NAME=URL or a URL that begins with http://; "
                "did you mean http://localhost:8000?"
            ),
        ),
        (
            ["gpu:http://h:1/v1"],
            (
                "endpoint 'gpu:http://h:1/v1': expected NAME=URL or a URL that begins with http://; "
                "did you mean NAME=URL, 'gpu=http://h:1/v1'?"
            ),
        ),
        (["two words"], "endpoint 'two words': expected NAME=URL or a URL that begins with http://"),
        (["gpu=localhost:8000"], "endpoint 'gpu': expected a URL that begins with http:// or https://"),
        (["GPU=http://h"], f"endpoint name 'GPU': {NAME_RULE}"),
        (["=http://h"], f"endpoint name '': {NAME_RULE}"),
        ([".a=http://h"], f"endpoint name '.a': {NAME_RULE}"),
        ([f"{'a' * 41}=http://h"], f"endpoint name '{'a' * 41}': {NAME_RULE}"),
        (["gpu=http://h", "gpu=http://i"], "two endpoints are named 'gpu'; give each a name of its own: NAME=URL"),
        (["http://h/a", "http://h/b"], "two endpoints are named 'h'; give each a name of its own: NAME=URL"),
        (["http://h/v1?key=x"], "endpoint 'http://h/v1': a URL with a query is refused"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused(arguments, expected):
    assert expected == refused(arguments)


@pytest.mark.parametrize(
    "argument",
    [
        f"gpu=http://me:{SECRET}@gpu/v1",
        f"http://me:{SECRET}@gpu/v1",
        f"http://{SECRET}@gpu",
        f"me:{SECRET}@gpu:8000",
        f"http://gpu/v1?key={SECRET}",
        f"http://gpu/v1#{SECRET}",
        f"http://me:{SECRET}@gpu:port/v1",
        f"http://me:{SECRET}@gpu /v1",
        f"me:{SECRET}@gpu=x",
    ],
)
def test_no_refusal_repeats_a_secret(argument):
    assert SECRET not in refused([argument])


# --------------------------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"OPENAI_BASE_URL": "https://one.example"}, "one.example"),
        ({"SERVECHECK_BASE_URL": "https://two.example"}, "two.example"),
        ({"OPENAI_BASE_URL": "https://one.example", "SERVECHECK_BASE_URL": "https://two.example"}, "two.example"),
        ({"OPENAI_BASE_URL": "https://one.example", "SERVECHECK_BASE_URL": ""}, "one.example"),
    ],
)
def test_without_arguments_the_environment_names_the_endpoint(environ, name):
    assert (Endpoint(name=name, base_url=f"https://{name}/v1"),) == resolve([], environ=environ)


def test_the_environment_adds_no_endpoint_to_those_that_are_given():
    assert [item.name for item in resolve([GPU], environ={"OPENAI_BASE_URL": "https://one.example"})] == ["gpu"]


def test_a_bad_url_in_the_environment_names_the_variable_and_repeats_nothing():
    assert refused([], environ={"OPENAI_BASE_URL": f"https://me:{SECRET}@one.example"}) == (
        "OPENAI_BASE_URL: credentials in a URL are refused; name a variable that holds the key with --api-key-env"
    )


# --------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([], [None, None]),
        (["org/m"], ["org/m", "org/m"]),
        (["tpu=org/t"], [None, "org/t"]),
        (["org/m", "tpu=org/t"], ["org/m", "org/t"]),
        (["tpu=a=b"], [None, "a=b"]),
    ],
)
def test_a_model_is_for_one_endpoint_or_for_all(models, expected):
    assert expected == [item.model for item in resolve([GPU, TPU], models=models, environ={})]


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (["tup=org/t"], "unknown endpoint 'tup'; did you mean 'tpu'?"),
        (["org/m=x"], "--model: expected ID or NAME=ID, where NAME is one of gpu, tpu"),
        (["gpu="], "--model gpu=: expected ID or NAME=ID"),
        ([""], "--model : expected ID or NAME=ID"),
        (["a", "b"], "--model b: every endpoint has one already"),
        (["gpu=a", "gpu=b"], "--model gpu=b: endpoint 'gpu' has one already"),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused(models, expected):
    assert expected == refused([GPU, TPU], models=models)


def test_the_model_is_the_named_one_or_the_only_one_that_is_served():
    gpu = Endpoint(name="gpu", base_url="http://h/v1")

    assert pick_model(gpu, ["m"]) == "m"
    assert pick_model(Endpoint(name="gpu", base_url="http://h/v1", model="named"), ["a", "b"]) == "named"


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ([], "endpoint 'gpu' lists no model; name one with --model gpu=ID"),
        (["a", "b"], "endpoint 'gpu' serves 2 models (a, b); name one with --model gpu=ID"),
        (list("abcdefghi"), "endpoint 'gpu' serves 9 models (a, b, c, d, e, f, g, h, …); name one with --model gpu=ID"),
    ],
)
def test_the_model_is_not_guessed(served, expected):
    with pytest.raises(UsageError) as caught:
        pick_model(Endpoint(name="gpu", base_url="http://h/v1"), served)

    assert expected == str(caught.value)


# --------------------------------------------------------------------------- reference


@pytest.mark.parametrize(
    ("arguments", "reference", "expected"),
    [
        ([GPU], None, []),
        ([GPU, TPU], None, ["gpu"]),
        ([TPU, GPU], None, ["tpu"]),
        ([GPU, TPU], "tpu", ["tpu"]),
        ([GPU, TPU], "none", []),
        ([GPU], "none", []),
    ],
)
def test_the_reference_is_the_named_endpoint_else_the_first_of_several(arguments, reference, expected):
    found = resolve(arguments, reference=reference, environ={})

    assert expected == [item.name for item in found if item.reference]


def test_a_reference_that_is_not_there_or_has_nothing_to_compare_is_refused():
    assert refused([GPU, TPU], reference="tup") == "unknown endpoint 'tup'; did you mean 'tpu'?"
    assert refused([GPU], reference="gpu") == "--reference gpu: there is no other endpoint to compare with it"


FILE = """\
schema: servecheck/endpoints/v1
endpoints:
  - name: old
    base_url: https://old.example
  - name: base
    base_url: https://base.example
    reference: true
"""


@pytest.mark.parametrize(("flag", "expected"), [(None, ["base"]), ("old", ["old"]), ("gpu", ["gpu"]), ("none", [])])
def test_the_flag_wins_over_the_files_reference(flag, expected):
    found = resolve([GPU], file=written(FILE), reference=flag, environ={})

    assert (["old", "base", "gpu"], expected) == (
        [item.name for item in found],
        [item.name for item in found if item.reference],
    )


def test_a_single_endpoint_of_a_file_is_no_reference():
    text = "schema: servecheck/endpoints/v1\nendpoints: {gpu: {base_url: 'https://gpu', reference: true}}\n"

    assert [item.reference for item in resolve([], file=written(text), environ={})] == [False]


# --------------------------------------------------------------------------- files


WHOLE = """\
schema: servecheck/endpoints/v1
endpoints:
  gpu:
    base_url: https://gpu.example
    model: org/m
    reference: true
    api_key_env: GPU_KEY
    headers: {X-Team: a}
    headers_env: {X-Token: TOKEN}
    ca_file: certs/ca.pem
    proxy: http://proxy:3128
    metrics_url: http://gpu.example:9090/metrics
    kind: chat
    allow_insecure_key: true
    declared: {engine: vllm, device: h100, precision: bf16}
  tpu:
    base_url: http://tpu.example
    api_key_env: none
"""


def test_a_file_says_all_that_an_endpoint_has(tmp_path):
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "ca.pem").touch()
    (tmp_path / "endpoints.yaml").write_text(WHOLE)

    assert (
        Endpoint(
            name="gpu",
            base_url="https://gpu.example/v1",
            model="org/m",
            reference=True,
            api_key_env="GPU_KEY",
            headers=(("X-Team", "a"),),
            header_envs=(("X-Token", "TOKEN"),),
            ca_file=str(tmp_path / "certs" / "ca.pem"),
            proxy="http://proxy:3128",
            metrics_url="http://gpu.example:9090/metrics",
            insecure_key=True,
            kind="chat",
            declared={"engine": "vllm", "device": "h100", "precision": "bf16"},
        ),
        Endpoint(name="tpu", base_url="http://tpu.example/v1", api_key_env=NO_KEY),
    ) == resolve([], file=tmp_path / "endpoints.yaml", environ={"GPU_KEY": "k", "TOKEN": "t", "OPENAI_API_KEY": "o"})


def test_flags_win_over_the_file():
    text = FILE.replace("old.example\n", "old.example\n    model: m\n    api_key_env: A\n    headers: {X-Team: a}\n")

    old, *_ = resolve(
        [],
        file=written(text),
        models=["old=n"],
        api_key_envs=["old=B"],
        headers=["x-team: b"],
        environ={"B": "b"},
    )

    assert (old.model, old.api_key_env, old.headers) == ("n", "B", (("x-team", "b"),))


def test_an_argument_cannot_take_the_name_of_an_endpoint_of_the_file():
    assert (
        refused(["old=http://h"], file=written(FILE))
        == "two endpoints are named 'old'; give each a name of its own: NAME=URL"
    )


def test_a_secret_header_obeys_the_rules_of_a_key():
    text = (
        "schema: servecheck/endpoints/v1\nendpoints: {gpu: {base_url: 'http://gpu:8000', headers_env: {X-Token: T}}}\n"
    )

    assert refused([], file=written(text)) == "endpoint 'gpu': the environment variable T is not set"
    assert refused([], file=written(text), environ={"T": SECRET}) == (
        "endpoint 'gpu': T would travel unencrypted to gpu (plain http); "
        "use https, or allow it with --allow-insecure-key"
    )


def test_all_problems_of_a_file_are_told_at_once_and_no_secret():
    text = f"""\
schema: servecheck/endpoints/v1
endpoints:
  - name: gpu
    base_url: http://me:{SECRET}@gpu/v1
    api_key: {SECRET}
    reference: true
  - name: gpu
    base_url: ftp://gpu
    api_key_env: {SECRET}
    reference: true
    proxy: http://me:{SECRET}@proxy:3128
    headers:
      Authorization: Bearer {SECRET}
      X-Team: "a\\nb"
      Host: x
  - name: Tpu
    headers_env: {{X-Token: "{SECRET}", X-Team: TEAM}}
    headers: {{x-team: a}}
    ca_file: none.pem
    kind: chats
    declared: {{engine_version: 0.11, Device: x}}
"""
    with pytest.raises(ScenarioError) as caught:
        resolve([], file=written(text), environ={})

    assert SECRET not in str(caught.value)
    assert (
        str(caught.value)
        == """\
endpoints.yaml:4:15: credentials in a URL are refused; name a variable that holds the key with api_key_env
      base_url: http://•••••••••••••••••••••@gpu/v1
                ^
endpoints.yaml:5:5: unknown key 'api_key'
      api_key: ••••••••••••••••••
      ^
  did you mean 'api_key_env'?
endpoints.yaml:7:11: two endpoints are named 'gpu'
    - name: gpu
            ^
endpoints.yaml:8:15: expected a URL that begins with http:// or https://
      base_url: ftp://gpu
                ^
endpoints.yaml:9:18: expected the name of an environment variable that holds the key, never the key itself
endpoints.yaml:10:16: the endpoint 'gpu' is the reference already
      reference: true
                 ^
endpoints.yaml:11:12: credentials in a URL are refused; name a variable that holds the key with api_key_env
      proxy: http://•••••••••••••••••••••@proxy:3128
             ^
endpoints.yaml:13:7: a secret is never written out; name its variable with api_key_env, or headers_env
endpoints.yaml:14:7: the value holds characters that no header can carry
endpoints.yaml:15:7: this header is set by the client
endpoints.yaml:16:5: missing key 'base_url'
    - name: Tpu
      ^
endpoints.yaml:16:11: expected a text like ^[a-z0-9][a-z0-9._-]{0,39}$, got the text 'Tpu'
    - name: Tpu
            ^
endpoints.yaml:17:28: expected the name of an environment variable that holds the key, never the key itself
endpoints.yaml:17:50: the header 'X-Team' is in 'headers' too
      headers_env: {X-Token: "••••••••••••••••••", X-Team: TEAM}
                                                   ^
endpoints.yaml:19:14: no such file: none.pem
      ca_file: none.pem
               ^
endpoints.yaml:20:11: expected 'chat', 'completion', 'embedding', 'rerank', 'transcription' or 'image', \
got the text 'chats'
      kind: chats
            ^
  did you mean 'chat'?
endpoints.yaml:21:32: expected a text, got 0.11
      declared: {engine_version: 0.11, Device: x}
                                 ^
  to give a text, put it in quotes
endpoints.yaml:21:38: expected a text like ^[a-z][a-z0-9_]*$, got the text 'Device'
      declared: {engine_version: 0.11, Device: x}
                                       ^"""
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("endpoints: 5", "2:12: expected a list or a mapping of endpoints, got 5\n  endpoints: 5\n             ^"),
        ("endpoints: []", "2:12: expected at least 1 item, got 0\n  endpoints: []\n             ^"),
        ("endpoints: {}", "2:12: expected at least 1 item, got 0\n  endpoints: {}\n             ^"),
        (
            "endpoints: {GPU: {base_url: 'http://h'}}",
            (
                "2:13: expected a text like ^[a-z0-9][a-z0-9._-]{0,39}$, got the text 'GPU'\n"
                "  endpoints: {GPU: {base_url: 'http://h'}}\n              ^"
            ),
        ),
        (
            "endpoints: {gpu: {base_ulr: 'http://h'}}",
            (
                "2:13: missing key 'base_url' in 'gpu'\n"
                "  endpoints: {gpu: {base_ulr: 'http://h'}}\n              ^\n"
                "endpoints.yaml:2:19: unknown key 'base_ulr'\n"
                "  endpoints: {gpu: {base_ulr: 'http://h'}}\n                    ^\n  did you mean 'base_url'?"
            ),
        ),
        ("endpoint: []", None),
    ],
)
def test_a_wrong_shape_is_told_whole(text, expected):
    with pytest.raises(ScenarioError) as caught:
        endpoints.load_file(written(f"schema: servecheck/endpoints/v1\n{text}\n"))

    if expected is not None:
        assert f"endpoints.yaml:{expected}" == str(caught.value)
    else:
        assert "did you mean 'endpoints'?" in str(caught.value)


def test_an_unknown_name_is_a_usage_error_with_its_suggestion():
    with pytest.raises(UnknownName) as caught:
        resolve([GPU, TPU], reference="gpuu", environ={})

    assert (caught.value.kind, caught.value.name, caught.value.suggestion) == ("endpoint", "gpuu", "gpu")


# --------------------------------------------------------------------------- what is declared


def told_of(declared: str, folder: Path) -> list[str]:
    path = folder / "endpoints.yaml"
    path.write_text(
        f"schema: servecheck/endpoints/v1\nendpoints: {{a: {{base_url: 'http://a', declared: {declared}}}}}\n", "utf-8"
    )
    return [f"{each.message}; {each.suggestion}" for each in endpoints.problems_of(read(path), folder)]


STACKS = "there are tpu-inference, torchtpu, sglang-torchtpu, sgl-jax"


@pytest.mark.parametrize(
    ("expected", "declared"),
    [
        (["unknown field 'devise'; did you mean 'device'?"], "{devise: TPU}"),
        (["unknown field 'quantisation'; did you mean 'quantization'?"], "{quantisation: awq}"),
        ([f"unknown stack 'torchtpuu'; did you mean 'torchtpu'? {STACKS}"], "{tpu_stack: torchtpuu}"),
        ([f"unknown stack 'mine'; {STACKS}"], "{tpu_stack: mine}"),
        (["unknown format 'fp88'; did you mean 'fp8'?"], "{quantization: fp88}"),
        (["unknown format 'compresed-tensors'; did you mean 'compressed-tensors'?"], "{precision: compresed-tensors}"),
        (
            ["unknown field 'tpu_stak'; did you mean 'tpu_stack'?", f"unknown stack 'mine'; {STACKS}"],
            "{tpu_stak: mine}",
        ),
        ([], "{region: us-east5, team: search, zone: b, owner: me, price: '3'}"),
        ([], "{tpu_stack: TorchTPU, quantization: gptq-int4, precision: bf16}"),
        ([], "{tpu_stack: none, quantization: none}"),
        ([], "{quantization: mxfp8, precision: int6}"),
        ([], "{quantization: Q4_K_M}"),
        ([], "{quantization: our-own-recipe}"),
    ],
)
def test_what_is_declared_may_be_new_and_is_no_slip(expected, declared, tmp_path):
    assert told_of(declared, tmp_path) == expected
