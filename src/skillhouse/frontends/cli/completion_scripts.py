"""The completion scripts of bash, zsh and fish: tables of what may follow, and how to read them.

In each script `node PATH` sets what a verb takes, and `source PATH|PLACE` where the values of an
option or argument come from: `=a b c` are fixed words, `files` and `directories` are the shell's
own, and any other word is a kind that `skillhouse --complete` knows.

INVARIANT: no script evaluates a candidate, and each leaves out what has a sign with a meaning to
the shell, although `--complete` does that too: names of skills come from anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct


class ValueSource(Struct, frozen=True, kw_only=True):
    """Where values come from: fixed words, or a kind."""

    words: tuple[str, ...] = ()
    kind: str = ""

    def __str__(self) -> str:
        return self.kind or "=" + " ".join(self.words)


class Node(Struct, frozen=True, kw_only=True):
    """What may follow a verb."""

    path: str
    """The verb and those below it, with blanks between."""
    verbs: tuple[tuple[str, str], ...]
    """Names with what they do."""
    options: tuple[tuple[str, str], ...]
    valued: tuple[str, ...]
    """Options that take a value."""
    sources: Mapping[str, ValueSource]
    """By the option, or `@` and the number of the argument, `@+` for all others."""


def _quoted(text: str) -> str:
    """Return a text as bash and zsh read it, whatever it holds."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _names(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(name for name, _ in pairs)


def _texts(pairs: Iterable[tuple[str, str]], quoted: Callable[[str], str]) -> str:
    return " ".join(quoted(text) for _, text in pairs)


def _source_cases(nodes: Iterable[Node]) -> str:
    """Return the cases, alike in bash and zsh, that name where the values of a place come from."""
    return "".join(
        f"    {_quoted(f'{node.path}|{place}')}) source={_quoted(str(source))} ;;\n"
        for node in nodes
        for place, source in node.sources.items()
    )


def bash_script(nodes: Iterable[Node]) -> str:
    """Return the script of bash 4 or later."""
    nodes = tuple(nodes)
    table = "".join(
        f"    {_quoted(node.path)}) verbs={_quoted(_names(node.verbs))}"
        f" options={_quoted(_names(node.options))} valued={_quoted(' '.join(node.valued))} ;;\n"
        for node in nodes
    )
    return _BASH.replace("@TABLE@\n", table).replace("@SOURCES@\n", _source_cases(nodes))


def zsh_script(nodes: Iterable[Node]) -> str:
    """Return the script of zsh, to be sourced or put into a directory of `fpath`."""
    nodes = tuple(nodes)
    table = "".join(
        f"    {_quoted(node.path)}) verbs=({_names(node.verbs)})"
        f" verb_texts=({_texts(node.verbs, _quoted)})"
        f" options=({_names(node.options)}) option_texts=({_texts(node.options, _quoted)})"
        f" valued=({' '.join(node.valued)}) ;;\n"
        for node in nodes
    )
    return _ZSH.replace("@TABLE@\n", table).replace("@SOURCES@\n", _source_cases(nodes))


def fish_script(nodes: Iterable[Node]) -> str:
    """Return the script of fish 3.1 or later."""
    nodes = tuple(nodes)
    table = "".join(
        f"        case {_fish_quoted(node.path)}\n"
        f"            set -g __skillhouse_verbs {_names(node.verbs)}\n"
        f"            set -g __skillhouse_verb_texts {_texts(node.verbs, _fish_quoted)}\n"
        f"            set -g __skillhouse_options {_names(node.options)}\n"
        f"            set -g __skillhouse_option_texts {_texts(node.options, _fish_quoted)}\n"
        f"            set -g __skillhouse_valued {' '.join(node.valued)}\n"
        for node in nodes
    )
    sources = "".join(
        f"        case {_fish_quoted(f'{node.path}|{place}')}\n"
        f"            echo {_fish_quoted(str(source))}\n"
        for node in nodes
        for place, source in node.sources.items()
    )
    return _FISH.replace("@TABLE@\n", table).replace("@SOURCES@\n", sources)


