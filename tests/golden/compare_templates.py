#!/usr/bin/env python3
"""Compares our chat templates with jinja2 on random ones: expressions, statements, and the bare tokens of the lexer.

    pip install jinja2==3.1.6
    tests/golden/compare_templates.py build/release/bin/template_lines --seed 1 --cases 10000

Prints each difference, then how many. Differences that are meant are not counted: what Python prints with an address;
integers of more than 64 bits, complex numbers and sets; strings marked safe that come back as Markup from methods; a
namespace that holds itself; and what jinja2 makes of constants when it compiles (a slice of a number is undefined there
and an error at run time; an unhashable key fails even where it is not reached)."""
import argparse
import json
import random
import re
import signal
import subprocess
import tempfile
import warnings

from make_templates import environment, render
from template_cases import SETS

ATOMS = """1 0 -1 2 3 1.5 2.0 'a' 'b c' '' 'a,b,c' ' x ' '\\n' true false none [] [1,2] {} {'a':1} (1,2) () '%s' 'Ab' 10 '12'"""
ATOMS = re.findall(r"'[^']*'(?!:)|\{[^}]*\}|\([^)]*\)|\[[^\]]*\]|\S+", ATOMS)
NAMES = [*SETS["v"], "missing", "x", "y", "loop", "ns"]
ATTRIBUTES = "a b name role content items keys x upper get index first last length index0 tags age".split()
FILTERS = """abs batch(2) batch(2,'z') capitalize center(9) count d('q') default('q',true) dictsort dictsort(by='value') e
first float indent indent(1,true) int items join join('-') last length list lower map('upper') map(attribute='name')
map('string') max min reject reject('none') rejectattr('name') replace('a','bb') reverse round round(1) safe select
select('string') selectattr('name') selectattr('age','gt',26) slice(2) sort sort(reverse=true) sort(attribute='name')
string sum title tojson tojson(indent=1) trim truncate(3) unique upper wordcount format(1) map('length') map('first')
map('default','w') attr('upper')""".split()
TESTS = """defined,undefined,none,string,number,integer,float,boolean,true,false,mapping,iterable,sequence,even,odd,
divisibleby 2,eq 1,ne 1,in [1],lt 2,gt 1,sameas none,callable,lower,upper,escaped""".replace("\n", "").split(",")
METHODS = """.upper() .lower() .strip() .strip('a') .lstrip() .rstrip('\\n') .split() .split(',') .split(',',1) .rsplit(',',1)
.title() .capitalize() .replace('a','z') .startswith('a') .endswith(('a','d')) .find('l') .rfind('l') .count('l')
.join(['x','y']) .splitlines() .partition(',') .rpartition(',') .items() .keys() .values() .get('a') .get('zz',1)
.index(1) .count(1) .zfill(6) .center(8,'*') .isdigit() .isalpha() .isupper() .swapcase() .removeprefix('H')
.ljust(7)""".split()
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", " in ", " not in ", " and ", " or "]
ITERABLES = ["l", "words", "d", "d.items()", "users", "messages", "range(3)", "s[:3]", "nested"]
TAILS = ["", "", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}", "{{ loop.nextitem }}", "{% break %}",
         "{% if loop.index == 2 %}{% continue %}{% endif %}{{ x }}"]
