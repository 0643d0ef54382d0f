"""A delete is final, and touches nothing else; where it is promised, it also erases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, BOB, Trial
from memory.benchmarking.targets.base import Target

_SEARCHED = 30
"""The most deleted memories that are searched for, one query each."""


def _still_there(target: Target, agent: str, ids: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the texts that `get` or `search` still returns."""
    found: list[str] = []
    if target.capabilities.get:
        found += [str(content) for content in target.get(agent, ids) if content is not None]
    if target.capabilities.search:
        for text in texts[:: max(1, len(texts) // _SEARCHED)]:
            found += [text for hit in target.search(agent, text, 5) if hit.content == text]
    return found


def _gone(trial: Trial, count: int, how: str) -> Outcome:
    """Delete `count` memories of one agent, by id, by batch or all; look everywhere for them."""
    folder = trial.folder()
    target = trial.open(folder)
    texts = [trial.text() for _ in range(count)]
    kept_own = [trial.text() for _ in range(20)] if how != "all" else []
    others = [trial.text() for _ in range(20)]
    ids = trial.store(target, ANN, texts)
    stay = {
        ANN: (trial.store(target, ANN, kept_own), kept_own),
        BOB: (trial.store(target, BOB, others), others),
    }
    if how == "one by one":
        reported = sum(target.delete(ANN, [id_]) for id_ in ids)
    elif how == "batch":
        reported = target.delete(ANN, ids)
    else:
        reported = target.delete_all(ANN)
    target.flush()
    found: dict[str, int] = {"at once": len(_still_there(target, ANN, ids, texts))}
    left = sum(target.count().values()) - len(kept_own) - len(others)
    target.maintain()
    found["after maintenance"] = len(_still_there(target, ANN, ids, texts))
    lost = {agent: _missing(target, agent, *stored) for agent, stored in stay.items()}
    if trial.capabilities.persistence:
        trial.close(target)
        target = trial.open(folder)
        found["after opening again"] = len(_still_there(target, ANN, ids, texts))
        lost = {agent: max(lost[agent], _missing(target, agent, *stored)) for agent, stored in stay.items()}
    still, gone = sum(found.values()), sum(lost.values())
    where = ", ".join(f"{number} {when}" for when, number in found.items())
    evidence = (
        f"{count:,} memories deleted; still found: {where}; the count is {_off(left)}; "
        f"{gone} other memories gone; delete returned {reported:,}"
    )
    figures = {"deleted": count, "still_found": still, "others_gone": gone, "count_off": abs(left)}
    return judge(
        still + gone + abs(left) == 0 and reported == count,
        evidence,
        figures,
        _code(how, count, found, next((agent for agent, number in lost.items() if number), ""), left),
    )


def _off(difference: int) -> str:
    """Return in words by how much a count is wrong."""
    return f"{abs(difference):,} too {'high' if difference > 0 else 'low'}" if difference else "right"


def _code(how: str, count: int, found: dict[str, int], robbed: str, left: int) -> list[str]:
    """Return the lines that show what went wrong: others' memories first, which is the worst."""
    call = {"one by one": 'target.delete("ann", [id_])', "batch": 'target.delete("ann", ids)'}.get(
        how, 'target.delete_all("ann")'
    )
    lines = [f"texts = [f'text {{n}}' for n in range({count:,})]".replace(",", "_")]
    lines.append('ids = target.add([Item("ann", text) for text in texts])')
    if robbed:
        lines.append(f'other = target.add_one(Item("{robbed}", "another"))')
    lines += ["for id_ in ids:", f"    {call}"] if how == "one by one" else [call]
    when = next((when for when, number in found.items() if number), "")
    if robbed:
        return [*lines, f'target.get("{robbed}", [other])   # expected: ["another"]']
    if when:
        between = {
            "after maintenance": ["target.maintain()"],
            "after opening again": ["target.close(); target.open(folder)"],
        }
        return [*lines, *between.get(when, []), 'target.get("ann", ids)   # expected: only None']
    if left:
        return [*lines, "target.count()   # expected: 0"]
    lines[-1] += f"   # expected: {1 if how == 'one by one' else count}"
    return lines


def _missing(target: Target, agent: str, ids: Sequence[str], texts: Sequence[str]) -> int:
    if not ids:
        return 0
    if target.capabilities.get:
        return sum(content != text for content, text in zip(target.get(agent, ids), texts, strict=True))
    return sum(text not in [hit.content for hit in target.search(agent, text, 10)] for text in texts)


with promise("a delete is final"):

    @check()
    def deleted_one_by_one_is_gone(trial: Trial) -> Outcome:
        """Memories deleted by id, looked for at once, after maintenance and after opening again."""
        return _gone(trial, trial.size(30, 100, 300), "one by one")

    @check()
    def deleted_in_a_batch_is_gone(trial: Trial) -> Outcome:
        """Many memories deleted in one call."""
        return _gone(trial, trial.size(200, 500, 1000), "batch")

    @check()
    def delete_all_deletes_all_of_one_agent(trial: Trial) -> Outcome:
        """All 1,000 memories of an agent, and nothing of anybody else."""
        return _gone(trial, 1000, "all")

    @check(promised=lambda has: has.processes)
    def another_process_no_longer_sees_it(trial: Trial) -> Outcome:
        """A delete in one process, looked for in another that had the memory in its cache."""
        if not (trial.capabilities.persistence and trial.capabilities.get):
            return not_promised("no other process can read the memories")
        folder = trial.folder()
        target = trial.open(folder)
        texts = [trial.text() for _ in range(trial.size(20, 50, 200))]
        ids = trial.store(target, ANN, texts)
        with trial.actor(folder) as reader:
            reader.call("open")
            reader.call("get", ANN, ids)
            searches = trial.capabilities.search
            if searches:
                reader.call("search", ANN, texts[0], 5)
            still = 0
            for id_, text in zip(ids, texts, strict=True):
                target.delete(ANN, [id_])
                still += reader.call("get", ANN, [id_]) != [None]
                if searches:
                    still += id_ in [hit for hit, _ in reader.call("search", ANN, text, 5)]
        return judge(
            still == 0,
            f"{len(ids)} memories deleted in another process: {still} still seen",
            {"deleted": len(ids), "still_found": still},
            (
                '# process 1: target.delete("ann", [id_])',
                '# process 2: target.get("ann", [id_])   # expected: [None]',
            ),
        )


def _bytes_left(folder: Path, tokens: Sequence[str]) -> dict[str, int]:
    """Return how many bytes of the tokens are left, by the name of the file."""
    left: dict[str, int] = {}
    for file in sorted(folder.rglob("*")):
        try:
            data = file.read_bytes() if file.is_file() else b""
        except OSError:
            continue  # a file that the system has removed meanwhile, or a socket
        size = sum(len(token) * data.count(token.encode()) for token in tokens)
        if size:
            name = file.relative_to(folder).as_posix()
            left[name] = left.get(name, 0) + size
    return left


def _erased(trial: Trial, when: str) -> Outcome:
    if not trial.capabilities.persistence:
        return not_promised("the system keeps nothing in files")
    folder = trial.folder()
    target = trial.open(folder)
    tokens = [trial.token() for _ in range(trial.size(50, 200, 500))]
    ids = trial.store(target, ANN, [f"the password is {token}" for token in tokens])
    trial.store(target, ANN, [trial.text() for _ in range(50)])
    if when != "at once":
        target.maintain()  # so that compression and indexes have seen the texts
    target.delete(ANN, ids)
    target.flush()
    evidence = f"{len(tokens)} deleted texts, looked for in every file {when}"
    code = ['target.delete("ann", ids)']
    if when != "at once":
        trial.close(target)
        evidence += f" ({sum(_bytes_left(folder, tokens).values()):,} bytes after closing alone)"
        target = trial.open(folder)
        target.maintain()
        trial.close(target)
        code.append("target.maintain(); target.close()")
    left = _bytes_left(folder, tokens)
    total = sum(left.values())
    places = ", ".join(f"{size:,} in {name}" for name, size in list(left.items())[:3])
    evidence += f": {total:,} bytes left"
    return judge(
        total == 0,
        f"{evidence} ({places})" if left else evidence,
        {"deleted": len(tokens), "bytes_left": total},
        [*code, f"# grep -c 'the password is' {next(iter(left), '')}"],
    )


with promise("a delete erases"):

    @check(promised=lambda has: has.erasure == "delete")
    def deleted_text_is_erased_at_once(trial: Trial) -> Outcome:
        """The deleted text is looked for in every file of the store, when the call has returned."""
        return _erased(trial, "at once")

    @check(promised=lambda has: has.erasure is not None)
    def deleted_text_is_erased_by_maintenance(trial: Trial) -> Outcome:
        """The same after the system's own clean-up, and after closing the store."""
        return _erased(trial, "after maintenance and closing")
