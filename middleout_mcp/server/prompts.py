"""Three prompts a user can pick: save this conversation, brief me, review what the memory did."""

from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import Field

from middleout_mcp.errors import InvalidInput, MiddleoutError
from middleout_mcp.memory.contract import OpenIn, RecallIn
from middleout_mcp.server import render
from middleout_mcp.server.callers import current_caller

if TYPE_CHECKING:
    from middleout_mcp.app import App

_BRIEF_TOKENS = 2000
_REVIEW_TOKENS = 4000

_SAVE = """\
Save what matters of this conversation to memory now, in one call of `remember`. For everything that could be kept, \
answer these eight questions first, for yourself:

1. Will it still be useful after this turn? If not, leave it out. One self-contained sentence each: names instead of \
pronouns, dates instead of "tomorrow".
2. Who said it? Said by the user in so many words: `source: "user"`. Concluded by you: leave `source` out, and set \
`confidence` to how sure you are.
3. Is it sensitive, private or secret? Never a password, key or token. `privacy: "sensitive"` for health, money, \
beliefs and the like, and `privacy: "private"` for what only you and the user should see.
4. How long should it live? `expires: "session"` for "just today", a duration such as "P30D" or a time where there \
is an end; nothing where it holds until it changes.
5. What happens when it gets old? A value that will be replaced gets a `key`; when it changes, \
correct the memory by its id. What must never fade is `pinned: true`; a task has `state` and, if known, `due`.
6. How would the user find it, correct it or delete it? Use the words the user uses, a `kind` (fact, preference, \
decision, task, error, event) and a few `tags`.
7. What proves it? Give `turns`: the indexes, in `messages`, of the messages it comes from.
8. When should it come up, and when not? `scope` names the project it is limited to; `known_by` lists who knows it, \
where not everybody may.

Then call `remember` once, with
- `memories`: what passed the questions; with its `id` where a recalled memory is to be corrected or confirmed;
- `messages`: the messages of this conversation that were not handed over yet, verbatim, oldest first, each with \
`role`, `text` and, where known, `name` and `at`;
- `episode`: one line of at most 24 words: what happened, with names, numbers and the outcome;
- `thread`: {thread};
- `used` and `wrong`: the ids of recalled memories that helped, or were false.

Tell the user in one or two sentences what was saved."""

_BRIEF = """\
Below is what the memory holds as relevant now: pinned memories, tasks that are due, preferences, what happened \
last. Give a short briefing: open tasks first, with their dates; then what is to be respected; then what happened \
last. Leave out what does not matter today, and name the id of anything that looks wrong, so that it can be \
corrected. What the user says now beats all of it.

{stored}"""

_REVIEW = """\
Below are the state of the memory and its latest changes. Tell the user in plain words what was learned, merged, \
compressed and forgotten, newest first, and for each change how to take it back: `forget` with action `restore` and \
the id of the operation (op_…); erased and redacted text cannot come back. Open an operation with `open_episode` \
where the ids alone do not say what it was about. Point out what looks wrong, doubled or no longer true, and change \
nothing before the user has agreed.

{stored}"""


def add_prompts(server: MCPServer[Any], app: "App") -> None:
    """Register `save`, `brief` and `review`."""

    async def save(
        thread: Annotated[
            str, Field(description="Id of this conversation; left out, the client's own id is used.")
        ] = "",
    ) -> str:
        words = " ".join(thread.split())
        return _SAVE.format(thread=repr(words) if words else "an id of this conversation, the same in every call")

    async def brief(
        scope: Annotated[str, Field(description="Project to limit the brief to; left out, all of them.")] = "",
    ) -> str:
        request = RecallIn(scope=scope.strip() or None, limit=20, max_tokens=_BRIEF_TOKENS)
        try:
            found = await app.recall(current_caller(), request)
        except MiddleoutError as error:
            raise _protocol_error(error) from None
        return _BRIEF.format(stored=render.in_zone(app.settings.timezone, render.recalled, found))

    async def review() -> str:
        try:
            stats = await app.open_episode(current_caller(), OpenIn(id="stats", max_tokens=_REVIEW_TOKENS))
        except MiddleoutError as error:
            raise _protocol_error(error) from None
        return _REVIEW.format(stored=render.in_zone(app.settings.timezone, render.opened, stats))

    for fn, title, description in (
        (
            save,
            "Save this conversation",
            "File this conversation in one call; eight questions decide what to keep.",
        ),
        (brief, "Brief me", "What matters now: open tasks due, preferences, pinned memories, the latest events."),
        (
            review,
            "Review the memory",
            "What was learned, merged, compressed and forgotten, and how to undo each.",
        ),
    ):
        server.add_prompt(Prompt.from_function(fn, title=title, description=description))


def _protocol_error(error: MiddleoutError) -> MCPError:
    return MCPError(INVALID_PARAMS if isinstance(error, InvalidInput) else INTERNAL_ERROR, str(error))
