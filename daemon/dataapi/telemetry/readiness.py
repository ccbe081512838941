"""Readiness of projects, webhooks and workers, and the result of a reload."""

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
    """Whether a replica is available for reads, and the reason if it is not.

    :ivar lag: replication lag in seconds, or None if unknown.
    """

    server: str
    available: bool
    lag: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LiveState:
    """State of live queries.

    :ivar interval: seconds between polls for changes.
    :ivar lag: seconds that the oldest pending query has waited to run again.
    """

    subscribers: int
    interval: float
    lag: float


@dataclass(frozen=True, slots=True)
class ProjectState:
    """Whether a project can handle requests.

    :ivar database_available: whether the database of ``db-uri`` can be reached.
    :ivar generation: generation of the current catalog, or None before the first one is loaded.
    :ivar problems: malformed directives and persisted documents, and name clashes: ``location: message``.
    :ivar reason: why the project is not ready, or None.
    :ivar fault: why the project's settings cannot work with the database, or None.
    :ivar changes: how schema changes are detected: by notifications, by polling if notifications are not
        possible (as on a standby), or only on request.
    :ivar replicas: servers of ``db-read-uri``. If there are none, the primary serves reads.
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
        """Whether reads work: a catalog is loaded, a server can be reached, and the settings are valid.

        Without a primary, replicas still serve reads, so a proxy should not remove the daemon.
        """
        reachable = self.database_available or any(replica.available for replica in self.replicas)
        return reachable and self.generation is not None and self.fault is None

    @property
    def writes(self) -> bool:
        return self.ready and self.database_available and not self.standby


@dataclass(frozen=True, slots=True)
class WebhooksState:
    """Whether webhooks work, and if not, why. The APIs can be ready without webhooks."""

    database_available: bool
    migrated: bool
    reason: str | None = None

    @property
    def ready(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class DaemonState:
    """Whether a process, or all workers together, can handle requests.

    :ivar starting: whether the daemon does not accept requests yet.
    :ivar draining: whether the daemon is stopping and should receive no more requests.
    :ivar workers: number of processes that accept requests.
    :ivar stuck: numbers of the worker processes that do not respond.
    :ivar requires_all: whether all projects have to be ready, instead of any.
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
        """Whether a proxy may send requests here.

        One ready project is enough by default. Otherwise the failure of one project's database would make the
        proxy remove every daemon, and with them all other projects.
        """
        accepting = self.workers > 0 and not self.starting and not self.draining
        enough = all if self.requires_all or not self.projects else any
        return accepting and enough(project.ready for project in self.projects)

    @property
    def writes(self) -> bool:
        return self.ready and all(project.writes for project in self.projects if project.ready)

    @property
    def summary(self) -> str:
        """One-line state for ``systemctl status``, with the reason for each problem."""
        problems = [f"{project.ref}: {project.reason}" for project in self.projects if not project.ready]
        if self.webhooks is not None and not self.webhooks.ready:
            problems.append(f"webhooks: {self.webhooks.reason}")
        problems += [f"worker {number} does not respond" for number in self.stuck]
        status = "serving" if self.ready else "not ready"
        if self.ready and not self.writes:
            status = "serving reads"
        return "; ".join([status, *problems])

    def for_projects(self, refs: Collection[str]) -> DaemonState:
        """Return the daemon's state, restricted to these projects. It is ready only if all projects are.

        :raises KeyError: if a project does not exist.
        """
        projects = {project.ref: project for project in self.projects}
        return replace(self, projects=tuple(projects[ref] for ref in refs), requires_all=True)

    def as_json(self) -> dict[str, Any]:
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
    projects = tuple(
        _read(ProjectState, {**project, **_members(project)}) for project in document["projects"]
    )
    webhooks = document["webhooks"] and _read(WebhooksState, document["webhooks"])
    return DaemonState(projects, document["starting"], document["draining"], document["workers"], webhooks)


def _members(project: Mapping[str, Any]) -> dict[str, Any]:
    replicas = tuple(ReplicaState(**replica) for replica in project["replicas"])
    live = project["live"] and LiveState(**project["live"])
    return {"problems": tuple(project["problems"]), "replicas": replicas, "live": live}


def _read(kind: type[T], members: Mapping[str, Any]) -> T:
    return kind(**{field.name: members[field.name] for field in fields(kind)})


def combined(states: Iterable[DaemonState]) -> DaemonState:
    """Return the state of all workers together. A project is as ready as in its least ready worker."""
    all_states = tuple(states)
    by_ref: dict[str, list[ProjectState]] = {}
    for state in all_states:
        for project in state.projects:
            by_ref.setdefault(project.ref, []).append(project)
    return DaemonState(
        projects=tuple(replace(min(group, key=_rank), live=_live(group)) for group in by_ref.values()),
        starting=any(state.starting for state in all_states),
        draining=any(state.draining for state in all_states),
        workers=len(all_states),
        webhooks=min(
            (state.webhooks for state in all_states if state.webhooks),
            key=lambda state: (state.ready, state.migrated, state.database_available),
            default=None,
        ),
    )


def _live(projects: Iterable[ProjectState]) -> LiveState | None:
    states = [project.live for project in projects if project.live is not None]
    if not states:
        return None
    return LiveState(
        sum(state.subscribers for state in states),
        max(state.interval for state in states),
        max(state.lag for state in states),
    )


def _rank(project: ProjectState) -> tuple[bool, bool, int]:
    return project.ready, project.writes, -1 if project.generation is None else project.generation


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload: new generations, and errors of projects that retain their old catalog."""

    generations: Mapping[str, int]
    failures: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        return {"generations": dict(self.generations), "failures": dict(self.failures)}


class ReloadError(Exception):
    """Raised when a project cannot reload data other than its catalog, such as keys."""


class DaemonControl(Protocol):
    """Operations for the admin listener and signal handlers. They apply to this process or to all workers."""

    async def state(self) -> DaemonState:
        pass

    async def snapshot(self) -> Snapshot:
        pass

    async def catalogs(self) -> Mapping[str, Any]:
        pass

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Apply new settings, if any, and reload every project's catalog."""