_BASH = r"""# Completion of skillhouse for bash 4 or later: made by `skillhouse completions bash`

__skillhouse_node() {
  verbs='' options='' valued=''
  case $1 in
@TABLE@
  esac
}

__skillhouse_source() {
  source=''
  case $1 in
@SOURCES@
  esac
}

__skillhouse_add() {
  # Compared and never expanded; readline inserts a candidate as it is.
  [[ $1 == "$cur"* && $1 =~ ^[[:alnum:]_.:@/+-][[:alnum:]_.,:@/+-]*$ ]] && COMPREPLY+=("$1")
}

_skillhouse() {
  local line=${COMP_LINE:0:COMP_POINT} IFS=$' \t\n'
  local cur='' path='' option='' word='' verbs='' options='' valued='' source='' place=0 i
  local -a typed=()
  COMPREPLY=()
  # bash splits words at colons and equal signs too; the line itself does not.
  read -r -a typed <<<"$line"
  [[ $line == *[[:space:]] ]] && typed+=('')
  cur=${typed[${#typed[@]} - 1]}
  __skillhouse_node ''
  for ((i = 1; i < ${#typed[@]} - 1; i++)); do
    word=${typed[i]}
    if [[ -n $option ]]; then
      option=''
    elif [[ $word == -* ]]; then
      [[ " $valued " == *" $word "* ]] && option=$word
    elif [[ -z $path && $word == help ]]; then
      :
    elif [[ -n $verbs && " $verbs " == *" $word "* ]]; then
      path=${path:+$path }$word
      place=0
      __skillhouse_node "$path"
    else
      place=$((place + 1))
    fi
  done
  if [[ -z $option && $cur == --*=* ]]; then
    option=${cur%%=*}
    cur=${cur#*=}
  fi
  if [[ -n $option ]]; then
    __skillhouse_source "$path|$option"
  elif [[ $cur == -* ]]; then
    source="=$options"
  elif [[ -n $verbs ]]; then
    source="=$verbs"
  else
    __skillhouse_source "$path|@$place"
    [[ -z $source ]] && __skillhouse_source "$path|@+"
  fi
  case $source in
    '') ;;
    '='*) for word in ${source#=}; do __skillhouse_add "$word"; done ;;
    files) compopt -o default ;;
    directories) compopt -o dirnames ;;
    *)
      while IFS= read -r word; do
        [[ $word == -* ]] || __skillhouse_add "$word"
      done < <(
        command skillhouse --complete "$source" -- "${typed[@]:1:${#typed[@]}-2}" "$cur" 2>/dev/null
      )
      ;;
  esac
  # Only what follows the last colon is replaced where bash splits there.
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
    word=${cur%"${cur##*:}"}
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$word"}; done
  fi
}

complete -F _skillhouse skillhouse
"""

_ZSH = r"""#compdef skillhouse
# Completion of skillhouse for zsh: put it into a directory of fpath as _skillhouse, or source it.

__skillhouse_node() {
  verbs=() verb_texts=() options=() option_texts=() valued=()
  case $1 in
@TABLE@
  esac
}

__skillhouse_source() {
  source=''
  case $1 in
@SOURCES@
  esac
}

__skillhouse_add() {
  # `compadd` quotes what it inserts; nothing is expanded.
  local -a shown=()
  local -i i width=0
  for ((i = 1; i <= $#names; i++)); do (( $#names[i] > width )) && width=$#names[i]; done
  for ((i = 1; i <= $#names; i++)); do
    shown+=("${(r:width:)names[i]}${texts[i]:+  -- ${texts[i]}}")
  done
  if (( $#texts )); then compadd -l -d shown -a names; else compadd -a names; fi
}

_skillhouse() {
  local cur=${words[CURRENT]} at='' option='' word='' source='' said=''
  local -a verbs verb_texts options option_texts valued names texts
  local -i place=0 i
  __skillhouse_node ''
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if [[ -n $option ]]; then
      option=''
    elif [[ $word == -* ]]; then
      (( ${valued[(Ie)$word]} )) && option=$word
    elif [[ -z $at && $word == help ]]; then
      :
    elif (( ${verbs[(Ie)$word]} )); then
      at=${at:+$at }$word
      place=0
      __skillhouse_node $at
    else
      place+=1
    fi
  done
  if [[ -z $option && $cur == --*=* ]]; then
    option=${cur%%=*}
    cur=${cur#*=}
    compset -P 1 '*='
  fi
  if [[ -n $option ]]; then
    __skillhouse_source "$at|$option"
  elif [[ $cur == -* ]]; then
    names=($options) texts=($option_texts)
    __skillhouse_add
    return
  elif (( $#verbs )); then
    names=($verbs) texts=($verb_texts)
    __skillhouse_add
    return
  else
    __skillhouse_source "$at|@$place"
    [[ -z $source ]] && __skillhouse_source "$at|@+"
  fi
  case $source in
    '') return 1 ;;
    '='*) names=(${=source#=}) ;;
    files) _files; return ;;
    directories) _files -/; return ;;
    *)
      said=$(command skillhouse --complete $source -- "${(@)words[2,CURRENT-1]}" "$cur" 2>/dev/null)
      for word in "${(@f)said}"; do
        [[ $word == -* || $word == *[^[:alnum:]_.,:@/+-]* || -z $word ]] || names+=("$word")
      done
      ;;
  esac
  __skillhouse_add
}

if [[ ${funcstack[1]} == _skillhouse ]]; then
  _skillhouse "$@"
else
  compdef _skillhouse skillhouse
fi
"""