TOKENS = ["{%", "%}", "{{", "}}", "{#", "#}", "-", "+", " ", "  ", "\n", "\n\n", "\t", "a", "b", "x", "raw", "endraw", " raw ",
          "{% raw %}", "{%- endraw %}", "{% endraw -%}", "if", "endif", "1", "'", '"', "{", "}", "(", ")", "[", "]",
          "{% if t %}", "{% endif %}", "{%- if t -%}", "{%+ endif +%}", "{# c #}", "{#- c -#}", "{{ n }}", "{{- n -}}",
          "for x in l", "endfor", "\u00a0", "\u2003", "\r\n", "\r", "set x = 1", "%", "#", "'%}'", "'}}'", "{'a':{}}", ".",
          "1.5", "_", "1_0", "0x", "**", "//", "|", "~", "==", "!", "n", "s", "upper", "{%if t%}", "{%endif%}",
          "{%-endif-%}", "{{'a'", "}}}}", "\\n", "'\\n'", "e5", "\u00e9"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def one(self, *choices):
        return self.r.choice(choices)

    def primary(self, depth):
        name, atom = self.r.choice(NAMES), self.r.choice(ATOMS)
        return self.one(name, name, name, atom, f"({self.expression(depth - 1)})" if depth > 0 else atom)

    def slice(self):
        part = ["", "1", "-1", "2", "0", "-2", "9", "n"]
        step = ":" + self.one("", "1", "-1", "2", "-2") if self.r.random() < 0.5 else ""
        return f"[{self.r.choice(part)}:{self.r.choice(part)}{step}]"

    def expression(self, depth):
        if depth <= 0 or self.r.random() < 0.12:
            return self.one(self.r.choice(ATOMS), self.r.choice(NAMES))
        less = lambda: self.expression(depth - 1)
        many = lambda a, b: ",".join(less() for _ in range(self.r.randint(a, b)))
        kinds = [
            (18, lambda: less() + self.r.choice(OPERATORS) + less()),
            (6, lambda: f"({less()})"),
            (14, lambda: self.primary(depth) + "|" + self.r.choice(FILTERS)),
            (8, lambda: self.primary(depth) + " is " + self.one("", "not ") + self.r.choice(TESTS)),
            (10, lambda: self.primary(depth) + self.r.choice(METHODS)),
            (6, lambda: self.primary(depth) + self.slice()),
            (6, lambda: f"{self.primary(depth)}[{less()}]"),
            (5, lambda: self.primary(depth) + "." + self.r.choice(ATTRIBUTES)),
            (3, lambda: "not " + less()),
            (2, lambda: self.one("-", "+") + less()),
            (4, lambda: f"{less()} if {less()}" + (f" else {less()}" if self.r.random() < 0.8 else "")),
            (2, lambda: f"[{many(0, 3)}]"),
            (1, lambda: f"{{{less()}:{less()}}}"),
            (1, lambda: f"({many(2, 3)})"),
            (2, lambda: self.one("range({})", "dict(a={})", "namespace(a={}).a", "m({})", "m(1,b={})").format(less())),
        ]
        return self.r.choices([k for _, k in kinds], [w for w, _ in kinds])[0]()

    def tag(self, text):
        return "{%" + self.one("", "-", "", "+") + f" {text} " + self.one("", "-", "", "+") + "%}"

    def for_loop(self, depth):
        over = self.one(*ITERABLES, self.expression(2))
        test = f" if {self.expression(1)}" if self.r.random() < 0.25 else ""
        head = self.tag(f"for {self.one('x', 'y', 'x, y', 'x')} in {over}{test}")
        otherwise = self.tag("else") + self.body(depth - 1) if self.r.random() < 0.3 else ""
        return head + self.body(depth - 1) + self.r.choice(TAILS) + otherwise + self.tag("endfor")

    def statement(self, depth):
        output = lambda: "{{" + self.one("", "-") + f" {self.expression(2)} " + self.one("", "-") + "}}"
        if depth <= 0:
            return output()
        inner = lambda: self.body(depth - 1)
        kinds = [
            (30, output),
            (10, lambda: self.tag(f"if {self.expression(2)}") + inner() + self.tag("else") + inner() + self.tag("endif")),
            (5, lambda: self.tag("if no") + inner() + self.tag(f"elif {self.expression(1)}") + inner() + self.tag("endif")),
            (17, lambda: self.for_loop(depth)),
            (14, lambda: self.tag(f"set {self.one('x', 'y', 'n', 's', 'x, y', 'l')} = {self.expression(2)}")),
            (4, lambda: self.tag(f"set {self.one('x', 'y|upper')}") + inner() + self.tag("endset")),
            (4, lambda: self.tag("set ns = namespace(a=1)") + self.tag(f"set ns.a = {self.expression(2)}") + "{{ ns.a }}"),
            (4, lambda: self.tag(f"with x = {self.expression(1)}") + inner() + self.tag("endwith")),
            (3, lambda: self.tag(f"filter {self.one('upper', 'trim', 'indent(2)')}") + inner() + self.tag("endfilter")),
            (4, lambda: self.tag(f"macro m(a, b={self.expression(1)})") + inner() + "{{ a }}{{ b }}" + self.tag("endmacro")
                + "{{ m(" + self.expression(1) + ") }}"),
            (2, lambda: self.tag("generation") + inner() + self.tag("endgeneration")),
            (3, lambda: self.one("{# c #}", "{#- c -#}", "text", "{% raw %}{{ x }}{% endraw %}")),
        ]
        return self.r.choices([k for _, k in kinds], [w for w, _ in kinds])[0]()

    def body(self, depth):
        space = lambda: self.one("", " ", "\n", "\n  ", " \n")
        return space() + "".join(self.statement(depth) + space() for _ in range(self.r.randint(0, 3)))

    def template(self):
        kind = self.r.random()
        if kind < 0.45:
            return "[{{ " + self.expression(self.r.randint(1, 4)) + " }}]"
        if kind < 0.75:
            return self.body(self.r.randint(1, 4))
        return "".join(self.r.choice(TOKENS) for _ in range(self.r.randint(1, 14)))


def jinja(env, source):
    def too_long(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        kind, text = render(env, source, SETS["v"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ("error" if kind == "raise" else kind), text


def is_meant(want, got):
    ours = ["64 bits", "more than", "too big", "complex", "cannot be sliced", "not supported", "too deeply to print",
            "unsupported operand type(s) for -"]
    printed = re.search(r"<(generator|generbb?tor|built-in|function|bound|list_reverse|dict_rev)| at 0x", want[1].lower())
    return bool(printed or "Markup(" in want[1]) or got[0] == "error" and any(words in got[1] for words in ours)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--cases", type=int, default=10000)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    generator, env, different, outputs = Generator(args.seed), environment(), 0, 0
    sources = [generator.template() for _ in range(args.cases)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as variables:
        json.dump(SETS["v"], variables)
        variables.flush()
        lines = "".join(json.dumps(s) + "\n" for s in sources)
        run = subprocess.run([args.program, variables.name], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    assert len(answers) == len(sources)
    for source, got in zip(sources, answers):
        try:
            want = jinja(env, source)
        except TimeoutError:
            continue
        outputs += want[0] == "out"
        if want[0] != got[0] or (want[0] == "out" and want[1] != got[1]):
            if not is_meant(want, got):
                different += 1
                print(f"{source!r}\n    jinja2 {want[0]}: {want[1]!r}\n    ours   {got[0]}: {got[1]!r}")
    print(f"seed {args.seed}: {len(sources)} templates, {outputs} with an output, {different} different")
    return different > 0


if __name__ == "__main__":
    raise SystemExit(main())
