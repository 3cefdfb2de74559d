"""Makes shell lines at random: words, quotes, patterns, redirections, lists, pipes, variables."""

from __future__ import annotations

import random
import re

TREE: dict[str, dict[str, str] | None] = {
    "outside": None,
    "outside/kept.txt": {"text": "outside\n"},
    "ws": None,
    "ws/.env": {"text": "TOKEN=hidden\n"},
    "ws/.git": None,
    "ws/.git/hooks": None,
    "ws/.git/hooks/pre-commit": {"text": "#!/bin/sh\n"},
    "ws/-n": {"text": "option\n"},
    "ws/a b.txt": {"text": "blank a\nblank b\n"},
    "ws/a.txt": {"text": "10,b\n9,a\n10,b\n"},
    "ws/foo": {"text": "foo\n"},
    "ws/foo*": {"text": "foo star\n"},
    "ws/[z]": {"text": "brackets\n"},
    "ws/z": {"text": "z\nZ\n\ny\n"},
    "ws/q'uote": {"text": 'a "quote"\n'},
    "ws/{1,2}": {"text": "braces\n"},
    "ws/#h": {"text": "# h\n"},
    "ws/~t": {"text": "tilde\n"},
    "ws/$X": {"text": "dollar\n"},
    "ws/back\\slash": {"text": "back\\n"},
    "ws/é.txt": {"text": "é\nÉ\n"},
    "ws/new\nline": {"text": "new\n"},
    "ws/=a": {"text": "equals\n"},
    "ws/0": {"text": "zero\n"},
    "ws/sub": None,
    "ws/sub/c.md": {"text": "# C\none two  three\n"},
    "ws/sub/d.md": {"text": "# D\nfour\tfive\n"},
    "ws/sub/.dot.md": {"text": "hidden\n"},
    "ws/sub/deep": None,
    "ws/sub/deep/e.txt": {"text": "e\n"},
    "ws/out": None,
    "ws/out/old.txt": {"text": "old\n"},
    "ws/inlink": {"link": "sub"},
    "ws/outlink": {"link": "../outside"},
    "ws/filelink": {"link": "a.txt"},
    "ws/gone": {"link": "nowhere"},
}
VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/home/nobody",
    "X": "a.txt",
    "DIR": "sub",
    "OPT": "-n",
    "WORDS": "a b",
    "STAR": "*",
    "EMPTY": "",
}
FILES = [name.removeprefix("ws/") for name in TREE if name.startswith("ws/")]
FILES += ["missing", "sub/../a.txt", "./a.txt", "../outside/kept.txt", "outlink/kept.txt", "."]
FILES += ["sub/"]
WRITTEN = ["out/new", "out/old.txt", "out/a b", "out/sub", "a.txt", "outlink/x", "../x", "gone"]
WRITTEN += [".git/hooks/x", "out/../z", "filelink", "out/$X", "sub", "out", "out/x/", "no/../x"]
PATTERNS: list[str] = [
    *("./*", "./*.txt", "sub/*.md", "./?", "./[az]", "./[!a]*", "./f*", "./*/", "./.*", "*"),
    "*.md",
    *("./foo\\*", "./'foo'*", '"./"*', "./[[]*", "./{1,2}", "sub/.*", "./*/*.md", "./missing*"),
    "./é*",
    *("./[a-c]*", "./*\\ *", "./a?b*", "sub/*/e.txt", "./**", "./[z]", "out*/*", "./[^a]*", "./-*"),
]
RAW: list[str] = [
    *("$X", "${X}", '"$X"', '"${X}"', "$DIR/c.md", '"$DIR"/*.md', "$OPT", '"$OPT"', "$WORDS"),
    "$STAR",
    *("$EMPTY", '"$EMPTY"', "$UNSET", "${X:-a}", "$(echo a)", "`echo a`", "$((1+1))", "$'a\\tb'"),
    *("$'\\x61.txt'", "$'\\u00e9'", "sub/{c,d}.md", "{a.txt,z}", "{z,{a.txt,0}}", "x{,y}", "{,}"),
    *("{a..c}", "{3..1}", "{01..3}", "./{a,f}*", "\"$(cat <<'Q'\na $X\nQ\n)\"", "$'a\\'b'"),
    *('$"hi"', "~", "~/x", "a=~", "a=b:~", "#x", "a#b", "{a,b}", "{1..3}", "{}", "!", "!!"),
    "a\\\nb",
    *("\\\n", "''", '""', "'foo'\\*", '"a$"', "$", "a$", '"$ x"', '"$/"', "'a'\"b\"c", "\\"),
    "\\\\",
    *("--", "-", "=", "a=b", "[", "]", "[]", "[a", "*[", "^", "%", "@", "+", ",", "x:y", "0"),
    *("12", "2"),
    *("'\\'", '"\\n"', '"\\""', '"\\$X"', "'$X'", "a'\nb'", "if", "then", "time", "done", "}"),
    *("{", "]]"),
    *("<(echo a)", "$PWD", '"$PWD"', "$HOME", "$LANG", "$$", "$_", "$1", "${X}y", "$Xy", "é"),
    *("$?", '"$?"', '"e: $?"', "$?", '"${PIPESTATUS[0]}"', "${PIPESTATUS[1]}"),
]
READERS = {
    "cat": "-n -A -s -- -",
    "head": "-n|1 -c|5 -1 -q",
    "tail": "-n|1 -c|5 -1 -n|+2",
    "wc": "-l -c -w -m",
    "sort": "-r -u -n -t,|-k2 -o|out/s -k|1,1 --",
    "cut": "-d,|-f1 -c|1-3 -b1",
    "tr": "a-z|A-Z -d|a -s|x",
    "grep": "-n|o -i|O -c|a -v|x -l|o -r|o|. -E|(a|b) -F|* -f|a.txt|z o",
    "find": ".|-name|*.md .|-type|f sub .|-delete .|-exec|rm|{}|; -maxdepth|1",
    "echo": "-n -e a\\tb -e|\\x41 -e|\\u00e9 -E --help --version -ne",
    "printf": "%s\\n %s-%s\\n %d\\n|5 a\\nb %% %5s|x -v|a|b",
    "basename": "a/b x.txt|.txt -s",
    "dirname": "a/b x",
    "seq": "3 1|2|7",
    "rev": "",
    "tac": "",
    "nl": "-b|a",
    "comm": "-12",
    "paste": "-d, -s",
    "fold": "-w|3",
    "md5sum": "-b",
    "od": "-c -An",
    "diff": "-u -q",
    "cmp": "-s",
    "test": "-f -d -e -z a|=|b 1|-lt|2 ! -v|X",
    "[": "-f|a.txt|] a|=|a|] -d|sub|] x",
    "true": "",
    "false": "",
    ":": "",
    "pwd": "-P",
    "ls": "-a -1 -d -R",
    "command": "-v|ls ls -v|nope|cd -V|ls cat|a.txt",
    "type": "ls cd if nope -t|ls",
    "which": "ls nope",
    "env": "cat|a.txt LANG=C|ls -i|ls -u|A|cat|z A=1|echo|a",
    "timeout": "5|cat|a.txt 5|touch|x",
}
WRITERS = {
    "uniq": "-c -d -i",
    "touch": "-c",
    "cp": "-r -n",
    "mv": "-n",
    "rm": "-f -r",
    "mkdir": "-p",
    "tee": "-a",
    "rmdir": "",
    "sed": "-n|p s/a/b/ -i|s/a/b/ 1d w|out/x",
    "ln": "-s",
    "chmod": "+x",
}
SAYING_OF_THE_SHELL = ("test", "[", "printf", "type", "command", "echo", "pwd", "env", "timeout")
"""Whose messages are not those of the programs."""


