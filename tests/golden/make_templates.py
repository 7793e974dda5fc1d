#!/usr/bin/env python3
"""Writes the golden files of the chat template test: what jinja2, set up as Hugging Face's apply_chat_template does it,
makes of a table of small cases and of published-style chat templates over messages that are made to hurt.

    pip install jinja2==3.1.6
    tests/golden/make_templates.py

Reads templates/*.jinja, templates/expressions.txt and template_cases.py. Writes templates/language.json and templates/chat.json: an object with
"sets" (name: variables) and "cases" ([template, set, kind, text]); kind is "out" (text is the output), "raise" (text is
the message of raise_exception) or "error" (jinja2 fails in another way; its words are not compared)."""
import json
import pathlib
import sys
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_cases import CHATS, SETS, STATEMENTS

HERE = pathlib.Path(__file__).parent / "templates"
NOW = datetime(2024, 7, 26, 13, 5, 9)


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class TemplateNamespace(jinja2.utils.Namespace):
    """transformers 5: no attribute with an underscore in front."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Generation(jinja2.ext.Extension):
    """{% generation %}: the part of transformers' AssistantTracker that shows in the output."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["namespace"] = TemplateNamespace
    return env


def render(env, source, variables):
    try:
        return "out", env.from_string(source).render(**json.loads(json.dumps(variables)))
    except Raised as e:
        return "raise", str(e)
    except Exception:
        return "error", ""


def write(name, sets, cases):
    with open(HERE / name, "w", encoding="utf-8") as f:
        f.write('{"sets": {\n')
        f.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sets.items()))
        f.write('\n},\n"cases": [\n')
        f.write(",\n".join(json.dumps(case) for case in cases))
        f.write("\n]}\n")


def main():
    env = environment()
    lines = (HERE / "expressions.txt").read_text(encoding="utf-8").split("\n")
    sources = ["[{{ " + line + " }}]" for line in lines if line and not line.startswith("# ")] + STATEMENTS
    language = []
    for source in dict.fromkeys(sources):
        kind, text = render(env, source, SETS["v"])
        if " at 0x" in text:
            sys.exit(f"{source!r} prints an address: {text!r}")
        language.append([source, "v", kind, text])
    write("language.json", SETS, language)

    chats = []
    for path in sorted(HERE.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for set_name, variables in CHATS.items():
            chats.append([path.stem, set_name, *render(env, source, variables)])
    write("chat.json", CHATS, chats)
    for name, cases in (("language", language), ("chat", chats)):
        kinds = [kind for _, _, kind, _ in cases]
        print(name, len(cases), {k: kinds.count(k) for k in ("out", "raise", "error")})


if __name__ == "__main__":
    main()
