"""Readiness per project, and the outcome of a reload."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Protocol, TypeVar

from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot

T = TypeVar("T", "ProjectState", "WebhooksState")
Changes = Literal["notified", "polled", "on request"]


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Whether a replica answers reads.

    :ivar lag: seconds that it is behind the primary, None where that is not known.
    :ivar reason: why it answers none, or None.
    """

    server: str
    available: bool
    lag: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LiveState:
    """How live queries are served.

    :ivar interval: seconds between two looks for changes.
    :ivar lag: seconds for which the first query waits that has to be run again.
    """

    subscribers: int
    interval: float
    lag: float


@dataclass(frozen=True, slots=True)
class ProjectState:
    """Whether a project can answer.

    :ivar database_available: whether the database of ``db-uri`` can be reached.
    :ivar generation: number of the catalog that serves, or None before the first.
    :ivar problems: malformed directives and persisted documents, clashing names, each ``place: message``.
    :ivar reason: why it cannot answer, or None.
    :ivar fault: which of its settings cannot work with this database, or None.
    :ivar changes: how it learns that the database changed: by notifications, by polling where none
        can arrive, as on a standby, or by requests to reload.
    :ivar standby: whether the database is a standby, which answers only reads.
    :ivar replicas: those of ``db-read-uri``; without any of them the primary answers.
    :ivar live: how live queries are served, None where they are off.
    """

    ref: str
    database_available: bool
    generation: int | None
    problems: tuple[str, ...] = ()
    reason: str | None = None
    fault: str | None = None
    changes: Changes = "on request"
    standby: bool = False
    replicas: tuple[ReplicaState, ...] = ()
    live: LiveState | None = None

    @property
    def ready(self) -> bool:
        """Whether reads can be answered: a catalog was loaded, a server can be reached, no fault.

        A proxy that took every daemon out while there is no primary would take the replicas away, too.
        """
        reachable = self.database_available or any(replica.available for replica in self.replicas)
        return reachable and self.generation is not None and self.fault is None

    @property
    def writes(self) -> bool:
        """Whether changes can be answered, too."""
        return self.ready and self.database_available and not self.standby