_FISH = r"""# Completion of skillhouse for fish: ~/.config/fish/completions/skillhouse.fish

function __skillhouse_node
    set -g __skillhouse_verbs
    set -g __skillhouse_verb_texts
    set -g __skillhouse_options
    set -g __skillhouse_option_texts
    set -g __skillhouse_valued
    switch $argv[1]
@TABLE@
    end
end

function __skillhouse_source
    switch $argv[1]
@SOURCES@
    end
end

function __skillhouse_described --argument-names names texts
    set -l i 1
    for name in $$names
        printf '%s\t%s\n' $name $$texts[1][$i]
        set i (math $i + 1)
    end
end

function __skillhouse_complete
    set -l typed (commandline -opc)
    set -l cur (commandline -ct)
    set -l at ''
    set -l option ''
    set -l place 0
    set -l before ''
    __skillhouse_node ''
    for word in $typed[2..-1]
        if test -n "$option"
            set option ''
        else if string match -q -- '-*' $word
            contains -- $word $__skillhouse_valued; and set option $word
        else if test -z "$at" -a "$word" = help
            continue
        else if contains -- $word $__skillhouse_verbs
            set at (string trim -- "$at $word")
            set place 0
            __skillhouse_node $at
        else
            set place (math $place + 1)
        end
    end
    if test -z "$option"; and string match -q -- '--*=*' $cur
        set option (string replace -r '=.*' '' -- $cur)
        set before $option=
        set cur (string replace -r '^[^=]*=' '' -- $cur)
    end
    set -l source
    if test -n "$option"
        set source (__skillhouse_source "$at|$option")
    else if string match -q -- '-*' $cur
        __skillhouse_described __skillhouse_options __skillhouse_option_texts
        return
    else if test (count $__skillhouse_verbs) -gt 0
        __skillhouse_described __skillhouse_verbs __skillhouse_verb_texts
        return
    else
        set source (__skillhouse_source "$at|@$place")
        test -n "$source"; or set source (__skillhouse_source "$at|@+")
    end
    switch "$source"
        case ''
            return
        case '=*'
            for word in (string split ' ' -- (string sub -s 2 -- $source))
                printf '%s\n' $before$word
            end
        case files
            __fish_complete_path $cur
        case directories
            __fish_complete_directories $cur
        case '*'
            # fish quotes what it inserts; a tab would begin a description.
            for word in (command skillhouse --complete $source -- $typed[2..-1] $cur 2>/dev/null)
                string match -qr '^[\p{L}\p{N}_.:@/+][\p{L}\p{N}_.,:@/+-]*$' -- $word
                and printf '%s\n' $before$word
            end
    end
end

complete -c skillhouse -e
complete -c skillhouse -f -a '(__skillhouse_complete)'
"""

SCRIPTS: Mapping[str, Callable[[Iterable[Node]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
