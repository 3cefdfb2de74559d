"""The routes about the configured repositories: what they are, what they list, its versions."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UNSET

# Packages and not their names: what asks repositories is loaded with the first such request.
import skillhouse.house
from skillhouse import install, registry
from skillhouse.answers.json_form import ListAnswer, copied, listed
from skillhouse.answers.packages import (
    ConfiguredRepositoryAnswer,
    PackageAnswer,
    PackageVersionsAnswer,
    PublishersAnswer,
    RepositoriesAnswer,
    package_answer,
    publishers_answer,
    release_answer,
)
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Body,
    Endpoint,
    RouteParameter,
)
from skillhouse.extensions.server.api.schemas import SHORT, listing, record, ref
from skillhouse.house import AccessScope
from skillhouse.install import judged_listing
from skillhouse.manage import only_editor, with_repository, write_user_text

BROWSED_MAX = 200
"""Skills of each repository that a search lists."""
_REMOTE = (404, 409, 422, 502)


def _repositories(api: ApiServices, _: ApiRequest) -> ListAnswer:
    found = [copied(ConfiguredRepositoryAnswer, one) for one in api.house.config.repositories]
    return listed("repositories", found)


def _add(api: ApiServices, request: ApiRequest) -> ConfiguredRepositoryAnswer:
    name, url = request.body["name"], request.body["url"]
    places = api.house.config.places
    with only_editor(places, api.house.config.state_directory), api.fresh() as house:
        whole = with_repository(places, name, url)
        changed = {"name": name, "url": url}
        write_user_text(house.audit_log, places, whole, "repository-add", changed)
    api.reader.expire()
    with api.fresh() as house:
        added = next(one for one in house.config.repositories if one.name == name)
    return copied(ConfiguredRepositoryAnswer, added)


def _packages(api: ApiServices, request: ApiRequest) -> ListAnswer:
    asked = request.query
    found, weak, problems = offered_packages(
        api,
        asked.get("q", ""),
        repository=asked.get("repository", ""),
        limit=asked.get("limit", BROWSED_MAX),
    )
    return listed("skills", found, RepositoriesAnswer(weak=weak, problems=problems or UNSET))


def offered_packages(
    api: ApiServices, query: str, *, repository: str = "", limit: int = BROWSED_MAX
) -> tuple[list[PackageAnswer], bool, list[str]]:
    """Return what the repositories list, or one of them, and whether nothing of it fits well.

    The third is what is wrong with repositories of several; errors are as of `listed`.
    """
    problems: list[str] = []
    with (
        skillhouse.house.Skillhouse(api.house.config) as house,
        install.Installer(house) as installer,
    ):
        repositories = installer.sources.repositories
        # Without a repository there is nothing to browse, which is no mistake of the reader.
        if not repositories.all and not repository:
            return [], False, []
        listed = list(
            repositories.listed(query, only=repository, limit=limit, problem=problems.append)
        )
        offered, weak = judged_listing(listed, query)
    return list(map(package_answer, offered)), weak, problems


def _package(api: ApiServices, request: ApiRequest) -> PackageVersionsAnswer:
    return package_versions(api, request.path["repository"], request.path["package"])


def package_versions(api: ApiServices, repository: str, package: str) -> PackageVersionsAnswer:
    """Return a package with its versions, newest first; errors as of `find`."""
    namespace, skill = registry.split_name(package)
    with (
        skillhouse.house.Skillhouse(api.house.config) as house,
        install.Installer(house) as installer,
    ):
        repositories = installer.sources.repositories
        found = repositories.find(namespace, skill, only=repository)
    releases = found.skill
    versions = [release_answer(one) for one in releases.versions]
    return PackageVersionsAnswer(
        total=len(versions),
        name=releases.typed,
        repository=found.settings.name,
        trusted=found.settings.trusted,
        description=releases.description,
        license=releases.license,
        latest=releases.latest,
        channels=dict(releases.channels or {}),
        versions=versions,
    )


def _publishers(api: ApiServices, _: ApiRequest) -> PublishersAnswer:
    anchors = registry.AnchorStore(api.house.config.state_directory / registry.TRUSTED_DIRECTORY)
    found = anchors.read(datetime.fromtimestamp(api.clock(), UTC))
    return publishers_answer(found, install.kept_roots(api.house.config.state_directory))


_PACKAGE_EXAMPLE = {
    "name": "pdf",
    "repository": "official",
    "version": "1.2.0",
    "description": "Merges PDF files.",
    "license": "MIT",
    "publisher": None,
    "reason": "exact name",
    "matches": {"name": ["pdf"]},
}

ROUTES = (
    Endpoint(
        name="listPublisherRoots",
        method="GET",
        path="/publishers",
        tag="packages",
        what="The roots of publishers that are trusted here, and the revocations that are known.",
        run=_publishers,
        answer=ref(PublishersAnswer),
        example={"roots": [], "timestamps": [], "revocations": [], "repositories": []},
    ),
    Endpoint(
        name="listRepositories",
        method="GET",
        path="/repositories",
        tag="packages",
        what="The configured repositories, in the order in which a name is looked for.",
        run=_repositories,
        answer=listing("repositories", ConfiguredRepositoryAnswer),
        example={
            "list": "repositories",
            "total": 1,
            "repositories": [
                {
                    "name": "official",
                    "url": "https://skills.example.com",
                    "trusted": True,
                    "require_signature": False,
                }
            ],
        },
    ),
    Endpoint(
        name="addRepository",
        method="POST",
        path="/repositories",
        tag="packages",
        what="Adds a repository to the user's file; it is not trusted, so each install asks.",
        run=_add,
        scope=AccessScope.MANAGE,
        status=201,
        body=Body(
            schema=record(
                {
                    "name": SHORT,
                    "url": {"type": "string", "minLength": 1, "maxLength": 2_000},
                },
                closed=True,
            ),
            example={"name": "team", "url": "https://skills.example.com"},
        ),
        answer=ref(ConfiguredRepositoryAnswer),
        example={
            "name": "team",
            "url": "https://skills.example.com",
            "trusted": False,
            "require_signature": False,
        },
        problems=(422,),
    ),
    Endpoint(
        name="searchPackages",
        method="GET",
        path="/packages",
        tag="packages",
        what="What the repositories list, each in turn; all of it is their word.",
        run=_packages,
        query=(
            RouteParameter(
                name="q",
                schema={"type": "string", "maxLength": 200},
                what="Only skills that fit these words.",
                example="pdf",
            ),
            RouteParameter(
                name="repository",
                schema=SHORT,
                what="Only of this one.",
                example="official",
            ),
            RouteParameter(
                name="limit",
                schema={"type": "integer", "minimum": 1, "maximum": BROWSED_MAX},
                what="Most skills of each repository; 200 if left out.",
                example=50,
            ),
        ),
        answer=listing("skills", PackageAnswer, RepositoriesAnswer),
        example={"list": "skills", "total": 1, "skills": [_PACKAGE_EXAMPLE], "weak": False},
        problems=_REMOTE,
    ),
    Endpoint(
        name="showPackage",
        method="GET",
        path="/repositories/{repository}/packages/{package}",
        tag="packages",
        what="The versions of a package, newest first, with what is said of their signatures.",
        run=_package,
        answer=ref(PackageVersionsAnswer),
        example={
            "list": "versions",
            "total": 1,
            "name": "pdf",
            "repository": "official",
            "trusted": True,
            "description": "Merges PDF files.",
            "license": "MIT",
            "latest": "1.2.0",
            "channels": {},
            "versions": [
                {
                    "version": "1.2.0",
                    "state": "published",
                    "reason": "",
                    "digest": "sha256:00",
                    "tree_digest": "skilltree1:00",
                    "size": 1_024,
                    "files": 2,
                    "published_at": "2026-11-01T12:00:00Z",
                    "publisher": "acme",
                    "registry": "skills.example.com",
                    "certificate": "00",
                }
            ],
        },
        problems=_REMOTE,
    ),
)
