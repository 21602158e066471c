"""Keys and headers of endpoints: where each comes from, where it may travel, and that no refusal shows one."""

from __future__ import annotations

import pytest

from servecheck.endpoints import NO_KEY, api_key, is_private, resolve, secret_headers
from servecheck.errors import UsageError
from servecheck.model import Endpoint
from tests.two_endpoints import GPU, SECRET, TPU, refused

LOCAL = ["http://localhost:1", "http://LOCALHOST", "http://127.0.0.1:1", "http://127.9.8.7", "http://[::1]:1"]
REMOTE = [
    "http://gpu",
    "http://10.0.0.5:8000",
    "http://0.0.0.0",
    "http://localhost.example",
    "http://127.0.0.1.example",
    "http://128.0.0.1",
    "http://127.1",
    "http://[::2]",
    "http://[::ffff:127.0.0.1]",
]


@pytest.mark.parametrize("url", [*LOCAL, "https://gpu", "https://10.0.0.5"])
def test_a_key_travels_over_https_and_inside_this_machine(url):
    (endpoint,) = resolve([f"e={url}"], environ={"OPENAI_API_KEY": "k"})

    assert api_key(endpoint, {"OPENAI_API_KEY": "k"}) == "k"


@pytest.mark.parametrize("url", REMOTE)
def test_a_key_does_not_travel_over_plain_http_to_another_host_unless_told(url):
    environ = {"OPENAI_API_KEY": SECRET, "GPU_KEY": SECRET}

    assert SECRET not in refused([f"e={url}"], environ=environ)
    assert SECRET not in refused([f"e={url}"], api_key_envs=["e=GPU_KEY"], environ=environ)
    (endpoint,) = resolve([f"e={url}"], allow_insecure_key=True, environ=environ)
    assert api_key(endpoint, environ) == SECRET
    (endpoint,) = resolve([f"e={url}"], api_key_envs=["e=none"], environ=environ)
    assert api_key(endpoint, environ) is None
    (endpoint,) = resolve([f"e={url}"], environ={})
    assert api_key(endpoint, {}) is None


def test_the_refusal_says_which_key_where_and_what_to_do():
    environ = {"OPENAI_API_KEY": SECRET, "GPU_KEY": SECRET}

    assert refused(["gpu=http://gpu.internal:8000"], environ=environ) == (
        "endpoint 'gpu': OPENAI_API_KEY would travel unencrypted to gpu.internal (plain http); "
        "use https, send none with --api-key-env gpu=none, or allow it with --allow-insecure-key"
    )
    assert refused(["gpu=http://gpu.internal:8000"], api_key_envs=["gpu=GPU_KEY"], environ=environ) == (
        "endpoint 'gpu': GPU_KEY would travel unencrypted to gpu.internal (plain http); "
        "use https, or allow it with --allow-insecure-key"
    )


def test_plain_http_to_this_machine_through_a_proxy_elsewhere_is_not_private():
    url = "http://127.0.0.1:8000/v1"
    endpoint = Endpoint(name="gpu", base_url=url, proxy="http://proxy:3128")

    assert (
        is_private(url),
        is_private(url, "http://localhost:3128"),
        is_private(url, "http://proxy:3128"),
    ) == (True, True, False)
    assert is_private("https://gpu/v1", "http://proxy:3128")
    with pytest.raises(UsageError, match=r"unencrypted to 127\.0\.0\.1 through a proxy"):
        api_key(endpoint, {"OPENAI_API_KEY": SECRET})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"OPENAI_API_KEY": "o"}, "o"),
        ({"OPENAI_API_KEY": ""}, None),
        ({"SERVECHECK_API_KEY": "s"}, "s"),
        ({"SERVECHECK_API_KEY": "s", "OPENAI_API_KEY": "o"}, "s"),
        ({"SERVECHECK_API_KEY": "", "OPENAI_API_KEY": "o"}, "o"),
    ],
)
def test_an_endpoint_without_a_key_of_its_own_gets_the_environments(environ, expected):
    assert expected == api_key(Endpoint(name="gpu", base_url="https://gpu/v1"), environ)


def test_a_key_of_its_own_wins_and_an_authorization_header_replaces_the_environments():
    environ = {"OPENAI_API_KEY": "o", "GPU_KEY": "g", "AUTH": "Basic x"}
    own = Endpoint(name="gpu", base_url="https://gpu/v1", api_key_env="GPU_KEY")
    header = Endpoint(name="gpu", base_url="https://gpu/v1", header_envs=(("authorization", "AUTH"),))

    assert api_key(own, environ) == "g"
    assert api_key(header, environ) is None
    assert secret_headers(header, environ) == (("authorization", "Basic x"),)


