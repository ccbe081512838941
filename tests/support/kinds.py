"""Requests of both APIs that must have the same result on one server and on a Citus cluster."""

# ruff: noqa: E501 - a line is a request

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jwt
from support.memory_http import SECRET

if TYPE_CHECKING:
    from support.service import Answer, Service


@dataclass(frozen=True)
class Kind:
    """An example request. Its changes are rolled back.

    :ivar target: path and query under ``/rest/v1/``, or a GraphQL document.
    :ivar body: body of a REST request; None for GraphQL.
    :ivar method: method of a REST request; "" for GraphQL.
    """

    target: str
    method: str = "GET"
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


_FILTERS = """
company_id=eq.3&id=eq.4
company_id=eq.3&salary=gt.1500
company_id=eq.3&salary=gte.1503
company_id=eq.3&salary=lt.1303
company_id=eq.3&salary=lte.1303
company_id=eq.3&id=neq.4
company_id=in.(3,5)&id=in.(1,2)
company_id=eq.3&name=like.*1*
company_id=eq.3&name=ilike.EMPLOYEE 2*
company_id=eq.3&name=match.^Employee [12]
company_id=eq.3&skill_id=is.null
company_id=eq.3&skill_id=not.is.null
company_id=eq.3&or=(id.eq.1,id.eq.2)
company_id=eq.3&and=(id.gt.1,or(id.lt.4,salary.gt.1900))
company_id=eq.3&not.or=(id.eq.1,id.eq.2)
name=eq.Employee 2 of 7
salary=gt.1900
id=eq.2
company_id=isdistinct.3&id=eq.1
id=eq(any).{1,2}&company_id=lt.4
""".strip().splitlines()

_READS = """
company?order=id
company?select=id,name&order=name.desc
company?order=country.asc.nullsfirst,id&limit=5
company?order=id&limit=3&offset=2
company?id=eq.3
company?id=eq.3&select=name,founded::text
country?order=code
country?code=eq.at
project?company_id=eq.3&order=id
project?company_id=eq.3&tags=cs.{t1}
project?company_id=eq.3&tags=ov.{t1,t2}&order=id
project?company_id=eq.3&select=id,level:details->level&order=id
project?company_id=eq.3&select=id,details->of->>c&order=id
project?details->>level=eq.2&order=company_id
project?company_id=eq.3&order=details->level.desc
employee?company_id=eq.3&select=id,label&order=id
task?order=company_id,id&limit=7
task?due=gte.2024-01-15&order=company_id,id&limit=9&offset=3
task?company_id=eq.3&done=is.true&order=id
task?company_id=eq.3&title=fts.Task&order=id&limit=2
company?id=eq.3&select=name,country(name)
company?select=id,country(name)&order=id
company?id=eq.3&select=name,employee!employee_company_id_fkey(name)&employee.order=id
company?id=eq.3&select=name,employee!employee_company_id_fkey(name)&employee.order=id&employee.limit=2
company?select=id,employee!employee_company_id_fkey(id,name)&employee.order=id&order=id
company?select=id,employee!employee_company_id_fkey(id)&employee.order=id.desc&employee.limit=2&order=id
company?select=id,employee!employee_company_id_fkey(id)&employee.salary=gt.1900&employee.order=id&order=id
company?select=id,project!project_company_id_fkey(id)&project.order=id&order=id&limit=3
task?company_id=eq.3&select=id,project(title)&order=id
task?company_id=eq.3&select=id,project(title),employee(name)&order=id
task?company_id=eq.3&id=eq.4&select=id,project(title),employee(name)
task?select=company_id,id,project(title)&order=company_id,id&limit=10
task?select=company_id,id,employee(name)&order=company_id,id
task?company_id=eq.3&select=id,employee!inner(name)&employee.id=eq.2&order=id
task?select=company_id,id,employee!inner(name)&employee.name=eq.Employee 2 of 7&order=company_id,id
project?company_id=eq.3&select=id,task(id,employee(name))&order=id&task.order=id
project?select=company_id,id,task(id)&order=company_id,id&task.order=id
project?select=company_id,id,task(id)&order=company_id,id&task.order=id&task.limit=1
company?id=eq.3&select=id,project!project_company_id_fkey(id,task(id,title))&project.order=id&project.task.order=id
company?select=id,project!project_company_id_fkey(id,task(id))&project.order=id&project.task.order=id&order=id
employee?company_id=eq.3&select=id,project(id)&order=id&project.order=id
employee?select=company_id,id,project(id)&order=company_id,id&project.order=id&limit=12
employee?company_id=eq.3&select=id,skill(name)&order=id
employee?select=company_id,id,skill(name)&order=company_id,id&limit=15
employee?company_id=eq.3&select=id,skill!inner(name)&skill.name=eq.Skill 2&order=id
task?company_id=eq.3&select=id,...project(project:title)&order=id
task?company_id=eq.3&select=id,...project(project:title),...employee(who:name)&order=id
task?select=company_id,id,...project(project:title)&order=company_id,id&limit=8
company?id=eq.3&select=name,...employee!employee_company_id_fkey(names:name)&employee.order=id
employee?company_id=eq.3&select=id,task(count)&order=id
company?id=eq.3&select=id,employee!employee_company_id_fkey(count)
company?select=id,employee!employee_company_id_fkey(count)&order=id
task?company_id=eq.3&select=count()
task?select=count()
task?select=hours.sum(),hours.avg(),hours.min(),hours.max()
task?company_id=eq.3&select=hours.sum(),hours.avg()
task?select=company_id,count()&order=company_id
task?company_id=eq.3&select=done,hours.sum()&order=done
task?company_id=eq.3&select=id,project(title)&order=project(title),id
employee?company_id=eq.3&select=id,task()&task=not.is.null&order=id
employee?company_id=eq.3&select=id,task()&task=is.null&order=id
company?select=id,task!inner()&task.title=eq.Task 4&order=id
note?order=company_id,id
note?company_id=eq.3&order=id
note?company_id=eq.4&order=id
note?select=count()
rpc/add?a=2&b=3
rpc/total_hours?company=3
rpc/tasks_of?company=3&order=id
rpc/tasks_of?company=3&order=id&limit=3&select=id,title
rpc/tasks_of?company=3&order=id&select=id,project(title)
nowhere
company?nothing=eq.1
company?id=eq.text
""".strip().splitlines()

