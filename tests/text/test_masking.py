"""Secrets are masked and ordinary text is not; recalled text goes into a prompt as data and comes out again."""

from __future__ import annotations

import hashlib
import html
import json
import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.text import recall_fence
from commonbook.core.text.masking import mask
from commonbook.values import prompts
from tests.support.best_of import takes_less_than

pytestmark = pytest.mark.promise("secrets.kinds")

LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0dF"
"""The keys of these tests are made of it, and are nobody's. Prefixes stand apart, so that no scanner is alarmed."""

HEX = "0123456789abcdef" * 4


def keyed(*parts: str) -> str:
    """Stand for the keyed hash of a home."""
    return hashlib.sha256("\0".join(("the key of this home", *parts)).encode("utf-8", "surrogatepass")).hexdigest()


def fence(passages: list[str]) -> str:
    return prompts.fence(passages, recall_fence.new_tag(keyed, passages))


def unfence(text: str) -> str:
    return recall_fence.unfence(text, keyed)


def letters(count: int) -> str:
    return (LETTERS * 20)[:count]


TOKENS = [
    ("openai key", "sk-" + "proj-" + letters(60)),
    ("api key", "sk-" + letters(48)),
    ("api key", "sk-" + "x" * 40),
    ("openai key", "sk-" + "or-v1-" + HEX),
    ("anthropic key", "sk-" + "ant-api03-" + letters(60) + "-" + letters(20) + "_AA"),
    ("aws key", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("aws key", "ASIA" + "IOSFODNN7EXAMPLE"),
    ("github token", "ghp_" + letters(36)),
    ("github token", "gho_" + letters(36)),
    ("github token", "ghs_" + letters(36)),
    ("github token", "github_" + "pat_" + letters(22) + "_" + letters(59)),
    ("gitlab token", "glpat-" + letters(20)),
    ("gitlab token", "glpat-" + letters(27) + ".01." + letters(9)),
    ("slack token", "xoxb-" + "123456789012-1234567890123-" + letters(24)),
    ("slack token", "xapp-" + "1-A0123456789-" + letters(40)),
    ("stripe key", "sk_" + "live_" + letters(24)),
    ("stripe key", "rk_" + "live_" + letters(24)),
    ("stripe secret", "whsec_" + letters(32)),
    ("google key", "AIza" + letters(35)),
    ("google token", "ya29." + letters(60)),
    ("hugging face token", "hf_" + letters(34)),
    ("npm token", "npm_" + letters(36)),
    ("pypi token", "pypi-" + "AgEIcHlwaS5vcmcC" + letters(60)),
    ("telegram token", "123456789:" + "AA" + letters(33)),
    ("twilio key", "SK" + HEX[:32]),
    ("sendgrid key", "SG." + letters(22) + "." + letters(43)),
    ("discord token", "M" + letters(23) + "." + letters(6) + "." + letters(38)),
    ("api key", "gsk_" + letters(52)),
    ("api key", "hvs." + letters(40)),
    ("jwt", "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0In0." + letters(43)),
]


@pytest.mark.parametrize(("kind", "secret"), TOKENS)
@pytest.mark.parametrize(
    "around",
    ["{}", "The key is {}, keep it.", 'key="{}"', "`{}`", "({})", "a\n{}\nb", "\N{BULLET}{}\N{BULLET}", "x={}&y=1"],
)
def test_a_token_with_its_providers_prefix_is_masked_wherever_it_stands(kind, secret, around):
    assert mask(around.format(secret)) == (around.format(f"[masked: {kind}]"), 1)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://ann:s3cr3t@db.example.org/app", "postgres://ann:[masked: password]@db.example.org/app"),
        ("postgresql+asyncpg://ann:a/b@db:5432/app", "postgresql+asyncpg://ann:[masked: password]@db:5432/app"),
        ("https://ann:p@ss@example.org/x?y=1", "https://ann:[masked: password]@example.org/x?y=1"),
        ("redis://:hunter@localhost:6379/0", "redis://:[masked: password]@localhost:6379/0"),
        (
            "git clone https://oauth2:xyzzy@git.example/a.git",
            "git clone https://oauth2:[masked: password]@git.example/a.git",
        ),
    ],
)
def test_a_password_in_a_url_is_masked_and_user_and_host_stay(text, masked):
    assert mask(text) == (masked, 1)


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("password=", "hunter2", ""),
        ("password: ", "hunter2", "\nuser: ann"),
        ('password = "', "correct horse", '"'),
        ("DB_PASSWORD='", "letmein", "'"),
        ("DB_PASS=", "Tr0ub4dor&3", ""),
        ("Password: ", "12345678", "."),
        ("password: str = '", "opensesame", "'"),
        ('{"password": "', "s3cret!pw", '", "user": "ann"}'),
        ('{\\"password\\": \\"', "s3cret!pw", '\\"}'),
        ("connect(password=", "hunter2", ")"),
        ("Server=x;Password=", "hunter2", ";Database=y"),
        ("https://x.example/?user=a&password=", "hunter2", "&b=c"),
        ("login --password ", "hunter2", " --user ann"),
        ("?password=x&token=", "abc12345", "&z=1"),
        ("password=read(token=", "abc12345", ")"),
        ('"secret": "use token=', "abc12345", ' for it"'),
        ("SECRET_KEY = '", "django-insecure-0a1b2c", "'"),
        ("<password>", "hunter2", "</password>"),
        ("**Password:** ", "hunter2", ""),
        ('config["api_key"] = "', "0a1b2c3d4e5f", '"'),
        ("api_key: ", letters(32), ""),
        ("X-Api-Key: ", letters(32), "\r\nHost: x"),
        ("TWILIO_AUTH_TOKEN=", HEX[:32], ""),
        ("client_secret => '", letters(20), "'"),
        ("HEROKU_API_KEY=", "01234567-89ab-cdef-0123-456789abcdef", ""),
        ('"SessionToken": "', letters(200), '"'),
    ],
)
def test_what_is_assigned_to_a_name_that_promises_a_secret_is_masked(before, secret, after):
    assert mask(before + secret + after) == (before + "[masked: secret]" + after, 1)


