"""What Raft promises, judged while a quorum runs; a broken promise is a `Violation` that names its oracle.

The oracles: `vote-once` and `durable-vote` (Raft, section 5.2), `consent-before-candidacy` (thesis, 9.6),
`durable-acknowledgement` and `no-needless-truncation` (5.3, figure 2), `one-leader-per-term`, `log-matching`,
`leader-completeness`, `applied-prefix` (figure 3: election safety, log matching, leader completeness, state
machine safety), `acknowledged-survives` and `refused-stays-away` (section 8: what clients were told). Pure:
fed by whoever runs the voters, be they ours or the bare library's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

ORACLES = (
    "vote-once",
    "durable-vote",
    "durable-acknowledgement",
    "no-needless-truncation",
    "consent-before-candidacy",
    "one-leader-per-term",
    "log-matching",
    "leader-completeness",
    "applied-prefix",
    "acknowledged-survives",
    "refused-stays-away",
    "one-outcome",
    "no-needless-resend",
    "only-listed-messages",
    "nothing-unpickled",
    "own-folder",
    "short-steps",
    "determinism",
    "topic-whole",
    "proposals-in-sequence",
    "acknowledged-topic",
    "equal-images",
    "halted",
    "not-halted",
    "liveness",
)
"""Every oracle of this package, those of `metadata_judge`, of voters (`strangers`, `folders`, `voter`) and of the
run itself included. `determinism` compares two runs: whoever plays them judges it."""


class Violation(AssertionError):
    """A promise was broken; `oracle` is the name of the promise."""

    def __init__(self, oracle: str, text: str) -> None:
        super().__init__(text)
        self.oracle = oracle


class Log(Protocol):
    """A voter's log: (command, index, term) without gaps, the first one covered by a snapshot or initial."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: Any, /) -> Any: ...


