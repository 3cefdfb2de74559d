"""Names of files that hold secrets, and which of them hold public certificates instead.

Sources, each looked through for names of files (not for contents):

- gitleaks and trufflehog: paths of their rules (.netrc, *.p12, *.kdbx, credentials of clouds)
- GitHub's gitignore templates (Terraform, Rails, Node, Python): what is never to be committed
- gitrob's and shhgit's signatures: key stores, password files, histories of shells and databases
- the manuals of the programs: aws(1), kubectl, docker login, gh auth, git-credential-store(1),
  psql (.pgpass), pip and twine (.pypirc), vault, terraform login, cargo login, gem, gcloud, az
"""

from __future__ import annotations

import binascii
import functools
import os
import re
import stat
from collections.abc import Callable, Iterable

from skillhouse.floor.regex import regex

NEVER_WRITTEN = (
    ".env",
    ".env.*",
    ".ssh",
    ".gnupg",
    ".npmrc",
    ".netrc",
    "*.pem",
    "*.key",
    # The names that ssh-keygen gives, their copies, and any other without an ending: `id_map.py`
    # is a program.
    "id_*",
    "id_rsa.*",
    "id_dsa.*",
    "id_ecdsa.*",
    "id_ed25519.*",
)
"""Those that no command creates or changes either."""

SECRET_NAMES = (
    *NEVER_WRITTEN,
    # Environments.
    "*.env",
    ".envrc",
    ".dev.vars",
    "local.settings.json",
    # Logins of programs.
    "_netrc",
    ".git-credentials",
    ".pypirc",
    ".pgpass",
    "pgpass.conf",
    ".my.cnf",
    ".mylogin.cnf",
    ".vault-token",
    ".htpasswd",
    ".boto",
    ".s3cfg",
    ".passwd-s3fs",
    ".smbcredentials",
    ".databrickscfg",
    ".snowsql/config",
    ".msmtprc",
    ".fetchmailrc",
    ".dockercfg",
    ".dockerconfigjson",
    ".docker/config.json",
    ".config/gh/hosts.yml",
    ".config/hub",
    ".config/glab-cli/config.yml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".composer/auth.json",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".credentials.json",
    ".netlify/config.json",
    ".huggingface/token",
    ".cache/huggingface/token",
    "kaggle.json",
    "ngrok.yml",
    "rclone.conf",
    ".ftpconfig",
    "sftp-config.json",
    "sitemanager.xml",
    "recentservers.xml",
    # Clouds and clusters.
    ".aws/credentials",
    ".aws/config",
    ".aws/cli/cache",
    ".aws/sso/cache",
    ".azure/accesstokens.json",
    ".azure/msal_token_cache.*",
    ".azure/service_principal_entries.*",
    "application_default_credentials.json",
    "gcloud/credentials.db",
    "gcloud/access_tokens.db",
    "gcloud/legacy_credentials",
    ".kube/config",
    ".kube/cache",
    "kubeconfig",
    "*.kubeconfig",
    ".terraformrc",
    "terraform.rc",
    "credentials.tfrc.json",
    "*.tfstate",
    "*.tfstate.*",
    "credentials.json",
    "auth.json",
    "firebase-adminsdk*.json",
    "*-firebase-adminsdk*.json",
    "gcp-key*.json",
    "gcp_key*.json",
    "terraform.tfvars",
    "terraform.tfvars.json",
    "*.auto.tfvars",
    "client_secret*.json",
    "service-account*.json",
    "service_account*.json",
    "serviceaccount*.json",
    "secrets.json",
    "secrets.yml",
    "secrets.yaml",
    "secrets.toml",
    ".secrets",
    "token.txt",
    "tokens.txt",
    "*_token.txt",
    "password.txt",
    "passwords.txt",
    "secret.txt",
    "secrets.txt",
    "credentials.txt",
    "cookies.txt",
    "wp-config.php",
    "config/database.yml",
    "env.production",
    "env.local",
    "env.staging",
    # Keys and stores of passwords.
    "*.p12",
    "*.pfx",
    "*.pkcs12",
    "*.jks",
    "*.keystore",
    "*.ppk",
    "*.kdb",
    "*.kdbx",
    "*.agilekeychain",
    "secring.*",
    "wallet.dat",
    "utc--*",
    # What was typed.
    ".*_history",
)
"""Paths by which secrets are known, at any depth: `is_secret` says what `*` is."""