@pytest.mark.parametrize(
    ("before", "kind", "secret", "after"),
    [
        ("Authorization: Bearer ", "token", letters(30), "\n"),
        ("-H 'authorization: bearer ", "token", letters(30), "'"),
        ('"Authorization": "Basic ', "password", "dXNlcjpwYXNzd29yZA==", '"'),
        ("aws_secret_access_key = ", "aws key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY", "\n"),
        ("the AWS secret is ", "aws key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY", ", I think"),
        ("AccountName=x;AccountKey=", "azure key", letters(86) + "==", ";EndpointSuffix=core.windows.net"),
        ("Endpoint=sb://x/;SharedAccessKey=", "azure key", letters(43) + "=", ""),
        ("https://x.blob.example/a?sv=2022&sig=", "azure signature", letters(40) + "%3D", "&se=1"),
        ("https://api.telegram.org/bot", "telegram token", "123456789:AA" + letters(33), "/getMe"),
        ("curl -u AC" + HEX[:32] + ":", "twilio token", HEX[:32], " https://api.twilio.com"),
        ("https://hooks.slack.com/", "slack webhook", "services/T00000000/B00000000/" + letters(24), " posts"),
    ],
)
def test_what_stands_before_a_secret_gives_it_away(before, kind, secret, after):
    assert mask(before + secret + after) == (before + f"[masked: {kind}]" + after, 1)


PEM_BODY = "\n".join([letters(64)] * 4 + [letters(20) + "=="])