CONNECTORS = [";", " && ", " || ", " | ", "\n", " |& ", "|", "&&", " ; ", " \\\n&& ", " &&\n"]
ODD_CONNECTORS = [" & ", ";;", " ! ", "\\\n", " #c\n", " | |", "&\\\n&"]
STARTS = ["cd sub && ", "cd sub; ", "cd inlink && ", "cd missing; ", "cd sub/.. && ", "cd out\n"]
SETS = ["X=z; ", "X=sub/c.md && ", "export X=z; ", "export Y=1 && ", "Y=z X=$Y; ", "X='a b'; "]
ODD_STARTS = ["! ", "( ", "{ ", "if ", "X=$(pwd); ", "export -n X; ", "LANG=C; ", "X=~; ", "X=; "]
ENDS = [" ;", "\n", " # c", "; X=1", " &&", " |", " &", ")", ";\n\n", "\\"]
TEXTS = ["  a\nb\nE\n", "E\n", "a $X\nE", "\tx\n E\nE\n", "a\\\nE\nE\n"]
AROUND = [
    *(("for F in a.txt z; do ", "; done"), ("for F in ./* \nDIR; do ", "\ndone"), ("(", ")")),
    *(("for F in sub out\ndo\n", "; done && echo done"), ("( ", " )"), ("set -e; ", "")),
    *(("set -e\n", "; echo end"), ("for F in [a-z]* {a,z}*; do ", "; done; cat $F")),
    *(("for F in 1 2; do for G in a.txt z; do ", " $G; done; done || echo no"), ("set -u; ", "")),
    *(("for F in -n a.txt; do ", "; done"), ("for PATH in a; do ", "; done")),
    *(("for F in; do ", "; done"), ("for F in sub/*.md z; do cat $F && ", "; done")),
    *(("bash -c '", "'"), ("for X in a.txt; do ", "; done")),
]
LOOPED = ["$F", '"$F"', "${F}", "x$F", "sub"]
BEFORE = ["LC_ALL=C", "LANG=C", "A=1", "X=z", "NO_COLOR=1", "TZ=UTC", "A='b c'", "LANG=$LANG"]
WITHOUT_OPERANDS = ("tr", "command", "type", "which", "env", "timeout", "[")