REPRESENTATION = {"Prefer": "return=representation, tx=rollback"}
_MINIMAL = {"Prefer": "tx=rollback"}
MERGED = {"Prefer": "return=representation, resolution=merge-duplicates, tx=rollback"}
_IGNORE = {"Prefer": "return=representation, resolution=ignore-duplicates, tx=rollback"}
TASK = {"company_id": 3, "id": 100, "project_id": 1, "title": "New", "hours": 2}
_OTHER = {"company_id": 4, "id": 100, "project_id": 1, "title": "Other", "hours": 3}
_EMPLOYEE = {"company_id": 3, "id": 2, "name": "Merged", "email": "m@c3"}

_COUNTS = [
    Kind(target, headers={"Prefer": f"count={count}"})
    for target in (
        "task?company_id=eq.3&order=id&limit=3",
        "task?order=company_id,id&limit=3",
        "country?order=code",
    )
    for count in ("exact", "planned", "estimated")
]

_WRITES = [
    Kind("task", "POST", TASK, REPRESENTATION),
    Kind("task", "POST", TASK, _MINIMAL),
    Kind("task", "POST", TASK, {"Prefer": "return=headers-only, tx=rollback"}),
    Kind("task?select=id,project(title)", "POST", TASK, REPRESENTATION),
    Kind("task", "POST", [TASK, {**TASK, "id": 101}], REPRESENTATION),
    Kind("task?order=company_id", "POST", [TASK, _OTHER], REPRESENTATION),
    Kind("task?columns=company_id,id,project_id,title", "POST", [TASK], REPRESENTATION),
    Kind(
        "task?columns=company_id,id,project_id,title,done",
        "POST",
        [TASK],
        {"Prefer": "return=representation, missing=default, tx=rollback"},
    ),
    Kind("task", "POST", {**TASK, "project_id": 99}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "id": 1}, REPRESENTATION),
    Kind("employee", "POST", _EMPLOYEE, MERGED),
    Kind("employee", "POST", {**_EMPLOYEE, "id": 200}, MERGED),
    Kind("employee?order=id", "POST", [_EMPLOYEE, {**_EMPLOYEE, "id": 200}], MERGED),
    Kind("employee", "POST", [_EMPLOYEE, {**_EMPLOYEE, "id": 200}], _IGNORE),
    Kind("country", "POST", {"code": "at", "name": "Merged"}, MERGED),
    Kind("country", "POST", {"code": "dk", "name": "Denmark"}, REPRESENTATION),
    Kind("employee?company_id=eq.3&id=eq.2", "PUT", _EMPLOYEE, REPRESENTATION),
    Kind("employee?company_id=eq.3&id=eq.200", "PUT", {**_EMPLOYEE, "id": 200}, REPRESENTATION),
    Kind("employee?company_id=eq.3&id=eq.2", "PUT", _EMPLOYEE, _MINIMAL),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"title": "Changed"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"title": "Changed"}, _MINIMAL),
    Kind("task?company_id=eq.3&id=lt.4&order=id", "PATCH", {"done": True, "hours": None}, REPRESENTATION),
    Kind("task?id=eq.4&order=company_id", "PATCH", {"title": "Changed"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4&select=id,project(title)", "PATCH", {"title": "X"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.999", "PATCH", {"title": "X"}, REPRESENTATION),
    Kind(
        "task?company_id=eq.3&id=lt.4",
        "PATCH",
        {"title": "X"},
        {"Prefer": "handling=strict, max-affected=1, tx=rollback"},
    ),
    Kind("country?code=eq.at", "PATCH", {"name": "X"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "DELETE", None, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "DELETE", None, _MINIMAL),
    Kind("task?id=eq.4&order=company_id", "DELETE", None, REPRESENTATION),
    Kind("company?id=eq.3", "DELETE", None, _MINIMAL),
    Kind("rpc/rename_company", "POST", {"company": 3, "new_name": "X"}, _MINIMAL),
    Kind("rpc/tasks_of?order=id", "POST", {"company": 3}),
    Kind("company?id=eq.3", headers={"X-Refuse": "yes"}),
    Kind("company?id=eq.3", headers={"X-Say": "yes"}),
    Kind("company?id=eq.3", headers={"Accept": "application/vnd.pgrst.object+json"}),
    Kind("company?order=id", headers={"Accept": "text/csv"}),
    Kind("company?order=id", headers={"Range": "2-4", "Range-Unit": "items"}),
    Kind("company?id=eq.3", "HEAD"),
]

_ODD = {
    **TASK,
    "title": "It''s \\ \"q\" $1 %s {} 😀\n",
    "hours": 1e3,
    "due": "2024-02-29",
    "assignee_id": None,
}
_PROJECT = {
    "company_id": 3,
    "id": 100,
    "title": "P",
    "budget": "7",
    "details": {"a": [1, None]},
    "tags": ["x", "y,z"],
}
_LONE = [
    Kind("task", "POST", _ODD, REPRESENTATION),
    Kind("task?select=t:title,hours::text,id", "POST", _ODD, REPRESENTATION),
    Kind("task", "POST", TASK, {**REPRESENTATION, "Accept": "text/csv"}),
    Kind("task", "POST", TASK, {**REPRESENTATION, "Accept": "application/vnd.pgrst.object+json"}),
    Kind("task", "POST", {**TASK, "nothing": 1}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "hours": "many"}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "id": 2**40}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "title": None}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "done": None}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "title": {"a": 1}}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "title": "a\0b"}, REPRESENTATION),
    Kind("task", "POST", {**TASK, "company_id": "3"}, {"Prefer": "return=minimal, count=exact, tx=rollback"}),
    Kind("task?columns=company_id,id,project_id,title,hours", "POST", TASK, REPRESENTATION),
    Kind("task?columns=company_id,id,project_id,title,due", "POST", {**TASK, "extra": [1]}, REPRESENTATION),
    Kind(
        "task?columns=company_id,id,project_id,title,done",
        "POST",
        TASK,
        {"Prefer": "return=representation, missing=default, tx=rollback"},
    ),
    Kind("project", "POST", _PROJECT, REPRESENTATION),
    Kind(
        "project?select=id,details->a,tags",
        "POST",
        {**_PROJECT, "details": None, "tags": None},
        REPRESENTATION,
    ),
    Kind("project", "POST", {**_PROJECT, "tags": "{a,b}", "details": "text"}, REPRESENTATION),
    Kind("project", "POST", {**_PROJECT, "tags": 1}, REPRESENTATION),
    Kind("employee?select=id,label", "POST", {**_EMPLOYEE, "id": 200}, REPRESENTATION),
    Kind("employee", "POST", {**_EMPLOYEE, "id": 200}, _MINIMAL),
    Kind("employee", "POST", _EMPLOYEE, {"Prefer": "resolution=merge-duplicates, tx=rollback"}),
    Kind("employee", "POST", _EMPLOYEE, _IGNORE),
    Kind("employee?on_conflict=company_id,id", "POST", {**_EMPLOYEE, "id": 200}, _IGNORE),
    Kind("employee?company_id=eq.3&id=eq.2", "PUT", {**_EMPLOYEE, "id": 3}, REPRESENTATION),
    Kind("employee?company_id=eq.3&id=eq.2", "PUT", {**_EMPLOYEE, "id": "x"}, REPRESENTATION),
    Kind("note", "POST", {"company_id": 3, "id": 100, "text": "ours"}, REPRESENTATION),
    Kind("note", "POST", {"company_id": 4, "id": 100, "text": "theirs"}, REPRESENTATION),
    Kind("note?company_id=eq.3&id=eq.1", "PATCH", {"text": "ours"}, REPRESENTATION),
    Kind("note?company_id=eq.4&id=eq.1", "PATCH", {"text": "theirs"}, REPRESENTATION),
    Kind("note?company_id=eq.4&id=eq.1", "DELETE", None, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"title": _ODD["title"], "due": None}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"hours": "many"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {"project_id": 99}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", {}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4&hours=gt.1e6", "PATCH", {"title": "X"}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.4", "PATCH", [{"title": "X"}, {"title": "Y"}], REPRESENTATION),
    Kind("project?company_id=eq.3&id=eq.2", "PATCH", {"tags": ["n"], "details": None}, REPRESENTATION),
    Kind("task?company_id=eq.3&id=eq.999", "DELETE", None, REPRESENTATION),
    Kind(
        "task?company_id=eq.3&id=eq.999",
        "DELETE",
        None,
        {**REPRESENTATION, "Accept": "application/vnd.pgrst.object+json"},
    ),
    Kind(
        "task?company_id=eq.3&id=eq.4",
        "DELETE",
        None,
        {"Prefer": "handling=strict, max-affected=0, return=representation, tx=rollback"},
    ),
]

