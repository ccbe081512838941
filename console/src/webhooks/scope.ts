import type { Access } from "./api";

/** Where endpoints belong: the organization, or one of its projects. */
export interface Scope {
  kind: "organization" | "project";
  name: string;
}

/** The scopes that a token reaches, the organization first; a portal link may reach one project alone. */
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

/** Types of a scope's own events before others, each in the order of their names. */
export function ordered<T extends { type: string }>(types: T[], { kind }: Scope): T[] {
  const own = ({ type }: T) => Number(type.split(".")[1] === kind);
  return types.toSorted((one, other) => own(other) - own(one) || one.type.localeCompare(other.type));
}

/** What an endpoint of the scope receives. */
export function reachOf({ kind }: Scope): string {
  return kind === "organization"
    ? "Endpoints of an organization receive its events and those of all its projects."
    : "Endpoints of a project receive the events of that project alone.";
}
