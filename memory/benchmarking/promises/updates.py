"""An update replaces the old content, everywhere, and the last write wins."""

from __future__ import annotations

import threading
from itertools import pairwise

from memory.benchmarking.measure.resources import disk_bytes, settled_ram_bytes
from memory.benchmarking.promises.model import Outcome, check, judge, not_promised, promise
from memory.benchmarking.promises.trial import ANN, Trial
from memory.benchmarking.targets.base import Item

_WRITERS = 4
_NO_UPDATE = "the system has no update"
_PARTS = 8
"""The files are measured after each part of the updates. Free space that is used again, or a log that is
written in large steps, makes them grow in some parts. Only a store that keeps old versions grows in all.
Chroma, for instance, empties its queue after 1,000 updates."""
_GROWTH_LIMIT = 0.5
"""The share of the written bytes by which the files may grow in a part. A store that keeps old versions
grows by 1 or more."""


with promise("an update replaces"):

    @check()
    def old_content_is_not_found(trial: Trial) -> Outcome:
        """Memories updated many times: only the newest content is read and found."""
        if not trial.capabilities.update:
            return not_promised(_NO_UPDATE)
        target = trial.open()
        count, rounds = trial.size(20, 50, 100), trial.size(5, 10, 20)
        ids = trial.store(target, ANN, [trial.text() for _ in range(count)])
        old: list[str] = []
        texts: list[str] = []
        for _ in range(rounds):
            old += texts
            texts = [trial.text() for _ in ids]
            for id_, text in zip(ids, texts, strict=True):
                target.update(ANN, id_, text)
        target.flush()
        wrong = stale = 0
        if trial.capabilities.get:
            wrong = sum(found != text for found, text in zip(target.get(ANN, ids), texts, strict=True))
        if trial.capabilities.search:
            for text in trial.random.sample(old, min(30, len(old))):
                stale += text in [hit.content for hit in target.search(ANN, text, 5)]
            for text in texts[:30]:
                wrong += text not in [hit.content for hit in target.search(ANN, text, 5)]
        off = sum(target.count().values()) - count
        return judge(
            wrong + stale + abs(off) == 0,
            f"{count * rounds:,} updates of {count} memories: {wrong} not replaced, "
            f"{stale} old contents found; {count + off} memories instead of {count}",
            {"updates": count * rounds, "wrong": wrong, "stale": stale, "count_off": abs(off)},
            (
                'target.update("ann", id_, "new")',
                'target.search("ann", "old", 5)   # no hit may be "old"',
            ),
        )

    @check()
    def updates_do_not_fill_the_disk(trial: Trial) -> Outcome:
        """Whether the files grow with every part of the updates, in spite of the system's own clean-up."""
        if not (trial.capabilities.update and trial.capabilities.persistence):
            return not_promised(
                _NO_UPDATE if trial.capabilities.persistence else "nothing is kept in files"
            )
        folder = trial.folder()
        target = trial.open(folder)
        in_a_part = trial.size(150, 300, 1250)
        ids = trial.store(target, ANN, [trial.text(40) for _ in range(100)])
        sizes: list[int] = []
        ram: list[int] = []
        written = 0
        for _ in range(_PARTS):
            for number in range(in_a_part):
                text = trial.text(40)
                written += len(text)
                target.update(ANN, ids[number % len(ids)], text)
            target.maintain()
            ram.append(settled_ram_bytes())
            trial.close(target)
            sizes.append(disk_bytes(folder))
            target = trial.open(folder)
        # The least growth of a part, because the first part may fill space that is used again later.
        growth = min(after - before for before, after in pairwise(sizes))
        a_byte = growth / (written / _PARTS)
        updates = _PARTS * in_a_part
        more_ram = ram[-1] - ram[0]
        return judge(
            a_byte <= _GROWTH_LIMIT,
            f"{updates:,} updates of 100 memories wrote {written / 1e6:.1f} MB of text; after maintenance "
            f"the files had {', '.join(f'{size / 1e6:.2f}' for size in sizes)} MB after each eighth; RAM "
            f"after the last eighth: {ram[-1] / 1e6:.0f} MB, {more_ram / 1e6:+.1f} MB since the first",
            {
                "updates": updates,
                "growth_per_written_byte": max(0.0, a_byte),
                "ram_growth_bytes": more_ram,
            },
            (
                "for text in texts:",
                '    target.update("ann", id_, text)',
                "target.maintain()   # the files keep growing",
            ),
        )

    @check()
    def the_last_write_wins_among_threads(trial: Trial) -> Outcome:
        """Four threads update the same memories; the last content of one of them stays."""
        if not (trial.capabilities.update and trial.capabilities.threads and trial.capabilities.get):
            return not_promised("threads can't share an open store, or there is no update")
        target = trial.open()
        ids = trial.store(target, ANN, [trial.text() for _ in range(5)])
        last: list[dict[str, str]] = [{} for _ in range(_WRITERS)]
        errors: list[str] = []
        rounds = trial.size(20, 50, 200)
        texts = [[trial.text() for _ in range(rounds * len(ids))] for _ in range(_WRITERS)]

        def write(number: int) -> None:
            for place, text in enumerate(texts[number]):
                id_ = ids[place % len(ids)]
                try:
                    target.update(ANN, id_, text)
                    last[number][id_] = text
                except Exception as problem:
                    errors.append(f"{type(problem).__name__}: {problem}"[:200])
                    return

        threads = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        contents = target.get(ANN, ids)
        stale = sum(
            content not in [mine.get(id_) for mine in last]
            for id_, content in zip(ids, contents, strict=True)
        )
        return _won(stale, len(ids), errors, "threads")

    @check()
    def the_last_write_wins_among_processes(trial: Trial) -> Outcome:
        """Four processes update the same memories."""
        if not (trial.capabilities.update and trial.capabilities.processes and trial.capabilities.get):
            return not_promised("only one process may open the store, or there is no update")
        folder = trial.folder()
        target = trial.open(folder)
        ids = trial.store(target, ANN, [trial.text() for _ in range(3)])
        actors = [trial.actor(folder) for _ in range(_WRITERS)]
        rounds = trial.size(10, 30, 100)
        plans = []
        for actor in actors:
            actor.call("open")  # all of them, before the first one writes
            actor.call("know", {id_: id_ for id_ in ids})
        for actor in actors:
            plans.append([(actor.send("update", ANN, id_, text := trial.text()), id_, text)
                          for _ in range(rounds) for id_ in ids])  # fmt: skip
        last: list[dict[str, str]] = []
        errors: list[str] = []
        for actor, plan in zip(actors, plans, strict=True):
            actor.call("count")  # all updates before it have been answered
            mine = {}
            for number, id_, text in plan:
                answer = actor.answers[number]
                if answer is True:
                    mine[id_] = text
                else:
                    errors.append(str(answer))
            last.append(mine)
            actor.close()
        contents = target.get(ANN, ids)
        stale = sum(
            content not in [mine.get(id_) for mine in last]
            for id_, content in zip(ids, contents, strict=True)
        )
        return _won(stale, len(ids), errors, "processes")