class RaftJudge:
    """All terms and all indexes of one run."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """Term → who led it."""
        self.committed: dict[int, tuple[int, bytes]] = {}
        """Index → (term, command) of what any voter applied."""
        self.acknowledged: dict[int, bytes] = {}
        """Index → the proposal that somebody was told is committed there."""
        self._refused: Counter[bytes] = Counter()
        """How often somebody was told of a proposal that it never will be. Two may be equal: what a controller gave up
        when it renounced, and proposes anew."""
        self._proposed: Counter[bytes] = Counter()
        self._votes: dict[tuple[int, int], int] = {}
        self._newest_vote: dict[int, tuple[int, int]] = {}
        self._consents: dict[tuple[int, int], set[int]] = {}
        self._promised: dict[int, dict[int, int]] = {}
        self._before: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._logs: dict[int, dict[int, Any]] = {}
        self._led_with: dict[int, tuple[int, list[int]]] = {}
        self._commit_terms: dict[int, int] = {}
        self._states: dict[int, bytes] = {}
        self._highest_committed = 0
        self._commands: Counter[bytes] = Counter()

    # -- votes and leaders

    def voted(self, voter: int, term: int, candidate: int) -> None:
        """A vote left; it may leave more than once. Who asks for votes has given itself its own."""
        first = self._votes.setdefault((voter, term), candidate)
        if first != candidate:
            raise Violation("vote-once", f"voter {voter} voted for {first} and {candidate} in term {term}")
        self._newest_vote[voter] = max(self._newest_vote.get(voter, (0, 0)), (term, candidate))

    def consented(self, voter: int, candidate: int, term: int) -> None:
        """A voter agreed, in `term`, that a candidate may stand for election in the next one."""
        self._consents.setdefault((candidate, term), set()).add(voter)

    def stood(self, candidate: int, term: int, majority: int) -> None:
        """A voter asks for votes in `term`. Of itself it may, with the consent of a majority."""
        consents = self._consents.get((candidate, term - 1), set()) | {candidate}
        if len(consents) < majority:
            raise Violation(
                "consent-before-candidacy",
                f"voter {candidate} stands for election in term {term}, and only {sorted(consents)} had consented",
            )

    def led(self, voter: int, term: int, log: Log) -> None:
        """A voter leads `term`, with this log at that moment."""
        first = self.leaders.setdefault(term, voter)
        if first != voter:
            raise Violation("one-leader-per-term", f"voters {first} and {voter} both lead in term {term}")
        if term in self._led_with:
            return
        start = log[0][1]
        terms = [log[position][2] for position in range(len(log))]
        self._led_with[term] = (start, terms)
        for index in range(start, self._highest_committed + 1):
            if self._commit_terms.get(index, term) < term:
                self._check_complete(term, index)

    def _check_complete(self, term: int, index: int) -> None:
        start, terms = self._led_with[term]
        position = index - start
        if position < 0:
            return
        found = terms[position] if position < len(terms) else None
        if found != self.committed[index][0]:
            what = "nothing" if found is None else f"an entry of term {found}"
            raise Violation(
                "leader-completeness",
                f"voter {self.leaders[term]} was elected in term {term} with {what} at index {index}, where an"
                f" entry of term {self.committed[index][0]} was committed by term {self._commit_terms[index]}",
            )

    # -- logs

    def looked_at(self, voter: int, log: Log, *, whole_step: bool = True) -> bool:
        """What a voter's log holds now. Returns whether entries were taken away or replaced since last time.

        Only what contradicts takes entries away, by the end of the step at least.
        """
        known = self._logs.setdefault(voter, {})
        position = len(log) - 1
        end = log[position][1]
        while position >= 0 and known.get(log[position][1]) is not log[position]:
            position -= 1
        replaced = False
        previous = log[position] if position >= 0 else None
        for entry in (log[n] for n in range(position + 1, len(log))):
            self._match(voter, entry, previous)
            before = known.get(entry[1])
            if before is not None and before[2] != entry[2]:
                replaced = True
            known[entry[1]] = previous = entry
        while (last := next(reversed(known))) > end:
            if whole_step and not replaced:
                raise Violation(
                    "no-needless-truncation",
                    f"the log of voter {voter} ends at {end} of term {log[-1][2]}; entries up to {last} are gone, and"
                    " nothing in it contradicts them",
                )
            replaced = True
            del known[last]
            self._promised.get(voter, {}).pop(last, None)
        return replaced

    def _match(self, voter: int, entry: Any, previous: Any | None) -> None:
        command, index, term = entry
        self._forget_promise(voter, index, term)
        if previous is None:
            return
        mine = (previous[2], command)
        first = self._before.setdefault((index, term), mine)
        if first != mine:
            raise Violation(
                "log-matching",
                f"voter {voter} has {_shown(command)} at index {index} of term {term} after an entry of term"
                f" {previous[2]}; another log has {_shown(first[1])} there, after an entry of term {first[0]}",
            )

    def _forget_promise(self, voter: int, index: int, term: int) -> None:
        """Another entry at an index stands for a leader's order to cut: the old promise is void."""
        promised = self._promised.get(voter)
        if promised and promised.get(index, term) != term:
            for later in [one for one in promised if one >= index]:
                del promised[later]

    def promised(self, voter: int, index: int, log: Log) -> None:
        """An acknowledgement left that says: my log agrees with the leader's up to `index`."""
        position = index - log[0][1]
        if 0 <= position < len(log):
            self._promised.setdefault(voter, {})[index] = log[position][2]

    def restarted(self, voter: int, term: int, voted_for: int | None, log: Log) -> None:
        """A voter came back with what its disk had kept."""
        promised_term, candidate = self._newest_vote.get(voter, (-1, 0))
        if term < promised_term or (term == promised_term and voted_for != candidate):
            raise Violation(
                "durable-vote",
                f"voter {voter} voted for {candidate} in term {promised_term}, and came back in term {term} with"
                f" its vote for {voted_for}",
            )
        start = log[0][1]
        for _, held, held_term in [log[position] for position in range(len(log))]:
            # A later leader's snapshot may have been installed in the very step in which the voter died.
            if held_term > self._promised.get(voter, {}).get(held, held_term):
                self._forget_promise(voter, held, held_term)
        for index, entry_term in self._promised.get(voter, {}).items():
            position = index - start
            if position >= 0 and (position >= len(log) or log[position][2] != entry_term):
                raise Violation(
                    "durable-acknowledgement",
                    f"voter {voter} acknowledged index {index} of term {entry_term}, and came back without it",
                )
        self._logs.pop(voter, None)

    def forget_acknowledgements(self, voter: int) -> None:
        """A fault may have taken the end of a voter's log, and that cannot be told from a torn tail."""
        self._promised.pop(voter, None)

    def forget(self, voter: int) -> None:
        """A voter's disk was taken away: whoever comes back in its place has promised nothing."""
        for key in [key for key in self._votes if key[0] == voter]:
            del self._votes[key]
        self._newest_vote.pop(voter, None)
        self._promised.pop(voter, None)
        self._logs.pop(voter, None)

    def sent(self, voter: int, peer: int, previous: int, acknowledged: int) -> None:
        """A leader sends entries that follow index `previous`; the peer's log is known to equal the leader's
        through `acknowledged`."""
        if previous < acknowledged:
            raise Violation(
                "no-needless-resend",
                f"voter {voter} sends voter {peer} entries from index {previous + 1} on, which {peer} has"
                f" acknowledged through {acknowledged}",
            )

    # -- what was applied and told

    def applied(self, voter: int, index: int, term: int, command: bytes, voter_term: int) -> bool:
        """A voter in `voter_term` applied a command. Returns whether nobody had applied that index before."""
        known = self.committed.get(index)
        if known is not None:
            if known != (term, command):
                raise Violation(
                    "applied-prefix",
                    f"voter {voter} applied {_shown(command)} of term {term} at index {index}, where another"
                    f" applied {_shown(known[1])} of term {known[0]}",
                )
            return False
        self.committed[index] = (term, command)
        self._commands[command] += 1
        self._check_refused(command)
        self._commit_terms[index] = voter_term
        self._highest_committed = max(self._highest_committed, index)
        for led in [led for led in self._led_with if led > voter_term]:
            self._check_complete(led, index)
        return True

    def state(self, voter: int, index: int, fingerprint: bytes) -> None:
        """The state of a voter after it applied `index`, as a fingerprint over all that led to it."""
        if self._states.setdefault(index, fingerprint) != fingerprint:
            raise Violation(
                "applied-prefix", f"voter {voter} is in another state at index {index} than others"
            )

    def told_committed(self, index: int, command: bytes) -> None:
        """A client was told that its proposal is at `index`."""
        self.acknowledged[index] = command
        self._check_acknowledged(index, command)

    def proposed(self, command: bytes) -> None:
        """A command is on its way, perhaps once more after it had been refused."""
        self._proposed[command] += 1

    def told_refused(self, command: bytes) -> None:
        """A client was told that its proposal never will be committed."""
        self._refused[command] += 1
        self._check_refused(command)

    def _check_refused(self, command: bytes) -> None:
        refused, committed = self._refused[command], self._commands[command]
        if refused and committed and committed > self._proposed[command] - refused:
            raise Violation(
                "refused-stays-away",
                f"{_shown(command)} was proposed {self._proposed[command]} times, reported as not committed"
                f" {refused} times, and is committed {committed} times",
            )

    def check_end(self) -> None:
        """When everything has come together: what was told is still so."""
        for index, command in self.acknowledged.items():
            self._check_acknowledged(index, command)

    def _check_acknowledged(self, index: int, command: bytes) -> None:
        known = self.committed.get(index)
        if known is None or known[1] != command:
            raise Violation(
                "acknowledged-survives",
                f"{_shown(command)} was acknowledged at index {index}; {_shown(known[1]) if known else 'nothing'}"
                " is committed there",
            )


def _shown(command: bytes) -> str:
    return repr(command[:24]) + ("…" if len(command) > 24 else "")
