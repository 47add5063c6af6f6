"""The Raft log of one voter, kept in a partition log and durable before the voter promises anything.

Guarantees (Raft, section 5.3, where the library as shipped breaks them): an entry that matches the leader's stays.
A conflicting entry is deleted with all behind it; a committed one never, the node halts instead. There are no gaps.
After `sync` returns, term, vote and all entries survive a power loss. The window in memory begins at the two entries
that join it to the newest snapshot, as the library demands. While the node runs, the journal reads from that window
alone and only writes the files: the start checked those bytes (`journal_check.py`), or they came checked from a peer.
The methods in mixed case are the library's names. `storage.py` opens the journal, the driver owns it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partitions.log.errors import LogCorruptError
from quorum.raft.compat import Journal
from quorum.raft.halting import Halting
from quorum.raft.journal_check import CheckedJournal
from quorum.raft.journal_log import JournalDamagedError, JournalLog, encode_entry
from quorum.raft.messages import BARRIER, Entry
from quorum.raft.quorum_state import QuorumState

FIRST_ENTRY: Entry = (BARRIER, 1, 0)
"""The first entry of every voter's log; the library adds it by itself and never applies it."""
END_AFTER_IDLE_S = 0.1
"""Time without a sync after which the end marker is written."""
END_AGAIN_AFTER_S = 1.0
"""Time after an attempt that found no room until the next one, if nothing was synced meanwhile."""