def _won(stale: int, memories: int, errors: list[str], who: str) -> Outcome:
    evidence = f"{_WRITERS} {who}, {memories} memories: {stale} with a content that nobody wrote last"
    if errors:
        evidence += f"; {len(errors)} errors (first: {errors[0]})"
    return judge(
        stale + len(errors) == 0,
        evidence,
        {"memories": memories, "stale": stale, "errors": len(errors)},
        (
            f'# in {_WRITERS} {who}: target.update("ann", id_, text)',
            'target.get("ann", [id_])   # expected: the last text',
        ),
    )


with promise("ids are unique"):

    @check()
    def no_id_is_used_twice(trial: Trial) -> Outcome:
        """Ids of single writes, batches, equal contents and after a restart."""
        folder = trial.folder()
        target = trial.open(folder)
        ids = [target.add_one(Item(ANN, trial.text())) for _ in range(20)]
        for _ in range(5):
            ids += target.add([Item(ANN, trial.text()) for _ in range(20)])
        twice = trial.text()
        ids += target.add([Item(ANN, twice), Item(ANN, twice)])
        ids += [target.add_one(Item(ANN, twice))]
        repeated_at_once = len(ids) - len(set(ids))
        if trial.capabilities.persistence:
            target.delete(ANN, ids[-1:])
            deleted = ids.pop()
            trial.close(target)
            target = trial.open(folder)
            ids += [target.add_one(Item(ANN, trial.text())) for _ in range(5)]
            ids += target.add([Item(ANN, trial.text()) for _ in range(5)])
            ids.append(deleted)
        repeated = len(ids) - len(set(ids))
        return judge(
            repeated == 0,
            f"{len(ids)} memories: {repeated} ids given twice",
            {"memories": len(ids), "repeated": repeated},
            (
                'first = target.add_one(Item("ann", "one"))',
                *(
                    ()
                    if repeated_at_once
                    else ('target.delete("ann", [first])', "target.close(); target.open(folder)")
                ),
                'second = target.add_one(Item("ann", "one"))',
                "first != second   # expected: True",
            ),
        )

    @check()
    def an_id_of_the_caller_is_stored_once(trial: Trial) -> Outcome:
        """One id stored twice: refused, replaced or kept, but not doubled."""
        if not trial.capabilities.caller_ids:
            return not_promised("the system chooses all ids")
        target = trial.open()
        one, two = trial.text(), trial.text()
        target.add([Item(ANN, one, id="the-id")])
        same = _second(trial, target, one)
        other = _second(trial, target, two)
        count = sum(target.count().values())
        content = target.get(ANN, ["the-id"])[0]
        said = f"the same content again is {same}, another content is {other}; there are {count} memories"
        wrong = content not in (one, two) or (other == "refused" and content != one)
        return judge(
            count == 1 and not wrong,
            said,
            {"memories": count, "doubled": max(0, count - 1)},
            (
                'target.add([Item("ann", "one", id="x")])',
                'target.add([Item("ann", "two", id="x")])',
                "target.count()   # expected: 1",
            ),
        )


def _second(trial: Trial, target: object, content: str) -> str:
    """Store the id again; return "refused", "accepted" or "replaced"."""
    try:
        target.add([Item(ANN, content, id="the-id")])  # type: ignore[attr-defined]
    except Exception:
        return "refused"
    found = target.get(ANN, ["the-id"])  # type: ignore[attr-defined]
    return "accepted" if found == [content] else "ignored"