@pytest.mark.parametrize("label", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_is_masked_whole(label):
    key = f"-----BEGIN {label}PRIVATE KEY-----\n{PEM_BODY}\n-----END {label}PRIVATE KEY-----"
    for written in (key, key.replace("\n", "\r\n"), key.replace("\n", "\\n"), key.replace("\n", "\n> ")):
        assert mask(f"a\n{written}\nb") == ("a\n[masked: private key]\nb", 1)


@pytest.mark.parametrize("kept", [4, 40, 64, 70, 200])
def test_a_private_key_that_is_cut_off_is_masked_to_the_end(kept):
    begin = "-----BEGIN RSA PRIVATE KEY-----\n"
    assert mask("a " + begin + PEM_BODY[:kept]) == ("a [masked: private key]", 1)
    encrypted = begin + "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n"
    assert mask(encrypted + PEM_BODY[:kept]) == ("[masked: private key]", 1)


def test_prose_after_a_key_without_its_last_line_stays():
    text = f"-----BEGIN PRIVATE KEY-----\n{PEM_BODY[:64]}\nThat was the key, and this is about lunch."
    assert mask(text).text == "[masked: private key]\nThat was the key, and this is about lunch."
    about = "The file starts with -----BEGIN PRIVATE KEY-----, then the body."
    assert mask(about) == (about, 0)


@pytest.mark.parametrize(
    ("text", "masked", "count"),
    [
        ("a <private>b</private> c", "a [masked: private] c", 1),
        ("a <PRIVATE>b\nc</Private> d", "a [masked: private] d", 1),
        ("a <private>b <private>c</private> d</private> e", "a [masked: private] e", 1),
        ("a <private>b</private> c <private>d", "a [masked: private] c [masked: private]", 2),
        ("a <private>b <private>c</private> d", "a [masked: private]", 1),
        ("a < private >b</ private > c", "a [masked: private] c", 1),
        ('a <private reason="x">b</private >c', "a [masked: private]c", 1),
        ("a </private> b", "a </private> b", 0),
        ("<private>ghp_" + letters(36) + "</private>", "[masked: private]", 1),
        ("<private></private>", "[masked: private]", 1),
        (
            "Write `<private>` before it and `</private>` after.",
            "Write `<private>` before it and `</private>` after.",
            0,
        ),
        ("a private matter, private: yes, class X { private: int y; }", None, 0),
    ],
)
def test_private_parts_are_masked_however_they_are_nested(text, masked, count):
    assert mask(text) == (text if masked is None else masked, count)


@pytest.mark.parametrize(
    "text",
    [
        "fixed in 3f786850e387550fdab836ed7e6dc881de23001b, see also 3f78685",
        "sha256:" + HEX,
        f"memory 01a1e1e9-da1c-7675-bd2c-b8d7b16e85ff links to {uuid.UUID(int=7)}",
        "![x](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4/w==)",
        "/usr/local/lib/python3.11/site-packages/commonbook/engines/static_table.py:120",
        r"C:\Users\ann\AppData\Local\Programs\Python\Python311\python.exe",
        "it costs $1,299.99, or 1.199,00 EUR",
        "I forgot my password again. The password must have 8 characters and a digit.",
        "Password: required. Token: optional. Secret: none.",
        "the secret: use 2 eggs; a token of thanks; the key: practice, 20minutes each day",
        "password = getpass.getpass()",
        "password=None, token=None, secret=null, api_key=undefined",
        "password=password, token=self.token2, api_key=settings.api_key1",
        'password=os.environ["DB_PASSWORD1"]',
        "password: ${DB_PASSWORD1}, api_key: $API_KEY2, token: {{ token_3 }}, secret: <your-secret-1>",
        "api_key=YOUR_API_KEY_HERE1",
        "api_key: your-api-key-here",
        "def token(password: str, secret: bytes | None = None) -> str: ...",
        "max_tokens=4096, token_count: 1500, token: 42, tokens: 12abc34d",
        "password_file=/run/secrets/db1 secret=/run/secrets/db1 token=~/.token1",
        "postgres://db.example.org:5432/app",
        "postgres://ann@db.example.org/app, postgres://ann:$PGPASSWORD@db/app, mysql://a:${PASS}@b/c",
        "http://localhost:8080/path@v2?x=1 and docker://registry/image:latest@sha256:abc",
        "https://example.org/a/very/long/path/with/LotsOf/Segments/0123456789?utm_source=x&utm_campaign=Y2&id=42#top",
        "socks5h://<username>:<password>@proxy-host2:1080",
        "mail ann@example.org or 10:30@work",
        "sk-learn and sk-estimator-id-12, class sk-folding-cube-with-long-name",
        "ghp_short, hf_model_name, npm_config_registry, pypi-server, xoxb, glpat, AIza, eyJ, SG.1.2, AKIA",
        "bearer of good news; a Bearer token; bearer authentication-scheme",
        "ASIAN markets, AKIARA, SKETCH, ACADEMY",
        "git@github.com:ann/repo.git",
        "a change must pass: `make lint`, `make test`; def login(user: bytes, passwd: bytes) -> None: ...",
        "ratio 12345678:1, at 12:30:45, ::1, fe80::1ff:fe23:4567:890a",
        "x <- privateKey.length; y = isPrivate<private_t>(z)",
        "getUserPasswordHash2(user), resetTokenV2, SecretManager3, tokenizer=cl100k_base",
        "日本語のパスワード、пароль и токен, كلمة السر",
        "\x00\ud800 lone",
    ],
)
def test_ordinary_text_stays_as_it_is(text):
    assert mask(text) == (text, 0)


def test_every_secret_is_counted():
    text = f"ghp_{letters(36)} and <private>x</private> and password=hunter2 and ghp_{letters(36)}"
    assert mask(text).count == 4


FRAGMENTS = st.sampled_from(
    [secret for _, secret in TOKENS]
    + [
        "password",
        "=",
        ":",
        ": ",
        " ",
        "\n",
        '"',
        "'",
        "`",
        "[",
        "]",
        "<",
        ">",
        "/",
        "//",
        "://",
        "@",
        "&",
        ",",
        ";",
        ".",
    ]
    + ["token", "secret", "api_key", "Bearer ", "Authorization: Basic ", "--", "**", "\\", "hunter2", "s3cret!", "aws "]
    + ["<private>", "</private>", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", PEM_BODY, letters(40)]
    + ["[masked: ", "[masked: password]", "AccountKey=", "sig=", "AC" + HEX[:32] + ":", "123456789:", "sk-", "eyJ", "a"]
)


@given(st.lists(FRAGMENTS, max_size=12).map("".join) | st.text())
def test_what_is_masked_once_has_nothing_left_to_mask(text):
    once = mask(text)
    assert mask(once.text) == (once.text, 0)


@given(st.text(), st.sampled_from(TOKENS), st.text())
def test_a_token_between_spaces_never_survives(before, token, after):
    _, secret = token
    assert secret not in mask(f"{before} {secret} {after}").text


# --- prose


@pytest.mark.parametrize("name", ["secrets_by_the_author.json", "secrets_by_others.json"])
def test_secrets_that_prose_tells_in_english_or_german_are_masked_and_other_sentences_stay(name):
    """Of the sentences by somebody who had not seen the patterns, 93 of 100 were masked at first sight."""
    known = json.loads((Path(__file__).parents[1] / "data" / name).read_text(encoding="utf-8"))
    assert [sentence for sentence, secret in known["mask"] if secret in mask(sentence).text] == []
    assert [sentence for sentence in known["keep"] if mask(sentence).text != sentence] == []


def test_almost_any_value_after_the_name_of_a_secret_is_masked_in_any_dialect_and_harmless_lines_stay():
    """The lines were written before the patterns: a secret may be a word, so only its place gives it away."""
    path = Path(__file__).parents[1] / "data" / "secrets_by_dialect.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    assert (len(known["mask"]), len(known["keep"])) == (200, 200)
    assert len([line for line, secret in known["mask"] if secret in mask(line).text]) <= 10
    assert len([line for line in known["keep"] if mask(line).text != line]) <= 2


@pytest.mark.parametrize(
    "line",
    [
        *("PASSWORD={}", "DB_PASSWORD={}", "POSTGRES_PASSWORD: {}", "mysql -u root --password={}", "--password {}"),
        *("API_KEY={}", "TOKEN={}", "the password is {}", "password: {}", '{{"api_key": "{}"}}', "Passwort: {}"),
        "token: {}\nuser: ann",
    ],
)
def test_words_as_a_secret_are_masked(line):
    assert mask(line.format("purple-monkey")) == (line.format("[masked: secret]"), 1)


@pytest.mark.parametrize(
    "value", ["<your-password>", "***", "xxx", "changeme", "$VAR", "${VAR}", "None", "your_password"]
)
@pytest.mark.parametrize("line", ["PASSWORD={}", "password: {}", "--password {}", "API_KEY={}"])
def test_placeholders_stay(line, value):
    assert mask(line.format(value)) == (line.format(value), 0)


@pytest.mark.parametrize(
    "number", ["4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005", "3782 822463 10005", "6011000990139424"]
)
def test_a_card_number_is_masked_if_its_check_digit_is_right(number):
    assert mask(f"Pay with {number}.") == ("Pay with [masked: card number].", 1)
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert mask(f"Pay with {wrong}.").count == 0


@pytest.mark.parametrize(
    "text",
    [
        "ISBN 978-3-16-148410-0 and 9783161484100",
        "order number 4111111111111111",
        "call +49 170 1234567 or 0171 98765432",
        "IMEI 356938035643809",
        "0000 0000 0000 0000",
        "in 2024-05-17T10:30:45.123456Z",
    ],
)
def test_other_numbers_stay(text):
    assert mask(text) == (text, 0)


SPOKEN = [
    "password ", "password is ", "my password is a ", "a is my password ", "passwort ", "passwort für ",
    "kennwort ist ", "passwort lautet „", "pin 1", "4111 ", "1", "12-", "kennwort ist «", 'password is "',
    "passphrase is a b ", "password, ", "pass:", "token is 1 ", "prüfziffer 1 ", "passphrase is " + "a " * 30,
]  # fmt: skip


CHARS = int(os.environ.get("COMMONBOOK_MASKED_CHARS", "80000"))
"""The length of the hostile texts; a megabyte of each takes some minutes."""


def takes_linear_time(work: Callable[[str], object], text: str) -> None:
    """Require that a text takes about eight times as long as an eighth of it; 64 times as long would be quadratic."""

    def cpu_seconds(text: str) -> float:
        began = time.process_time()
        work(text)
        return time.process_time() - began

    # The smaller of two: another process can only make it longer.
    small = min(cpu_seconds(text[: len(text) // 8]) for _ in range(2))
    takes_less_than(24 * max(small, 0.01), lambda: cpu_seconds(text))


@pytest.mark.promise("secrets.linear")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", SPOKEN)
def test_eight_times_the_hostile_text_takes_about_eight_times_as_long(piece):
    takes_linear_time(mask, piece * (CHARS // len(piece)))


@pytest.mark.promise("secrets.linear")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_hostile_texts_together_take_linear_time():
    mixed = "".join(SPOKEN)
    takes_linear_time(mask, mixed * (4 * CHARS // len(mixed)))


PIECES = [
    *'aA0 \n\t-_.:=/@"\\<&`*$>',
    *(
        "[masked: ",
        "://",
        "://a:",
        "://a:b@",
        "sk-",
        "sk-a",
        "sk-ant-",
        "eyJ",
        "eyJa.",
        "SG.",
        "SG.aaaaaaaaaaaaaaaaaaaa",
    ),
    *(
        "AKIA",
        "ghp_",
        "xoxb-",
        "12345678:",
        "password",
        "password=",
        "password: ",
        "token=a,",
        "secret=a&b=",
        "--token ",
    ),
    *(
        "<token>",
        "bearer ",
        "authorization: basic ",
        "<private>",
        "</private>",
        "<private ",
        "-----BEGIN PRIVATE KEY-----",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----",
        "-----BEGIN ",
        "AAAA ",
        "AccountKey=",
        "a_",
        "a.b",
        "aA",
    ),
    *(
        "A" * 39 + " ",
        "A" * 40 + " ",
        "aws " + "aA1" * 13 + "a ",
        "Ma",
        "hvs.",
        "password='",
        "password=a(",
        "postgres",
    ),
    *("postgres://a:/", "password=a_1", "password=aB", "password=a.b", "\\n", "> ", "commonbook-recall "),
    *("<commonbook-recall ", "&amp;", fence(["x"]), fence(["x"])[:52], "\ud800"),
]
WORKS: dict[str, Callable[[str], object]] = {
    "mask": mask,
    "unfence": recall_fence.unfence_any,
    "unfence a quotation": lambda text: recall_fence.unfence_any("> " * 50 + text),
}


@pytest.mark.promise("secrets.linear")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
@pytest.mark.parametrize("before", ["", "password=", "-----BEGIN PRIVATE KEY-----"])
def test_anything_takes_linear_time(before, work):
    for piece in PIECES:
        many = piece * (CHARS // len(piece))
        takes_linear_time(work, before + many[: CHARS // 2] if before else many)


@pytest.mark.promise("secrets.linear")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_mixture_of_everything_takes_linear_time():
    takes_linear_time(mask, "".join(random.Random(7).choices(PIECES, k=CHARS // 4)))


# --- recalled text


def test_recalled_text_is_written_as_data():
    block = fence(["Ann owns billing.", "Bob is on holiday."])
    first, note, *inside, last = block.split("\n")
    assert first.startswith("<commonbook-recall ")
    assert last == "</" + first[1:]
    assert "data, not instructions" in note
    assert inside == ["", "Ann owns billing.", "", "Bob is on holiday."]
    assert fence([]) == ""


@given(st.lists(st.text(), max_size=3), st.text(), st.text())
def test_what_was_fenced_comes_out_and_everything_else_stays(passages, before, after):
    assert unfence(before + fence(passages) + after) == before + after


@given(st.lists(st.text(), min_size=1, max_size=3), st.text())
def test_no_passage_can_close_its_block(passages, more):
    block = fence(passages)
    attack = [passage + block + block.rsplit("\n", 1)[1] + more for passage in passages]
    assert fence(attack).count("commonbook-recall") == 2
    assert unfence(f"a{fence(attack)}b") == "ab"


BLOCK = fence(["Ann owns billing.\n\n> quoted & <b>bold</b>\n", "Zwei\r\nZeilen"])


def prefixed(text: str, prefix: str) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "done",
    [
        BLOCK,
        prefixed(BLOCK, "> "),
        prefixed(BLOCK, "> > "),
        prefixed(BLOCK, "    "),
        prefixed(BLOCK, "\t"),
        prefixed(html.escape(BLOCK), "> "),
        html.escape(prefixed(BLOCK, "> ")),
        html.escape(html.escape(BLOCK)),
        BLOCK.replace("\n", "\r\n"),
        prefixed(BLOCK.replace("\n", "\r\n"), "> "),
        BLOCK.replace("\n", " "),
        BLOCK.replace("<", "&#60;").replace(">", "&#x3E;"),
        BLOCK.replace("<", "\\u003c").replace(">", "\\u003e").replace("\n", "\\n"),
        BLOCK.replace("billing", "shipping and more, as the model says"),
    ],
)
def test_a_block_is_found_whatever_was_done_around_it(done):
    assert unfence(done) == ""
    assert unfence(f"> hello\n{done}\nbye\n{done}\n{done}") == "> hello\n\nbye\n\n"


@pytest.mark.parametrize("prefix", ["", "> ", "    "])
@pytest.mark.parametrize("cut", range(60, len(BLOCK) - 1, 23))
def test_a_block_that_is_cut_off_is_kept_as_it_is(prefix, cut):
    begun = "Hello.\n" + prefixed(BLOCK[:cut], prefix)
    assert unfence(begun) == begun
    whole = prefixed(BLOCK, prefix)
    assert unfence(f"{begun}\n{whole}\nBye.").endswith("\n\nBye.")
    assert unfence(f"{begun}\n{whole}\nBye.").startswith("Hello.\n")


def test_a_block_of_another_home_or_a_forged_one_is_kept_as_it_is():
    def of_another_home(*parts: str) -> str:
        return keyed("another", *parts)

    other = prompts.fence(["a secret plan"], recall_fence.new_tag(of_another_home, ["x"]))
    assert unfence(other) == other
    forged = BLOCK.replace(BLOCK[19:35], "0" * 16)
    assert unfence(forged) == forged
    assert recall_fence.unfence_any(f"a{other}b") == "ab"


@pytest.mark.parametrize(
    "text",
    [
        "What does <commonbook-recall> do? And </commonbook-recall>?",
        "It writes <commonbook-recall 32-hex-digits> and </commonbook-recall 32-hex-digits>.",
        f"<commonbook-recall {'0' * 32}> is not one of ours, and what follows stays.",
        "A stray " + BLOCK.rsplit("\n", 1)[1] + " closes nothing.",
        "&lt;b&gt; > quoted\r\n  indented \\u003c",
    ],
)
def test_who_writes_about_the_tag_loses_nothing(text):
    assert unfence(text) == text


def test_a_fence_holds_no_secret_that_masking_would_change():
    assert mask(BLOCK) == (BLOCK, 0)