@dataclass(frozen=True, slots=True)
class WebhooksState:
    """Whether webhooks work, and else the reason; the APIs are ready without them."""

    database_available: bool
    migrated: bool
    reason: str | None = None

    @property
    def ready(self) -> bool:
        """Whether events are taken and delivered."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class DaemonState:
    """Whether a process, or all workers together, can answer.

    :ivar starting: requests are not accepted yet.
    :ivar draining: the daemon stops, and no further requests should be sent.
    :ivar workers: how many processes accept requests.
    :ivar webhooks: whether webhooks work, None where there are none.
    :ivar stuck: the numbers of the worker processes that do not answer.
    :ivar requires_all: whether every project has to be ready, rather than any.
    """

    projects: tuple[ProjectState, ...]
    starting: bool = False
    draining: bool = False
    workers: int = 1
    webhooks: WebhooksState | None = None
    stuck: tuple[int, ...] = ()
    requires_all: bool = False

    @property
    def ready(self) -> bool:
        """Whether traffic may be sent here.

        By default one project is enough: a proxy that took every daemon out because one project has lost
        its database would take all the others away, too.
        """
        accepting = self.workers > 0 and not self.starting and not self.draining
        enough = all if self.requires_all or not self.projects else any
        return accepting and enough(project.ready for project in self.projects)

    @property
    def writes(self) -> bool:
        """Whether the projects that serve answer changes as well as reads."""
        return self.ready and all(project.writes for project in self.projects if project.ready)

    @property
    def summary(self) -> str:
        """The state in a line, for ``systemctl status``: what serves, and the reason for what does not."""
        problems = [f"{project.ref}: {project.reason}" for project in self.projects if not project.ready]
        if self.webhooks is not None and not self.webhooks.ready:
            problems.append(f"webhooks: {self.webhooks.reason}")
        problems += [f"worker {number} does not answer" for number in self.stuck]
        serves = "serving" if self.ready else "not ready"
        if self.ready and not self.writes:
            serves = "serving reads"
        return "; ".join([serves, *problems])

    def of(self, refs: Collection[str]) -> DaemonState:
        """Return whether these projects can answer, all of them.

        :raises KeyError: there is no project of this reference.
        """
        projects = {project.ref: project for project in self.projects}
        return replace(self, projects=tuple(projects[ref] for ref in refs), requires_all=True)

    def as_json(self) -> dict[str, Any]:
        """Return the body of ``/ready``."""
        return {
            "ready": self.ready,
            "writes": self.writes,
            "starting": self.starting,
            "draining": self.draining,
            "workers": self.workers,
            "stuck_workers": list(self.stuck),
            "unready_projects": [project.ref for project in self.projects if not project.ready],
            "projects": [
                {
                    **asdict(project),
                    "problems": list(project.problems),
                    "replicas": [asdict(replica) for replica in project.replicas],
                    "live": project.live and asdict(project.live),
                    "ready": project.ready,
                    "writes": project.writes,
                }
                for project in self.projects
            ],
            "webhooks": self.webhooks and {**asdict(self.webhooks), "ready": self.webhooks.ready},
        }


def state_from_json(document: Mapping[str, Any]) -> DaemonState:
    """Read what ``DaemonState.as_json`` wrote."""
    projects = tuple(
        _read(ProjectState, {**project, **_members(project)}) for project in document["projects"]
    )
    webhooks = document["webhooks"] and _read(WebhooksState, document["webhooks"])
    return DaemonState(projects, document["starting"], document["draining"], document["workers"], webhooks)


def _members(project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a project that are lists or objects in JSON."""
    replicas = tuple(ReplicaState(**replica) for replica in project["replicas"])
    live = project["live"] and LiveState(**project["live"])
    return {"problems": tuple(project["problems"]), "replicas": replicas, "live": live}


def _read(kind: type[T], members: Mapping[str, Any]) -> T:
    """Make a dataclass of those members that are its fields."""
    return kind(**{field.name: members[field.name] for field in fields(kind)})


def combined(states: Iterable[DaemonState]) -> DaemonState:
    """Return what holds for all of several workers: a project is as ready as its least ready worker."""
    known = tuple(states)
    by_ref: dict[str, list[ProjectState]] = {}
    for state in known:
        for project in state.projects:
            by_ref.setdefault(project.ref, []).append(project)
    return DaemonState(
        projects=tuple(replace(min(found, key=_rank), live=_live(found)) for found in by_ref.values()),
        starting=any(state.starting for state in known),
        draining=any(state.draining for state in known),
        workers=len(known),
        webhooks=min(
            (one.webhooks for one in known if one.webhooks),
            key=lambda one: (one.ready, one.migrated, one.database_available),
            default=None,
        ),
    )


def _live(projects: Iterable[ProjectState]) -> LiveState | None:
    found = [project.live for project in projects if project.live is not None]
    if not found:
        return None
    return LiveState(
        sum(one.subscribers for one in found),
        max(one.interval for one in found),
        max(one.lag for one in found),
    )


def _rank(project: ProjectState) -> tuple[bool, bool, int]:
    return project.ready, project.writes, -1 if project.generation is None else project.generation


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The outcome of a reload: per project its new generation, or why the old catalog stays."""

    generations: Mapping[str, int]
    failures: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the body of ``POST /reload``."""
        return {"generations": dict(self.generations), "failures": dict(self.failures)}


class ReloadError(Exception):
    """Something besides the catalog was not read again; the text says what, and why."""


class DaemonControl(Protocol):
    """What the admin listener and signals act on: this process, or its workers."""

    async def state(self) -> DaemonState:
        """Return whether requests can be answered."""

    async def snapshot(self) -> Snapshot:
        """Take the values of ``/metrics``."""

    async def catalogs(self) -> Mapping[str, Any]:
        """Return the catalog of each project that has one, as values that JSON has."""

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Go on with other settings, if there are, and read every project's catalog again."""
