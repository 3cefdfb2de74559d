"""Readers of programs with a language of their own: awk, sed, jq, yq, and the graphs of ffmpeg."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.permission.grammar import CommandMeaning


def refuse(meaning: CommandMeaning, said: str) -> None:
    """Say why the words are not understood, so that only an exact rule covers them."""
    meaning.unknown = said


def _regex_body(delimiter: str) -> str:
    """Return the pattern of a regular expression that all programs end at the same delimiter.

    Some let a delimiter in brackets stand for itself and some end there, so that one with open
    brackets at its first delimiter does not match.
    """
    end = re.escape(delimiter)
    brackets = rf"\[\^?+\]?+(?:[^\]\[\\\n{end}]|\\[^\]\[\\\n]|\[:[a-z]+:\])*\]"
    return rf"(?:[^\[\\\n{end}]|\\[^\n]|{brackets})*"


def _holds_code(meaning: CommandMeaning, count: int = 1) -> None:
    """Say that the first operands are code, which a pattern of names must not stand for."""
    meaning.kinds[:count] = ["runs"] * min(count, len(meaning.kinds))


# sed

_SED_REGEX = rf"/{_regex_body('/')}/"
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|{_SED_REGEX}[IM]?)"
_SED_RANGE = regex(rf"(?:{_SED_ADDRESS}(?:,[ \t]*(?:{_SED_ADDRESS}|[+~]\d+))?)?[ \t]*!?[ \t]*")
_SED_PLAIN = regex(
    r"(?:[pPdDhHgGxnNz=F]|[qQl][ \t]*\d*|[btT][ \t]*\w*|:[ \t]*\w+|y/[^/\\\n]*/[^/\\\n]*/)"
    r"[ \t]*(?=[;\n}]|\Z)",
    re.ASCII,
)
_SED_TEXT = regex(r"[aic][ \t]*(?:\\\n)?(?:[^\\\n]|\\[^\n])+(?=\n|\Z)")
_SED_SUBSTITUTIONS = {
    sign: regex(
        rf"s{re.escape(sign)}{_regex_body(sign)}{re.escape(sign)}"
        rf"(?:[^\\\n{re.escape(sign)}]|\\[^\n])*{re.escape(sign)}[gpiImM0-9]*[ \t]*(?=[;\n}}]|\Z)"
    )
    for sign in "/|,#:@!~%_"
}


def _is_plain_sed(script: str) -> bool:
    """Whether no command of a script reads, writes or runs (sed(1), COMMANDS)."""
    at = 0
    while at < len(script):
        if script[at] in "; \t\n}":
            at += 1
            continue
        address = _SED_RANGE.match(script, at)
        at = address.end() if address else at
        if script[at : at + 1] == "{":
            at += 1
            continue
        substitution = _SED_SUBSTITUTIONS.get(script[at + 1 : at + 2])
        found = _SED_PLAIN.match(script, at) or _SED_TEXT.match(script, at)
        if found is None and script[at : at + 1] == "s" and substitution is not None:
            found = substitution.match(script, at)
        if found is None:
            return False
        at = found.end()
    return True


def read_sed(meaning: CommandMeaning) -> None:
    """Scripts of commands that only print and change lines, as an operand or with `-e`."""
    given = [o.value or "" for o in meaning.options if o.name in ("-e", "--expression")]
    words = meaning.words(meaning.operands)
    in_place = [o for o in meaning.options if o.name in ("-i", "--in-place")]
    if given and words and any(w[:1] == "-" for w in meaning.argv[meaning.operands[0] + 1 :]):
        given.append(words[0])  # To a sed that takes no options behind it, it is the script.
    _holds_code(meaning, 0 if given else 1)
    scripts = given or list(words[:1])
    if not given and in_place and words[:1] == ("",):
        scripts = list(words[:2])  # On macOS `-i ''`, where the next word is the script.
    if not scripts:
        refuse(meaning, "a sed script that is not given")
        return
    if not _are_plain_sed(scripts):
        refuse(meaning, "a sed script that is not one of the plain ones")
    # `-i` makes each file that is read one that is written.
    if in_place:
        meaning.writes += meaning.operands[0 if given else 1 :]


def _are_plain_sed(scripts: Sequence[str]) -> bool:
    # Pieces are joined by line ends, and a `\` at the end of one goes on in the next.
    return all(map(_is_plain_sed, scripts)) and not any(s[-1:] == "\\" for s in scripts)


# awk

_AWK_TOKEN = regex(
    r"(?P<space>(?:[ \t]|\\\n)+|#[^\n]*[^\\\n](?=\n|\Z)|#(?=\n|\Z))"
    r"|(?P<newline>\n)"
    r'|(?P<text>"(?:[^"\\\n]|\\[^\n])*")'
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>(?:\d|\.\d)[\w.]*)"
    r"|(?P<sign>\|\||&&|\+\+|--|>>|[-+*/%^!<>=~?:,;(){}\[\]$.|])",
    re.ASCII,
)
_AWK_REGEX = regex(rf"/{_regex_body('/')}/")
_AWK_UNSAFE = frozenset(
    "system getline close fflush ENVIRON ARGV ARGC PROCINFO SYMTAB FUNCTAB bindtextdomain".split()
)
_AWK_BEFORE_REGEX = frozenset("print printf return exit else do case".split())
_AWK_GOES_ON = frozenset("print printf , && || ? : ( [ + - * / % ^ ! = < > ~ $ .".split())
"""What a line does not end behind, at least in some awk."""


def _is_plain_awk(program: str) -> bool:
    """Whether a program only prints: no pipe, no file, no call that runs (gawk(1))."""
    at, before, prints = 0, "", False
    while at < len(program):
        if program[at] == "/":
            end = _awk_regex_end(program, at, before)
            if end is None:
                return False
            if end:
                at, before = end, "text"
                continue
        token = _AWK_TOKEN.match(program, at)
        if token is None:
            return False
        at, word = token.end(), token[0]
        if token.lastgroup == "space":
            continue
        if token.lastgroup == "name":
            if word in _AWK_UNSAFE:
                return False
            prints = prints or word in ("print", "printf")
            before = word if word in _AWK_BEFORE_REGEX | {"in", "length"} else "value"
        elif token.lastgroup in ("text", "number"):
            before = {"text": "text", "number": "value"}[token.lastgroup]
        else:
            # A `>` is a comparison, but behind `print` it is a file, in brackets or not.
            if word in ("|", ">>") or (word == ">" and prints):
                return False
            if word in (";", "{", "}") or (word == "\n" and before not in _AWK_GOES_ON):
                prints = False
            if word != "\n" or before not in _AWK_GOES_ON:
                before = word
    return True


def _awk_regex_end(program: str, at: int, before: str) -> int | None:
    """Return where the regular expression at a `/` ends; 0 at a division, None if it is unknown."""
    is_value = before in (")", "]", "++", "--", "value", "text", "in", "length")
    if not is_value or before in _AWK_BEFORE_REGEX:
        found = _AWK_REGEX.match(program, at)
        return None if found is None else found.end()
    if before not in ("]", "value") and "/" in program[at + 1 :]:
        return None  # A division, or a regular expression as after `if (x)`.
    return 0


def read_awk(meaning: CommandMeaning) -> None:
    """One program that only prints, as the first operand."""
    _holds_code(meaning)
    words = meaning.words(meaning.operands)
    if not words:
        refuse(meaning, "an awk program that is not given as the first operand")
    elif not _is_plain_awk(words[0]):
        refuse(meaning, "an awk program that could run or write something")


# jq and yq

_JQ_UNSAFE = regex(
    r"(?<![.\w])(?:import|include|input_filename|modulemeta|env|ENV|__\w*)\b|\$ENV|\$__"
)
_JQ_PAIRS = frozenset({"--arg", "--argjson", "--slurpfile", "--rawfile"})


def read_jq(meaning: CommandMeaning) -> None:
    """The filter may import modules and read the environment (jq 1.7 manual, "Modules")."""
    _take_pairs(meaning)
    _holds_code(meaning)
    if meaning.operands and _JQ_UNSAFE.search(meaning.argv[meaning.operands[0]]):
        refuse(meaning, "a jq filter that imports, or reads the environment")


def _take_pairs(meaning: CommandMeaning) -> None:
    """Take the second value of `--arg NAME VALUE` and the like from the operands."""
    argv, taken = meaning.argv, set()
    at = 1
    while at < len(argv):
        word = argv[at]
        if word.partition("=")[0] not in _JQ_PAIRS:
            at += 1
            continue
        second = argv[at + 2 : at + 3]
        if word not in _JQ_PAIRS or "--" in argv or not second or second[0][:1] == "-":
            refuse(meaning, f"`{word[:60]}` takes two values that are no options")
            return
        if at + 2 not in meaning.operands:
            refuse(meaning, f"`{word[:60]}` is not where jq has an option")
            return
        taken.add(at + 2)
        if word in ("--slurpfile", "--rawfile"):
            meaning.read_values.append(second[0])
        else:
            meaning.values.append(second[0])
        at += 3
    if not taken:
        return
    places = [place for place in meaning.operands if place not in taken]
    kept = []
    for hazard in meaning.hazards:
        if hazard.operand >= 0:
            place = meaning.operands[hazard.operand]
            if place in taken:
                continue
            hazard = replace(hazard, operand=places.index(place))
        kept.append(hazard)
    meaning.hazards[:] = kept
    meaning.operands[:] = places
    meaning.kinds[:] = ["words", *["read"] * (len(places) - 1)][: len(places)]
    meaning.reads[:] = places[1:]


def read_jq_option(meaning: CommandMeaning) -> None:
    """The same of a filter in an option: gh reads its environment, with the token in it."""
    for option in meaning.options:
        if option.name in ("-q", "--jq") and _JQ_UNSAFE.search(option.value or ""):
            refuse(meaning, "a jq filter that imports, or reads the environment")


def read_api_path(meaning: CommandMeaning) -> None:
    """The operand is a path of an API, where a `/` leads to no file (gh api, glab api)."""
    paths = meaning.words(meaning.operands)
    meaning.values[:] = [v.removeprefix("/") if v in paths else v for v in meaning.values]
    read_jq_option(meaning)


_YQ_TOKEN = regex(
    r'\s+|"[^"\\\n]*"|\.{2,3}|\.[A-Za-z_][\w-]*|\d+(?:\.\d+)?|(?P<name>[A-Za-z_]\w*)'
    r"|[.\[\](){}|,:;=!<>?+*/%-]",
    re.ASCII,
)
_YQ_NAMES = frozenset(
    "keys length select map type tag kind has contains not and or test match to_entries "
    "from_entries with_entries split join first last flatten add min max any all sort sort_by "
    "unique unique_by group_by map_values del path paths upcase downcase ascii_downcase "
    "ascii_upcase trim tostring tonumber to_json tojson from_json fromjson to_yaml to_number "
    "to_string true false null line column empty reverse startswith endswith range limit "
    "documentIndex di pick omit explode values if then elif else end".split()
)


def read_yq(meaning: CommandMeaning) -> None:
    """An expression of paths and harmless operators: the others load files and variables.

    Source: mikefarah's manual, "Load", "Env Variable Operators", "System"; an operand that is
    the name of a file is the file even where an expression should be.
    """
    if not meaning.operands:
        return
    first = meaning.operands[0]
    expression, at = meaning.argv[first], 0
    meaning.reads.insert(0, first)
    while at < len(expression):
        token = _YQ_TOKEN.match(expression, at)
        if token is None or (token["name"] and token["name"] not in _YQ_NAMES):
            # A name of a file, which is checked as one, is no expression.
            if not re.fullmatch(r"[\w./-]+\.(?:ya?ml|json)|-", expression, re.ASCII):
                refuse(meaning, "a yq expression that is not one of the plain ones")
            return
        at = token.end()


# ffmpeg and pandoc

_FORMATS = frozenset(
    "mp3 mp4 mov wav null matroska webm gif image2 image2pipe concat flac ogg opus adts aac ipod "
    "rawvideo s16le f32le u8 segment hls mpegts srt webvtt avi md5 framemd5 ffmetadata "
    "yuv4mpegpipe mjpeg h264 hevc apng singlejpeg lavfi".split()
)
_FILTERS = frozenset(
    "scale crop pad fps setpts asetpts atempo trim atrim concat overlay format aformat volume "
    "loudnorm highpass lowpass bandpass silenceremove silencedetect afade fade transpose hflip "
    "vflip rotate setsar setdar select aselect split asplit palettegen paletteuse amix amerge "
    "aresample pan hstack vstack xstack tile thumbnail eq hue boxblur gblur unsharp yadif bwdif "
    "null anull color testsrc testsrc2 smptebars sine anullsrc aevalsrc nullsrc showwavespic "
    "showwaves showspectrumpic showspectrum volumedetect astats ebur128 dynaudnorm equalizer bass "
    "treble acompressor alimiter agate adelay aecho apad areverse reverse loop tpad minterpolate "
    "framestep zoompan xfade acrossfade drawbox drawgrid colorkey chromakey cropdetect blackdetect "
    "freezedetect scdet idet vignette colorbalance negate noise smartblur histogram channelsplit "
    "channelmap compand afftdn speechnorm setrange colorspace zscale showinfo decimate mpdecimate "
    "deband hqdn3d nlmeans tmix blend alphamerge colorchannelmixer geq lut lutyuv lutrgb asetrate "
    "stereotools join".split()
)
_GRAPHS = regex(r"-(?:vf|af|filter_complex|lavfi|filter(?::.*)?)")


def _is_plain_graph(graph: str) -> bool:
    """Whether a filter graph has only filters that open no file and load no code."""
    if "\\" in graph or re.search(r"file|path|://|movie|\.\.", graph):
        return False
    bare = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"'[^']*'", "Q", graph))
    if "'" in bare or "[" in bare:
        return False
    names = (re.split(r"[=@]", part.strip(), maxsplit=1)[0] for part in re.split(r"[,;]", bare))
    return all(name in _FILTERS for name in names)


def read_ffmpeg(meaning: CommandMeaning) -> None:
    """Options in full, formats that are files, filters that open none (ffmpeg-filters(1))."""
    allowed: set[tuple[str, str | None]] = set()
    pairs, is_graph = set(zip(meaning.argv, meaning.argv[1:], strict=False)), False
    for option in meaning.options:
        pair = (option.name, option.value)
        if option.value is not None and pair not in pairs:
            refuse(meaning, f"`{option.name}{option.value[:40]}` is no option in full")
            return
        if option.name == "-f":
            if option.value in _FORMATS:
                allowed.add(pair)
            is_graph = option.value == "lavfi"
        elif option.name == "-i":
            if is_graph and not _is_plain_graph(option.value or ""):
                refuse(meaning, "a filter graph that may read files")
                return
            is_graph = False
        elif _GRAPHS.fullmatch(option.name) and _is_plain_graph(option.value or ""):
            allowed.add(pair)
    if is_graph:  # `ffprobe -f lavfi GRAPH`
        refuse(meaning, "a filter graph as an operand")
    meaning.hazards[:] = [h for h in meaning.hazards if h.option not in allowed]


def read_pandoc(meaning: CommandMeaning) -> None:
    """A format by its name is harmless; a path to a Lua file is code (pandoc(1), --from, --to)."""
    names = {"-f", "--from", "-r", "--read", "-t", "--to", "-w", "--write"}
    meaning.hazards[:] = [
        hazard
        for hazard in meaning.hazards
        if hazard.option is None
        or hazard.option[0] not in names
        or not re.fullmatch(r"[a-z0-9_]+([+-][a-z_]+)*", hazard.option[1] or "")
    ]


LANGUAGES: Mapping[str, Callable[[CommandMeaning], None]] = {
    "api_path": read_api_path,
    "awk": read_awk,
    "jq": read_jq,
    "jq_option": read_jq_option,
    "pandoc": read_pandoc,
    "sed": read_sed,
    "yq": read_yq,
}
"""Readers of this file by their names in tables; that of ffmpeg is part of another."""