_QUERIES = """
{ companyCollection(orderBy: [{id: AscNullsLast}]) { edges { node { id name } } } }
{ companyCollection(filter: {id: {eq: 3}}) { edges { node { name founded } } } }
{ companyCollection(orderBy: [{id: AscNullsLast}], first: 3) { edges { cursor node { id } } pageInfo { hasNextPage endCursor } } }
{ companyCollection(orderBy: [{id: AscNullsLast}], last: 3) { edges { node { id } } pageInfo { hasPreviousPage } } }
{ companyCollection(orderBy: [{id: AscNullsLast}], first: 2, after: "WzNd") { edges { node { id } } } }
{ companyCollection(orderBy: [{id: AscNullsLast}], last: 2, before: "WzNd") { edges { node { id } } } }
{ companyCollection { totalCount } }
{ taskCollection(filter: {companyId: {eq: 3}}) { totalCount } }
{ taskCollection(filter: {companyId: {eq: 3}}, orderBy: [{id: DescNullsLast}], first: 4) { edges { node { id title done } } totalCount } }
{ taskCollection(filter: {companyId: {eq: 3}, or: [{id: {lt: 3}}, {done: {eq: true}}]}, orderBy: [{id: AscNullsLast}]) { edges { node { id } } } }
{ taskCollection(filter: {companyId: {in: [3, 5]}, id: {eq: 4}}, orderBy: [{companyId: AscNullsLast}]) { edges { node { companyId title } } } }
{ taskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}) { edges { node { title project { title } } } } }
{ taskCollection(filter: {companyId: {eq: 3}}, orderBy: [{id: AscNullsLast}]) { edges { node { id project { title } employee { name } } } } }
{ taskCollection(orderBy: [{companyId: AscNullsLast}, {id: AscNullsLast}], first: 5) { edges { node { id project { title } } } } }
{ companyCollection(filter: {id: {eq: 3}}) { edges { node { id employeeCollection(orderBy: [{id: AscNullsLast}]) { edges { node { name } } } } } } }
{ companyCollection(filter: {id: {eq: 3}}) { edges { node { id employeeCollection(orderBy: [{id: AscNullsLast}], first: 2) { edges { node { name } } pageInfo { hasNextPage } } } } } }
{ companyCollection(orderBy: [{id: AscNullsLast}]) { edges { node { id employeeCollection(orderBy: [{id: AscNullsLast}], first: 2) { edges { node { name } } } } } } }
{ companyCollection(filter: {id: {eq: 3}}) { edges { node { projectCollection(orderBy: [{id: AscNullsLast}]) { edges { node { taskCollection(orderBy: [{id: AscNullsLast}]) { edges { node { title } } } } } } } } } }
{ companyCollection(filter: {id: {eq: 3}}) { edges { node { country { name } } } } }
{ companyCollection(filter: {id: {eq: 3}}) { edges { node { employeeCollection { totalCount } } } } }
{ employeeCollection(filter: {companyId: {eq: 3}}, orderBy: [{id: AscNullsLast}]) { edges { node { id label } } } }
{ employeeCollection(filter: {companyId: {eq: 3}}, orderBy: [{id: AscNullsLast}]) { edges { node { id skill { name } } } } }
{ noteCollection(orderBy: [{id: AscNullsLast}]) { edges { node { companyId id } } } }
{ add(a: 2, b: 3) }
{ totalHours(company: 3) }
{ tasksOf(company: 3, orderBy: [{id: AscNullsLast}], first: 3) { edges { node { id } } } }
{ countryCollection(orderBy: [{code: AscNullsLast}]) { edges { node { nodeId code } } } }
{ a: companyCollection(filter: {id: {eq: 3}}) { edges { node { name } } } b: companyCollection(filter: {id: {eq: 4}}) { edges { node { name } } } }
mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 100, projectId: 1, title: "New"}]) { affectedCount records { id title } } }
mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 100, projectId: 1, title: "New"}]) { records { id project { title } } } }
mutation { updateTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}, set: {title: "X"}) { affectedCount records { title } } }
mutation { updateTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}, set: {title: "X"}) { records { title project { title } } } }
mutation { updateTaskCollection(filter: {companyId: {eq: 3}}, set: {title: "X"}, atMost: 1) { affectedCount } }
mutation { updateEmployeeCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}, set: {name: "X"}) { records { label } } }
mutation { deleteFromTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}) { affectedCount records { title } } }
mutation { deleteFromTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}) { records { title project { title } } } }
mutation { a: updateTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}, set: {title: "X"}) { affectedCount } b: deleteFromTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 5}}) { affectedCount } }
mutation { renameCompany(company: 3, newName: "X") }
mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 100, projectId: 1, title: "It's \\\\ \\"q\\" $1 %s"}]) { affectedCount records { nodeId id title hours done due } } }
mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 4, projectId: 1, title: "New"}]) { affectedCount } }
mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 100, projectId: 1, title: "a"}, {companyId: 3, id: 101, projectId: 1, title: "b", done: true}]) { affectedCount records { id done } } }
mutation { insertIntoProjectCollection(objects: [{companyId: 3, id: 100, title: "P", tags: ["x", null], details: "null"}]) { records { id tags details budget } } }
mutation { insertIntoNoteCollection(objects: [{companyId: 4, id: 100, text: "theirs"}]) { records { id } } }
mutation { insertIntoEmployeeCollection(objects: [{companyId: 3, id: 2, name: "M"}], onConflict: {columns: [company_id, id], update: [name]}) { affectedCount records { name } } }
mutation { updateTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 4}}, set: {title: "X", due: null}, atMost: 0) { affectedCount } }
mutation { deleteFromTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 999}}) { affectedCount records { title } } }
""".strip().splitlines()

