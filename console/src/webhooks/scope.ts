import type { Access } from "./api";

/** The owner of endpoints: an organization or a project. */
export interface Scope {
  kind: "organization" | "project";
  name: string;
}

/** The scopes that a token has access to, the organization first. A portal link may be limited to one project. */
export function scopesOf({ organization_slug, projects, project_ref }: Pick<Access, "organization_slug" | "projects" | "project_ref">): Scope[] {
  const ofProjects = projects.map((name): Scope => ({ kind: "project", name }));
  return organization_slug === null || project_ref !== null ? ofProjects : [{ kind: "organization", name: organization_slug }, ...ofProjects];
}

export function keyOf({ kind, name }: Scope): string {
  return `${kind}/${name}`;
}

/** The path of a scope's webhooks. */
export function baseOf({ kind, name }: Scope): string {
  return `/v2/${kind}s/${encodeURIComponent(name)}/webhooks`;
}

/** Sort event types by name, those of the scope's own events first. */
export function ordered<T extends { type: string }>(types: T[], { kind }: Scope): T[] {
  const own = ({ type }: T) => Number(type.split(".")[1] === kind);
  return types.toSorted((one, other) => own(other) - own(one) || one.type.localeCompare(other.type));
}

/** What an endpoint of the scope receives. */
export function reachOf({ kind }: Scope): string {
  return kind === "organization"
    ? "Endpoints of an organization receive its events and those of all its projects."
    : "Endpoints of a project receive only the events of that project.";
}
