"""Names of files that hold secrets, and the lists that they come from.

Sources, each looked through for names of files (not for contents):

- gitleaks and trufflehog: paths of their rules (.netrc, *.p12, *.kdbx, credentials of clouds)
- GitHub's gitignore templates (Terraform, Rails, Node, Python): what is never to be committed
- gitrob's and shhgit's signatures: key stores, password files, histories of shells and databases
- the manuals of the programs: aws(1), kubectl, docker login, gh auth, git-credential-store(1),
  psql (.pgpass), pip and twine (.pypirc), vault, terraform login, cargo login, gem, gcloud, az
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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


_SECRET = path_pattern(SECRET_NAMES)
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