_FURTHER = [
    Kind("country?select=name,company!inner(name)&company.id=eq.3"),
    Kind("company?select=id,employee!employee_company_id_fkey(id,skill(name))&order=id"),
    Kind("employee?select=company_id,id&order=skill(name),company_id,id"),
    Kind("task?select=company_id,id,employee(name,skill(name))&order=company_id,id&limit=20"),
    Kind("company?select=id,employee!employee_company_id_fkey(id,task(count))&employee.order=id&order=id"),
    Kind("company?select=id,...employee!employee_company_id_fkey(names:name)&employee.order=id&order=id"),
    Kind("company?select=name,...country(c:name)&order=id"),
    Kind("company?select=id,employee!employee_company_id_fkey(salary.avg())&order=id"),
    Kind("task?select=project(title),count()&company_id=eq.3&order=project(title)"),
    Kind("task?select=company_id,id,project(title)&order=company_id,id", headers={"Accept": "text/csv"}),
    Kind("company?select=id,employee!employee_company_id_fkey(id)&order=id", headers={"Accept": "text/csv"}),
    Kind("company?select=id,note(id)&order=id"),
    Kind("task?order=company_id,id&limit=0"),
    Kind("task?company_id=eq.3&id=eq.4&limit=0"),
    Kind("task?company_id=eq.3&id=eq.4&offset=1"),
    Kind("task?company_id=eq.3&id=eq.999"),
    Kind("task?company_id=eq.3&id=eq.4", headers={"Prefer": "count=exact"}),
    Kind("task?company_id=eq.3&id=eq.4&select=hours::text,t:title"),
    Kind("project?company_id=eq.3&id=eq.2&select=details->level,details->of->>c"),
    Kind(
        "task?company_id=eq.3&id=eq.4", headers={"Accept": "application/vnd.pgrst.array+json;nulls=stripped"}
    ),
    Kind("task?company_id=eq.3&id=eq.999", headers={"Accept": "application/vnd.pgrst.object+json"}),
    Kind("rpc/tasks_of?company=3&order=id.desc&select=title,employee(name)"),
    Kind("rpc/tasks_of?company=3&select=count()"),
    Kind("rpc/tasks_of?company=3&order=id&id=lt.5&select=id,hours", headers={"Prefer": "count=exact"}),
    Kind("employee?select=label&order=label&limit=5"),
    Kind("employee?label=like.*<e2@c7>&select=id,label&order=id"),
    Kind("employee?select=company_id,id,label&order=company_id,id&limit=5", headers={"Accept": "text/csv"}),
    Kind("employee?company_id=eq.3&id=eq.2&select=label", "PATCH", {"name": "Z"}, REPRESENTATION),
    Kind("task?id=eq.4&select=company_id,project(title)&order=company_id", "DELETE", None, REPRESENTATION),
    Kind("project?company_id=eq.3&id=eq.2&select=id,task(id)", "PATCH", {"budget": 1}, REPRESENTATION),
    Kind(
        "task?select=id,project(title),employee(name)",
        "POST",
        [
            {"company_id": 3, "id": 300, "project_id": 1, "assignee_id": 2, "title": "a"},
            {"company_id": 4, "id": 300, "project_id": 1, "assignee_id": 2, "title": "b"},
        ],
        REPRESENTATION,
    ),
    Kind(
        "{ companyCollection(orderBy:[{id: AscNullsLast}]) { edges { node { id country { name } employeeCollection(first: 3, orderBy:[{id: DescNullsLast}]) { totalCount pageInfo { hasNextPage endCursor } edges { cursor node { id skill { name } } } } } } } }",
        method="",
    ),
    Kind(
        "{ taskCollection(orderBy:[{companyId: AscNullsLast},{id: AscNullsLast}], first: 4) { pageInfo { hasNextPage } edges { node { id project { title taskCollection(first: 2, orderBy:[{id: AscNullsLast}]) { edges { node { id } } } } employee { label } } } } }",
        method="",
    ),
    Kind("{ taskByPk(companyId: 3, id: 4) { id project { title } } }", method=""),
    Kind(
        'mutation { updateTaskCollection(filter: {id: {eq: 4}}, set: {title: "Y"}, atMost: 5) { records { companyId project { title } } } }',
        method="",
        headers=_MINIMAL,
    ),
    Kind(
        'mutation { insertIntoTaskCollection(objects: [{companyId: 5, id: 400, projectId: 1, title: "n"},{companyId: 3, id: 400, projectId: 2, title: "m"}]) { affectedCount records { companyId id project { title } } } }',
        method="",
        headers=_MINIMAL,
    ),
    Kind(
        'mutation { a: insertIntoTaskCollection(objects: [{companyId: 5, id: 400, projectId: 1, title: "n"}]) { records { id } } b: updateTaskCollection(filter: {companyId: {eq: 5}, id: {eq: 400}}, set: {title: "k"}) { records { title project { title } } } __typename c: renameCompany(company: 5, newName: "Q") }',
        method="",
        headers=_MINIMAL,
    ),
    Kind(
        'mutation { updateCompanyCollection(filter: {id: {eq: 3}}, set: {name: "Y"}) { records { name country { name } employeeCollection(first: 2, orderBy:[{id: AscNullsLast}]) { edges { node { name } } } } } }',
        method="",
        headers=_MINIMAL,
    ),
    Kind(
        'mutation { updateTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 999}}, set: {title: "Y"}) { affectedCount records { project { title } } } }',
        method="",
        headers=_MINIMAL,
    ),
]