class DurableJournal(Journal):  # type: ignore[misc]  # the library has no types
    """The log of one voter, and its term and vote."""

    def __init__(
        self, log: JournalLog, state: QuorumState, wall_ms: Callable[[], int], halting: Halting
    ) -> None:
        self._log = log
        self._state = state
        self._wall_ms = wall_ms
        self._halting = halting
        self._entries: list[Entry] = []
        self._unwritten: list[Entry] = []
        self._unsynced = False
        self._synced_end = 0  # entries through here survive a power loss
        self._marked_end = state.journal_end  # the file's marker is at least this, and at most the state's
        self._idle_since_s: float | None = None
        self._commit_index = FIRST_ENTRY[1]

    # -- start

    def open(self, found: CheckedJournal, snapshot: tuple[Entry, Entry] | None) -> None:
        """Takes over the entries found on disk, and joins them to the snapshot (the last two entries it
        covers), if there is one.

        A log that holds both entries keeps its tail. A sound log without them is older than the snapshot or
        contradicts it, since a crash came between the two; it is begun anew. Raises JournalDamagedError if the
        log begins behind the snapshot, LogError, OSError.
        """
        self._entries = found.entries
        self._synced_end = found.end
        if snapshot is None:
            if not found.end:
                self._log.truncate_fully_and_start_at(FIRST_ENTRY[1])
                self._append(FIRST_ENTRY)
            if self._entries[:1] != [FIRST_ENTRY]:
                raise JournalDamagedError(
                    f"it begins at offset {found.first}, and the snapshot of what came before is missing"
                )
            return
        prev, last = snapshot
        if found.end and found.first > prev[1]:
            raise JournalDamagedError(
                f"it begins at offset {found.first}, and the newest snapshot ends at {last[1]}: a newer one is missing"
            )
        if self._entries[:2] != [prev, last]:
            self._begin_at(prev, last)
        self._commit_index = last[1]

    def join(self, prev: Entry, last: Entry) -> None:
        """Joins the log to a durable snapshot that has been installed. A tail that follows the
        snapshot's last two entries stays (Raft, section 7); a log that lacks them is begun anew."""
        position = prev[1] - self._entries[0][1]
        if position >= 0 and self._entries[position : position + 2] == [prev, last]:
            self.deleteEntriesTo(position)
        else:
            self._begin_at(prev, last)
        self._commit_index = max(self._commit_index, last[1])

    # -- calls of the library

    def add(self, command: bytes, idx: int, term: int) -> None:
        """One entry from the leader, or this leader's own. Idempotent."""
        position = idx - self._entries[0][1]
        if position < 0:
            return
        if position < len(self._entries):
            if self._entries[position][2] == term:
                return
            self._truncate_from(idx)
        elif position > len(self._entries):
            self._halting.halt(f"the Raft log ends at {self._entries[-1][1]}, and was handed entry {idx}")
        self._append((command, idx, term))

    def clear(self) -> None:
        """Never called: `join` takes its place."""
        raise AssertionError("the journal is never cleared")

    def deleteEntriesFrom(self, entry_from: int) -> None:
        """Does nothing: `add` deletes real conflicts."""

    def deleteEntriesTo(self, entry_to: int) -> None:
        """Forgets the first entries of the window; a durable snapshot covers them."""
        if entry_to > 0:
            self._write()
            del self._entries[:entry_to]
            self._log.delete_segments_before(self._entries[0][1])

    def __getitem__(self, item: Any) -> Any:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, raft_commit_index: int) -> None:
        """Keeps the index in memory, as the bound below which nothing is truncated. A restarted voter learns it
        from the leader."""
        self._commit_index = max(self._commit_index, raft_commit_index)

    def getRaftCommitIndex(self) -> int:
        return self._commit_index

    def setCurrentTerm(self, term: int, voted_for: int | None) -> None:
        self._state.set(term, voted_for)

    def getCurrentTerm(self) -> int:
        return self._state.term

    def getVotedForNodeId(self) -> int | None:
        return self._state.voted_for

    def _destroy(self) -> None:
        """Does nothing: the driver closes the journal."""

    # -- durability

    @property
    def dirty(self) -> bool:
        """Whether a power loss now would lose term, vote or entries."""
        return self._unsynced or self._state.dirty

    @property
    def end_index(self) -> int:
        return self._entries[-1][1]

    def sync(self) -> None:
        """Makes term, vote and every entry durable, with one fsync for all entries since the last."""
        if self._state.dirty:
            self.save_state()
        if self._unsynced:
            self._write()
            self._log.sync()
            self._unsynced = False
            self._synced_end = self.end_index
            self._idle_since_s = None

    def remember_end(self) -> None:
        """Writes the end marker durably: an unreadable entry up to here is damage, not a torn tail."""
        self.sync()
        if self.end_is_unmarked:
            self.save_state()

    @property
    def end_is_unmarked(self) -> bool:
        """Whether entries behind the end marker are synced."""
        return self._marked_end < self._synced_end

    def remember_end_if_idle(self, now_s: float) -> None:
        """Writes the end marker after a while without a sync, so that it costs no commit an fsync. `now_s` is
        monotonic seconds; called with every step.

        Without room or descriptors the old marker stays, as if a crash had come before this moment: it vouches
        for fewer entries, never for a missing one."""
        if not self.end_is_unmarked or self.dirty:
            return
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s >= END_AFTER_IDLE_S and not self.try_to_remember_end():
            self._idle_since_s = now_s + END_AGAIN_AFTER_S - END_AFTER_IDLE_S

    def try_to_remember_end(self) -> bool:
        """As `remember_end`; False if there was no room or descriptor for the marker."""
        self.sync()
        return not self.end_is_unmarked or self.save_state_if_possible()

    def close(self) -> None:
        """Syncs everything and closes the log."""
        self.try_to_remember_end()
        self._log.close()

    # -- inside

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._unwritten.append(entry)
        self._unsynced = True

    def _write(self) -> None:
        if self._unwritten:
            now_ms = self._wall_ms()
            self._log.append_as_follower(
                b"".join(encode_entry(entry, now_ms, self._synced_end) for entry in self._unwritten)
            )
            self._unwritten.clear()

    def _truncate_from(self, index: int) -> None:
        if index <= self._commit_index:
            self._halting.halt(
                f"the leader contradicts committed entry {index} (committed through {self._commit_index}):"
                " this voter's state cannot be trusted"
            )
        del self._entries[index - self._entries[0][1] :]
        while self._unwritten and self._unwritten[-1][1] >= index:
            self._unwritten.pop()
        if index < self._log.log_end_offset:
            self._synced_end = min(self._synced_end, index - 1)
            self._lower_end(index - 1)
            self._cut(index)
            self._unsynced = True

    def _cut(self, index: int) -> None:
        """Makes the log end before the entry. A log whose bytes have rotted may not end there."""
        try:
            self._log.truncate_to(index)
        except LogCorruptError as error:
            self._halting.halt(f"the journal cannot be cut at entry {index}: {error}")
        if self._log.log_end_offset != index:
            self._halting.halt(
                f"the journal ends at {self._log.log_end_offset} and not at {index}, where it was cut: its files"
                " are damaged"
            )

    def _begin_at(self, prev: Entry, last: Entry) -> None:
        """Gives up the log for a durable snapshot. The marker becomes 0 first: after a crash in between, the next
        start removes the rest of the log."""
        self._synced_end = 0
        self._lower_end(0)
        self._log.truncate_fully_and_start_at(prev[1])
        self._entries.clear()
        self._unwritten.clear()
        self._append(prev)
        self._append(last)
        self.remember_end()

    def _lower_end(self, index: int) -> None:
        """Lowers the end marker before entries are deleted, so that their absence is not taken for a loss."""
        if self._state.journal_end > index:
            self._state.journal_end = self._marked_end = index
            self._state.save()

    def save_state(self) -> None:
        """Writes term, vote and the newest end marker durably, whether they have changed or not."""
        self._state.journal_end = max(self._state.journal_end, self._synced_end)
        self._state.save()
        self._marked_end = self._state.journal_end

    def save_state_if_possible(self) -> bool:
        """As `save_state`, where nothing but the end marker has changed; False without room or descriptors."""
        self._state.journal_end = max(self._state.journal_end, self._synced_end)
        is_saved = self._state.save_if_possible()
        if is_saved:
            self._marked_end = self._state.journal_end
        return is_saved