@pytest.mark.parametrize(
    ("flag", "environ", "expected"),
    [
        ("gpu=GPU_KEY", {}, "endpoint 'gpu': the environment variable GPU_KEY is not set"),
        ("gpu=GPU_KEY", {"GPU_KEY": " "}, "endpoint 'gpu': the environment variable GPU_KEY is empty"),
        (
            "gpu=GPU_KEY",
            {"GPU_KEY": f"{SECRET}\r\nX: y"},
            "endpoint 'gpu': the value of GPU_KEY holds characters that no header can carry",
        ),
        (
            "gpu=GPU_KEY",
            {"GPU_KEY": f"{SECRET}é"},
            "endpoint 'gpu': the value of GPU_KEY holds characters that no header can carry",
        ),
        ("GPU_KEY", {}, "endpoint 'gpu': the environment variable GPU_KEY is not set"),
        (
            SECRET,
            {},
            "--api-key-env: expected the name of an environment variable that holds the key, never the key itself",
        ),
        ("gup=GPU_KEY", {"GPU_KEY": "k"}, "unknown endpoint 'gup'; did you mean 'gpu'?"),
        (
            f"gpu={SECRET}",
            {},
            (
                "--api-key-env gpu=…: expected the name of an environment variable that holds the key, "
                "never the key itself"
            ),
        ),
        (
            "gpu=sk_abcdef",
            {},
            (
                "--api-key-env gpu=…: expected the name of an environment variable that holds the key, "
                "never the key itself"
            ),
        ),
    ],
)
def test_a_key_that_cannot_be_had_is_refused_before_anything_is_sent(flag, environ, expected):
    assert expected == refused([GPU, TPU], api_key_envs=[flag], environ=environ)


def test_a_variable_may_be_in_lower_case_where_it_exists():
    (endpoint,) = resolve([GPU], api_key_envs=["gpu=gpu_key"], environ={"gpu_key": "k"})

    assert endpoint.api_key_env == "gpu_key"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["GPU_KEY"], ["GPU_KEY", "GPU_KEY"]),
        (["GPU_KEY", "tpu=TPU_KEY"], ["GPU_KEY", "TPU_KEY"]),
        (["tpu=TPU_KEY", "GPU_KEY"], ["GPU_KEY", "TPU_KEY"]),
        (["GPU_KEY", "tpu=none"], ["GPU_KEY", NO_KEY]),
        (["none"], [NO_KEY, NO_KEY]),
        (["none", "gpu=GPU_KEY"], ["GPU_KEY", NO_KEY]),
    ],
)
def test_a_variable_without_a_name_is_for_every_endpoint_that_none_is_given_for(flags, expected):
    found = resolve([GPU, TPU], api_key_envs=flags, environ={"GPU_KEY": "a", "TPU_KEY": "b"})

    assert [endpoint.api_key_env for endpoint in found] == expected


def test_every_endpoint_has_one_key_too():
    assert (
        refused([GPU], api_key_envs=["A", "B"], environ={"A": "a", "B": "b"})
        == "--api-key-env: every endpoint has one already"
    )


def test_an_endpoint_has_one_key():
    assert (
        refused([GPU], api_key_envs=["gpu=A", "gpu=B"], environ={"A": "a", "B": "b"})
        == "--api-key-env gpu=…: endpoint 'gpu' has one already"
    )


# --------------------------------------------------------------------------- headers


def test_a_header_is_for_one_endpoint_or_for_all_and_the_last_one_wins():
    found = resolve([GPU, TPU], headers=["X-Team: a", "tpu=x-team:  b:c "], environ={})

    assert [item.headers for item in found] == [(("X-Team", "a"),), (("x-team", "b:c"),)]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("X-Team", "--header: expected 'Name: value' or 'NAME=Name: value'"),
        ("X Team: a", "--header 'X Team': not the name of a header"),
        (": a", "--header '': not the name of a header"),
        ("X-Team: a\nb", "--header 'X-Team': the value holds characters that no header can carry"),
        ("Host: a", "--header 'Host': this header is set by the client"),
        ("tup=X-Team: a", "unknown endpoint 'tup'; did you mean 'tpu'?"),
        *[
            (
                f"{name}: {SECRET}",
                (
                    f"--header '{name}': a secret is never written out; name its variable with --api-key-env, "
                    "or headers_env in a file"
                ),
            )
            for name in ("Authorization", "x-api-key", "Cookie", "Proxy-Authorization", "API-Key")
        ],
    ],
)
def test_a_header_that_cannot_be_meant_is_refused(header, expected):
    assert expected == refused([GPU, TPU], headers=[header])