def path_pattern(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what finds one of some relative paths, in which `*` is within a name, in a path.

    In a path without a dot, `*` is a run of characters without one: `id_map.py` is no key. One
    that begins with `/` is found at the top alone.
    """
    forms: dict[str, list[str]] = {"(?:^|/)": [], "^": []}
    for text in patterns:
        star = "[^/]*" if "." in text else "[^/.]*"
        name = re.escape(text.lstrip("/").casefold()).replace(r"\*", star)
        forms["^" if text.startswith("/") else "(?:^|/)"].append(name)
    # The start once for all names: before each, it makes the search twenty times slower.
    found = "|".join(f"{start}(?:{'|'.join(names)})" for start, names in forms.items() if names)
    return regex(f"(?:{found})(?=/|$)")


def end_filter(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return what says of a name in small letters whether a path of `patterns` may end with it.

    It is much cheaper than the pattern itself, which then decides.
    """
    ends = {pattern.rsplit("/", 1)[-1].casefold() for pattern in patterns}
    exact = frozenset(end for end in ends if "*" not in end)
    starts = tuple({start for end in ends - exact if (start := end.partition("*")[0])})
    later = {end.strip("*") for end in ends - exact if end[0] == "*" == end[-1]}
    tails = tuple({end.rpartition("*")[2] for end in ends - exact if end[0] == "*" != end[-1]})

    def may_end(name: str) -> bool:
        if name in exact or name.startswith(starts) or name.endswith(tails):
            return True
        return bool(later) and any(text in name for text in later)

    return may_end


_SECRET = path_pattern(SECRET_NAMES)
may_end_secret = end_filter(SECRET_NAMES)
"""Whether a secret's path may end with a name in small letters, whatever is above it."""
_EMPTY = regex(r"/(?:\.?/)+")
_PUBLIC = regex(
    r".*\.pub|(?:.*[._-])?(?:example|sample|template|tmpl|dist|defaults|schema)(?:[._-].*)?"
)


def is_secret(path: str) -> bool:
    """Whether a path, or a directory above it, has a name that secrets have.

    Examples and templates are none, and no public keys.

    >>> is_secret("a/ID_work"), is_secret("id_map.py"), is_secret(".env.a.b"), is_secret("a/.ssh/x")
    (True, False, True, True)
    >>> is_secret(".env.example"), is_secret("id_rsa.pub"), is_secret(".docker/config.json")
    (False, False, True)
    """
    matches = _SECRET.finditer(_EMPTY.sub("/", path.casefold()))
    return any(_PUBLIC.fullmatch(one[0].rpartition("/")[2]) is None for one in matches)


def is_secret_file(relative: str, absolute: str) -> bool:
    """Whether a path has a name that secrets have, and the file there is no public certificate.

    Args:
        relative: The path below what is judged by its names.
        absolute: Where the file is, links followed.
    """
    if not is_secret(relative):
        return False
    is_by_itself = not is_secret(relative.rpartition("/")[0])
    return not (is_by_itself and is_public_certificate(absolute))


PROTECTED_NAMES = (
    # Hooks and configuration of git: on the host, the next `git status` would act on them. Those
    # of a submodule or linked worktree are below modules and worktrees. The last two name further
    # configuration.
    ".git/hooks",
    ".git/config",
    ".git/modules",
    ".git/worktrees",
    ".git/commondir",
    ".git/config.worktree",
    ".gitmodules",
    # What shells and tools read when they start (sandbox-runtime, "mandatory deny paths").
    ".bashrc",
    ".zshrc",
    ".profile",
    ".bash_profile",
    ".bash_login",
    ".zprofile",
    ".zshenv",
    ".gitconfig",
    ".ripgreprc",
    # What editors and agents take orders from.
    ".mcp.json",
    ".vscode",
    ".idea",
    ".claude",
    ".agents",
    ".skillhouse",
    ".codex",
    ".gemini",
    ".cursor",
    ".opencode",
    "skillhouse.toml",
    *NEVER_WRITTEN,
)
"""Paths below a workspace that no command changes or creates, whether or not they exist."""


CERTIFICATES_BYTES = 4 << 20
"""Largest file that is read: ten times the certificates that browsers trust."""
_BLOCK = regex(
    rb"^-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----\r?\n([A-Za-z0-9+/=\s]+)"
    rb"^-----END (X509 |TRUSTED )?CERTIFICATE-----[ \t]*(?:\r?\n|\Z)",
    re.MULTILINE,
)
_TEXT = regex(
    # What openssl and the makers of bundles write beside them.
    rb"\s*|#.*|(?:subject|issuer) ?=.*|Bag Attributes.*|Key Attributes: <No Attributes>"
    rb"| +(?:friendlyName|localKeyID): .*"
)
_DUMPED = regex(rb"^Certificate:\r?\n(?: {4}.*\n)+", re.MULTILINE)
_NAMED = regex(rb"^[^\n]{1,200}\n=+[ \t]*$", re.MULTILINE)


def is_public_certificate(path: str) -> bool:
    """Whether a file, which is no link, holds certificates in PEM (RFC 7468) and nothing else."""
    if not path.casefold().endswith(".pem"):
        return False
    try:
        info = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(info.st_mode) or not 0 < info.st_size <= CERTIFICATES_BYTES:
        return False
    stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return _is_public(path, stamp)


@functools.lru_cache(maxsize=1_024)
def _is_public(path: str, stamp: tuple[int, ...]) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(handle)
            data = file.read(CERTIFICATES_BYTES + 1)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == stamp[:2] and holds_only_certificates(data)


def holds_only_certificates(data: bytes) -> bool:
    r"""Whether a text has certificates, and beside them nothing but what is said about them.

    >>> holds_only_certificates(b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n")
    False
    """
    blocks = _BLOCK.findall(data)
    if not blocks or not all(_is_certificate(body) for _, body, _ in blocks):
        return False
    rest = _NAMED.sub(b"", _DUMPED.sub(b"", _BLOCK.sub(b"", data)))
    return all(_TEXT.fullmatch(line) for line in rest.splitlines())


def _is_certificate(body: bytes) -> bool:
    """Whether a block holds a certificate: a sequence that begins with a sequence (RFC 5280, 4.1).

    A key begins with a number (RFC 5958, 2; RFC 8017, A.1.2).
    """
    try:
        data = binascii.a2b_base64(b"".join(body.split()))
    except binascii.Error:
        return False
    inner = _content(data)
    return inner is not None and _content(inner) is not None


def _content(data: bytes) -> bytes | None:
    """Return the content of a DER sequence (X.690, 8.1) at the beginning; None for none."""
    if len(data) < 2 or data[0] != 0x30:
        return None
    length, start = data[1], 2
    if length & 0x80:
        count = length & 0x7F
        start += count
        length = int.from_bytes(data[2:start], "big")
    return data[start : start + length] if 0 < length <= len(data) - start else None
