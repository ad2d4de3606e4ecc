"""Who sends, by the key a request brings, before anything of its body is read; and which project it means.

A project is named by `?project=`; a key of one project need not name it. Another one is refused in the same words
whether it exists or not.
"""

from dataclasses import dataclass

from starlette.datastructures import Headers, QueryParams

from rankscope._setting_readers import checked_id
from rankscope.errors import ConfigError
from rankscope.front.errors import ForbiddenError, InvalidRequestError, UnauthenticatedError
from rankscope_proto.keys import KeyRing, Principal, Scope, bearer, masked


@dataclass(frozen=True, slots=True)
class Access:
    """Says whether a request may send, and into which project.

    Attributes:
        ring: The keys; None: none is asked for.
        project: Of requests that name none.
    """

    ring: KeyRing | None
    project: str

    def project_of(self, headers: Headers, query: QueryParams) -> str:
        """The project a request sends into.

        Raises:
            UnauthenticatedError: keys are on, and no valid one came.
            ForbiddenError: the key may not send, or not into that project.
            InvalidRequestError: the project's name cannot be one.
        """
        named = query.getlist("project")
        if len(named) > 1:
            raise InvalidRequestError(f"project is named {len(named)} times: name one")
        if self.ring is None:
            return _checked(named[0] if named else self.project)
        principal = _principal(self.ring, headers)
        if not principal.may(Scope.INGEST):
            raise ForbiddenError(
                f"the key {principal.key_id} has not the scope {Scope.INGEST.value!r}",
                hint=f"`rankscope keys create --scope {Scope.INGEST.value}` makes one that has",
            )
        project = _checked(named[0] if named else principal.only_project or self.project)
        if not principal.sees(project):
            raise ForbiddenError(
                f"the key {principal.key_id} may not send into project {project!r}",
                hint="name one of the key's projects as ?project=NAME",
            )
        return project


def run_of(path: str) -> str:
    """The run that a path names.

    Raises:
        InvalidRequestError: it cannot be one.
    """
    return _checked(path, what="run_id")


def _checked(given: str, *, what: str = "project") -> str:
    try:
        return checked_id(what, given)
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from None


def _principal(ring: KeyRing, headers: Headers) -> Principal:
    given = headers.getlist("authorization")
    if len(given) > 1:  # a proxy before us may have looked at another one than we would
        raise UnauthenticatedError(
            f"{len(given)} Authorization headers came with this request", hint="send one, as `Bearer KEY`"
        )
    key = bearer(given[0] if given else None)
    principal = ring.principal(key)
    if principal is not None:
        return principal
    found = f"the key {masked(key)} is not valid: it is unknown, expired or revoked" if key else "no key was sent"
    raise UnauthenticatedError(
        f"this service asks for a key, and {found}",
        hint="send it as `Authorization: Bearer KEY`; `rankscope keys create --scope ingest` makes one",
    )