REFUSED = [
    Kind("country?select=code,company(name)&order=code"),
    Kind("skill?select=id,employee(name)&order=id"),
    Kind(
        "{ countryCollection(orderBy:[{code: AscNullsLast}]) { edges { node { code companyCollection { edges { node { id } } } } } } }",
        method="",
    ),
    Kind(
        "mutation { deleteFromTaskCollection(filter: {id: {eq: 4}}, atMost: 50) { records { companyId project { title } } } }",
        method="",
        headers=_MINIMAL,
    ),
    Kind(
        'mutation { insertIntoCountryCollection(objects: [{code: "xx", name: "X"}]) { records { code companyCollection { edges { node { id } } } } } }',
        method="",
        headers=_MINIMAL,
    ),
]
"""Requests that Citus rejects, because rows of a reference table have many related rows in shards."""

KINDS = [
    *(Kind(f"employee?{each}&order=company_id,id") for each in _FILTERS),
    *map(Kind, _READS),
    *_COUNTS,
    *_WRITES,
    *_LONE,
    *(Kind(each, method="", headers=_MINIMAL) for each in _QUERIES),
    *_FURTHER,
]

_CLAIMS = {"role": "authenticated", "company_id": 3}


@dataclass(frozen=True)
class Both:
    """The same tables behind two services, on one server and distributed over a cluster."""

    plain: Service
    distributed: Service


async def send(service: Service, kind: Kind) -> Answer:
    """Send a request with the claims of a user of company 3."""
    authorization = f"Bearer {jwt.encode(_CLAIMS, SECRET, 'HS256')}"
    headers = {"Authorization": authorization, **kind.headers}
    if not kind.method:
        return await service.ask(kind.target, headers=headers, check=False)
    return await service.rest(kind.method, kind.target, kind.body, headers=headers)


def comparable(answer: Answer) -> tuple[Any, ...]:
    """Return the parts of a response that must not depend on which server or shard stores the rows."""
    names = ("content-range", "location", "content-type", "x-said", "preference-applied")
    return (answer.status, *(answer.headers.get(name) for name in names), answer.text)