def line(chance: random.Random) -> str:
    """Return a line; most are sound, and some are nothing that a shell takes."""
    pick = chance.random
    made: list[str] = []
    for at in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        if at:
            made.append(chance.choice(ODD_CONNECTORS if pick() < 0.03 else CONNECTORS))
        made.append(command(chance, reads=bool(at) and "|" in made[-1]))
    text = "".join(made)
    if pick() < 0.25:
        text = chance.choice(chance.choice((STARTS, STARTS, SETS, SETS, ODD_STARTS))) + text
    if pick() < 0.12:
        begin, end = chance.choice(AROUND)
        loop = re.sub(r"(?<= )(a\.txt|z|sub)\b", lambda found: chance.choice(LOOPED), text)
        text = f"{begin}{loop if 'for ' in begin else text}{end}"
    if pick() < 0.03:
        text += chance.choice(ENDS)
    if "<<" in text and "\n" not in text:
        text += "\n" + chance.choice(TEXTS)
    return text


def command(chance: random.Random, *, reads: bool) -> str:
    pick = chance.random
    programs = WRITERS if pick() < 0.2 else READERS
    name = chance.choice(list(programs))
    words = [spelt(name, chance) if pick() < 0.05 else name]
    options = programs[name].split()
    if options and (pick() < 0.6 or name == "env"):
        words += [quoted(word, chance) for word in chance.choice(options).split("|") if word]
    if name not in ("seq", "true", "sed") or pick() < 0.3:
        least = 0 if reads or name in WITHOUT_OPERANDS else 1
        words += [operand(chance, name) for _ in range(chance.choice((least, 1, 1, 2)))]
    if name == "[" and words[-1] != "]" and pick() < 0.7:
        words.append("]")
    if pick() < 0.08:
        words.insert(0, chance.choice(BEFORE))
    text = words[0]
    for word in words[1:]:
        text += chance.choice((" ", " ", " ", " ", " ", "  ", "\t", " \\\n")) + word
    if pick() < 0.3:
        text += redirections(chance, name)
    return text


def operand(chance: random.Random, name: str) -> str:
    which: float = chance.random()
    if which < 0.14:
        return chance.choice(PATTERNS)
    if which < 0.34:
        return chance.choice(RAW)
    if name in WRITERS and which < 0.7:
        return quoted(chance.choice(WRITTEN), chance)
    return quoted(chance.choice(FILES), chance)


REDIRECTIONS = [
    *(" > W", " >W", ">>W", " >| W", " 1>W", " < R", " <R", " 0<R", " 0< R", " <<E", " <<'E'"),
    *("<<<a", " <<< R", " 1\\\n>W", " {fd}>W", " 3>W", " >&1", " 0>W", "0<R", " <> W", " <&0"),
    *("a> W", " > W b"),
]
"""W is a file to write, and R one to read."""


def redirections(chance: random.Random, name: str) -> str:
    made = []
    for _ in range(chance.choice((1, 1, 2))):
        target = chance.choice(WRITTEN) if chance.random() < 0.4 else "out/new"
        target = chance.choice(RAW) if chance.random() < 0.08 else quoted(target, chance)
        read = quoted(chance.choice(FILES), chance)
        form = chance.choice(REDIRECTIONS)
        made.append(form.replace("W", target).replace("R", read))
    if chance.random() < 0.3:
        # Last, so that no message of the shell about the others gets into it.
        errors = [" 2>/dev/null", " 2> /dev/null"]
        if name not in SAYING_OF_THE_SHELL:
            errors += [" 2>&1", " 2>out/err", " 2>>out/err", " 2>&1 >/dev/null", "2>&1"]
        made.append(chance.choice(errors))
    return "".join(made)


def quoted(text: str, chance: random.Random) -> str:
    """Return a text as a word, in one of the ways to write it."""
    style = chance.random()
    if style < 0.45 and text and not set(text) - _PLAIN:
        return text
    if style < 0.6 and "'" not in text:
        return f"'{text}'"
    if style < 0.75:
        return '"' + "".join(f"\\{c}" if c in '"\\$`' else c for c in text) + '"'
    return spelt(text, chance)


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@%-")


def spelt(text: str, chance: random.Random) -> str:
    """Return a text with each part of it quoted in another way."""
    made: list[str] = []
    at = 0
    while at < len(text) or not made:
        end = at + chance.randint(1, 3)
        part = text[at:end]
        at = end
        style = chance.random()
        if style < 0.3 and "'" not in part:
            made.append(f"'{part}'")
        elif style < 0.6:
            made.append('"' + "".join(f"\\{c}" if c in '"\\$`' else c for c in part) + '"')
        elif style < 0.95 and "\n" not in part:
            made.append("".join(c if c in _PLAIN or c > "\x7f" else f"\\{c}" for c in part))
        elif style < 0.98:
            made.append('\\\n"' + "".join(f"\\{c}" if c in '"\\$`' else c for c in part) + '"')
        else:
            made.append("$'" + part.replace("\\", "\\\\").replace("'", "\\'") + "'")
    return "".join(made)
